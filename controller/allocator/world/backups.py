"""Backups from which volumes are to be restored: what was read of them, and which are still to be read.

They are not watched: a cluster may have very many, and those that a class names are asked about a few times. A backup's
size never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.model.longhorn import Backup
from controller.model.workload import Claim, StorageClass
from controller.rules.provisioning import backup_name

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
        """The backup as it was read. One that is not known, or has no size yet, is noted to be read, up to a limit."""
        found = self._known.get(name)
        if (found is None or not found.volume_bytes) and len(self._unread) < MOST_UNREAD:
            self._unread.setdefault(name, 0.0)
        return found

    def to_read(self, now: float, classes: Iterable[StorageClass]) -> list[str]:
        """The names of noted backups that are to be read now; each comes again after a while. Those that no class names
        any more are forgotten."""
        if not self._unread:
            return []
        named = {_backup_of(entry) for entry in classes}
        self._unread = {name: at for name, at in self._unread.items() if name in named}
        due = [name for name, at in self._unread.items() if at <= now]
        self._unread.update(dict.fromkeys(due, now + READ_AGAIN_SECONDS))
        return due

    def put(self, name: str, backup: Backup | None) -> bool:
        """Store what was read; whether it changes anything."""
        old = self._known.pop(name, None)
        if backup is not None:
            self._known[name] = backup
            if backup.volume_bytes:
                self._unread.pop(name, None)
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return old != backup


def claims_restored_from(
    name: str, claims: Iterable[Claim], classes: Iterable[StorageClass], default: StorageClass | None
) -> set[str]:
    """Keys of the claims that are to be provisioned from that backup."""
    names: set[str | None] = {entry.name for entry in classes if _backup_of(entry) == name}
    names |= {None} if default is not None and default.name in names else set()
    return {claim.key for claim in claims if not claim.volume_name and claim.class_name in names}


def _backup_of(storage_class: StorageClass) -> str:
    return backup_name(storage_class.parameters.get("fromBackup", ""))
