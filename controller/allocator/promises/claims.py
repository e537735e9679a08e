"""What a claim's annotation is worth: whether kube-scheduler wrote it, and what the claim is promised by itself.

Whoever may edit a claim can write its `selected-node`, create pods that no scheduler will ever bind, and name a node in
a pod. They cannot write a pod's status, nor make us answer: so a choice is kube-scheduler's where we had let the pod go
to that node, or where the pod's nomination names it. What only its owner says counts for a bounded time, and for no
more bytes than a namespace may have in that way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from controller.allocator.promises.assume import Assuming
from controller.allocator.promises.holds import kind_of
from controller.allocator.promises.journal import Journal, Tale
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import BIND_SECONDS, Memory
from controller.allocator.promises.own import is_placeable
from controller.allocator.promises.promise import Places, Promise
from controller.allocator.world.world import World
from controller.model.workload import Claim, Pod
from controller.rules.demand import VolumeDemand
from controller.settings import LiveSettings

CLAIM: Final = "claim:"  # the claimant: an unbound claim with a selected node
_UNPROVEN: Final = "unproven"  # one time for a claim, whatever node it names and whichever pods come and go
UNSEEN_SECONDS: Final = 60.0  # that a claim's binding may be seen after its pod's


class ClaimPromises:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        memory: Memory,
        journal: Journal,
        assuming: Assuming,
        live: Callable[[], LiveSettings],
    ) -> None:
        self._world, self._ledger, self._memory, self._journal = world, ledger, memory, journal
        self._assuming, self._live = assuming, live

    def cap_bytes(self) -> int:
        """What one namespace may be promised without a pod that kube-scheduler chose a node for; 0: no cap."""
        return self._world.limits.total * self._live().namespace_cap_pct // 100

    # Choices

    def is_shared(self, claim: Claim) -> bool:
        """Whether several pods that have not ended use the claim, so that its selected node may speak for another
        one."""
        users = (pod for pod in self._world.pods_of_claim(claim.key) if not pod.is_finished)
        return sum(1 for _ in users) > 1

    def is_used_by_others(self, claim: Claim, pod: Pod) -> bool:
        """Whether a bound pod that has not ended uses the claim beside this one."""
        users = self._world.pods_of_claim(claim.key)
        return any(one.node_name and not one.is_finished and one.uid != pod.uid for one in users)

    def is_chosen_for(self, claim: Claim, pod: Pod) -> bool:
        """Whether the claim's selected node is kube-scheduler's choice for that pod, as far as is known."""
        node, memory = claim.selected_node, self._memory
        if pod.is_over or pod.is_gated or not node:
            return False
        if memory.was_let_through(pod.uid, node):
            return True
        if pod.node_name:
            return pod.node_name == node and bool(claim.volume_name)
        return pod.nominated_node == node or pod.uid in memory.inherited

    def until(self, claim: Claim | None, pod: Pod, node: str, now: float) -> float | None:
        """When a choice of that node for the pod's claim ends unless more shows; None for one that stands for itself.

        kube-scheduler binds no pod whose claim is not bound. So what is bound all the same was bound by hand, or the
        claim is seen late. And nobody knows what the leader before has answered.
        """
        if self._memory.was_let_through(pod.uid, node) or node == pod.nominated_node:
            return None
        if pod.node_name:
            is_told = claim is None or bool(claim.volume_name)
            return None if is_told else now + UNSEEN_SECONDS
        return self._memory.inherited.get(pod.uid)

    # The claim's own promise

    def settle(self, claim: Claim, now: float) -> None:
        """The promise of a claim that is being provisioned for a node, by its annotation.

        While a pod waits for it, it counts for as long as the choice is known to be kube-scheduler's, else for as long
        as a scheduler waits for a volume. Without any pod it counts where Longhorn places replicas before the volume is
        attached, for a bounded time: until they would show. The node of a claim with several users says nothing of any
        one of them, so there it goes on for a while until one of them is bound.
        """
        demands, unknown = self._assuming.demands((claim,))
        if unknown:
            return
        record = self._ledger.get(claim.uid, CLAIM)
        users = [pod for pod in self._world.pods_of_claim(claim.key) if self._may_go(pod)]
        is_proven = any(self.is_chosen_for(claim, pod) for pod in users)
        places = None
        if demands and claim.selected_node and self._goes_on(claim, users, record, is_proven=is_proven):
            if users or is_placeable(self._world, demands[0].facts):
                places = self._assuming.places(demands[0], claim.selected_node)
        situation: Hashable = claim.selected_node if is_proven else _UNPROVEN
        is_spent = places is not None and self._memory.is_spent(claim.uid, CLAIM, situation)
        until = None if is_proven or places is None else self._until(claim, now)
        if places is None or is_spent or not (until is None or self._is_allowed(claim, demands[0], record, until, now)):
            if record is not None and demands:
                self._assuming.end(record, demands[0], now, may_lapse=places is None)
            elif record is not None:
                self._assuming.drop(self._assuming.verb_for(record), record, now)
            return
        self._put(claim, demands[0], places, situation, now, until=until, is_alone=not users)

    def _may_go(self, pod: Pod) -> bool:
        """Whether the pod is bound, or a scheduler may be about to bind it."""
        return not (pod.is_over or pod.is_gated) and (bool(pod.node_name) or pod.uid not in self._memory.refused)

    def _until(self, claim: Claim, now: float) -> float:
        """When the claim's selected node stops counting if only its owner vouches for it."""
        return self._memory.unproven_until.setdefault(claim.uid, now + BIND_SECONDS)

    def _goes_on(self, claim: Claim, users: Sequence[Pod], record: Promise | None, *, is_proven: bool) -> bool:
        if not claim.volume_name:
            return True
        if record is None or not any(pod.is_pending for pod in users):
            return False
        return self.is_shared(claim) or not is_proven

    def _put(
        self,
        claim: Claim,
        demand: VolumeDemand,
        places: Places,
        situation: Hashable,
        now: float,
        *,
        until: float | None,
        is_alone: bool,
    ) -> None:
        kind = kind_of(demand)
        is_placed_soon = is_alone or bool(claim.volume_name)
        chance_at = now if is_placed_soon else self._assuming.chance(demand, kind, claim.selected_node, now)
        self._assuming.put(
            CLAIM,
            demand,
            kind,
            places,
            chance_at,
            situation,
            now,
            until=until,
            charged_to="" if until is None else claim.namespace,
        )

    def _is_allowed(self, claim: Claim, demand: VolumeDemand, record: Promise | None, until: float, now: float) -> bool:
        """Whether a selected node that only the owner vouches for still counts, and the namespace is within its limit
        for those."""
        if now >= until:
            return False
        cap = self.cap_bytes()
        own = record.most_bytes if record is not None and record.charged_to else 0
        asked = demand.size_bytes * max(1, demand.copies if demand.is_roaming else 1)
        if not cap or self._ledger.charged(claim.namespace) - own + asked <= cap:
            return True
        if self._world.limits.can_hold(demand.size_bytes):
            self._journal.tell(Tale.CAPPED, claim, demand.size_bytes, cap)
        return False
