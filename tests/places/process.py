"""One process of the product: its allocator, its watches, and the loop that places while it leads.

The loop is the placer's, without its threads: what that one sends is an action of the timeline here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode, PlaceWrite, ReplicaTurn, TurnStep, WaitReason
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.clock import Clock
from controller.errors import ConflictError, ForbiddenError, NotFoundError, SchedulerError
from controller.kube.store import Change
from controller.model.longhorn import LonghornSettings
from controller.model.workload import Pod
from controller.placement.placer import LATE_SECONDS
from controller.placement.unplaced import Unplaced
from controller.placement.writes import ARRIVES_SECONDS
from controller.rules.placing import Wait
from controller.settings import LiveSettings
from tests.fakes.builders import observe
from tests.fakes.leading import LiveReads
from tests.places.apiserver import StoredChange, WorldApi
from tests.places.timeline import Timeline

COMMIT_SECONDS: Final = 0.1
MEND_SECONDS: Final = 10.0
_ORDER: Final = ("class", "kube_node", "node", "volume", "replica", "pv", "claim", "pod")
_NO_ROOM: Final = (WaitReason.NO_ROOM, Wait.REUSE, Wait.REPLACEMENT)


@dataclass(frozen=True, slots=True)
class ProcessLags:
    """Of one process, in seconds, at most each: its watches, its writes, and of these so many are slow or lose their
    answers."""

    watch: float = 0.3
    slow_writes: float = 0.0  # share
    lost_answers: float = 0.0  # share
    loads_plans: bool = True


class WorldProcess:
    """`term` is 0 while it follows. `frozen_until`: it stands still, and its watches with it."""

    def __init__(
        self,
        timeline: Timeline,
        api: WorldApi,
        make_allocator: Callable[[Clock], Allocator],
        settings: LonghornSettings,
        lags: ProcessLags,
    ) -> None:
        self._timeline, self._api, self._lags = timeline, api, lags
        self._random = timeline.random
        self.allocator = make_allocator(timeline.clock)
        self._reads = LiveReads(self.allocator, api.get)
        self.unplaced = Unplaced(self._wake)
        self.is_alive, self.term, self.frozen_until, self.stalled_until = True, 0, 0.0, 0.0
        self._heard_until: dict[str, float] = {}
        self._due_at: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._busy: set[str] = set()
        self._to_store: dict[str, Plan | None] = {}
        self._stored: dict[str, Plan] = {}  # what is to stand there
        self._holds_to_store: dict[str, Hold | None] = {}
        self._is_woken = False
        self.allocator.configure(LiveSettings(enabled=True), settings)
        self.allocator.set_mode(Mode.ACTIVE)
        for kind in _ORDER:
            for key, facts in api.items(kind):
                self._tell(kind, key, None, facts)
        api.watchers.append(self._changed)
        timeline.every(0.5, self._beat)
        timeline.every(MEND_SECONDS, self.mend_plans)

    # Watches

    def _changed(self, change: StoredChange) -> None:
        """The process hears of changes in order within a kind, in any order between kinds."""
        if self.is_alive and change.kind in _ORDER:
            now = self._timeline.now
            lag = self._random.uniform(0.005, self._lags.watch)
            at = max(now + lag, self.stalled_until, self.frozen_until, self._heard_until.get(change.kind, 0.0))
            self._heard_until[change.kind] = at
            self._timeline.after(at - now, lambda: self._hear(change))

    def _hear(self, change: StoredChange) -> None:
        if self.is_alive:
            self._tell(change.kind, change.key, change.before, change.after)

    def _tell(self, kind: str, key: str, before: Any, after: Any) -> None:
        observe(self.allocator, kind, key, after, before if after is None else None)
        if kind == "replica":
            self.unplaced.replicas_changed([Change(key, before, after)])
        elif kind == "volume":
            self.unplaced.volumes_changed([Change(key, before, after)])
        elif kind == "node":
            self.unplaced.nodes_changed([Change(key, before, after)])
        self._wake()

    # Terms

    def lead(self) -> None:
        """Fence first, then load and catch up, then decide."""
        term, fenced_at = self._api.begin_term(), self._timeline.now
        plans: list[Plan] = []
        holds: list[Hold] = []
        self._timeline.between(0.02, 0.3, lambda: self._load(plans, holds))
        self.term = term

        def decide() -> None:
            if not self.is_alive or self.term != term or self._api.gate.term != term:
                return
            behind = max((at for at in self._heard_until.values()), default=0.0)
            if behind > self._timeline.now and self._timeline.now < fenced_at + 30:
                self._timeline.after(0.2, decide)  # what was stored before the fence has to be seen
                return
            self._due_at.clear()
            self._busy.clear()
            self._to_store.clear()
            self._holds_to_store.clear()
            self._stored = {plan.volume: plan for plan in plans}
            stored = (plans, holds) if self._lags.loads_plans else ((), ())
            self.allocator.begin_term(has_predecessor=term > 1, plans=stored[0], holds=stored[1])
            self._wake()

        self._timeline.after(0.4, decide)

    def _load(self, plans: list[Plan], holds: list[Hold]) -> None:
        plans.extend(self._api.plans.values())
        holds.extend(self._api.holds.values())

    def stop(self) -> None:
        """A clean stop: plans are written, nothing is decided any more."""
        self._take_plans()
        self._commit()
        self.die()

    def die(self) -> None:
        self.is_alive, self.term = False, 0
        if self._changed in self._api.watchers:
            self._api.watchers.remove(self._changed)

    def depose(self) -> None:
        """The process learns that somebody else leads."""
        if self.is_alive and self.term:
            self.term = 0
            self.allocator.end_term()

    @property
    def is_running(self) -> bool:
        return self.is_alive and self._timeline.now >= self.frozen_until

    @property
    def decides(self) -> bool:
        return self.is_running and bool(self.term) and self.allocator.places.is_on

    # The loop

    def _beat(self) -> None:
        if not self.is_running:
            return
        self.allocator.sweep()
        for due in self._reads.due() if self.term else ():
            self.allocator.expire(due)
        if self.decides and self.allocator.places.unseen_seconds() <= LATE_SECONDS:
            self._api.renew(self.term)
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken and self.term:
            self._is_woken = True
            self._timeline.after(0.003, self._turn)

    def _turn(self) -> None:
        self._is_woken = False
        if not self.decides:
            return
        self._take_plans()
        self._hear_news()
        now = self._timeline.now
        for name in [name for name, at in self._due_at.items() if at <= now and name not in self._busy]:
            self._decide(name)
        self._take_plans()

    def _take_plans(self) -> None:
        changes, holds, _ = self.allocator.places.take_changes()
        if (changes or holds) and not (self._to_store or self._holds_to_store):
            self._timeline.after(COMMIT_SECONDS, self._commit)
        self._to_store.update(changes)
        self._holds_to_store.update(holds)
        for volume, _ in changes:
            self.unplaced.volume_planned(volume)

    def _commit(self) -> None:
        if not (self.is_running and self.term):
            return
        if not self._api.store_plans(self._to_store, self.term, self._holds_to_store):
            return
        for volume, plan in self._to_store.items():
            if plan is None:
                self._stored.pop(volume, None)
            else:
                self._stored[volume] = plan
        self._to_store, self._holds_to_store = {}, {}

    def mend_plans(self) -> None:
        """Whatever others have made of the stored plans, they are written anew."""
        if self.decides and not self._to_store and self._stored != self._api.plans:
            self._api.store_plans(dict.fromkeys(self._api.plans) | self._stored, self.term)

    def _hear_news(self) -> None:
        news, now = self.unplaced.take(), self._timeline.now
        for name in self._due_at.keys() - news.waiting.keys():
            del self._due_at[name]
        for name in news.waiting:
            is_told = name in news.touched or (news.has_room and self._reasons.get(name) in _NO_ROOM)
            self._due_at[name] = now if is_told else self._due_at.get(name, now)

    def _decide(self, name: str) -> None:
        turn, term = self.allocator.places.turn_of(name, self._timeline.clock.now_utc()), self.term
        self._due_at[name] = self._timeline.now + max(turn.seconds, 0.1)
        self._reasons[name] = turn.reason
        if turn.step in (TurnStep.NOTHING, TurnStep.WAIT):
            return
        self._busy.add(name)
        self._timeline.between(0.001, 0.02, lambda: self._send(name, turn, term))

    def _send(self, name: str, turn: ReplicaTurn, term: int) -> None:
        if not self.is_alive:
            return
        if not self.is_running and self._random.random() < 0.5:  # between the last check and the wire
            self._timeline.after(self.frozen_until - self._timeline.now, lambda: self._arrive(name, turn, term))
            return
        if self.term != term or not self.is_running:
            if turn.write is not None:
                self._fail(name, turn.write)
            return
        is_slow = self._random.random() < self._lags.slow_writes
        most = 8.0 if is_slow else 0.02
        self._timeline.between(0.002, most, lambda: self._arrive(name, turn, term))

    def _arrive(self, name: str, turn: ReplicaTurn, term: int) -> None:
        """The patch comes to the API server, whatever has become of its sender."""
        try:
            facts = self._api.patch_as_leader(name, turn, term)
            error: SchedulerError | None = None
        except (ConflictError, ForbiddenError, NotFoundError) as raised:
            facts, error = None, raised
        is_lost = self._random.random() < self._lags.lost_answers
        self._timeline.between(0.001, 0.02, lambda: self._answered(name, turn, facts, error, is_lost=is_lost))

    def _answered(
        self, name: str, turn: ReplicaTurn, facts: Any, error: SchedulerError | None, *, is_lost: bool
    ) -> None:
        if not self.is_alive:
            return
        if turn.write is None:
            self._free(name)
        elif is_lost:
            self._find_out(name, turn.write, self._timeline.now + ARRIVES_SECONDS)
        elif error is None:
            self.allocator.places.stored(turn.write, facts)
            self._free(name)
        else:
            self._fail(name, turn.write)

    def _find_out(self, name: str, write: PlaceWrite, until: float) -> None:
        if not self.is_alive:
            return
        found = self._api.get("replica", write.replica)
        if found is not None and not found.node and found.uid == write.uid and self._timeline.now < until and self.term:
            self._timeline.after(1.0, lambda: self._find_out(name, write, until))
        elif found is not None and (found.node, found.disk_uuid) == (write.place.node, write.place.disk_uuid):
            self.allocator.places.stored(write, found)
            self._free(name)
        else:
            self._fail(name, write)

    def _fail(self, name: str, write: PlaceWrite) -> None:
        self.allocator.places.failed(write, self._api.get("replica", write.replica))
        self._free(name)

    def _free(self, name: str) -> None:
        self._busy.discard(name)
        self._due_at[name] = self._timeline.now + 1.0
        self._timeline.after(1.0, self._wake)

    # Questions

    def filter(self, pod: Pod, candidates: Sequence[str]) -> Sequence[str]:
        """The nodes that pass; what the stores lack is read live."""
        try:
            is_pending = self._reads.is_pending(pod)
            return self._reads.answer(lambda: self.allocator.hold_pod(pod.uid, candidates).passed) if is_pending else ()
        except SchedulerError:
            return ()
        finally:
            self._wake()

    def grow(self, volume: str, claim: str, size_bytes: int) -> bool:
        namespace, _, name = claim.partition("/")
        request = GrowthRequest(volume, size_bytes, namespace, name)
        outcome = self.allocator.expansions.hold(request, self._timeline.clock.now_utc())
        self._wake()
        return outcome.verdict is GrowthVerdict.ADMITTED
