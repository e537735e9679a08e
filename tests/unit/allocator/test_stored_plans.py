"""What a new leader makes of the plans and holds that it finds stored, and of what happened before it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from controller.allocator.plans.plan import Hold, Plan
from controller.model.longhorn import Backup
from controller.model.places import Place
from tests.fakes import builders
from tests.fakes.builders import EPOCH, GIB
from tests.unit.allocator.placed_cluster import PlacedCluster, made_plan


@contextmanager
def between_leaders(
    site: PlacedCluster, plans: Sequence[Plan] | None = None, holds: Sequence[Hold] | None = None
) -> Iterator[None]:
    """Nobody leads meanwhile; the next leader finds what the one before had, unless something else is given."""
    plans = site.table.plans() if plans is None else plans
    holds = site.table.holds() if holds is None else holds
    site.allocator.end_term()
    yield
    site.allocator.begin_term(plans=plans, holds=holds)


def planned(site: PlacedCluster) -> dict[str, list[str]]:
    """Disks by volume."""
    return {plan.volume: sorted(place.disk_uuid for place in plan.places) for plan in site.table.plans()}


def at(disk: str, gib: int = 80) -> list[Place]:
    return [Place(disk.partition("-")[0], disk, gib * GIB)]


def put_replica(site: PlacedCluster, volume: str, on: str, gib: float) -> None:
    facts = builders.replica(f"{volume}-r-1", volume, gib, on=on, healthy_at=EPOCH)
    site.allocator.observe_replica(facts.name, facts)


@pytest.mark.parametrize(
    ("claim_uid", "disk"), [("uid-a", "n1-d1"), ("before", "n1-d0")], ids=["its own", "a former volume's of that name"]
)
def test_a_place_stands_although_another_disk_is_better_now_if_it_is_the_volumes_own(claim_uid: str, disk: str) -> None:
    site = PlacedCluster().add_nodes(n1=[200, 100])
    site.chosen("a", 80, "n1")

    with between_leaders(site, [made_plan("pvc-uid-a", claim_uid, at("n1-d1"), "pod-a")], []):
        pass

    assert {"pvc-uid-a": [disk]} == planned(site)


def test_plans_that_nobody_waits_for_end_where_they_are_stored_and_move_no_other_one() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 90])
    site.chosen("a", 80, "n1")
    site.add_claim("z", 80)
    own = made_plan("pvc-uid-a", "uid-a", at("n1-d0"), "pod-a")
    others = [made_plan("pvc-uid-z", "uid-z", at("n1-d0")), made_plan("gone", "uid-gone", at("n1-d1"))]

    with between_leaders(site, [own, *others], []):
        pass

    assert {"pvc-uid-a": ["n1-d0"]} == planned(site)
    assert {"pvc-uid-z": [], "gone": []} == {volume: disks for volume, disks in site.plans().items() if not disks}


def test_a_plan_without_its_pods_hold_is_a_choice() -> None:
    """A new leader may find the one without the other: plans outlive holds."""
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.chosen("a", 60, "n1")

    with between_leaders(site, holds=[]):
        pass

    hold = site.table.hold("pod-a")
    assert hold is not None and "n1" == hold.chosen
    before = planned(site)
    assert {"n1"} == site.offered("a", "n1")
    assert before == planned(site) != {}


def test_holds_of_pods_that_have_gone_are_dropped() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    for name in ("a", "b"):
        site.ask(name, 60, "n1")

    with between_leaders(site):
        site.drop_pod("a")
        site.change_pod("b", is_finished=True)

    assert ([], 0) == (site.table.holds(), site.table.taken_bytes("n1", "n1-d1"))


def test_a_held_place_that_is_not_legal_any_more_is_found_anew() -> None:
    site = PlacedCluster().add_nodes(n1=[200, 100])
    site.ask("a", 60, "n1")
    with between_leaders(site):
        closed = replace(builders.disk("d0", 200), allow_scheduling=False)
        site.add_node("n1", closed, builders.disk("d1", 100))

    site.select_node("a", "n1")

    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)


def test_a_place_keeps_its_size_until_the_backup_of_its_volume_is_read() -> None:
    """The next leader has not read it yet, and may not give the rest to others meanwhile."""
    url = "s3://bucket/?backup=b&volume=v"
    former, site = (PlacedCluster().add_nodes(n1=400) for _ in range(2))
    for one in (former, site):
        one.add_class("restored", dataLocality="best-effort", numberOfReplicas="1", fromBackup=url)
        one.add_pod("a", ("a", 100, "restored"))
    former.allocator.observe_backup("b", Backup("b", url, 300 * GIB))
    former.offered("a", "n1")
    former.select_node("a", "n1")

    with between_leaders(site, former.table.plans(), former.table.holds()):
        site.select_node("a", "n1")

    assert 300 * GIB == site.table.taken_bytes("n1", "n1-d1")
    assert set() == site.ask("b", 250, "n1")


def test_a_copy_that_was_placed_meanwhile_takes_no_bytes_twice() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("b", 40, "n1")
    volume = site.chosen("z", 60, "n1")
    site.provision("z")

    with between_leaders(site):
        put_replica(site, volume, "n1", 60)

    assert ({"pvc-uid-b": ["n1-d1"]}, 40 * GIB) == (planned(site), site.table.taken_bytes("n1", "n1-d1"))


def test_of_two_copies_the_one_that_is_missing_goes_next_to_the_pod_when_room_has_come_there() -> None:
    site = PlacedCluster().add_nodes(n1=10, n2=100, n3=100)
    site.add_class("near", dataLocality="best-effort", numberOfReplicas="2")
    volume = site.chosen("a", 40, "n1", "near")
    site.provision("a", data_locality="best-effort", copies=2)
    assert {volume: ["n2-d1", "n3-d1"]} == planned(site)

    with between_leaders(site):
        put_replica(site, volume, "n2", 40)
        site.add_node("n1", free_gib=100)

    assert {volume: ["n1-d1"]} == planned(site)
    assert "n1-d1" == site.where(f"{volume}-r-2")
