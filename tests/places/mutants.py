"""Builds with a fault put in, which the judge has to find: in random worlds, or in a directed scene."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from controller.allocator.allocator import Allocator
from controller.allocator.choose.choose import Chooser, Chosen
from controller.allocator.choose.wanted import NothingTaken, Taken, Wanted
from controller.allocator.outcome import ReplicaTurn
from controller.allocator.verbs.place import Places
from controller.allocator.verbs.planning import PlannedVolume, Planner
from controller.clock import Clock
from controller.model.longhorn import Replica
from controller.model.places import Place
from tests.places.world import WorldBuild


class _PassingPlanner(Planner):
    """Never looks at a plan again."""

    def check(self, wanted: PlannedVolume, place: Place, planned: Collection[Place], now_utc: datetime) -> None:
        return None

    def check_node(self, name: str, now_utc: datetime) -> None:
        pass


class _Unchecking(Places):
    """`legal` always passes, and what was chosen is not checked again."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        _, _, world, journal, _, ledger, home, fault = parts
        self.planner = _PassingPlanner(world, self._table, ledger, journal, home, fault)

    def _check(self, *_: Any) -> None:
        return None


class _ForgetfulChooser(Chooser):
    def choose(self, wanted: Wanted, taken: Taken, now_utc: datetime | None = None) -> Chosen:
        return super().choose(wanted, NothingTaken(), now_utc)


class _BytesForgotten(_Unchecking):
    """The same, and it forgets what is planned."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._chooser = self.planner.chooser = _ForgetfulChooser(self._world)


class _WritesForgotten(Places):
    """A decision does not count before its copy is seen."""

    def _give(self, *parts: Any) -> ReplicaTurn:
        turn = super()._give(*parts)
        if turn.write is not None:
            self._world.put_replica(turn.write.replica, self._writes[turn.write.replica].shown)
        return turn

    def show_locked(self, name: str, facts: Replica | None) -> Replica | None:
        super().show_locked(name, facts)
        return facts


class _NeverHolding(Places):
    """It holds no copy back from Longhorn."""

    def _hold(self, replica: Replica, reason: str) -> ReplicaTurn:
        return self._wait(replica, reason)


class _HoldingFurtherCopies(Places):
    """It holds copies of volumes in use, too."""

    def _let_go(self, replica: Replica, reason: str, seconds: float = 1.0) -> ReplicaTurn:
        return self._hold(replica, reason)


def _build(places: type[Places]) -> WorldBuild:
    class Mutant(Allocator):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            promised = lambda: self._ledger, lambda promise: self._settler.home_of(promise)  # noqa: PLW0108 -- replaced
            parts = self._changed, clock, self._world, self._journal, self._resize_locked
            self.places = places(*parts, *promised, self._put_away)

    return WorldBuild(make_allocator=Mutant)


PRODUCT: Final = "product"
BUILDS: Final[Mapping[str, WorldBuild]] = {
    PRODUCT: WorldBuild(),
    "bytes": _build(_BytesForgotten),
    "recheck": _build(_Unchecking),
    "marking": _build(_WritesForgotten),
    "holding": _build(_NeverHolding),
    "holding-all": _build(_HoldingFurtherCopies),
    "loading": WorldBuild(loads_plans=False),
    "gate": WorldBuild(has_gate=False),
    "fence": WorldBuild(has_fence=False),
}
