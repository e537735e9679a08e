"""What comes late to a leader: a call that has decided and not written yet, a write whose answer was lost, and one
that a leader before has sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from controller.allocations.backends import NodeDiskAllocationBackend
from controller.errors import ClusterError, UnavailableError
from controller.kube.resources import LONGHORN_BACKING_IMAGES
from controller.model.allocations import Allocation, Purpose
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import Served
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader

LATE = "late"
SECONDS = 5.0


def free_gib(leader: GivingLeader, node: str = "n1") -> float:
    room = leader.cluster.allocator._world.room(node)
    assert room is not None
    return room.disks[0].free_bytes / GIB


def let_pass(leader: GivingLeader, seconds: float) -> None:
    leader.cell.clock.advance(seconds)
    leader.cluster.allocator.sweep()
    leader.see()


def succeeds(cell: ReplicaCell, term: int = 2) -> GivingLeader:
    """The leader after another one."""
    leader = GivingLeader(cell, term)
    leader.cluster.allocator.begin_term(has_predecessor=True)
    return leader


def switch(leader: GivingLeader, authority: str) -> None:
    allocator = leader.cluster.allocator
    leader.live = replace(leader.live, allocation_authority=authority)
    allocator.configure(leader.live, allocator._world.settings)


# Calls


def free(leader: GivingLeader, replica: str) -> None:
    leader.giving.deallocate_replica(pb.DeallocateReplicaRequest(replica_name=replica), SECONDS)


def schedule(leader: GivingLeader, volume: str, replica: str) -> pb.Allocation:
    request = pb.ScheduleReplicaRequest(volume_name=volume, replica_name=replica)
    served = leader.giving.schedule_replica(request, SECONDS)
    assert served.reply is not None
    allocation: pb.Allocation = served.reply.allocation
    return allocation


def expand(leader: GivingLeader, volume: str, gib: int) -> Served:
    return leader.giving.expand_volume(pb.ExpandVolumeRequest(volume_name=volume, size_bytes=gib * GIB), SECONDS)


def put_image(cell: ReplicaCell, gib: int) -> None:
    """Backing image "i", which is on no disk."""
    status = {"realSize": gib * GIB, "diskFileStatusMap": {}}
    raw = {"metadata": {"name": "i"}, "spec": {"diskFileSpecMap": {}}, "status": status}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, raw)


def copy_image(leader: GivingLeader) -> Served:
    return leader.giving.schedule_backing_image(pb.ScheduleBackingImageRequest(backing_image_name="i"), SECONDS)


def free_copy(leader: GivingLeader) -> None:
    request = pb.DeallocateBackingImageRequest(backing_image_name="i", disk_uuid="n1-d1")
    leader.giving.deallocate_backing_image(request, SECONDS)


def start(call: Callable[[], object], name: str = "caller") -> threading.Thread:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


class Late:
    """A call that has decided, and whose thread goes on with `let_go`."""

    def __init__(self, leader: GivingLeader, call: Callable[[], object]) -> None:
        self._at, self._go = threading.Event(), threading.Event()
        self.error = ""
        self.raised: Exception | None = None
        commit = leader.writer.commit

        def wait_and_commit(*changes: Any) -> None:
            if threading.current_thread().name == LATE:
                self._at.set()
                assert self._go.wait(SECONDS)
            commit(*changes)

        def run() -> None:
            try:
                call()
            except Exception as error:
                self.error, self.raised = str(error), error

        leader.writer.commit = wait_and_commit  # type: ignore[method-assign, assignment]
        self._thread = start(run, LATE)
        assert self._at.wait(SECONDS)

    def let_go(self) -> None:
        self._go.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


# Writes


def arrives(cell: ReplicaCell, name: str, gib: int, *, node: str = "n1", purpose: Purpose = Purpose.REPLICA) -> None:
    """On record, from a leader of the first term."""
    backend = NodeDiskAllocationBackend(cell.api, NAMESPACE)
    there = backend.read(node)
    one = Allocation(purpose, name, node, f"{node}-d1", gib * GIB)
    backend.write(there, [*there.record.allocations, one], 1)


def late_beside_a_pod(locality: str) -> tuple[ReplicaCell, GivingLeader, str]:
    """A pod was offered the room in which a leader before gave a detached volume's replica its place, and told nobody:
    nobody keeps room for such a volume before it is attached."""
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 60, dataLocality=locality)
    name = cell.put_replica("v", gib=60)
    leader = succeeds(cell)
    assert {"n1"} == leader.cluster.ask("pod", 60, "n1")
    arrives(cell, name, 60)
    return cell, leader.see(), name


def lose_answers(leader: GivingLeader) -> Callable[[], None]:
    """A write arrives, its answer does not, and nothing can be read after it, until the function that is returned."""
    backend: Any = leader.writer._backend
    write, read, is_lost = backend.write, backend.read, False

    def lose(*arguments: Any) -> None:
        nonlocal is_lost
        write(*arguments)
        is_lost = True
        raise UnavailableError("the answer was lost")

    def read_none(*arguments: Any) -> Any:
        if is_lost:
            raise UnavailableError("away")
        return read(*arguments)

    def mend() -> None:
        backend.write, backend.read = write, read

    backend.write, backend.read = lose, read_none
    return mend


def delay(leader: GivingLeader) -> list[Callable[[], object]]:
    """The next write is not answered in time, and arrives when it is called."""
    backend: Any = leader.writer._backend
    write, late = backend.write, list[Callable[[], object]]()

    def lose(*arguments: Any) -> None:
        backend.write = write
        late.append(partial(write, *arguments))
        leader.cell.clock.advance(SECONDS)
        raise UnavailableError("no answer")

    backend.write = lose
    return late


def refuse(leader: GivingLeader, node: str) -> Callable[[], None]:
    """Writes of that node's record, until the function that is returned."""
    backend: Any = leader.writer._backend
    write = backend.write

    def fail(stored: Any, *more: Any) -> Any:
        if stored.record.node == node:
            raise ClusterError("422: no")
        return write(stored, *more)

    def mend() -> None:
        backend.write = write

    backend.write = fail
    return mend


def overtake(leader: GivingLeader, other: Callable[[], object]) -> None:
    """The next write comes after another one, of which its writer knows nothing."""
    backend: Any = leader.writer._backend
    write = backend.write

    def write_after(*arguments: Any) -> Any:
        backend.write = write
        other()
        return write(*arguments)

    backend.write = write_after
