"""What takes bytes of disks, and no object of Longhorn's shows it there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from controller.model.allocations import Allocation, Purpose, largest

Name = tuple[Purpose, str]
_NOTHING: Final[dict[Name, Allocation]] = {}


class Extra:
    """`touch` hears of the UUIDs of disks where that changed.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, touch: Callable[[str], None]) -> None:
        self._touch = touch
        self._on_disk: dict[str, dict[Name, Allocation]] = {}  # by UUID
        self._places: dict[Name, tuple[str, ...]] = {}  # the disks' UUIDs
        self._images: dict[Name, str] = {}  # the backing image that comes along, where there is one

    def copy(self) -> Extra:
        """For questions only."""
        other = Extra(self._touch)
        other._on_disk = {uuid: entries.copy() for uuid, entries in self._on_disk.items()}
        other._places, other._images = self._places.copy(), self._images.copy()
        return other

    def on(self, disk_uuid: str) -> Iterable[Allocation]:
        return self._on_disk.get(disk_uuid, _NOTHING).values()

    def names_on(self, disk_uuids: Iterable[str]) -> set[Name]:
        return {name for uuid in disk_uuids for name in self._on_disk.get(uuid, ())}

    def images_on(self, disk_uuid: str) -> set[str]:
        """The backing images that come along with what comes to lie there."""
        return {self._images[name] for name in self._on_disk.get(disk_uuid, ()) if name in self._images}

    def disks_with_image(self, image: str) -> set[str]:
        """Where that one comes along. Costs: a look at each that brings any."""
        return {uuid for name, one in self._images.items() if one == image for uuid in self._places[name]}

    def put(self, name: Name, entries: Collection[Allocation], image: str = "") -> None:
        """These, and no others, of that name. `image`: comes along with each."""
        for uuid in self._places.pop(name, ()):
            members = self._on_disk[uuid]
            del members[name]
            if not members:
                del self._on_disk[uuid]
            self._touch(uuid)
        self._images.pop(name, None)
        found = largest(entries).values()  # two of a disk: on records of the node where it was, and of its present one
        for one in found:
            self._on_disk.setdefault(one.disk_uuid, {})[name] = one
            self._touch(one.disk_uuid)
        if found:
            self._places[name] = tuple(one.disk_uuid for one in found)
            if image:
                self._images[name] = image
