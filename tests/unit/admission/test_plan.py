"""Which webhook entries there should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from controller.admission.configurations import WantedEntries
from controller.admission.plan import GRACE_SECONDS, NOT_SEEN, AdmissionFacts, decide
from controller.canary.proof import NOT_PROVEN, NOT_RENEWED, Finding, Wiring
from controller.model.versions import Support
from controller.settings import UNREAD, LiveSettings
from controller.workers.support import LonghornRelease

ON: Final = LiveSettings(enabled=True)
AGREED: Final = LonghornRelease("v1.12.0", Support(is_supported=True))
NOT_AGREED: Final = LonghornRelease("v1.13.0", Support(is_supported=False, problem="it places disks itself"))
OURS: Final = "default-scheduler"
ALWAYS: Final = replace(ON, opt_in="always")
RULE: Final = frozenset({OURS})  # stands


def found(state: Wiring, cause: str = "why", scheduler: str = OURS) -> dict[str, Finding]:
    return {scheduler: Finding(scheduler, state, cause, 0.0)}


UNWIRED, UNPROVEN = found(Wiring.UNWIRED), found(Wiring.UNKNOWN, NOT_PROVEN)
STOPPED = found(Wiring.UNKNOWN, NOT_RENEWED)
BEFORE, AFTER = {"leading_seconds": GRACE_SECONDS - 1}, {"leading_seconds": GRACE_SECONDS}
QUIET = {"live": replace(ON, wiring_check_every_seconds=0), "opted_in": RULE}  # without canaries


def facts(**changed: Any) -> AdmissionFacts:
    base = AdmissionFacts(ON, AGREED, (OURS,), found(Wiring.WIRED), leading_seconds=100.0)
    return replace(base, **changed)


@pytest.mark.parametrize("unknown", [{"live": UNREAD}, {"longhorn": None}])
def test_while_something_is_not_known_nothing_is_decided(unknown: dict[str, Any]) -> None:
    assert decide(facts(**unknown)) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"live": LiveSettings(enabled=False, opt_in="always")}, "scheduler-extender-enabled is false"),
        ({"live": LiveSettings(enabled=False), "longhorn": None}, "scheduler-extender-enabled is false"),
        ({"longhorn": NOT_AGREED, "live": ALWAYS}, "it places disks itself"),
    ],
)
def test_switched_off_or_beside_another_longhorn_nothing_is_wanted(changed: dict[str, Any], words: str) -> None:
    decision = decide(facts(**changed))
    assert decision is not None
    assert WantedEntries() == decision.wanted
    assert words in decision.why_not[""]


@pytest.mark.parametrize(
    ("changed", "why_not"),
    [
        pytest.param({}, {}, id="proven"),
        pytest.param({"findings": UNWIRED, "opted_in": RULE}, {OURS: "unwired: why"}, id="disproved"),
        pytest.param({"findings": found(Wiring.UNKNOWN, "silent")}, {OURS: "unknown: silent"}, id="silent"),
        pytest.param({"findings": {}}, {OURS: NOT_SEEN}, id="not seen"),
        pytest.param({"findings": STOPPED}, {OURS: NOT_RENEWED}, id="stopped"),
        # Nobody places its pods, and once it runs again a canary tells.
        pytest.param({"findings": {}, "opted_in": RULE}, {}, id="not seen, with a rule"),
        pytest.param({"findings": STOPPED, "opted_in": RULE}, {}, id="stopped, with a rule"),
        pytest.param({"findings": UNWIRED, "live": ALWAYS}, {}, id="without a proof, where none is asked for"),
        pytest.param({"live": replace(ON, opt_in="off")}, {"": "scheduler-extender-opt-in is off"}, id="off"),
        # A new leader leaves a rule that it found until it knows better.
        pytest.param({"findings": UNPROVEN, "opted_in": RULE, **BEFORE}, {}, id="early, not proven"),
        pytest.param({"findings": UNPROVEN, "opted_in": RULE, **AFTER}, {OURS: NOT_PROVEN}, id="later"),
        pytest.param({"findings": UNPROVEN, **BEFORE}, {OURS: NOT_PROVEN}, id="early, without a rule"),
        # Without canaries a rule stands until something speaks against it.
        pytest.param({"findings": {}, **QUIET}, {}, id="without canaries"),
        pytest.param({"findings": UNWIRED, **QUIET}, {OURS: "unwired: why"}, id="without canaries, disproved"),
    ],
)
def test_pods_opt_in_only_while_the_wiring_is_proven(changed: dict[str, Any], why_not: dict[str, str]) -> None:
    decision = decide(facts(**changed))
    assert decision is not None
    assert why_not == decision.why_not
    assert WantedEntries(() if why_not else (OURS,), True, "allow") == decision.wanted


def test_only_the_schedulers_that_are_wired_are_named_and_other_entries_follow_their_own_settings() -> None:
    both = {**found(Wiring.WIRED), **found(Wiring.UNWIRED, "lacks", "mine")}
    live = replace(ON, share_managers=False, expansion_policy="deny")
    decision = decide(facts(schedulers=("mine", OURS), findings=both, live=live))
    assert decision is not None
    assert WantedEntries((OURS,), False, "deny") == decision.wanted
    assert {"mine": "unwired: lacks"} == decision.why_not
