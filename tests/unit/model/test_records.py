"""A node's record is read as it was written, and a change of it is sent as what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube.resources import NODE_DISK_ALLOCATIONS
from controller.model.allocations import Allocation, NodeRecord, Purpose, largest
from controller.model.reader import Raw
from controller.model.records import (
    FIELD,
    OURS,
    changes_between,
    encode_allocations,
    node_record,
    own_record,
    sharing,
)
from tests.fakes.apiserver import FakeApiServer

ENTRIES = st.builds(
    Allocation,
    st.sampled_from(Purpose),
    st.sampled_from(("a", "b", "c")),
    st.just("n1"),
    st.sampled_from(("d1", "d2")),
    st.integers(min_value=0, max_value=3),
)
RECORDS = st.lists(ENTRIES, unique_by=lambda one: one.key, max_size=8)


def replica(name: str, size: int = 10) -> Allocation:
    return Allocation(Purpose.REPLICA, name, "n1", "d1", size)


def raw(entries: list[Allocation], prefix: str = "") -> dict[str, Any]:
    return {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {FIELD: encode_allocations(entries, prefix)}}


@pytest.mark.parametrize(("prefix", "read"), [("", own_record), (OURS, node_record)], ids=["own", "in nodes"])
@given(before=RECORDS, after=RECORDS)
def test_a_merge_patch_makes_the_record_that_was_wanted(
    prefix: str,
    read: Callable[[Raw], NodeRecord | None],
    before: list[Allocation],
    after: list[Allocation],
) -> None:
    api = FakeApiServer()
    api.put(NODE_DISK_ALLOCATIONS, "ns", raw(before, prefix))
    changes = changes_between(before, after, prefix)
    patched = api.patch(NODE_DISK_ALLOCATIONS, "ns", "n1", {"spec": {FIELD: changes}})
    found = read(patched)
    assert found is not None
    assert tuple(sorted(after)) == found.allocations
    # Nothing stays of a disk without entries.
    assert {prefix + one.disk_uuid for one in after} == patched["spec"][FIELD].keys()
    assert len(set(before) ^ set(after)) >= len(changes)


def test_only_what_differs_is_sent() -> None:
    stays, grows, goes = replica("stays"), replica("grows"), replica("goes")
    image = Allocation(Purpose.BACKING_IMAGE, "image", "n1", "d2", 5)
    wanted = {"d1": {"replicas": {"grows": 20, "goes": None}}, "d2": {"backingImages": {"image": 5}}}
    assert wanted == changes_between([stays, grows, goes], [stays, replica("grows", 20), image])
    assert {"d1": None} == changes_between([stays, image], [image])
    assert {} == changes_between([stays, image], [image, stays])


@given(RECORDS)
def test_what_is_written_is_read_back_with_the_version_of_its_object(entries: list[Allocation]) -> None:
    assert NodeRecord("n1", tuple(sorted(entries)), "7") == own_record(raw(entries))


@given(RECORDS, RECORDS)
def test_of_two_records_the_larger_of_each_entry_is_taken(one: list[Allocation], other: list[Allocation]) -> None:
    found = {entry.key: entry.size_bytes for entry in largest((*one, *other))}
    assert found == {key: max(e.size_bytes for e in (*one, *other) if e.key == key) for key in found}
    assert found.keys() == {entry.key for entry in (*one, *other)}


def test_a_longhorn_node_without_the_field_has_no_record() -> None:
    specs: list[Any] = [None, {}, {"disks": {}}, 5]
    assert [None] * 4 == [node_record({"metadata": {"name": "n1"}, "spec": spec}) for spec in specs]
    assert NodeRecord("n1") == node_record({"metadata": {"name": "n1"}, "spec": {FIELD: {}}})


def test_in_a_longhorn_node_only_our_own_keys_are_ours() -> None:
    node = raw([replica("r1")], OURS)
    node["spec"][FIELD].update({"disk-1": {"replicas": {"theirs": 9}}, "disk-2": "garbage", "d1": {"replicas": {}}})
    assert NodeRecord("n1", (replica("r1"),), "7") == node_record(node)
    node["spec"][FIELD][f"{OURS}d1"] = "garbage"
    assert NodeRecord("n1", (), "7", f"spec.{FIELD}.{OURS}d1: is not an object") == node_record(node)


@pytest.mark.parametrize(
    ("size", "count"), [(0, 0), (2**63 - 1, 2**63 - 1), (1e3, 1000), *((bad, None) for bad in (-1, 2**63, 1.5, "5"))]
)
def test_a_size_is_a_number_of_bytes_or_a_problem(size: Any, count: int | None) -> None:
    found = own_record({"metadata": {"name": "n1"}, "spec": {FIELD: {"d1": {"replicas": {"r": size}}}}})
    problem = "" if count is not None else f"spec.{FIELD}.d1.replicas.r: is not a number of bytes"
    assert NodeRecord("n1", () if count is None else (replica("r", count),), problem=problem) == found


def test_entries_that_are_the_same_are_in_memory_once() -> None:
    old = NodeRecord("n1", (replica("a"), replica("b")), "1")
    new = sharing(old, NodeRecord("n1", (replica("a"), replica("b", 20)), "2", "a problem"))
    assert NodeRecord("n1", (replica("a"), replica("b", 20)), "2", "a problem") == new
    assert old.allocations[0] is new.allocations[0]
