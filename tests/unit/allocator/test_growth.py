"""Reviews of growth: states that are waited for, and what a person reads.

tests/scenarios/growth.txt tells how it is admitted, held and shown; test_growths.py, of what is held;
test_growth_room.py, of the room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import UNKNOWN_SECONDS, Caller, GrowthRequest, GrowthVerdict, places_to_come
from controller.errors import CallerGoneError
from controller.model.longhorn import DiskNeeds, LonghornSettings, SpacePolicy
from controller.model.versions import Behaviour
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from tests.fakes.builders import EPOCH, GIB, TestCluster, claim, disk, node
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import Growing


def test_nothing_is_checked_while_switched_off_or_for_others() -> None:
    stage = Growing()
    stage.add("a", 100)
    assert GrowthVerdict.NOT_CHECKED is stage.ask_volume("other", 100).verdict
    stage.world.put_pv("foreign", PersistentVolume("foreign", "other.csi", "x", "", "", GIB, EPOCH))
    outcome = stage.expansions.hold(GrowthRequest("foreign", 2 * GIB, "ns", "c"))
    assert GrowthVerdict.NOT_CHECKED is outcome.verdict
    stage.is_active = False
    assert GrowthVerdict.NOT_CHECKED is stage.ask("a", 10_000).verdict


def test_what_the_stores_lack_is_named() -> None:
    missing = Growing().expansions.missing
    found = missing(GrowthRequest("pv-x", GIB, "ns", "c"))
    assert found is not None and ("pv", "pv-x") == (found.kind, found.name)
    found = missing(GrowthRequest("v", GIB))
    assert found is not None and ("volume", "v") == (found.kind, found.name)


def test_nothing_is_worked_out_for_a_caller_that_has_gone() -> None:
    stage = Growing()
    stage.add("a", 100)
    with pytest.raises(CallerGoneError):
        stage.ask("a", 200, caller=Caller(has_left=True))
    assert {} == stage.grown()


PASSING: list[tuple[dict[str, Any], Reason]] = [
    ({"robustness": "faulted"}, Reason.FAULTED),
    ({"clone_state": "initiated"}, Reason.CLONING),
    ({"data_source": "vol://src"}, Reason.CLONING),
    ({"restore_required": True}, Reason.RESTORING),
    ({"scheduled": False}, Reason.NOT_SCHEDULED),
]
OF_CLAIMS: list[tuple[dict[str, Any], Reason]] = [
    ({"state": "attaching"}, Reason.IN_TRANSITION),
    ({"state": "detaching"}, Reason.IN_TRANSITION),
    ({"migration_node_id": "n2"}, Reason.MIGRATING),
]
LASTING: list[tuple[dict[str, Any], Reason]] = [
    ({"data_source": "vol://src", "clone_state": "failed"}, Reason.CLONE_FAILED),
    ({"needs": DiskNeeds(data_engine="v2"), "wanted_frontend": "ublk"}, Reason.ENGINE_NOT_EXPANDABLE),
]


def in_state(**state: Any) -> tuple[Growing, str]:
    """A volume of 100 GiB in that state, with one replica placed and one not."""
    stage = Growing()
    name = stage.add("a", 100)
    stage.place(name, "", 100, number=2)
    stage.grow_volume(name, 100, **{"state": "detached", **state})
    return stage, name


@pytest.mark.parametrize(("state", "reason"), [*PASSING, *OF_CLAIMS])
def test_what_longhorn_does_not_grow_yet_is_held_for_a_claim_and_said(state: dict[str, Any], reason: Reason) -> None:
    stage, _ = in_state(**state)
    answer = stage.ask("a", 200)
    assert (GrowthVerdict.ADMITTED, [reason]) == (answer.verdict, [e.rejection.reason for e in answer.obstacles])
    assert {"a": ("HELD", 100)} == stage.grown()
    stage.grow_claim("a", 200)
    assert {"a": ("ASKED", 100)} == stage.grown()
    assert () == stage.ask("a", 200).obstacles  # granted already


@pytest.mark.parametrize(("state", "reason"), PASSING)
def test_longhorns_own_volume_is_refused_what_its_webhook_refuses(state: dict[str, Any], reason: Reason) -> None:
    stage, name = in_state(**state)
    answer = stage.ask_volume(name, 200)
    assert (GrowthVerdict.REFUSED, 100 * GIB, [reason]) == (
        answer.verdict,
        answer.largest_bytes,
        [entry.rejection.reason for entry in answer.obstacles],
    )
    assert {} == stage.grown()


@pytest.mark.parametrize(("state", "reason"), OF_CLAIMS)
def test_longhorns_own_volume_grows_where_only_its_csi_service_waits(state: dict[str, Any], reason: Reason) -> None:
    stage, name = in_state(**state)
    answer = stage.ask_volume(name, 200)
    assert (GrowthVerdict.ADMITTED, ()) == (answer.verdict, answer.obstacles), reason


@pytest.mark.parametrize(("state", "reason"), LASTING)
def test_a_volume_that_never_grows_is_refused_with_its_state(state: dict[str, Any], reason: Reason) -> None:
    stage, name = in_state(**state)
    for refused in (stage.ask("a", 200), stage.ask_volume(name, 200)):
        assert GrowthVerdict.REFUSED is refused.verdict
        assert [(reason, "", 0)] == [(e.rejection.reason, e.node, e.missing_bytes) for e in refused.obstacles]
        assert 100 * GIB == refused.largest_bytes


def test_a_state_that_passes_hides_no_want_of_room() -> None:
    stage, _ = in_state(restore_required=True)
    refused = stage.ask("a", 500)
    assert (GrowthVerdict.REFUSED, 400 * GIB) == (refused.verdict, refused.largest_bytes)
    assert [Reason.INSUFFICIENT_STORAGE] == [entry.rejection.reason for entry in refused.obstacles]


def test_a_disk_that_is_not_ready_is_waited_for_while_it_has_figures() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.put_node(node("n1", replace(disk("d1", 400), ready=False)))
    answer = stage.ask("a", 200)
    assert (GrowthVerdict.ADMITTED, [("n1", "d1", Reason.DISK_NOT_READY)]) == (
        answer.verdict,
        [(entry.node, entry.disk, entry.rejection.reason) for entry in answer.obstacles],
    )
    assert {"a": ("HELD", 100)} == stage.grown()


def test_before_1_11_3_a_volume_without_any_placed_replica_is_waited_for() -> None:
    """The gate looks at its unplaced replicas too."""
    stage = Growing(replace(OPEN, behaviour=Behaviour(expansion_needs_all_placed=True)))
    stage.add("a", 100, on="")
    assert [Reason.NOT_SCHEDULED] == [entry.rejection.reason for entry in stage.ask("a", 200).obstacles]


def test_one_growth_that_arrives_three_times_is_one_hold() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 299.999).verdict
    assert GrowthVerdict.ADMITTED is stage.ask("a", 300).verdict
    stage.put_node(node("n1", disk("d1", 250)))  # it shrank meanwhile; what was granted is not asked again
    outcome = stage.ask_volume(name, 300)
    assert (GrowthVerdict.ADMITTED, name, 300 * GIB) == (outcome.verdict, outcome.volume, outcome.size_bytes)
    assert {"a": ("HELD", 200)} == stage.grown()


def test_a_dry_run_holds_and_counts_nothing() -> None:
    stage = Growing()
    stage.add("a", 100)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 300, dry_run=True).verdict
    assert GrowthVerdict.REFUSED is stage.ask("a", 401, dry_run=True).verdict
    assert ({}, {}) == (stage.grown(), stage.journal.counters)
    stage.ask("a", 300)
    stage.ask("a", 401)
    assert {"expansions_admitted": 1, "expansions_refused": 1} == stage.journal.counters


def test_growth_of_a_claim_is_that_of_the_volume_that_its_pv_names() -> None:
    stage = Growing()
    facts = claim("hand", 10, "", volume_name="pv")
    stage.put_pv("pv", facts, 10, handle="lhv")
    stage.grow_volume("lhv", 10, locality="disabled")
    stage.place("lhv", "n1", 10)
    stage.put_claim(facts)
    outcome = stage.ask("hand", 500)
    assert ("lhv", 400 * GIB) == (outcome.volume, outcome.largest_bytes)
    assert GrowthVerdict.ADMITTED is stage.ask("hand", 400).verdict
    assert {"hand": ("HELD", 390)} == stage.grown()


def test_a_volume_without_a_claim_grows_on_its_own() -> None:
    stage = Growing()
    stage.grow_volume("lhv", 10, locality="disabled")
    stage.place("lhv", "n1", 10)
    assert GrowthVerdict.ADMITTED is stage.ask_volume("lhv", 400).verdict
    assert {"lhv": ("HELD", 390)} == stage.grown()
    assert GrowthVerdict.REFUSED is stage.ask_volume("lhv", 401).verdict


# Terms


def test_after_a_change_of_leader_nothing_new_is_admitted_for_a_minute() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.add("b", 50)
    stage.grow_claim("b", 100)
    stage.expansions.begin_term_locked(has_predecessor=True)
    put_off = stage.ask("a", 200)
    assert (GrowthVerdict.TRY_AGAIN, 100 * GIB) == (put_off.verdict, put_off.largest_bytes)
    assert [Reason.LEADER_CHANGED] == [entry.rejection.reason for entry in put_off.obstacles]
    assert GrowthVerdict.REFUSED is stage.ask("a", 301).verdict  # what does not fit is refused as ever
    assert GrowthVerdict.ADMITTED is stage.ask("b", 100).verdict  # the cluster asks for it already
    assert {"b": ("ASKED", 50)} == stage.grown()
    assert {"expansions_put_off": 1, "expansions_refused": 1} == stage.journal.counters

    stage.clock.advance(UNKNOWN_SECONDS)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 200).verdict
    stage.expansions.begin_term_locked(has_predecessor=False)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 250).verdict


def cluster_with_a_volume() -> tuple[TestCluster, GrowthRequest]:
    """And what asks for it at 300 GiB."""
    cluster = TestCluster(settings=OPEN).add_nodes(n1=400)
    name = cluster.add_volume("a", 100)
    return cluster, GrowthRequest(name, 300 * GIB, "ns", "a")


def test_a_new_leader_counts_what_the_cluster_asked_for_before() -> None:
    cluster, request = cluster_with_a_volume()
    cluster.allocator.end_term()
    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=300 * GIB))
    cluster.allocator.begin_term()
    assert 300 * GIB == cluster.allocator._growths.target_of(request.volume)


def test_what_is_held_for_a_pod_is_as_large_as_its_claim_asks_for() -> None:
    """Whether we were asked or not."""
    cluster = TestCluster(settings=OPEN).add_nodes(n1=400, n2=400)
    cluster.add_pod("a", "a")
    name = cluster.provision("a")
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=300 * GIB))
    assert {300 * GIB} == {place.size_bytes for place in places_to_come(cluster.allocator._table, name)}
    assert set() == cluster.ask("b", 200, "n1", "n2")


def test_who_leaves_tells_whether_an_expansion_is_under_way_that_nobody_sees() -> None:
    cluster, request = cluster_with_a_volume()
    allocator = cluster.allocator
    assert not allocator.has_unseen_growth()

    assert GrowthVerdict.ADMITTED is allocator.expansions.hold(request).verdict
    assert allocator.has_unseen_growth()
    allocator.end_term()
    assert allocator.has_unseen_growth()
    allocator.begin_term()
    assert allocator.has_unseen_growth()  # what the one before has admitted may still come
    cluster.clock.advance(75)
    assert not allocator.has_unseen_growth()

    allocator.set_mode(Mode.BYPASS)
    assert GrowthVerdict.NOT_CHECKED is allocator.expansions.hold(request).verdict  # so it may come unchecked
    assert allocator.has_unseen_growth()


# What a person reads


def test_bytes_that_were_granted_to_other_expansions_are_told() -> None:
    settings = LonghornSettings(space=SpacePolicy(over_provisioning_pct=100, minimal_available_pct=0))
    stage = Growing(settings)
    stage.add("a", 100)
    stage.add("b", 100)
    text = stage.ask("b", 401).obstacles[0].rejection.message
    assert "expansions" not in text
    stage.ask("a", 250)
    stage.ask("b", 101)
    refused = stage.ask("b", 200)
    assert [Reason.INSUFFICIENT_STORAGE] == [entry.rejection.reason for entry in refused.obstacles]
    assert refused.obstacles[0].rejection.message.endswith("; 150 GiB of what is scheduled are for other expansions")
