"""Which candidate Longhorn is predicted to take, and several replicas one after the other; case by case in
tests/longhorn_rules."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from controller.model.longhorn import LonghornNode
from controller.model.versions import Behaviour
from controller.rules.candidates import Candidate
from controller.rules.preference import PlacementStep, preferred, schedule_replicas, usable_bytes
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


def imbalance(usable: Sequence[int], size: int, chosen: int) -> float:
    """Longhorn's score of a choice: how uneven it leaves the entries."""
    after = [value - size * (index == chosen) for index, value in enumerate(usable)]
    mean = sum(after) / len(after)
    return (max(after) - min(after)) / mean if mean > 0 else math.inf


def test_no_other_choice_leaves_nodes_and_disks_more_even() -> None:
    chance = random.Random(1)
    for _ in range(500):
        sizes = {
            f"n{number}": [chance.choice((5, 10, 10, chance.randrange(30))) for _ in range(chance.randrange(1, 4))]
            for number in range(chance.randrange(2, 6))
        }
        size = chance.randrange(5)
        nodes = [node(name, *(disk(f"d{at}", one) for at, one in enumerate(here))) for name, here in sizes.items()]
        found, _, name = choice(size, *nodes).partition("/")
        sums, place = list(map(sum, sizes.values())), list(sizes).index(found)
        assert imbalance(sums, size, place) == min(imbalance(sums, size, at) for at in range(len(sums))), sizes
        every = [one for here in sizes.values() for one in here]
        own = range(first := sum(map(len, list(sizes.values())[:place])), first + len(sizes[found]))
        fitting = [imbalance(every, size, at) for at in own if every[at] >= size]
        assert imbalance(every, size, first + int(name[1:])) == min(fitting), sizes


def test_of_choices_that_leave_all_equally_even_the_one_with_the_most_room_is_taken() -> None:
    """The smallest node tells how uneven they are. By name alone, one node would be filled first."""
    small = node("n0", disk(size=100))
    assert "n2/d1" == choice(
        10, small, node("n1", disk(size=900)), node("n2", disk(size=950)), node("n3", disk(size=900))
    )
    assert "n1/d2" == choice(10, small, node("n1", disk("d1", size=900), disk("d2", size=950), disk("d3", size=900)))


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
