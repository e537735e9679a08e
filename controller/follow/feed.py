"""Store changes to allocator verbs. Start-up, relists and live events take this one path. No I/O.

Runs in the informers' threads, after the store's lock is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class StoreChange(Protocol):
    """One object's change; `new` is None when it is gone."""

    @property
    def key(self) -> str: ...
    @property
    def old(self) -> Any: ...
    @property
    def new(self) -> Any: ...


class SubscribableStore(Protocol):
    def subscribe(self, callback: Callable[[Sequence[Any]], None]) -> None: ...


class Observer(Protocol):
    def observe(self, kind: str, key: str, facts: object | None, gone: object | None = None) -> None: ...


class Feed:
    """Hands every change of its stores to the allocator, in the order of its kind's watch."""

    def __init__(self, allocator: Observer) -> None:
        self._allocator = allocator

    def follow(self, kind: str, store: SubscribableStore, *, cluster_scoped: bool = True) -> None:
        """Subscribe to `store`, whose facts are of `kind`. Longhorn's objects live in one namespace: their name is
        the key."""

        def on_changes(changes: Sequence[StoreChange]) -> None:
            for change in changes:
                key = change.key.rsplit("/", 1)[-1] if cluster_scoped else change.key
                self._allocator.observe(kind, key, change.new, change.old if change.new is None else None)

        store.subscribe(on_changes)
