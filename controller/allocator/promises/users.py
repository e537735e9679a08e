"""One claim, several pods: on which nodes its volume may come to lie next to its engine.

A volume is attached to one node at a time, and to a second one only while it migrates (a claim of several nodes). So
however many pods use the claim, and whichever nodes they name themselves, room is promised to a volume that follows its
engine where it is attached, where it goes next, and where we have said that there is room; not on every pod's node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import NOWHERE, Source, State
from controller.allocator.world.world import World
from controller.model.workload import Claim, Pod
from controller.rules.demand import VolumeDemand


@dataclass(frozen=True, slots=True)
class Tie:
    """Which nodes other pods leave to a pod that shares a claim with them. `nodes`: those where a volume of it is in
    use, None for any. `waits`: another pod was offered nodes, and it is not seen yet which one was chosen."""

    nodes: frozenset[str] | None = None
    waits: bool = False

    def includes(self, node: str) -> bool:
        return not self.waits and (self.nodes is None or node in self.nodes)


FREE: Final = Tie()


class Users:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, ledger: Ledger, memory: Memory) -> None:
        self._world, self._ledger, self._memory = world, ledger, memory

    def may_follow(self, pod: Pod, demand: VolumeDemand, node: str) -> bool:
        """Whether the volume may come to that node, which the pod is bound to, before another user's pod has gone.

        What we had offered the pod stays promised. Of pods that nobody asked us about the oldest counts: the others
        wait for it, since only one node attaches the volume.
        """
        claim = self._world.claim_by_uid(demand.key)
        if claim is None or not demand.is_local or node in self._memory.offered(pod.uid):
            return True
        volume = self._world.volume(demand.volume)
        if volume is not None and node in (volume.node_id, volume.migration_node_id):
            return True
        return node in self._nodes(self._bound(claim))[: _at_once(claim)]

    def next_of(self, claim: Claim) -> list[Pod]:
        """The pods whose nodes the volume may come to, where it has several users."""
        users = self._bound(claim)
        nodes = self._nodes(users)[: _at_once(claim)]
        return [pod for pod in users if pod.node_name in nodes]

    def tie_of(self, pod: Pod, demands: Collection[VolumeDemand], candidates: Collection[str]) -> Tie:
        """What the other users of its claims mean for a pod that asks. One that goes ties nobody, and one that is gone
        only to a candidate."""
        tied: frozenset[str] | None = None
        waits = False
        for demand in demands:
            claim = self._world.claim_by_uid(demand.key)
            if claim is None or not demand.is_local or demand.is_pinned:
                continue
            found = self._tie_to(claim, demand, pod, candidates)
            waits = waits or found.waits
            if found.nodes is not None:
                tied = found.nodes if tied is None else tied & found.nodes
        return FREE if tied is None and not waits else Tie(tied, waits)

    def _tie_to(self, claim: Claim, demand: VolumeDemand, pod: Pod, candidates: Collection[str]) -> Tie:
        used = self._nodes([one for one in self._bound(claim) if one.uid != pod.uid and not one.is_deleting])
        if len(used) >= _at_once(claim):
            return Tie(frozenset(used[: _at_once(claim)]))
        if claim.is_shared:
            return FREE
        for promise in self._ledger.of_volume(demand.key):
            other = self._world.pods.get(promise.claimant)
            if promise.claimant == pod.uid or promise.source not in (Source.FILTER, Source.CHOICE):
                continue
            if promise.places == NOWHERE:
                continue  # its volume was given its disk
            if other is not None and other.node_name:
                continue  # it goes
            is_there = other is not None and not other.is_over
            if len(promise.nodes) == 1 and (is_there or not promise.nodes.isdisjoint(candidates)):
                return Tie(promise.nodes)
            if is_there and promise.state is State.HELD:
                return Tie(waits=True)
        return FREE

    def _bound(self, claim: Claim) -> list[Pod]:
        """Bound pods that have not ended: those that stay before those that go, the oldest first."""
        users = [
            pod
            for pod in self._world.pods_of_claim(claim.key)
            if pod.node_name and not pod.is_finished and self._world.has_node(pod.node_name)
        ]
        return sorted(users, key=lambda pod: (pod.is_deleting, pod.created_utc, pod.uid))

    @staticmethod
    def _nodes(users: Collection[Pod]) -> list[str]:
        return list(dict.fromkeys(pod.node_name for pod in users))


def _at_once(claim: Claim) -> int:
    """To how many nodes its volume is attached at a time, at most."""
    return 2 if claim.is_shared else 1
