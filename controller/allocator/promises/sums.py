"""Bytes of items up to a size: what may come to a disk is what Longhorn believes to fit there, and all of that."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Sums:
    """Prefix sums over items by size. Immutable; a question costs one bisection."""

    __slots__ = ("_items", "_sizes", "_totals")

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        """`items`: a size, and the bytes that stand for it (the size, as often as it may come)."""
        self._items = sorted(items)
        self._sizes = [size for size, _ in self._items]
        self._totals = [0, *accumulate(count for _, count in self._items)]

    def with_more(self, items: Iterable[tuple[int, int]]) -> Sums:
        return Sums([*self._items, *items])

    def without(self, items: Iterable[tuple[int, int]]) -> Sums:
        """These are among the items."""
        found = Sums()
        found._items = self._items.copy()
        for item in items:
            del found._items[bisect_left(found._items, item)]
        found._sizes = [size for size, _ in found._items]
        found._totals = [0, *accumulate(count for _, count in found._items)]
        return found

    def upto(self, most: int) -> int:
        """Bytes of all items that are no larger than `most`."""
        return self._totals[bisect_right(self._sizes, most)]
