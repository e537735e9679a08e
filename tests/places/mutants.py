"""Builds with a fault put in, which the judge has to find: in random worlds, or in a directed scene."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from controller.allocator.allocator import Allocator
from controller.allocator.choose.choose import Chooser, Chosen
from controller.allocator.choose.wanted import NothingTaken, Taken, Wanted
from controller.allocator.outcome import ReplicaTurn, TurnStep
from controller.allocator.verbs.place import PlaceDecisions
from controller.allocator.verbs.planning import PlannedVolume, Planner
from controller.clock import Clock
from controller.model.longhorn import Replica, Volume
from controller.model.places import Place
from tests.places.apiserver import Ages
from tests.places.world import WorldBuild


class _PassingPlanner(Planner):
    """Never looks at a plan again."""

    def check(self, wanted: PlannedVolume, place: Place, planned: Collection[Place], now_utc: datetime) -> None:
        return None

    def check_node(self, *_: Any, **__: Any) -> bool:
        return False


class _RestlessPlanner(Planner):
    """Moves plans for no reason: whatever happens on a node, its plans go elsewhere."""

    def check_node(self, name: str, now_utc: datetime, most: int | None = None, *, is_changed: bool) -> bool:
        for uuid in list(self._table.taken_on(name)):
            for volume in self._table.planned_on(name, uuid):
                self.move(volume, name, uuid, now_utc)
        return False


class _ForgetfulChooser(Chooser):
    """Forgets what is planned."""

    def choose(self, wanted: Wanted, taken: Taken, now_utc: datetime | None = None) -> Chosen:
        return super().choose(wanted, NothingTaken(), now_utc)


class _Unchecking(PlaceDecisions):
    """What was chosen is not checked again."""

    def _check(self, *_: Any) -> None:
        return None


class _WritesForgotten(PlaceDecisions):
    """A decision does not count before its copy is seen."""

    def _give(self, *parts: Any) -> ReplicaTurn:
        turn = super()._give(*parts)
        if turn.write is not None:
            self._world.put_replica(turn.write.replica, self._writes[turn.write.replica].shown)
        return turn

    def show_locked(self, name: str, facts: Replica | None) -> Replica | None:
        super().show_locked(name, facts)
        return facts


class _NeverHolding(PlaceDecisions):
    """It holds no copy back from Longhorn."""

    def _hold(self, replica: Replica, reason: str) -> ReplicaTurn:
        return self._wait(replica, reason)


class _HoldingFurtherCopies(PlaceDecisions):
    """It holds copies of volumes in use, too."""

    def _let_go(self, replica: Replica, reason: str, seconds: float = 1.0) -> ReplicaTurn:
        return self._hold(replica, reason)


class _NeverDisplacing(PlaceDecisions):
    """A further copy takes no bytes that are planned."""

    def _waited(self, volume: Volume, replica: Replica) -> float:
        return -math.inf


class _DisplacingAtOnce(PlaceDecisions):
    """A further copy takes planned bytes as soon as there are no free ones."""

    def _waited(self, volume: Volume, replica: Replica) -> float:
        return math.inf


class _Mute(PlaceDecisions):
    """It leads, and does nothing about volumes that nobody asked for: a fault that the gate's ages are there for."""

    def _turn(self, replica: Replica, now_utc: datetime) -> ReplicaTurn:
        if replica.volume.startswith("restored"):
            return ReplicaTurn(TurnStep.NOTHING)
        return super()._turn(replica, now_utc)


def _build(
    places: type[PlaceDecisions] = PlaceDecisions,
    planner: type[Planner] = Planner,
    chooser: type[Chooser] = Chooser,
    ages: Ages = Ages.RENEWED,
) -> WorldBuild:
    class Mutant(Allocator):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            lock, world, table, journal = self._changed, self._world, self._table, self._journal
            chosen = chooser(world)
            claimants = self._settler.claimants
            planned = planner(world, table, chosen, journal, claimants.of, self._put_volume_away, claimants.lost)
            self._settler.planner = planned
            self.places = places(lock, clock, world, table, chosen, planned, journal, self._resize_locked)

    return WorldBuild(make_allocator=Mutant, ages=ages)


PRODUCT: Final = "product"
BUILDS: Final[Mapping[str, WorldBuild]] = {
    PRODUCT: WorldBuild(),
    "bytes": _build(_Unchecking, _PassingPlanner, _ForgetfulChooser),
    "recheck": _build(_Unchecking, _PassingPlanner),
    "marking": _build(_WritesForgotten),
    "restless": _build(planner=_RestlessPlanner),
    "holding": _build(_NeverHolding),
    "holding-all": _build(_HoldingFurtherCopies),
    "ages-none": WorldBuild(ages=Ages.NEVER),
    "ages-clock": WorldBuild(ages=Ages.CLOCK),
    "mute": _build(_Mute),
    "mute-ages-endless": _build(_Mute, ages=Ages.ALWAYS),
    "displacing-never": _build(_NeverDisplacing),
    "displacing-at-once": _build(_DisplacingAtOnce),
    "loading": WorldBuild(loads_plans=False),
    "gate": WorldBuild(has_gate=False),
    "fence": WorldBuild(has_fence=False),
}
