"""Both places for the record keep it, notice what others did to it, and leave the rest of the object alone."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import ConflictError, NotFoundError
from controller.kube.resources import CRDS, LONGHORN_NODES, NODE_DISK_ALLOCATIONS
from controller.model.records import FIELD, MAX_ENTRIES
from controller.record.backends import (
    LonghornNodeBackend,
    NodeDiskAllocationBackend,
    RecordBackend,
    found_backend,
    keeps_field,
)
from controller.record.definition import allocation_crd
from tests.unit.record.stage import (
    BACKENDS,
    NAMESPACE,
    RecordApi,
    entry,
    image_entry,
    keyed,
    kind_of,
    longhorn,
    nodes_crd,
    on_record,
    set_field,
)

IMAGE = image_entry("i1", disk="d2")


@pytest.fixture
def api() -> RecordApi:
    return longhorn()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, api: RecordApi) -> RecordBackend:
    made: RecordBackend = request.param(api, NAMESPACE)
    return made


def test_what_is_written_is_read_back(backend: RecordBackend) -> None:
    empty = backend.read("n1")
    assert ((), "") == (empty.record.allocations, empty.record.problem)
    written = backend.write(empty, (IMAGE, entry("r1")))
    assert (IMAGE, entry("r1")) == written.record.allocations
    assert written == backend.read("n1")
    assert written in backend.records()
    emptied = backend.write(written, ())
    assert ((), "") == (emptied.record.allocations, emptied.record.problem)


@pytest.mark.parametrize("name", ["r2", "r1"], ids=["something else", "the same again"])
def test_what_was_read_before_a_write_of_others_is_not_written(backend: RecordBackend, name: str) -> None:
    none_yet = backend.read("n1")
    old = backend.write(none_yet, [entry("r1")])
    newer = backend.write(old, [entry(name)])
    assert old.record.version != newer.record.version
    for former in (none_yet, old):
        with pytest.raises(ConflictError):
            backend.write(former, [entry("r3")])
    assert newer == backend.read("n1")


def test_only_what_is_still_as_it_was_read_is_forgotten_and_that_once_more(api: RecordApi) -> None:
    backend = NodeDiskAllocationBackend(api, NAMESPACE)
    old = backend.write(backend.read("n1"), [entry("r1")])
    newer = backend.write(old, [entry("r2")])
    with pytest.raises(ConflictError):
        backend.forget(old)
    for _ in range(2):
        backend.forget(newer)
    assert "" == backend.read("n1").record.version
    with pytest.raises(ConflictError):
        backend.write(newer, [entry("r2")])


def test_the_rest_of_the_node_stays(api: RecordApi) -> None:
    backend = LonghornNodeBackend(api, NAMESPACE)
    before = api.get(LONGHORN_NODES, NAMESPACE, "n1")
    backend.write(backend.write(backend.read("n1"), [entry("r1")]), ())
    set_field(api, backend, "n1", {"n1-d1": "garbage"})
    backend.write(backend.read("n1"), ())
    after = api.get(LONGHORN_NODES, NAMESPACE, "n1")
    assert {**before["spec"], FIELD: {}} == after["spec"]
    assert before["status"] == after["status"]


THEIRS = {
    "d1": {"replicas": {"theirs": 99}},
    "d2": "as they like",
    "gone": {"replicas": {"theirs": -1}},  # a disk that the node had
    "n1-d2": {"backingImages": {"theirs": 5}},  # a disk's name may be a UUID, also that of another disk
}
OUR_DISK = "scheduling.longhorn.io/n1-d1"
DAMAGED = {OUR_DISK: {"replicas": {"r1": -1}}}


@pytest.mark.parametrize("ours", [{}, DAMAGED], ids=["whole", "damaged"])
def test_what_has_not_our_own_key_is_neither_counted_nor_touched(api: RecordApi, ours: dict[str, Any]) -> None:
    backend = LonghornNodeBackend(api, NAMESPACE)
    api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {FIELD: {**THEIRS, **ours}}})
    there = backend.read("n1")
    assert ((), bool(ours)) == (there.record.allocations, bool(there.record.problem))
    there = backend.write(there, [entry("r1")])
    assert (entry("r1"),) == there.record.allocations
    field = api.get(LONGHORN_NODES, NAMESPACE, "n1")["spec"][FIELD]
    assert {**THEIRS, OUR_DISK: {"replicas": {"r1": 10}}} == field
    backend.write(there, ())
    assert THEIRS == api.get(LONGHORN_NODES, NAMESPACE, "n1")["spec"][FIELD]


GARBAGE = [
    "x",
    ["n1-d1"],
    {"n1-d1": 5},
    {"n1-d1": {"replicas": {"r1": -1}}},
    {"n1-d1": {"replicas": {"r1": "many"}}},
    {"n1-d1": {"replicas": {"r1": None}}},
    {"n1-d1": {"replicas": {"r1": True}}},
    {"n1-d1": {"replicas": {"r1": 2**63}}},
    {"n1-d1": {"replica": {"r1": 1}}},
    {"n1-d1": {"r" * 10_000: {"r1": 1}}},
    {"n1-d1": {"replicas": {"r" * 10_000: -1}}},
    {"d" * 10_000: {"replicas": "x"}},
    {"n1-d1": {"backingImages": []}},
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: str(garbage)[:60])
def test_what_is_damaged_is_read_around_and_written_anew(backend: RecordBackend, api: RecordApi, garbage: Any) -> None:
    is_a_part = isinstance(garbage, dict)
    sound = {"n1-d2": {"replicas": {"r2": 5}}} if is_a_part else {}
    set_field(api, backend, "n1", {**garbage, **sound} if is_a_part else garbage)
    there = backend.read("n1")
    assert "spec.diskAllocations" in there.record.problem
    assert 300 >= len(there.record.problem)  # it goes into the log and /status
    assert ((entry("r2", 5, disk="d2"),) if is_a_part else ()) == there.record.allocations
    backend.write(there, [entry("r3", 3)])
    assert {"r3": 3} == on_record(backend)
    found = api.get(kind_of(backend), NAMESPACE, "n1")["spec"][FIELD]
    assert keyed(backend, {"n1-d1": {"replicas": {"r3": 3}}}) == found


def test_a_longhorn_that_keeps_the_field_gets_the_record(api: RecordApi) -> None:
    api.put(CRDS, None, {"metadata": {"name": "nodes.longhorn.io"}, "spec": {"versions": [{"name": "v1beta1"}]}})
    assert isinstance(found_backend(api, NAMESPACE), NodeDiskAllocationBackend)
    assert not keeps_field(nodes_crd(has_field=False))
    api.put(CRDS, None, nodes_crd(has_field=True))
    assert isinstance(found_backend(api, NAMESPACE), LonghornNodeBackend)


def test_a_kind_that_the_cluster_lacks_is_named(api: RecordApi) -> None:
    backend = NodeDiskAllocationBackend(api, NAMESPACE)
    backend.check()
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    with pytest.raises(NotFoundError, match=r"nodediskallocations\.scheduling\.longhorn\.io: install the Custom"):
        backend.check()


def test_the_definition_is_of_the_kind_that_is_written_and_has_one_writer() -> None:
    crd, kind = allocation_crd(), NODE_DISK_ALLOCATIONS
    assert (kind.group, kind.plural) == (crd["spec"]["group"], crd["spec"]["names"]["plural"])
    (version,) = crd["spec"]["versions"]
    field = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][FIELD]
    sizes = field["additionalProperties"]["properties"]
    assert (kind.version, "atomic") == (version["name"], field["x-kubernetes-map-type"])
    assert {"replicas": MAX_ENTRIES, "backingImages": MAX_ENTRIES} == {
        name: one["maxProperties"] for name, one in sizes.items()
    }
