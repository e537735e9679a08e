"""The leader keeps the gate closed while it lives, opens it when it is told to, and tells what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import pytest
from prometheus_client import CollectorRegistry

from controller.allocator.outcome import Mode
from controller.errors import ForbiddenError, UnavailableError
from controller.kube.resources import LONGHORN_REPLICAS, POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS, Resource
from controller.model.names import FENCE, GATE, GUARD
from controller.placement.gate import EVERY_SECONDS, HEARD_SECONDS, PROOF_SECONDS, gate_wanted
from controller.placement.gate_objects import Proof
from controller.placement.gate_policy import SILENT_SECONDS, Enforcement
from controller.placement.metrics import PlacementMetrics
from controller.placement.placer import PlacementFigures
from controller.placement.plan_objects import PlanFigures
from controller.settings import LiveSettings
from tests.unit.placement.gate_stage import GateCell, GateLeader
from tests.waiting import wait_until


@pytest.fixture
def cell() -> GateCell:
    return GateCell()


@pytest.fixture
def leader(cell: GateCell) -> GateLeader:
    """Its gate is proven."""
    return GateLeader(cell).settled()


@pytest.mark.parametrize(
    ("placement", "authority", "mode", "wanted"),
    [
        ("leader", "longhorn", Mode.ACTIVE, Enforcement.DENY),
        ("audit", "longhorn", Mode.ACTIVE, Enforcement.AUDIT),
        ("longhorn", "longhorn", Mode.ACTIVE, Enforcement.NONE),
        ("leader", "disk-scheduler", Mode.ACTIVE, Enforcement.NONE),
        *(("leader", "longhorn", mode, Enforcement.NONE) for mode in Mode if mode is not Mode.ACTIVE),
    ],
)
def test_the_gate_is_closed_only_where_the_leader_is_to_place(
    placement: str, authority: str, mode: Mode, wanted: Enforcement
) -> None:
    assert wanted is gate_wanted(LiveSettings(placement=placement, allocation_authority=authority), mode)


def test_a_leader_closes_the_gate_and_proves_it(cell: GateCell) -> None:
    leader = GateLeader(cell).lead()
    assert not cell.is_closed()
    leader.go_on(0)
    assert (True, "unproven", []) == (cell.is_closed(), leader.state, leader.told)
    leader.go_on(EVERY_SECONDS)
    assert ("enforced", "") == (leader.state, leader.problem)
    assert [("PlacementGate", False)] == [(reason, is_warning) for reason, _text, is_warning in leader.told]
    assert {"name": GATE, "namespace": "longhorn-system", "parameterNotFoundAction": "Allow"} == cell.raw(
        POLICY_BINDINGS
    )["spec"]["paramRef"]


def test_a_follower_touches_nothing(cell: GateCell) -> None:
    follower = GateLeader(cell).go_on(10)
    assert ("following", False) == (follower.state, cell.has(POLICY_BINDINGS))


@pytest.mark.parametrize(
    ("wanted", "actions", "state"),
    [(Enforcement.DENY, ["Deny"], "enforced"), (Enforcement.AUDIT, ["Audit"], "audit"), (Enforcement.NONE, [], "off")],
)
def test_the_binding_follows_the_settings_in_one_round(wanted: Enforcement, actions: list[str], state: str) -> None:
    for before in Enforcement:
        cell = GateCell()
        leader = GateLeader(cell, before).settled()
        leader.wanted = wanted
        assert "opening" == leader.state or wanted is not Enforcement.NONE or before is wanted
        leader.go_on(0)
        assert actions == cell.actions()
        leader.go_on(EVERY_SECONDS)
        assert (state, "") == (leader.state, leader.problem)
        assert 0 == leader.gate.figures().mended


def test_a_change_of_settings_is_looked_at_at_once(cell: GateCell, leader: GateLeader) -> None:
    leader.gate.worker.start(60)
    leader.wanted = Enforcement.NONE
    leader.gate.changed()
    wait_until(lambda: not cell.has(POLICY_BINDINGS))
    leader.gate.stop()


@pytest.mark.parametrize(
    ("verb", "wanted", "state"), [("delete", Enforcement.NONE, "opening"), ("create", Enforcement.AUDIT, "missing")]
)
def test_a_binding_that_cannot_be_taken_away_or_made_is_told(
    cell: GateCell, leader: GateLeader, verb: str, wanted: Enforcement, state: str
) -> None:
    leader.wanted = wanted
    cell.api.fail_with(ForbiddenError("403: no right"), verb, about=POLICY_BINDINGS)
    leader.go_on(0)
    assert (state, "403: no right") == (leader.state, leader.problem)
    assert [True] == [is_warning for _reason, _text, is_warning in leader.told]


def test_the_leader_is_renewed_every_two_seconds_by_the_servers_clock(cell: GateCell, leader: GateLeader) -> None:
    leader.go_on(10)
    assert f"{cell.server_utc():%Y-%m-%dT%H:%M:%SZ}" == cell.stamps()["renewed"]
    assert 0.0 == leader.gate.figures().renewed_seconds_ago
    cell.clock.advance(1.5)
    assert 1.5 == leader.gate.figures().renewed_seconds_ago


def test_a_placer_that_hangs_opens_the_gate(cell: GateCell, leader: GateLeader) -> None:
    before, leader.is_alive = cell.stamps(), False
    leader.go_on(10)
    assert (before, "", []) == (cell.stamps(), leader.problem, leader.told)  # a moment is not worth an Event
    leader.go_on(2)
    why = "it is not renewed: the placer has stopped, or what it watches comes late"
    assert ("enforced", why, True) == (leader.state, leader.problem, cell.is_closed())
    leader.go_on(SILENT_SECONDS)
    assert ("missing", why, False) == (leader.state, leader.problem, cell.is_closed())
    assert [True, True] == [is_warning for _reason, _text, is_warning in leader.told]

    leader.is_alive = True
    leader.go_on(0)
    assert ("enforced", "", True) == (leader.state, leader.problem, cell.is_closed())


@pytest.mark.parametrize(
    ("has_time", "why", "failed"), [(False, "the answers of the API server tell no time", 0), (True, "503", 7)]
)
def test_renewals_that_fail_are_told_when_it_goes_on(
    cell: GateCell, leader: GateLeader, has_time: bool, why: str, failed: int
) -> None:
    """Those without the server's time are not even tried."""
    before = cell.stamps()
    cell.api.fail_with(UnavailableError("503"), "patch", about=SERVICE_ACCOUNTS)
    if not has_time:
        cell.api.date = lambda: None
    leader.go_on(12)
    assert (before, f"it is not renewed: {why}") == (cell.stamps(), leader.problem)
    assert failed == leader.gate.figures().failed_renewals


def test_no_binding_is_made_once_the_term_is_over(cell: GateCell, leader: GateLeader) -> None:
    def end_at_a_look(verb: str, resource: Resource) -> None:
        leader.is_current = (verb, resource) != ("get", POLICY_BINDINGS)

    cell.drop(POLICY_BINDINGS)
    cell.api.fail = end_at_a_look
    leader.go_on(0)
    assert not cell.has(POLICY_BINDINGS)


@pytest.mark.parametrize("is_over", [True, False], ids=["it is over", "it ends in the middle of a round"])
def test_a_leader_whose_term_is_over_renews_nothing(cell: GateCell, leader: GateLeader, is_over: bool) -> None:
    def end_at_a_look() -> datetime:
        leader.is_current = False
        return cell.server_utc()

    before, cell.api.date, leader.is_current = cell.stamps(), end_at_a_look, not is_over
    cell.clock.advance(EVERY_SECONDS)
    leader.go_on(0)
    assert (before, "following") == (cell.stamps(), leader.state)


def test_a_former_leaders_renewal_that_arrives_late_is_refused(cell: GateCell, leader: GateLeader) -> None:
    def overtake(verb: str, resource: Resource) -> None:
        if (verb, resource) == ("patch", SERVICE_ACCOUNTS):
            cell.api.work()
            leader.is_current = False
            cell.clock.advance(30)
            GateLeader(cell).lead("2")

    cell.api.fail = overtake
    leader.go_on(0)
    stamps = cell.stamps()
    assert ("2", stamps["since"]) == (stamps["term"], stamps["renewed"])


# What somebody else does to it


@pytest.mark.parametrize(
    "stamps",
    [
        {"term": None, "since": None, "renewed": None},
        {"term": "9"},
        {"since": "long ago"},
        {"since": "2027-01-01T00:00:00Z"},
        {"renewed": "now"},
        {"renewed": "2027-01-01T00:00:00Z"},
    ],
)
def test_stamps_that_somebody_changes_are_as_they_were_after_a_round(
    cell: GateCell, leader: GateLeader, stamps: dict[str, str | None]
) -> None:
    before = cell.stamps()
    cell.write_stamps(**stamps)
    leader.go_on(0)
    assert (before["term"], before["since"]) == (cell.stamps()["term"], cell.stamps()["since"])
    assert (True, "enforced") == (cell.is_closed(), leader.state)
    assert [] == leader.told
    leader.go_on(HEARD_SECONDS)
    told = [] if list(stamps) == ["renewed"] else [("PlacementGateMended", True)]
    assert told == [(reason, is_warning) for reason, _text, is_warning in leader.told]


def test_an_account_that_was_deleted_is_told_and_written_when_it_is_back(cell: GateCell, leader: GateLeader) -> None:
    since = cell.stamps()["since"]
    cell.drop(SERVICE_ACCOUNTS)
    leader.go_on(0)
    assert "missing" == leader.state
    assert f"ServiceAccount {GATE} does not exist" in leader.told[0][1]
    cell.put_account()
    leader.go_on(0)
    assert ("enforced", since, True) == (leader.state, cell.stamps()["since"], cell.is_closed())


def test_an_account_that_comes_after_the_term_began_is_written(cell: GateCell) -> None:
    cell.drop(SERVICE_ACCOUNTS)
    leader = GateLeader(cell).settled()
    cell.put_account()
    leader.go_on(0)
    since = cell.stamps()["since"]
    leader.go_on(12)
    assert ("enforced", "1", since) == (leader.state, cell.stamps()["term"], cell.stamps()["since"])
    assert 0 == leader.gate.figures().mended


@pytest.mark.parametrize("change", ["deleted", "audit", "another parameter", "for others alone"])
def test_a_binding_that_is_deleted_or_changed_is_made_again(cell: GateCell, leader: GateLeader, change: str) -> None:
    raw = cell.raw(POLICY_BINDINGS)
    spec = raw["spec"]
    if change == "deleted":
        cell.drop(POLICY_BINDINGS)
    elif change == "audit":
        raw["spec"] = {**spec, "validationActions": ["Audit"]}
    elif change == "another parameter":
        raw["spec"] = {**spec, "paramRef": {**spec["paramRef"], "name": "default"}}
    else:
        raw["spec"] = {**spec, "matchResources": {"excludeResourceRules": [{"resources": ["*"]}]}}
    leader.go_on(0)
    assert (spec, "unproven") == (cell.raw(POLICY_BINDINGS)["spec"], leader.state)
    assert (0, []) == (leader.gate.figures().mended, leader.told)
    leader.go_on(max(EVERY_SECONDS, HEARD_SECONDS))
    assert ("enforced", 1) == (leader.state, leader.gate.figures().mended)
    assert ["PlacementGateMended"] == [reason for reason, *_ in leader.told]


def test_a_binding_that_an_uninstallation_takes_away_before_the_leader_hears_of_it_is_told_of_to_nobody(
    cell: GateCell, leader: GateLeader
) -> None:
    cell.drop(POLICY_BINDINGS)
    leader.go_on(0)
    assert cell.is_closed()
    leader.wanted = Enforcement.NONE
    leader.go_on(HEARD_SECONDS)
    assert (0, []) == (leader.gate.figures().mended, [one for one in leader.told if one[2]])


NEVER = {"matchConditions": [{"name": "never", "expression": "false"}]}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(POLICIES, GATE), (POLICIES, FENCE), (POLICIES, GUARD), (POLICY_BINDINGS, FENCE), (POLICY_BINDINGS, GUARD)],
    ids=lambda one: getattr(one, "kind", one),
)
@pytest.mark.parametrize("change", ["deleted", "changed", "warned of"])
def test_a_policy_or_binding_that_is_not_as_the_manifest_has_it_is_told_within_a_minute(
    cell: GateCell, leader: GateLeader, kind: Resource, name: str, change: str
) -> None:
    if change == "deleted":
        cell.drop(kind, name)
    elif kind is POLICY_BINDINGS:
        cell.put_binding(name, spec={"validationActions": ["Audit"]})
    elif change == "changed":
        cell.put_policy(name, spec=NEVER)
    else:
        cell.put_policy(name, warning="undefined field")
    leader.go_on(PROOF_SECONDS)
    assert f"{kind.kind} {name}" in leader.problem
    assert ("missing" if (kind, name, change) == (POLICIES, GATE, "deleted") else "enforced") == leader.state
    assert leader.told
    assert all(is_warning for _reason, _text, is_warning in leader.told)

    if kind is POLICIES:
        cell.put_policy(name)
    else:
        cell.put_binding(name)
    leader.go_on(12)
    assert ("enforced", "") == (leader.state, leader.problem)


# Proofs


def test_it_is_proven_anew_every_minute(cell: GateCell, leader: GateLeader) -> None:
    before = dict(leader.gate.figures().proofs)
    cell.clock.advance(0.5)
    leader.go_on(PROOF_SECONDS)
    assert {**before, Proof.REFUSED: before[Proof.REFUSED] + 1} == leader.gate.figures().proofs


def test_a_gate_that_refuses_nothing_is_told(cell: GateCell, leader: GateLeader) -> None:
    cell.api.admit = lambda *_: None
    before = cell.raw(LONGHORN_REPLICAS, "r1")
    leader.go_on(PROOF_SECONDS)
    assert ("missing", f"{GATE} did not refuse a dry run") == (leader.state, leader.problem)
    assert before == cell.raw(LONGHORN_REPLICAS, "r1")
    assert [True] == [is_warning for _reason, _text, is_warning in leader.told]


def test_a_new_binding_has_some_seconds_to_be_heard_of(cell: GateCell) -> None:
    admit, cell.api.admit = cell.api.admit, lambda *_: None
    leader = GateLeader(cell).lead().go_on(4)
    assert ("unproven", []) == (leader.state, leader.told)
    cell.api.admit = admit
    leader.go_on(2)
    assert "enforced" == leader.state
    assert 0 == leader.gate.figures().proofs[Proof.ADMITTED]


@pytest.mark.parametrize("node", ["", "n1"])
def test_any_replica_will_do_for_a_proof(cell: GateCell, node: str) -> None:
    cell.put_replica("r1", node)
    before = cell.raw(LONGHORN_REPLICAS, "r1")
    assert "enforced" == GateLeader(cell).settled().state
    assert before == cell.raw(LONGHORN_REPLICAS, "r1")


def test_without_a_replica_it_is_unproven_and_proven_once_there_is_one(cell: GateCell) -> None:
    cell.drop(LONGHORN_REPLICAS, "r1")
    leader = GateLeader(cell).lead().go_on(12)
    assert ("unproven", "") == (leader.state, leader.problem)
    assert [False] == [is_warning for _reason, _text, is_warning in leader.told]
    cell.put_replica("r1")
    leader.go_on(10)
    assert "enforced" == leader.state


def test_a_refusal_by_something_else_proves_nothing(cell: GateCell) -> None:
    cell.api.fail_with(ForbiddenError("403: no right to patch replicas"), "patch", about=LONGHORN_REPLICAS)
    leader = GateLeader(cell).settled()
    assert ("unproven", f"a dry run was refused, and not by {GATE}") == (leader.state, leader.problem)


def test_a_fence_that_refuses_nothing_is_told(cell: GateCell, leader: GateLeader) -> None:
    cell.drop(POLICIES, FENCE)
    leader.go_on(PROOF_SECONDS)
    assert f"{FENCE} did not refuse a dry run under another term" in leader.problem


# Views


def test_metrics_and_status_show_how_it_stands(cell: GateCell, leader: GateLeader) -> None:
    registry = CollectorRegistry()
    registry.register(PlacementMetrics(PlacementFigures, PlanFigures, leader.gate.figures))
    expected = {
        ("state", "state", "enforced"): 1.0,
        ("state", "state", "missing"): 0.0,
        ("renewals_total", "outcome", "done"): 5.0,
        ("renewals_total", "outcome", "failed"): 0.0,
        ("proofs_total", "outcome", "refused"): 1.0,
    }
    prefix = "longhorn_scheduler_extender_gate"
    for (name, label, value), count in expected.items():
        assert count == registry.get_sample_value(f"{prefix}_{name}", {label: value}), name
    assert 0.0 == registry.get_sample_value(f"{prefix}_mended_total")
    cell.clock.advance(0.04)
    assert {
        "state": "enforced",
        "problem": "",
        "renewed_seconds_ago": 0.0,
        "proven_seconds_ago": 6.0,
        "renewals": 5,
        "failed_renewals": 0,
        "mended": 0,
        "proofs": {"refused": 1, "admitted": 0, "unclear": 0, "nothing": 0},
    } == asdict(leader.gate.figures())
