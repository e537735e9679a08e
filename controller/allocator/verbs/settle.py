"""Brings choices of the cluster into the table: once a node is chosen, what its pod holds there becomes plans.

Level-triggered: asked again at every event. Whatever order watches deliver in, whatever was missed, the same facts and
the same answers lead to the same plans.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Final

from controller.allocator.outcome import PodKnowledge
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.given import Given
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.journal import NODE_RESERVATION, SCHEDULING_WAIT, Journal
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import NO_PLACE, NO_PLACES, Hold, KeepsOut, Plan, Source
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.claimants import Claimants
from controller.allocator.verbs.grow import resize_holds
from controller.allocator.verbs.planning import Planner
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.workload import Pod
from controller.rules.demand import demands_of_pod

FORMER_SECONDS: Final = 30.0  # after a change of leader: longer than kube-scheduler needs to write a choice
_KEPT: Final = (Source.KEPT_ROOM, Source.WAKE_PLAN, Source.NOMINATION)


class Settler:
    """Brings the table in line with the world. Threads: none of its own; the allocator's lock guards it."""

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

    # Pods

    def pod_changed(self, pod: Pod) -> None:
        """The pod came or changed: a claim that it uses may now be shared, or no longer."""
        self.settle_pod(pod)
        self._settle_users(pod)

    def _settle_users(self, pod: Pod) -> None:
        """Settle the other pods of its claims: a volume may go to their nodes now."""
        for claim in self._world.claims_of(pod):
            for other in self._world.pods_of_claim(claim.key):
                if other.uid != pod.uid and not other.is_over:
                    self.settle_pod(other)

    def settle_pod(self, pod: Pod) -> None:
        if pod.is_over:
            self.pod_gone(pod)
            return
        if pod.node_name:  # perhaps by hand, while it waited to be let through
            self.release(pod.uid, *_KEPT)
            self.approvals.forget(pod.uid)
        hold = self._answer_of(pod)
        node = self.claimants.choice(pod)
        self.settle_nomination(pod)
        if hold is None and node and not pod.node_name:
            hold = self.claimants.lost_answer(pod.uid)
        if hold is not None and node and (node != hold.chosen or pod.node_name or hold.at(node)):
            self._narrow(pod, hold, node)
            return
        if hold is not None and hold.chosen:
            self._note_withdrawn(pod, hold, is_withdrawn=not node)
        self.plan_for(pod)

    def _answer_of(self, pod: Pod) -> Hold | None:
        """What the pod holds by an answer. What its claims say while others use them never counts as its choice."""
        hold = self._table.hold(pod.uid)
        if hold is None:
            return None
        said = {
            (claim.uid, claim.selected_node)
            for claim in self._world.claims_of(pod)
            if claim.selected_node not in ("", hold.chosen) and self._shared.is_used_by_others(claim, pod)
        }
        if not said <= hold.named_before:
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
        if hold.includes(node):
            nodes = hold.nodes
            here = None if nodes is None else {node: nodes[node]}
            self._table.put_hold(replace(hold, nodes=here, chosen=node))
        self.plan_for(pod)
        unknown = {volume for volume in hold.at(node) if hold.includes(node) and self.planner.is_unknown(volume)}
        if unknown:
            self._table.put_hold(hold.narrowed(node, unknown))
            return
        if pod.node_name and not self._is_by_name_alone(pod):
            self._table.end_hold(pod.uid)
        else:
            self._table.put_hold(hold.narrowed(node))
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

    def plan_for(self, pod: Pod) -> None:
        """Bring the plans of the pod's volumes in line with what their pods have been told by now."""
        self._plan(self._volumes_of(pod))

    def _plan(self, volumes: Iterable[str]) -> None:
        for volume in volumes:
            self.planner.settle(volume, self._clock.now_utc())

    def expire(self, pod_uid: str) -> bool:
        """End the pod's answer, on which nobody acted in time; whether that changes anything."""
        pod = self._world.pods.get(pod_uid)
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
        """End what the pod holds: it is gone, has finished, or is deleted unbound."""
        self.end_hold(pod.uid, "pod_gone")
        self.release(pod.uid, *_KEPT)
        self.approvals.forget(pod.uid)
        self.plan_for(pod)
        self._settle_users(pod)

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
            nodes = {claim.selected_node: NO_PLACE}
            since = self._clock.now()
            self._table.put_hold(
                Hold(pod_uid, Source.FILTER, nodes, NO_PLACES, since, plan.since_utc, chosen=claim.selected_node)
            )

    # Preemption

    def settle_nomination(self, pod: Pod) -> None:
        """Hold what the pod needs on its nominated node, if that was approved, against others from now on."""
        node, now = pod.nominated_node, self._clock.now()
        approval = self.approvals.of(pod.uid, node, now) if node else None
        held = self._table.hold(pod.uid, Source.NOMINATION)
        if approval is None or pod.node_name:
            if held is not None and not held.includes(node):
                self.end_nomination(pod.uid)
            return
        if held is not None and held.includes(node):
            return
        self.release(pod.uid, Source.NOMINATION)
        demands, _ = demands_of_pod(pod, self._world, self._world.settings)
        found = self._room.find_on(pod, demands, node)
        if found is not None:
            keeps_out = KeepsOut(pod.priority, approval.serial)
            places, anywhere = found
            self._room.hold(
                pod.uid, Source.NOMINATION, {node: places}, anywhere, until=approval.until, keeps_out=keeps_out
            )

    def end_nomination(self, pod_uid: str) -> bool:
        """End a nomination: the pod was offered room, refused on that node, or is gone; whether that frees any room."""
        self.approvals.forget(pod_uid)
        return self.release(pod_uid, Source.NOMINATION)

    # Claims, volumes, nodes

    def settle_claim(self, key: str) -> None:
        """Settle a claim after a change of it, its volume or its replicas."""
        claim = self._world.claims.get(key)
        if claim is not None:
            self._plan((self._world.volume_of(claim.uid),))
        for pod in self._world.pods_of_claim(key):
            self.settle_pod(pod)

    def settle_growth(self, name: str, *, ends_hold: bool = False) -> None:
        """Settle how large the volume may become, and its holds and plan with it."""
        if self._growths.settle(name, self._clock.now(), ends_hold=ends_hold):
            resize_holds(self._world, self._table, name)
            self._plan((name,))

    def settle_volume(self, name: str) -> None:
        """Settle a volume after a change of it or its replicas, or the end of its claim."""
        holds = self._table.holding(name)
        if holds:
            self._end_held_places(name, holds)
        if holds or self._table.plan(name) is not None or self.planner.has_lost(name):
            self._plan((name,))

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
                self._plan((plan.volume,))
        for pod in list(self._world.pods.values()):
            hold = self._table.hold(pod.uid)
            if pod.node_name or hold is not None or pod.uid in self.claimants.former:
                self.settle_pod(pod)
        for plan in self._table.plans():
            self._plan((plan.volume,))

    def claim_gone(self, volume: str) -> None:
        """End what is held for the volume of a claim that is gone."""
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
