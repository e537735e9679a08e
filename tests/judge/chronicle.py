"""Write histories by hand: objects as the API server stores them, one line each, in virtual time. Sizes are GiB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tests.judge.facts import GATE, LEADER, OURS, PLANS, Raw

GIB: Final = 2**30
LONGHORN: Final = "longhorn-manager"
RENEW_SECONDS: Final = 2.0
START: Final = 1_800_000_000.0
ADMISSION: Final = "admissionregistration.k8s.io"


class Chronicle:
    """One history while it is written. Threads: one."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.now = START
        self.term = ""
        self.since_at = self.renewed_at = 0.0
        self._objects: dict[tuple[str, str], Raw] = {}
        self._uids = 0

    def wait(self, seconds: float) -> None:
        """Nobody writes anything meanwhile."""
        self.now += seconds

    def live(self, seconds: float) -> None:
        """The leader keeps the gate closed meanwhile."""
        end = self.now + seconds
        while end - self.now > RENEW_SECONDS:
            self.wait(RENEW_SECONDS)
            self.renew()
        self.wait(end - self.now)
        self.renew()

    def stamp(self, at: float | None = None) -> str:
        seconds = int(self.now if at is None else at)
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

    # -- any object ----------------------------------------------------------------------------------------------

    def store(self, kind: str, name: str, group: str = "longhorn.io", **parts: Any) -> Raw:
        """Made anew, or changed in these parts."""
        raw = self._objects.get((kind, name))
        event = "ADDED" if raw is None else "MODIFIED"
        if raw is None:
            self._uids += 1
            meta = {"name": name, "namespace": "longhorn-system", "uid": f"uid-{self._uids}"}
            raw = {"metadata": {**meta, "creationTimestamp": self.stamp()}}
            self._objects[kind, name] = raw
        raw["metadata"].update(parts.pop("metadata", {}))
        raw.update(parts)
        self._tell(event, kind, group, raw)
        return raw

    def remove(self, kind: str, name: str, group: str = "longhorn.io") -> None:
        self._tell("DELETED", kind, group, self._objects.pop((kind, name)))

    def get(self, kind: str, name: str) -> Raw:
        return self._objects[kind, name]

    def _tell(self, event: str, kind: str, group: str, raw: Raw) -> None:
        line = {"rv": len(self.entries) + 1, "type": event, "kind": kind, "group": group, "at": self.now}
        self.entries.append({**line, "object": msgspec.json.decode(msgspec.json.encode(raw))})

    # -- Longhorn's ----------------------------------------------------------------------------------------------

    def node(self, name: str, *disks: int, zone: str = "", reserved: int = 0) -> None:
        """Its disks are <name>-0, <name>-1 and so on, by name and by UUID."""
        names = [f"{name}-{number}" for number in range(len(disks))]
        spec = {"disks": {disk: {"storageReserved": reserved * GIB} for disk in names}}
        shown = {
            disk: {"diskUUID": disk, "storageMaximum": size * GIB} for disk, size in zip(names, disks, strict=True)
        }
        self.store("Node", name, spec=spec, status={"zone": zone, "diskStatus": shown})

    def setting(self, name: str, value: str) -> None:
        self.store("Setting", name, value=value)

    def image(self, name: str, size: int, *disks: str) -> None:
        spec: Raw = {"diskFileSpecMap": {disk: {} for disk in disks}}
        self.store("BackingImage", name, spec=spec, status={"realSize": size * GIB})

    def volume(self, name: str, size: int, copies: int = 1, **spec: Any) -> list[str]:
        """With as many Replicas, none of them placed: their names."""
        self.store("Volume", name, spec={"size": str(size * GIB), "numberOfReplicas": copies, **spec})
        return [self.replica(name, f"{name}-r{number}") for number in range(copies)]

    def replica(self, volume: str, name: str, **spec: Any) -> str:
        of = self.get("Volume", volume)["spec"]
        empty = {"nodeID": "", "diskID": "", "backingImage": of.get("backingImage", "")}
        whole = {"volumeName": volume, "volumeSize": of["size"], "active": True, **empty, **spec}
        self.store("Replica", name, spec=whole)
        return name

    def change_replica(self, name: str, **spec: Any) -> None:
        self.store("Replica", name, spec={**self.get("Replica", name)["spec"], **spec})

    def place(self, name: str, disk: str, by: str = "") -> None:
        """By the leader, under its present term, unless somebody else is named."""
        fields: Raw = {"f:spec": {"f:nodeID": {}, "f:diskID": {}}}
        owner = {"manager": by or LEADER + self.term, "operation": "Update", "time": self.stamp(), "fieldsV1": fields}
        spec = {**self.get("Replica", name)["spec"], "nodeID": disk.rsplit("-", 1)[0], "diskID": disk}
        self.store("Replica", name, metadata={"managedFields": [owner]}, spec=spec)

    def mark(self, name: str, mark: str, *, off: bool = False) -> None:
        """`mark`: held or left."""
        self.store("Replica", name, metadata={"annotations": {} if off else {f"{OURS}{mark}": "yes"}})

    # -- the leader's --------------------------------------------------------------------------------------------

    def lead(self, term: str) -> None:
        """A term begins, behind a gate that is enforced."""
        self.term, self.since_at = term, self.now
        if ("ServiceAccount", GATE) not in self._objects:
            self.store("ValidatingAdmissionPolicy", GATE, ADMISSION, spec={})
        self.renew()
        self.bind("Deny")

    def renew(self) -> None:
        self.renewed_at = self.now
        self.account(self.stamp(self.since_at), self.stamp())

    def account(self, since: str, renewed: str) -> None:
        marks = {f"{OURS}term": self.term, f"{OURS}since": since, f"{OURS}renewed": renewed}
        self.store("ServiceAccount", GATE, "", metadata={"annotations": marks})

    def bind(self, action: str) -> None:
        self.store("ValidatingAdmissionPolicyBinding", GATE, ADMISSION, spec={"validationActions": [action]})

    def plan(self, volume: str, places: Sequence[tuple[str, int]], *, uid: str = "") -> None:
        """In place of the one that its volume had; without places there is none."""
        name = f"{PLANS}{sum(volume.encode()) % 16}"
        data = dict(self._objects.get(("ConfigMap", name), {}).get("data") or {})
        data.pop(volume, None)
        if places:
            where = [[disk.rsplit("-", 1)[0], disk, size * GIB, ""] for disk, size in places]
            owner = uid or self.get("Volume", volume)["metadata"]["uid"]
            data[volume] = json.dumps({"volume": volume, "uid": owner, "places": where, "pods": []})
        self.store("ConfigMap", name, "", data=data)
