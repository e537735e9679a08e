"""Judge a run by the API server's recorded history alone: was any byte promised twice, and did every pod that was let
through find a place?

At every revision, *promised* on a node is the Replica objects placed there plus the demand that the cluster has chosen
for it and that is not placed yet. A claim is such demand when its volume lives as one copy beside its pod
(`best-effort` with one replica, or `strict-local`), no Replica of that volume has a disk, and a node is chosen for it:

- by the annotation `selected-node`, while the claim is unbound and a live pod uses it;
- by `spec.nodeName` of a live pod that uses the claim;
- by the annotation, for a live pod that is older than the claim's PersistentVolume (the annotation stays on bound
  claims for ever, and says nothing about pods that came later).

A claim counts once, however many pods use it. What is promised may not exceed Longhorn's bound for the disk
(`int((maximum - reserved) * overProvisioning / 100)`). On a node with one disk its promise is the disk's; with several,
each disk answers for its Replica objects, and demand that has no disk yet counts against what these leave on all disks
together. Volumes that may go anywhere (`disabled`, several copies, shared) count with each Replica object once it has a
disk.

Every excess is a complaint, but for two that are nobody's fault: the limit fell, and nothing has come since; or a claim
lost its place to a further copy of another volume, or with its disk, and was told so (`ToldPods`). Two more complaints:
a pod that has been bound for long while a volume of its own has no disk at all, and one that became ready away from
its single replica without having been told. Who placed a copy, and whose planned bytes it took, is for `tests.judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.e2e import history_facts as facts
from tests.e2e.history_facts import ClaimFacts, PodFacts
from tests.e2e.world import PARSERS, Item, Over, WorldAt, places_over, promised_in, total

_NEEDED: Final = frozenset(PARSERS)
LIMIT_KINDS: Final = frozenset({"Node", "Setting"})
NO_DISK_SECONDS: Final = 120.0  # for so long a bound pod may wait until its volume has a disk


class HistoryError(Exception):
    """The history cannot be judged: events are missing from it."""


@dataclass(frozen=True, slots=True)
class ToldPods:
    """Who was told by an Event. `lost`: claims, as `namespace/name`, that lost their place. `remote`: pods, by uid,
    that may run apart from their replicas."""

    lost: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is promised at a place while it is over its limit."""

    rv: int
    at: float  # wall clock of the recorder, seconds
    limit_bytes: int
    items: tuple[Item, ...]

    @property
    def over_bytes(self) -> int:
        return total(self.items) - self.limit_bytes


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
        over, limit = self.over_bytes / 2**30, self.limit_bytes / 2**30
        return f"{self.place}: {over:.3f} GiB over {limit:.3f} at {self.rv}: {names}"


@dataclass(slots=True)
class PodRecord:
    """One pod's life. Times are the recorder's wall clock; None: it did not happen."""

    key: str
    created_at: float
    uid: str = ""
    node: str = ""
    bound_at: float | None = None
    ready_at: float | None = None
    gone_at: float | None = None
    refusals: int = 0  # how often its PodScheduled condition became Unschedulable
    is_refused: bool = False
    has_local_claims: bool = False
    missed: tuple[str, ...] = ()  # claims whose replica was elsewhere when the pod became ready
    without_disk: tuple[str, ...] = ()  # claims that have no disk although the pod has been bound for long


@dataclass(frozen=True, slots=True)
class Sample:
    """What was promised on each node from `at` on."""

    at: float
    rv: int
    node_bytes: Mapping[str, int]


@dataclass(slots=True)
class Report:
    """Everything that the history says. `node_limits`: the sum of each node's disks at the end.

    `lost`: stretches in which only what was told that it lost its place was too much. `told`: who was told of what.
    """

    violations: list[Violation] = field(default_factory=list)
    lost: list[Violation] = field(default_factory=list)
    told: ToldPods = ToldPods()
    pods: dict[str, PodRecord] = field(default_factory=dict)  # by uid
    series: list[Sample] = field(default_factory=list)
    node_limits: dict[str, int] = field(default_factory=dict)

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
    def unexplained_misses(self) -> list[PodRecord]:
        return [pod for pod in self.misses if pod.uid not in self.told.remote]

    @property
    def without_disk(self) -> list[PodRecord]:
        return [pod for pod in self.pods.values() if pod.without_disk]

    @property
    def refused(self) -> list[PodRecord]:
        """Pods that the scheduler found unschedulable at least once."""
        return [pod for pod in self.pods.values() if pod.refusals]

    def pods_per_node(self) -> dict[str, int]:
        return dict(sorted(Counter(pod.node for pod in self.bound).items()))

    def peaks(self) -> dict[str, int]:
        """The most that was ever promised on each node."""
        most: dict[str, int] = {}
        for sample in self.series:
            for node, promised in sample.node_bytes.items():
                most[node] = max(most.get(node, 0), promised)
        return most

    def complaints(self) -> list[str]:
        """Violations, volumes without a disk and locality misses as text; empty when the run was clean."""
        missed = [f"{pod.key} ready on {pod.node} away from {', '.join(pod.missed)}" for pod in self.unexplained_misses]
        bare = [
            f"{pod.key} bound to {pod.node}, no disk for {', '.join(pod.without_disk)}" for pod in self.without_disk
        ]
        return [str(violation) for violation in self.violations] + bare + missed


class Scope:
    """What is judged together: these nodes, the pods of these namespaces (None: all), after that revision."""

    def __init__(self, nodes: Collection[str] | None, namespaces: Collection[str] | None, after: int) -> None:
        self.report = Report()
        self.moments: list[list[Moment]] = []  # of each violation
        self.after = after
        self._nodes, self._namespaces = nodes, namespaces
        self._lasting: dict[str, int] = {}  # place -> index of its violation, while it lasts
        self._since_fall: dict[str, int] = {}  # place -> the least bytes since its limit fell, while it is over

    def covers_node(self, node: str) -> bool:
        return self._nodes is None or node in self._nodes

    def covers_namespace(self, namespace: str) -> bool:
        return self._namespaces is None or namespace in self._namespaces

    def note_promised(self, entry: Mapping[str, Any], node_bytes: Mapping[str, int]) -> None:
        """What is promised on every node of the cluster from this line on."""
        now = {node: promised for node, promised in node_bytes.items() if self.covers_node(node)}
        series = self.report.series
        if not series or series[-1].node_bytes != now:
            series.append(Sample(float(entry["at"]), int(entry["rv"]), now))

    def note_over(self, entry: Mapping[str, Any], over: Mapping[str, Over]) -> None:
        """All places that are promised too much after this line, by their names."""
        here = {place: found for place, found in over.items() if self.covers_node(found.node)}
        for known in (self._lasting, self._since_fall):
            for place in known.keys() - here.keys():
                del known[place]
        for place, found in here.items():
            promised, index = total(found.items), self._lasting.get(place)
            moment = Moment(int(entry["rv"]), float(entry["at"]), found.limit_bytes, tuple(found.items))
            if index is not None:
                self._worsen(index, promised)
                last = self.moments[index][-1]
                if (last.limit_bytes, last.items) != (moment.limit_bytes, moment.items):
                    self.moments[index].append(moment)
                continue
            if entry["kind"] in LIMIT_KINDS or promised <= self._since_fall.get(place, 0):
                self._since_fall[place] = promised  # what goes makes no room for others
                continue
            self._lasting[place] = len(self.report.violations)
            self.moments.append([moment])
            self.report.violations.append(
                Violation(place, moment.rv, moment.at, found.limit_bytes, promised, moment.items)
            )

    def _worsen(self, index: int, promised_bytes: int) -> None:
        old = self.report.violations[index]
        if promised_bytes > old.promised_bytes:
            self.report.violations[index] = replace(old, promised_bytes=promised_bytes)

    def note_pod(self, entry: Mapping[str, Any], pod: PodFacts, world: WorldAt) -> None:
        if not self.covers_namespace(pod.namespace):
            return
        at = float(entry["at"])
        record = self.report.pods.setdefault(pod.uid, PodRecord(pod.key, at, pod.uid))
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
            claims = world.local_claims(pod)
            there = world.volumes_on(pod.node)
            record.has_local_claims = bool(claims)
            record.missed = tuple(claim.key for claim in claims if world.volume_of(claim) not in there)


class Checker:
    """Reads a history line by line, in the API server's order, and keeps the verdict on each scope opened."""

    def __init__(self) -> None:
        self.world = WorldAt()
        self._scopes: list[Scope] = []
        self._at = 0.0  # of the last line
        self._started: set[tuple[str, str]] = set()

    def open(
        self,
        *,
        nodes: Collection[str] | None = None,
        namespaces: Collection[str] | None = None,
        after: int = 0,
    ) -> Scope:
        """Judge this from the next line on."""
        scope = Scope(nodes, namespaces, after)
        self._scopes.append(scope)
        return scope

    def close(self, scope: Scope) -> None:
        self._scopes.remove(scope)

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Take in the next line. Raises HistoryError for a gap in what matters."""
        kind = (str(entry["group"]), str(entry["kind"]))
        self._at = max(self._at, float(entry["at"]))
        if kind not in _NEEDED:
            return
        if entry["type"] == "GAP":
            raise HistoryError(f"events of {kind[1]} may be missing before revision {entry['rv']}")
        if entry["type"] == "START":
            self._started.add(kind)
            return
        if not self.world.apply(entry):
            return
        scopes = [scope for scope in self._scopes if int(entry["rv"]) > scope.after]
        if not scopes:
            return
        if kind[1] == "Pod":
            pod = facts.pod_facts(entry["object"])
            for scope in scopes:
                scope.note_pod(entry, pod, self.world)
        promised = promised_in(self.world)
        node_bytes = {node.name: total(promised.nodes.get(node.name, ())) for node in self.world.nodes()}
        over = {found.place: found for found in places_over(self.world, promised)}
        for scope in scopes:
            scope.note_promised(entry, node_bytes)
            scope.note_over(entry, over)

    def verdict(self, scope: Scope, told: ToldPods = ToldPods(), *, no_disk_seconds: float = NO_DISK_SECONDS) -> Report:
        """What is known of the scope by now. Raises HistoryError when a kind that matters was never recorded."""
        missing = sorted(name for _, name in _NEEDED - self._started)
        if missing:
            raise HistoryError(f"not in the history: {', '.join(missing)}")
        for node in self.world.nodes():
            if scope.covers_node(node.name):
                scope.report.node_limits[node.name] = sum(self.world.limit_bytes(disk) for disk in node.disks)
        self._find_without_disk(scope, self._at - no_disk_seconds)
        return _forgiven(scope, told)

    def _find_without_disk(self, scope: Scope, bound_before: float) -> None:
        """Of the pods that are there and were bound so long ago."""
        replicas = self.world.all("Replica", facts.ReplicaFacts).values()
        placed = {replica.volume for replica in replicas if replica.is_placed}
        claims = self.world.all("PersistentVolumeClaim", ClaimFacts)
        for pod in self.world.all("Pod", PodFacts).values():
            record = scope.report.pods.get(pod.uid)
            if record is None:
                continue
            is_due = record.bound_at is not None and record.bound_at <= bound_before
            waits = is_due and not pod.is_finished and not pod.is_deleting
            own = [claims[key] for key in pod.claims if key in claims] if waits else []
            record.without_disk = tuple(
                claim.key
                for claim in own
                if self.world.is_longhorns(claim) and self.world.volume_of(claim) not in placed
            )
        for record in scope.report.pods.values():
            if record.gone_at is not None:
                record.without_disk = ()


def _forgiven(scope: Scope, told: ToldPods) -> Report:
    """The report, in which what was told that it lost its place counts no more."""
    report = replace(scope.report, violations=[], lost=[], told=told)
    names = {f"claim {claim}" for claim in told.lost}
    for violation, moments in zip(scope.report.violations, scope.moments, strict=True):
        lost = (sum(item.size_bytes for item in moment.items if item.name in names) for moment in moments)
        is_wrong = any(moment.over_bytes > size for moment, size in zip(moments, lost, strict=True))
        (report.violations if is_wrong else report.lost).append(violation)
    return report


def check(
    entries: Iterable[Mapping[str, Any]],
    *,
    nodes: Collection[str] | None = None,
    namespaces: Collection[str] | None = None,
    after: int = 0,
    told: ToldPods = ToldPods(),
    no_disk_seconds: float = NO_DISK_SECONDS,
) -> Report:
    """The verdict on a history that is in the API server's order."""
    checker = Checker()
    scope = checker.open(nodes=nodes, namespaces=namespaces, after=after)
    for entry in entries:
        checker.feed(entry)
    return checker.verdict(scope, told, no_disk_seconds=no_disk_seconds)
