"""Growth of volumes that no transcript tells of: made by hand, of others, and what a person reads.

tests/scenarios/growth.txt tells how it is admitted, held and shown.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.longhorn import LonghornSettings, SpacePolicy
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from tests.fakes.builders import EPOCH, GIB, replica, volume
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


@pytest.mark.parametrize(
    ("state", "text"),
    [({"robustness": "faulted"}, "faulted"), ({"clone_state": "initiated"}, "clone")],
)
def test_a_volume_that_longhorn_does_not_expand_is_refused_with_its_state(state: dict[str, str], text: str) -> None:
    world = Growing()
    name = world.add("a", 100)
    world.grow_volume(name, 100, **state)
    refused = world.ask("a", 200)
    assert [(Reason.NOT_EXPANDABLE, "", 0)] == [
        (e.rejection.reason, e.node, e.missing_bytes) for e in refused.obstacles
    ]
    assert text in refused.obstacles[0].rejection.message
    assert 100 * GIB == refused.largest_bytes


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
    assert ("n1", "", GIB, "401Gi are to be placed there, and do not surely fit") == (
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
    assert refused.obstacles[0].rejection.message.endswith(
        "; of what is scheduled, 150Gi were granted to other expansions"
    )
