"""That a question costs no more than it has to: searches and looks are counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from controller.allocator.judge import node as placement
from controller.allocator.judge.node import Judge
from controller.allocator.judge.packing import (
    PACK_STEPS,
    STRAND_STEPS,
    Item,
    Steps,
    is_robust,
    pack,
)
from controller.allocator.judge.verdict import Verdict
from controller.allocator.promises.ledger import Ledger
from tests.fakes.builders import TestCluster, node, promise
from tests.fakes.counting import counted
from tests.fakes.rooms import local, room, world_of

NO_SEARCH = 0


# Packing: what best fit packs needs no search


@pytest.mark.parametrize(
    ("sizes", "free"),
    [
        ((5, 5), (5, 5)),  # each disk filled to the last byte
        ((5, 4, 4), (8, 5)),  # the fuller disk first, wherever it stands
        ((5, 4, 4), (5, 8)),
        ((4, 3, 2, 1), (5, 5)),
        ((6, 3, 3), (6, 7, 6)),
        ((6, 1, 7), (7, 7)),
    ],
)
def test_what_best_fit_packs_costs_no_search(sizes: tuple[int, ...], free: tuple[int, ...]) -> None:
    disks = tuple(range(len(free)))
    steps = Steps(NO_SEARCH)
    found = pack([Item(size, disks) for size in sizes], free, steps)
    assert found is not None
    assert not steps.exhausted


def test_a_single_volume_takes_the_disk_with_the_most_room_and_a_tie_goes_to_the_first() -> None:
    assert (1,) == pack([Item(5, (0, 1, 2))], [6, 9, 7], Steps(NO_SEARCH))
    assert (0, 1) == pack([Item(5, (0, 1)), Item(4, (0, 1))], (8, 8), Steps(NO_SEARCH))


def test_spare_disks_cost_no_search_either() -> None:
    items = [Item(5, (0,), (1,)), Item(5, (0,), (1,))]
    assert {0, 1} == set(pack(items, (5, 5), Steps(NO_SEARCH)) or ())


# Judging


def test_a_node_whose_disks_are_all_too_small_needs_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(room("d1", 100))
    world.put_node("n2", node("n2", room("d2", 10)))
    looks = counted(monkeypatch, Judge, "judge")
    sure, refused = Judge(world, Ledger(), (local(60),), 0.0).sure_among(["n1", "n2"])
    assert (["n1"], ["n2"]) == (sure, list(refused))
    assert 1 == len(looks)


def test_a_sure_node_costs_no_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    packings = counted(monkeypatch, placement, "pack")
    ledger = Ledger.of([promise("other", size=40)])
    judge = Judge(world_of(room("d1", 100)), ledger, (local(60, required_bytes=1),), 10.0)
    assert Verdict.SURE is judge.judge("n1").verdict
    assert not packings


# Searches: the same problems take the same steps, whatever is changed about the code


def whole(dice: Random, least: int, most: int) -> int:
    return least + int(dice.random() * (most - least + 1))


def some(dice: Random, disks: int) -> tuple[int, ...]:
    return tuple(disk for disk in range(disks) if dice.random() < 0.7) or (whole(dice, 0, disks - 1),)


def tight(dice: Random) -> tuple[list[Item], list[int]]:
    """Items whose bytes fill three to four disks but for a few: where greed fails, a packing may still exist."""
    disks = whole(dice, 3, 4)
    items, free = [], [whole(dice, 0, 1) for _ in range(disks)]
    for _ in range(whole(dice, 5, 9)):
        home, size = whole(dice, 0, disks - 1), whole(dice, 2, 9)
        free[home] += size
        usable = tuple(sorted({home, *some(dice, disks)}))
        if dice.random() < 0.2:
            items.append(Item(size, usable[:1], usable[1:]))
        else:
            items.append(Item(size, usable))
    if dice.random() < 0.5:
        free[whole(dice, 0, disks - 1)] += whole(dice, -1, 1)
    return items, [max(0, room) for room in free]


def packing_steps(dice: Random) -> int:
    items, free = tight(dice)
    steps = Steps(PACK_STEPS)
    pack(items, free, steps)
    return PACK_STEPS - steps.left


def stranding_steps(dice: Random) -> int:
    items, free = tight(dice)
    steps = Steps(STRAND_STEPS)
    is_robust(items[:3], [room + whole(dice, 0, 4) for room in free], steps)
    return STRAND_STEPS - steps.left


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (packing_steps, [327, 265, 328, 225, 313, 274, 306, 216, 214, 333, 296, 299]),
        (stranding_steps, [44, 74, 129, 101, 101, 40]),
    ],
)
def test_a_search_takes_no_more_steps_than_it_did(search: Callable[[Random], int], expected: list[int]) -> None:
    taken = [sum(search(Random(f"{batch}-{number}")) for number in range(60)) for batch in range(len(expected))]
    assert expected == taken


def test_a_wake_up_looks_once_for_sizes_that_reach_the_same_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    for name in ("n1", "n2"):
        cluster.add_pod(f"on-{name}", gib=60)
        assert cluster.offered(f"on-{name}", name)
        cluster.select_node(f"on-{name}", name)
    for number in range(20):
        cluster.add_pod(f"p{number}", gib=60 + number / 10)
        assert not cluster.offered(f"p{number}", "n1", "n2")
    looks = counted(monkeypatch, Judge, "open_among")
    cluster.plan_wakeups()
    assert 1 == len(looks)
