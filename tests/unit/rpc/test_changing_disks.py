"""What is on record goes by a disk's UUID: it stays with that disk, whatever it is called since, on whichever node it
is, and whatever has its name."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES
from controller.model.allocations import Allocation, Drop, Purpose, Put
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader
from tests.unit.rpc.late import SECONDS, arrives, free, free_gib, succeeds

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


SWAPPED = {"d1": "other", "d2": FIRST}


@pytest.mark.parametrize("steps", [[SWAPPED], [{"d2": FIRST}, SWAPPED]], ids=["at once", "in two steps"])
@pytest.mark.parametrize("is_fresh", [False, True], ids=["the same process", "a process that saw nothing before"])
def test_what_was_given_stays_on_its_disk_when_another_one_gets_its_name(
    steps: list[dict[str, str]], is_fresh: bool
) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    for disks in steps:
        show_disks(leader, **disks)
    leader = succeeds(cell) if is_fresh else leader
    assert {FIRST: 40, "other": 10} == free_by_uuid(leader)
    assert not leader.giving.place("w", second, SECONDS).allocations
    (again,) = leader.giving.place("v", first, SECONDS).allocations
    assert FIRST == again.disk_uuid


@pytest.mark.parametrize("is_fresh", [False, True], ids=["the same process", "a process that saw nothing before"])
def test_what_was_given_does_not_go_to_another_disk_in_the_place_of_its_own(is_fresh: bool) -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", name, SECONDS)
    leader.see()
    show_disks(leader, d1="other")
    leader = succeeds(cell) if is_fresh else leader
    assert not leader.giving.place("v", name, SECONDS).allocations
    show_disks(leader, d1=FIRST)
    (again,) = leader.giving.place("v", name, SECONDS).allocations
    assert FIRST == again.disk_uuid


def test_what_is_given_anew_while_its_disk_is_away_counts_on_both_once_that_is_back() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    show_disks(leader, d1=LARGE)
    (anew,) = leader.giving.place("v", first, SECONDS).allocations
    assert LARGE == anew.disk_uuid
    leader.see()
    show_disks(leader, d1=LARGE, x1=FIRST)
    assert {LARGE: 40, FIRST: 40} == free_by_uuid(leader) == free_by_uuid(succeeds(cell))
    assert not leader.giving.place("w", second, SECONDS).allocations
    free(leader, first)
    assert {LARGE: 100, FIRST: 100} == free_by_uuid(leader.see())


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize(("former", "present"), [(60, 40), (40, 60)])
def test_of_two_entries_by_a_disks_former_and_present_node_the_larger_counts(
    purpose: Purpose, former: int, present: int
) -> None:
    leader = GivingLeader(ReplicaCell(n1=100, n2=10))
    leader.commit(Put(Allocation(purpose, "one", "n1", FIRST, former * GIB)))
    put_disks(leader.cell, "n2", {"d1": FIRST})
    show_disks(leader)
    leader.commit(Put(Allocation(purpose, "one", "n2", FIRST, present * GIB)))
    free = [free_gib(leader.see(), "n2")]
    for name in ("n1", "n2"):
        leader.commit(Drop(purpose, "one", name, FIRST))
        free.append(free_gib(leader.see(), "n2"))
    assert [40, 100 - present, 100] == free


@pytest.mark.parametrize("disks", [{"d1": LARGE}, {"d1": LARGE, "x1": FIRST}], ids=["another disk", "renamed as well"])
@pytest.mark.parametrize("order", [("record", "node"), ("node", "record")], ids=" before ".join)
def test_what_was_given_counts_on_its_disk_in_whichever_order_a_leader_sees_it(
    order: tuple[str, str], disks: dict[str, str]
) -> None:
    cell = ReplicaCell(n1=100)
    first = cell.add("v", 60)
    leader = GivingLeader(cell)
    arrives(cell, first, 60)
    put_disks(cell, "n1", disks)
    for kind in order:
        leader.see(kind)
    assert {uuid: 40 if uuid == FIRST else 100 for uuid in disks.values()} == free_by_uuid(leader)


def test_what_was_given_counts_on_its_disk_on_another_node_once_that_comes_there() -> None:
    cell = ReplicaCell(n1=100, n2=10)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    show_disks(leader, d1="other")
    show_disks(leader)
    put_disks(cell, "n2", {"x1": FIRST})
    leader.see()
    for is_fresh in (False, True):
        one = succeeds(cell) if is_fresh else leader
        assert 40 == free_gib(one, "n2")
        assert not one.giving.place("w", second, SECONDS).allocations
        (again,) = one.giving.place("v", first, SECONDS).allocations
        assert ("n2", FIRST) == (again.node, again.disk_uuid)


def test_of_swapped_disks_the_one_whose_copy_goes_is_free() -> None:
    cell = ReplicaCell(n1=100)
    leader = GivingLeader(cell)
    show_disks(leader, d1=FIRST, d2=LARGE)
    image = {"metadata": {"name": "i"}, "status": {"realSize": 60 * GIB, "diskFileStatusMap": {}}}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {FIRST: {}, LARGE: {}}}})
    for uuid in (FIRST, LARGE):
        leader.commit(Put(Allocation(Purpose.BACKING_IMAGE, "i", "n1", uuid, 60 * GIB)))
    show_disks(leader, d1=LARGE, d2=FIRST)
    assert {FIRST: 40, LARGE: 40} == free_by_uuid(leader)
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {LARGE: {}}}})
    leader.commit(Drop(Purpose.BACKING_IMAGE, "i", "n1", FIRST))
    assert {FIRST: 100, LARGE: 40} == free_by_uuid(leader.see()) == free_by_uuid(GivingLeader(cell))


def test_of_two_disks_that_a_replica_was_given_none_is_freed_while_one_may_be_written() -> None:
    """One of them is where its volume was before; it was not known, or came late."""
    cell = ReplicaCell(n1=100, n2=100)
    status = {"ownerID": "n2", "currentNodeID": "n2"}
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n2", status=status)
    name = cell.put_replica("v", gib=60)
    for node in ("n1", "n2"):
        arrives(cell, name, 60, node=node)
    leader = succeeds(cell)
    leader.finds = True
    with pytest.raises(PreconditionError, match="deallocate it"):
        leader.giving.place("v", name, SECONDS)
    assert ["n1", "n2"] == sorted(one.node for one in cell.entries())
