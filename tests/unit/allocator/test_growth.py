"""Growth of volumes: Longhorn's rule, promises of pods, and holds until Longhorn shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Decision, Mode
from controller.allocator.promises.growths import HOLD_SECONDS, MOST_HELD_SECONDS
from controller.allocator.verbs.grow import GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.model.longhorn import LonghornSettings, SpacePolicy
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from tests.fakes.builders import EPOCH, GIB, TestCluster, disk, replica, volume

ALL = LonghornSettings(space=SpacePolicy(minimal_available_pct=0))


class Growing:
    """Volumes with one replica each, on one disk of 400 GiB unless said otherwise."""

    def __init__(self, settings: LonghornSettings = ALL, **disks: float) -> None:
        self.cluster = TestCluster(settings=settings)
        self.allocator = self.cluster.allocator
        self.cluster.add_node("n1", *(disk(name, free) for name, free in (disks or {"d1": 400}).items()))

    def add(self, name: str, gib: float = 100, *, on: str = "n1", disk_name: str = "d1") -> str:
        """A claim that is bound, with its volume placed; the volume's name."""
        self.cluster.add_claim(name, gib)
        volume_name = self.cluster.provision(name)
        self.cluster.place(volume_name, on, gib, disk_name)
        return volume_name

    def ask(self, claim: str, gib: float, *, dry_run: bool = False) -> GrowthOutcome:
        facts = self.cluster.claims[claim]
        request = GrowthRequest(facts.volume_name, int(gib * GIB), facts.namespace, facts.name, is_dry_run=dry_run)
        assert self.allocator.expansions.missing(request) is None
        return self.allocator.expansions.hold(request)

    def ask_volume(self, name: str, gib: float) -> GrowthOutcome:
        return self.allocator.expansions.hold(GrowthRequest(name, int(gib * GIB)))

    def grow_claim(self, claim: str, gib: float) -> None:
        self.cluster.set_claim(replace(self.cluster.claims[claim], requested_bytes=int(gib * GIB)))

    def grow_pv(self, claim: str, gib: float) -> None:
        facts = self.cluster.claims[claim]
        name = facts.volume_name
        pv = PersistentVolume(name, "driver.longhorn.io", name, facts.uid, facts.key, int(gib * GIB), EPOCH)
        self.allocator.observe_pv(name, pv)

    def grow_volume(self, name: str, gib: float, **other: Any) -> None:
        self.allocator.observe_volume(name, volume(name, gib, **other))

    def grow_replica(self, name: str, gib: float, *, on: str = "n1") -> None:
        self.cluster.place(name, on, gib)

    def held(self) -> dict[str, tuple[str, int]]:
        """State and GiB by claim, of expansions."""
        return {
            view.claim: (view.state, view.size_bytes // GIB)
            for view in self.allocator.snapshot().promises
            if view.kind == "expansion"
        }

    def due(self) -> list[str]:
        return self.cluster.due_growths()


def test_growth_is_admitted_up_to_the_last_byte_and_held() -> None:
    world = Growing()
    world.add("a", 100)
    world.add("b", 100)

    assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    assert {"ns/a": ("HELD", 200)} == world.held()

    refused = world.ask("b", 101)
    assert GrowthVerdict.REFUSED is refused.verdict
    assert 100 * GIB == refused.largest_bytes
    assert [("n1", "d1", GIB, Reason.INSUFFICIENT_STORAGE)] == [
        (entry.node, entry.disk, entry.missing_bytes, entry.rejection.reason) for entry in refused.obstacles
    ]


def test_a_node_whose_replica_has_grown_already_is_not_listed() -> None:
    world = Growing()
    world.cluster.add_node("n2", disk("d1", 400))
    name = world.add("a", 100)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 100, on="n2", disk_name="d1"))
    assert GrowthVerdict.ADMITTED is world.ask("a", 150).verdict
    world.grow_replica(name, 150)
    assert [("n2", 50 * GIB)] == [(view.node, view.size_bytes) for view in world.allocator.snapshot().promises]


def test_the_largest_size_that_would_fit_is_told_and_fits() -> None:
    world = Growing()
    world.add("a", 100)
    world.add("b", 50)

    refused = world.ask("a", 500)
    assert 350 * GIB == refused.largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 350).verdict


def test_one_growth_that_arrives_three_times_is_one_hold() -> None:
    world = Growing()
    name = world.add("a", 100)
    assert GrowthVerdict.ADMITTED is world.ask("a", 300.0001).verdict
    assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    assert GrowthVerdict.ADMITTED is world.ask_volume(name, 300.0001).verdict

    assert {"ns/a": ("HELD", 200)} == world.held()
    assert 400 * GIB == world.ask("a", 500).largest_bytes


def test_what_the_claim_was_granted_the_volume_is_never_refused() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.add("b", 100)
    world.ask("a", 300)
    world.cluster.add_node("n1", disk("d1", 250))  # the disk shrank meanwhile

    assert GrowthVerdict.ADMITTED is world.ask_volume(name, 300).verdict


def test_a_dry_run_holds_nothing() -> None:
    world = Growing()
    world.add("a", 100)
    assert GrowthVerdict.ADMITTED is world.ask("a", 400, dry_run=True).verdict
    assert GrowthVerdict.REFUSED is world.ask("a", 401, dry_run=True).verdict
    assert not [name for name in world.allocator.snapshot().counters if name.startswith("expansions")]
    assert {} == world.held()
    assert {"n1"} == world.cluster.offered(world.cluster.add_pod("p", gib=300).name, "n1")


def test_a_hold_becomes_the_clusters_word_and_ends_when_the_replicas_show_it() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.ask("a", 300)
    world.grow_claim("a", 300)
    assert {"ns/a": ("ASSUMED", 200)} == world.held()

    world.cluster.clock.advance(10 * HOLD_SECONDS)
    assert [] == world.due()

    world.grow_volume(name, 300)
    world.grow_pv("a", 300)
    assert {"ns/a": ("ASSUMED", 200)} == world.held()
    world.grow_replica(name, 300)
    assert {} == world.held()
    assert GrowthVerdict.REFUSED is world.ask("a", 401).verdict
    assert GrowthVerdict.ADMITTED is world.ask("a", 400).verdict


def test_a_hold_that_is_never_seen_is_due_a_minute_after_its_last_review_and_ends_then() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.ask("a", 300)
    world.cluster.clock.advance(HOLD_SECONDS - 1)
    world.ask("a", 300)
    world.cluster.clock.advance(HOLD_SECONDS - 1)
    assert [] == world.due()
    world.cluster.expire_growth(name)
    assert world.held()

    world.cluster.clock.advance(1)
    assert [name] == world.due()
    world.cluster.expire_growth(name)
    assert {} == world.held()
    assert 1 == world.allocator.snapshot().counters["expansions_expired"]


def test_a_pod_does_not_get_the_bytes_of_an_admitted_growth_and_is_told_that_they_are_promised() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.ask("a", 300)
    pod = world.cluster.add_pod("p", gib=101)

    outcome = world.cluster.filter("p", "n1")
    assert (Decision.CONTENDED, {"n1": Reason.CONTENDED}) == (outcome.decision, dict(outcome.refused))
    assert {"n1"} == world.cluster.offered(world.cluster.add_pod("small", gib=100).name, "n1")

    world.cluster.drop_pod("small")
    world.cluster.let_doubts_pass()
    world.cluster.clock.advance(HOLD_SECONDS)
    world.cluster.expire_growth(name)
    assert {"n1"} == world.cluster.offered(pod.name, "n1")


def test_a_growth_does_not_get_the_bytes_that_a_pod_was_offered() -> None:
    world = Growing()
    world.add("a", 100)
    world.cluster.add_pod("p", gib=200)
    assert {"n1"} == world.cluster.offered("p", "n1")

    refused = world.ask("a", 201)
    assert GrowthVerdict.REFUSED is refused.verdict
    assert [Reason.CONTENDED] == [entry.rejection.reason for entry in refused.obstacles]
    assert 200 * GIB == refused.largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 200).verdict
    assert not world.cluster.offered(world.cluster.add_pod("q", gib=1).name, "n1")


def test_a_growth_leaves_what_longhorn_may_put_on_that_disk_or_on_another() -> None:
    world = Growing(d1=400, d2=150)
    world.add("a", 100)
    world.cluster.add_pod("p", gib=120)
    assert {"n1"} == world.cluster.offered("p", "n1")

    assert 280 * GIB == world.ask("a", 400).largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 280).verdict
    world.cluster.add_pod("q", gib=121)
    assert not world.cluster.offered("q", "n1")  # where the first may go as well


def test_all_replicas_grow_or_none() -> None:
    world = Growing()
    world.cluster.add_node("n2", disk("d1", 150))
    name = world.add("a", 100)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 100, on="n2"))

    refused = world.ask("a", 200)
    assert [("n2", "d1", 50 * GIB)] == [(e.node, e.disk, e.missing_bytes) for e in refused.obstacles]
    assert 150 * GIB == refused.largest_bytes
    assert {} == world.held()

    assert GrowthVerdict.ADMITTED is world.ask("a", 150).verdict
    assert {"n1": 50, "n2": 50} == {v.node: v.size_bytes // GIB for v in world.allocator.snapshot().promises}


def test_several_replicas_on_one_disk_grow_together() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 100, on="n1"))
    assert 200 * GIB == world.ask("a", 250).largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 200).verdict


def test_growths_of_the_cluster_itself_count_without_having_been_admitted() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.add("b", 100)
    world.grow_claim("a", 250)
    assert {"ns/a": ("ASSUMED", 150)} == world.held()
    assert 150 * GIB == world.ask("b", 200).largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask_volume(name, 250).verdict

    world.grow_claim("a", 120)  # asked for less again
    assert GrowthVerdict.ADMITTED is world.ask("b", 200).verdict


def test_a_volume_larger_than_its_replicas_counts() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.add("b", 100)
    world.grow_volume(name, 250)
    assert 150 * GIB == world.ask("b", 200).largest_bytes


def test_a_new_leader_derives_growths_and_forgets_what_was_never_seen() -> None:
    world = Growing()
    world.add("a", 100)
    world.add("b", 100)
    world.ask("a", 150)
    world.ask("b", 150)
    world.grow_claim("b", 150)
    world.allocator.end_term()
    assert {"ns/b": ("ASSUMED", 50)} == world.held()
    world.allocator.begin_term()
    assert {"ns/b": ("ASSUMED", 50)} == world.held()


def test_a_promise_of_a_volume_that_is_not_placed_grows_with_it() -> None:
    world = Growing()
    world.cluster.add_pod("p", gib=100)
    assert {"n1"} == world.cluster.offered("p", "n1")
    world.cluster.select_node("p", "n1")
    world.cluster.provision("p")
    world.cluster.bind("p", "n1")
    assert {"n1": 100} == world.cluster.pending()

    assert 400 * GIB == world.ask("p", 500).largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("p", 300).verdict
    assert {"n1": 300} == {
        v.node: v.size_bytes // GIB for v in world.allocator.snapshot().promises if v.kind != "expansion"
    }
    assert not world.cluster.offered(world.cluster.add_pod("q", gib=101).name, "n1")


def test_an_offer_grows_with_its_volume() -> None:
    world = Growing()
    world.cluster.add_claim("p", 100)
    world.cluster.provision("p")
    world.cluster.add_pod("p", "p")
    assert {"n1"} == world.cluster.offered("p", "n1")
    assert GrowthVerdict.REFUSED is world.ask("p", 401).verdict
    assert GrowthVerdict.ADMITTED is world.ask("p", 300).verdict
    assert not world.cluster.offered(world.cluster.add_pod("q", gib=101).name, "n1")


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


def test_a_disk_that_is_gone_or_shared_lets_no_replica_on_it_grow() -> None:
    world = Growing()
    world.add("a", 100)
    world.cluster.add_node("n1", disk("other", 400))
    refused = world.ask("a", 150)
    assert [Reason.DISK_NOT_FOUND] == [entry.rejection.reason for entry in refused.obstacles]
    assert 100 * GIB == refused.largest_bytes


def test_a_follower_counts_growths_too() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.allocator.end_term()
    world.grow_claim("a", 300)
    world.grow_volume(name, 300)
    assert {"ns/a": ("ASSUMED", 200)} == world.held()


def test_while_the_extender_is_switched_off_nothing_is_remembered() -> None:
    world = Growing()
    world.add("a", 100)
    world.ask("a", 300)
    world.allocator.set_mode(Mode.BYPASS)
    world.allocator.set_mode(Mode.ACTIVE)
    assert {} == world.held()


# Volumes that are to move, or that have copies to place


def test_a_volume_that_is_to_move_has_to_fit_in_both_places() -> None:
    world = Growing()
    world.cluster.add_node("n2", disk("d1", 150))
    world.add("a", 100, on="n1")
    world.cluster.add_pod("p", "a")
    assert {"n2"} == world.cluster.offered("p", "n2")

    refused = world.ask("a", 200)
    assert ["n2"] == [entry.node for entry in refused.obstacles]
    assert 150 * GIB == refused.largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 150).verdict
    assert {"n1": 50, "n2": 150} == world.cluster.pending()


def with_a_copy_to_place(world: Growing, room_gib: float) -> str:
    """A volume of two copies with one on n1, and a node n2 with that room; a pod of it has chosen n1."""
    world.cluster.add_class("two", numberOfReplicas="2", dataLocality="disabled")
    world.cluster.add_node("n2", disk("d1", room_gib))
    claim = world.cluster.add_claim("a", 100, class_name="two")
    name = world.cluster.provision("a")
    world.cluster.place(name, "n1", 100)
    world.grow_volume(name, 100, locality="disabled", replica_count=2)
    assert {"n1"} == world.cluster.offered(world.cluster.add_pod("p", claim.name).name, "n1")
    world.cluster.bind("p", "n1")
    return name


def test_the_copy_that_is_still_to_be_placed_has_to_fit_as_well() -> None:
    world = Growing()
    with_a_copy_to_place(world, 150)
    world.cluster.add_pod("q", gib=50)
    assert {"n2"} == world.cluster.offered("q", "n2")
    assert [Reason.CONTENDED] == [entry.rejection.reason for entry in world.ask("a", 101).obstacles]


def test_a_copy_that_finds_no_place_at_all_keeps_no_volume_from_growing() -> None:
    world = Growing()
    with_a_copy_to_place(world, 50)
    assert GrowthVerdict.ADMITTED is world.ask("a", 400).verdict


def test_a_growth_that_somebody_else_always_refuses_gives_its_room_back_within_five_minutes() -> None:
    world = Growing()
    name = world.add("a", 100)
    world.add("b", 100)
    for _ in range(8):
        assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
        world.cluster.clock.advance(MOST_HELD_SECONDS / 8)
    assert GrowthVerdict.REFUSED is world.ask("a", 300, dry_run=True).verdict  # as the request itself would be
    refused = world.ask("a", 300)
    assert (GrowthVerdict.REFUSED, 100 * GIB) == (refused.verdict, refused.largest_bytes)
    assert "another webhook" in refused.obstacles[0].rejection.message
    assert {"ns/a": ("HELD", 200)} == world.held()  # the last request may still be stored

    world.cluster.clock.advance(HOLD_SECONDS - MOST_HELD_SECONDS / 8)
    assert GrowthVerdict.REFUSED is world.ask("a", 300).verdict
    assert [name] == world.due()
    world.cluster.expire_growth(name)
    assert GrowthVerdict.ADMITTED is world.ask("b", 300).verdict


def test_what_the_cluster_asks_for_is_never_refused_however_long_it_was_held() -> None:
    world = Growing()
    name = world.add("a", 100)
    for _ in range(8):
        world.ask("a", 300)
        world.cluster.clock.advance(MOST_HELD_SECONDS / 8)
    world.grow_claim("a", 250)
    assert GrowthVerdict.ADMITTED is world.ask_volume(name, 250).verdict
    assert GrowthVerdict.REFUSED is world.ask("a", 300).verdict
    world.grow_claim("a", 300)
    assert GrowthVerdict.ADMITTED is world.ask_volume(name, 300).verdict


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
