"""All that the machine asks of the product, in one place: whoever changes the product's interface changes this file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision, FilterOutcome, Mode, PodKnowledge, UnknownObjectError
from controller.allocator.promises.growths import GROWTH as GROWTH_CLAIMANT
from controller.allocator.promises.own import OWN
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import SchedulerError
from controller.model.longhorn import LonghornSettings
from controller.model.workload import Pod
from controller.rules.demand import Missing
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.fakes.builders import observe
from tests.fakes.clock import VirtualClock
from tests.race.record import RaceRecord
from tests.race.service import Service

SCHEDULING_TIMEOUT_SECONDS: Final = LiveSettings().pod_scheduling_timeout_seconds
HOLD_CAP_SECONDS: Final = LiveSettings().hold_cap_seconds
RESERVATION_TIMEOUT_SECONDS: Final = LiveSettings().node_reservation_timeout_seconds
EVERYWHERE: Final = "*"
MOST_READS: Final = 64
T = TypeVar("T")
Read = Callable[[str, str], object | None]  # kind and key: the object as the API server has it
_HELD: Final = (Decision.OFFERED, Decision.AT_DISCRETION, Decision.RESTART, Decision.CHOSEN)
_REFUSED: Final = (Decision.REFUSED, Decision.CONTENDED)
GROWTH: Final = "growth"
_KINDS: Final = {"first-placement": "first", "expansion": GROWTH}


@dataclass(frozen=True)
class PromiseRow:
    """One promise as the product shows it. `node` EVERYWHERE: on any node; `kind`: first, move, roaming, growth;
    `is_longhorns`: Longhorn has it to place, whoever else claims it."""

    volume: str  # the claim's uid
    node: str
    kind: str
    size_bytes: int
    claimants: tuple[str, ...] = ()
    is_longhorns: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {self.volume} on {self.node}, {self.size_bytes / 1024**3:g} GiB, {self.claimants}"


@dataclass(frozen=True)
class RaceAnswer:
    """A filter call's answer. `is_held`: what passed is promised; `is_chosen`: since a choice stands; `is_refused`: no
    node passed; `is_at_discretion`: by its own volumes Longhorn may put a disk over its limit."""

    passed: tuple[str, ...]
    is_held: bool
    is_chosen: bool
    is_refused: bool
    decision: str
    is_at_discretion: bool = False


@dataclass(frozen=True)
class Ended:
    """What time has ended: pods whose holds are over, Longhorn volumes whose growth was never stored."""

    pods: tuple[str, ...] = ()
    growths: tuple[str, ...] = ()


class Driver:
    """One allocator, asked as the extender, the sweeper, the waker and the webhook ask it."""

    def __init__(
        self, clock: VirtualClock, settings: LonghornSettings, excess_pct: int, *, adds_up: bool = False
    ) -> None:
        self._clock, self._adds_up = clock, adds_up
        self._allocator = Allocator(clock)
        self._live = LiveSettings(enabled=True, roaming_overcommit_pct=excess_pct, namespace_cap_pct=0)
        self._settings = settings
        self._allocator.configure(self._live, settings)
        self._seen: dict[str, dict[str, object]] = {}
        self.service: Service | None = None
        self._let_through: set[tuple[str, str]] = set()  # pod uid and node
        self._given_room: set[tuple[str, str]] = set()  # of these, in this term, where a volume needed room

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
            lambda kind: list(self._seen.get(kind, {}).values()),
            lambda kind, name: self._read(read, kind, name),
            self._live,
        )
        return self.service

    def observe(self, kind: str, key: str, facts: object | None, gone: object | None = None) -> None:
        observe(self._allocator, kind, key, facts, gone)
        if self.service is not None:
            seen = self._seen.setdefault(kind, {})
            old = seen.pop(key, None)
            if facts is not None:
                seen[key] = facts
            self.service.changed(kind, old, facts)

    def start(self) -> None:
        """Decide and hold from now on."""
        self._allocator.set_mode(Mode.ACTIVE)

    def begin_term(self) -> None:
        self._given_room.clear()
        self._allocator.begin_term()

    def end_term(self) -> None:
        self._allocator.end_term()

    # kube-scheduler's questions

    def filter_pod(self, pod: Pod, candidates: Sequence[str], read: Read) -> RaceAnswer | None:
        """One filter call with the extender's live reads; None for an error."""
        if not self._knows(pod, read):
            return None
        try:
            outcome = self._ask(lambda: self._hold_pod(pod.uid, candidates), read)
        except SchedulerError:
            return None
        decision = outcome.decision
        self._let_through.update((pod.uid, name) for name in outcome.passed)
        if decision is not Decision.NOTHING_NEEDED:
            self._given_room.update((pod.uid, name) for name in outcome.passed)
        return RaceAnswer(
            passed=tuple(outcome.passed),
            is_held=decision in _HELD,
            is_chosen=decision is Decision.CHOSEN,
            is_refused=decision in _REFUSED,
            decision=str(decision),
            is_at_discretion=decision is Decision.AT_DISCRETION,
        )

    def has_let_through(self, uid: str, node: str) -> bool:
        """Whether the pod was ever answered that it may go there; without a node, anywhere."""
        return any(one == uid and node in ("", there) for one, there in self._let_through)

    def has_given_room(self, uid: str, node: str) -> bool:
        """Whether an answer of this term let the pod, of which a volume needed room, go there."""
        return (uid, node) in self._given_room

    def may_fall_back(self, uid: str) -> bool:
        """Whether a volume of the pod may find no disk on the node that it was offered beside its other ones."""
        return self._allocator._memory.falls_back(uid) is not False

    def nodes_with_room(self, pod: Pod, candidates: Collection[str], read: Read) -> frozenset[str]:
        """The preempt verb: where pods may be evicted for this one."""
        if not self._knows(pod, read):
            return frozenset()
        try:
            return frozenset(self._ask(lambda: self._nodes_with_room(pod.uid, candidates), read))
        except SchedulerError:
            self._allocator.preemption_failed(pod.uid, list(candidates))
            return frozenset()

    def _hold_pod(self, uid: str, candidates: Sequence[str]) -> FilterOutcome:
        return self._allocator.hold_pod(uid, list(candidates), adds_up=self._adds_up)

    def _nodes_with_room(self, uid: str, candidates: Collection[str]) -> Collection[str]:
        return self._allocator.nodes_with_room(uid, list(candidates), adds_up=self._adds_up)

    def _knows(self, pod: Pod, read: Read) -> bool:
        """Whether the pod is known to be pending."""
        known = self._allocator.knows_pod(pod.uid, pod.key)
        if known.may_be_old:
            self._read(read, "pod", pod.key)
            known = self._allocator.knows_pod(pod.uid, pod.key)
        return known is PodKnowledge.PENDING

    def _ask(self, question: Callable[[], T], read: Read) -> T:
        """The answer once all that the pod refers to has been read live; raises as the question does."""
        last: Missing | None = None
        for _ in range(MOST_READS):
            try:
                return question()
            except UnknownObjectError as error:
                if error.missing == last:
                    raise
                last = missing = error.missing
            key = f"{missing.namespace}/{missing.name}" if missing.namespace else missing.name
            if not self._read(read, missing.kind, key):
                self._allocator.confirm_absent(missing)
        return question()

    def _read(self, read: Read, kind: str, key: str) -> bool:
        facts = read(kind, key)
        if facts is not None:
            observe(self._allocator, kind, key, facts)
        return facts is not None

    def closed_to(self, pod: Pod) -> frozenset[str]:
        """Nodes that another starving pod has its turn on, for 30 s at most: nothing new is promised there."""
        return self._allocator._memory.turns.closed_to(pod.uid, pod.priority)

    # Time

    def sweep(self, read: Read) -> Ended:
        """One round of the sweeper: a live read has the last word before anything ends by time."""
        self._allocator.sweep()
        pods, growths = [], []
        for due in self._allocator.due():
            for kind, key in due.reads:
                if not self._read(read, kind, key):
                    namespace, _, name = key.rpartition("/")
                    self._allocator.confirm_absent(Missing(kind, namespace, name))
            before = self._allocator.version
            self._allocator.expire(due)
            if self._allocator.version == before:
                continue  # it goes on
            if due.claimant == GROWTH_CLAIMANT:
                growths.append(due.volume)
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
        for _ in range(MOST_READS):
            missing = self._allocator.expansions.missing(request)
            if missing is None or not self._read(read, missing.kind, missing.name):
                break
        outcome = self._allocator.expansions.hold(request, self._clock.now_utc())
        return outcome.verdict is GrowthVerdict.ADMITTED

    # What is free and what is promised

    def free_bytes(self) -> dict[str, int]:
        """By disk UUID, what is left for newcomers but for what is promised; of disks that take any."""
        world = self._allocator._world
        rooms = (world.room(name) for name in world.nodes)
        return {disk.uuid: disk.free_bytes for room in rooms if room is not None for disk in room.disks}

    def rows(self) -> list[PromiseRow]:
        """Every promise."""
        return [
            PromiseRow(
                volume=view.volume.removeprefix("pvc-"),  # growth, and what has no claim, goes by Longhorn's name
                node=view.node,
                kind=_KINDS.get(view.kind, view.kind),
                size_bytes=view.size_bytes,
                claimants=view.claimants,
                is_longhorns=any(claimant.startswith(OWN) for claimant in view.claimants),
            )
            for view in self._allocator.snapshot().promises
        ]

    def quarantined(self) -> tuple[str, ...]:
        return tuple(self._allocator._quarantine.keys())
