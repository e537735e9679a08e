"""Pods and claims for which an invariant of the table was broken: they are answered by an error, for a while."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.errors import BugError

MOST: Final = 1_000
SECONDS: Final = 300.0  # then the key is tried again; a rule still broken brings it back at once


class Quarantine:
    """Keys, with what broke and when. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._broken: dict[str, tuple[str, float]] = {}

    def keys(self) -> Collection[str]:
        return self._broken.keys()

    def put(self, key: str, what: str, now: float) -> None:
        if len(self._broken) < MOST:
            self._broken[key] = what, now

    def release(self, key: str) -> None:
        self._broken.pop(key, None)

    def check(self, key: str, now: float) -> None:
        """BugError while `key` is in quarantine; after a while it has another chance."""
        what, since = self._broken.get(key, ("", now))
        if not what:
            return
        if now - since < SECONDS:
            raise BugError(f"{key} is in quarantine after a fault: {what}")
        del self._broken[key]
