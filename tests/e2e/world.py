"""The cluster as a recorded history shows it at one revision, and what is promised in it. See `checker`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.e2e import history_facts as facts
from tests.e2e.history_facts import ClaimFacts, Facts, NodeFacts, PodFacts

T = TypeVar("T", bound=Facts)

PARSERS: Final[Mapping[tuple[str, str], Callable[[facts.Raw], Facts]]] = {
    ("", "Pod"): facts.pod_facts,
    ("", "PersistentVolumeClaim"): facts.claim_facts,
    ("", "PersistentVolume"): facts.pv_facts,
    ("storage.k8s.io", "StorageClass"): facts.class_facts,
    (facts.LONGHORN_GROUP, "Volume"): facts.volume_facts,
    (facts.LONGHORN_GROUP, "Replica"): facts.replica_facts,
    (facts.LONGHORN_GROUP, "Node"): facts.node_facts,
    (facts.LONGHORN_GROUP, "Setting"): facts.setting_facts,
}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that takes bytes: a replica, or a claim that waits for its own."""

    name: str
    size_bytes: int


class WorldAt:
    """The cluster's objects at one revision, as facts, and since when each is known."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Facts]] = {name: {} for _, name in PARSERS}  # Node: Longhorn's own
        self.first_seen: dict[str, int] = {}  # uid -> revision
        self.placed: dict[str, tuple[facts.ReplicaFacts, Item]] = {}  # replicas with a disk, by name

    def apply(self, entry: Mapping[str, Any]) -> bool:
        """Take in one line; True when it changed a fact. A re-created object is a new one."""
        name, raw = str(entry["kind"]), entry["object"]
        # Longhorn's objects all lie in its one namespace and refer to each other by name alone.
        key = str(raw["metadata"]["name"]) if entry["group"] == facts.LONGHORN_GROUP else facts.key_of(raw)
        store = self._kinds[name]
        if entry["type"] == "DELETED":
            if name == "Replica":
                self.placed.pop(key, None)
            return store.pop(key, None) is not None
        new = PARSERS[entry["group"], name](raw)
        self.first_seen.setdefault(facts.uid_of(raw), int(entry["rv"]))
        if store.get(key) == new:
            return False
        store[key] = new
        if isinstance(new, facts.ReplicaFacts):
            self.placed.pop(key, None)
            if new.is_placed:
                self.placed[key] = new, Item(f"replica {new.name}", new.size_bytes)
        return True

    def all(self, kind: str, _: type[T]) -> Mapping[str, T]:
        return self._kinds[kind]  # type: ignore[return-value]

    def setting(self, name: str) -> str:
        return self.all("Setting", str).get(name, facts.DEFAULT_SETTINGS[name])

    def nodes(self) -> Iterator[NodeFacts]:
        yield from self.all("Node", NodeFacts).values()

    def limit_bytes(self, disk: facts.DiskFacts) -> int:
        return disk.limit_bytes(int(self.setting("storage-over-provisioning-percentage")))

    def volume_of(self, claim: ClaimFacts) -> str:
        """The Longhorn Volume's name. It is the PersistentVolume's, before and after binding, unless made by hand."""
        pv = self.all("PersistentVolume", facts.PvFacts).get(claim.volume_name or f"pvc-{claim.uid}")
        return pv.volume if pv is not None else f"pvc-{claim.uid}"

    def keeps_one_local_copy(self, claim: ClaimFacts) -> bool:
        """Does the volume of this claim live as one copy on its pod's node, by rule or by preference?"""
        if claim.is_shared:
            return False
        volume = self._volume(self.volume_of(claim))
        if volume is not None:
            return volume.is_local
        storage = self.all("StorageClass", facts.ClassFacts).get(claim.class_name)
        if storage is None or not storage.is_longhorn:
            return False
        locality = storage.locality or self.setting("default-data-locality")
        replicas = storage.replicas or facts.per_engine(self.setting("default-replica-count"))
        return locality == "strict-local" or (locality == "best-effort" and replicas == "1")

    def is_longhorns(self, claim: ClaimFacts) -> bool:
        """Is its volume Longhorn's, or will it be?"""
        if claim.volume_name:
            pv = self.all("PersistentVolume", facts.PvFacts).get(claim.volume_name)
            return pv is not None and bool(pv.volume)
        storage = self.all("StorageClass", facts.ClassFacts).get(claim.class_name)
        return storage is not None and storage.is_longhorn

    def local_claims(self, pod: PodFacts) -> list[ClaimFacts]:
        """The claims of a pod whose volumes live as one copy beside it."""
        claims = self.all("PersistentVolumeClaim", ClaimFacts)
        return [claims[key] for key in pod.claims if key in claims and self.keeps_one_local_copy(claims[key])]

    def volumes_on(self, node: str) -> set[str]:
        """Longhorn Volumes that have a placed replica on a node."""
        replicas = self.all("Replica", facts.ReplicaFacts).values()
        return {replica.volume for replica in replicas if replica.is_placed and replica.node == node}

    def demand_bytes(self, claim: ClaimFacts) -> int:
        volume = self._volume(self.volume_of(claim))
        return volume.size_bytes if volume is not None else claim.size_bytes

    def _volume(self, name: str) -> facts.VolumeFacts | None:
        return self.all("Volume", facts.VolumeFacts).get(name)

    def users(self) -> dict[str, list[PodFacts]]:
        """Claim to the live pods that use it, the oldest first."""
        found: dict[str, list[PodFacts]] = {}
        for pod in self.all("Pod", PodFacts).values():
            if pod.may_use:
                for claim in pod.claims:
                    found.setdefault(claim, []).append(pod)
        for pods in found.values():
            pods.sort(key=lambda pod: self.first_seen[pod.uid])
        return found

    def chosen_node(self, claim: ClaimFacts, users: Collection[PodFacts]) -> str:
        """Where the cluster wants this claim's volume now; empty when nowhere yet."""
        bound_to = [pod.node for pod in users if pod.node]
        if bound_to:
            # Pods of several nodes: Longhorn attaches the volume to one of them, and that is where it will be placed.
            volume = self._volume(self.volume_of(claim))
            return volume.node if volume is not None and volume.node in bound_to else bound_to[0]
        if not claim.volume_name and not users:
            return ""  # such a volume takes no disk before it is attached, and nobody waits for that
        if not claim.selected_node or not claim.volume_name:
            return claim.selected_node
        pv = self.all("PersistentVolume", facts.PvFacts).get(claim.volume_name)
        born = self.first_seen[pv.uid] if pv is not None else 0
        return claim.selected_node if any(self.first_seen[pod.uid] < born for pod in users) else ""


@dataclass(slots=True)
class Promised:
    """All that is promised at one revision, by node and by disk."""

    nodes: dict[str, list[Item]] = field(default_factory=dict)
    disks: dict[str, list[Item]] = field(default_factory=dict)


def promised_in(world: WorldAt) -> Promised:
    """The promises that stand in this world."""
    promised = Promised()
    placed: set[str] = set()
    for replica, item in world.placed.values():
        placed.add(replica.volume)
        promised.nodes.setdefault(replica.node, []).append(item)
        promised.disks.setdefault(replica.disk, []).append(item)
    users = world.users()
    for claim in world.all("PersistentVolumeClaim", ClaimFacts).values():
        node = world.chosen_node(claim, users.get(claim.key, ()))
        if not node:
            continue
        volume = world.volume_of(claim)
        if volume not in placed and world.keeps_one_local_copy(claim):
            item = Item(f"claim {claim.key}", world.demand_bytes(claim))
            promised.nodes.setdefault(node, []).append(item)
    return promised


@dataclass(frozen=True, slots=True)
class Over:
    """A node or a disk that is promised more than it can take."""

    place: str
    node: str
    limit_bytes: int
    items: list[Item]


def places_over(world: WorldAt, promised: Promised) -> Iterator[Over]:
    for node in world.nodes():
        limits = {disk.uuid: world.limit_bytes(disk) for disk in node.disks}
        if not limits:  # nothing is known of its disks yet
            continue
        on_disks = {uuid: promised.disks.get(uuid, []) for uuid in limits}
        limit_bytes = sum(limits.values())
        places = list[tuple[str, int, list[Item]]]()
        if len(limits) > 1:
            places = [(f"disk {uuid} of {node.name}", limit, on_disks[uuid]) for uuid, limit in limits.items()]
            # What one of them has too much is not the node's fault as well.
            limit_bytes = sum(max(limit, total(on_disks[uuid])) for uuid, limit in limits.items())
        places.append((f"node {node.name}", limit_bytes, promised.nodes.get(node.name, [])))
        for place, limit, items in places:
            if total(items) > limit:
                yield Over(place, node.name, limit, items)


def total(items: Iterable[Item]) -> int:
    return sum(item.size_bytes for item in items)
