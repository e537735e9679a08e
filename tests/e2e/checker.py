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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.cluster.history import read_history
from tests.e2e import history_facts as facts
from tests.e2e.history_facts import ClaimFacts, PodFacts
from tests.e2e.world import PARSERS, Item, Promised, World, places_over, promised_in, total

_NEEDED: Final = frozenset(PARSERS)


class HistoryError(Exception):
    """The history cannot be judged: events are missing from it."""


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


class Checker:
    """Reads a history line by line and keeps the verdict.

    `nodes`, `namespaces`: judge these alone; None: all. `after`: judge what came after this revision.
    """

    def __init__(
        self,
        *,
        nodes: Collection[str] | None = None,
        namespaces: Collection[str] | None = None,
        after: int = 0,
    ) -> None:
        self.report = Report()
        self.world = World()
        self._nodes = nodes
        self._namespaces = namespaces
        self._after = after
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
        if self.report.last_rv <= self._after:
            return
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
    after: int = 0,
) -> Report:
    """The verdict on a history that is in the API server's order."""
    checker = Checker(nodes=nodes, namespaces=namespaces, after=after)
    for entry in entries:
        checker.feed(entry)
    return checker.finish()


def check_file(
    path: Path,
    *,
    nodes: Collection[str] | None = None,
    namespaces: Collection[str] | None = None,
    after: int = 0,
) -> Report:
    """The verdict on a recorded file. Let the recorder catch up first (`Cluster.history_caught_up`)."""
    return check(read_history(path), nodes=nodes, namespaces=namespaces, after=after)
