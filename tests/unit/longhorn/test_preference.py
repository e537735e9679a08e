"""Which candidate the stand-in takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.longhorn.placement import State, choose, find_candidates
from tests.unit.longhorn.worlds import Raw, disk, failed, node, replica, volume


def last(count: int) -> int:
    return count - 1


def chosen(nodes: list[Raw], wanted: Raw, *there: Raw, pick: Callable[[int], int] = last, **settings: str) -> str:
    new = replica("new")
    state = State(
        nodes={entry["metadata"]["name"]: entry for entry in nodes},
        replicas=[*there, new],
        settings={name.replace("_", "-"): value for name, value in settings.items()},
    )
    found = choose(state, wanted, find_candidates(state, wanted, new).candidates, pick)
    return found.uuid if found else ""


def test_no_candidate_is_no_choice() -> None:
    assert chosen([node("a", disk(available=0))], volume()) == ""


def test_an_attached_best_effort_volume_stays_near_although_another_node_is_emptier() -> None:
    nodes = [node("a", disk(100, scheduled=80)), node("b", disk(100))]
    assert "a-d1" == chosen(nodes, volume(10, dataLocality="best-effort", nodeID="a"))
    assert "b-d1" == chosen(nodes, volume(10, dataLocality="disabled", nodeID="a"))
    assert "b-d1" == chosen(nodes, volume(10, dataLocality="best-effort", nodeID=""))


def test_best_effort_goes_elsewhere_when_its_node_is_no_candidate() -> None:
    nodes = [node("a", disk(100, scheduled=95)), node("b", disk(100))]
    assert "b-d1" == chosen(nodes, volume(10, dataLocality="best-effort", nodeID="a"))


def test_best_effort_asks_for_one_near_replica_only() -> None:
    nodes = [node("a", disk(100), disk(100, scheduled=80)), node("b", disk(100))]
    wanted = volume(10, dataLocality="best-effort", nodeID="a", replicaSoftAntiAffinity="enabled")
    assert "b-d1" == chosen(nodes, wanted, replica("r", "a-d1", size=10))
    # A failed one does not count as near. Without reusable data it blocks nothing either.
    assert "a-d1" == chosen(nodes, wanted, failed("r", "a-d1", size=10, rebuildRetryCount=5))


def test_the_emptier_node_wins_and_on_it_the_emptier_disk() -> None:
    nodes = [
        node("a", disk(100, scheduled=10), disk(100, scheduled=60)),
        node("b", disk(100, scheduled=5), disk(100, scheduled=10)),
        node("c", disk(100, scheduled=50)),
    ]
    assert "b-d1" == chosen(nodes, volume(20))


def test_the_disk_is_scored_over_the_candidates_of_all_nodes() -> None:
    # Node a is chosen for its sum. Among its disks, taking from d2 keeps all five closest to each other.
    nodes = [node("a", disk(100, scheduled=30), disk(100)), node("b", disk(100, scheduled=45))]
    assert "a-d2" == chosen(nodes, volume(30))


def test_reserved_and_scheduled_bytes_make_a_disk_less_usable() -> None:
    nodes = [node("a", disk(100, reserved=50)), node("b", disk(100, scheduled=40)), node("c", disk(100, available=70))]
    assert "c-d1" == chosen(nodes, volume(10))


def test_equal_candidates_are_drawn() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert "a-d1" == chosen(nodes, volume(), pick=lambda count: 0)
    assert "c-d1" == chosen(nodes, volume(), pick=last)


@pytest.mark.parametrize(("first", "expected"), [(True, "a-d1"), (False, "b-d1")])
def test_where_nothing_is_usable_any_candidate_is_drawn(first: bool, expected: str) -> None:
    nodes = [node(name, disk(100, scheduled=100)) for name in ("a", "b")]
    pick: Callable[[int], int] = (lambda count: 0) if first else last
    assert expected == chosen(nodes, volume(50), pick=pick, storage_over_provisioning_percentage="200")


def test_a_size_that_leaves_no_mean_is_drawn_too() -> None:
    nodes = [node("a", disk(100)), node("b", disk(100, scheduled=100))]
    over = "300"
    assert "a-d1" == chosen(nodes, volume(100), pick=lambda count: 0, storage_over_provisioning_percentage=over)
    assert "b-d1" == chosen(nodes, volume(100), pick=last, storage_over_provisioning_percentage=over)


def test_a_candidate_without_enough_usable_bytes_loses() -> None:
    nodes = [node("a", disk(100, scheduled=60)), node("b", disk(100, scheduled=50))]
    assert "b-d1" == chosen(nodes, volume(50), pick=lambda count: 0, storage_over_provisioning_percentage="200")
