"""A bounded queue in which nobody who brings much keeps out, or makes wait, somebody who brings little."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class FairQueue(Generic[Key, Item]):
    """Items by key, of owners such as namespaces, of which each gives one in turn: the one that is due first.

    An owner may have `most_each`. Beyond `most` in all, the newest one of whoever has most makes room, unless that
    is the one who brings another. Threads: the caller's lock. Costs: a look at the owners, and at one's items.
    """

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._owners: OrderedDict[str, dict[Key, tuple[float, Item]]] = OrderedDict()  # whose turn is next comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, owner: str, key: Key) -> Item | None:
        found = self._owners.get(owner, {}).get(key)
        return found[1] if found is not None else None

    def put(self, owner: str, key: Key, item: Item, due_at: float = 0.0) -> tuple[Key, Item] | None:
        """Add that item, or replace the one of that key. Returns what was dropped, which may be the item itself."""
        mine = self._owners.get(owner, {})
        dropped: tuple[Key, Item] | None = None
        if key not in mine:
            fullest = max(self._owners, key=lambda one: len(self._owners[one]), default=owner)
            is_full = self._count >= self._most
            if len(mine) >= self._most_each or (is_full and len(self._owners[fullest]) <= len(mine)):
                return key, item
            if is_full:
                last, (_, given_up) = self._owners[fullest].popitem()
                dropped = last, given_up
                self._count -= 1
            self._count += 1
        self._owners.setdefault(owner, mine)[key] = due_at, item
        return dropped

    def take(self, now: float = 0.0) -> tuple[Key, Item] | None:
        """Remove and return what is due by then, of the next owner who has any; None if nothing is."""
        for owner, items in self._owners.items():
            key = min(items, key=lambda one: items[one][0])
            if items[key][0] <= now:
                _, item = items.pop(key)
                self._count -= 1
                self._owners.move_to_end(owner)
                if not items:
                    del self._owners[owner]
                return key, item
        return None

    def due_at(self) -> float:
        """When the first one is due; infinite if there is none."""
        return min((due_at for items in self._owners.values() for due_at, _ in items.values()), default=math.inf)
