"""What was given goes by a disk's UUID: it stays with that disk, whatever it is called since, on whichever node it
is, and whatever has its name."""

from __future__ import annotations

from typing import Any

import pytest

from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader, put_image

FIRST, LARGE = "n1-d1", "large"
SIZES_GIB = {FIRST: 100, LARGE: 100}
DISK = {"allowScheduling": True, "path": "/disks/one"}
READY = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]


def put_disks(cell: ReplicaCell, node: str, uuids: dict[str, str]) -> None:
    """The node's disks from now on, by their names: two of 100 GiB, and others of 10."""
    raw = cell.api.get(LONGHORN_NODES, NAMESPACE, node)

    def shown(uuid: str) -> dict[str, Any]:
        size = SIZES_GIB.get(uuid, 10) * GIB
        sizes = {"storageMaximum": size, "storageAvailable": size, "storageScheduled": 0}
        return {"diskUUID": uuid, **sizes, "conditions": READY}

    raw["spec"]["disks"] = dict.fromkeys(uuids, DISK)
    raw["status"]["diskStatus"] = {name: shown(uuid) for name, uuid in uuids.items()}
    cell.api.put(LONGHORN_NODES, NAMESPACE, raw)


def show_disks(leader: GivingLeader, **uuids: str) -> None:
    put_disks(leader.cell, "n1", uuids)
    leader.see()


def free_by_uuid(leader: GivingLeader) -> dict[str, float]:
    room = leader.cluster.allocator._world.room("n1")
    assert room is not None
    return {disk.uuid: disk.free_bytes / GIB for disk in room.disks}


def next_if(is_next: bool, leader: GivingLeader) -> GivingLeader:
    return GivingLeader(leader.cell, has_predecessor=True) if is_next else leader


LEADERS = pytest.mark.parametrize("is_next", [False, True], ids=["the same leader", "the next leader"])


def disk_of(leader: GivingLeader, replica: str) -> str:
    """That it is told to go to; "" where none has room."""
    is_given = bool(leader.place(replica))
    return next((one.disk_uuid for one in leader.cell.entries() if is_given and one.name == replica), "")


@LEADERS
@pytest.mark.parametrize(
    ("steps", "free", "told"),
    [
        ([{"d1": "other", "d2": FIRST}], {"other": 10, FIRST: 40}, FIRST),
        ([{"d2": FIRST}, {"d1": "other", "d2": FIRST}], {"other": 10, FIRST: 40}, FIRST),
        ([{"d1": LARGE, "x1": FIRST}], {LARGE: 100, FIRST: 40}, FIRST),
        ([{"d1": LARGE}], {LARGE: 100}, LARGE),
        ([{"d1": "other"}], {"other": 10}, ""),
        ([{"d1": "other"}, {"d1": FIRST}], {FIRST: 40}, FIRST),
    ],
    ids=["its name goes on", "in two steps", "and to a large one", "it is away", "and the other is small", "and back"],
)
def test_what_was_given_stays_on_its_disk_whatever_has_its_name(
    steps: list[dict[str, str]], free: dict[str, float], told: str, is_next: bool
) -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = GivingLeader(cell)
    leader.place(name)
    for disks in steps:
        show_disks(leader, **disks)
    leader = next_if(is_next, leader)
    assert free == free_by_uuid(leader)
    assert told == disk_of(leader, name)


def test_what_is_given_anew_while_its_disk_is_away_counts_there_and_is_free_where_it_was() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.place(first)
    show_disks(leader, d1=LARGE)
    assert LARGE == disk_of(leader, first)
    show_disks(leader, d1=LARGE, x1=FIRST)
    assert {LARGE: 40, FIRST: 100} == free_by_uuid(leader) == free_by_uuid(next_if(True, leader))
    assert FIRST == disk_of(leader, second)


@LEADERS
@pytest.mark.parametrize("to", ["n1", "n2"], ids=["renamed", "on another node"])
@pytest.mark.parametrize("steps", [1, 2], ids=["at once", "in two steps"])
def test_what_waits_on_a_disk_goes_with_it(to: str, steps: int, is_next: bool) -> None:
    cell = ReplicaCell(n1=100, n2=10)
    put_image(cell, 20)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert ("n1", "n1") == (leader.place(first), leader.copy_image())
    nodes = {name: cell.api.get(LONGHORN_NODES, NAMESPACE, name) for name in ("n1", "n2")}
    parts = ("spec", "disks"), ("status", "diskStatus")
    disk = {part: nodes["n1"][part][field].pop("d1") for part, field in parts}
    if steps == 2:
        cell.api.put(LONGHORN_NODES, NAMESPACE, nodes["n1"])
        leader.see().keep()
    for part, field in parts:
        nodes[to][part][field]["other"] = disk[part]
    for raw in nodes.values():
        cell.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader = next_if(is_next, leader.see())
    assert ("", to, to) == (leader.place(second), leader.place(first), leader.copy_image())
    there = {(one.name, one.node, one.disk_uuid) for one in leader.see().keep().cell.entries()}
    assert {(first, to, FIRST), ("i", to, FIRST)} == there


def test_of_swapped_disks_the_one_whose_copy_goes_is_free() -> None:
    cell = ReplicaCell(n1=100)
    leader = GivingLeader(cell)
    show_disks(leader, d1=FIRST, d2=LARGE)
    image = {"metadata": {"name": "i"}, "status": {"realSize": 60 * GIB, "diskFileStatusMap": {}}}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {FIRST: {}, LARGE: {}}}})
    show_disks(leader, d1=LARGE, d2=FIRST)
    assert {FIRST: 40, LARGE: 40} == free_by_uuid(leader)
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {LARGE: {}}}})
    assert 0 == leader.see().free_copy()
    assert {FIRST: 100, LARGE: 40} == free_by_uuid(leader.see()) == free_by_uuid(GivingLeader(cell))
    assert [LARGE] == [one.disk_uuid for one in leader.keep().cell.entries()]
