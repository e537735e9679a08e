"""What random worlds have shown about plans and places, each as small as it can be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from controller.allocator.plans.plan import Plan
from controller.model.places import Place
from tests.fakes.builders import GIB, TestCluster

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def plans_of(site: TestCluster) -> dict[str, list[str]]:
    """The disks that are planned, by volume, of what changed since the last call."""
    return {
        volume: sorted(place.disk_uuid for place in plan.places) if plan is not None else []
        for volume, plan in site.allocator.places.take_plans()
    }


def choose(site: TestCluster, pod: str, gib: float, to: str) -> None:
    site.ask(pod, gib, to)
    site.select_node(pod, to)


def lead_anew(site: TestCluster, *plans: Plan) -> None:
    site.allocator.end_term()
    site.allocator.begin_term(plans=plans)


def test_a_stored_plan_of_a_volume_that_is_gone_ends_where_it_is_stored() -> None:
    site = TestCluster().add_nodes(n1=100)

    lead_anew(site, Plan("gone", "uid-gone", (Place("n1", "n1-d1", 80 * GIB),), (), NOW))

    assert {"gone": []} == plans_of(site)


def test_a_stored_plan_that_nobody_waits_for_moves_no_other_one() -> None:
    site = TestCluster().add_nodes(n1=[100, 90])
    choose(site, "a", 80, "n1")
    site.add_claim("z", 80)
    here = (Place("n1", "n1-d0", 80 * GIB),)

    lead_anew(site, Plan("pvc-uid-a", "uid-a", here, (), NOW), Plan("pvc-uid-z", "uid-z", here, (), NOW))

    assert {"pvc-uid-z": []} == {volume: disks for volume, disks in plans_of(site).items() if volume == "pvc-uid-z"}
    site.provision("a")
    turn = site.allocator.places.turn_of("pvc-uid-a-r-1", NOW)
    assert turn.write is not None
    assert "n1-d0" == turn.write.place.disk_uuid


def test_a_plan_stays_while_the_volume_that_its_claim_names_is_not_known_yet() -> None:
    site = TestCluster().add_nodes(n1=200)
    choose(site, "a", 80, "n1")
    plans_of(site)

    site.set_claim(replace(site.claims["a"], volume_name="pvc-uid-a"))  # before its PV and its Volume are seen
    site.place("other", "n1", 20)

    assert {} == plans_of(site)
