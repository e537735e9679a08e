"""Backups that volumes are to be restored from: what was read of them, and which are still to be read.

Nobody follows them: a cluster may have very many, and those that a class names are asked about a few times. A backup's
size never changes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.model.longhorn import Backup

READ_AGAIN_SECONDS: Final = 30.0  # one that was not there, or not complete
MOST_KNOWN: Final = 1000
MOST_UNREAD: Final = 100


class Backups:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._known: dict[str, Backup] = {}
        self._unread: dict[str, float] = {}  # asked for and not known; from when on they are to be read

    def copy(self) -> Backups:
        other = Backups()
        other._known, other._unread = self._known.copy(), self._unread.copy()
        return other

    def get(self, name: str) -> Backup | None:
        """What was read of it. What is not known is remembered, up to a limit, and whatever has no size yet."""
        found = self._known.get(name)
        if (found is None or not found.volume_bytes) and len(self._unread) < MOST_UNREAD:
            self._unread.setdefault(name, 0.0)
        return found

    def to_read(self, now: float, named: Collection[str]) -> list[str]:
        """Those that were asked for and are not known; the same again after a while. `named`: by the classes there are,
        so that the others are forgotten."""
        self._unread = {name: at for name, at in self._unread.items() if name in named}
        due = [name for name, at in self._unread.items() if at <= now]
        self._unread.update(dict.fromkeys(due, now + READ_AGAIN_SECONDS))
        return due

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def put(self, name: str, backup: Backup | None) -> bool:
        """Whether that is news."""
        old = self._known.pop(name, None)
        if backup is not None:
            self._known[name] = backup
            if backup.volume_bytes:
                self._unread.pop(name, None)
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return old != backup
