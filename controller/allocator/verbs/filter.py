"""One filter call: the order in which nodes are looked at, what is offered and held, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PlacesByVolume, PodFit, needs_disk, suffice
from controller.allocator.choose.search import in_order, search_all
from controller.allocator.choose.verdict import CONTENDED, IN_USE, LATE, Judgement, Verdict
from controller.allocator.outcome import Decision, FilterOutcome
from controller.allocator.plans.choice import nodes_named
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.plan import NO_PLACES, Hold, Source
from controller.allocator.plans.shared_claims import NO_LIMIT, SharedClaims
from controller.allocator.verbs.settle import Settler
from controller.allocator.waiting.refusals import Refusals, RefusedPod
from controller.allocator.waiting.room import PodRoom
from controller.allocator.waiting.samples import is_sample
from controller.allocator.waiting.sharing import AMPLE_PLACES, FEW, places_beyond, places_left, sharers
from controller.clock import Clock
from controller.model.places import Place
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason, counted
from controller.settings import LiveSettings

MOST_PLACES: Final = 5_000  # that one answer holds: its holds take milliseconds
_NO_REFUSALS: Final[Mapping[str, Reason]] = {}


@dataclass(slots=True)
class Found:
    """Where a pod finds room. `sure`: nodes, each with the places of the volumes that follow the pod. `is_home`: these
    nodes have its data. `refused`: the judgements on the other nodes. `anywhere`: places of its other volumes."""

    sure: Mapping[str, Judgement] = field(default_factory=dict)
    refused: dict[str, Judgement] = field(default_factory=dict)
    anywhere: PlacesByVolume = field(default_factory=dict)
    is_home: bool = False


@dataclass(slots=True)
class Filtering:
    """The state of one call. Threads: none of its own; the allocator's lock guards all that it touches."""

    room: PodRoom
    settler: Settler
    shared: SharedClaims
    growths: Growths
    refusals: Refusals
    live: LiveSettings
    clock: Clock
    version: int
    serial: int = 0
    adds_up: bool = False  # nobody knows who asks, so that the answer ends nothing that the pod was told before
    has_freed: bool = False  # the answer leaves room to others that the pod's former one held

    @property
    def now(self) -> float:
        return self.clock.now()

    # Filter

    def decide(self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Sequence[str]) -> FilterOutcome:
        chosen = self.standing_choice(pod, candidates, demands)
        if chosen:
            self._repeat(pod, chosen)
            return self._passed(Decision.CHOSEN, (chosen,), pod)
        self.settler.asked_about(pod.uid)
        if self.adds_up:
            return self._decide_anew(pod, candidates, demands)
        former, ended = self.room.table.hold(pod.uid), self.settler.end_choice(pod)
        self.settler.end_hold(pod.uid, "filtered_again")
        outcome = self._decide_anew(pod, candidates, demands)
        now = self.room.table.hold(pod.uid)
        if former is not None and now is None:
            self.settler.plan_for(pod)
        held = former.size_bytes if former is not None else 0
        self.has_freed = self.has_freed or ended or held > (now.size_bytes if now is not None else 0)
        return outcome

    def standing_choice(self, pod: Pod, candidates: Collection[str], demands: Sequence[VolumeDemand]) -> str:
        """The chosen node, if the choice stands, the scheduler still asks about it, and all of the pod's volumes have
        their places there; "" otherwise."""
        node = self.settler.claimants.choice(pod)
        if not node or node not in candidates:
            return ""
        if pod.node_name:
            return node
        hold = self.room.table.hold(pod.uid)
        is_seen = hold is not None and hold.chosen == node
        return node if is_seen and all(self._is_covered(node, demand) for demand in demands) else ""

    def _is_covered(self, node: str, demand: VolumeDemand) -> bool:
        """Whether the volume needs nothing more on the chosen node than what is planned."""
        planned = self.room.table.places(demand.volume)
        if demand.is_local:
            return node in demand.home_nodes or any(place.node == node for place in planned)
        return not needs_disk(self.room.world, demand) or suffice(self.room.world, demand, planned)

    def _repeat(self, pod: Pod, chosen: str) -> None:
        """Answer the choice again: whatever names another node counts as older than this answer, seen or not yet."""
        hold = self.room.table.hold(pod.uid)
        if hold is not None and not self.adds_up:
            others = {one for one in nodes_named(pod, self.room.world.claims_of(pod)) if one[1] != chosen}
            since_utc = self.clock.now_utc().replace(microsecond=0)
            self.room.table.put_hold(
                replace(
                    hold,
                    nodes={chosen: {}},
                    named_before=hold.named_before | others,
                    since=self.now,
                    since_utc=since_utc,
                )
            )

    def _decide_anew(self, pod: Pod, candidates: Sequence[str], demands: Sequence[VolumeDemand]) -> FilterOutcome:
        nodes = self.room.world.nodes
        needs_room = any(one.is_local or one.is_roaming or one.never for one in demands)
        may_attach = all(name in nodes for name in candidates) or not (demands or self.room.world.uses_longhorn(pod))
        if not needs_room and may_attach and self.shared.limit_of(pod, demands) is NO_LIMIT:
            return self._passed(Decision.NOTHING_NEEDED, candidates, pod)
        found = self.find_nodes(pod, demands, candidates, is_narrow=True)
        if not found.sure:
            return self._refuse(pod, candidates, found.refused, demands)
        decision = Decision.RESTART if found.is_home else Decision.OFFERED
        return self._offer(decision, pod, candidates, demands, found)

    def find_nodes(
        self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Sequence[str], *, is_narrow: bool
    ) -> Found:
        """Where the pod finds room, and why not elsewhere: on nodes with its data, if there is room for the rest; else
        wherever there is.

        The one place that knows the order of the rules, for the filter verb and the preempt verb. `is_narrow`: no more
        is returned than is offered at once.
        """
        limit = self.shared.limit_of(pod, demands)
        free = candidates if limit is NO_LIMIT else [name for name in candidates if limit.includes(name)]
        if not free:
            return Found(refused=dict.fromkeys(candidates, CONTENDED if limit.waits else IN_USE))
        former = self._adds_to(pod)
        adds_to = former.anywhere if former is not None else NO_PLACES
        budget = Budget.of(self.clock, self.live.filter_budget_milliseconds)
        fit = self.room.fit(pod, demands, budget, adds_to=adds_to)
        names, refused = fit.open_among(free)
        if limit.nodes is not None:
            refused.update((one, IN_USE) for one in candidates if one not in limit.nodes)
        if names and not fit.local:
            return Found(dict.fromkeys(names, fit.judge(names[0])), refused, fit.anywhere)
        home = fit.restart_among(names)
        if home and is_narrow:
            return Found(home, {}, fit.anywhere, is_home=True)
        sure, why = self._look(fit, pod, names, is_narrow=is_narrow)
        refused.update(why)
        if not sure and not home:
            packed = fit.pack_first(name for name in free if refused.get(name, CONTENDED).verdict is Verdict.CONTENDED)
            if packed is not None:
                sure = dict((packed,))
                refused.pop(packed[0], None)
        return Found({**home, **sure}, refused, fit.anywhere, is_home=bool(home))

    def _adds_to(self, pod: Pod) -> Hold | None:
        """The pod's former answer, if this one adds to it."""
        return self.room.table.hold(pod.uid) if self.adds_up else None

    def _look(
        self, fit: PodFit, pod: Pod, candidates: Sequence[str], *, is_narrow: bool
    ) -> tuple[dict[str, Judgement], dict[str, Judgement]]:
        """Sure nodes, in the order of the search, and the judgement on every other node looked at. If `is_narrow`, as
        many as the pod is offered (controller/allocator/waiting/sharing.py); fewer for a pod of many volumes, each of
        which is held on each of the nodes; and one where answers to pods of the namespace come to nothing, so that
        nobody holds many nodes for one volume by being asked about all the time.

        When the call's budget is spent, what was not reached is refused by name, and comes first next time.
        """
        taken = self.room.taken_by_node()
        unreached = self.refusals.unreached(pod.uid)
        if not is_narrow:
            search = search_all(fit, in_order(candidates, fit.local, taken, unreached=unreached))
            return search.sure, search.refused
        answers = self.settler.answers
        most = min(self.live.max_offers or len(candidates), max(1, MOST_PLACES // max(1, len(fit.local))))
        if answers.went_unchosen(pod.namespace, self.now):
            most = 1
        among = sharers(self.room.world, self.room.table, answers, self.refusals)
        size, enough = sum(demand.size_bytes for demand in fit.local), max(most * among, AMPLE_PLACES)
        if among > 1 and candidates:
            # Among equals another one begins each time: few may be offered, and a pod may come back because it cannot
            # be bound to the one that it was offered.
            first = self.version % len(candidates)
            candidates = [*candidates[first:], *candidates[:first]]
        former = self._adds_to(pod)
        if among == 1 and former is not None:  # what it holds it need not hold elsewhere as well
            unreached |= frozenset(former.nodes or ())
        names = in_order(candidates, fit.local, taken, unreached=unreached)
        places = count = looked_at = 0

        def is_enough(sure: Collection[str]) -> bool:
            nonlocal places, count, looked_at
            had, count, looked_at = count, count + len(sure), looked_at + fit.lot
            places += places_left(fit, sure, size, enough)
            if had < most <= count and places < enough and size:
                rest = places_beyond(self.room.world, names[looked_at:], taken, size, enough)
                places = enough if places + rest * count // looked_at >= enough else places
            return count >= most and places >= enough

        search = search_all(fit, names, is_enough)
        share = max(1, places // among) if among > 1 else most if places >= AMPLE_PLACES else FEW
        return dict(list(search.sure.items())[: min(most, share)]), search.refused

    def _offer(
        self,
        decision: Decision,
        pod: Pod,
        candidates: Sequence[str],
        demands: Sequence[VolumeDemand],
        found: Found,
    ) -> FilterOutcome:
        nodes = list(found.sure)
        passed = candidates if len(nodes) == len(candidates) else nodes
        held = self._hold(pod, len(candidates), demands, found)
        if held is not None and held.size_bytes:
            answers = self.settler.answers
            answers.answered(pod.uid, pod.namespace, self.now, self.serial, adds_up=self.adds_up)
        reasons = {name: _reason(judgement) for name, judgement in found.refused.items()}
        return self._passed(decision, passed, pod, reasons, held.size_bytes if held is not None else 0)

    def _hold(self, pod: Pod, asked: int, demands: Sequence[VolumeDemand], found: Found) -> Hold | None:
        """Hold what is offered; where answers add up, beside what the pod holds by a former one. Without time for the
        scheduler nothing is held, and a place is found once a node is chosen."""
        is_bound = any(demand.is_local for demand in demands) or len(found.sure) < asked
        holds = self.live.pod_scheduling_timeout_seconds > 0
        nodes: dict[str, Mapping[str, Place]] | None = None
        if is_bound:
            nodes = {name: judgement.places if holds else {} for name, judgement in found.sure.items()}
        anywhere = found.anywhere if holds else {}
        earlier = nodes_named(pod, self.room.world.claims_of(pod))
        former, chosen = self._adds_to(pod), ""
        if former is not None:  # a choice stands, if one was seen, until another is
            earlier, chosen = former.named_before, former.chosen
            nodes = None if nodes is None or former.nodes is None else {**nodes, **former.nodes}
            anywhere = former.anywhere if chosen else {**anywhere, **former.anywhere}
        return self.room.hold(
            pod.uid, Source.FILTER, nodes, anywhere, named_before=earlier, chosen=chosen, is_bare=not holds
        )

    def _passed(
        self,
        decision: Decision,
        nodes: Sequence[str],
        pod: Pod,
        refused: Mapping[str, Reason] = _NO_REFUSALS,
        held_bytes: int = 0,
    ) -> FilterOutcome:
        self.refusals.drop(pod.uid)
        if not self.adds_up:
            self.has_freed = self.room.end_nomination(pod.uid) or self.has_freed
        self.has_freed = self.settler.release(pod.uid, Source.KEPT_ROOM, Source.WAKE_PLAN) or self.has_freed
        return FilterOutcome(decision, nodes, self.version, refused, held_bytes=held_bytes)

    def _refuse(
        self,
        pod: Pod,
        candidates: Sequence[str],
        judgements: Mapping[str, Judgement],
        demands: Sequence[VolumeDemand],
    ) -> FilterOutcome:
        judgements = self._told_apart(judgements, demands)
        is_contended = _is_contended(judgements)
        part = is_sample(len(candidates), len(self.room.world.kube_nodes))
        refused, now = {name: _reason(judgement) for name, judgement in judgements.items()}, self.now
        reasons = counted(refused.values())
        refusal = self.refusals.refused(pod.uid, candidates, is_contended, now, is_sample=part, reasons=reasons)
        self.refusals.not_reached(pod.uid, [name for name, entry in judgements.items() if entry is LATE])
        remote = _with_longhorn(judgements, candidates)
        if remote and not is_contended and self.is_due_remotely(refusal, demands):
            return self._passed(Decision.REMOTE, remote, pod)
        if not self.adds_up:  # otherwise anybody may have asked, about any nodes
            nominated = self.room.table.hold(pod.uid, Source.NOMINATION)
            if nominated is not None and any(map(nominated.includes, candidates)):
                self.has_freed = self.room.end_nomination(pod.uid)  # its victims are gone, and it found no room
        return FilterOutcome(
            decision=Decision.CONTENDED if is_contended else Decision.REFUSED,
            passed=(),
            refused=refused,
            waitable=is_contended and self.settler.answers.is_young(self.now),
            version=self.version,
            is_bounded=any(entry.is_bounded for entry in judgements.values()),
        )

    def _told_apart(
        self, judgements: Mapping[str, Judgement], demands: Sequence[VolumeDemand]
    ) -> Mapping[str, Judgement]:
        """The judgements, with nodes that are full only by a growth that is held as contended: that hold may end."""
        held = Counter[str]()
        for growth in self.growths.held():
            for node, _, more in growth.on_disks:
                held[node] += more
        largest = max((demand.size_bytes for demand in demands if demand.is_local), default=0)
        freed = {
            name: CONTENDED
            for name, growth in held.items()
            if name in judgements
            and judgements[name].verdict is Verdict.FULL
            and self.room.world.best.get(name, 0) + growth >= largest
        }
        return {**judgements, **freed} if freed else judgements

    def is_due_remotely(self, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool:
        """Whether the pod has been refused so long that it may run on a node without its data: every volume that wants
        local room exists, lies somewhere usable, and is not bound to its node."""
        after = self.live.remote_fallback_after_seconds
        local = [demand for demand in demands if demand.is_local]
        if after == 0 or not local or self.now - refusal.first_at < after:
            return False
        return all(demand.usable_nodes and not demand.is_pinned for demand in local)

    # Preemption

    def keep_candidates(
        self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Collection[str]
    ) -> Collection[str]:
        """The candidates, however many, that a filter call would let pass. Nothing is held; the others are remembered
        as refused."""
        if not candidates:
            return ()
        found = self.find_nodes(pod, demands, list(candidates), is_narrow=False)
        kept = set(found.sure)
        chosen = self.standing_choice(pod, candidates, demands)
        if chosen:
            kept.add(chosen)
        dropped = [name for name in candidates if name not in kept]
        self.refusals.not_reached(pod.uid, [name for name, entry in found.refused.items() if entry is LATE])
        self.settler.approvals.approve(pod.uid, kept, self.now, adds_up=self.adds_up)
        if kept:
            self.room.settle_nomination(pod)
            self.refusals.preempts(pod.uid, dropped)
            return kept
        if not self.adds_up:
            self.room.end_nomination(pod.uid)
        is_contended = _is_contended(self._told_apart(found.refused, demands))
        self.refusals.refused_preemption(pod.uid, dropped, self.now, is_contended=is_contended)
        refusal = self.refusals.get(pod.uid)
        is_remote = refusal is not None and not is_contended and self.is_due_remotely(refusal, demands)
        return _with_longhorn(found.refused, candidates) if is_remote else ()  # it takes no room: none is kept for it

    def fail_preemption(self, pod_uid: str, candidates: Collection[str]) -> None:
        """Count the pod as contended on the candidates, of which nothing is known, unless it waits no more."""
        pod = self.room.world.pods.get(pod_uid)
        if not candidates:
            return
        if pod is None:
            self.refusals.expect(pod_uid, list(candidates), self.now)
        elif pod.is_pending:
            self.refusals.refused_preemption(pod_uid, list(candidates), self.now)


def _with_longhorn(judgements: Mapping[str, Judgement], candidates: Collection[str]) -> Sequence[str]:
    """The candidates to which Longhorn can attach a volume at all."""
    closed = {name for name, one in judgements.items() if one.reason is Reason.NO_LONGHORN_NODE}
    return [name for name in candidates if name not in closed]


def _is_contended(judgements: Mapping[str, Judgement]) -> bool:
    return any(entry.verdict is Verdict.CONTENDED for entry in judgements.values())


def _reason(judgement: Judgement) -> Reason:
    return judgement.reason or Reason.CONTENDED
