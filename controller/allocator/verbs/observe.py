"""One change of the cluster: into the world, and what it means for promises and refused pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from controller.allocator.promises.quarantine import Quarantine
from controller.allocator.promises.settle import Settler
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.world.reach import Change
from controller.allocator.world.world import World
from controller.model.longhorn import LonghornNode, Replica
from controller.model.workload import Claim, KubeNode, Pod

CLAIMS_AT_ONCE: Final = 25  # that are settled before others are let in; a class may have thousands

# Kinds of facts that the world keeps beside those whose changes mean more; each returns the claims that it touches.
_PUTS: Final[Mapping[str, Callable[[World, str, Any], Iterable[str]]]] = {
    "pv": World.put_pv,
    "class": World.put_class,
    "volume": World.put_volume,
    "replica": World.put_replica,
    "backing_image": World.put_backing_image,
    "engine_image": World.put_engine_image,
    "instance_manager": World.put_instance_manager,
}


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

    def apply(self, kind: str, key: str, facts: object | None) -> Sequence[str]:
        """The change itself, and what follows from it; but for the claims returned, which are settled as if their own
        events came later."""
        put, later = _PUTS.get(kind), list[str]()
        if kind == "replica" and facts is not None and self.is_active:
            self._note_reach(cast("Replica", facts))
        if put is not None:
            touched = list(put(self.world, key, facts))
            touched, later = touched[:CLAIMS_AT_ONCE], touched[CLAIMS_AT_ONCE:]
            self.settle_claims(touched)
        else:
            _APPLY[kind](self, key, facts)
        self.settle_changes()
        return later

    def _note_reach(self, replica: Replica) -> None:
        """A copy that shows on a disk, and that only Longhorn wanted, or somebody whose pod never asked us; and one
        that counts no more for anti-affinity."""
        old = self.world.replicas_of(replica.volume).get(replica.name)
        if old is not None and old.node and not _is_lost(old) and _is_lost(replica):
            self.world.reach.node_told(self.world.nodes.get(old.node), Change.REPLICA_LOST)
        if not replica.disk_uuid or (old is not None and old.disk_uuid):
            return
        if not self.settler.is_asked_for(replica.volume):
            self.world.reach.came(replica.disk_uuid, Change.OWN_COPY, replica.size_bytes)

    def apply_pod(self, key: str, facts: object | None) -> None:
        pod = cast("Pod | None", facts)
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

    def apply_claim(self, key: str, facts: object | None) -> None:
        gone = self.world.put_claim(key, cast("Claim | None", facts))
        if gone is not None:
            self.settler.claim_gone(gone, self.now)
        self.settle_claims((key,))

    def apply_node(self, key: str, facts: object | None) -> None:
        known = key in self.world.nodes
        self.world.put_node(key, cast("LonghornNode | None", facts))
        self._settle_node(key, was_known=known)

    def apply_kube_node(self, key: str, facts: object | None) -> None:
        known = key in self.world.kube_nodes
        self.world.put_kube_node(key, cast("KubeNode | None", facts))
        self._settle_node(key, was_known=known)

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


_APPLY: Final[Mapping[str, Callable[[Observing, str, object | None], None]]] = {
    "pod": Observing.apply_pod,
    "claim": Observing.apply_claim,
    "node": Observing.apply_node,
    "kube_node": Observing.apply_kube_node,
}
KINDS: Final = frozenset((*_PUTS, *_APPLY))  # of facts


def _is_lost(replica: Replica) -> bool:
    return bool(replica.failed_at) or replica.eviction_requested
