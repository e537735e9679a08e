"""Level-triggered promises: what stands chosen in the cluster is worked out anew from the facts at every event.

Nothing here remembers an event. Whatever order watches deliver in, whatever was missed, the same facts lead to the
same promises, for a follower and for a new leader alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from controller.allocator.promises.answers import NODE_RESERVATION, SCHEDULING_WAIT, Answers, DueHold, Journal
from controller.allocator.promises.choice import Choice, choice_of
from controller.allocator.promises.ledger import ANYWHERE, Entry, Key, Kind, Ledger, State, Verb
from controller.allocator.world.world import World
from controller.model.demand import Missing, VolumeDemand, demand_of_claim, demands_of_pod
from controller.model.workload import Claim, Pod

CLAIM_CLAIMANT: Final = "claim:"  # an unbound claim with a selected node: provisioning goes on without its pod
VOLUME_CLAIMANT: Final = "volume:"  # a volume attached to a node and not placed: Longhorn goes on without its pod
_STANDING: Final = (CLAIM_CLAIMANT, VOLUME_CLAIMANT)


class Settler:
    """Brings the ledger's assumptions in line with the world. Threads: none of its own; the allocator's lock guards
    it."""

    def __init__(self, world: World, ledger: Ledger, answers: Answers, journal: Journal) -> None:
        self._world, self._ledger, self._answers, self._journal = world, ledger, answers, journal
        self._spent: dict[str, set[str]] = {}  # volume -> nodes whose assumption has ended by time
        self._binding: dict[str, str] = {}  # pod uid -> node, while we bind it, until the pod shows its node

    def choice(self, pod: Pod) -> Choice | None:
        """The node that stands chosen; what does not surely speak of this pod counts only where it has a promise
        already."""
        node = self._binding.get(pod.uid)
        if node is not None and not pod.node_name:
            return Choice(node)
        choice = choice_of(pod, self._world.claims_of(pod), self._world.pv, self._is_shared)
        if choice is not None and (choice.narrows_only or not choice.is_certain):
            held = {key.node for key, _ in self._ledger.of_claimant(pod.uid)}
            if choice.node not in held and ANYWHERE not in held:
                return None
        return choice

    def _is_shared(self, claim: Claim) -> bool:
        """Whether several pods that have not ended use the claim, so that its selected node may speak for another
        one."""
        users = (pod for pod in self._world.pods_of_claim(claim.key) if not pod.is_finished)
        return sum(1 for _ in users) > 1

    def begin_binding(self, pod: Pod, node: str, now: float) -> None:
        """We bind the pod to that node, so it is chosen: other nodes are free again."""
        self._binding[pod.uid] = node
        self.settle_pod(pod, now)

    def end_binding(self, pod_uid: str, pod: Pod | None, now: float) -> None:
        """The binding failed: nothing stays promised but what the cluster shows as chosen."""
        if self._binding.pop(pod_uid, None) is None or pod is None or self.choice(pod) is not None:
            return
        self.end_answer(pod_uid, now, "bind_failed")
        for key, _ in self._ledger.of_claimant(pod_uid):
            self._drop(Verb.FORGET, key, now)

    def hold_everywhere(self, pod: Pod, now: float) -> None:
        """The leader before us may have offered the pod any node, so it counts as held wherever it could go."""
        for demand in demands_of_pod(pod, self._world, self._world.settings)[0]:
            if demand.is_local or demand.is_roaming:
                kind = Kind.FIRST if demand.is_local else Kind.ROAMING
                entry = Entry(State.HELD, kind, demand.size_bytes, demand.required_bytes, demand.needs, now)
                self._ledger.put(Verb.HOLD, Key(demand.key, ANYWHERE, pod.uid), entry)
                self._answers.answered(pod.uid, now, is_ours=False)

    def settle_claim(self, key: str, now: float) -> None:
        """After a change of a claim, its volume or its replicas: the claim's own promises and those of its pods."""
        claim = self._world.claims.get(key)
        if claim is not None:
            self._settle_standing(claim, now)
        for pod in self._world.pods_of_claim(key):
            self.settle_pod(pod, now)

    def claim_gone(self, claim: Claim, now: float) -> None:
        for key, _ in self._ledger.of_volume(claim.uid):
            self._drop(Verb.FORGET, key, now)
        self._spent.pop(claim.uid, None)

    def node_came(self, node: str, now: float) -> None:
        """Pods and claims that chose a node before it could be seen."""
        for claim in list(self._world.claims.values()):
            volume = self._world.volumes.get(claim.volume_name)
            if node in (claim.selected_node, volume.node_id if volume is not None else ""):
                self.settle_claim(claim.key, now)
        for pod in list(self._world.pods.values()):
            if node in (pod.node_name, pod.nominated_node):
                self.settle_pod(pod, now)

    def node_gone(self, node: str, now: float) -> None:
        for promise in list(self._ledger.promises(node)):
            for key, _ in self._ledger.of_volume(promise.volume):
                if key.node == node:
                    self._drop(Verb.FORGET, key, now)

    def pod_gone(self, pod: Pod, now: float) -> None:
        """The pod left, finished, or goes without having been bound: its claims stand on their own from now on.

        Where a choice may be under way that our stores do not show yet (kinds are watched apart, and kube-scheduler
        writes the selected node late), the promise is kept as a hold in doubt, until that would have been seen.
        """
        is_doubted = False
        self._binding.pop(pod.uid, None)
        for key, entry in self._ledger.of_claimant(pod.uid):
            if self._may_be_chosen(key):
                self._doubt(key, entry, now)
                is_doubted = True
            else:
                self._drop(Verb.FORGET, key, now)
        if not is_doubted:
            self.end_answer(pod.uid, now, "pod_gone")
        for claim in self._world.claims_of(pod):
            self._spent.pop(claim.uid, None)
            self._settle_standing(claim, now)

    def _may_be_chosen(self, key: Key) -> bool:
        """Whether the claim, as we see it, says nothing of a choice that may have been made."""
        claim = self._world.claim_by_uid(key.volume)
        return claim is not None and not claim.volume_name and not claim.selected_node

    def _doubt(self, key: Key, entry: Entry, now: float) -> None:
        if entry.state is State.ASSUMED:
            self._ledger.put(Verb.HOLD, key, replace(entry, state=State.HELD, since=now, turn_at=None))
        self._answers.doubted(key.claimant, now)

    def end_answer(self, pod_uid: str, now: float, how: str) -> None:
        waited = self._answers.ended(pod_uid, now)
        if waited is not None:
            self._journal.record(SCHEDULING_WAIT, waited, False)
            self._journal.counters[f"holds_ended_{how}"] += 1

    def settle_pod(self, pod: Pod, now: float) -> None:
        if pod.is_finished or (pod.is_deleting and not pod.node_name):
            self.pod_gone(pod, now)
            return
        if pod.node_name:
            self._binding.pop(pod.uid, None)
        choice = self.choice(pod)
        if choice is None:
            self._withdraw(pod, now)
            return
        waited = self._answers.chosen(pod.uid, now)
        if waited is not None:
            self._journal.record(SCHEDULING_WAIT, waited, True)
        demands, unknown = self._demands(self._world.claims_of(pod))
        node = choice.node if self._world.has_node(choice.node) else ""
        self._assume(pod.uid, node, demands, unknown, now)

    def _withdraw(self, pod: Pod, now: float) -> None:
        """No choice stands: assumptions go, in doubt after a while, and holds stay until their end."""
        entries = self._ledger.of_claimant(pod.uid)
        if not entries:
            return
        demands, unknown = self._demands(self._world.claims_of(pod))
        by_key = {demand.key: demand for demand in demands}
        for key, entry in entries:
            if key.volume in unknown:
                if entry.state is State.ASSUMED:
                    self._doubt(key, entry, now)
            elif not _still_asks(by_key.get(key.volume), key, entry):
                self._drop(Verb.CONFIRM, key, now)
            elif entry.state is State.ASSUMED:
                self._doubt(key, entry, now)

    def _assume(
        self, claimant: str, node: str, demands: Iterable[VolumeDemand], unknown: frozenset[str], now: float
    ) -> None:
        wanted = {key: demand for demand in demands for key in _wanted(claimant, node, demand)}
        for key, entry in self._ledger.of_claimant(claimant):
            if key not in wanted and key.volume not in unknown:
                self._drop(self._verb_for(key, entry), key, now)
        for key, demand in wanted.items() if node else ():
            spent = self._spent.get(demand.key)
            if spent is not None:
                spent &= {node, ANYWHERE}
            if not spent or key.node not in spent:
                self._put_assumed(key, demand, now)

    def _put_assumed(self, key: Key, demand: VolumeDemand, now: float) -> None:
        kind = _kind(demand)
        old = self._ledger.get(key)
        if old is not None and old.state is State.ASSUMED and old.kind is kind:
            since, turn_at = old.since, old.turn_at
        else:
            since, turn_at = now, None
        turn_at = turn_at if turn_at is not None else self._turn(key, demand, kind, now)
        entry = Entry(State.ASSUMED, kind, demand.size_bytes, demand.required_bytes, demand.needs, since, turn_at)
        if entry != old:
            if old is not None and old.state is State.ASSUMED and kind is Kind.MOVE and old.kind is Kind.FIRST:
                self._journal.record(NODE_RESERVATION, now - old.since, True)  # placed, on another node
            self._ledger.put(Verb.ASSUME, key, entry)

    def _turn(self, key: Key, demand: VolumeDemand, kind: Kind, now: float) -> float | None:
        """When Longhorn had its turn to place the volume on that node: attached there, or told that it cannot place
        it."""
        volume = self._world.volumes.get(demand.volume)
        if volume is None or (key.node != ANYWHERE and volume.node_id != key.node):
            return None
        if kind is Kind.MOVE:
            replicas = self._world.replicas_of(demand.volume).values()
            is_waiting = any(not entry.node and entry.hard_node_affinity == key.node for entry in replicas)
            return now if volume.scheduled is False and is_waiting else None
        return now if volume.scheduled is False or (volume.state == "attached" and kind is Kind.FIRST) else None

    def _verb_for(self, key: Key, entry: Entry) -> Verb:
        """Shown, if the volume has a replica where there was none when the promise was made; undone otherwise."""
        volume = self._world.claim_by_uid(key.volume)
        if volume is None or entry.state is not State.ASSUMED:
            return Verb.FORGET
        demand = demand_of_claim(volume, self._world, self._world.settings)
        if not isinstance(demand, VolumeDemand):
            return Verb.FORGET
        shown = demand.placed_nodes if entry.kind is Kind.FIRST else demand.usable_nodes & {key.node}
        return Verb.CONFIRM if shown or (entry.kind is Kind.ROAMING and not demand.is_roaming) else Verb.FORGET

    def _settle_standing(self, claim: Claim, now: float) -> None:
        """Promises that need no pod: of a claim that is being provisioned, of a volume attached and not placed."""
        demands, unknown = self._demands((claim,))
        if unknown:
            return
        wanted: dict[str, str] = {}
        for demand in demands:
            wanted |= self._places_without_pod(claim, demand)
        for key, entry in self._ledger.of_volume(claim.uid):
            if key.claimant in _STANDING and wanted.get(key.claimant) != key.node:
                self._drop(self._verb_for(key, entry), key, now)
            elif entry.state is State.HELD and demands and entry.size_bytes < demands[0].size_bytes:
                self._ledger.put(Verb.HOLD, key, replace(entry, size_bytes=demands[0].size_bytes))  # it grows
        for claimant, node in wanted.items():
            if node not in self._spent.get(claim.uid, ()):
                self._put_assumed(Key(claim.uid, node, claimant), demands[0], now)

    def _places_without_pod(self, claim: Claim, demand: VolumeDemand) -> dict[str, str]:
        """Claimant to place: where Longhorn goes on with the volume, whatever becomes of its pods."""
        volume = self._world.volumes.get(demand.volume)
        places = {}
        if demand.is_roaming:
            if claim.selected_node and not claim.volume_name:
                places[CLAIM_CLAIMANT] = ANYWHERE
            if volume is not None and not demand.placed_nodes:
                places[VOLUME_CLAIMANT] = ANYWHERE
        elif demand.is_local and not demand.placed_nodes:
            if not claim.volume_name and self._world.has_node(claim.selected_node):
                places[CLAIM_CLAIMANT] = claim.selected_node
            if volume is not None and self._world.has_node(volume.node_id):
                places[VOLUME_CLAIMANT] = volume.node_id
        return places

    def _demands(self, claims: Iterable[Claim]) -> tuple[list[VolumeDemand], frozenset[str]]:
        """Demands, and the uids of claims whose demand is unknown because an object is not in our stores."""
        found: dict[str, VolumeDemand] = {}
        unknown = set()
        for claim in claims:
            demand = demand_of_claim(claim, self._world, self._world.settings)
            if isinstance(demand, Missing):
                if demand not in self._world.absent:
                    unknown.add(claim.uid)
            elif demand is not None:
                found[demand.key] = demand
        return list(found.values()), frozenset(unknown)

    def expire_assumptions(self, now: float, timeout: float) -> bool:
        """End assumptions whose time has run out since Longhorn had its turn; whether there were any."""
        due = [
            (key, entry)
            for key, entry in self._ledger.entries()
            if entry.state is State.ASSUMED and entry.turn_at is not None and now >= entry.turn_at + timeout
        ]
        for key, _ in due:
            self._spent.setdefault(key.volume, set()).add(key.node)
            self._drop(Verb.EXPIRE, key, now)
            self._journal.counters["assumptions_expired"] += 1
        return bool(due)

    def due_holds(self, now: float, timeout: float, cap: float) -> tuple[DueHold, ...]:
        """Pods whose holds have reached their end by time, with what a last look has to read."""
        found = []
        for uid, is_capped in self._answers.due(now, timeout, cap):
            pod = self._world.pods.get(uid)
            volumes = {key.volume for key, _ in self._ledger.of_claimant(uid)}
            claims = (self._world.claim_by_uid(volume) for volume in sorted(volumes))
            keys = tuple(claim.key for claim in claims if claim is not None)
            found.append(DueHold(uid, pod.key if pod is not None else "", keys, is_capped))
        return tuple(found)

    def end_holds(self, pod_uid: str, verb: Verb, now: float, how: str) -> bool:
        """End what the pod holds without having been chosen; whether there was anything."""
        self.end_answer(pod_uid, now, how)
        held = [key for key, entry in self._ledger.of_claimant(pod_uid) if entry.state is State.HELD]
        for key in held:
            self._drop(verb, key, now)
        return bool(held)

    def _drop(self, verb: Verb, key: Key, now: float) -> None:
        entry = self._ledger.drop(verb, key)
        if entry is None or entry.state is not State.ASSUMED or verb not in (Verb.CONFIRM, Verb.EXPIRE):
            return
        if not any(other.state is State.ASSUMED for other in self._ledger.at(key.volume, key.node)):
            self._journal.record(NODE_RESERVATION, now - entry.since, verb is Verb.CONFIRM)


def _wanted(claimant: str, node: str, demand: VolumeDemand) -> Iterable[Key]:
    if demand.is_local:
        if node not in demand.home_nodes and not demand.is_pinned:
            yield Key(demand.key, node, claimant)
    elif demand.is_roaming:
        yield Key(demand.key, ANYWHERE, claimant)


def _kind(demand: VolumeDemand) -> Kind:
    if not demand.is_local:
        return Kind.ROAMING
    return Kind.MOVE if demand.placed_nodes else Kind.FIRST


def _still_asks(demand: VolumeDemand | None, key: Key, entry: Entry) -> bool:
    """Whether a hold still stands for something: the volume is there and has no usable replica on that node."""
    if demand is None:
        return False
    if entry.kind is Kind.ROAMING:
        return demand.is_roaming
    return key.node not in demand.home_nodes
