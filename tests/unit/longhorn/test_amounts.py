"""Quantities, rounding, rooms of CSIStorageCapacity, and options of the stand-in."""

from __future__ import annotations

import json

import pytest

from tests.longhorn.capacity import rooms
from tests.longhorn.classes import rounded
from tests.longhorn.options import Delay, DelayDice, Delays, LonghornOptions
from tests.longhorn.quantity import quantity_bytes
from tests.longhorn_rules.objects import Raw, disk, node

MIB = 1024**2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1),
        (7, 7),
        ("10Gi", 10 * 1024**3),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("1G", 10**9),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("7Ei", 7 * 1024**6),
        ("1500m", 2),
        ("1m", 1),
        ("0.1Ki", 103),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_quantities_are_bytes_rounded_up(text: str | int, expected: int) -> None:
    assert expected == quantity_bytes(text)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (0, 10 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (12 * MIB, 12 * MIB),
        (12 * MIB + 1, 14 * MIB),
        (10**9, 477 * 2 * MIB),
    ],
)
def test_sizes_are_multiples_of_2_mib_from_10_mib_on(asked: int, expected: int) -> None:
    assert expected == rounded(asked)


# Rooms


def test_a_room_is_what_the_limit_leaves_in_whole_numbers() -> None:
    entry = node("a", disk(133, scheduled=9), disk(100, scheduled=200), disk(100, reserved=10, scheduled=90))
    assert [190, 0, 45] == rooms(entry, {}, 150)


EVICTED = node("a")
EVICTED["spec"]["evictionRequested"] = True
TAGGED = node("a", disk(1, tags=("ssd",)), disk(2, tags=("ssd", "fast")), tags=("x",))
USABLE = (
    disk(1, allowScheduling=False),
    disk(2, evictionRequested=True),
    disk(3, schedulable="False"),
    disk(4, diskType="block"),
    disk(5),
)


@pytest.mark.parametrize(
    ("entry", "parameters", "expected"),
    [
        pytest.param(node("a", disk(100, available=1)), {}, [100], id="available bytes make no difference"),
        pytest.param(node("a", ready="False"), {}, [], id="a node that is not ready has none"),
        pytest.param(node("a", schedulable="False"), {}, [], id="nor has a cordoned one"),
        pytest.param(node("a", allow=False), {}, [], id="nor a closed one"),
        pytest.param(EVICTED, {}, [], id="nor one that is evicted"),
        pytest.param(node("a", *USABLE), {}, [5], id="only disks that may be used"),
        pytest.param(node("a", *USABLE), {"dataEngine": "v2"}, [4], id="of the engine's type"),
        pytest.param(TAGGED, {"nodeSelector": "x", "diskSelector": "ssd"}, [1, 2], id="selected by tags"),
        pytest.param(TAGGED, {"diskSelector": "fast,ssd"}, [2], id="all of them"),
        pytest.param(TAGGED, {"nodeSelector": "y"}, [], id="of the node too"),
        pytest.param(TAGGED, {"diskSelector": "ssd, fast"}, [], id="which are not trimmed"),
    ],
)
def test_rooms(entry: Raw, parameters: dict[str, str], expected: list[int]) -> None:
    assert expected == rooms(entry, parameters, 100)


# Options


def test_options_survive_json() -> None:
    options = LonghornOptions(delays=Delays(provision=(0.5, 1.5), attach=2), settings={"a": "b"}, retry_seconds=1.0)
    assert options == LonghornOptions.of(json.loads(options.as_json()))


@pytest.mark.parametrize("value", [-1, 121, (2, 1), (0, 500)])
def test_a_delay_out_of_range_is_named(value: Delay) -> None:
    with pytest.raises(ValueError, match=r"delays\.attach"):
        Delays(attach=value)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match="retry_minutes"):
        LonghornOptions.of({"retry_minutes": 1})
    with pytest.raises(ValueError, match=r"delays\.coffee"):
        LonghornOptions.of({"delays": {"coffee": 1}})


def test_draws_repeat_with_the_seed_and_stay_in_range() -> None:
    draws = [[DelayDice(seed).seconds((1, 2)) for _ in range(3)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert all(1 <= value <= 2 for value in draws[0])
    assert 3 == DelayDice(0).seconds(3)
