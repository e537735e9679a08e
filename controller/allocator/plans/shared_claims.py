"""Claims that several pods use: to which of their nodes the volume may go.

A volume is attached to one node at a time, and to a second one only while it migrates, with a claim of several nodes.
So however many pods use the claim, whichever nodes they are bound to by hand, a volume that follows its engine has a
place only where it is attached, where it goes next, and where a pod was answered yes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.model.workload import Claim, Pod
from controller.rules.demand import VolumeDemand


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """The nodes that other pods leave to a pod that shares a claim with them. `nodes`: where its volume is in use;
    None: any. `waits`: another pod was offered nodes, and its choice is not seen yet."""

    nodes: frozenset[str] | None = None
    waits: bool = False

    def includes(self, node: str) -> bool:
        return not self.waits and (self.nodes is None or node in self.nodes)


NO_LIMIT: Final = NodeLimit()


class SharedClaims:
    """How pods of one claim limit each other. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, table: Table) -> None:
        self._world, self._table = world, table

    def is_used_by_others(self, claim_key: str, pod: Pod) -> bool:
        """Whether another pod uses the claim: the claim's selected node may be that pod's."""
        return any(uid != pod.uid and self.is_using(self._world.pods[uid]) for uid in self._world.users(claim_key))

    def is_using(self, pod: Pod | None) -> bool:
        """Whether the pod was bound or answered, and has not ended."""
        return pod is not None and not pod.is_over and bool(pod.node_name or self._table.hold(pod.uid) is not None)

    def open_nodes(self, claim: Claim, volume: str) -> Collection[str]:
        """Return the nodes to which the claim's volume, which follows its pods, may go with pods that were bound to
        them without an answer.

        Among these pods the oldest counts: the others wait for it, since the volume is attached to one node only.
        """
        facts = self._world.volume(volume)
        attached = (facts.node_id, facts.migration_node_id) if facts is not None else ()
        return {*attached, *self._nodes(self._bound(claim))[: _at_once(claim)]}

    def limit_of(self, pod: Pod, demands: Collection[VolumeDemand]) -> NodeLimit:
        """Return the nodes that the other users of its claims leave to the pod. A terminating pod restricts nobody."""
        tied: frozenset[str] | None = None
        waits = False
        for demand in demands:
            claim = self._world.claim_by_uid(demand.key)
            if claim is None or demand.is_served or demand.is_pinned:
                continue
            found = self._limit_by(claim, demand, pod)
            waits = waits or found.waits
            if found.nodes is not None:
                tied = found.nodes if tied is None else tied & found.nodes
        return NO_LIMIT if tied is None and not waits else NodeLimit(tied, waits)

    def _limit_by(self, claim: Claim, demand: VolumeDemand, pod: Pod) -> NodeLimit:
        used = self._nodes([one for one in self._bound(claim) if one.uid != pod.uid and not one.is_deleting])
        if len(used) >= _at_once(claim):
            return NodeLimit(frozenset(used[: _at_once(claim)]))
        if claim.is_shared or not demand.is_local:
            return NO_LIMIT
        plan = self._table.plan(demand.volume)
        for other in self._pending_users(claim, pod):
            hold = self._table.hold(other.uid)
            if hold is None or (not hold.chosen and demand.volume not in hold.volumes):
                continue
            if hold.chosen and plan is not None and other.uid in plan.pods:
                return NodeLimit(frozenset((hold.chosen,)))
            if not hold.chosen:
                nodes = frozenset(hold.nodes or ())
                return NodeLimit(nodes) if len(nodes) == 1 else NodeLimit(waits=True)
        return NO_LIMIT

    def _pending_users(self, claim: Claim, pod: Pod) -> list[Pod]:
        users = self._world.pods_of_claim(claim.key)
        return [one for one in users if one.uid != pod.uid and one.is_pending]

    def _bound(self, claim: Claim) -> list[Pod]:
        """The bound pods that have not ended: those that stay before those that terminate, the oldest first."""
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
    """The number of nodes to which the claim's volume may be attached at a time."""
    return 2 if claim.is_shared else 1
