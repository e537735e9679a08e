"""Growth of volumes that no transcript tells of: made by hand, of others, and what a person reads.

tests/scenarios/growth.txt tells how it is admitted, held and shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.promises.journal import Tale
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.longhorn import DiskNeeds, LonghornSettings, SpacePolicy
from controller.model.versions import Behaviour
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from tests.fakes.builders import EPOCH, GIB, disk, node, replica, volume
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import Growing


def test_nothing_is_checked_while_switched_off_or_for_others() -> None:
    world = Growing()
    world.add("a", 100)
    assert GrowthVerdict.NOT_CHECKED is world.ask_volume("other", 100).verdict
    world.allocator.observe_pv("foreign", PersistentVolume("foreign", "other.csi", "x", "", "", GIB, EPOCH))
    outcome = world.allocator.expansions.hold(GrowthRequest("foreign", 2 * GIB, "ns", "c"))
    assert GrowthVerdict.NOT_CHECKED is outcome.verdict
    world.allocator.set_mode(Mode.BYPASS)
    assert GrowthVerdict.NOT_CHECKED is world.ask("a", 10_000).verdict


def test_what_the_stores_lack_is_named() -> None:
    world = Growing()
    missing = world.allocator.expansions.missing
    found = missing(GrowthRequest("pv-x", GIB, "ns", "c"))
    assert found is not None and ("pv", "pv-x") == (found.kind, found.name)
    found = missing(GrowthRequest("v", GIB))
    assert found is not None and ("volume", "v") == (found.kind, found.name)


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
    world = Growing()
    name = world.add("a", 100)
    world.allocator.observe_replica("unplaced", replica("unplaced", name, 100))
    world.grow_volume(name, 100, **{"state": "detached", **state})
    return world, name


@pytest.mark.parametrize(("state", "reason"), [*PASSING, *OF_CLAIMS])
def test_what_longhorn_does_not_grow_yet_is_held_for_a_claim_and_said(state: dict[str, Any], reason: Reason) -> None:
    world, _ = in_state(**state)
    answer = world.ask("a", 200)
    assert (GrowthVerdict.ADMITTED, [reason]) == (answer.verdict, [e.rejection.reason for e in answer.obstacles])
    assert {"ns/a": ("HELD", 100)} == world.held()
    world.grow_claim("a", 200)
    assert {"ns/a": ("ASSUMED", 100)} == world.held()
    assert () == world.ask("a", 200).obstacles  # granted already


@pytest.mark.parametrize(("state", "reason"), PASSING)
def test_longhorns_own_volume_is_refused_what_its_webhook_refuses(state: dict[str, Any], reason: Reason) -> None:
    world, name = in_state(**state)
    answer = world.ask_volume(name, 200)
    assert (GrowthVerdict.REFUSED, 100 * GIB, [reason]) == (
        answer.verdict,
        answer.largest_bytes,
        [entry.rejection.reason for entry in answer.obstacles],
    )
    assert {} == world.held()


@pytest.mark.parametrize(("state", "reason"), OF_CLAIMS)
def test_longhorns_own_volume_grows_where_only_its_csi_service_waits(state: dict[str, Any], reason: Reason) -> None:
    world, name = in_state(**state)
    answer = world.ask_volume(name, 200)
    assert (GrowthVerdict.ADMITTED, ()) == (answer.verdict, answer.obstacles), reason


@pytest.mark.parametrize(("state", "reason"), LASTING)
def test_a_volume_that_never_grows_is_refused_with_its_state(state: dict[str, Any], reason: Reason) -> None:
    world, name = in_state(**state)
    for refused in (world.ask("a", 200), world.ask_volume(name, 200)):
        assert GrowthVerdict.REFUSED is refused.verdict
        assert [(reason, "", 0)] == [(e.rejection.reason, e.node, e.missing_bytes) for e in refused.obstacles]
        assert 100 * GIB == refused.largest_bytes


@pytest.mark.parametrize(("state", "reason"), LASTING)
def test_what_never_grows_takes_no_room_although_its_claim_asks(state: dict[str, Any], reason: Reason) -> None:
    world, _ = in_state(**state)
    world.grow_claim("a", 200)
    assert {} == world.held()
    (tale,) = world.allocator.drain_tales()
    assert (Tale.NEVER_GROWS, 200 * GIB, 100 * GIB) == (tale.tale, tale.asked_bytes, tale.most_bytes), reason
    assert 1 == world.allocator.snapshot().counters["claims_grows-too-far"]


def test_what_its_file_system_does_not_take_takes_no_room_either() -> None:
    world = Growing(d1=40 * 1024)
    world.add("a", 100)
    world.grow_claim("a", 16 * 1024)
    assert {} == world.held()
    world.grow_claim("a", 16 * 1024 - 1)
    assert ["ns/a"] == list(world.held())


def test_a_state_that_passes_hides_no_want_of_room() -> None:
    world, _ = in_state(restore_required=True)
    refused = world.ask("a", 500)
    assert (GrowthVerdict.REFUSED, 400 * GIB) == (refused.verdict, refused.largest_bytes)
    assert [Reason.INSUFFICIENT_STORAGE] == [entry.rejection.reason for entry in refused.obstacles]


def test_a_disk_that_is_not_ready_is_waited_for_while_it_has_figures() -> None:
    world = Growing()
    world.add("a", 100)
    world.cluster.put_node(node("n1", replace(disk("d1", 400), ready=False)))
    answer = world.ask("a", 200)
    assert (GrowthVerdict.ADMITTED, [("n1", "d1", Reason.DISK_NOT_READY)]) == (
        answer.verdict,
        [(entry.node, entry.disk, entry.rejection.reason) for entry in answer.obstacles],
    )
    assert {"ns/a": ("HELD", 100)} == world.held()


def test_before_1_11_3_a_volume_without_any_placed_replica_is_waited_for() -> None:
    """The gate looks at its unplaced replicas too."""
    world = Growing(replace(OPEN, behaviour=Behaviour(expansion_needs_all_placed=True)))
    world.cluster.add_claim("a", 100)
    name = world.cluster.provision("a")
    world.allocator.observe_replica("r", replica("r", name, 100))
    assert [Reason.NOT_SCHEDULED] == [entry.rejection.reason for entry in world.ask("a", 200).obstacles]


def test_what_is_asked_for_in_earnest_is_counted_and_so_is_its_end() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.ask("a", 300, dry_run=True)
    world.ask("a", 401, dry_run=True)
    assert not [counter for counter in world.allocator.snapshot().counters if counter.startswith("expansions")]

    world.ask("a", 300)
    world.cluster.expire_growth(name)  # it is not due
    assert {"ns/a": ("HELD", 200)} == world.held()
    world.cluster.clock.advance(60)
    assert [name] == world.cluster.due_growths()
    world.cluster.expire_growth(name)
    assert 1 == world.allocator.snapshot().counters["expansions_expired"]


# Volumes made by hand


def by_hand(world: Growing, *, claim_gib: float, pv_gib: float, volume_gib: float) -> None:
    """A volume and a PV that somebody made, bound to a claim, with its replica on n1."""
    claim = world.cluster.add_claim("hand", claim_gib, class_name="")
    world.allocator.observe_volume("lhv", volume("lhv", volume_gib, locality="disabled"))
    world.allocator.observe_replica("lhv-r", replica("lhv-r", "lhv", volume_gib, on="n1"))
    world.allocator.observe_pv(
        "pv", PersistentVolume("pv", "driver.longhorn.io", "lhv", claim.uid, claim.key, int(pv_gib * GIB), EPOCH)
    )
    world.cluster.set_claim(replace(claim, volume_name="pv"))


def test_a_volume_that_is_smaller_than_its_pv_says_does_not_grow_for_that() -> None:
    world = Growing()
    by_hand(world, claim_gib=50, pv_gib=50, volume_gib=10)
    assert {} == world.held()

    world.grow_claim("hand", 60)
    assert {"ns/hand": ("ASSUMED", 50)} == world.held()


def test_growth_of_a_claim_is_that_of_the_volume_that_its_pv_names() -> None:
    world = Growing()
    by_hand(world, claim_gib=10, pv_gib=10, volume_gib=10)
    outcome = world.ask("hand", 500)
    assert ("lhv", 400 * GIB) == (outcome.volume, outcome.largest_bytes)
    assert GrowthVerdict.ADMITTED is world.ask("hand", 400).verdict
    assert {"ns/hand": ("HELD", 390)} == world.held()


def test_a_volume_without_a_claim_grows_on_its_own() -> None:
    world = Growing()
    world.allocator.observe_volume("lhv", volume("lhv", 10, locality="disabled"))
    world.allocator.observe_replica("lhv-r", replica("lhv-r", "lhv", 10, on="n1"))
    assert GrowthVerdict.ADMITTED is world.ask_volume("lhv", 400).verdict
    assert {"": ("HELD", 390)} == world.held()
    assert GrowthVerdict.REFUSED is world.ask_volume("lhv", 401).verdict

    world.allocator.observe_volume("lhv", None)
    assert {} == world.held()


def test_a_follower_counts_growths_too() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.allocator.end_term()
    world.grow_claim("a", 300)
    world.grow_volume(name, 300)
    assert {"ns/a": ("ASSUMED", 200)} == world.held()


def test_who_leaves_tells_whether_an_expansion_is_under_way_that_nobody_sees() -> None:
    world = Growing()
    world.add("a", 100)
    assert not world.allocator.has_unseen_growth()

    assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    assert world.allocator.has_unseen_growth()
    world.allocator.end_term()
    assert world.allocator.has_unseen_growth()
    world.allocator.begin_term()
    assert world.allocator.has_unseen_growth()  # what the one before has admitted may still come
    world.cluster.clock.advance(75)
    assert not world.allocator.has_unseen_growth()

    world.allocator.set_mode(Mode.BYPASS)
    assert GrowthVerdict.NOT_CHECKED is world.ask("a", 300).verdict  # so it may come unchecked
    assert world.allocator.has_unseen_growth()


# What a person reads


def test_where_a_volume_is_to_be_placed_the_missing_bytes_are_told_and_the_node_once() -> None:
    world = Growing()
    world.cluster.add_claim("p", 100)
    world.cluster.provision("p")
    world.cluster.add_pod("p", "p")
    assert {"n1"} == world.cluster.offered("p", "n1")
    (obstacle,) = world.ask("p", 401).obstacles
    assert ("n1", "", GIB, "a replica of 401 GiB still has to be placed here, and may not fit") == (
        obstacle.node,
        obstacle.disk,
        obstacle.missing_bytes,
        obstacle.rejection.message,
    )


def test_bytes_that_were_granted_to_other_expansions_are_told() -> None:
    settings = LonghornSettings(space=SpacePolicy(over_provisioning_pct=100, minimal_available_pct=0))
    world = Growing(settings)
    world.add("a", 100)
    world.add("b", 100)
    text = world.ask("b", 401).obstacles[0].rejection.message
    assert "granted" not in text
    world.ask("a", 250)
    refused = world.ask("b", 200)
    assert [Reason.INSUFFICIENT_STORAGE] == [entry.rejection.reason for entry in refused.obstacles]
    assert refused.obstacles[0].rejection.message.endswith("; 150 GiB of what is scheduled are for other expansions")
