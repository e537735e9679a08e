"""What is on record by a disk's name stays with that disk, whatever it is called since, and whatever has its name."""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocator.world.allocated import LATE_SECONDS
from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES
from controller.model.allocations import Allocation, Drop, Purpose, Put
from tests.fakes.builders import GIB
from tests.unit.placement.late import SECONDS, arrives, free, free_gib, let_pass, succeeds
from tests.unit.placement.stage import NAMESPACE, PlacingLeader, ReplicaCell

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


def show_disks(leader: PlacingLeader, **uuids: str) -> None:
    put_disks(leader.cell, "n1", uuids)
    leader.see()


def free_by_uuid(leader: PlacingLeader) -> dict[str, float]:
    room = leader.cluster.allocator._world.room("n1")
    assert room is not None
    return {disk.uuid: disk.free_bytes / GIB for disk in room.disks}


SWAPPED = {"d1": "other", "d2": FIRST}


@pytest.mark.parametrize("steps", [[SWAPPED], [{"d2": FIRST}, SWAPPED]], ids=["at once", "in two steps"])
def test_what_was_given_stays_on_its_disk_when_another_one_gets_its_name(steps: list[dict[str, str]]) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    for disks in steps:
        show_disks(leader, **disks)
    assert not leader.giving.place("w", second, SECONDS).allocations
    with pytest.raises(PreconditionError, match="deallocate it"):  # another leader may take it for the other disk's
        leader.giving.place("v", first, SECONDS)


def test_what_was_given_does_not_go_to_another_disk_in_the_place_of_its_own() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = PlacingLeader(cell)
    leader.giving.place("v", name, SECONDS)
    leader.see()
    show_disks(leader, d1="other")
    with pytest.raises(PreconditionError, match="deallocate it"):
        leader.giving.place("v", name, SECONDS)
    show_disks(leader, d1=FIRST)
    assert FIRST == leader.giving.place("v", name, SECONDS).disk_uuid


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize(("former", "present"), [(60, 40), (40, 60)])
def test_of_two_entries_by_a_disks_former_and_present_name_the_larger_counts(
    purpose: Purpose, former: int, present: int
) -> None:
    leader = PlacingLeader(ReplicaCell(n1=100))
    leader.commit(Put(Allocation(purpose, "one", "n1", "d1", former * GIB)))
    show_disks(leader, x1=FIRST)
    leader.commit(Put(Allocation(purpose, "one", "n1", "x1", present * GIB)))
    free = [free_gib(leader.see())]
    for name in ("d1", "x1"):
        leader.commit(Drop(purpose, "one", "n1", name))
        free.append(free_gib(leader.see()))
    assert [40, 100 - present, 100] == free


@pytest.mark.parametrize("disks", [{"d1": LARGE}, {"d1": LARGE, "x1": FIRST}], ids=["another disk", "renamed as well"])
@pytest.mark.parametrize("order", [("record", "node"), ("node", "record")], ids=" before ".join)
def test_what_was_given_counts_on_both_disks_of_its_name_however_a_leader_saw_it(
    order: tuple[str, str], disks: dict[str, str]
) -> None:
    """Leaders see it in different orders, so that it is told to nobody until it was deallocated and asked for anew."""
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)
    arrives(cell, first, 60)
    put_disks(cell, "n1", disks)
    for kind in order:
        leader.see(kind)
    assert dict.fromkeys(disks.values(), 40) == free_by_uuid(leader)
    assert not leader.giving.place("w", second, SECONDS).allocations
    with pytest.raises(PreconditionError, match="deallocate it"):
        leader.giving.place("v", first, SECONDS)
    free(leader, first)
    assert leader.see().giving.place("w", second, SECONDS).allocations


def test_what_was_given_anew_counts_for_a_leader_that_did_not_see_it_go_before() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    one, other = PlacingLeader(cell), PlacingLeader(cell)
    one.giving.place("v", first, SECONDS)
    other.see()
    show_disks(one, d1=LARGE)
    other.see()
    free(one, first)
    assert LARGE == one.see().giving.place("v", first, SECONDS).disk_uuid
    other.see()
    other.checks.term = 2
    other.cluster.allocator.begin_term(has_predecessor=True)
    assert {LARGE: 40} == free_by_uuid(other)
    assert not other.giving.place("w", second, SECONDS).allocations


def test_what_is_given_long_after_a_change_of_disks_is_on_the_present_one_alone() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = PlacingLeader(cell)
    show_disks(leader, d1=LARGE, x1=FIRST)
    let_pass(leader, LATE_SECONDS)
    arrives(cell, name, 60)
    assert {LARGE: 40, FIRST: 100} == free_by_uuid(leader.see())
    assert LARGE == leader.giving.place("v", name, SECONDS).disk_uuid


def test_what_was_given_counts_on_its_disk_on_another_node_once_that_comes_there() -> None:
    cell = ReplicaCell(n1=100, n2=10)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    show_disks(leader, d1="other")
    show_disks(leader)
    put_disks(cell, "n2", {"x1": FIRST})
    leader.see()
    assert 40 == free_gib(leader, "n2")
    assert not leader.giving.place("w", second, SECONDS).allocations


def test_of_swapped_disks_the_one_whose_copy_goes_is_free() -> None:
    cell = ReplicaCell(n1=100)
    leader = PlacingLeader(cell)
    show_disks(leader, d1=FIRST, d2=LARGE)
    image = {"metadata": {"name": "i"}, "status": {"realSize": 60 * GIB, "diskFileStatusMap": {}}}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {FIRST: {}, LARGE: {}}}})
    for disk in ("d1", "d2"):
        leader.commit(Put(Allocation(Purpose.BACKING_IMAGE, "i", "n1", disk, 60 * GIB)))
    show_disks(leader, d1=LARGE, d2=FIRST)
    assert {FIRST: 40, LARGE: 40} == free_by_uuid(leader)
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {**image, "spec": {"diskFileSpecMap": {LARGE: {}}}})
    leader.commit(Drop(Purpose.BACKING_IMAGE, "i", "n1", "d2"))  # by the names of now
    assert {FIRST: 100, LARGE: 40} == free_by_uuid(leader.see()) == free_by_uuid(PlacingLeader(cell))


@pytest.mark.parametrize("places", [True, False], ids=["by the placer", "by a call"])
def test_of_two_disks_that_a_replica_was_given_none_is_freed_while_one_may_be_written(places: bool) -> None:
    """One of them is where its volume was before; it was not known, or came late."""
    cell = ReplicaCell(n1=100, n2=100)
    status = {"ownerID": "n2", "currentNodeID": "n2"}
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n2", status=status)
    name = cell.put_replica("v", gib=60)
    for node in ("n1", "n2"):
        arrives(cell, name, 60, node=node)
    leader = succeeds(cell)
    leader.finds = True
    if places:
        for _ in range(3):  # it binds the Replica to its node first
            leader.round(3)
        assert "" == cell.node_of(name)
    else:
        with pytest.raises(PreconditionError, match="deallocate it"):
            leader.giving.place("v", name, SECONDS)
    assert ["n1", "n2"] == sorted(one.node for one in cell.entries())
