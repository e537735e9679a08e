"""Both places for the record keep it, notice what others did to it, and leave the rest of the object alone."""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocations.backends import (
    LonghornNodeBackend,
    NodeDiskAllocationBackend,
    RecordBackend,
    found_backend,
    keeps_field,
)
from controller.allocations.definition import allocation_crd
from controller.errors import ConflictError
from controller.kube.resources import CRDS, LONGHORN_NODES, NODE_DISK_ALLOCATIONS
from controller.model.allocations import Allocation, Purpose
from controller.model.records import DROPPED
from tests.fakes.apiserver import FakeApiServer
from tests.unit.allocations.stage import BACKENDS, NAMESPACE, entry, longhorn, touch_node

IMAGE = Allocation(Purpose.BACKING_IMAGE, "i1", "n1", "n1-d2", 7)


@pytest.fixture
def api() -> FakeApiServer:
    return longhorn()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, api: FakeApiServer) -> RecordBackend:
    made: RecordBackend = request.param(api, NAMESPACE)
    return made


def test_what_is_written_is_read_back(backend: RecordBackend) -> None:
    empty = backend.read("n1")
    assert empty.record.is_readable
    assert () == empty.record.allocations
    written = backend.write(empty, (IMAGE, entry("r1")), 7)
    assert {IMAGE, entry("r1")} == set(written.record.allocations)
    assert 7 == written.record.term
    assert written == backend.read("n1")
    assert written in backend.records()
    emptied = backend.write(written, (), 8)
    assert (True, ()) == (emptied.record.is_readable, emptied.record.allocations)


def test_what_was_read_before_a_write_of_others_cannot_be_written(backend: RecordBackend) -> None:
    old = backend.read("n1")
    newer = backend.write(old, [entry("r1")], 1)
    with pytest.raises(ConflictError):
        backend.write(old, [entry("r2")], 1)
    backend.forget(newer)
    assert () == backend.read("n1").record.allocations
    with pytest.raises(ConflictError):
        backend.write(newer, [entry("r2")], 1)


def test_what_was_read_before_a_write_of_others_is_not_forgotten(backend: RecordBackend) -> None:
    old = backend.write(backend.read("n1"), [entry("r1")], 1)
    newer = backend.write(old, [entry("r2")], 1)
    with pytest.raises(ConflictError):
        backend.forget(old)
    assert newer == backend.read("n1")


def test_a_record_that_is_gone_is_forgotten_once_more(api: FakeApiServer) -> None:
    backend = NodeDiskAllocationBackend(api, NAMESPACE)
    written = backend.write(backend.read("n1"), [entry("r1")], 1)
    for _ in range(2):
        backend.forget(written)
    assert backend.read("n1").raw is None


def test_the_rest_of_the_node_stays(api: FakeApiServer) -> None:
    backend = LonghornNodeBackend(api, NAMESPACE)
    before = api.get(LONGHORN_NODES, NAMESPACE, "n1")
    backend.forget(backend.write(backend.read("n1"), [entry("r1")], 1))
    after = api.get(LONGHORN_NODES, NAMESPACE, "n1")
    assert (before["spec"], before["status"]) == (after["spec"], after["status"])


def test_a_typed_write_that_drops_the_field_is_noticed(api: FakeApiServer) -> None:
    backend = LonghornNodeBackend(api, NAMESPACE)
    backend.write(backend.read("n1"), [entry("r1")], 1)
    touch_node(api, "n1")
    assert backend.read("n1").record.is_readable
    api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {"diskAllocations": None, "allowScheduling": False}})
    assert DROPPED == backend.read("n1").record.problem
    assert () == backend.read("n1").record.allocations


@pytest.mark.parametrize("was_lost", [False, True], ids=["emptied", "written anew as empty"])
def test_an_empty_record_survives_a_manager_that_leaves_out_what_is_empty(api: FakeApiServer, was_lost: bool) -> None:
    backend = LonghornNodeBackend(api, NAMESPACE)
    backend.write(backend.read("n1"), [entry("r1")], 1)
    if was_lost:
        api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {"diskAllocations": None}})
    backend.write(backend.read("n1"), (), 1)
    raw = api.get(LONGHORN_NODES, NAMESPACE, "n1")
    if not raw["spec"].get("diskAllocations"):
        raw["spec"].pop("diskAllocations", None)
    api.replace(LONGHORN_NODES, NAMESPACE, "n1", raw)
    assert (True, ()) == (backend.read("n1").record.is_readable, backend.read("n1").record.allocations)


GARBAGE = [
    "x",
    ["d1"],
    {"d1": 5},
    {"d1": {"replicas": {"r1": -1}}},
    {"d1": {"replicas": {"r1": "many"}}},
    {"d1": {"replicas": {"r1": None}}},
    {"d1": {"replicas": {"r1": 2**63}}},
    {"d1": {"replica": {"r1": 1}}},
    {"d1": {"replicas": {"r1": 1}, "backingImages": []}},
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_garbage_is_a_problem_and_no_record(backend: RecordBackend, api: FakeApiServer, garbage: Any) -> None:
    backend.write(backend.read("n1"), [entry("r1")], 1)
    kind = LONGHORN_NODES if isinstance(backend, LonghornNodeBackend) else NODE_DISK_ALLOCATIONS
    raw = api.get(kind, NAMESPACE, "n1")
    raw["spec"]["diskAllocations"] = garbage
    api.put(kind, NAMESPACE, raw)
    record = backend.read("n1").record
    assert "spec.diskAllocations" in record.problem
    assert () == record.allocations


def test_a_longhorn_that_keeps_the_field_gets_the_record(api: FakeApiServer) -> None:
    crd: dict[str, Any] = {"metadata": {"name": "nodes.longhorn.io"}, "spec": {"versions": [{"name": "v1beta1"}]}}
    api.put(CRDS, None, crd)
    assert isinstance(found_backend(api, NAMESPACE), NodeDiskAllocationBackend)
    spec = {"type": "object", "properties": {"disks": {}}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    crd["spec"]["versions"].append({"name": "v1beta2", "schema": schema})
    assert not keeps_field(crd)
    spec["properties"] = {"diskAllocations": {}}
    api.put(CRDS, None, crd)
    assert isinstance(found_backend(api, NAMESPACE), LonghornNodeBackend)


def test_the_definition_is_of_the_kind_that_is_written() -> None:
    crd = allocation_crd()
    kind = NODE_DISK_ALLOCATIONS
    assert (kind.group, kind.plural) == (crd["spec"]["group"], crd["spec"]["names"]["plural"])
    assert [kind.version] == [one["name"] for one in crd["spec"]["versions"]]
