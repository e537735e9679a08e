"""What is given nothing for now, although there may be room: where the record takes no more, or a write was refused of
late, or was not answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from controller.allocator.outcome import Obstacle
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import NotReadyError, RefusedWriteError
from controller.model.allocations import Purpose

PASSED_SECONDS: Final = 60.0  # that a node is passed by after its record refused a write


class _Chosen(Protocol):
    @property
    def node(self) -> str: ...


Choice = TypeVar("Choice", bound=_Chosen)
Rest = TypeVar("Rest")


class Closed:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._world, self._clock = world, clock
        self._refused: dict[str, tuple[float, str]] = {}  # by node, when and why its record refused a write last

    def of(self, purpose: Purpose) -> dict[str, str]:
        """Nodes by name whose record cannot be read, disks by UUID of which it has no place for more, and why."""
        allocated = self._world.allocated
        nodes = {node: allocated.unreadable(node) for node in allocated.problems}
        return nodes | allocated.entries.full(purpose)

    def refused(self, error: RefusedWriteError) -> None:
        self._refused[error.node] = self._clock.now(), str(error)

    def find(
        self, closed: Mapping[str, str], find: Callable[[Mapping[str, str]], tuple[Choice | None, Rest]]
    ) -> tuple[Choice | None, Rest]:
        """What `find` chooses beside what is `closed`, on a node that refused no write of late. NotReadyError where
        only such a one would do."""
        now = self._clock.now()
        self._refused = {node: row for node, row in self._refused.items() if now - row[0] < PASSED_SECONDS}
        refusing = {node: why for node, (_, why) in self._refused.items()}
        found, rest = find({**closed, **refusing})
        if found is None and refusing:
            found, rest = find(closed)
            if found is not None:
                raise NotReadyError(f"no other node takes it, and {refusing.get(found.node)}; try again")
        return found, rest


def in_doubt(world: World, obstacles: Iterable[Obstacle]) -> Obstacle | None:
    """The first that may be one only because a write of ours was not answered. Costs: a look at the decisions that are
    not on record."""
    doubted = world.allocated.doubted()
    return next((one for one in obstacles if 0 < one.missing_bytes <= doubted[one.node, one.disk]), None)
