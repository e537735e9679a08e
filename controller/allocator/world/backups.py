"""Backups that volumes are to be restored from: what was read of them, and which are still to be read.

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
        """What was read of it. What is not known is remembered, up to a limit, and whatever has no size yet."""
        found = self._known.get(name)
        if (found is None or not found.volume_bytes) and len(self._unread) < MOST_UNREAD:
            self._unread.setdefault(name, 0.0)
        return found

    def to_read(self, now: float, classes: Iterable[StorageClass]) -> list[str]:
        """Those that were asked for and are not known; the same again after a while. What no class names any more is
        forgotten."""
        if not self._unread:
            return []
        named = {_backup_of(entry) for entry in classes}
        self._unread = {name: at for name, at in self._unread.items() if name in named}
        due = [name for name, at in self._unread.items() if at <= now]
        self._unread.update(dict.fromkeys(due, now + READ_AGAIN_SECONDS))
        return due

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


def claims_restored_from(
    name: str, claims: Iterable[Claim], classes: Iterable[StorageClass], default: StorageClass | None
) -> set[str]:
    """The keys of claims that are to be provisioned from that backup."""
    names: set[str | None] = {entry.name for entry in classes if _backup_of(entry) == name}
    names |= {None} if default is not None and default.name in names else set()
    return {claim.key for claim in claims if not claim.volume_name and claim.class_name in names}


def _backup_of(storage_class: StorageClass) -> str:
    return backup_name(storage_class.parameters.get("fromBackup", ""))
