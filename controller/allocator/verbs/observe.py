"""One change of the cluster: into the world, and what it means for promises and refused pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.promises.quarantine import Quarantine
from controller.allocator.promises.settle import Settler
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.world.reach import ReachCause
from controller.allocator.world.world import World
from controller.model.allocations import NodeRecord
from controller.model.longhorn import LonghornNode, Replica
from controller.model.records import NODE_ITSELF
from controller.model.workload import Claim, KubeNode, Pod

CLAIMS_AT_ONCE: Final = 25  # that are settled before others are let in; a class may have thousands


@dataclass(slots=True)
class Observing:
    """The state of one change. Nothing is settled unless `is_active`. Threads: none of its own; the allocator's lock
    guards all that it touches."""

    world: World
    settler: Settler
    refusals: Refusals
    quarantine: Quarantine
    now: float
    is_active: bool
    is_leading: bool

    # One method an event. Each returns the claims that it touches and that are settled as if their own events came
    # later.

    def pod(self, key: str, pod: Pod | None) -> Sequence[str]:
        gone = self.world.put_pod(key, pod)
        if gone is not None:
            self.refusals.drop(gone.uid)
            self.quarantine.release(key)
            if self.is_active:
                self.settler.pod_gone(gone, self.now)
        if pod is not None and pod.uid in self.world.pods:
            self.refusals.see(pod)
            if self.is_active:
                self.settler.pod_changed(pod, self.now)
        return ()

    def claim(self, key: str, claim: Claim | None) -> Sequence[str]:
        gone = self.world.put_claim(key, claim)
        if gone is not None:
            self.settler.claim_gone(gone, self.now)
        self.settle_claims((key, *self._former_owners(claim)))
        return ()

    def _former_owners(self, claim: Claim | None) -> list[str]:
        """The claim that the volume was made for, where this one has it now: a populator's, which asks for it no
        more."""
        if claim is None or not claim.volume_name:
            return []
        sharing = self.world.claims_of_volume(self.world.volume_of(claim.uid))
        return [other.key for other in sharing if other.uid != claim.uid]

    def node(self, name: str, node: LonghornNode | None) -> Sequence[str]:
        known, old = name in self.world.nodes, self.world.nodes.get(name)
        touched = self.world.put_node(name, node)
        records = [one.record if one is not None else None for one in (old, node)]
        if records[0] != records[1]:
            touched |= self.world.volumes_touched(self.world.allocated.observe(name, records[1], NODE_ITSELF))
        self._settle_node(name, was_known=known)
        return self.touched(touched)

    def record(self, node: str, record: NodeRecord | None) -> Sequence[str]:
        return self.touched(self.world.volumes_touched(self.world.allocated.observe(node, record)))

    def kube_node(self, name: str, node: KubeNode | None) -> Sequence[str]:
        known = name in self.world.kube_nodes
        self.world.put_kube_node(name, node)
        self._settle_node(name, was_known=known)
        return ()

    def replica(self, name: str, replica: Replica | None) -> Sequence[str]:
        if replica is not None and self.is_active:
            self._note_reach(replica)
        return self.touched(self.world.put_replica(name, replica))

    def touched(self, keys: Iterable[str]) -> Sequence[str]:
        """An object that these claims depend on has changed."""
        touched = list(keys)
        self.settle_claims(touched[:CLAIMS_AT_ONCE])
        return touched[CLAIMS_AT_ONCE:]

    def _note_reach(self, replica: Replica) -> None:
        """A copy that shows on a disk, and that only Longhorn wanted, or somebody whose pod never asked us; and one
        that counts no more for anti-affinity."""
        old = self.world.replicas_of(replica.volume).get(replica.name)
        if old is not None and old.node and not _is_lost(old) and _is_lost(replica):
            self.world.reach.node_told(self.world.nodes.get(old.node), ReachCause.REPLICA_LOST)
        if not replica.disk_uuid or (old is not None and old.disk_uuid):
            return
        if not self.settler.is_asked_for(replica.volume):
            self.world.reach.came(replica.disk_uuid, ReachCause.OWN_COPY, replica.size_bytes)

    def _settle_node(self, name: str, *, was_known: bool) -> None:
        if not self.world.has_node(name):
            self.settler.node_gone(name, self.now)
        elif not was_known and self.is_leading and self.is_active:
            self.settler.node_came(name, self.now)  # a follower derives all of it when its term begins

    def settle_claims(self, keys: Iterable[str]) -> None:
        if self.is_active:
            for key in keys:
                self.settler.settle_claim(key, self.now)

    def settle_changes(self) -> None:
        """What other objects' changes mean for volumes and nodes."""
        volumes, nodes, candidates = self.world.take_changes()
        if not self.is_active:
            return
        for name in volumes:
            self.settler.settle_growth(name, self.now)
            self.settler.settle_volume(name, self.now)
        for name in nodes | candidates:
            self.settler.settle_node(name, self.now)
        if candidates:
            self.settler.settle_candidates(candidates, self.now)


def _is_lost(replica: Replica) -> bool:
    return bool(replica.failed_at) or replica.eviction_requested
