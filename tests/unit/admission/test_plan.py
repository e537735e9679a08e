"""Which webhook entries there should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.admission import plan
from controller.admission.configurations import WantedEntries
from controller.admission.plan import GRACE_SECONDS, AdmissionFacts, AdmissionPlan
from controller.canary.proof import NOT_PROVEN, Finding, Wiring
from controller.model.versions import Support
from controller.settings import UNREAD, LiveSettings
from controller.workers.support import LonghornRelease

ON = LiveSettings(enabled=True)
AGREED = LonghornRelease("v1.12.0", Support(is_supported=True))
NOT_AGREED = LonghornRelease("v1.13.0", Support(is_supported=False, problem="it places disks itself"))


def found(state: Wiring, cause: str = "why", scheduler: str = "default-scheduler") -> dict[str, Finding]:
    return {scheduler: Finding(scheduler, state, cause, 0.0)}


def facts(**changed: object) -> AdmissionFacts:
    base = AdmissionFacts(ON, AGREED, ("default-scheduler",), found(Wiring.WIRED), leading_seconds=100.0)
    return replace(base, **changed)  # type: ignore[arg-type]


def decide(facts: AdmissionFacts) -> AdmissionPlan:
    """Where all is known."""
    decision = plan.decide(facts)
    assert decision is not None
    return decision


@pytest.mark.parametrize("unknown", [{"live": UNREAD}, {"longhorn": None}])
def test_while_something_is_not_known_nothing_is_decided(unknown: dict[str, object]) -> None:
    assert plan.decide(facts(**unknown)) is None


def test_everything_is_wanted_where_all_is_well() -> None:
    assert WantedEntries(("default-scheduler",), True, "allow") == decide(facts()).wanted


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"live": LiveSettings(enabled=False, opt_in="always")}, "scheduler-extender-enabled is false"),
        ({"longhorn": NOT_AGREED, "live": replace(ON, opt_in="always")}, "it places disks itself"),
    ],
)
def test_switched_off_or_beside_another_longhorn_nothing_is_wanted(changed: dict[str, object], words: str) -> None:
    decision = decide(facts(**changed))
    assert WantedEntries() == decision.wanted
    assert words in decision.why_not[""]


@pytest.mark.parametrize("findings", [found(Wiring.UNWIRED), found(Wiring.UNKNOWN, "it was silent"), {}])
def test_pods_opt_in_only_while_the_wiring_is_proven(findings: dict[str, Finding]) -> None:
    decision = decide(facts(findings=findings, standing=frozenset({"default-scheduler"})))
    assert () == decision.wanted.schedulers
    assert {"default-scheduler"} == decision.why_not.keys()
    assert decision.wanted.share_managers
    assert "allow" == decision.wanted.expansion


def test_only_the_schedulers_that_are_wired_are_named() -> None:
    both = {**found(Wiring.WIRED), **found(Wiring.UNWIRED, "lacks", "mine")}
    decision = decide(facts(schedulers=("mine", "default-scheduler"), findings=both))
    assert ("default-scheduler",) == decision.wanted.schedulers
    assert {"mine": "unwired: lacks"} == decision.why_not


def test_always_asks_for_no_proof_and_off_for_no_pods() -> None:
    unwired = found(Wiring.UNWIRED)
    assert ("default-scheduler",) == decide(
        facts(live=replace(ON, opt_in="always"), findings=unwired)
    ).wanted.schedulers
    assert () == decide(facts(live=replace(ON, opt_in="off"))).wanted.schedulers


@pytest.mark.parametrize("findings", [{}, found(Wiring.UNKNOWN, NOT_PROVEN)])
def test_a_new_leader_leaves_a_rule_that_it_found_until_it_knows_better(findings: dict[str, Finding]) -> None:
    standing = frozenset({"default-scheduler"})
    early = facts(findings=findings, standing=standing, leading_seconds=GRACE_SECONDS - 1)
    assert ("default-scheduler",) == decide(early).wanted.schedulers
    assert () == decide(replace(early, leading_seconds=GRACE_SECONDS)).wanted.schedulers
    assert () == decide(replace(early, standing=frozenset())).wanted.schedulers


def test_without_canaries_a_rule_stands_until_something_speaks_against_it() -> None:
    quiet = facts(
        live=replace(ON, wiring_check_every_seconds=0), findings={}, standing=frozenset({"default-scheduler"})
    )
    assert ("default-scheduler",) == decide(quiet).wanted.schedulers
    assert () == decide(replace(quiet, findings=found(Wiring.UNWIRED))).wanted.schedulers


def test_the_other_entries_follow_their_own_settings() -> None:
    wanted = decide(facts(live=replace(ON, share_managers=False, expansion_policy="deny"))).wanted
    assert WantedEntries(("default-scheduler",), False, "deny") == wanted
