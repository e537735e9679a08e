"""Each difference between the record and the objects is repaired once, with its reason."""

from __future__ import annotations

import pytest

from controller.allocations.repair import RepairReason, plan_repairs, shown_allocations
from controller.model.allocations import Allocation, NodeRecord, Purpose, changed
from controller.model.longhorn import BackingImage
from tests.fakes.builders import disk, node, replica
from tests.unit.allocations.stage import entry

ONE = entry("r1")
IMAGE = Allocation(Purpose.BACKING_IMAGE, "i1", "n1", "n1-d1", 7)
UNSIZED = Allocation(Purpose.BACKING_IMAGE, "i1", "n1", "n1-d1", 0)


@pytest.mark.parametrize(
    ("recorded", "shown", "reasons"),
    [
        ([], [], []),
        ([ONE, IMAGE], [ONE, IMAGE], []),
        ([], [ONE, IMAGE], ["no-entry", "no-entry"]),
        ([ONE], [], ["object-gone"]),
        ([ONE], [entry("r1", 20)], ["size-differs"]),
        ([entry("r1", 20)], [ONE], ["expansion-unfinished"]),
        ([ONE], [entry("r1", disk="renamed")], ["disk-moved", "disk-moved"]),
        ([ONE], [entry("r1", node="n2")], ["disk-moved", "disk-moved"]),
        ([IMAGE], [UNSIZED], []),
        ([], [UNSIZED], ["no-entry"]),
        ([IMAGE], [IMAGE, Allocation(Purpose.BACKING_IMAGE, "i1", "n2", "n2-d1", 7)], ["no-entry"]),
    ],
)
def test_repairs(recorded: list[Allocation], shown: list[Allocation], reasons: list[str]) -> None:
    records = [NodeRecord(name, tuple(one for one in recorded if one.node == name)) for name in ("n1", "n2")]
    found = plan_repairs(records, shown)
    assert reasons == [one.reason for one in found]
    for record in records:
        mine = [one.change for one in found if one.change.node == record.node]
        after = changed(record.allocations, mine)
        wanted = [one for one in shown if one.node == record.node]
        assert {one.key for one in wanted} == {one.key for one in after}
        assert [] == [r for r in plan_repairs([NodeRecord(record.node, after)], wanted) if r.allocation.size_bytes]


def test_a_disk_that_comes_to_another_node_brings_all_that_is_on_record_along() -> None:
    """Its replica is to grow."""
    grown = entry("r1", 60)
    shown = Allocation(Purpose.REPLICA, "r1", "n2", grown.disk_uuid, 10)
    found = plan_repairs([NodeRecord("n1", (grown,)), NodeRecord("n2")], [shown])
    assert [("n1", 60), ("n2", 60)] == [(one.allocation.node, one.allocation.size_bytes) for one in found]


def test_what_is_kept_stays() -> None:
    records = [NodeRecord("n1", (entry("grown", 20), ONE))]
    assert [] == plan_repairs(records, [entry("grown", 10)], {ONE, entry("grown", 20)})
    assert ["size-differs"] == [
        one.reason for one in plan_repairs(records, [entry("grown", 30), ONE], records[0].allocations)
    ]


def test_a_record_that_cannot_be_read_is_left_alone() -> None:
    records = [NodeRecord("n1", problem="garbage"), NodeRecord("n2")]
    found = plan_repairs(records, [ONE, entry("r2", node="n2")])
    assert [RepairReason.NO_ENTRY] == [one.reason for one in found]
    assert "n2" == found[0].allocation.node


def test_what_the_objects_show() -> None:
    nodes = [node("n1", disk("d1"), disk("d2")), node("n2", disk("d1", node="n2"))]
    first, second = nodes[0].disks[0].uuid, nodes[1].disks[0].uuid
    placed = replica("r1", "v", 1, on="n1")
    moved = replica("r2", "v", 1, on="gone-node", disk_name="d1")
    by_spec, by_status = frozenset({first, "gone"}), frozenset({first, second})
    images = [BackingImage("i1", real_size_bytes=5, disk_uuids=by_spec, status_disk_uuids=by_status)]
    found = shown_allocations(nodes, [placed, moved, replica("r3", "v", 1)], images)
    assert {("r1", "n1"), ("i1", "n1"), ("i1", "n2")} == {(one.name, one.node) for one in found}
    assert {5, 2**30} == {one.size_bytes for one in found}
