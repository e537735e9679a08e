"""The record on the real API server: shared writes, the schema of NodeDiskAllocation, crashes between writes."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.clock import SystemClock
from controller.errors import RefusedWriteError
from controller.kube.api import ClientKubeApi
from controller.model.allocations import Allocation, Purpose
from controller.record.backends import NodeDiskAllocationBackend, StoredRecord, found_backend
from controller.record.definition import allocation_crd
from controller.record.writer import RecordWriter
from tests.cluster.client import ApiError
from tests.cluster.cluster import Cluster
from tests.longhorn.install import install
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "longhorn-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATH = f"/apis/scheduling.longhorn.io/v1alpha1/namespaces/{NAMESPACE}/nodediskallocations"
NODES = ("a1", "a2", "a3")
CALLERS = 100


class ProcessGone(BaseException):
    """The process is gone."""


class LimitedBackend(NodeDiskAllocationBackend):
    """Counts the writes that were accepted, and ends the process after so many."""

    writes = 0
    allowed = 10**9

    def write(self, stored: StoredRecord, allocations: Sequence[Allocation], timeout: float = 10.0) -> StoredRecord:
        if self.writes >= self.allowed:
            raise ProcessGone
        found = super().write(stored, allocations, timeout)
        self.writes += 1
        return found


class GrowingSizes:
    """What a leader knows: volumes with a replica of that size on each node. Threads: any."""

    def __init__(self, **sizes: int) -> None:
        self._lock, self._sizes = threading.Lock(), sizes

    def set(self, name: str, size: int) -> None:
        with self._lock:
            self._sizes[name] = size

    def remove(self, name: str) -> None:
        with self._lock:
            del self._sizes[name]

    def on_record(self, nodes: Collection[str]) -> dict[str, tuple[Allocation, ...]]:
        with self._lock:
            sizes = sorted(self._sizes.items())
        return {
            node: tuple(Allocation(Purpose.REPLICA, f"{name}-{node}", node, f"{node}-d1", size) for name, size in sizes)
            for node in nodes
        }

    def sizes(self) -> dict[str, int]:
        return {one.name: one.size_bytes for entries in self.on_record(NODES).values() for one in entries}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> ClientKubeApi:
    admin = cluster.api()
    install(admin, NAMESPACE, {}, capacity_tracking=False)
    with contextlib.suppress(ApiError):
        admin.create(CRDS, json.loads(json.dumps(allocation_crd())))
    wait_until(lambda: admin.get_or_none(PATH) is not None, "served NodeDiskAllocations", 30)
    return ClientKubeApi.load(str(cluster.layout.kubeconfig("admin")))


@pytest.fixture
def backend(api: ClientKubeApi) -> Iterator[LimitedBackend]:
    found = LimitedBackend(api, NAMESPACE)
    yield found
    for stored in found.records():
        found.forget(stored)


def writer_of(backend: LimitedBackend, volumes: GrowingSizes, check: Callable[[], None] = lambda: None) -> RecordWriter:
    return RecordWriter(backend, volumes.on_record, check, SystemClock())


def commit(writer: RecordWriter, nodes: Collection[str] = NODES) -> None:
    writer.commit(nodes, SystemClock().now() + 30)


def sizes(backend: LimitedBackend) -> dict[str, int]:
    records = [stored.record for stored in backend.records()]
    assert not any(record.problem for record in records)
    return {one.name: one.size_bytes for record in records for one in record.allocations}


def test_longhorns_own_nodes_do_not_keep_the_field(api: ClientKubeApi) -> None:
    assert isinstance(found_backend(api, NAMESPACE), NodeDiskAllocationBackend)


def test_expansions_at_once_share_their_writes(backend: LimitedBackend) -> None:
    volumes = GrowingSizes()
    writer = writer_of(backend, volumes)

    def grow(index: int, size: int) -> None:
        volumes.set(f"v{index}", size)
        commit(writer)

    for index in range(CALLERS):
        grow(index, 10)
    one_by_one, started = backend.writes, time.monotonic()
    assert 3 * CALLERS == one_by_one
    with ThreadPoolExecutor(CALLERS) as callers:
        done = [callers.submit(grow, index, 20) for index in range(CALLERS)]
        for one in done:
            one.result()
    shared = backend.writes - one_by_one
    print(f"\nwrites per expansion: {shared / CALLERS:.2f}; {CALLERS} in {time.monotonic() - started:.2f} s")
    assert shared <= CALLERS
    assert {f"v{index}-{node}": 20 for index in range(CALLERS) for node in NODES} == sizes(backend)


@pytest.mark.parametrize("allowed", range(7))
def test_a_crash_between_the_writes_leaves_too_much_on_record_and_never_too_little(
    backend: LimitedBackend, allowed: int
) -> None:
    """One volume grows while another one goes: three writes that only add, then three that take away."""
    volumes = GrowingSizes(grows=10, goes=5)
    commit(writer_of(backend, volumes))
    before, first = sizes(backend), backend.writes
    backend.allowed = backend.writes + allowed
    volumes.set("grows", 20)
    volumes.remove("goes")
    with contextlib.suppress(ProcessGone):
        commit(writer_of(backend, volumes))
    assert allowed == backend.writes - first
    left = sizes(backend)
    grown, gone = [name for name in before if left.get(name) == 20], before.keys() - left.keys()
    assert (min(allowed, 3), max(allowed - 3, 0)) == (len(grown), len(gone))
    backend.allowed = 10**9
    commit(writer_of(backend, volumes))  # the next leader knows as much by the objects
    assert volumes.sizes() == sizes(backend)


@pytest.mark.parametrize(
    "disks",
    [{"d1": {"replicas": {"r1": -1}}}, {"d1": {"replicas": {"r1": "many"}}}, {"d1": []}],
    ids=json.dumps,
)
def test_the_api_server_refuses_garbage(cluster: Cluster, backend: LimitedBackend, disks: dict[str, object]) -> None:
    commit(writer_of(backend, GrowingSizes(v=10)))
    with pytest.raises(ApiError, match="diskAllocations"):
        cluster.api().patch(f"{PATH}/a1", {"spec": {"diskAllocations": disks}})


def test_whatever_the_api_server_accepts_from_others_is_written_over(cluster: Cluster, backend: LimitedBackend) -> None:
    """A later term, names of 10 KB, and as many entries as one object takes."""
    volumes = GrowingSizes(v=10)
    commit(writer_of(backend, volumes))
    many = {f"d{disk}": {"replicas": {f"{number}": 2**63 - 1 for number in range(9_000)}} for disk in range(4)}
    odd = {"a1-d1": {"replicas": {"x" * 10_000: 2**63 - 1, "v-a1": 2**63 - 1}}, "term": {}}
    for disks in (many, odd):
        cluster.api().patch(f"{PATH}/a1", {"spec": {"term": 99, "diskAllocations": disks}})
        assert volumes.sizes() != sizes(backend)
        commit(writer_of(backend, volumes))
        assert volumes.sizes() == sizes(backend)


def test_a_record_that_the_api_server_does_not_accept_is_refused_at_once(backend: LimitedBackend) -> None:
    volumes = GrowingSizes(v=10)
    writer = writer_of(backend, volumes)
    commit(writer)
    volumes.set("v", -1)
    with pytest.raises(RefusedWriteError) as refused:
        commit(writer, ["a2"])
    assert "a2" == refused.value.node
    volumes.set("v", 20)
    commit(writer)
    assert volumes.sizes() == sizes(backend)


def test_what_another_process_writes_meanwhile_is_written_over(backend: LimitedBackend) -> None:
    """A former leader that does not know yet, and its successor: each write is the whole of what its writer knows, and
    the one that still leads has the last word."""
    volumes, former = GrowingSizes(), GrowingSizes(old=1)
    leading, late = writer_of(backend, volumes), writer_of(backend, former)

    def write(index: int) -> None:
        if index % 2:
            commit(late, ["a1"])
            return
        volumes.set(f"w{index}", 10)
        commit(leading, ["a1"])

    with ThreadPoolExecutor(8) as callers:
        assert [None] * 60 == list(callers.map(write, range(60)))
    commit(late, ["a1"])
    volumes.set("last", 10)
    commit(leading, ["a1"])
    assert {one.name: one.size_bytes for one in volumes.on_record(["a1"])["a1"]} == sizes(backend)
