"""Store changes to the allocator's events. Start-up, relists and live events take this one path. No I/O.

Runs in the informers' threads, after the store's lock is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.allocator.verbs.observe import Events
from controller.follow.kinds import FollowedKind
from controller.kube.store import Change, Store


def follow(kind: FollowedKind[Any], store: Store[Any], events: Events) -> None:
    """Hand every change of the store to the allocator, in the order of its watch."""
    by_name = kind.in_longhorn or not kind.resource.is_namespaced

    def on_changes(changes: Sequence[Change[Any]]) -> None:
        for change in changes:
            key = change.key.rsplit("/", 1)[-1] if by_name else change.key
            kind.observe(events, key, change.new, change.old if change.new is None else None)

    store.subscribe(on_changes)
