"""What was given by name: how long it stands, what others of its volume are told beside it, and what becomes of it
while its node or its disk is away, or has another name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.allocator.by_name.on_record import REUSED_SECONDS
from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES, LONGHORN_REPLICAS
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import FREES, GIVES, GivingLeader, put_image, wanted
from tests.unit.rpc.late import Late

LONG_AGO = "2020-01-01T00:00:00Z"
LEADERS = pytest.mark.parametrize("is_next", [False, True], ids=["the same leader", "the next leader"])


def test_a_copy_of_an_image_stands_until_the_image_shows_it_or_is_gone() -> None:
    cell = ReplicaCell(n1=120, n2=100)
    put_image(cell, 60)
    leader = GivingLeader(cell)
    assert ("n1", 60) == (leader.copy_image(), leader.free_gib())
    cell.clock.advance(10_000)
    assert "n1" == leader.see().copy_image()
    put_image(cell, 60, "n1")
    assert (60, "n2") == (leader.see().free_gib(), leader.copy_image())
    cell.api.delete(LONGHORN_BACKING_IMAGES, NAMESPACE, "i")
    leader.see()
    assert (120, 100) == (leader.free_gib(), leader.free_gib("n2"))
    assert {} == leader.keep().cell.on_record()


@pytest.mark.parametrize("is_freed", [False, True])
def test_room_is_told_to_one_of_two_when_our_watch_shows_a_former_life_of_a_replica_on_its_disk(is_freed: bool) -> None:
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 60)
    first, second = cell.put_replica("v", gib=60, nodeID="n1", diskID="n1-d1"), cell.add("w", 60)
    leader = GivingLeader(cell)
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, first)
    if is_freed:
        leader.free(first)
    cell.put_replica("v", gib=60, meta={"uid": "another"})
    told = leader.place(first) or leader.see().place(first)
    assert ["", "n1"] == sorted([leader.see().place(second), told])


# Beside others of its volume


def test_another_replica_goes_to_another_node_or_nowhere() -> None:
    cell = ReplicaCell(n1=200, n2=150)
    cell.put_volume("v", 10, numberOfReplicas=2)
    names = [cell.put_replica("v", number) for number in (1, 2, 3)]
    leader = GivingLeader(cell)
    assert ["n1", "n2", ""] == [leader.place(name) for name in names]


# Failed ones


def test_where_a_failed_replica_comes_back_no_other_one_is_placed() -> None:
    cell = ReplicaCell(n1=100, n2=400)
    status = {"robustness": "degraded", "state": "attached", "lastDegradedAt": LONG_AGO}
    cell.put_volume("v", 10, numberOfReplicas=2, nodeID="n1", status=status)
    cell.put_replica("v", 1, nodeID="n1", diskID="n1-d1", healthyAt=LONG_AGO)
    lost = cell.put_replica("v", 2, nodeID="n2", diskID="n2-d1", healthyAt="2019-01-01T00:00:00Z")
    cell.change(lost, failedAt=LONG_AGO)
    new = cell.put_replica("v", 3)
    leader = GivingLeader(cell)
    for _ in range(2):
        assert (lost, "n2") == ((one := leader.reuse("v").reply.allocation).name, one.node)
    assert lost in cell.on_record()
    assert "" == leader.place(new)
    cell.clock.advance(REUSED_SECONDS)
    leader.cluster.allocator.sweep()
    assert "n2" == leader.see().place(new)


# Nodes that are away for a moment


def hide(leader: GivingLeader, node: str) -> Callable[[], object]:
    """It is back with the function that is returned."""
    api = leader.cell.api
    raw = api.get(LONGHORN_NODES, NAMESPACE, node)
    api.delete(LONGHORN_NODES, NAMESPACE, node)
    leader.see()
    raw["metadata"].pop("resourceVersion")

    def show() -> None:
        api.put(LONGHORN_NODES, NAMESPACE, raw)
        leader.see()

    return show


@LEADERS
@pytest.mark.parametrize("what", FREES)
def test_what_was_given_there_is_given_to_nobody_else_when_it_is_back(is_next: bool, what: str) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    show = hide(leader, "n1")
    leader.writer.write("n1", cell.clock.now() + 5)
    if is_next:
        leader.end()
        leader = GivingLeader(cell, has_predecessor=True)
    show()
    assert "" == leader.see().place("w-r-1")
    assert "n1" == GIVES[what](leader)
    assert {what: "n1"} == leader.keep().cell.on_record()


def test_what_is_asked_for_meanwhile_goes_elsewhere_and_stays_there() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    show = hide(leader, "n1")
    assert "n2" == leader.place(first)
    show()
    assert ("n2", "n1") == (leader.place(first), leader.place(second))
    assert {first: "n2", second: "n1"} == leader.keep().cell.on_record()


def test_nor_is_it_given_again_elsewhere_once_its_caller_has_written_it() -> None:
    """Our watch does not show that yet."""
    cell = ReplicaCell(n1=100, n2=90)
    first = cell.add("v", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    hide(leader, "n1")
    cell.change(first, nodeID="n1", diskID="n1-d1")
    with pytest.raises(PreconditionError, match="on no node that Longhorn shows"):
        leader.place(first)
    assert 90 == leader.free_gib("n2")


def test_the_copy_of_an_image_that_is_asked_for_meanwhile_goes_elsewhere_and_both_count() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    put_image(cell, 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.copy_image()
    show = hide(leader, "n1")
    assert "n2" == leader.copy_image()
    show()
    assert (40, 30) == (leader.free_gib(), leader.free_gib("n2"))
    assert leader.copy_image() in ("n1", "n2")
    assert 1 == leader.free_copy("n1")
    assert ("n2", 100) == (leader.copy_image(), leader.free_gib())


def test_a_volume_does_not_grow_while_a_disk_of_it_is_away() -> None:
    cell = ReplicaCell(n1=200, n2=150)
    cell.put_volume("v", 10, numberOfReplicas=2)
    leader = GivingLeader(cell)
    names = [cell.put_replica("v", number) for number in (1, 2)]
    assert ["n1", "n2"] == [leader.see().place(name) for name in names]
    show = hide(leader, "n1")
    with pytest.raises(PreconditionError, match="the disk of replica 'v-r-1' is on no node that Longhorn shows"):
        leader.expand("v", 60)
    show()
    assert "allocated" == leader.expand("v", 60).outcome


def test_room_is_told_to_one_of_two_when_a_slow_call_was_overtaken_by_one_that_moved_it() -> None:
    cell = ReplicaCell(n1=150, n2=100)
    first, second = cell.add("v", 100), cell.add("w", 100)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: leader.place(first))
    show = hide(leader, "n1")
    assert "n2" == leader.place(first)
    show()
    assert "n1" == leader.place(second)
    late.let_go()
    assert "n1" != late.told
    assert {first: "n2", second: "n1"} == leader.see().cell.on_record()


# Disks: what was given goes by the UUID, whatever the disk is called since


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
