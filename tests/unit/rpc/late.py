"""What comes late to a leader: a call that has decided and not written yet, and a write whose answer was lost, or that
arrives when nobody expects it any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from controller.errors import ForbiddenError, NotReadyError, UnavailableError
from controller.model.allocations import Allocation, Purpose
from controller.record.backends import NodeDiskAllocationBackend
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GIVES, SECONDS, GivingLeader

LATE = "late"
BY_WHAT = pytest.mark.parametrize("what", GIVES)


def start(call: Callable[[], object], name: str = "caller") -> threading.Thread:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


class Late:
    """A call that has decided, and whose thread goes on with `let_go`. `told`: what it was told then."""

    def __init__(self, leader: GivingLeader, call: Callable[[], object]) -> None:
        self._at, self._go = threading.Event(), threading.Event()
        self.told: object = None
        self.error = ""
        commit = leader.writer.commit

        def wait_and_commit(nodes: Collection[str], deadline: float) -> None:
            if threading.current_thread().name == LATE:
                self._at.set()
                assert self._go.wait(SECONDS)
            commit(nodes, deadline)

        def run() -> None:
            try:
                self.told = call()
            except Exception as error:
                self.error = str(error)

        leader.writer.commit = wait_and_commit  # type: ignore[method-assign]
        self._thread = start(run, LATE)
        assert self._at.wait(SECONDS)

    def let_go(self) -> None:
        self._go.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


# Writes


def arrives(cell: ReplicaCell, name: str, gib: int, *, node: str = "n1", purpose: Purpose = Purpose.REPLICA) -> None:
    """On record, by a former leader or by hand."""
    backend = NodeDiskAllocationBackend(cell.api, NAMESPACE)
    there = backend.read(node)
    one = Allocation(purpose, name, node, f"{node}-d1", gib * GIB)
    backend.write(there, sorted([*there.record.allocations, one]))


def lose_answers(leader: GivingLeader) -> Callable[[], None]:
    """A write arrives, its answer does not, and nothing can be read after it, until the function that is returned."""
    backend: Any = leader.writer.backend
    write, read, is_lost = backend.write, backend.read, False

    def lose(*arguments: Any) -> None:
        nonlocal is_lost
        if not is_lost:
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
    backend: Any = leader.writer.backend
    write, late = backend.write, list[Callable[[], object]]()

    def lose(*arguments: Any) -> None:
        backend.write = write
        late.append(partial(write, *arguments))
        leader.cell.clock.advance(SECONDS)
        raise UnavailableError("no answer")

    backend.write = lose
    return late


def fail(leader: GivingLeader, call: Callable[[], object]) -> None:
    """The API server is away for as long as that call takes."""
    leader.cell.api.fail_with(UnavailableError("away"))
    with pytest.raises(NotReadyError):
        call()
    leader.cell.api.work()


def without_answer(leader: GivingLeader, call: Callable[[], object], *, arrives: bool) -> None:
    """That call's write arrives, or is lost; its caller hears of neither."""
    if not arrives:
        fail(leader, call)
        return
    mend = lose_answers(leader)
    with pytest.raises(NotReadyError):
        call()
    mend()


def refuse(leader: GivingLeader, node: str) -> Callable[[], None]:
    """Writes of that node's record, until the function that is returned."""
    backend: Any = leader.writer.backend
    write = backend.write

    def forbid(stored: Any, *more: Any) -> Any:
        if stored.record.node == node:
            raise ForbiddenError("403: no")
        return write(stored, *more)

    def mend() -> None:
        backend.write = write

    backend.write = forbid
    return mend
