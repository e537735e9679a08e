"""What random worlds have shown about plans and places, each as small as it can be."""

from __future__ import annotations

from dataclasses import replace

from controller.allocator.plans.plan import Plan
from controller.model.places import Place
from tests.fakes.builders import GIB
from tests.unit.allocator.placed_cluster import PlacedCluster, made_plan


def lead_anew(site: PlacedCluster, *plans: Plan) -> None:
    site.allocator.end_term()
    site.allocator.begin_term(plans=plans)


def test_a_stored_plan_of_a_volume_that_is_gone_ends_where_it_is_stored() -> None:
    site = PlacedCluster().add_nodes(n1=100)

    lead_anew(site, made_plan("gone", "uid-gone", [Place("n1", "n1-d1", 80 * GIB)]))

    assert {"gone": []} == site.plans()


def test_a_stored_plan_that_nobody_waits_for_moves_no_other_one() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 90])
    site.chosen("a", 80, "n1")
    site.add_claim("z", 80)
    here = [Place("n1", "n1-d0", 80 * GIB)]

    lead_anew(site, made_plan("pvc-uid-a", "uid-a", here, "pod-a"), made_plan("pvc-uid-z", "uid-z", here))

    assert {"pvc-uid-z": []} == {volume: disks for volume, disks in site.plans().items() if volume == "pvc-uid-z"}
    site.provision("a")
    assert "n1-d0" == site.where("pvc-uid-a-r-1")


def test_a_stored_plan_whose_copy_is_there_takes_no_room_from_another_one() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("b", 40, "n1")
    site.chosen("z", 60, "n1")
    before = [plan for plan in site.table.plans() if plan.volume == "pvc-uid-z"]
    site.provision("z")
    site.store(site.turn("pvc-uid-z-r-1"))
    site.plans()

    lead_anew(site, *before, *site.table.plans())

    assert {"pvc-uid-b": [Place("n1", "n1-d1", 40 * GIB)]} == {
        plan.volume: list(plan.places) for plan in site.table.plans()
    }


def test_a_plan_stays_while_the_volume_that_its_claim_names_is_not_known_yet() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    site.chosen("a", 80, "n1")
    site.plans()

    site.set_claim(replace(site.claims["a"], volume_name="pvc-uid-a"))  # before its PV and its Volume are seen
    site.place("other", "n1", 20)

    assert {} == site.plans()
