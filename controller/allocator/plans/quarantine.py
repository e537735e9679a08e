"""Pods and claims that broke an invariant of the table: for a while they are answered with an error."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.errors import BugError
from controller.model.workload import Pod

MOST: Final = 1_000  # keys
SECONDS: Final = 300.0  # after which a key is tried again; if its rule is still broken, it is back at once


class Quarantine:
    """Keys of pods and claims, with what broke and when. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._broken: dict[str, tuple[str, float]] = {}

    def keys(self) -> Collection[str]:
        return self._broken.keys()

    def put(self, key: str, what: str, now: float) -> None:
        if len(self._broken) < MOST:
            self._broken[key] = what, now

    def release(self, key: str) -> None:
        self._broken.pop(key, None)

    def check(self, pod: Pod, now: float) -> None:
        """Raise BugError while the pod or one of its claims is in quarantine."""
        for key in (pod.key, *pod.claim_keys) if self._broken else ():
            what, since = self._broken.get(key, ("", now))
            if what and now - since < SECONDS:
                raise BugError(f"{key} is in quarantine after a fault: {what}")
            self._broken.pop(key, None)
