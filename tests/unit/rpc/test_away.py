"""A Longhorn Node that is away for a moment: what was given there before counts on, and is not taken for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocator.verbs.decisions import DOUBT_SECONDS
from controller.allocator.verbs.find import DiskQuestion
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import NotReadyError, PreconditionError
from controller.kube.resources import LONGHORN_NODES
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader, change_node
from tests.unit.rpc.late import (
    SECONDS,
    Late,
    arrives,
    copy_image,
    expand,
    let_pass,
    put_image,
    refuse,
)


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


def node_of(leader: GivingLeader, volume: str, replica: str) -> str:
    (one,) = leader.see().giving.place(volume, replica, SECONDS).allocations
    return one.node


def with_two_replicas(n1: int, n2: int) -> tuple[GivingLeader, str, str]:
    cell = ReplicaCell(n1=n1, n2=n2)
    cell.put_volume("v", 10, numberOfReplicas=2)
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    return GivingLeader(cell), first, second


def test_a_volume_does_not_grow_while_a_disk_of_it_is_away() -> None:
    leader, first, second = with_two_replicas(n1=200, n2=150)
    assert ["n1", "n2"] == [node_of(leader, "v", name) for name in (first, second)]
    show = hide(leader.see(), "n1")
    with pytest.raises(PreconditionError, match="was given a disk that no node shows now"):
        expand(leader, "v", 60)
    show()
    assert "allocated" == expand(leader, "v", 60).outcome


def test_a_further_replica_is_as_large_as_its_volume_was_told_to_become() -> None:
    leader, first, second = with_two_replicas(n1=150, n2=100)
    assert "n1" == node_of(leader, "v", first)
    assert "allocated" == expand(leader.see(), "v", 60).outcome
    hide(leader.see(), "n1")
    (given,) = leader.giving.place("v", second, SECONDS).allocations
    assert ("n2", 60 * GIB) == (given.node, given.size_bytes)


def test_a_free_of_a_place_elsewhere_leaves_what_is_away() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n1")
    name = cell.put_replica("v", gib=60)
    leader = GivingLeader(cell)
    assert "n1" == node_of(leader, "v", name)
    show = hide(leader, "n1")
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n2")
    assert "n2" == node_of(leader, "v", name)
    hide(leader.see(), "n2")
    show()
    assert not leader.giving.place("v", name, SECONDS).allocations
    assert {name: "n2"} == cell.on_record()


def test_the_place_that_was_told_last_is_told_after_a_growth_that_came_to_nothing() -> None:
    """It was given room on its node, and taken back."""
    cell = ReplicaCell(n1=200, n2=150, n3=100)
    cell.put_volume("v", 10, numberOfReplicas=2)
    first = cell.put_replica("v", 1)
    cell.put_replica("v", 2, nodeID="n3", diskID="n3-d1")
    leader = GivingLeader(cell)
    assert "n1" == node_of(leader, "v", first)
    show = hide(leader.see(), "n1")
    cell.clock.advance(1)
    assert "n2" == node_of(leader, "v", first)
    show()
    mend = refuse(leader, "n3")
    with pytest.raises(PreconditionError, match="several disks"):
        expand(leader, "v", 60)
    mend()
    assert "n2" == node_of(leader, "v", first)


def test_after_a_growth_that_another_node_refused_a_place_is_told_as_before() -> None:
    cell = ReplicaCell(n1=100, n3=100)
    cell.put_volume("v", 10, numberOfReplicas=2)
    first = cell.put_replica("v", 1)
    cell.put_replica("v", 2, nodeID="n3", diskID="n3-d1")
    leader = GivingLeader(cell)
    assert "n1" == node_of(leader, "v", first)
    mend = refuse(leader, "n3")
    with pytest.raises(NotReadyError):
        expand(leader.see(), "v", 60)
    mend()
    assert leader.see().cluster.allocator._world.allocated.is_ours(leader.cell.entries()[0])
    assert "n1" == node_of(leader, "v", first)


def test_nor_is_its_growth_admitted() -> None:
    leader, first, second = with_two_replicas(n1=200, n2=150)
    assert ["n1", "n2"] == [node_of(leader, "v", name) for name in (first, second)]
    show = hide(leader.see(), "n1")
    request = GrowthRequest("v", 60 * GIB)
    assert GrowthVerdict.TRY_AGAIN is leader.cluster.allocator.expansions.hold(request).verdict
    show()
    assert GrowthVerdict.ADMITTED is leader.cluster.allocator.expansions.hold(request).verdict


def test_what_a_leader_before_gave_a_further_replica_is_told_as_large() -> None:
    leader, first, second = with_two_replicas(n1=150, n2=100)
    let_pass(leader, DOUBT_SECONDS)
    assert "n1" == node_of(leader, "v", first)
    assert "allocated" == expand(leader.see(), "v", 60).outcome
    arrives(leader.cell, second, 10, node="n2")
    hide(leader.see(), "n1")
    (given,) = leader.giving.place("v", second, SECONDS).allocations
    assert 60 * GIB == given.size_bytes


def test_where_there_is_no_room_for_one_as_large_that_is_said() -> None:
    leader, first, second = with_two_replicas(n1=150, n2=50)
    assert "n1" == node_of(leader, "v", first)
    assert "allocated" == expand(leader.see(), "v", 60).outcome
    hide(leader.see(), "n1")
    given = leader.giving.place("v", second, SECONDS)
    assert ((), 60 * GIB) == (given.allocations, given.size_bytes)
    assert given.obstacles
    found = leader.cluster.allocator.disks.find(DiskQuestion("v", second), SECONDS)
    assert ((), 60 * GIB) == (found.disks, found.size_bytes)


def test_in_a_zone_of_a_replica_that_is_away_it_is_given_none() -> None:
    cell = ReplicaCell(n1=150, n2=50, n3=100)
    for node, zone in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        change_node(cell, node, zone=zone)
    cell.put_volume("v", 10, numberOfReplicas=2, replicaZoneSoftAntiAffinity="disabled")
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    leader = GivingLeader(cell)
    assert "n1" == node_of(leader, "v", first)
    show = hide(leader, "n1")
    with pytest.raises(NotReadyError, match="was given a disk that no node shows now"):
        leader.giving.place("v", second, SECONDS)
    show()
    assert "n2" == node_of(leader, "v", second)


def test_the_place_of_the_last_answer_counts_whatever_was_decided_since() -> None:
    """The image comes along to there."""
    cell = ReplicaCell(n1=150, n2=100)
    name = cell.add("v", 10)
    leader, told = GivingLeader(cell), list[str]()
    late = Late(leader, lambda: told.append(leader.giving.place("v", name, SECONDS).allocations[0].node))
    show = hide(leader, "n1")
    assert "n2" == node_of(leader, "v", name)
    show()
    late.let_go()
    assert ["n1"] == told
    joined = leader.see().cluster.allocator._world.placed.get(name)
    assert joined is not None
    assert "n1" == joined.node
    assert "n1" == node_of(leader, "v", name)


def test_another_replica_waits_while_its_disk_alone_is_away() -> None:
    """On a node with two."""
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 10, numberOfReplicas=2)
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    leader = GivingLeader(cell)
    assert "n1" == node_of(leader, "v", first)
    raw = cell.api.get(LONGHORN_NODES, NAMESPACE, "n1")
    status = raw["status"]["diskStatus"]["d1"]
    other = {**raw["status"]["diskStatus"], "d1": {**status, "diskUUID": "other"}}
    cell.api.put(LONGHORN_NODES, NAMESPACE, {**raw, "status": {**raw["status"], "diskStatus": other}})
    with pytest.raises(NotReadyError, match="was given a disk that no node shows now"):
        node_of(leader, "v", second)


def test_another_replica_waits_while_it_is_not_known_which_answer_is_the_last() -> None:
    cell = ReplicaCell(n1=200, n2=150)
    cell.put_volume("v", 10, numberOfReplicas=2)
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: leader.giving.place("v", first, SECONDS))
    show = hide(leader.see(), "n1")
    assert "n2" == node_of(leader, "v", first)
    show()
    with pytest.raises(NotReadyError, match="was given several disks"):
        node_of(leader, "v", second)
    late.let_go()
    assert ("n1", "n2") == (node_of(leader, "v", first), node_of(leader, "v", second))


def test_the_copy_of_an_image_that_was_told_last_is_told_again() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    put_image(cell, 10)
    leader = GivingLeader(cell)
    places = []
    for _ in range(2):
        places.append(copied_to(leader))
        show = hide(leader, "n1")
        places.append(copied_to(leader))
        show()
    assert ["n1", "n2", "n2", "n2"] == places
    assert "n2" == copied_to(leader)


def copied_to(leader: GivingLeader) -> str:
    served = copy_image(leader.see())
    assert served.reply is not None
    node: str = served.reply.allocation.node
    return node
