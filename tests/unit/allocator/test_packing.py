"""Packing against exhaustive search: what exists is found, and a yes is never wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.packing import PACK_STEPS, STEPS_A_LOOK, STRAND_STEPS, Item, Steps, is_robust, pack
from tests.fakes.clock import VirtualClock

ROOMY = 10**6  # steps: more than any of these searches can take


def every_packing(items: Sequence[Item], free: Sequence[int]) -> bool:
    """Whether some assignment fits, by trying all of them."""
    for disks in product(*(item.all_disks for item in items)):
        left = list(free)
        for item, disk in zip(items, disks, strict=True):
            left[disk] -= item.size_bytes
        if all(left[disk] >= 0 for disk in disks):
            return True
    return False


def items_for(disks: int, most: int) -> st.SearchStrategy[list[Item]]:
    chosen = st.sets(st.integers(0, disks - 1), min_size=1).map(lambda indices: tuple(sorted(indices)))
    return st.lists(st.builds(Item, st.integers(1, 12), chosen), max_size=most)


@st.composite
def pods(draw: st.DrawFn, most: int = 4) -> tuple[list[Item], list[int]]:
    """Volumes of which some have a disk as their last resort, as those of other replicas are."""
    disks = draw(st.integers(1, 4))
    free = draw(st.lists(st.integers(-3, 25), min_size=disks, max_size=disks))
    items = []
    for _ in range(draw(st.integers(1, most))):
        mine = draw(st.sets(st.integers(0, disks - 1), min_size=1))
        spare = draw(st.sets(st.sampled_from(sorted(mine)), max_size=1))
        items.append(Item(draw(st.integers(1, 12)), tuple(sorted(mine - spare)), tuple(sorted(spare))))
    return items, free


@settings(max_examples=700, deadline=None)
@given(pods(5))
def test_a_packing_is_found_exactly_when_one_exists(case: tuple[list[Item], list[int]]) -> None:
    items, free = case
    steps = Steps(PACK_STEPS)
    found = pack(items, free, steps)

    assert every_packing(items, free) == (found is not None)
    assert not steps.exhausted
    if found is not None:
        left = list(free)
        for item, disk in zip(items, found, strict=True):
            assert disk in item.all_disks
            left[disk] -= item.size_bytes
        assert all(left[disk] >= 0 for disk in found)


def test_the_bound_is_reported_when_it_is_hit() -> None:
    items = [Item(size, (0, 1)) for size in (6, 4, 4, 4, 3, 3)]  # the fullest disk first leaves no room for the last
    steps = Steps(2)

    assert pack(items, [12, 12], steps) is None
    assert steps.exhausted
    assert (0, 1, 1, 1, 0, 0) == pack(items, [12, 12], Steps(PACK_STEPS))

    steps = Steps(2)
    assert [(True, False), (True, False), (False, True)] == [(steps.take(), steps.exhausted) for _ in range(3)]


def test_a_search_looks_at_the_clock_now_and_then_and_ends_with_the_time_of_its_question() -> None:
    clock = VirtualClock()
    steps = Steps(4 * STEPS_A_LOOK, Budget.of(clock, 50))
    for _ in range(STEPS_A_LOOK):
        assert steps.take()
    clock.advance(1)
    assert not steps.take()
    assert steps.exhausted
    assert Steps(4 * STEPS_A_LOOK).take()  # without a budget there is no clock to look at

    late = Steps(4 * STEPS_A_LOOK - 1, Budget.of(clock, 50))
    clock.advance(1)
    for _ in range(STEPS_A_LOOK - 1):
        assert late.take()
    assert not late.take()


# Every choice of Longhorn's within one pod


def every_choice_places_all(items: Sequence[Item], free: Sequence[int], others: Sequence[Item] = ()) -> bool:
    """By brute force: every order, and at each turn every disk that Longhorn may take by figures of any age; `others`
    may find none."""

    def go(order: Sequence[tuple[Item, bool]], left: tuple[int, ...]) -> bool:
        if not order:
            return True
        (item, must), size = order[0], order[0][0].size_bytes
        has_room = any(left[disk] >= size for disk in item.disks)
        if must and not has_room and not any(left[disk] >= size for disk in item.spare):
            return False
        choices = [disk for disk in item.disks if free[disk] >= size]
        choices += [disk for disk in item.spare if free[disk] >= size and not has_room]
        if not choices:
            return go(order[1:], left)
        return all(go(order[1:], (*left[:disk], left[disk] - size, *left[disk + 1 :])) for disk in choices)

    everything = [*((item, True) for item in items), *((item, False) for item in others)]
    return all(go(order, tuple(free)) for order in set(permutations(everything)))


@settings(max_examples=500, deadline=None)
@given(pods(), st.data())
def test_robust_means_that_every_order_and_choice_places_all_whatever_others_take(
    case: tuple[list[Item], list[int]], data: st.DataObject
) -> None:
    items, free = case
    others = data.draw(items_for(len(free), 2))

    assert every_choice_places_all(items, free, others) == is_robust(items, free, Steps(ROOMY), others)


@settings(max_examples=200, deadline=None)
@given(pods(), st.integers(0, 5))
def test_a_robust_pod_can_be_packed_whatever_the_bound(case: tuple[list[Item], list[int]], bound: int) -> None:
    items, free = case
    steps = Steps(bound)

    if is_robust(items, free, steps):
        assert every_choice_places_all(items, free)
    elif every_choice_places_all(items, free):
        assert steps.exhausted


def test_a_disk_that_a_late_figure_puts_over_its_limit_is_closed_to_the_rest() -> None:
    """Where the figures are current, 7 and 4 never lie on one disk of 9."""
    items = [Item(7, (0, 1, 2)), Item(4, (0, 1, 2)), Item(1, (0,))]
    assert not is_robust(items, [9, 7, 6], Steps(STRAND_STEPS))
    assert is_robust(items, [12, 7, 6], Steps(STRAND_STEPS))


@pytest.mark.parametrize("count", [4, 12])
def test_as_many_disks_as_volumes_are_enough_for_all_and_cost_no_search(count: int) -> None:
    items, steps = [Item(100, tuple(range(count)))] * count, Steps(0)
    assert is_robust(items, [100] * count, steps)
    assert not is_robust(items, [100] * (count - 1) + [99], Steps(STRAND_STEPS))


def test_two_volumes_that_fit_one_way_only_are_not_robust() -> None:
    narrow, wide = Item(60, (0,)), Item(50, (0, 1))

    assert (0, 1) == pack([narrow, wide], [100, 50], Steps(PACK_STEPS))
    assert not is_robust([narrow, wide], [100, 50], Steps(STRAND_STEPS))
    assert is_robust([narrow, wide], [110, 50], Steps(STRAND_STEPS))


def test_twelve_volumes_on_twenty_four_disks_stay_within_the_bound() -> None:
    """Sizes that leave waste on every disk, on disks that all serve something else: symmetry does not help."""
    items = [Item(510 + 7 * number, tuple(disk for disk in range(24) if (disk + number) % 5)) for number in range(12)]
    free = [505 + 3 * (disk % 8) for disk in range(24)]
    steps = Steps(PACK_STEPS)

    found = pack(items, free, steps)

    assert found is None
    assert steps.left >= 0
