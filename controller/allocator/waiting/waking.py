"""The plan of a wake-up: which refused pods find room now, all of them together.

By priority, then age, each pod gets a node as a filter call would offer it, and what it takes there counts for those
after it: so as many pods are woken as there is room for, and no more. The plan is made in slices, since hundreds of
pods and thousands of nodes take longer than filter calls may wait for the allocator's lock; each slice looks at the
facts and promises of its own moment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.discretion import Discretion
from controller.allocator.judge.never import too_large
from controller.allocator.judge.node import Judge
from controller.allocator.judge.pending import Newcomer
from controller.allocator.judge.search import NodeSearch, in_order, look
from controller.allocator.judge.verdict import KEPT, LATE, Judgement, Verdict
from controller.allocator.outcome import Wakeup
from controller.allocator.promises.holds import Holds
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import Against, Source
from controller.allocator.promises.users import FREE, Tie
from controller.allocator.waiting.keeping import Seeking, may_take, most_kept
from controller.allocator.waiting.refusals import PATIENCE_SECONDS, Refusals, RefusedPod
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand, demands_of_pod
from controller.settings import LiveSettings

SLICE_SECONDS: Final = 0.003  # under the allocator's lock; one question about one pod may take it past this
_MOST_OPEN: Final = 16

_Shape = tuple[object, ...]


class PlanView(Protocol):
    """The state that a slice is planned on, and the rules that a filter call would apply. In the product `Filtering`
    of controller.allocator.verbs, which must not be imported here."""

    @property
    def world(self) -> World: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def now(self) -> float: ...
    @property
    def live(self) -> LiveSettings: ...
    @property
    def holds(self) -> Holds: ...
    @property
    def memory(self) -> Memory: ...
    def is_due_remotely(self, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool: ...
    def newcomer(self, pod: Pod, *, is_planning: bool = False) -> Newcomer: ...
    def tie_of(self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Collection[str]) -> Tie: ...


@dataclass(slots=True)
class _Looking:
    """How far the search for one pod's node has come."""

    search: NodeSearch
    is_partial: bool = False  # not all was judged, or a node was passed over because it is kept for another pod
    is_contended: bool = False  # promises stand in the way somewhere

    def note(self, judgements: Iterable[Judgement]) -> None:
        self.is_contended = self.is_contended or any(one.verdict is Verdict.CONTENDED for one in judgements)


class WakePlan:
    """One round over all refused pods. Threads: none of its own; `advance` is called under the allocator's lock.

    A pod that was woken and does not come back (something else keeps it now) stops reserving room.
    """

    def __init__(self, refusals: Refusals, world: World) -> None:
        self._refusals, self._world = refusals, world
        pods = sorted(
            (world.pods[uid] for uid in refusals.all_uids() if uid in world.pods),
            key=lambda pod: (-pod.priority, pod.created_utc, pod.key),
        )
        self._left = deque(pod.uid for pod in pods)
        self._looking: _Looking | None = None
        self._full, self._never = _FullFor(world), _FullFor(world)  # no room now; no room even on empty nodes
        self._needs_no_turn: set[_Shape] = set()
        self._open: dict[_Shape, Sequence[str]] = {}  # where the last pod of that shape found room, and nodes behind
        self._starving: deque[str] = deque()
        self._kept: dict[str, str] = {}  # node -> pod
        self._seeking: Seeking | None = None
        self.is_done = False

    def advance(self, view: PlanView) -> list[Wakeup]:
        """One slice: the pods to be woken, marked as such. Afterwards `is_done` tells whether the round is complete."""
        end = view.clock.now() + SLICE_SECONDS
        wakeups: list[Wakeup] = []
        while self._left:
            uid = self._left[0]
            pod, refusal = view.world.pods.get(uid), self._refusals.get(uid)
            if pod is not None and refusal is not None:
                if not self._look_for(view, pod, refusal, end, wakeups):
                    return wakeups
            self._looking = None
            self._left.popleft()
            if view.clock.now() > end:
                return wakeups
        while self._starving:
            self._give_turn(view, self._starving[0])
            if not self._keep_for(view, self._starving[0], end):
                return wakeups
            self._seeking = None
            self._starving.popleft()
            if view.clock.now() > end:
                return wakeups
        for promise in list(view.ledger.limited()):
            uid = promise.claimant.partition(":")[2]
            if promise.source is Source.WAKE_PLAN or (
                promise.source is Source.KEPT_ROOM and uid not in self._kept.values()
            ):
                view.holds.release(uid, promise.source)
        self.is_done = True
        return wakeups

    def _look_for(self, view: PlanView, pod: Pod, refusal: RefusedPod, end: float, wakeups: list[Wakeup]) -> bool:
        """Whether the pod is dealt with; False: the slice is over, go on with the pod in the next one."""
        demands, _ = demands_of_pod(pod, self._world, self._world.settings)
        tie = view.tie_of(pod, demands, refusal.nodes)
        if tie.waits:
            return True  # for another pod's choice, not for room
        node = self._node_for(view, pod, refusal, demands, tie, end)
        if node is None:
            return False
        comes_back = not node or refusal.is_expected(view.now)
        if comes_back and tie is FREE and _is_starving(view, refusal, demands):
            self._starving.append(pod.uid)
        if not node:
            self._refusals.end_series(pod.uid)
            if not view.is_due_remotely(refusal, demands):
                return True
        elif refusal.is_expected(view.now):
            until, against = view.now + PATIENCE_SECONDS, Against(pod.priority)
            for demand in demands:
                view.holds.keep(pod.uid, Source.WAKE_PLAN, demand, node, view.now, until=until, against=against)
        if refusal.wake_due_at() <= view.now:
            woken = self._refusals.mark_woken(pod.uid, view.now)
            wakeups.append(Wakeup(pod.uid, pod.namespace, pod.name, woken.wakes))
        return True

    def _node_for(
        self,
        view: PlanView,
        pod: Pod,
        refusal: RefusedPod,
        demands: Sequence[VolumeDemand],
        tie: Tie,
        end: float,
    ) -> str | None:
        """Where a filter call would let the pod go; "" for nowhere, None when the slice ended before that was known."""
        where = (*_where(refusal), tie.nodes)
        is_nominated = pod.uid in view.memory.approvals  # what is kept for it keeps others out alone
        if not is_nominated and self._full.covers(where, demands):
            return ""
        shape = (*where, *map(_exact, demands))
        judge = self._judge(view, pod, demands)
        looking = self._looking
        if looking is None:
            known = None if is_nominated else self._open.get(shape)
            names = known or [name for name in self._in_order(view, refusal, demands) if tie.includes(name)]
            looking = self._looking = _Looking(NodeSearch(names))
            if any(demand.usable_nodes for demand in judge.local):
                home = judge.restart_among(judge.open_among(names)[0])
                if home:
                    return self._least_promised(view, home)
                judge = self._judge(view, pod, demands)
        found = self._go_on(view, judge, looking, end)
        self._refusals.not_reached(pod.uid, looking.search.unreached())
        if found == "" and not looking.is_partial:
            self._full.add(where, demands, is_full=not looking.is_contended)
        elif found and not looking.is_partial and (shape in self._open or len(self._open) < _MOST_OPEN):
            self._open[shape] = [*looking.search.sure, *looking.search.rest]
        return found

    def _judge(self, view: PlanView, pod: Pod, demands: Sequence[VolumeDemand]) -> Judge:
        budget = Budget.of(view.clock, view.live.filter_budget_milliseconds)
        asks = view.newcomer(pod, is_planning=True)
        pct = view.live.roaming_overcommit_pct
        return Judge(view.world, view.ledger, demands, view.now, asks, budget, view.clock.now_utc(), pct)

    def _go_on(self, view: PlanView, judge: Judge, looking: _Looking, end: float) -> str | None:
        """As `_node_for`, from where the last slice ended."""
        search = looking.search
        found, closed = judge.open_among(search.rest)
        looking.is_partial = looking.is_partial or LATE in closed.values()
        looking.note(closed.values())
        if found and not judge.local:
            return found[0]
        search.rest = found
        if not search.go_on(judge, bool, lambda: view.clock.now() > end):
            return None
        if search.sure:
            return self._least_promised(view, search.sure)
        looking.is_partial = looking.is_partial or any(entry in (LATE, KEPT) for entry in search.refused.values())
        looking.note(search.refused.values())
        found = Discretion(judge, allows_stranding=view.live.allow_stranding).among(search.names)
        looking.is_partial = looking.is_partial or bool(found) or judge.budget.is_over
        return found[0] if found else ""

    def _in_order(self, view: PlanView, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> Sequence[str]:
        """The nodes that count for the pod, in the order of every search."""
        names = refusal.nodes
        series = refusal.series
        if series is not None:
            shown = frozenset(names)
            others = [name for name in view.world.nodes if name not in shown]
            if series.possible is not None:
                others = self._refusals.nodes.within(others, series.possible)
            names = [*names, *others]
        planned = _planned_bytes(view)
        return in_order(
            list(names),
            demands,
            view.ledger,
            unreached=refusal.unreached,
            more_bytes=lambda name: planned.get(name, 0),
        )

    def _least_promised(self, view: PlanView, names: Sequence[str]) -> str:
        planned = _planned_bytes(view)
        return min(names, key=lambda name: view.ledger.pending_bytes(name) + planned.get(name, 0))

    def _give_turn(self, view: PlanView, uid: str) -> None:
        """A turn for a pod whose own volumes satisfy the sums nowhere, were nothing promised to others."""
        pod, refusal, turns = view.world.pods.get(uid), self._refusals.get(uid), view.memory.turns
        if pod is None or refusal is None or not turns.is_free_for(uid, view.now):
            return
        demands, _ = demands_of_pod(pod, self._world, self._world.settings)
        where = _where(refusal)
        shape = (*where, *map(_exact, demands))
        if shape in self._needs_no_turn:
            return
        budget = Budget.of(view.clock, view.live.filter_budget_milliseconds)
        judge = Judge(view.world, Ledger(), demands, view.now, budget=budget, now_utc=view.clock.now_utc())
        names = in_order([name for name in refusal.nodes if name not in self._kept], demands, view.ledger)
        is_sure = bool(look(judge, judge.open_among(names)[0], bool).sure)
        discretion = Discretion(judge, allows_stranding=view.live.allow_stranding, foresees=True)
        found = [] if is_sure else discretion.among(names)
        if not found:
            self._needs_no_turn.add(shape)
            return
        is_wide = any(demand.is_roaming for demand in demands) or (
            found[0] in discretion.stranding and not view.live.allow_stranding  # what falls back needs the others
        )
        turns.give(uid, pod.priority, frozenset(view.world.nodes if is_wide else found), view.now)

    def _keep_for(self, view: PlanView, uid: str, end: float) -> bool:
        """Room for a pod that was refused for long: on the node where it is kept already, if that still serves. False:
        the slice is over."""
        pod, refusal = view.world.pods.get(uid), self._refusals.get(uid)
        if pod is None or refusal is None or len(self._kept) >= most_kept(len(view.world.nodes)):
            return True
        if view.memory.is_resting(uid, view.now):
            return True
        demands, _ = demands_of_pod(pod, self._world, self._world.settings)
        if not any(demand.is_local for demand in demands):
            return True
        where = _where(refusal)
        if self._never.covers(where, demands) or too_large(view.world, demands) is not None:
            return True
        judge = Judge(view.world, view.ledger, demands, view.now, now_utc=view.clock.now_utc())
        if any(one.verdict is Verdict.UNSUITABLE for _, one in judge.judge_sets(refusal.nodes)):
            return True  # its other volumes find no place, whatever room there is
        kept = view.holds.kept(uid, Source.KEPT_ROOM)
        node = next((name for promise in kept for name in promise.nodes), "")
        if not node or node in self._kept or not may_take(judge, node):  # whatever the last sample of nodes was
            seeking = self._seeking = self._seeking or Seeking(refusal.candidates)
            if not seeking.go_on(judge, view.ledger, self._kept, lambda: view.clock.now() > end):
                return False
            node = seeking.best
            if not node and not self._kept:
                self._never.add(where, demands, is_full=True)
        if node:
            self._kept[node] = uid
            self._keep(view, pod, demands, node)
        return True

    def _keep(self, view: PlanView, pod: Pod, demands: Sequence[VolumeDemand], node: str) -> None:
        until = view.memory.keep_until(pod.uid, view.now)
        view.holds.release(pod.uid, Source.KEPT_ROOM)
        against = Against(pod.priority, is_for_local=True)
        for demand in demands:
            if demand.is_local:
                view.holds.keep(pod.uid, Source.KEPT_ROOM, demand, node, view.now, until=until, against=against)


class _FullFor:
    """What found no room anywhere in this round, so that the same need not be looked at again: room only becomes less
    from pod to pod. Where no disk has the bytes, a larger volume finds none either; where promises stand in the way it
    may, if it reaches fewer disks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._exact: set[_Shape] = set()
        # For pods with a single volume: the smallest size that no disk takes, and sizes that promises keep out.
        self._least: dict[_Shape, int] = {}
        self._kept_out: dict[_Shape, list[int]] = {}
        self._reaches: list[int] | None = None

    def covers(self, where: _Shape, demands: Sequence[VolumeDemand]) -> bool:
        if len(demands) == 1:
            key, size = (*where, _kind_of(demands[0])), demands[0].size_bytes
            sizes = self._kept_out.get(key, ())
            at = bisect_right(sizes, size)
            return size >= self._least.get(key, size + 1) or (at > 0 and self._reach_the_same(sizes[at - 1], size))
        return (*where, *map(_exact, demands)) in self._exact

    def _reach_the_same(self, smaller: int, larger: int) -> bool:
        """Whether every disk that takes the smaller one may take the larger one, too."""
        if self._reaches is None:
            rooms = map(self._world.room, self._world.nodes)
            self._reaches = sorted(disk.reach_bytes for room in rooms if room is not None for disk in room.disks)
        return bisect_left(self._reaches, smaller) == bisect_left(self._reaches, larger)

    def add(self, where: _Shape, demands: Sequence[VolumeDemand], *, is_full: bool) -> None:
        """`is_full`: no disk has the bytes."""
        if len(demands) == 1 and not is_full:
            insort(self._kept_out.setdefault((*where, _kind_of(demands[0])), []), demands[0].size_bytes)
        elif len(demands) == 1:
            key, size = (*where, _kind_of(demands[0])), demands[0].size_bytes
            self._least[key] = min(size, self._least.get(key, size))
        else:
            self._exact.add((*where, *map(_exact, demands)))


def _where(refusal: RefusedPod) -> _Shape:
    """Equal for pods that the same nodes count for."""
    series = refusal.series
    if series is None:
        return (refusal.candidates, refusal.victims)
    return ("all",) if series.possible is None else (series.possible, refusal.candidates, refusal.victims)


def _planned_bytes(view: PlanView) -> Mapping[str, int]:
    """What this round has planned, by node."""
    found: dict[str, int] = {}
    for promise in view.ledger.limited():
        if promise.source is Source.WAKE_PLAN:
            for name in promise.nodes:
                found[name] = found.get(name, 0) + promise.size_bytes
    return found


def _kind_of(demand: VolumeDemand) -> object:
    """Equal for volumes that the same disks suit, their size aside. A volume that exists is like no other."""
    if demand.exists:
        return demand.volume
    facts = replace(demand.facts, name="", size_bytes=0)
    return facts, demand.needs, demand.is_local, demand.copies, demand.image, demand.clone_disks, demand.follows


def _exact(demand: VolumeDemand) -> object:
    return _kind_of(demand), demand.size_bytes, demand.required_bytes


def _is_starving(view: PlanView, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool:
    """A pod that nobody has asked this leader about may be gated, or wait for something else than room."""
    after = view.live.starvation_after_seconds
    if refusal.is_presumed or not any(demand.is_local or demand.is_roaming for demand in demands):
        return False
    return 0 < after <= view.now - refusal.waits_since and not view.is_due_remotely(refusal, demands)
