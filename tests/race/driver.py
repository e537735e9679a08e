"""All that the machine asks of the product, in one place: whoever changes the product's interface changes this file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import (
    Decision,
    Mode,
    PlaceWrite,
    ReplicaTurn,
)
from controller.allocator.plans.ends import GROWTH, PLAN
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import SchedulerError
from controller.model.allocations import Allocation
from controller.model.longhorn import LonghornSettings, Replica
from controller.model.places import Place
from controller.model.workload import Pod
from controller.placement.plan_entries import decode, encode
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.fakes.builders import observe
from tests.fakes.clock import VirtualClock
from tests.fakes.leading import LiveReads, Read
from tests.race.record import RaceRecord
from tests.race.service import Service

SCHEDULING_TIMEOUT_SECONDS: Final = LiveSettings().pod_scheduling_timeout_seconds
_HELD: Final = (Decision.OFFERED, Decision.RESTART, Decision.CHOSEN)
_REFUSED: Final = (Decision.REFUSED, Decision.CONTENDED)


@dataclass(frozen=True)
class TakenRow:
    """A place that is taken for a volume. `holder`: the pod that holds it, "" for a plan."""

    volume: str
    place: Place
    holder: str

    def __str__(self) -> str:
        where = f"{self.place.disk_uuid}, {self.place.size_bytes / 1024**3:g} GiB"
        return f"{self.volume} on {where}, {f'held by {self.holder}' if self.holder else 'planned'}"


@dataclass(frozen=True)
class RaceAnswer:
    """A filter call's answer. `is_held`: what passed is promised; `is_chosen`: since a choice stands; `is_refused`: no
    node passed."""

    passed: tuple[str, ...]
    is_held: bool
    is_chosen: bool
    is_refused: bool
    decision: str


@dataclass(frozen=True)
class Ended:
    """What time has ended: pods whose holds or plans are over, Longhorn volumes whose growth was never stored."""

    pods: tuple[str, ...] = ()
    growths: tuple[str, ...] = ()


class StoredTable:
    """What a leader has stored of its plans and holds, as text."""

    def __init__(self) -> None:
        self._plans: dict[str, str] = {}
        self._holds: dict[str, str] = {}

    def put(self, holds: Sequence[tuple[str, Hold | None]], plans: Sequence[tuple[str, Plan | None]]) -> None:
        for lines, entries in ((self._holds, holds), (self._plans, plans)):
            for key, entry in entries:
                lines.pop(key, None)
                if entry is not None:
                    lines[key] = encode(entry)

    def load(self) -> tuple[list[Plan], list[Hold]]:
        found = [decode(line) for line in (*self._plans.values(), *self._holds.values())]
        return [one for one in found if isinstance(one, Plan)], [one for one in found if isinstance(one, Hold)]


class Driver:
    """One allocator, asked as the extender, the sweeper, the waker, the placer and the webhook ask it."""

    def __init__(self, clock: VirtualClock, settings: LonghornSettings, *, adds_up: bool = False) -> None:
        self._clock, self._settings, self._adds_up = clock, settings, adds_up
        self._allocator = Allocator(clock)
        self._live = LiveSettings(enabled=True)
        self._allocator.configure(self._live, settings)
        self._seen: dict[str, dict[str, object]] = {}
        self.service: Service | None = None

    # Facts and terms

    def serve(self, record: RaceRecord, term: Callable[[], int], read: Read) -> Service:
        """From now on the record decides where replicas go. `term` raises NotLeaderError once another process leads."""
        self._live = replace(self._live, allocation_authority=DISK_SCHEDULER)
        self._allocator.configure(self._live, self._settings)
        self.service = Service(
            self._clock,
            self._allocator,
            record,
            term,
            lambda kind: self._seen.get(kind, {}),
            LiveReads(self._allocator, read).refresh,
            self._live,
        )
        return self.service

    def observe(self, kind: str, key: str, facts: object | None, gone: object | None = None) -> None:
        if kind != "record":
            observe(self._allocator, kind, key, facts, gone)
        if self.service is not None:
            seen = self._seen.setdefault(kind, {})
            seen.pop(key, None)
            if facts is not None:
                seen[key] = facts
            self.service.changed(kind, key)

    def start(self) -> None:
        """From now on the allocator decides and holds, as in a leader."""
        self._allocator.set_mode(Mode.ACTIVE)

    def begin_term(self, stored: StoredTable, record: Collection[Allocation] = (), *, is_first: bool = False) -> None:
        plans, holds = stored.load()
        self._allocator.begin_term(has_predecessor=not is_first, plans=plans, holds=holds, record=record)

    def end_term(self) -> None:
        self._allocator.end_term()

    # Plans, holds and places

    def store(self, stored: StoredTable) -> None:
        plans, holds, _ = self._allocator.places.take_changes()
        stored.put(holds, plans)

    def turn_of(self, replica: str) -> ReplicaTurn:
        return self._allocator.places.turn_of(replica, self._clock.now_utc())

    def written(self, write: PlaceWrite, facts: Replica | None) -> None:
        """Tells the allocator what became of a write: the Replica is `facts` now, or gone."""
        where = write.place.node, write.place.disk_uuid
        if facts is not None and facts.uid == write.uid and (facts.node, facts.disk_uuid) == where:
            self._allocator.places.stored(write, facts)
        else:
            self._allocator.places.failed(write, facts)

    # kube-scheduler's questions

    def filter_pod(self, pod: Pod, candidates: Sequence[str], read: Read) -> RaceAnswer | None:
        """One filter call with the extender's live reads; None for an error."""
        reads = LiveReads(self._allocator, read)
        if not reads.is_pending(pod):
            return None
        try:
            outcome = reads.answer(lambda: self._allocator.hold_pod(pod.uid, list(candidates), adds_up=self._adds_up))
        except SchedulerError:
            return None
        decision = outcome.decision
        return RaceAnswer(
            passed=tuple(outcome.passed),
            is_held=decision in _HELD,
            is_chosen=decision is Decision.CHOSEN,
            is_refused=decision in _REFUSED,
            decision=str(decision),
        )

    def nodes_with_room(self, pod: Pod, candidates: Collection[str], read: Read) -> frozenset[str]:
        """The preempt verb: where pods may be evicted for this one."""
        reads = LiveReads(self._allocator, read)
        if not reads.is_pending(pod):
            return frozenset()
        try:
            return frozenset(
                reads.answer(lambda: self._allocator.nodes_with_room(pod.uid, list(candidates), adds_up=self._adds_up))
            )
        except SchedulerError:
            self._allocator.preemption_failed(pod.uid, list(candidates))
            return frozenset()

    # Time

    def sweep(self, read: Read) -> Ended:
        """One round of the sweeper: a live read has the last word before anything ends by time."""
        self._allocator.sweep()
        pods, growths = list[str](), list[str]()
        for due in LiveReads(self._allocator, read).due():
            before, plan = self._allocator.version, self._allocator._table.plan(due.volume)
            self._allocator.expire(due)
            if self._allocator.version == before:
                continue  # it goes on
            if due.claimant == GROWTH:
                growths.append(due.volume)
            elif due.claimant == PLAN:
                pods += plan.pods if plan is not None else ()
            else:
                pods.append(due.claimant)
        return Ended(tuple(pods), tuple(growths))

    def wake(self) -> tuple[str, ...]:
        """One round of the waker: the pods that it would wake."""
        return tuple(wakeup.pod_uid for slice_ in self._allocator.wake_slices() for wakeup in slice_)

    # The webhook

    def hold_growth(self, volume: str, claim_key: str, size_bytes: int, read: Read) -> bool:
        """Whether the claim, bound to the PV of that name, may grow to that size; it is held then."""
        namespace, _, name = claim_key.partition("/")
        request = GrowthRequest(volume, size_bytes, namespace, name)
        reads, expansions = LiveReads(self._allocator, read), self._allocator.expansions
        while (missing := expansions.missing(request)) is not None and reads.refresh(missing.kind, missing.name):
            pass
        outcome = expansions.hold(request, self._clock.now_utc())
        return outcome.verdict is GrowthVerdict.ADMITTED

    # What is free and what is taken

    def free_bytes(self) -> dict[str, int]:
        """By disk UUID, what is left by objects, own writes and growth; of disks that take any."""
        world = self._allocator._world
        rooms = (world.room(name) for name in world.nodes)
        return {disk.uuid: disk.free_bytes for room in rooms if room is not None for disk in room.disks}

    def taken_bytes(self) -> dict[str, int]:
        """By disk UUID, what the table says that plans and holds take."""
        table = self._allocator._table
        return {uuid: size for node in list(table.taken_by_node()) for uuid, size in table.taken_on(node).items()}

    def rows(self) -> list[TakenRow]:
        """Every place that plans and holds keep from everybody."""
        table = self._allocator._table
        found = [TakenRow(plan.volume, place, "") for plan in table.plans() for place in plan.places]
        for source in Source:
            holds = (hold for hold in table.holds(source) if hold.keeps_out is None)
            found += [TakenRow(volume, place, hold.pod) for hold in holds for volume, place in hold.places()]
        return found

    def is_chosen(self, pod_uid: str) -> bool:
        """Whether a node counts as chosen for the pod."""
        hold = self._allocator._table.hold(pod_uid)
        return hold is not None and bool(hold.chosen)

    def keeps_room(self) -> bool:
        """Whether anything is kept from some pods alone."""
        return bool(self._allocator._table.limited())

    def growing_bytes(self) -> dict[tuple[str, str], int]:
        """By Longhorn volume and node, the bytes that its copies there are to gain."""
        views = self._allocator.snapshot().promises
        return {(view.volume, view.node): view.size_bytes for view in views if view.kind == "growth"}

    def left(self) -> list[str]:
        """A line for each promise that keeps room from everybody."""
        views = (one for one in self._allocator.snapshot().promises if one.kind in ("answer", "plan", "growth"))
        return [f"{one.kind} of {one.volume} on {one.node}, {one.size_bytes / 1024**3:g} GiB" for one in views]

    def holders(self) -> set[str]:
        """Pods that hold anything, if only the names of nodes."""
        table = self._allocator._table
        return {hold.pod for source in Source for hold in table.holds(source)}

    def planned(self) -> set[str]:
        """Volumes with a plan."""
        return {plan.volume for plan in self._allocator._table.plans()}

    def quarantined(self) -> tuple[str, ...]:
        return tuple(self._allocator._quarantine.keys())
