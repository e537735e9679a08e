"""A place: where one copy of a volume lies, or is to lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 2**62
"""More than any disk has; beyond it Longhorn's sums overflow, and a full disk seems empty."""


@dataclass(frozen=True, slots=True)
class Place:
    """A disk, by its node and UUID, with the bytes that are taken there: the copy's size, and that of its backing
    image where the disk has none."""

    node: str
    disk_uuid: str
    size_bytes: int
