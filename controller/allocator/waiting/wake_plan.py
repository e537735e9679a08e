"""The plan of a wake-up: which refused pods find room now, all of them together.

By priority, then age, each pod gets a node as a filter call would offer it, and what it takes there counts for those
after it: so as many pods are woken as there is room for, and no more. The plan is made in slices, since hundreds of
pods and thousands of nodes take longer than filter calls may wait for the allocator's lock; each slice looks at the
facts and the table of its own moment.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PlacesByVolume, PodFit
from controller.allocator.choose.search import NodeSearch, in_order
from controller.allocator.choose.shortfall import too_large
from controller.allocator.choose.verdict import CONTENDED, KEPT, LATE, Verdict
from controller.allocator.outcome import Wakeup
from controller.allocator.plans.plan import NO_PLACE, NO_PLACES, KeepsOut, Source
from controller.allocator.plans.shared_claims import NO_LIMIT, NodeLimit, SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.waiting.kept_room import KeptUntil, Seeking, most_kept, places_to_keep
from controller.allocator.waiting.refusals import PATIENCE_SECONDS, Refusals, RefusedPod
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.places import Place
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand
from controller.settings import LiveSettings

SLICE_SECONDS: Final = 0.003  # under the allocator's lock; one question about one pod may take it past this
_MOST_OPEN: Final = 16

_Shape = tuple[object, ...]


class PlanView(Protocol):
    """What a slice is planned on, and the rules that a filter call would apply: `Filtering` of
    controller.allocator.verbs."""

    @property
    def room(self) -> PodRoom: ...
    @property
    def shared(self) -> SharedClaims: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def now(self) -> float: ...
    @property
    def live(self) -> LiveSettings: ...
    def is_due_remotely(self, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Found:
    """The node to which a filter call would let a pod go, with the places there; "" for none."""

    node: str
    places: Mapping[str, Place] = field(default_factory=dict)
    anywhere: PlacesByVolume = field(default_factory=dict)


_NOWHERE: Final = _Found("")


@dataclass(slots=True)
class _Looking:
    """How far the search for one pod's node has come."""

    search: NodeSearch
    is_partial: bool = False  # not all was judged, or a node was passed over because it is kept for another pod

    def go_on(self, fit: PodFit, is_over: Callable[[], bool]) -> _Found | None:
        """Where a filter call would let the pod go; None if `is_over` ended the search before that was known."""
        search = self.search
        names, closed = fit.open_among(search.rest)
        search.refused.update(closed)
        if names and not fit.local:
            return _Found(names[0], NO_PLACE, fit.anywhere)
        search.rest = names
        if any(demand.usable_nodes for demand in fit.local):
            search.sure.update(fit.restart_among(names))
        if not search.sure and not search.go_on(fit, bool, is_over):
            return None
        if search.sure:
            node = min(search.sure, key=fit.taken_on)
            return _Found(node, search.sure[node].places, fit.anywhere)
        refused = search.refused
        packed = fit.pack_first(
            name for name in search.names if refused.get(name, CONTENDED).verdict is Verdict.CONTENDED
        )
        is_unknown = any(one is LATE or one is KEPT for one in refused.values())
        self.is_partial = packed is not None or is_unknown or fit.budget.is_over
        return _NOWHERE if packed is None else _Found(packed[0], packed[1].places, fit.anywhere)


class WakePlan:
    """One round over all refused pods. Threads: none of its own; `advance` is called under the allocator's lock.

    A pod that was woken and does not come back (something else keeps it now) stops reserving room.
    """

    def __init__(self, refusals: Refusals, world: World, kept_until: KeptUntil) -> None:
        self._refusals, self._world, self._kept_until = refusals, world, kept_until
        pods = sorted(
            (world.pods[uid] for uid in refusals.all_uids() if uid in world.pods),
            key=lambda pod: (-pod.priority, pod.created_utc, pod.key),
        )
        self._left = deque(pod.uid for pod in pods)
        self._woken: list[Wakeup] = []  # in this slice
        self._looking: _Looking | None = None
        self._full, self._never = _FullFor(), _FullFor()  # no room now; no room even once all that leaves has left
        self._open: dict[_Shape, Sequence[str]] = {}  # where the last pod of that shape found room, and nodes behind
        self._starving: deque[str] = deque()
        self._kept: dict[str, str] = {}  # node -> pod
        self._seeking: Seeking | None = None
        self.is_done = False

    def advance(self, view: PlanView) -> list[Wakeup]:
        """Plan one slice; the pods to be woken, marked as woken. `is_done` tells whether the round is over."""
        end = view.clock.now() + SLICE_SECONDS
        self._woken = []

        def is_over() -> bool:
            return view.clock.now() > end

        for queue, deal_with in ((self._left, self._look_for), (self._starving, self._keep_for)):
            while queue:
                pod, refusal = self._world.pods.get(queue[0]), self._refusals.get(queue[0])
                if pod is not None and refusal is not None and not deal_with(view, pod, refusal, is_over):
                    return self._woken
                self._looking = self._seeking = None
                queue.popleft()
                if is_over():
                    return self._woken
        self._end(view.room.table)
        return self._woken

    def _end(self, table: Table) -> None:
        kept = set(self._kept.values())
        for hold in list(table.limited()):
            if hold.source is Source.WAKE_PLAN or (hold.source is Source.KEPT_ROOM and hold.pod not in kept):
                table.end_hold(hold.pod, hold.source)
        self.is_done = True

    def _look_for(self, view: PlanView, pod: Pod, refusal: RefusedPod, is_over: Callable[[], bool]) -> bool:
        """Look for the pod's node and wake it; False if the slice ended, and the next one has to go on with the pod."""
        demands, _ = self._world.demands_of(pod)
        limit = view.shared.limit_of(pod, demands)
        if limit.waits:
            return True  # for another pod's choice, not for room
        found = self._find(view, pod, refusal, demands, limit, is_over)
        if found is None:
            return False
        is_expected = refusal.is_expected(view.now)
        if (is_expected or not found.node) and limit is NO_LIMIT and _is_starving(view, refusal, demands):
            self._starving.append(pod.uid)
        if not found.node:
            self._refusals.end_series(pod.uid)
            if not view.is_due_remotely(refusal, demands):
                return True
        elif is_expected:
            until, keeps_out = view.now + PATIENCE_SECONDS, KeepsOut(pod.priority)
            nodes = {found.node: found.places}
            view.room.hold(pod.uid, Source.WAKE_PLAN, nodes, found.anywhere, until=until, keeps_out=keeps_out)
        if refusal.wake_due_at() <= view.now:
            woken = self._refusals.mark_woken(pod.uid, view.now)
            self._woken.append(Wakeup(pod.uid, pod.namespace, pod.name, woken.wakes))
        return True

    def _find(
        self,
        view: PlanView,
        pod: Pod,
        refusal: RefusedPod,
        demands: Sequence[VolumeDemand],
        limit: NodeLimit,
        is_over: Callable[[], bool],
    ) -> _Found | None:
        """Where a filter call would let the pod go; None if the slice ended before that was known."""
        where = (*_where(refusal), limit.nodes)
        is_like_others = not _has_room_of_its_own(view.room, pod, demands)
        if is_like_others and self._full.covers(where, demands):
            return _NOWHERE
        shape = (*where, *map(_exact, demands))
        if self._looking is None:
            known = self._open.get(shape) if is_like_others else None
            names = known or [name for name in self._in_order(view.room, refusal, demands) if limit.includes(name)]
            self._looking = _Looking(NodeSearch(names))
        search = self._looking.search
        budget = Budget.of(view.clock, view.live.filter_budget_milliseconds)
        found = self._looking.go_on(view.room.fit(pod, demands, budget, is_planning=True), is_over)
        self._refusals.not_reached(pod.uid, search.unreached())
        if found is None or self._looking.is_partial:
            return found
        if not found.node:
            self._full.add(where, demands)
        elif shape in self._open or len(self._open) < _MOST_OPEN:
            self._open[shape] = [*search.sure, *search.rest]
        return found

    def _in_order(self, room: PodRoom, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> Sequence[str]:
        """The nodes that count for the pod, in the order of every search."""
        names, series = refusal.nodes, refusal.series
        if series is not None:
            shown = frozenset(names)
            others = [name for name in self._world.nodes if name not in shown]
            if series.possible is not None:
                others = self._refusals.nodes.within(others, series.possible)
            names = [*names, *others]
        return in_order(names, demands, room.taken_by_node(is_planning=True), unreached=refusal.unreached)

    def _keep_for(self, view: PlanView, pod: Pod, refusal: RefusedPod, is_over: Callable[[], bool]) -> bool:
        """Keep room for a pod that was refused for long, if possible on the node where it is kept already; False if the
        slice is over before."""
        if len(self._kept) >= most_kept(len(self._world.nodes)) or self._kept_until.is_resting(pod.uid, view.now):
            return True
        demands, _ = self._world.demands_of(pod)
        where = _where(refusal)
        if self._never.covers(where, demands) or too_large(self._world, demands) is not None:
            return True
        fit = view.room.fit(pod, demands)
        names, closed = fit.open_among(refusal.nodes)
        if not names and all(one.verdict is not Verdict.CONTENDED for one in closed.values()):
            return True  # its other volumes find no place, whatever is taken
        node = view.room.table.kept_on(pod.uid)
        places = places_to_keep(fit, node) if node and node not in self._kept else NO_PLACE
        if not places:  # otherwise it stays there, whatever the last sample of nodes was
            self._seeking = self._seeking or Seeking(refusal.candidates)
            if not self._seeking.go_on(fit, self._kept, is_over):
                return False
            node, places = self._seeking.best, self._seeking.places
        if places:
            self._kept[node] = pod.uid
            until, keeps_out = self._kept_until.keep_until(pod.uid, view.now), KeepsOut(pod.priority, is_for_local=True)
            view.room.hold(pod.uid, Source.KEPT_ROOM, {node: places}, NO_PLACES, until=until, keeps_out=keeps_out)
        elif not self._kept:
            self._never.add(where, demands)
        return True


class _FullFor:
    """What found no room anywhere in this round, so that the same need not be looked at again, nor a larger volume:
    room only becomes less from pod to pod."""

    def __init__(self) -> None:
        self._exact: set[_Shape] = set()
        self._least: dict[_Shape, int] = {}  # for pods with a single volume: the smallest size without room

    def covers(self, where: _Shape, demands: Sequence[VolumeDemand]) -> bool:
        if len(demands) == 1:
            size = demands[0].size_bytes
            return size >= self._least.get((*where, _kind_of(demands[0])), size + 1)
        return (*where, *map(_exact, demands)) in self._exact

    def add(self, where: _Shape, demands: Sequence[VolumeDemand]) -> None:
        if len(demands) == 1:
            key, size = (*where, _kind_of(demands[0])), demands[0].size_bytes
            self._least[key] = min(size, self._least.get(key, size))
        else:
            self._exact.add((*where, *map(_exact, demands)))


def _where(refusal: RefusedPod) -> _Shape:
    """A key that is equal for pods for which the same nodes count."""
    series = refusal.series
    if series is None:
        return (refusal.candidates, refusal.victims)
    return ("all",) if series.possible is None else (series.possible, refusal.candidates, refusal.victims)


def _has_room_of_its_own(room: PodRoom, pod: Pod, demands: Sequence[VolumeDemand]) -> bool:
    """Whether something keeps out others and not this pod: what it is nominated for, or what its volumes have."""
    is_approved = room.newcomer(pod).serial < math.inf
    volumes = [demand.volume for demand in demands]
    return is_approved or any(room.table.plan(one) is not None or room.table.holding(one) for one in volumes)


def _kind_of(demand: VolumeDemand) -> object:
    """A key that is equal for volumes that the same disks suit, sizes aside. A volume that exists has its own."""
    if demand.exists:
        return demand.volume
    facts = replace(demand.facts, name="", size_bytes=0)
    return facts, demand.needs, demand.is_local, demand.copies, demand.image, demand.clone_disks, demand.follows


def _exact(demand: VolumeDemand) -> object:
    return _kind_of(demand), demand.size_bytes, demand.required_bytes


def _is_starving(view: PlanView, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool:
    """Whether the pod has been refused room for so long that it is kept for it. One that this leader was never asked
    about may be gated, or wait for something else than room."""
    after = view.live.starvation_after_seconds
    if refusal.is_presumed or not any(demand.is_local for demand in demands):
        return False
    return 0 < after <= view.now - refusal.waits_since and not view.is_due_remotely(refusal, demands)
