"""The record on the real API server: shared writes, the schema of NodeDiskAllocation, crashes between writes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.allocations.backends import NodeDiskAllocationBackend, StoredRecord, found_backend
from controller.allocations.definition import allocation_crd
from controller.allocations.repair import plan_repairs
from controller.allocations.writer import RecordWriter
from controller.clock import SystemClock
from controller.errors import ConflictError
from controller.kube.api import ClientKubeApi
from controller.model.allocations import Allocation, Purpose, Put
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

    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], term: int, timeout: float = 10.0
    ) -> StoredRecord:
        if self.writes >= self.allowed:
            raise ProcessGone
        found = super().write(stored, allocations, term, timeout)
        self.writes += 1
        return found


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


def writer_of(backend: LimitedBackend) -> RecordWriter:
    return RecordWriter(backend, lambda: 1, SystemClock())


def puts(name: str, size: int) -> list[Put]:
    return [Put(Allocation(Purpose.REPLICA, f"{name}-{node}", node, f"{node}-d1", size)) for node in NODES]


def sizes(backend: LimitedBackend) -> dict[str, int]:
    records = [stored.record for stored in backend.records()]
    assert all(record.is_readable for record in records)
    return {one.name: one.size_bytes for record in records for one in record.allocations}


def test_longhorns_own_nodes_do_not_keep_the_field(api: ClientKubeApi) -> None:
    assert isinstance(found_backend(api, NAMESPACE), NodeDiskAllocationBackend)


def test_expansions_at_once_share_their_writes(backend: LimitedBackend) -> None:
    writer, clock = writer_of(backend), SystemClock()
    for index in range(CALLERS):
        writer.commit(puts(f"v{index}", 10), clock.now() + 30)
    one_by_one, started = backend.writes, time.monotonic()
    assert 3 * CALLERS == one_by_one
    with ThreadPoolExecutor(CALLERS) as callers:
        done = [callers.submit(writer.commit, puts(f"v{index}", 20), clock.now() + 30) for index in range(CALLERS)]
        for one in done:
            one.result()
    shared = backend.writes - one_by_one
    print(f"\nwrites per expansion: {shared / CALLERS:.2f}; {CALLERS} in {time.monotonic() - started:.2f} s")
    assert shared <= CALLERS
    assert {f"v{index}-{node}": 20 for index in range(CALLERS) for node in NODES} == sizes(backend)


@pytest.mark.parametrize("allowed", range(4))
def test_a_crash_between_the_writes_leaves_what_repair_undoes(backend: LimitedBackend, allowed: int) -> None:
    writer_of(backend).commit(puts("v", 10), SystemClock().now() + 30)
    before = sizes(backend)
    backend.allowed = backend.writes + allowed
    with contextlib.suppress(ProcessGone):
        writer_of(backend).commit(puts("v", 20), SystemClock().now() + 30)
    after = sizes(backend)
    assert allowed == sum(after[name] == 20 for name in before)
    assert all(after[name] >= before[name] for name in before)
    shown = [put.allocation for put in puts("v", 10)]
    backend.allowed = 10**9
    found = plan_repairs([stored.record for stored in backend.records()], shown)
    writer_of(backend).commit([one.change for one in found], SystemClock().now() + 30)
    assert (allowed, before) == (len(found), sizes(backend))


@pytest.mark.parametrize(
    "spec",
    [
        {"diskAllocations": {"d1": {"replicas": {"r1": -1}}}},
        {"diskAllocations": {"d1": {"replicas": {"r1": "many"}}}},
        {"diskAllocations": {"d1": []}},
        {"term": 0},
        {"term": None},
    ],
    ids=json.dumps,
)
def test_the_api_server_refuses_garbage_and_earlier_terms(
    cluster: Cluster, backend: LimitedBackend, spec: dict[str, object]
) -> None:
    writer_of(backend).commit(puts("v", 10), SystemClock().now() + 30)
    with pytest.raises(ApiError, match=r"term|diskAllocations"):
        cluster.api().patch(f"{PATH}/a1", {"spec": spec})


def test_another_process_that_writes_at_the_same_time_loses_nothing(backend: LimitedBackend) -> None:
    """Two writers that both believe they lead: each is told of the other's change, and no accepted one is lost."""
    writers = [writer_of(backend), writer_of(backend)]

    def write(index: int) -> str | None:
        name = f"w{index}"
        try:
            writers[index % 2].commit(puts(name, 10)[:1], SystemClock().now() + 30)
        except ConflictError:
            return None
        return f"{name}-a1"

    with ThreadPoolExecutor(8) as callers:
        accepted = {name for name in callers.map(write, range(60)) if name}
    assert accepted
    assert accepted <= sizes(backend).keys()
