"""Brings choices of the cluster into the table: once a node is chosen, what its pod holds there becomes plans.

Level-triggered: asked again at every event. Whatever order watches deliver in, whatever was missed, the same facts and
the same answers lead to the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Final

from controller.allocator.outcome import PodKnowledge
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.given import Given
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.journal import NODE_RESERVATION, SCHEDULING_WAIT, Journal
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import NO_PLACE, NO_PLACES, Hold, Plan, Source
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.claimants import Claimants
from controller.allocator.verbs.grow import resize_holds
from controller.allocator.verbs.planning import Planner
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.workload import Claim, Pod

FORMER_SECONDS: Final = 30.0  # after a change of leader: longer than kube-scheduler needs to write a choice
SLICE_SECONDS: Final = 0.001  # for which marked volumes are planned before others are let in
_VOLUME, _POD = "volume", "pod"  # what is marked
_KEPT: Final = (Source.KEPT_ROOM, Source.WAKE_PLAN, Source.NOMINATION)


class Settler:
    """Brings the table in line with the world. Threads: none of its own; the allocator's lock guards it.

    A pod may have very many volumes, and a claim very many pods. So whatever concerns all volumes of a pod marks them,
    and they are planned a few at a time; until the last of them is planned, the pod holds what it was told. A change of
    one claim concerns its own volume, and its pods' other volumes only where it changes what a pod holds.
    """

    def __init__(
        self,
        world: World,
        table: Table,
        clock: Clock,
        journal: Journal,
        growths: Growths,
        shared: SharedClaims,
        room: PodRoom,
        answers: Answers,
        approvals: Approvals,
        given: Given,
        claimants: Claimants,
        planner: Planner,
    ) -> None:
        self._world, self._table, self._clock, self._journal = world, table, clock, journal
        self._growths, self._shared, self._room = growths, shared, room
        self.answers, self.approvals, self._given = answers, approvals, given
        self.claimants, self.planner = claimants, planner
        self._left: dict[tuple[str, str], str] = {}  # in order: volumes to plan; pods, with nodes, to narrow after them

    # Pods

    def pod_changed(self, old: Pod | None, pod: Pod) -> None:
        """The pod came or changed: a claim that it uses may now be shared, or no longer."""
        was_using, hold = self._shared.is_using(old), self._table.hold(pod.uid)
        self._settle_answer(pod)
        if _weight(old) != _weight(pod) or self._table.hold(pod.uid) is not hold:
            self._mark(pod)
        if self._shared.is_using(pod) is not was_using:
            self._settle_users(pod)

    def _settle_users(self, pod: Pod) -> None:
        """Settle the answers of other pods of its claims: what these say may count for them now, or no more."""
        for uid in self._world.sharing(pod):
            other = self._world.pods[uid]
            if not other.is_over and (self._table.hold(uid) is not None or uid in self.claimants.former):
                self.settle_pod(other)

    def settle_pod(self, pod: Pod) -> None:
        """Settle what the pod holds; its volumes are planned anew."""
        self._settle_answer(pod)
        self._mark(pod)

    def _settle_answer(self, pod: Pod) -> None:
        """Settle what the pod holds, by what all of its claims say."""
        if pod.is_over:
            self._end_all(pod)
            return
        if pod.node_name:  # perhaps by hand, while it waited to be let through
            self.release(pod.uid, *_KEPT)
            self.approvals.forget(pod.uid)
        hold = self._answer_of(pod, self._world.claims_of(pod))
        self._room.settle_nomination(pod)
        self._settle_choice(pod, hold)

    def _settle_choice(self, pod: Pod, hold: Hold | None) -> None:
        node = self.claimants.choice(pod)
        if hold is None and node and not pod.node_name:
            hold = self.claimants.lost_answer(pod.uid)
        if hold is not None and node and (node != hold.chosen or pod.node_name or hold.at(node)):
            self._narrow(pod, hold, node)
        elif hold is not None and hold.chosen:
            self._note_withdrawn(pod, hold, is_withdrawn=not node)

    def _answer_of(self, pod: Pod, claims: Iterable[Claim]) -> Hold | None:
        """What the pod holds by an answer. What its claims say while others use them never counts as its choice."""
        hold = self._table.hold(pod.uid)
        if hold is None:
            return None
        said = {
            (claim.uid, claim.selected_node)
            for claim in claims
            if claim.selected_node not in ("", hold.chosen)
            and (claim.uid, claim.selected_node) not in hold.named_before
            and self._shared.is_used_by_others(claim.key, pod)
        }
        if said:
            hold = replace(hold, named_before=hold.named_before | said)
            self._table.put_hold(hold)
        return hold

    def _note_withdrawn(self, pod: Pod, hold: Hold, *, is_withdrawn: bool) -> None:
        """Note that a choice that was seen is withdrawn, or stands again. A new one may be on its way: what is planned
        stays until that would have been seen."""
        if is_withdrawn and pod.uid not in self.answers:
            self.answers.inherited(pod.uid, pod.namespace, self._clock.now())
        elif not is_withdrawn and not hold.size_bytes:  # another node may have been answered beside the choice
            self.answers.chosen(pod.uid, self._clock.now())

    def _narrow(self, pod: Pod, hold: Hold, node: str) -> None:
        """Narrow the hold to the chosen node. The places there stay held until all of them are plans."""
        if hold.includes(node) and hold.chosen != node:
            nodes = hold.nodes
            here = None if nodes is None else {**dict.fromkeys(nodes, NO_PLACE), node: nodes[node]}
            self._table.put_hold(replace(hold, nodes=here, chosen=node))
            self._mark(pod)
        self._left.pop((_POD, pod.uid), None)
        self._left[_POD, pod.uid] = node

    def _end_narrowing(self, pod_uid: str, node: str) -> None:
        """End what the pod holds, now that its volumes are planned, but for volumes of which nothing is known yet."""
        pod, hold = self._world.pods.get(pod_uid), self._table.hold(pod_uid)
        if pod is None or hold is None or pod.is_over or self.claimants.choice(pod) != node:
            return
        unknown = self.planner.unknown.intersection(hold.at(node) if hold.includes(node) else ())
        if unknown or not pod.node_name:
            hold = hold.planned_at(node, unknown)
            self._table.put_hold(hold)
            if hold.size_bytes:  # for what is unknown, or on another node that was answered beside the choice
                return
        elif self._is_by_name_alone(pod):
            self._table.put_hold(hold.narrowed(node))
        else:
            self._table.end_hold(pod.uid)
        waited = self.answers.chosen(pod.uid, self._clock.now())
        if waited is not None:
            self._journal.record(SCHEDULING_WAIT, waited, True)

    def _is_by_name_alone(self, pod: Pod) -> bool:
        """Whether a copy of its volumes was given its place by name and Longhorn does not show it yet: that may come to
        nothing, and the pod is planned for again."""
        if not self._given.is_authority:
            return False
        volumes = self._volumes_of(pod)
        shown = (self._given.shown_replica(name) for volume in volumes for name in self._world.replicas_of(volume))
        is_planned = any(self._table.plan(volume) is not None for volume in volumes)
        return is_planned or any(one is not None and not one.is_placed for one in shown)

    def _volumes_of(self, pod: Pod) -> list[str]:
        return [self._world.volume_of(claim.uid) for claim in self._world.claims_of(pod)]

    def _mark(self, pod: Pod) -> None:
        """Have the plans of the pod's volumes brought in line with what their pods have been told by now."""
        for volume in self._volumes_of(pod):
            self._left.setdefault((_VOLUME, volume), "")
        node = self._left.pop((_POD, pod.uid), None)
        if node is not None:  # only after its volumes
            self._left[_POD, pod.uid] = node

    @property
    def has_marked(self) -> bool:
        """Whether `plan_marked` has anything to do."""
        return bool(self._left)

    def plan_marked(self, seconds: float = SLICE_SECONDS) -> None:
        """Plan volumes that are marked, for so long."""
        end = self._clock.now() + seconds
        while self._left:
            (kind, key), node = next(iter(self._left.items()))
            del self._left[kind, key]
            if kind == _VOLUME:
                self._plan(key)
            else:
                self._end_narrowing(key, node)
            if self._clock.now() > end:
                return

    def plan_for(self, pod: Pod) -> None:
        """Mark the pod's volumes, and plan the first of them."""
        self._mark(pod)
        self.plan_marked()

    def _plan(self, volume: str) -> None:
        self.planner.settle(volume, self._clock.now_utc())

    def expire(self, pod_uid: str) -> bool:
        """End the pod's answer, on which nobody acted in time; whether that changes anything."""
        pod = self._world.pods.get(pod_uid)
        if (_POD, pod_uid) in self._left:
            return False  # its choice was seen, and what it holds becomes plans
        if pod is not None and self._believe(pod):
            return True
        hold = self._table.hold(pod_uid)
        is_chosen = hold is not None and bool(hold.chosen)
        if pod is not None and hold is not None and is_chosen and self.claimants.choice(pod) == hold.chosen:
            self.answers.chosen(pod_uid, self._clock.now())  # what was answered beside the choice ends
            self._table.put_hold(hold.narrowed(hold.chosen))
            return bool(hold.size_bytes)
        has_ended = self.end_hold(pod_uid, "expired")
        if pod is not None:
            self.plan_for(pod)
        return has_ended or is_chosen

    def _believe(self, pod: Pod) -> bool:
        """Let a choice that is older than the answer count again; whether there is one."""
        hold = self._table.hold(pod.uid)
        if hold is None or hold.chosen or not hold.named_before:
            return False
        fresh = replace(hold, named_before=frozenset[tuple[str, str]]())
        self._table.put_hold(fresh)
        if not self.claimants.choice(pod):
            self._table.put_hold(hold)
            return False
        self.settle_pod(pod)
        return True

    def pod_gone(self, pod: Pod) -> None:
        """End what the pod holds: it is gone."""
        was_using = self._shared.is_using(pod)
        self._end_all(pod)
        if was_using:
            self._settle_users(pod)

    def _end_all(self, pod: Pod) -> None:
        """End what the pod holds: it is gone, has finished, or is deleted unbound."""
        self.end_hold(pod.uid, "pod_gone")
        self.release(pod.uid, *_KEPT)
        self.approvals.forget(pod.uid)
        self._mark(pod)

    def end_hold(self, pod_uid: str, how: str) -> bool:
        """End what the pod holds by an answer; whether it held anything that was not chosen."""
        hold = self._table.end_hold(pod_uid)
        waited = self.answers.ended(pod_uid, self._clock.now())
        if waited is not None:
            self._journal.record(SCHEDULING_WAIT, waited, False)
            self._journal.counters[f"holds_ended_{how}"] += 1
        return hold is not None and bool(hold.size_bytes)

    def end_unbound(self, plan: Plan) -> None:
        """End a plan whose pods nobody has bound in time."""
        for uid in plan.pods:
            self.end_hold(uid, "expired")
        self._table.remove(plan.volume)
        self._journal.record(NODE_RESERVATION, (self._clock.now_utc() - plan.since_utc).total_seconds(), False)
        self._journal.counters["plans_expired"] += 1

    def end_choice(self, pod: Pod) -> bool:
        """End what is planned for this pod alone at its chosen node, since it is asked about again and its choice does
        not stand; whether that was anything."""
        has_ended = False
        for volume in self._volumes_of(pod):
            plan, demand = self._table.plan(volume), self.planner.demand_of(volume)
            is_at_node = demand is None or demand.is_local or (demand.prefers_local and not demand.exists)
            if plan is not None and plan.pods == (pod.uid,) and is_at_node:
                self._table.remove(volume)
                has_ended = True
        return has_ended

    def release(self, pod_uid: str, *sources: Source) -> bool:
        """End what is kept for the pod by these sources; whether that was anything."""
        ended = [self._table.end_hold(pod_uid, source) for source in sources]
        return any(hold is not None for hold in ended)

    def restart(self) -> None:
        """Forget all answers and approvals."""
        self.answers.clear()
        self.approvals.clear()
        self.claimants.former.clear()
        self.planner.unknown.clear()
        self._left.clear()

    def presume(self, refusals: Refusals, schedulers: Container[str] | None, *, has_predecessor: bool) -> None:
        """Count pods that wait without an answer as refused: the leader before may have refused them, so that they
        sleep; or it let them through and could not store that. `schedulers`: ours, by name; None: any."""
        now, now_utc = self._clock.now(), self._clock.now_utc()
        for pod in self._world.pods.values():
            known = PodKnowledge.of(pod, pod.uid, schedulers)
            if pod.is_opted_in and known is PodKnowledge.PENDING and self._table.hold(pod.uid) is None:
                refusals.presume(pod, list(self._world.nodes), now, now_utc)
                if has_predecessor:
                    self.claimants.former[pod.uid] = now + FORMER_SECONDS

    def asked_about(self, pod_uid: str) -> None:
        """Forget what the leader before may have answered: the pod is asked about again."""
        self.claimants.former.pop(pod_uid, None)

    def inherit(self, holds: Iterable[Hold]) -> None:
        """Take over the former leader's answers to pods that still wait; their time begins now."""
        now = self._clock.now()
        for hold in holds:
            pod = self._world.pods.get(hold.pod)
            if pod is not None and not pod.is_over:
                self._table.put_hold(replace(hold, since=now))
                if not hold.chosen:
                    self.answers.inherited(pod.uid, pod.namespace, now)
        for plan in self._table.plans():
            for uid in plan.pods:
                self._inherit_choice(uid, plan)

    def _inherit_choice(self, pod_uid: str, plan: Plan) -> None:
        """Hold the node that its claim names for a pod without an answer for which something is planned."""
        pod, claim = self._world.pods.get(pod_uid), self._world.claim_of_volume(plan.volume)
        if pod is None or not pod.is_pending or claim is None or self._table.hold(pod_uid) is not None:
            return
        if claim.selected_node:
            node, since = claim.selected_node, self._clock.now()
            hold = Hold(pod_uid, Source.FILTER, {node: NO_PLACE}, NO_PLACES, since, plan.since_utc, chosen=node)
            self._table.put_hold(hold)

    # Claims, volumes, nodes

    def settle_claim(self, key: str) -> None:
        """Settle a claim after a change of it, its volume or its replicas."""
        claim = self._world.claims.get(key)
        if claim is not None:
            self._plan(self._world.volume_of(claim.uid))
        for pod in self._world.pods_of_claim(key):
            if not pod.is_over and (pod.uid in self.claimants.former or self._table.hold(pod.uid) is not None):
                self._settle_said(pod, key, claim)

    def _settle_said(self, pod: Pod, key: str, claim: Claim | None) -> None:
        """Settle what the pod holds by what that claim says. While others use the claim, that is no choice."""
        hold = self._answer_of(pod, () if claim is None else (claim,))
        if not self._shared.is_used_by_others(key, pod):
            self._settle_choice(pod, hold)
        elif hold is not None and hold.chosen and hold.at(hold.chosen):  # its volume may be known by now
            self._left.setdefault((_POD, pod.uid), hold.chosen)

    def settle_growth(self, name: str, *, ends_hold: bool = False) -> None:
        """Settle how large the volume may become, and its holds and plan with it."""
        if self._growths.settle(name, self._clock.now(), ends_hold=ends_hold):
            resize_holds(self._world, self._table, name)
            self._plan(name)

    def settle_volume(self, name: str) -> None:
        """Settle a volume after a change of it or its replicas, or the end of its claim."""
        holds = self._table.holding(name)
        if holds:
            self._end_held_places(name, holds)
        if holds or self._table.plan(name) is not None or self.planner.has_lost(name):
            self._plan(name)

    def _end_held_places(self, volume: str, holds: Iterable[Hold]) -> None:
        """End what is held on the disks on which a copy of the volume lies by now."""
        here = self._world.disks_of_volume(volume)
        for hold in holds:
            if any((place.node, place.disk_uuid) in here for place in hold.places_of(volume)):
                self._table.put_hold(hold.without(volume, here))

    def settle_all(self) -> None:
        """Settle everything by the facts and what is held. What nobody waits for, or what is there by now, ends first
        and makes room."""
        for name in list(self._world.growing):
            self.settle_growth(name)
        for plan in self._table.plans():
            here = self._world.disks_of_volume(plan.volume)
            is_stale = any((place.node, place.disk_uuid) in here for place in plan.places)
            if is_stale or not self.claimants.of(plan.volume):
                self._plan(plan.volume)
        for pod in list(self._world.pods.values()):
            hold = self._table.hold(pod.uid)
            if pod.node_name or hold is not None or pod.uid in self.claimants.former:
                self.settle_pod(pod)
        for plan in self._table.plans():
            self._left.setdefault((_VOLUME, plan.volume), "")
        self.plan_marked(math.inf)

    def claim_gone(self, volume: str) -> None:
        """End what is held for the volume of a claim that is gone."""
        self.planner.unknown.discard(volume)
        for hold in self._table.holding(volume):
            self._table.put_hold(hold.without(volume))
        self.settle_volume(volume)

    def node_came(self, node: str) -> None:
        """Settle pods that were bound to the node before it was seen."""
        for pod in list(self._world.pods.values()):
            if node == pod.node_name:
                self.settle_pod(pod)

    def node_gone(self, node: str) -> None:
        """End what is held on a node that is gone. What is planned there moves as from a disk that closes."""
        for hold in self._table.holds():
            if hold.nodes is not None and node in hold.nodes and not hold.chosen:
                nodes = {name: places for name, places in hold.nodes.items() if name != node}
                self._table.put_hold(replace(hold, nodes=nodes))


def _weight(pod: Pod | None) -> tuple[object, ...]:
    """What plans of its volumes depend on, besides what it holds."""
    if pod is None or not pod.node_name:
        return ()
    return pod.node_name, pod.is_finished, pod.is_deleting, pod.created_utc, pod.volumes
