"""Which candidate Longhorn is predicted to take, and several replicas one after the other."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from controller.model.longhorn import LonghornNode
from controller.model.versions import Behaviour
from controller.rules.candidates import Candidate
from controller.rules.preference import Imbalance, preferred, usable_bytes
from controller.rules.schedule import PlacementStep, schedule_replicas
from tests.unit.allocator.placing import disk, node, replica, view, volume


def choice(size: int, *nodes: LonghornNode, **behaviour: Any) -> str:
    """The preferred one of all the nodes' disks, given in the wrong order."""
    candidates = [Candidate(entry.name, found.name, found.uuid) for entry in nodes for found in entry.disks][::-1]
    found = preferred(candidates, {entry.name: entry for entry in nodes}, size, Behaviour(**behaviour))
    assert found is not None
    return f"{found.node}/{found.disk}"


def test_without_candidates_there_is_no_choice_and_a_single_one_is_taken_whatever_it_has() -> None:
    assert preferred([], {}, 1) is None
    assert "n1/d1" == choice(5000, node("n1"))


def test_usable_bytes_are_what_neither_reserved_nor_scheduled_takes() -> None:
    assert 600 == usable_bytes(disk(available_bytes=900, reserved_bytes=100, scheduled_bytes=200))
    assert 0 == usable_bytes(disk(available_bytes=900, reserved_bytes=700, scheduled_bytes=201))


def test_imbalance_is_the_spread_over_the_mean_after_the_choice() -> None:
    assert 0.0 == Imbalance([300, 200], 100).of(0)
    assert 0.0 == Imbalance([101, 1], 100).of(0)
    assert pytest.approx(200 / 200) == Imbalance([300, 200], 100).of(1)
    assert math.inf == Imbalance([100, 0], 100).of(0)
    assert math.inf == Imbalance([50, 50], 200).of(0)


def test_imbalance_is_what_a_look_at_all_entries_tells() -> None:
    chance = random.Random(1)
    for _ in range(500):
        usable = [chance.choice((0, 5, 10, 10, chance.randrange(30))) for _ in range(chance.randrange(1, 6))]
        size, chosen = chance.randrange(12), chance.randrange(len(usable))
        after = [value - size * (index == chosen) for index, value in enumerate(usable)]
        mean = sum(after) / len(after)
        expected = (max(after) - min(after)) / mean if mean > 0 else math.inf
        assert expected == Imbalance(usable, size).of(chosen), (usable, size, chosen)


def test_the_node_that_leaves_the_nodes_most_even_is_taken() -> None:
    assert "n2/d1" == choice(100, node("n1", disk(size=200)), node("n2", disk(size=300)))
    assert "n1/d1" == choice(100, node("n1", disk(size=300)), node("n2", disk(size=200)))


def test_a_nodes_disks_count_together() -> None:
    """n2 has more in sum, though n1 has the largest disk."""
    assert "n2/d1" == choice(100, node("n1", disk(size=250)), node("n2", disk("d1", 200), disk("d2", 200)))


def test_among_the_nodes_disks_the_one_that_leaves_all_disks_most_even_is_taken() -> None:
    nodes = node("n1", disk("d1", 300), disk("d2", 500)), node("n2", disk("d1", 490))
    usable = [300, 500, 490]
    assert Imbalance(usable, 100).of(1) < Imbalance(usable, 100).of(0)
    assert "n1/d2" == choice(100, *nodes)


def test_only_what_has_room_is_weighed() -> None:
    assert "n2/d1" == choice(150, node("n1", disk(size=149)), node("n2", disk(size=150)))
    assert "n1/d2" == choice(150, node("n1", disk("d1", 149), disk("d2", 150)))


def test_what_is_equal_and_what_has_no_room_goes_by_name() -> None:
    assert "n1/d1" == choice(100, node("n2", disk("d1"), disk("d2")), node("n1", disk("d1"), disk("d2")))
    assert "n1/d1" == choice(5000, node("n2"), node("n1"))  # nothing has room
    assert "n1/d1" == choice(
        150, node("n2", disk(size=100)), node("n1", disk("d1", 100), disk("d2", 100))
    )  # no disk has
    assert "n0/d1" == choice(150, node("n1", disk("d1", 100), disk("d2", 100)), node("n0", disk(size=90)))
    assert "n1/d1" == choice(1, *(node(name, disk(scheduled_bytes=1000)) for name in ("n2", "n1")))  # all zero
    assert "n1/d1" == choice(100, node("n2"), node("n1"), picks_by_balance_score=False)


# One after the other


def placed(steps: tuple[PlacementStep, ...]) -> list[str | None]:
    found = [step.scheduled for step in steps]
    return [None if entry is None else f"{entry.node}/{entry.disk}" for entry in found]


def test_the_balance_looks_at_the_replicas_own_size() -> None:
    """400 bytes are usable nowhere, so that the name decides; 100 are on both nodes."""
    seen = view(node("n1", disk(size=1000, available_bytes=150)), node("n2", disk(size=1000, available_bytes=300)))
    sizes = {size: schedule_replicas(seen, volume(size=400), [replica(size=size)]) for size in (0, 100, 400)}
    assert {0: ["n1/d1"], 100: ["n2/d1"], 400: ["n1/d1"]} == {size: placed(steps) for size, steps in sizes.items()}


def test_a_replica_that_is_no_object_yet_is_placed_as_well() -> None:
    steps = schedule_replicas(view(node("n1"), node("n2")), volume(), [replica("r1"), replica("r2")])
    assert ["n1/d1", "n2/d1"] == placed(steps)


def test_the_candidates_of_a_step_are_all_though_the_choice_is_narrowed() -> None:
    local = volume(data_locality="best-effort", node_id="n2")
    (step,) = schedule_replicas(view(node("n1", disk(size=5000)), node("n2")), local, [replica()])
    assert ["n1", "n2"] == [entry.node for entry in step.search.candidates]
    assert ["n2"] == [entry.node for entry in step.preferred]
    assert ["n2/d1"] == placed((step,))
