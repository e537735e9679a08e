"""Which of the disks that a replica was given is its place, and whether that may be told once more: several entries, a
leader before, rules that changed since."""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocator.verbs.decisions import DOUBT_SECONDS
from controller.errors import NotReadyError, PreconditionError
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_REPLICAS, LONGHORN_VOLUMES
from controller.model.allocations import Purpose
from controller.rpc import disk_scheduler_pb2 as pb
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader, change_node
from tests.unit.rpc.late import (
    SECONDS,
    Late,
    arrives,
    copy_image,
    expand,
    free,
    free_copy,
    free_gib,
    let_pass,
    put_image,
    schedule,
    succeeds,
)

LEADERS = pytest.mark.parametrize("is_next", [False, True], ids=["the same leader", "the next leader"])


# Two entries


def given_twice(*, is_next: bool, image: str = "", **spec: Any) -> tuple[ReplicaCell, GivingLeader, str]:
    """A replica of "v" that was told n2, and that a former leader's late write gave n1."""
    cell = ReplicaCell(n1=100, n2=130)
    if image:
        put_image(cell, 40)
        spec["backingImage"] = image
    cell.put_volume("v", 10, **spec)
    name = cell.put_replica("v", backingImage=image)
    leader, told = GivingLeader(cell, 2), list[str]()
    late = Late(leader, lambda: told.append(leader.giving.place("v", name, SECONDS).allocations[0].node))
    if not is_next:
        arrives(cell, name, 10)
        leader.see()
    late.let_go()
    assert ["n2"] == told
    if is_next:
        arrives(cell, name, 10)
        leader.checks.is_leading = False
        leader = GivingLeader(cell, 3)
        leader.cluster.allocator.begin_term(has_predecessor=False)
    return cell, leader.see(), name


@LEADERS
def test_of_two_places_the_one_that_was_told_last_is_told_again(is_next: bool) -> None:
    """The next leader cannot know."""
    cell, leader, name = given_twice(is_next=is_next)
    if is_next:
        with pytest.raises(PreconditionError, match="given several disks, and which one was told last is not known"):
            leader.giving.place("v", name, SECONDS)
    else:
        assert "n2" == leader.giving.place("v", name, SECONDS).allocations[0].node
    assert ["n1", "n2"] == sorted(one.node for one in cell.entries())


@LEADERS
def test_a_volume_does_not_grow_while_its_replica_may_be_at_either(is_next: bool) -> None:
    cell, leader, _ = given_twice(is_next=is_next)
    other = cell.add("w", 90)
    assert "n2" == leader.see().giving.place("w", other, SECONDS).allocations[0].node
    with pytest.raises(PreconditionError, match="was given several disks; deallocate it"):
        expand(leader.see(), "v", 60)


@LEADERS
def test_another_replica_does_not_go_to_its_node(is_next: bool) -> None:
    cell, leader, _ = given_twice(is_next=is_next, numberOfReplicas=2)
    other = cell.put_replica("v", 2)
    leader.see()
    if is_next:
        with pytest.raises(NotReadyError, match="'v-r-1' of the same volume was given several disks"):
            leader.giving.place("v", other, SECONDS)
        return
    assert ["n1"] == [one.node for one in leader.giving.place("v", other, SECONDS).allocations]


@LEADERS
def test_where_replicas_share_nodes_it_goes_to_any(is_next: bool) -> None:
    cell, leader, _ = given_twice(is_next=is_next, numberOfReplicas=2, replicaSoftAntiAffinity="enabled")
    other = cell.put_replica("v", 2)
    assert leader.see().giving.place("v", other, SECONDS).allocations


@LEADERS
def test_its_image_comes_along_to_either(is_next: bool) -> None:
    _, leader, _ = given_twice(is_next=is_next, image="i")
    assert [50, 80] == [free_gib(leader, "n1"), free_gib(leader, "n2")]


# What a leader before has written


@pytest.mark.parametrize("is_image", [False, True], ids=["replica", "image"])
def test_what_a_former_leader_gave_without_room_goes_when_it_is_deallocated(is_image: bool) -> None:
    """It never had room beside the pod's, and nobody was told of it."""
    cell = ReplicaCell(n1=100, n2=90)
    put_image(cell, 60)
    cell.put_volume("v", 60, dataLocality="best-effort")
    name = cell.put_replica("v", gib=60)
    leader = succeeds(cell)
    assert {"n1"} == leader.cluster.ask("pod", 60, "n1")
    arrives(cell, "i" if is_image else name, 60, purpose=Purpose.BACKING_IMAGE if is_image else Purpose.REPLICA)
    leader.see()
    with pytest.raises(NotReadyError, match="try again"):  # the leader before may have promised more
        copy_image(leader) if is_image else leader.giving.place("v", name, SECONDS)
    leader.cluster.allocator._world.allocated.has_former = False
    with pytest.raises(PreconditionError, match="to have another one chosen, deallocate it"):
        copy_image(leader) if is_image else leader.giving.place("v", name, SECONDS)
    if is_image:
        free_copy(leader)
        assert "allocated" == copy_image(leader.see()).outcome
    else:
        free(leader, name)
        assert "n2" == leader.see().giving.place("v", name, SECONDS).allocations[0].node


def test_nor_is_it_told_where_the_anti_affinity_keeps_it_from_there() -> None:
    cell = ReplicaCell(n1=100, n2=200)
    change_node(cell, "n1", zone="a")
    change_node(cell, "n2", zone="a")
    cell.put_volume("v", 10, numberOfReplicas=2, replicaZoneSoftAntiAffinity="disabled")
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    leader = succeeds(cell)
    assert "n2" == leader.giving.place("v", second, SECONDS).allocations[0].node
    assert not leader.giving.place("v", first, SECONDS).allocations
    arrives(cell, first, 10)
    with pytest.raises(PreconditionError, match="AntiAffinity"):
        leader.see().giving.place("v", first, SECONDS)
    assert "n2" == leader.giving.place("v", second, SECONDS).allocations[0].node


def test_what_this_leader_has_given_may_be_freed_at_once() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = succeeds(cell)
    leader.finds = True
    assert "n1" == schedule(leader, "v", name).node
    free(leader, name)
    assert {} == cell.on_record()


# What was freed when somebody was told


def test_what_was_to_be_freed_stays_where_somebody_was_told_of_it_since() -> None:
    """A strict-local volume is attached elsewhere for a moment, and a call for it takes long."""
    cell = ReplicaCell(n1=100, n2=50)
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n1")
    name, other = cell.put_replica("v", gib=60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert "n1" == schedule(leader, "v", name).node
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n2")
    leader.see()
    late = Late(leader, lambda: leader.giving.place("v", name, SECONDS))
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n1")
    assert "n1" == schedule(leader.see(), "v", name).node
    late.let_go()
    assert not leader.see().giving.place("w", other, SECONDS).allocations
    assert {name: "n1"} == cell.on_record()


def test_a_replica_of_a_former_life_is_not_told_where_it_lay_without_a_write() -> None:
    """Our stores show it yet, while somebody frees what it had."""
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 60)
    name, other = cell.put_replica("v", gib=60, nodeID="n1", diskID="n1-d1"), cell.add("w", 60)
    leader = GivingLeader(cell)
    arrives(cell, name, 60)
    leader.see()
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, name)
    late = Late(leader, lambda: free(leader, name))
    cell.put_replica("v", gib=60)
    assert "n1" == schedule(leader, "v", name).node
    late.let_go()
    assert not leader.see().giving.place("w", other, SECONDS).allocations
    assert {name: "n1"} == cell.on_record()


# Failed ones


def test_where_a_failed_replica_comes_back_no_other_one_is_placed() -> None:
    cell = ReplicaCell(n1=100, n2=400)
    status = {"robustness": "degraded", "state": "attached", "lastDegradedAt": "2020-01-01T00:00:00Z"}
    cell.put_volume("v", 10, numberOfReplicas=2, nodeID="n1", status=status)
    cell.put_replica("v", 1, nodeID="n1", diskID="n1-d1", healthyAt="2020-01-01T00:00:00Z")
    lost = cell.put_replica("v", 2, nodeID="n2", diskID="n2-d1", healthyAt="2019-01-01T00:00:00Z")
    cell.change(lost, failedAt="2020-01-01T00:00:00Z")
    new = cell.put_replica("v", 3)
    leader = GivingLeader(cell)
    for _ in range(2):
        served = leader.giving.reuse_failed_replica(pb.ReuseFailedReplicaRequest(volume_name="v"), SECONDS)
        assert served.reply is not None
        assert "v-r-2" == served.reply.allocation.name
    assert not leader.giving.place("v", new, SECONDS).allocations
    let_pass(leader, DOUBT_SECONDS)
    assert "n2" == leader.giving.place("v", new, SECONDS).allocations[0].node


# What it needs by now


def test_a_copy_of_an_image_is_not_told_a_node_that_does_not_suit_it_any_more() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    change_node(cell, "n2", tags=("ssd",))
    put_image(cell, 10)
    leader = GivingLeader(cell)
    assert "allocated" == copy_image(leader).outcome
    raw = cell.api.get(LONGHORN_BACKING_IMAGES, NAMESPACE, "i")
    raw["spec"]["nodeSelector"] = ["ssd"]
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, raw)
    with pytest.raises(PreconditionError, match="takes no copies now"):
        copy_image(leader.see())
    free_copy(leader)
    served = copy_image(leader.see())
    assert served.reply is not None
    assert "n2" == served.reply.allocation.node


def test_a_replica_that_was_made_again_is_not_told_a_disk_that_does_not_suit_it() -> None:
    cell = ReplicaCell(n1=100, n2=50)
    change_node(cell, "n2", tags=("ssd",))
    name = cell.add("v", 20)
    leader = GivingLeader(cell)
    assert "n1" == schedule(leader, "v", name).node
    for kind, gone in ((LONGHORN_REPLICAS, name), (LONGHORN_VOLUMES, "v")):
        cell.api.delete(kind, NAMESPACE, gone)
    leader.see()
    cell.put_volume("v", 20, nodeSelector=["ssd"])
    cell.put_replica("v", gib=20)
    with pytest.raises(PreconditionError, match=r"n1: .*tags"):
        schedule(leader.see(), "v", name)
    free(leader, name)
    assert "n2" == schedule(leader.see(), "v", name).node
