"""How many entries the record has of each disk."""

from __future__ import annotations

from collections import Counter

from controller.model.allocations import Allocation, Purpose
from controller.model.records import MAX_ENTRIES, no_place

_Place = tuple[Purpose, str, str]  # purpose, node and UUID of the disk


class Entries:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._counts = Counter[_Place]()
        self._full = set[_Place]()

    def add(self, one: Allocation, more: int) -> None:
        """So many more like that one; negative: fewer."""
        place = one.purpose, one.node, one.disk_uuid
        self._counts[place] += more
        if self._counts[place] >= MAX_ENTRIES:
            self._full.add(place)
        else:
            self._full.discard(place)
        if not self._counts[place]:
            del self._counts[place]

    def full(self, purpose: Purpose) -> dict[str, str]:
        """By UUID, the disks of which there is no place on record for more of that, and why."""
        return {uuid: no_place(purpose, node, uuid) for of, node, uuid in self._full if of is purpose}
