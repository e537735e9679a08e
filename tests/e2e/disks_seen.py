"""What Longhorn's Nodes reported of each disk, and when: the room, whether it took replicas, and its tags.

Only what explains an excess needs this (see `explained`); it changes no fact that is judged, and is kept apart so that
a figure which merely follows costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e.history_facts import DiskFacts, Raw, VolumeFacts

EMPTY_SELECTORS: Final = ("allow-empty-node-selector-volume", "allow-empty-disk-selector-volume")
MATTERING: Final = ("storage-over-provisioning-percentage", *EMPTY_SELECTORS)


@dataclass(frozen=True, slots=True)
class Shown:
    """One disk as it was reported."""

    is_open: bool  # it takes replicas
    room_bytes: int  # by the reported figures; what Longhorn compares a size with
    node_tags: frozenset[str] = frozenset()
    disk_tags: frozenset[str] = frozenset()
    zone: str = ""
    empty_selectors: tuple[bool, bool] = (True, True)  # may volumes without a selector use a tagged node, a tagged disk

    @property
    def suits(self) -> object:
        """What decides which volumes may come, their sizes aside."""
        return self.node_tags, self.disk_tags, self.zone, self.empty_selectors

    def takes(self, size_bytes: int, volume: VolumeFacts | None) -> bool:
        """May Longhorn put such a replica there, by its own rules for one disk? Of an unknown volume: yes, by tags."""
        if not self.is_open or size_bytes > self.room_bytes:
            return False
        if volume is None:
            return True
        pairs = (
            (volume.node_selector, self.node_tags, self.empty_selectors[0]),
            (volume.disk_selector, self.disk_tags, self.empty_selectors[1]),
        )
        return all(set(wanted) <= tags if wanted else may_be_empty or not tags for wanted, tags, may_be_empty in pairs)


CLOSED: Final = Shown(False, 0)


class DisksSeen:
    """The reports on every disk in their order. Threads: one."""

    def __init__(self, setting: Callable[[str], str]) -> None:
        self._setting = setting
        self._raws: dict[str, Raw] = {}
        self._of_node: dict[str, set[str]] = {}
        self.reports: dict[str, list[tuple[float, Shown]]] = {}  # by UUID
        self.uuids: dict[tuple[str, str], str] = {}  # of node and disk

    def node_came(self, at: float, raw: Raw) -> None:
        name = str(raw["metadata"]["name"])
        self._raws[name] = raw
        shown = _shown(raw, self._setting)
        for uuid, (disk, report) in shown.items():
            self.uuids[name, disk] = uuid
            self._note(at, uuid, report)
        for uuid in self._of_node.get(name, set()) - shown.keys():
            self._note(at, uuid, CLOSED)
        self._of_node[name] = set(shown)

    def node_went(self, at: float, name: str) -> None:
        self._raws.pop(name, None)
        for uuid in self._of_node.pop(name, set()):
            self._note(at, uuid, CLOSED)

    def setting_changed(self, at: float, name: str) -> None:
        if name in MATTERING:
            for raw in list(self._raws.values()):
                self.node_came(at, raw)

    def _note(self, at: float, uuid: str, report: Shown) -> None:
        reports = self.reports.setdefault(uuid, [])
        if not reports or reports[-1][1] != report:
            reports.append((at, report))


def _shown(raw: Raw, setting: Callable[[str], str]) -> dict[str, tuple[str, Shown]]:
    """The disks by UUID, with their names."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    percentage = int(setting("storage-over-provisioning-percentage"))
    empty = (setting(EMPTY_SELECTORS[0]) == "true", setting(EMPTY_SELECTORS[1]) == "true")
    takes = spec.get("allowScheduling", True) and not raw["metadata"].get("deletionTimestamp")
    takes = takes and all(_holds(status, kind) for kind in ("Ready", "Schedulable"))
    found = {}
    for name, disk in (status.get("diskStatus") or {}).items():
        wanted = (spec.get("disks") or {}).get(name)
        if wanted is None or not disk.get("diskUUID"):
            continue
        is_open = takes and wanted.get("allowScheduling", True) and not wanted.get("evictionRequested")
        maximum, reserved = int(disk.get("storageMaximum") or 0), int(wanted.get("storageReserved") or 0)
        limit = DiskFacts(disk["diskUUID"], maximum, reserved).limit_bytes(percentage)
        found[str(disk["diskUUID"])] = (
            str(name),
            Shown(
                is_open=bool(is_open) and _holds(disk, "Schedulable"),
                room_bytes=limit - int(disk.get("storageScheduled") or 0),
                node_tags=frozenset(spec.get("tags") or ()),
                disk_tags=frozenset(wanted.get("tags") or ()),
                zone=str(status.get("zone") or ""),
                empty_selectors=empty,
            ),
        )
    return found


def _holds(status: Mapping[str, Any], kind: str) -> bool:
    """A condition that is not reported at all is taken for true."""
    conditions = status.get("conditions") or []
    return all(entry.get("status") == "True" for entry in conditions if entry.get("type") == kind)
