"""A placer whose decisions are scripted, and whose writes are made when the test says so: at once, or late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controller.allocator.outcome import Mode, PlaceWrite, ReplicaTurn, TakenBytes, TurnStep, WaitReason
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.plans.table import TableChanges
from controller.errors import SchedulerError
from controller.kube.resources import LONGHORN_REPLICAS, Resource
from controller.kube.store import Change
from controller.model.longhorn import Replica
from controller.model.places import Place
from controller.placement.objects import ReplicaObjects
from controller.placement.placer import PlacementFigures, Placer, status_of
from controller.placement.plan_entries import Entry, key_of
from controller.views.decisions import DecisionLog
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import GIB, replica
from tests.fakes.clock import VirtualClock
from tests.unit.rpc.leaders import Checks

NAMESPACE = "longhorn-system"
TERM = "7-abc"
Raw = dict[str, Any]


def uid_of(name: str) -> str:
    return f"uid-{name}"


def volume_of(name: str) -> str:
    return name.partition("-")[0]


def place_write(name: str, number: int = 1, *, affinity: str = "", is_held: bool = False) -> PlaceWrite:
    place = Place("n1", "n1-d1", 10 * GIB)
    return PlaceWrite(
        number, name, uid_of(name), volume_of(name), place, "/disks/n1", affinity, is_held, TakenBytes.FREE
    )


def placing(name: str) -> ReplicaTurn:
    write = place_write(name)
    return ReplicaTurn(TurnStep.PLACE, write.volume, write.uid, write=write)


def turn(step: TurnStep, name: str, reason: str = WaitReason.NO_ROOM, seconds: float = 1.0) -> ReplicaTurn:
    return ReplicaTurn(step, volume_of(name), uid_of(name), reason, seconds)


@dataclass(slots=True)
class ScriptedPlaces:
    """Decides as told, by name; a Replica of which nothing is told is placed. `ended`: what it heard of each decision,
    with the node that the Replica has by then."""

    turns: dict[str, ReplicaTurn | Exception] = field(default_factory=dict)
    is_on: bool = True
    asked: list[str] = field(default_factory=list)
    ended: list[tuple[str, str, str | None]] = field(default_factory=list)
    plans: dict[str, Plan | None] = field(default_factory=dict)
    holds: dict[str, Hold | None] = field(default_factory=dict)
    is_freed: bool = False
    foreign: list[Replica] = field(default_factory=list)  # that others have placed
    late_seconds: float = 0.0
    costs: Callable[[], None] = lambda: None  # of a decision

    def turn_of(self, name: str, _now_utc: datetime) -> ReplicaTurn:
        self.asked.append(name)
        self.costs()
        told = self.turns.get(name) or placing(name)
        if isinstance(told, Exception):
            raise told
        return told

    def stored(self, write: PlaceWrite, facts: Replica) -> None:
        self.ended.append(("stored", write.replica, facts.node))

    def failed(self, write: PlaceWrite, facts: Replica | None) -> None:
        self.ended.append(("failed", write.replica, facts.node if facts is not None else None))

    def unseen_seconds(self) -> float:
        return self.late_seconds

    def take_changes(self) -> TableChanges:
        found = TableChanges(list(self.plans.items()), list(self.holds.items()), self.is_freed)
        self.plans, self.holds, self.is_freed = {}, {}, False
        return found

    def take_foreign(self) -> list[Replica]:
        foreign, self.foreign = self.foreign, []
        return foreign


@dataclass(slots=True)
class ScriptedReasons:
    """Why no disk takes a Replica, as told, by name. `asked`: those that it was to look into."""

    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def unplaced(self, replica: str) -> None:
        self.asked.append(replica)

    def reasons_of(self, replica: str) -> Mapping[str, int]:
        return self.reasons.get(replica, {})


class KeptPlans:
    """What the placer hands over, in order, by key; None: removed. `puts`: how many at a time."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Entry | None]] = []
        self.puts: list[int] = []

    def put(self, *entries: Entry) -> None:
        self.changes += [(key_of(entry), entry) for entry in entries]
        self.puts += [len(entries)] * bool(entries)

    def remove(self, *keys: str) -> None:
        self.changes += [(key, None) for key in keys]


class ScriptedWriters:
    """In place of the placer's threads. `is_late`: writes wait for `go_on`."""

    def __init__(self) -> None:
        self.is_late = False
        self._waiting: list[Callable[[], None]] = []

    def submit(self, run: Callable[..., None], *arguments: Any) -> Future[None]:
        self._waiting.append(lambda: run(*arguments))
        if not self.is_late:
            self.go_on()
        return Future()

    def go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one()

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """`cancel_futures`: those that wait are not made any more."""
        assert wait and cancel_futures
        self._waiting.clear()


class VirtualEnding:
    """The event that ends waiting, in the clock's time. `meanwhile` is done at each wait."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._is_set = clock, False
        self.waits = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def set(self) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        self._clock.advance(seconds)
        self.meanwhile()
        return self._is_set


class PlacerStage:
    """Replicas in an API server, and a placer that hears of them as soon as they are there."""

    def __init__(self, clock: VirtualClock | None = None, *, has_threads: bool = False) -> None:
        """`has_threads`: writes are made by the placer's own."""
        self.api, self.clock = FakeApiServer(), clock or VirtualClock()
        self.decides, self.plans, self.checks = ScriptedPlaces(), KeptPlans(), Checks()
        self.noted = DecisionLog(self.clock)
        self.told, self.explains = list[tuple[str, str, bool]](), ScriptedReasons()  # `told`: Events
        objects = ReplicaObjects(self.api, NAMESPACE, lambda: TERM)
        self.placer = Placer(
            self.decides,
            objects,
            self.plans,
            lambda: self.checks,
            self.clock,
            now_utc=self.clock.now_utc,
            is_leading=lambda: self.checks.is_leading,
            tell=lambda reason, text, is_warning: self.told.append((reason, text, is_warning)),
            explains=self.explains,
            note=self.noted.note,
        )
        self.writers, self.ending = ScriptedWriters(), VirtualEnding(self.clock)
        writes: Any = self.placer._writes
        if not has_threads:
            writes._writers, writes._ending = self.writers, self.ending

    def add(self, *names: str, told: ReplicaTurn | Exception | None = None) -> None:
        """Replicas without a node; `told`: what the allocator says of them."""
        for name in names:
            put_replica(self.api, name)
            if told is not None:
                self.decides.turns[name] = told
            self.placer.unplaced.replicas_changed([Change(name, None, replica(name, volume_of(name)))])

    def drop(self, name: str) -> None:
        self.api.delete(LONGHORN_REPLICAS, NAMESPACE, name)
        self.placer.unplaced.replicas_changed([Change(name, replica(name, volume_of(name)), None)])

    def place(self, name: str, node: str = "n9") -> None:
        """Somebody else does, and the placer's watch has not shown it."""
        self.api.patch(LONGHORN_REPLICAS, NAMESPACE, name, {"spec": {"nodeID": node, "diskID": f"{node}-d1"}})

    def refuse_places(self, error: SchedulerError) -> None:
        """Of Replicas; their other writes are taken."""

        def admit(_resource: Resource, _old: Raw, new: Raw, _manager: str) -> None:
            if new["spec"].get("nodeID"):
                raise error

        self.api.admit = admit

    def round(self, after_seconds: float = 0.0) -> float:
        """A turn of the loop; what it says to wait."""
        self.clock.advance(after_seconds)
        return self.placer.run_once()

    def go_on(self, seconds: float) -> list[float]:
        """Turns of the loop for that time; when decisions were asked for since its begin."""
        began, asked = self.clock.now(), list[float]()
        while True:
            before = len(self.decides.asked)
            pause = self.round()
            asked += [round(self.clock.now() - began, 3)] * (len(self.decides.asked) - before)
            if self.clock.now() + pause > began + seconds:
                return asked
            self.clock.advance(pause)

    def node_of(self, name: str) -> str:
        return str(self.raw(name)["spec"].get("nodeID"))

    def raw(self, name: str) -> Raw:
        return self.api.get(LONGHORN_REPLICAS, NAMESPACE, name)

    @property
    def figures(self) -> PlacementFigures:
        return self.placer.figures()

    @property
    def status(self) -> Mapping[str, Any]:
        return status_of(self.placer.figures(), self.explains.reasons_of)

    @property
    def outcomes(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.figures.outcomes.items() if count}


def put_replica(api: FakeApiServer, name: str, meta: Raw | None = None, **spec: Any) -> Raw:
    """As Longhorn makes it, but for what is given; a value None is left out."""
    given = {"labels": {"longhornvolume": volume_of(name)}, "annotations": {"kept": "yes"}, **(meta or {})}
    wanted = {"volumeName": volume_of(name), "volumeSize": str(10 * GIB), "nodeID": "", "diskID": "", **spec}
    metadata = {"name": name, "uid": uid_of(name), **_without_none(given)}
    return api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": metadata, "spec": _without_none(wanted)})


def _without_none(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if value is not None}


# What keeps a placer from placing


def follows(stage: PlacerStage) -> None:
    stage.checks.is_leading = False


def is_switched_off(stage: PlacerStage) -> None:
    stage.decides.is_on = False


def has_old_stores(stage: PlacerStage) -> None:
    stage.checks.is_fresh = False


def is_closed(stage: PlacerStage) -> None:
    stage.checks.mode = Mode.CLOSED
