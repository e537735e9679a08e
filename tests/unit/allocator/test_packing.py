"""Packing against exhaustive search: what exists is found, and a yes is never wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.packing import COVER_STEPS, PACK_STEPS, Item, Steps, is_sure, pack


def every_packing(items: Sequence[Item], free: Sequence[int]) -> bool:
    """Whether some assignment fits, by trying all of them."""
    for disks in product(*(item.disks for item in items)):
        left = list(free)
        for item, disk in zip(items, disks, strict=True):
            left[disk] -= item.size_bytes
        if all(left[disk] >= 0 for disk in disks):
            return True
    return False


def every_end(pending: Sequence[Item], free: Sequence[int]) -> set[tuple[int, ...]]:
    """All rooms that can be left once `pending` was placed one after the other, in any order, on any disk with room."""
    ends = set()

    def place(order: Sequence[Item], left: tuple[int, ...]) -> None:
        if not order:
            ends.add(left)
            return
        choices = [disk for disk in order[0].disks if left[disk] >= order[0].size_bytes]
        if not choices:
            place(order[1:], left)
        for disk in choices:
            place(order[1:], (*left[:disk], left[disk] - order[0].size_bytes, *left[disk + 1 :]))

    for order in set(permutations(pending)):
        place(order, tuple(free))
    return ends


def items_for(disks: int, most: int) -> st.SearchStrategy[list[Item]]:
    chosen = st.sets(st.integers(0, disks - 1), min_size=1).map(lambda indices: tuple(sorted(indices)))
    return st.lists(st.builds(Item, st.integers(1, 12), chosen), min_size=1, max_size=most)


@st.composite
def packings(draw: st.DrawFn, most: int = 5) -> tuple[list[Item], list[int]]:
    disks = draw(st.integers(1, 4))
    return draw(items_for(disks, most)), draw(st.lists(st.integers(-3, 20), min_size=disks, max_size=disks))


@st.composite
def coverings(draw: st.DrawFn) -> tuple[list[Item], list[Item], list[int]]:
    disks = draw(st.integers(1, 3))
    free = draw(st.lists(st.integers(-2, 18), min_size=disks, max_size=disks))
    return draw(items_for(disks, 3)), draw(items_for(disks, 4)), free


@settings(max_examples=400, deadline=None)
@given(packings())
def test_a_packing_is_found_exactly_when_one_exists(case: tuple[list[Item], list[int]]) -> None:
    items, free = case
    found = pack(items, free, Steps(PACK_STEPS))

    assert every_packing(items, free) == (found is not None)
    if found is not None:
        left = list(free)
        for item, disk in zip(items, found, strict=True):
            assert disk in item.disks
            left[disk] -= item.size_bytes
        assert all(left[disk] >= 0 for disk in found)


@settings(max_examples=400, deadline=None)
@given(coverings())
def test_sure_means_that_a_packing_remains_wherever_pending_items_go(
    case: tuple[list[Item], list[Item], list[int]],
) -> None:
    items, pending, free = case
    expected = all(every_packing(items, left) for left in every_end(pending, free))

    assert expected == is_sure(items, pending, free, Steps(COVER_STEPS))


@settings(max_examples=200, deadline=None)
@given(coverings(), st.integers(0, 6))
def test_a_search_that_gives_up_never_says_yes_wrongly(
    case: tuple[list[Item], list[Item], list[int]], bound: int
) -> None:
    items, pending, free = case
    steps = Steps(bound)
    if is_sure(items, pending, free, steps):
        assert all(every_packing(items, left) for left in every_end(pending, free))


def test_the_bound_is_reported_when_it_is_hit() -> None:
    items = [Item(7, (0, 1, 2)), Item(7, (0, 1, 2)), Item(6, (0, 1, 2)), Item(6, (0, 1, 2))]
    steps = Steps(2)

    assert pack(items, [13, 12, 6], steps) is None
    assert steps.exhausted
    assert pack(items, [13, 13, 6], Steps(PACK_STEPS)) is not None


def test_a_single_item_takes_the_disk_with_the_most_room() -> None:
    assert (1,) == pack([Item(5, (0, 1, 2))], [6, 9, 7], Steps(1))
