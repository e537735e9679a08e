"""A place: where one copy of a volume lies, or is to lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A disk, by its node and UUID, with the bytes that are taken there: the copy's size, and that of its backing
    image where the disk has none."""

    node: str
    disk_uuid: str
    size_bytes: int
