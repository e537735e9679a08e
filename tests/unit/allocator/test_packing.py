"""A disk of one node for each of a pod's volumes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.choose.packing import PACK_STEPS, Budget, Item, Packed, Steps, pack
from tests.fakes.clock import VirtualClock


@pytest.mark.parametrize(
    ("free", "limits", "disk"),
    [
        pytest.param([90, 80], [100, 100], 0, id="the emptiest, with ample room"),
        pytest.param([90, 80], [1000, 1000], 1, id="the one that it fills best, near full"),
        pytest.param([30, 20], [], 1, id="the same where nothing is known of limits"),
    ],
)
def test_which_disk_one_volume_gets(free: list[int], limits: list[int], disk: int) -> None:
    assert Packed((disk,), (10,)) == pack([Item(10, (0, 1))], free, Steps(PACK_STEPS), limits)


def test_a_disk_with_another_copy_serves_where_no_other_does() -> None:
    item = Item(10, (0,), spare=(1,))
    assert Packed((0,), (10,)) == pack([item], [10, 100], Steps(PACK_STEPS))
    assert Packed((1,), (10,)) == pack([item], [9, 100], Steps(PACK_STEPS))


def test_a_backing_image_comes_with_the_first_copy_on_a_disk() -> None:
    item = Item(10, (0, 1), image="i", image_bytes={0: 5, 1: 5})
    assert Packed((0, 0), (15, 10)) == pack([item, item], [25, 14], Steps(PACK_STEPS))
    assert pack([item, item], [24, 14], Steps(PACK_STEPS)) is None
    here = Item(10, (0, 1), image="i", image_bytes={1: 5})  # disk 0 has it
    assert Packed((0, 0), (10, 10)) == pack([here, here], [20, 14], Steps(PACK_STEPS))


@pytest.mark.parametrize("stopped_by", ["its limit", "the time of the question"])
def test_a_search_that_stops_says_so(stopped_by: str) -> None:
    clock = VirtualClock()
    over = Budget(clock, clock.now() - 1)
    steps = Steps(5) if stopped_by == "its limit" else Steps(PACK_STEPS - PACK_STEPS % 64, over)
    assert pack([Item(size, tuple(range(8))) for size in range(51, 60)], [100] * 8, steps) is None
    assert steps.exhausted


ITEMS = st.lists(
    st.builds(
        lambda size, disks, has_image: Item(
            size, tuple(sorted(disks)), image="i" if has_image else "", image_bytes={0: 3, 2: 3} if has_image else {}
        ),
        st.integers(0, 12),
        st.sets(st.integers(0, 2), min_size=1),
        st.booleans(),
    ),
    max_size=5,
)


@settings(max_examples=500)
@given(ITEMS, st.lists(st.integers(0, 20), min_size=3, max_size=3), st.booleans())
def test_it_finds_a_packing_wherever_there_is_one(items: list[Item], free: list[int], has_limits: bool) -> None:
    found = pack(items, free, Steps(PACK_STEPS), [20, 20, 20] if has_limits else ())
    choices = product(*(item.disks for item in items))
    assert (found is not None) is any(_fits(items, free, one) for one in choices)
    if found is not None:
        assert _fits(items, free, found.disks)
        for disk in range(3):
            here = [size for there, size in zip(found.disks, found.size_bytes, strict=True) if there == disk]
            assert sum(here) == _bytes_on(items, found.disks, disk)


def _fits(items: list[Item], free: list[int], disks: tuple[int, ...]) -> bool:
    return all(_bytes_on(items, disks, disk) <= room for disk, room in enumerate(free) if disk in disks)


def _bytes_on(items: list[Item], disks: tuple[int, ...], disk: int) -> int:
    here = [item for item, there in zip(items, disks, strict=True) if there == disk]
    images = {item.image: item.image_bytes[disk] for item in here if disk in item.image_bytes}
    return sum(item.size_bytes for item in here) + sum(images.values())
