"""One filter call: in which order nodes are looked at, what is offered and held, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.discretion import Discretion
from controller.allocator.judge.node import Judge, Judgement, Verdict
from controller.allocator.judge.pending import Newcomer
from controller.allocator.judge.search import in_order, look
from controller.allocator.judge.verdict import CONTENDED, IN_USE, LATE
from controller.allocator.outcome import Decision, FilterOutcome
from controller.allocator.promises.choice import Choice
from controller.allocator.promises.claims import CLAIM
from controller.allocator.promises.holds import Holds, places_of
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import OnDisks, Source, State, Verb
from controller.allocator.promises.settle import Settler
from controller.allocator.promises.users import FREE, Tie
from controller.allocator.verbs.prioritize import Strategy, score_nodes
from controller.allocator.verbs.sharing import places_left, sharers
from controller.allocator.waiting.refusals import Refusals, RefusedPod
from controller.allocator.waiting.samples import is_sample
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason
from controller.settings import LiveSettings

_NO_REFUSALS: Final[Mapping[str, Reason]] = {}


@dataclass(slots=True)
class Filtering:
    """The state of one call. Threads: none of its own; the allocator's lock guards all that it touches."""

    world: World
    ledger: Ledger
    settler: Settler
    holds: Holds
    memory: Memory
    refusals: Refusals
    live: LiveSettings
    clock: Clock
    now: float
    version: int
    adds_up: bool = False  # nobody knows who asks, so that the answer ends nothing that the pod was promised before
    has_freed: bool = False  # the answer leaves room to others that the pod's former one held
    has_excess: bool = False  # the yes makes use of the tolerance for volumes that roam
    is_at_discretion: bool = False  # what passed is one node where the pod's own volumes do not satisfy the sums
    falls_back: bool = False  # and where one of them may find no disk

    def decide(self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Sequence[str]) -> FilterOutcome:
        chosen = self._standing_choice(pod, candidates, demands)
        if chosen is not None:
            self._repeat(pod, chosen)
            return self._passed(Decision.CHOSEN, (chosen,), pod)
        if self.adds_up:
            outcome = self._decide_anew(pod, candidates, demands)
            if outcome.held_bytes:
                self._supersede(pod, candidates)
            return outcome
        former = self.ledger.of_claimant(pod.uid)
        for promise in former:  # an assumption that no longer stands must not narrow a new answer
            self.ledger.drop(Verb.FORGET, promise.volume, promise.claimant)
        self.settler.end_answer(pod.uid, self.now, "filtered_again")
        self._supersede(pod, candidates)
        outcome = self._decide_anew(pod, candidates, demands)
        for promise in former:
            now = self.ledger.get(promise.volume, promise.claimant)
            self.has_freed = self.has_freed or now is None or not promise.nodes <= now.nodes
        return outcome

    def _repeat(self, pod: Pod, chosen: str) -> None:
        """What speaks of another node is older than this answer, whether it shows by now or not."""
        others = [one for one in self.world.claims_of(pod) if one.selected_node not in ("", chosen)]
        older = [(claim.uid, claim.selected_node) for claim in others]
        self.memory.supersede(pod.uid, older, adds_up=self.adds_up)
        if not self.adds_up:
            self.memory.offer_again(pod.uid, chosen)

    def _supersede(self, pod: Pod, candidates: Sequence[str]) -> None:
        """What the cluster shows of a choice by now is older than the answer."""
        asked = frozenset(candidates)
        older = [
            (claim.uid, claim.selected_node)
            for claim in self.world.claims_of(pod)
            if claim.selected_node and (claim.volume_name or claim.selected_node not in asked)
        ]
        self.memory.answer_anew(pod.uid, older, pod.nominated_node, adds_up=self.adds_up)

    def _decide_anew(self, pod: Pod, candidates: Sequence[str], demands: Sequence[VolumeDemand]) -> FilterOutcome:
        lapsing = self.world.allocated.lapsing
        if not any(one.is_local or one.is_roaming or one.never or lapsing(one.volume) for one in demands):
            return self._passed(Decision.NOTHING_NEEDED, candidates, pod)
        home, passed, refused = self._try_candidates(pod, candidates, demands, is_narrow=True)
        if home:
            return self._offer(Decision.RESTART, pod, home, demands)
        if passed:
            decision = Decision.AT_DISCRETION if self.is_at_discretion else Decision.OFFERED
            return self._offer(decision, pod, passed, demands, refused)
        return self._refuse(pod, candidates, refused, demands)

    def _try_candidates(
        self, pod: Pod, candidates: Sequence[str], demands: Sequence[VolumeDemand], *, is_narrow: bool
    ) -> tuple[Sequence[str], Sequence[str], dict[str, Judgement]]:
        """Where the pod's data lies with room for the rest; where it finds room; and why not elsewhere.

        The one place that knows the order of the rules, for the filter verb and the preempt verb. `is_narrow`: with a
        home nothing else is looked at, and no more is returned than is offered at once.
        """
        tie = self.tie_of(pod, demands, candidates)
        free = candidates if tie is FREE else [name for name in candidates if tie.includes(name)]
        if not free:
            return (), (), dict.fromkeys(candidates, CONTENDED if tie.waits else IN_USE)
        judge = self._judge(pod, demands, self._budget())
        found, closed = judge.open_among(free)
        closed.update((name, IN_USE) for name in candidates if tie.nodes is not None and name not in tie.nodes)
        self.has_excess = judge.has_excess
        if found and not judge.local:
            return (), found, closed
        home = judge.restart_among(found)
        if home and is_narrow:
            return home, (), {}
        passed, refused = self._look(judge, pod, found, is_narrow=is_narrow)
        refused.update(closed)
        if not (passed or home):
            discretion = Discretion(judge, allows_stranding=self.live.allow_stranding)
            passed = discretion.among(free, 1 if is_narrow else len(free))
            self.has_excess = self.has_excess and not passed
            self.is_at_discretion, self.falls_back = bool(passed), bool(discretion.stranding.intersection(passed))
            for name in passed:
                refused.pop(name, None)
        return home, passed, refused

    def _budget(self) -> Budget:
        """Of the whole call: what many volumes ask for takes a part of it."""
        return Budget(self.clock, self.now + self.live.filter_budget_milliseconds / 1000)

    def _judge(self, pod: Pod, demands: Sequence[VolumeDemand], budget: Budget | None = None) -> Judge:
        asks, pct = self.newcomer(pod), self.live.roaming_overcommit_pct
        return Judge(self.world, self.ledger, demands, self.now, asks, budget, self.clock.now_utc(), pct)

    def tie_of(self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Collection[str]) -> Tie:
        return self.settler.users.tie_of(pod, demands, candidates)

    def newcomer(self, pod: Pod, *, is_planning: bool = False) -> Newcomer:
        return newcomer_of(pod, self.memory, is_planning=is_planning)

    def keep_candidates(
        self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Collection[str]
    ) -> Collection[str]:
        """The candidates that a filter call about them would let pass, however many. Nothing is promised; the others
        are remembered as refused."""
        if not candidates:
            return ()
        home, passed, refused = self._try_candidates(pod, list(candidates), demands, is_narrow=False)
        kept = {*home, *passed}
        chosen = self._standing_choice(pod, candidates, demands, holds=False)
        if chosen is not None:
            kept.add(chosen)
        dropped = [name for name in candidates if name not in kept]
        self.refusals.not_reached(pod.uid, [name for name, entry in refused.items() if entry is LATE])
        self.memory.approve(pod.uid, kept, self.now, adds_up=self.adds_up)
        if kept:
            self.holds.settle_nomination(pod, demands, self.now)
            self.refusals.preempts(pod.uid, dropped)
            return kept
        if not self.adds_up:
            self.holds.end_nomination(pod.uid)
        is_contended = _is_contended(self._told_apart(refused, demands))
        self.refusals.refused_preemption(pod.uid, dropped, self.now, is_contended=is_contended)
        refusal = self.refusals.get(pod.uid)
        is_remote = refusal is not None and not is_contended and self.is_due_remotely(refusal, demands)
        return candidates if is_remote else ()  # it takes no room there, so none is kept for it

    def fail_preemption(self, pod_uid: str, candidates: Collection[str]) -> None:
        """Nothing is known of the candidates, so the pod counts as contended there, unless it waits no more."""
        pod = self.world.pods.get(pod_uid)
        if not candidates:
            return
        if pod is None:
            self.refusals.expect(pod_uid, list(candidates), self.now)
        elif pod.is_pending:
            self.refusals.refused_preemption(pod_uid, list(candidates), self.now)

    def score_nodes(self, pod: Pod, demands: Sequence[VolumeDemand], candidates: Sequence[str]) -> Mapping[str, int]:
        """How good each candidate is for the pod, 0 to 10; changes nothing."""
        judge = self._judge(pod, demands, self._budget())
        return score_nodes(judge, self.ledger, demands, candidates, Strategy(self.live.strategy))

    def _standing_choice(
        self, pod: Pod, candidates: Collection[str], demands: Sequence[VolumeDemand], *, holds: bool = True
    ) -> str | None:
        """The chosen node, if the choice stands and the scheduler still asks about it. What the choice is not about is
        checked, and held there: a choice of one volume says nothing about the pod's others."""
        choice = self.settler.choice(pod)
        if choice is None or choice.node not in candidates or not (choice.is_bound or choice.about):
            return None
        node = choice.node
        if choice.is_bound:
            return node
        uncovered = [demand for demand in demands if not self._is_covered(pod, choice, demand)]
        if uncovered:
            judge = self._judge(pod, uncovered)
            if not judge.open_among((node,))[0] or judge.judge(node).verdict is not Verdict.SURE:
                return None
        if holds and self.live.pod_scheduling_timeout_seconds > 0:
            # What others are promised may end before this pod's own claim to it shows.
            own = [one for one in demands if one in uncovered or self.ledger.get(one.key, pod.uid) is None]
            if sum(self.holds.offer(pod, demand, (node,), self.now, adds_up=self.adds_up) for demand in own):
                self.memory.answers.answered(pod.uid, pod.namespace, self.now, adds_up=self.adds_up)
        return node

    def _is_covered(self, pod: Pod, choice: Choice, demand: VolumeDemand) -> bool:
        """Whether the volume needs nothing more on the chosen node than what is promised there as chosen. A claim may
        have been made for an earlier pod of the same name, and room that was given to another one since: without our
        answer or kube-scheduler's nomination its annotation proves nothing to a new leader, nor does it when the volume
        exists by now, which Longhorn may have no place for."""
        node = choice.node
        if node in demand.home_nodes or not (demand.is_local or demand.is_roaming or demand.never):
            return True
        is_ours = self.memory.was_let_through(pod.uid, node) or pod.nominated_node == node
        is_known = (is_ours and demand.key in choice.about) or node in self.memory.offered(pod.uid)
        return any(
            one.state is State.ASSUMED
            and one.places.includes(node)
            and (is_known or one.claimant != pod.uid)
            and (is_known or is_ours or not (one.claimant == CLAIM or one.source is Source.LONGHORN))
            and not one.charged_to
            for one in self.ledger.of_volume(demand.key)
        )

    def _look(
        self, judge: Judge, pod: Pod, candidates: Sequence[str], *, is_narrow: bool
    ) -> tuple[list[str], dict[str, Judgement]]:
        """Sure nodes, in the order of the search, and the judgement on every other node looked at. If `is_narrow`, at
        most `max-offers`, and for one of many pods its share of what is left (controller/allocator/verbs/sharing.py);
        fewer for a pod of many volumes, each of which is held on each of the nodes; and one where answers to pods of
        the namespace come to nothing, so that nobody holds many nodes for one volume by being asked about all the time.

        When the call's budget is spent, what was not reached is refused by name, and comes first next time.
        """
        most = (self.live.max_offers if is_narrow else 0) or len(candidates)
        if is_narrow and self.memory.answers.come_to_nothing(pod.namespace, self.now):
            most = 1
        most = min(most, places_of(len(judge.local))) if is_narrow else most
        among = sharers(self.world, self.ledger, self.memory.answers, self.refusals) if is_narrow else 1
        size = sum(demand.size_bytes for demand in judge.local)
        places = count = 0
        if among > 1 and candidates:
            # Among equals another one begins each time: few are offered, and a pod may come back because it cannot be
            # bound to the one that it was offered.
            first = self.version % len(candidates)
            candidates = [*candidates[first:], *candidates[:first]]

        def is_enough(sure: Sequence[str]) -> bool:
            nonlocal places, count
            count += len(sure)
            if among > 1:
                places += places_left(judge, sure, size, most * among)
            return count >= most and (among == 1 or places >= most * among)

        unreached = self.refusals.unreached(pod.uid)
        if self.adds_up and among == 1:  # what it holds already it need not hold elsewhere as well
            unreached |= self.holds.nodes_of(pod.uid)
        search = look(judge, in_order(candidates, judge.local, self.ledger, unreached=unreached), is_enough)
        share = most if among == 1 else min(most, max(1, places // among))
        return search.sure[:share], search.refused

    def _offer(
        self,
        decision: Decision,
        pod: Pod,
        nodes: Sequence[str],
        demands: Sequence[VolumeDemand],
        refused: Mapping[str, Judgement] | None = None,
    ) -> FilterOutcome:
        held, kind = 0, {"falls_back": self.falls_back, "adds_up": self.adds_up}
        if self.live.pod_scheduling_timeout_seconds > 0:
            held = sum(self.holds.offer(pod, one, nodes, self.now, **kind) for one in demands)
        if held:
            self.memory.answers.answered(pod.uid, pod.namespace, self.now, adds_up=self.adds_up)
            self.memory.offer(pod.uid, nodes, **kind)
        reasons = {name: _reason(judgement) for name, judgement in (refused or {}).items()}
        return self._passed(decision, nodes, pod, reasons, held)

    def _passed(
        self,
        decision: Decision,
        nodes: Sequence[str],
        pod: Pod,
        refused: Mapping[str, Reason] = _NO_REFUSALS,
        held_bytes: int = 0,
    ) -> FilterOutcome:
        self.refusals.drop(pod.uid)
        if decision is not Decision.NOTHING_NEEDED:
            self.memory.let_through(pod.uid, nodes)
        if not self.adds_up:
            self.has_freed = self.holds.end_nomination(pod.uid) or self.has_freed
        self.has_freed = self.holds.release(pod.uid, Source.KEPT_ROOM, Source.WAKE_PLAN) or self.has_freed
        self.has_freed = self.memory.turns.end(pod.uid, self.now) or self.has_freed
        return FilterOutcome(
            decision, nodes, refused, False, self.version, held_bytes, is_overcommitted=self.has_excess
        )

    def _refuse(
        self,
        pod: Pod,
        candidates: Sequence[str],
        judgements: Mapping[str, Judgement],
        demands: Sequence[VolumeDemand],
    ) -> FilterOutcome:
        judgements = self._told_apart(judgements, demands)
        is_contended = _is_contended(judgements)
        part = is_sample(len(candidates), len(self.world.kube_nodes))
        self.refusals.refused(pod.uid, candidates, is_contended, self.now, is_sample=part)
        self.refusals.not_reached(pod.uid, [name for name, entry in judgements.items() if entry is LATE])
        refusal = self.refusals.get(pod.uid)
        if refusal is not None and not is_contended and self.is_due_remotely(refusal, demands):
            return self._passed(Decision.REMOTE, candidates, pod)
        if not self.adds_up:  # otherwise anybody may have asked, about any nodes
            self.settler.pod_refused(pod, self.now)
            nominated = self.holds.kept(pod.uid, Source.NOMINATION)
            if any(promise.nodes & set(candidates) for promise in nominated):
                self.has_freed = self.holds.end_nomination(pod.uid)  # its victims are gone, and it found no room
        return FilterOutcome(
            decision=Decision.CONTENDED if is_contended else Decision.REFUSED,
            passed=(),
            refused={name: _reason(judgement) for name, judgement in judgements.items()},
            waitable=any(entry.is_waitable for entry in judgements.values()),
            version=self.version,
            held_bytes=0,
            is_bounded=any(entry.is_bounded for entry in judgements.values()),
        )

    def _told_apart(
        self, judgements: Mapping[str, Judgement], demands: Sequence[VolumeDemand]
    ) -> Mapping[str, Judgement]:
        """A node that is full by a growth which the cluster does not show yet is contended: that hold may end."""
        held = self._growth_held()
        largest = max((demand.size_bytes for demand in demands if demand.is_local), default=0)
        freed = {
            name: CONTENDED
            for name, growth in held.items()
            if name in judgements
            and judgements[name].verdict is Verdict.FULL
            and self.world.best.get(name, 0) + growth >= largest
        }
        return {**judgements, **freed} if freed else judgements

    def _growth_held(self) -> Counter[str]:
        """Bytes by node that stand for growths which the cluster does not ask for yet."""
        found: Counter[str] = Counter()
        for promise in self.ledger.growths():
            if promise.state is State.HELD and isinstance(promise.places, OnDisks):
                found.update(promise.places.bytes_by_node())
        return found

    def is_due_remotely(self, refusal: RefusedPod, demands: Sequence[VolumeDemand]) -> bool:
        """Whether the pod has been refused so long that it may run on a node without its data: every volume that wants
        local room exists, lies somewhere usable, and is not bound to its node."""
        after = self.live.remote_fallback_after_seconds
        local = [demand for demand in demands if demand.is_local]
        if after == 0 or not local or self.now - refusal.first_at < after:
            return False
        return all(demand.usable_nodes and not demand.is_pinned for demand in local)


def newcomer_of(pod: Pod, memory: Memory, *, is_planning: bool = False) -> Newcomer:
    approval = memory.approvals.get(pod.uid)
    serial, closed = math.inf if approval is None else approval.serial, memory.turns.closed_to(pod.uid, pod.priority)
    return Newcomer(pod.uid, pod.priority, serial, is_planning, closed)


def _is_contended(judgements: Mapping[str, Judgement]) -> bool:
    return any(entry.verdict is Verdict.CONTENDED for entry in judgements.values())


def _reason(judgement: Judgement) -> Reason:
    return judgement.reason or Reason.CONTENDED
