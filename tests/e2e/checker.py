"""Judge a run by the API server's recorded history alone: was any byte promised twice?

At every revision, *promised* on a node is the Replica objects placed there plus the demand that the cluster has chosen
for it and Longhorn has not placed yet. A claim is such demand when its volume lives as one copy beside its pod
(`best-effort` with one replica, or `strict-local`), no Replica of that volume has a disk, and a node is chosen for it:

- by the annotation `selected-node`, while the claim is unbound;
- by `spec.nodeName` of a live pod that uses the claim;
- by the annotation, for a live pod that is older than the claim's PersistentVolume (the annotation stays on bound
  claims for ever, and says nothing about pods that came later).

A claim counts once, however many pods use it. What is promised may not exceed Longhorn's bound for the disk
(`int((maximum - reserved) * overProvisioning / 100)`). On a node with one disk its promise is the disk's; with several,
demand that has no disk yet counts against their sum, and each disk answers for its Replica objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.cluster.history import read_history
from tests.e2e import history_facts as facts
from tests.e2e.history_facts import ClaimFacts, Facts, NodeFacts, PodFacts

T = TypeVar("T", bound=Facts)

_PARSERS: Final[Mapping[tuple[str, str], Callable[[facts.Raw], Facts]]] = {
    ("", "Pod"): facts.pod_facts,
    ("", "PersistentVolumeClaim"): facts.claim_facts,
    ("", "PersistentVolume"): facts.pv_facts,
    ("storage.k8s.io", "StorageClass"): facts.class_facts,
    (facts.LONGHORN_GROUP, "Volume"): facts.volume_facts,
    (facts.LONGHORN_GROUP, "Replica"): facts.replica_facts,
    (facts.LONGHORN_GROUP, "Node"): facts.node_facts,
    (facts.LONGHORN_GROUP, "Setting"): facts.setting_facts,
}
_NEEDED: Final = frozenset(_PARSERS)


class HistoryError(Exception):
    """The history cannot be judged: events are missing from it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that takes bytes: a replica, or a claim that waits for its own."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Violation:
    """The first moment of one stretch in which more was promised than the place can take, and the worst of it."""

    place: str  # "node n1", or "disk <uuid> of n1"
    rv: int
    at: float  # wall clock of the recorder, seconds
    limit_bytes: int
    promised_bytes: int  # the most during the stretch
    items: tuple[Item, ...]  # all that was promised there at its first moment

    @property
    def over_bytes(self) -> int:
        return self.promised_bytes - self.limit_bytes

    def __str__(self) -> str:
        names = ", ".join(item.name for item in self.items)
        return (
            f"{self.place}: {self.over_bytes / 2**30:.3f} GiB over {self.limit_bytes / 2**30:.3f} at {self.rv}: {names}"
        )


@dataclass(slots=True)
class PodRecord:
    """One pod's life. Times are the recorder's wall clock; None: it did not happen."""

    key: str
    created_at: float
    node: str = ""
    bound_at: float | None = None
    ready_at: float | None = None
    gone_at: float | None = None
    refusals: int = 0  # how often its PodScheduled condition became Unschedulable
    is_refused: bool = False
    has_local_claims: bool = False
    missed: tuple[str, ...] = ()  # claims whose replica was elsewhere when the pod became ready


@dataclass(frozen=True, slots=True)
class Sample:
    """What was promised on each node from `at` on."""

    at: float
    rv: int
    node_bytes: Mapping[str, int]


@dataclass(slots=True)
class Report:
    """Everything that the history says. `node_limits`: the sum of each node's disks at the end."""

    violations: list[Violation] = field(default_factory=list)
    pods: dict[str, PodRecord] = field(default_factory=dict)  # by uid
    series: list[Sample] = field(default_factory=list)
    node_limits: dict[str, int] = field(default_factory=dict)
    last_rv: int = 0

    @property
    def bound(self) -> list[PodRecord]:
        return [pod for pod in self.pods.values() if pod.bound_at is not None]

    @property
    def ready(self) -> list[PodRecord]:
        return [pod for pod in self.pods.values() if pod.ready_at is not None]

    @property
    def local(self) -> list[PodRecord]:
        """Pods that were ready beside all of their single replicas."""
        return [pod for pod in self.ready if pod.has_local_claims and not pod.missed]

    @property
    def misses(self) -> list[PodRecord]:
        return [pod for pod in self.ready if pod.missed]

    @property
    def refused(self) -> list[PodRecord]:
        """Pods that the scheduler found unschedulable at least once."""
        return [pod for pod in self.pods.values() if pod.refusals]

    def pods_per_node(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for pod in self.bound:
            counts[pod.node] = counts.get(pod.node, 0) + 1
        return dict(sorted(counts.items()))

    def peaks(self) -> dict[str, int]:
        """The most that was ever promised on each node."""
        most: dict[str, int] = {}
        for sample in self.series:
            for node, promised in sample.node_bytes.items():
                most[node] = max(most.get(node, 0), promised)
        return most

    def complaints(self) -> list[str]:
        """Violations and locality misses as text; empty when the run was clean."""
        missed = [f"{pod.key} ready on {pod.node} away from {', '.join(pod.missed)}" for pod in self.misses]
        return [str(violation) for violation in self.violations] + missed


class World:
    """The cluster's objects at one revision, as facts, and since when each is known."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Facts]] = {name: {} for _, name in _PARSERS}  # Node: Longhorn's own
        self.first_seen: dict[str, int] = {}  # uid -> revision

    def apply(self, entry: Mapping[str, Any]) -> bool:
        """Take in one line; True when it changed a fact. A re-created object is a new one."""
        name, raw = str(entry["kind"]), entry["object"]
        # Longhorn's objects all lie in its one namespace and refer to each other by name alone.
        key = str(raw["metadata"]["name"]) if entry["group"] == facts.LONGHORN_GROUP else facts.key_of(raw)
        store = self._kinds[name]
        if entry["type"] == "DELETED":
            return store.pop(key, None) is not None
        new = _PARSERS[entry["group"], name](raw)
        self.first_seen.setdefault(facts.uid_of(raw), int(entry["rv"]))
        if store.get(key) == new:
            return False
        store[key] = new
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
            return volume.locality == "strict-local" or (volume.locality == "best-effort" and volume.replicas == 1)
        storage = self.all("StorageClass", facts.ClassFacts).get(claim.class_name)
        if storage is None or not storage.is_longhorn:
            return False
        locality = storage.locality or self.setting("default-data-locality")
        replicas = storage.replicas or self.setting("default-replica-count")
        return locality == "strict-local" or (locality == "best-effort" and replicas == "1")

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

    def chosen_node(self, claim: ClaimFacts, users: Iterable[PodFacts]) -> str:
        """Where the cluster wants this claim's volume now; empty when nowhere yet."""
        bound_to = [pod.node for pod in users if pod.node]
        if bound_to:
            # Pods of several nodes: Longhorn attaches the volume to one of them, and that is where it will be placed.
            volume = self._volume(self.volume_of(claim))
            return volume.node if volume is not None and volume.node in bound_to else bound_to[0]
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


def promised_in(world: World) -> Promised:
    """The promises that stand in this world."""
    promised = Promised()
    placed: set[str] = set()
    for replica in world.all("Replica", facts.ReplicaFacts).values():
        if not replica.is_placed:
            continue
        placed.add(replica.volume)
        item = Item(f"replica {replica.name}", replica.size_bytes)
        promised.nodes.setdefault(replica.node, []).append(item)
        promised.disks.setdefault(replica.disk, []).append(item)
    users = world.users()
    for claim in world.all("PersistentVolumeClaim", ClaimFacts).values():
        node = world.chosen_node(claim, users.get(claim.key, ()))
        if node and world.volume_of(claim) not in placed and world.keeps_one_local_copy(claim):
            item = Item(f"claim {claim.key}", world.demand_bytes(claim))
            promised.nodes.setdefault(node, []).append(item)
    return promised


def places_over(world: World, promised: Promised) -> Iterator[tuple[str, str, int, list[Item]]]:
    """(node, place, limit, items) of every node and disk that is promised more than it can take."""
    for node in world.nodes():
        limits = {disk.uuid: world.limit_bytes(disk) for disk in node.disks}
        if not limits:  # nothing is known of its disks yet
            continue
        places = [(f"node {node.name}", sum(limits.values()), promised.nodes.get(node.name, []))]
        if len(limits) > 1:
            places += [
                (f"disk {uuid} of {node.name}", limit, promised.disks.get(uuid, [])) for uuid, limit in limits.items()
            ]
        for place, limit, items in places:
            if total(items) > limit:
                yield node.name, place, limit, items


def total(items: Iterable[Item]) -> int:
    return sum(item.size_bytes for item in items)


class Checker:
    """Reads a history line by line and keeps the verdict. `nodes`, `namespaces`: judge these alone; None: all."""

    def __init__(self, *, nodes: Collection[str] | None = None, namespaces: Collection[str] | None = None) -> None:
        self.report = Report()
        self.world = World()
        self._nodes = nodes
        self._namespaces = namespaces
        self._started: set[tuple[str, str]] = set()
        self._open: dict[str, int] = {}  # place -> index of its violation, while it lasts

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Take in the next line, in the API server's order. Raises HistoryError for a gap in what matters."""
        kind = (str(entry["group"]), str(entry["kind"]))
        if kind not in _NEEDED:
            return
        if entry["type"] == "GAP":
            raise HistoryError(f"events of {kind[1]} may be missing before revision {entry['rv']}")
        if entry["type"] == "START":
            self._started.add(kind)
            return
        if not self.world.apply(entry):
            return
        self.report.last_rv = int(entry["rv"])
        if kind[1] == "Pod":
            self._note_pod(entry)
        self._judge(entry)

    def finish(self) -> Report:
        """The verdict. Raises HistoryError when a kind that matters was never recorded."""
        missing = sorted(name for _, name in _NEEDED - self._started)
        if missing:
            raise HistoryError(f"not in the history: {', '.join(missing)}")
        for node in self.world.nodes():
            if self._judges(node.name):
                self.report.node_limits[node.name] = sum(self.world.limit_bytes(disk) for disk in node.disks)
        return self.report

    def _judges(self, node: str) -> bool:
        return self._nodes is None or node in self._nodes

    def _judge(self, entry: Mapping[str, Any]) -> None:
        promised = promised_in(self.world)
        self._sample(entry, promised)
        over = {
            place: (limit, items)
            for node, place, limit, items in places_over(self.world, promised)
            if self._judges(node)
        }
        for place in self._open.keys() - over.keys():
            del self._open[place]
        for place, (limit, items) in over.items():
            if place not in self._open:
                self._open[place] = len(self.report.violations)
                self.report.violations.append(
                    Violation(place, int(entry["rv"]), float(entry["at"]), limit, total(items), tuple(items))
                )
            else:
                self._worsen(self._open[place], total(items))

    def _worsen(self, index: int, promised_bytes: int) -> None:
        old = self.report.violations[index]
        if promised_bytes > old.promised_bytes:
            self.report.violations[index] = Violation(
                old.place, old.rv, old.at, old.limit_bytes, promised_bytes, old.items
            )

    def _sample(self, entry: Mapping[str, Any], promised: Promised) -> None:
        now = {
            node.name: total(promised.nodes.get(node.name, ()))
            for node in self.world.nodes()
            if self._judges(node.name)
        }
        series = self.report.series
        if not series or series[-1].node_bytes != now:
            series.append(Sample(float(entry["at"]), int(entry["rv"]), now))

    def _note_pod(self, entry: Mapping[str, Any]) -> None:
        raw, at = entry["object"], float(entry["at"])
        pod = facts.pod_facts(raw)
        if self._namespaces is not None and pod.namespace not in self._namespaces:
            return
        record = self.report.pods.setdefault(pod.uid, PodRecord(pod.key, at))
        if entry["type"] == "DELETED":
            record.gone_at = at
            return
        if pod.node and record.bound_at is None:
            record.node, record.bound_at = pod.node, at
        if pod.is_refused and not record.is_refused:
            record.refusals += 1
        record.is_refused = pod.is_refused
        if pod.is_ready and record.ready_at is None:
            record.ready_at = at
            self._note_locality(record, pod)

    def _note_locality(self, record: PodRecord, pod: PodFacts) -> None:
        claims = self.world.all("PersistentVolumeClaim", ClaimFacts)
        local = [claims[key] for key in pod.claims if key in claims and self.world.keeps_one_local_copy(claims[key])]
        there = {
            replica.volume
            for replica in self.world.all("Replica", facts.ReplicaFacts).values()
            if replica.is_placed and replica.node == pod.node
        }
        record.has_local_claims = bool(local)
        record.missed = tuple(claim.key for claim in local if self.world.volume_of(claim) not in there)


def check(
    entries: Iterable[Mapping[str, Any]],
    *,
    nodes: Collection[str] | None = None,
    namespaces: Collection[str] | None = None,
) -> Report:
    """The verdict on a history that is in the API server's order."""
    checker = Checker(nodes=nodes, namespaces=namespaces)
    for entry in entries:
        checker.feed(entry)
    return checker.finish()


def check_file(
    path: Path, *, nodes: Collection[str] | None = None, namespaces: Collection[str] | None = None
) -> Report:
    """The verdict on a recorded file. Let the recorder catch up first (`Cluster.history_caught_up`)."""
    return check(read_history(path), nodes=nodes, namespaces=namespaces)
