"""The calls that allocate, on a real gRPC server with mutual TLS: what is durable when, and what failures look
like."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

from controller.allocator.by_name import allocate
from controller.allocator.outcome import Allotment, Obstacle
from controller.errors import NotReadyError, TooManyReadsError
from controller.model.longhorn import BackingImage, Volume
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.server import THREADS
from controller.rpc.wire import MOST_REFUSALS, refusals_of
from controller.rules.reasons import Reason, Rejection
from tests.fakes.builders import GIB, replica, volume
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient, NoRoomError
from tests.unit.rpc.leaders import DiskScene, FakeRecord, Leader, Reply, show


def test_a_replica_is_on_record_when_its_caller_hears_of_it(scene: DiskScene) -> None:
    leader, record, client = scene
    show(leader, "v", 60)
    reply = client.schedule_replica("v", "v-r-1")
    wanted = pb.Allocation(name="v-r-1", node="n1", disk="d1", disk_uuid="n1-d1", size_bytes=60 * GIB)
    assert (wanted, False) == (reply.allocation, reply.already_allocated)
    assert 60 * GIB == record.bytes_on("n1")
    again = client.schedule_replica("v", "v-r-1")
    assert (wanted, True) == (again.allocation, again.already_allocated)
    assert 60 * GIB == record.bytes_on("n1")
    assert ["allocated", "already-allocated"] == leader.calls.outcomes


def test_no_room_comes_with_what_is_missing_where(scene: DiskScene) -> None:
    leader, record, client = scene
    leader.cluster.add_nodes(**{f"n{number}": 50 for number in range(30)})
    show(leader, "v", 60)
    with pytest.raises(NoRoomError) as raised:
        client.schedule_replica("v", "v-r-1")
    refusals = raised.value.refusals
    assert (60 * GIB, MOST_REFUSALS, 10) == (refusals.size_bytes, len(refusals.refusals), refusals.more)
    assert {(pb.DiskRefusal.INSUFFICIENT_STORAGE, 10 * GIB)} == {
        (one.reason, one.missing_bytes) for one in refusals.refusals
    }
    assert raised.value.details.startswith("no disk takes it: n0 d1: ") and raised.value.details.endswith("; 29 more")
    assert 0 == record.commits


def test_a_long_message_is_cut_for_the_metadata() -> None:
    obstacle = Obstacle("n1", "d1", 1, Rejection(Reason.TOO_FULL, "x" * 201))
    assert ["x" * 197 + "..."] == [one.message for one in refusals_of([obstacle], 1).refusals]


def test_what_the_object_itself_does_not_allow_is_another_code_than_no_room(scene: DiskScene) -> None:
    """The metadata have the reason with either."""
    leader, _, client = scene
    show(leader, "w", 6, on="n1")
    with pytest.raises(NoRoomError) as no_room:
        client.expand_volume("w", 9000 * GIB)
    assert [pb.DiskRefusal.PHYSICAL_SPACE] == [one.reason for one in no_room.value.refusals.refusals]
    facts = volume("w", 6, locality="disabled")
    leader.cluster.allocator.observe_volume("w", replace(facts, data_source="vol://x", clone_state="failed"))
    with pytest.raises(CallFailedError, match=r"^FAILED_PRECONDITION: w: its clone has failed$") as failed:
        client.expand_volume("w", 8 * GIB)
    assert isinstance(failed.value.__cause__, grpc.RpcError)
    metadata: Any = failed.value.__cause__.trailing_metadata()  # the stubs have no pairs
    ((_, refusals),) = metadata
    assert [pb.DiskRefusal.CLONE_FAILED] == [one.reason for one in pb.DiskRefusals.FromString(refusals).refusals]
    assert ["no-room", "precondition"] == leader.calls.outcomes
    with pytest.raises(NoRoomError, match="the volume has no failed replica that could come back"):
        client.reuse_failed_replica("w")


def test_a_record_without_a_place_for_more_is_another_code_than_no_room(
    scene: DiskScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _, client = scene
    monkeypatch.setattr(allocate, "MAX_ENTRIES", 2)
    show(leader, "v", 60)
    for number in range(2):
        leader.cluster.allocator.observe_replica(f"r{number}", replica(f"r{number}", f"v{number}", 0, on="n1"))
    with pytest.raises(CallFailedError, match=r"^FAILED_PRECONDITION: .* no place for more than 10000 replicas on n1"):
        client.schedule_replica("v", "v-r-1")
    assert ["precondition"] == leader.calls.outcomes


def test_figures_beyond_what_a_message_takes_are_answered_all_the_same(scene: DiskScene) -> None:
    """An object's figures may be as large as a number there can be."""
    leader, _, client = scene
    show(leader, "v", 60)
    show(leader, "w", 6, on="n1")
    most = 2**63 - 1
    for name in ("a", "b"):
        leader.cluster.allocator.observe_replica(name, replace(replica(name, "x", on="n1"), size_bytes=most))
    with pytest.raises(NoRoomError) as raised:
        client.schedule_replica("v", "v-r-1")
    assert [most] == [one.missing_bytes for one in raised.value.refusals.refusals]
    assert [most] == [one.missing_bytes for one in client.find_disk_candidates("v", "v-r-1").refusals]
    held = leader.ask(pb.HoldExpansionRequest(volume_name="w", size_bytes=most))
    assert Reply.REFUSED == held.verdict


def test_a_smaller_expansion_that_is_written_later_takes_nothing_from_a_larger_one(scene: DiskScene) -> None:
    leader, record, client = scene
    show(leader, "v", 10, on="n1")
    commit = record.commit

    def overtaken(nodes: Collection[str], deadline: float) -> None:
        record.commit = commit  # type: ignore[method-assign]
        client.expand_volume("v", 30 * GIB)
        commit(nodes, deadline)

    record.commit = overtaken  # type: ignore[method-assign]
    client.expand_volume("v", 20 * GIB)
    assert 30 * GIB == record.bytes_on("n1")
    room = leader.cluster.allocator._world.room("n1")
    assert room is not None
    assert 70 * GIB == room.disks[0].free_bytes


def test_a_volume_grows_and_shrinks_with_its_replicas(scene: DiskScene) -> None:
    leader, record, client = scene
    leader.cluster.add_nodes(n1=100, n2=100)
    leader.cluster.allocator.observe_volume("v", volume("v", 40, locality="disabled", replica_count=2))
    for number in (1, 2):
        leader.cluster.allocator.observe_replica(f"v-r-{number}", replica(f"v-r-{number}", "v", 40))
        client.schedule_replica("v", f"v-r-{number}")
    reply = client.expand_volume("v", 90 * GIB - 5)
    assert (90 * GIB, False) == (reply.size_bytes, reply.already_allocated)
    assert ["n1", "n2"] == sorted(one.node for one in reply.allocations)
    assert (90 * GIB, 90 * GIB, 3) == (record.bytes_on("n1"), record.bytes_on("n2"), record.commits)
    assert client.expand_volume("v", 90 * GIB).already_allocated
    with pytest.raises(NoRoomError):
        client.expand_volume("v", 120 * GIB)
    leader.cluster.allocator.observe_replica("v-r-2", None)
    assert [1, 0] == [len(client.deallocate_replica("v-r-2").freed) for _ in range(2)]
    assert 90 * GIB == record.bytes_on("n1") + record.bytes_on("n2")


def test_nothing_is_decided_that_could_not_be_told_in_time(scene: DiskScene) -> None:
    leader, _, client = scene
    show(leader, "v", 60)
    show(leader, "w", 60)
    with pytest.raises(CallFailedError):
        client.schedule_replica("v", "v-r-1", seconds=0.09)
    assert "n1" == client.schedule_replica("w", "w-r-1").allocation.node


def test_what_still_lies_there_is_not_freed(scene: DiskScene) -> None:
    leader, record, client = scene
    show(leader, "v", 60)
    client.schedule_replica("v", "v-r-1")
    show(leader, "v", 60, on="n1")
    leader.reads.objects["replica", "v-r-1"] = replica("v-r-1", "v", 60, on="n1")
    with pytest.raises(CallFailedError, match=r"^FAILED_PRECONDITION: .*still exists on node n1"):
        client.deallocate_replica("v-r-1")
    del leader.reads.objects["replica", "v-r-1"]  # gone, and our watch has not told yet
    assert 1 == len(client.deallocate_replica("v-r-1").freed)
    assert 0 == record.bytes_on("n1")


def show_strict(leader: Leader) -> Volume:
    """A strict-local volume that is attached to n1, and a replica without a disk; the volume as it moves to n2."""
    leader.cluster.add_nodes(n1=100, n2=100)
    at_n1, at_n2 = (volume("v", 60, locality="strict-local", attached_to=name) for name in ("n1", "n2"))
    leader.cluster.allocator.observe_volume("v", at_n1)
    leader.cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 60))
    return at_n2


def test_nothing_is_freed_that_could_not_be_looked_at(scene: DiskScene) -> None:
    """What was placed a moment ago, in a burst of calls."""
    leader, record, client = scene
    at_n2 = show_strict(leader)
    leader.cluster.allocator.observe_backing_image("i", BackingImage("i", real_size_bytes=20 * GIB))
    client.schedule_replica("v", "v-r-1")
    disk = client.schedule_backing_image("i").allocation.disk_uuid
    leader.cluster.allocator.observe_volume("v", at_n2)
    leader.reads.fails[""] = TooManyReadsError("20 reads per second")
    for free, words in (
        (client.deallocate_replica, ("v-r-1",)),
        (client.deallocate_backing_image, ("i", disk)),
        (client.schedule_replica, ("v", "v-r-1")),  # which has to be on another node by now
    ):
        with pytest.raises(CallFailedError, match=r"^UNAVAILABLE: .*not known yet: 20 reads per second"):
            free(*words)
    assert 80 * GIB == record.bytes_on("n1") + record.bytes_on("n2")


@pytest.mark.parametrize("locality", ["strict-local", "best-effort"])
def test_a_volume_that_was_attached_a_moment_ago_gets_its_disk_there(
    leader: Leader, record: FakeRecord, client: DiskSchedulerClient, locality: str
) -> None:
    leader.cluster.add_nodes(n1=100, n2=200)
    leader.cluster.allocator.observe_volume("v", volume("v", 60, locality=locality))
    leader.cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 60))
    leader.reads.objects["volume", "v"] = volume("v", 60, locality=locality, attached_to="n1")
    assert "n1" == client.schedule_replica("v", "v-r-1").allocation.node
    assert {"n1": 60 * GIB} == {name: record.bytes_on(name) for name in record.records}


def test_a_replica_that_took_its_disk_a_moment_ago_is_told_where_it_lies(scene: DiskScene) -> None:
    """Its node has closed meanwhile, and our watch lags."""
    leader, _, client = scene
    show(leader, "v", 60)
    client.schedule_replica("v", "v-r-1")
    leader.cluster.put_node(replace(leader.cluster.allocator._world.nodes["n1"], schedulable=False))
    leader.reads.objects.update({("volume", "v"): volume("v", 60, locality="disabled")})
    leader.reads.objects["replica", "v-r-1"] = replica("v-r-1", "v", 60)
    with pytest.raises(CallFailedError, match=r"^FAILED_PRECONDITION: .*n1: condition Schedulable is not True"):
        client.schedule_replica("v", "v-r-1")
    leader.reads.objects["replica", "v-r-1"] = replica("v-r-1", "v", 60, on="n1")
    assert client.schedule_replica("v", "v-r-1").already_allocated


def test_copies_of_images(scene: DiskScene) -> None:
    leader, record, client = scene
    image = BackingImage("i", real_size_bytes=20 * GIB)
    leader.cluster.allocator.observe_backing_image("i", image)
    leader.reads.objects["backing_image", "i"] = image
    assert "n1-d1" == client.schedule_backing_image("i").allocation.disk_uuid
    assert client.schedule_backing_image("i").already_allocated
    shown = replace(image, disk_uuids=frozenset({"n1-d1"}))
    leader.cluster.allocator.observe_backing_image("i", shown)
    leader.reads.objects["backing_image", "i"] = shown
    with pytest.raises(CallFailedError, match="still names disk 'n1-d1'"):
        client.deallocate_backing_image("i", "n1-d1")
    leader.reads.objects["backing_image", "i"] = replace(image, status_disk_uuids=frozenset({"n1-d1"}))
    with pytest.raises(CallFailedError, match="still names disk 'n1-d1'"):
        client.deallocate_backing_image("i", "n1-d1")
    leader.reads.objects["backing_image", "i"] = image
    assert 1 == len(client.deallocate_backing_image("i", "n1-d1").freed)
    assert 0 == record.bytes_on("n1")


def test_a_replica_that_comes_late_is_read(scene: DiskScene) -> None:
    leader, _, client = scene
    leader.reads.objects["volume", "v"] = volume("v", 60, locality="disabled")
    leader.reads.objects["replica", "v-r-1"] = replica("v-r-1", "v", 60)
    assert "n1" == client.schedule_replica("v", "v-r-1").allocation.node
    with pytest.raises(CallFailedError, match=r"^NOT_FOUND: .*no replica 'v-r-2'"):
        client.schedule_replica("v", "v-r-2")
    with pytest.raises(CallFailedError, match="is of volume 'v', not of 'w'"):
        client.schedule_replica("w", "v-r-1")


def test_without_a_record_or_the_authority_nothing_is_given(leader: Leader, client: DiskSchedulerClient) -> None:
    leader.cluster.add_nodes(n1=100)
    show(leader, "v", 60)
    with pytest.raises(CallFailedError, match=r"^FAILED_PRECONDITION: .*has no record of allocations"):
        client.schedule_replica("v", "v-r-1")
    leader.record = FakeRecord(leader)
    with pytest.raises(CallFailedError, match="allocation-authority is longhorn"):
        client.schedule_replica("v", "v-r-1")


def test_callers_that_wait_keep_no_thread_from_the_webhook(
    leader: Leader, record: FakeRecord, client: DiskSchedulerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are threads."""
    entered, done = threading.Semaphore(0), threading.Event()

    def wait(*_: object, **__: object) -> Allotment:
        entered.release()
        done.wait(60)
        raise NotReadyError("at the end")

    monkeypatch.setattr(leader.cluster.allocator.allocations, "place_replica", wait)
    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(client.schedule_replica, "v", f"v-r-{number}", seconds=60) for number in range(THREADS)]
        try:
            assert all(entered.acquire(timeout=30) for _ in calls)
            assert Reply.NOT_CHECKED == leader.ask(pb.HoldExpansionRequest(volume_name="v", size_bytes=1)).verdict
        finally:
            done.set()
        assert all(isinstance(call.exception(), CallFailedError) for call in calls)
