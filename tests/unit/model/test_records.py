"""A change of a node's record is sent as what differs, and makes the record that was wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.kube.resources import NODE_DISK_ALLOCATIONS
from controller.model.allocations import Allocation, Purpose
from controller.model.records import FIELD, allocations_in, changes_between, encode_allocations
from tests.fakes.apiserver import FakeApiServer

ENTRIES = st.builds(
    Allocation,
    st.sampled_from(Purpose),
    st.sampled_from(("a", "b", "c")),
    st.just("n1"),
    st.sampled_from(("d1", "d2")),
    st.integers(min_value=0, max_value=3),
)
RECORDS = st.lists(ENTRIES, unique_by=lambda one: one.key)


@given(RECORDS, RECORDS)
def test_a_merge_patch_makes_the_record_that_was_wanted(before: list[Allocation], after: list[Allocation]) -> None:
    api = FakeApiServer()
    api.put(NODE_DISK_ALLOCATIONS, "ns", {"metadata": {"name": "n1"}, "spec": {FIELD: encode_allocations(before)}})
    changes = changes_between(before, after)
    found = api.patch(NODE_DISK_ALLOCATIONS, "ns", "n1", {"spec": {FIELD: changes}})["spec"][FIELD]
    assert tuple(sorted(after)) == allocations_in(found, "n1")
    assert {one.disk_uuid for one in after} == found.keys()  # nothing stays of a disk without entries
    assert len(set(before) ^ set(after)) >= len(changes)


def test_only_what_differs_is_sent() -> None:
    stays, grows, goes = (Allocation(Purpose.REPLICA, name, "n1", "d1", 10) for name in ("stays", "grows", "goes"))
    grown = Allocation(Purpose.REPLICA, "grows", "n1", "d1", 20)
    image = Allocation(Purpose.BACKING_IMAGE, "image", "n1", "d2", 5)
    wanted = {"d1": {"replicas": {"grows": 20, "goes": None}}, "d2": {"backingImages": {"image": 5}}}
    assert wanted == changes_between([stays, grows, goes], [stays, grown, image])
    assert {"d1": None} == changes_between([stays, image], [image])
    assert {} == changes_between([stays, image], [image, stays])
