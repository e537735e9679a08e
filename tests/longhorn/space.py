"""Longhorn's arithmetic of bytes: room for a new replica, and room for the growth of those that are there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tests.longhorn.release import at_least
from tests.longhorn.state import Raw, SearchState

INSUFFICIENT: Final = "insufficient storage"
_WRAP: Final = 2**64
_LOWEST: Final = -(2**63)


def int64(value: int) -> int:
    """A signed 64-bit sum as Go computes it: unchecked, so it wraps."""
    return (value - _LOWEST) % _WRAP + _LOWEST


def share(total: int, percentage: int) -> int:
    """`int64(float64(total) * float64(percentage) / 100)`: in 64-bit floats, truncated toward zero.

    Beyond 64 bits the conversion gives the lowest number, as it does on amd64.
    """
    value = math.trunc(float(total) * float(percentage) / 100)
    return value if _LOWEST <= value < -_LOWEST else _LOWEST


@dataclass(frozen=True)
class DiskFigures:
    """One disk's numbers in bytes, and the two limits that the settings make of them."""

    maximum: int
    available: int
    reserved: int
    scheduled: int
    floor: int  # the minimal available bytes
    limit: int  # for everything scheduled

    @classmethod
    def of(cls, state: SearchState, spec: Raw, status: Raw) -> DiskFigures:
        maximum, reserved = int(status.get("storageMaximum") or 0), int(spec.get("storageReserved") or 0)
        return cls(
            maximum=maximum,
            available=int(status.get("storageAvailable") or 0),
            reserved=reserved,
            scheduled=int(status.get("storageScheduled") or 0),
            floor=share(maximum, state.number("storage-minimal-available-percentage", 25)),
            limit=share(int64(maximum - reserved), state.number("storage-over-provisioning-percentage", 100)),
        )


def space_problem(
    state: SearchState, spec: Raw, status: Raw, size: int, required: int, fresh: int
) -> tuple[str, str] | None:
    """The two formulas of placement: reason and message, or None when `size` more bytes may be scheduled.

    `required`: bytes that the replica will really take; `fresh`: replicas of the same volume not in the figures yet.
    """
    disk = DiskFigures.of(state, spec, status)
    if disk.maximum <= 0 or disk.available <= 0:
        return INSUFFICIENT, f"maximum {disk.maximum}, available {disk.available}"
    if not int64(disk.available - required) > disk.floor:
        return INSUFFICIENT, f"available {disk.available} - required {required} <= minimal {disk.floor}"
    scheduled = int64(disk.scheduled + fresh)
    if not int64(size + scheduled) <= disk.limit:
        return INSUFFICIENT, f"size {size} + scheduled {scheduled} > limit {disk.limit}"
    return None


def growth_problem(state: SearchState, spec: Raw, status: Raw, growth: int) -> tuple[str, str] | None:
    """The space check of an expansion for one disk whose replicas grow by `growth` bytes in all (negative: shrink).

    From 1.11.0 on the growth must fit physically, whatever over-provisioning says; the usual two formulas come on top,
    for a negative growth too, so that even asking for less is refused while a disk is under pressure.
    """
    disk = DiskFigures.of(state, spec, status)
    if growth > 0 and at_least(state.release, (1, 11, 0)):
        if disk.maximum <= 0 or disk.available <= 0:
            return INSUFFICIENT, f"maximum {disk.maximum}, available {disk.available}"
        after = int64(disk.maximum - disk.available - disk.reserved + growth)
        if not int64(disk.maximum - after) >= disk.floor:
            return INSUFFICIENT, f"maximum {disk.maximum} - used after growth {after} < minimal {disk.floor}"
        if not after <= disk.limit:
            return INSUFFICIENT, f"used after growth {after} > limit {disk.limit}"
    if not disk.available > disk.floor:
        return INSUFFICIENT, f"available {disk.available} <= minimal {disk.floor}"
    if not int64(growth + disk.scheduled) <= disk.limit:
        return INSUFFICIENT, f"growth {growth} + scheduled {disk.scheduled} > limit {disk.limit}"
    return None
