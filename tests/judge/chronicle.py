"""Write histories by hand: objects as the API server stores them, one line each, in virtual time. Sizes are GiB."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tests.judge.facts import GATE, LEADER, OURS, PLANS, Raw

GIB: Final = 2**30
LONGHORN: Final = "longhorn-manager"
RENEW_SECONDS: Final = 2.0
ADMISSION: Final = "admissionregistration.k8s.io"
# Of kinds that are not Longhorn's, and in Longhorn's namespace.
GROUPS: Final = {
    **dict.fromkeys(("ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "Pod", "ServiceAccount"), ""),
    "StorageClass": "storage.k8s.io",
    "ValidatingAdmissionPolicy": ADMISSION,
    "ValidatingAdmissionPolicyBinding": ADMISSION,
}
NAMESPACES: Final = {"PersistentVolume": "", "PersistentVolumeClaim": "ns", "Pod": "ns", "StorageClass": ""}


class WrittenHistory:
    """Lines as the recorder writes them. Threads: one."""

    def __init__(self, start: float) -> None:
        self.entries: list[dict[str, Any]] = []
        self.now = start
        self._objects: dict[tuple[str, str], Raw] = {}
        self._uids = 0

    def play(self, steps: str) -> None:
        """Methods by name with their arguments: `volume v 60 copies=2; wait 0.1`.

        `-` is an empty word, `x,` a list, and `@c` the volume of the claim `c` that is not bound yet.
        """
        for step in filter(None, steps.split("; ")):
            method, *words = step.split()
            named = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [self._value(word) for word in words if "=" not in word]
            getattr(self, method)(*plain, **{name: self._value(word) for name, word in named.items()})

    def _value(self, word: str) -> Any:
        if word.startswith("@"):
            return f"pvc-{self.uid('PersistentVolumeClaim', word[1:])}"
        if word.endswith(","):
            return word[:-1].split(",")
        if word in ("True", "False"):
            return word == "True"
        is_number = word.replace(".", "", 1).isdecimal()
        return (float(word) if "." in word else int(word)) if is_number else "" if word == "-" else word

    def wait(self, seconds: float) -> None:
        """Nobody writes anything meanwhile."""
        self.now += seconds

    def stamp(self, at: float | None = None) -> str:
        seconds = int(self.now if at is None else at)
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

    @property
    def rv(self) -> int:
        """The last line's revision."""
        return len(self.entries)

    def store(self, kind: str, name: str, **parts: Any) -> Raw:
        """Made anew, or changed in these parts."""
        raw = self._objects.get((kind, name))
        event = "ADDED" if raw is None else "MODIFIED"
        if raw is None:
            self._uids += 1
            meta = {"name": name, "uid": f"uid-{self._uids}", "creationTimestamp": self.stamp()}
            namespace = NAMESPACES.get(kind, "longhorn-system")
            raw = {"metadata": meta | ({"namespace": namespace} if namespace else {})}
            self._objects[kind, name] = raw
        raw["metadata"].update(parts.pop("metadata", {}))
        raw.update(parts)
        self._tell(event, kind, raw)
        return raw

    def remove(self, kind: str, name: str) -> None:
        self._tell("DELETED", kind, self._objects.pop((kind, name)))

    def get(self, kind: str, name: str) -> Raw:
        return self._objects[kind, name]

    def uid(self, kind: str, name: str) -> str:
        return str(self.get(kind, name)["metadata"]["uid"])

    def _tell(self, event: str, kind: str, raw: Raw | None) -> None:
        line = {"rv": self.rv + 1, "type": event, "kind": kind, "group": GROUPS.get(kind, "longhorn.io")}
        self.entries.append({**line, "at": self.now, "object": msgspec.json.decode(msgspec.json.encode(raw))})

    def node(self, name: str, *disks: int, zone: str = "", reserved: int = 0) -> None:
        """Its disks are d0, d1 and so on, with the UUIDs <name>-d0 and so on. `reserved`: of each of them."""
        shown = {f"d{i}": {"diskUUID": f"{name}-d{i}", "storageMaximum": size * GIB} for i, size in enumerate(disks)}
        spec = {"disks": {disk: {"storageReserved": reserved * GIB} for disk in shown}}
        self.store("Node", name, spec=spec, status={"zone": zone, "diskStatus": shown})

    def setting(self, name: str, value: object) -> None:
        self.store("Setting", name, value=str(value))


class Chronicle(WrittenHistory):
    """A history of places and plans, under leaders that keep a gate."""

    def __init__(self) -> None:
        super().__init__(start=1_800_000_000.0)
        self.term = ""
        self.since_at = 0.0

    # -- Longhorn's ----------------------------------------------------------------------------------------------

    def image(self, name: str, size: int, *disks: str) -> None:
        spec: Raw = {"diskFileSpecMap": {disk: {} for disk in disks}}
        self.store("BackingImage", name, spec=spec, status={"realSize": size * GIB})

    def volume(self, name: str, size: int, copies: int = 1, **spec: Any) -> None:
        """With as many Replicas, <name>-r0 and so on, none of them placed."""
        self.store("Volume", name, spec={"size": str(size * GIB), "numberOfReplicas": copies, **spec})
        for number in range(copies):
            self.replica(name, f"{name}-r{number}")

    def replica(self, volume: str, name: str, **spec: Any) -> None:
        of = self.get("Volume", volume)["spec"]
        empty = {"nodeID": "", "diskID": "", "backingImage": of.get("backingImage", "")}
        whole = {"volumeName": volume, "volumeSize": of["size"], "active": True, **empty, **spec}
        self.store("Replica", name, spec=whole)

    def change(self, replica: str, **spec: Any) -> None:
        self.store("Replica", replica, spec={**self.get("Replica", replica)["spec"], **spec})

    def grow(self, replica: str, size: int) -> None:
        self.change(replica, volumeSize=str(size * GIB))

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
            self.store("ValidatingAdmissionPolicy", GATE, spec={})
        self.renew()
        self.bind("Deny")

    def live(self, seconds: float) -> None:
        """The leader keeps the gate closed meanwhile."""
        end = self.now + seconds
        while end - self.now > RENEW_SECONDS:
            self.wait(RENEW_SECONDS)
            self.renew()
        self.wait(end - self.now)
        self.renew()

    def renew(self) -> None:
        self.account(self.stamp(self.since_at), self.stamp())

    def account(self, since: str, renewed: str) -> None:
        marks = {f"{OURS}term": self.term, f"{OURS}since": since, f"{OURS}renewed": renewed}
        self.store("ServiceAccount", GATE, metadata={"annotations": marks})

    def bind(self, action: str) -> None:
        self.store("ValidatingAdmissionPolicyBinding", GATE, spec={"validationActions": [action]})

    def plan(self, volume: str, *places: str, uid: str = "") -> None:
        """In place of the one that its volume had, `disk:size` each; without places there is none."""
        name = f"{PLANS}{sum(volume.encode()) % 16}"
        data = dict(self._objects.get(("ConfigMap", name), {}).get("data") or {})
        data.pop(volume, None)
        if places:
            pairs = [place.split(":") for place in places]
            where = [[disk.rsplit("-", 1)[0], disk, int(size) * GIB, ""] for disk, size in pairs]
            owner = uid or self.uid("Volume", volume)
            data[volume] = json.dumps({"volume": volume, "uid": owner, "places": where, "pods": []})
        self.store("ConfigMap", name, data=data)
