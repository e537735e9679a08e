"""A cluster in memory with three Longhorn nodes, and those who keep the record of it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from typing import Any

from prometheus_client import CollectorRegistry

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.errors import ClusterError, NotLeaderError
from controller.follow.kinds import FOLLOWED
from controller.kube.api import Raw
from controller.kube.resources import (
    CRDS,
    LONGHORN_BACKING_IMAGES,
    LONGHORN_NODES,
    LONGHORN_REPLICAS,
    LONGHORN_VOLUMES,
    NODE_DISK_ALLOCATIONS,
    Resource,
)
from controller.kube.store import Store
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.model.longhorn import LonghornSettings
from controller.model.records import FIELD, node_record, own_record
from controller.model.records import OURS as OURS_IN_NODES
from controller.record.backends import LonghornNodeBackend, NodeDiskAllocationBackend, RecordBackend
from controller.record.build import build_record
from controller.record.writer import RecordWriter
from controller.settings import LiveSettings
from tests.fakes.apiserver import FakeApiServer, Key
from tests.fakes.builders import GIB
from tests.fakes.clock import TickingClock, VirtualClock
from tests.waiting import wait_until

NAMESPACE = "longhorn-system"
NODES = ("n1", "n2", "n3")
BACKENDS: list[Callable[[FakeApiServer, str], RecordBackend]] = [LonghornNodeBackend, NodeDiskAllocationBackend]
WATCHES = ("none", "up to date", "late")
WRITES = ("create", "replace", "patch", "delete")
OURS = LiveSettings(enabled=True, allocation_authority="disk-scheduler")
MIRROR = LiveSettings(enabled=True)


class Crash(BaseException):
    """The process is gone."""


class RecordApi(FakeApiServer):
    """`sent` and `stored` are asked about each call that writes, before and after: they may raise, which is a request
    or an answer that is lost. `prunes`: Longhorn's Nodes lose the field as they are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.prunes = False
        self.sent: Callable[[str, Key], None] = lambda _verb, _key: None
        self.stored: Callable[[str, Key], None] = lambda _verb, _key: None

    def _store(self, key: Key, verb: str, body: Raw) -> Raw:
        self.sent(verb, key)
        if self.prunes and key[0] == LONGHORN_NODES.path():
            body["spec"].pop(FIELD, None)
        is_same = verb == "MODIFIED" and body == self.objects.get(key)  # then it keeps its version
        found = copy.deepcopy(body) if is_same else super()._store(key, verb, body)
        self.stored(verb, key)
        return found

    def writes(self) -> int:
        return sum(verb in ("ADDED", "MODIFIED") for _, verb, _, _ in self.log)

    @contextmanager
    def crash_at(self, call: int, *, lands: bool) -> Iterator[None]:
        """The process is gone at that call, counted from 0; with `lands` its write is stored all the same."""
        left = call

        def fail(verb: str, _resource: Resource) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not (lands and left == -1 and verb in WRITES[:3]):
                raise Crash

        def stored(_verb: str, _key: Key) -> None:
            if left < 0:
                raise Crash

        self.fail, self.stored = fail, stored
        try:
            yield
        finally:
            self.work()
            self.stored = lambda _verb, _key: None


def entry(name: str, size: int = 10, node: str = "n1", disk: str = "d1") -> Allocation:
    return Allocation(Purpose.REPLICA, name, node, f"{node}-{disk}", size)


def image_entry(name: str, size: int = 7, node: str = "n1", disk: str = "d1") -> Allocation:
    return Allocation(Purpose.BACKING_IMAGE, name, node, f"{node}-{disk}", size)


def longhorn() -> RecordApi:
    api = RecordApi()
    for name in NODES:
        api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
    return api


def longhorn_node(name: str, *disks: str) -> Raw:
    """With disks that take whatever is given."""
    ready = [{"type": kind, "status": "True"} for kind in ("Ready", "Schedulable")]
    size = {"storageMaximum": 1000 * GIB, "storageAvailable": 1000 * GIB, "storageScheduled": 0}
    names = disks or ("d1", "d2")
    states = {disk: {"diskUUID": f"{name}-{disk}", "conditions": ready, **size} for disk in names}
    spec = {"allowScheduling": True, "disks": {disk: {"allowScheduling": True, "path": f"/{disk}"} for disk in names}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": ready, "diskStatus": states}}


def nodes_crd(*, has_field: bool) -> Raw:
    """Of Longhorn's Nodes, which may carry the record or not."""
    fields: dict[str, Any] = {FIELD: {}} if has_field else {}
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}
    return {"metadata": {"name": "nodes.longhorn.io"}, "spec": {"versions": [{"name": "v1beta2", "schema": schema}]}}


def add_replica(
    api: FakeApiServer, name: str, size: int = 10, node: str = "n1", disk: str = "d1", volume: str = "v"
) -> None:
    """Without a node it waits for a disk."""
    place = {"nodeID": node, "diskID": f"{node}-{disk}" if node else ""}
    spec = {"volumeName": volume, "volumeSize": str(size), "active": True, **place}
    api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec})


def add_volume(api: FakeApiServer, name: str = "v", size: int = 10) -> None:
    spec = {"size": str(size), "numberOfReplicas": 1, "dataLocality": "disabled"}
    api.put(LONGHORN_VOLUMES, NAMESPACE, {"metadata": {"name": name}, "spec": spec, "status": {}})


def add_image(api: FakeApiServer, name: str, size: int, *disks: str, seen_on: Sequence[str] = ()) -> None:
    """`disks`: by its spec; `seen_on`: by its status."""
    spec: Raw = {"diskFileSpecMap": {disk: {} for disk in disks}}
    status = {"realSize": size, "diskFileStatusMap": {disk: {"state": "ready"} for disk in seen_on}}
    api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {"metadata": {"name": name}, "spec": spec, "status": status})


def touch_node(api: FakeApiServer, name: str) -> None:
    """As Longhorn's own status writes do: another resourceVersion, the same record."""
    api.patch(LONGHORN_NODES, NAMESPACE, name, {"status": {"region": str(api.version)}})


def set_field(api: FakeApiServer, backend: RecordBackend, node: str, value: object) -> None:
    """By hand, whatever it is. Keys of a mapping are UUIDs of disks."""
    kind, value = kind_of(backend), keyed(backend, value) if isinstance(value, dict) else value
    raw = api.objects.get((kind.path(), NAMESPACE, node)) or {"metadata": {"name": node}, "spec": {}}
    api.put(kind, NAMESPACE, {**raw, "spec": {**raw["spec"], FIELD: value}})


def keyed(backend: RecordBackend, disks: dict[str, Any]) -> dict[str, Any]:
    """By the keys that a backend gives to disks of these UUIDs."""
    prefix = OURS_IN_NODES if isinstance(backend, LonghornNodeBackend) else ""
    return {prefix + uuid: value for uuid, value in disks.items()}


def kind_of(backend: RecordBackend) -> Resource:
    return LONGHORN_NODES if isinstance(backend, LonghornNodeBackend) else NODE_DISK_ALLOCATIONS


def write(backend: RecordBackend, *entries: Allocation, node: str = "n1") -> None:
    """That and nothing else, by somebody else."""
    backend.write(backend.read(node), tuple(sorted(entries)))


def on_record(backend: RecordBackend, node: str = "n1") -> dict[str, int]:
    record = backend.read(node).record
    assert not record.problem, record.problem
    return {one.name: one.size_bytes for one in record.allocations}


def check_enough(there: Iterable[Allocation], before: Iterable[Allocation], after: Iterable[Allocation]) -> None:
    """All that is to be there `after`, or all that was `before`: not less of anything while the rest is missing."""
    found = {(one.node, one.key): one.size_bytes for one in there}
    lacks_old, lacks_new = (
        [one for one in wanted if found.get((one.node, one.key), -1) < one.size_bytes] for wanted in (before, after)
    )
    assert not lacks_new or not lacks_old, f"lacks {lacks_old} of before, and {lacks_new}"


def records_of_our_own(api: FakeApiServer) -> list[str]:
    return [raw["metadata"]["name"] for raw in api.list_page(NODE_DISK_ALLOCATIONS, NAMESPACE).items]


class Wanted:
    """What records are to have, as a dict. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, frozenset[Allocation]] = {}
        self.changed = set[str]()
        self.told = list[tuple[str, list[Allocation]]]()
        self.freed_on = set[str]()
        self.asked = list[str]()

    def set(self, node: str, *entries: Allocation) -> None:
        with self._lock:
            self._nodes[node] = frozenset(entries)

    def add(self, *entries: Allocation) -> None:
        with self._lock:
            for one in entries:
                there = {other for other in self._nodes.get(one.node, ()) if other.key != one.key}
                self._nodes[one.node] = frozenset({*there, one})

    def of_nodes(self, nodes: Iterable[str]) -> dict[str, tuple[Allocation, ...]]:
        with self._lock:
            found = {node: tuple(sorted(self._nodes.get(node, ()))) for node in nodes}
            self.asked += found
            return found

    def take_changed(self) -> Collection[str]:
        changed, self.changed = self.changed, set()
        return changed

    def leaving(self) -> Collection[str]:
        return self.freed_on

    def written(self, node: str, there: Collection[Allocation]) -> None:
        with self._lock:
            self.told.append((node, sorted(there)))

    def waiting(self) -> int:
        return 0


class WriterStage:
    """`watch`: what the writer is shown of records, besides what it reads."""

    def __init__(self, kind: Callable[[FakeApiServer, str], RecordBackend], watch: str = "none") -> None:
        self.api, self.clock, self.wanted = longhorn(), TickingClock(0.0), Wanted()
        self.backend, self.watch = kind(self.api, NAMESPACE), watch
        self.checks_left = inf
        self.writer = self.new_writer()

    def new_writer(self) -> RecordWriter:
        """As after a restart."""
        parsed = node_record if isinstance(self.backend, LonghornNodeBackend) else own_record
        raws = self.api.list_page(kind_of(self.backend), NAMESPACE).items
        then = {raw["metadata"]["name"]: parsed(raw) for raw in raws}

        def seen(node: str) -> NodeRecord | None:
            if self.watch == "up to date":
                raw = self.api.objects.get((kind_of(self.backend).path(), NAMESPACE, node))
                return parsed(raw) if raw is not None else None
            return then.get(node) if self.watch == "late" else None

        parts = self.wanted.of_nodes, self._check, self.clock, seen, self.wanted.written
        return RecordWriter(self.backend, *parts, pause=self.clock.advance)

    def _check(self) -> None:
        self.checks_left -= 1
        if self.checks_left < 0:
            raise NotLeaderError("this process does not lead")

    def want_only(self, *entries: Allocation) -> None:
        """Nothing else is to be anywhere."""
        for node in NODES:
            self.wanted.set(node, *(one for one in entries if one.node == node))

    @contextmanager
    def behind_a_write(self, *entries: Allocation) -> Iterator[Callable[..., None]]:
        """A write of these is under way until the end. What is yielded has another call made, and comes back when that
        waits: it looks at the clock for its deadline, and right before it waits for another one's write."""
        is_under_way, may_end = threading.Event(), threading.Event()

        def hold(_verb: str, _key: Key) -> None:
            if not is_under_way.is_set():
                is_under_way.set()
                assert may_end.wait(30)

        def follow(call: Callable[..., None], *arguments: Any, looks_at_clock: int = 2, **more: Any) -> None:
            before = self.clock.looks
            calls.append(callers.submit(call, *arguments, **more))
            wait_until(lambda: self.clock.looks >= before + looks_at_clock, "looks at the clock", 30)

        self.api.sent = hold
        with ThreadPoolExecutor(32) as callers:
            calls = [callers.submit(self.commit, *entries, seconds=30.0)]
            assert is_under_way.wait(30)
            try:
                yield follow
            finally:
                may_end.set()
            for one in calls:
                one.result(30)

    def all(self) -> list[Allocation]:
        return [one for stored in self.backend.records() for one in stored.record.allocations]

    def commit(self, *entries: Allocation, nodes: Collection[str] = (), seconds: float = 3.0) -> None:
        """These are to be there, too; `nodes`: where, if they are not the entries'."""
        self.wanted.add(*entries)
        self.writer.commit(nodes or {one.node for one in entries}, self.clock.now() + seconds)


class RecordLeader:
    """A leader whose stores show what the API server has whenever it looks. `in_nodes`: where the record is."""

    def __init__(
        self,
        live: LiveSettings = OURS,
        *,
        in_nodes: bool = False,
        api: RecordApi | None = None,
        leads: bool = True,
        projects: Wanted | None = None,
    ) -> None:
        self.api, self.clock, self.live = api or longhorn(), VirtualClock(), live
        self.is_open, self.is_fresh = leads, True
        self.set_field(is_there=in_nodes)
        self.allocator, self.registry = Allocator(self.clock), CollectorRegistry()
        self.stores: dict[str, Store[Any]] = {
            kind.name: Store(kind.name, kind.parse, kind.sharing) for kind in FOLLOWED
        }
        for kind in FOLLOWED:
            kind.feed(self.stores[kind.name], self.allocator)
        self.keeper, self.part = build_record(
            self.api,
            NAMESPACE,
            self.clock,
            self,
            self.stores,
            self.registry,
            projects or self.allocator.record,
            settings=lambda: self.live,
            is_fresh=lambda: self.is_fresh,
        )
        self.allocator.configure(live, LonghornSettings())
        self.allocator.set_mode(Mode.ACTIVE)
        self.see()
        self.allocator.begin_term(has_predecessor=False, record=self.keeper.load())

    def check(self) -> None:
        if not self.is_open:
            raise NotLeaderError("this process does not lead")

    def set_field(self, *, is_there: bool) -> None:
        """Whether Longhorn's Nodes have the field."""
        self.api.put(CRDS, None, nodes_crd(has_field=is_there))
        self.backend = (LonghornNodeBackend if is_there else NodeDiskAllocationBackend)(self.api, NAMESPACE)

    def see(self) -> None:
        """The watches show what there is."""
        fail, self.api.fail = self.api.fail, lambda _verb, _resource: None
        for kind in FOLLOWED:
            raws = self.api.objects.items() if kind.resource.plural not in self.api.absent else ()
            self.stores[kind.name].replace([raw for key, raw in raws if key[0] == kind.resource.path()])
        self.allocator.sweep()
        self.api.fail = fail

    def round(self, seconds: float = 0.0) -> None:
        """Another one of the keeper, after so many seconds."""
        self.clock.advance(seconds)
        self.see()
        self.keeper.run_once()

    def commit(self, nodes: Iterable[str]) -> None:
        """As those do who give places by name."""
        record = self.keeper.known()
        assert record is not None
        record.commit(set(nodes), self.clock.now() + 3)

    def give(self, name: str) -> str:
        """The node that a replica is given by name, which is on record then."""
        add_volume(self.api, f"v-{name}")
        add_replica(self.api, name, node="", volume=f"v-{name}")
        self.round()
        (node,) = nodes = self.allocator.allocations.place_replica(name, 5.0).nodes
        self.commit(nodes)
        return node

    def free(self, name: str) -> None:
        self.commit(self.allocator.allocations.release_replica(name).nodes)

    def refuse(self, *names: str) -> None:
        """From now on the API server accepts no write of these nodes and their objects."""

        def fail(_verb: str, key: Key) -> None:
            if key[2] in names:
                raise ClusterError("no right to")

        self.api.sent = fail

    def on_record(self, *nodes: str) -> dict[str, int]:
        return {name: size for node in nodes or NODES for name, size in self.node(node).items()}

    def node(self, name: str) -> dict[str, int]:
        return on_record(self.backend, name)

    def failures(self) -> int:
        return self.keeper.figures().failures
