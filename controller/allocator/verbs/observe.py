"""Events of the cluster: each is put into the world, and plans, holds and refused pods are brought in line with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from controller.allocator.plans.given import Given
from controller.allocator.plans.quarantine import Quarantine
from controller.allocator.verbs.place import PlaceDecisions
from controller.allocator.verbs.settle import Settler
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.longhorn import BackingImage, Backup, EngineImage, InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass

F = TypeVar("F")
CLAIMS_AT_ONCE: Final = 10  # that are settled before others are let in; a class may have thousands
MOVES_AT_ONCE: Final = 5  # plans that leave a node before others are let in


@dataclass(slots=True)
class EventContext:
    """Applies one event. The table is settled only if this process `settles`: it leads, and decides. Threads: none of
    its own; the allocator's lock guards all that it touches."""

    world: World
    settler: Settler
    refusals: Refusals
    quarantine: Quarantine
    places: PlaceDecisions
    given: Given
    clock: Clock
    settles: bool

    # One method for each kind of event. It returns the keys of the affected claims that are still to be settled.

    def pod(self, key: str, pod: Pod | None) -> Sequence[str]:
        old = self.world.pod_by_key(key)
        gone = self.world.put_pod(key, pod)
        if gone is not None:
            self.refusals.drop(gone.uid)
            self.quarantine.release(key)
            if self.settles:
                self.settler.pod_gone(gone)
        if pod is not None and pod.uid in self.world.pods:
            self.refusals.see(pod)
            if self.settles:
                self.settler.pod_changed(old if gone is None else None, pod)
        return ()

    def claim(self, key: str, claim: Claim | None) -> Sequence[str]:
        before = self.world.claims.get(key)
        volume = self.world.volume_of(before.uid) if before is not None else ""
        gone = self.world.put_claim(key, claim)
        if gone is not None and self.settles:
            self.settler.claim_gone(volume)
        self.settle_claims((key, *self._former_owners(claim)))
        return ()

    def _former_owners(self, claim: Claim | None) -> list[str]:
        """Keys of other claims of the claim's volume: of the populator's, for which it was made and which needs it no
        more."""
        if claim is None or not claim.volume_name:
            return []
        sharing = self.world.claims_of_volume(self.world.volume_of(claim.uid))
        return [other.key for other in sharing if other.uid != claim.uid]

    def node(self, name: str, node: LonghornNode | None) -> Sequence[str]:
        known, old = name in self.world.nodes, self.world.nodes.get(name)
        self.world.put_node(name, node)
        touched = self.given.move(old, self.world.nodes.get(name))
        self._settle_node(name, was_known=known)
        return self.settle_first(touched)

    def kube_node(self, name: str, node: KubeNode | None) -> Sequence[str]:
        known = name in self.world.kube_nodes
        self.world.put_kube_node(name, node)
        self._settle_node(name, was_known=known)
        return ()

    def replica(self, name: str, replica: Replica | None) -> Sequence[str]:
        shown = self.given.show_replica(name, self.places.show_locked(name, replica))
        return self.settle_first(self.world.put_replica(name, shown))

    def backing_image(self, name: str, image: BackingImage | None) -> Sequence[str]:
        before = self.world.backing_image(name)
        touched = self.world.put_backing_image(name, self.given.show_image(name, image))
        if self.settles and self.world.backing_image(name) != before:
            for node in self.settler.planner.image_changed(name):
                self._check_node(node)  # the latest plans leave, before any of them is looked at by itself
        return self.settle_first(touched)

    def settle_first(self, keys: Iterable[str]) -> Sequence[str]:
        """Settle the first `CLAIMS_AT_ONCE` of the claims; the keys of the others."""
        affected = list(keys)
        self.settle_claims(affected[:CLAIMS_AT_ONCE])
        return affected[CLAIMS_AT_ONCE:]

    def _settle_node(self, name: str, *, was_known: bool) -> None:
        if not self.settles:
            return
        if not self.world.has_node(name):
            self.settler.node_gone(name)
        elif not was_known:
            self.settler.node_came(name)

    def settle_claims(self, keys: Iterable[str]) -> None:
        for key in keys if self.settles else ():
            self.settler.settle_claim(key)

    def settle_changes(self, most: int | None = None) -> None:
        """Settle the volumes and check the nodes that changed since the last call. `most`: plans that may leave each
        node; a node that more have to leave counts as changed again."""
        volumes, with_other_room, changed = self.world.take_changes()
        if not self.settles:
            return
        self.settler.plan_marked()
        for name in volumes:
            self.settler.settle_growth(name)
            self.settler.settle_volume(name)
        is_over = bool(with_other_room or changed)
        for name in with_other_room | changed:
            self._settle_growing(name)
            if self._check_node(name, most, is_changed=name in changed):
                self.world.look_again_at(name)
                is_over = False
        for volume in self.settler.planner.lost() if is_over else ():
            self.settler.settle_volume(volume)

    def _settle_growing(self, name: str) -> None:
        """Settle the growing volumes on that node's disks: one may have become possible, or impossible."""
        node, growing = self.world.nodes.get(name), self.world.growing
        if node is not None and growing:
            here = {one.volume for disk in node.disks for one in self.world.replicas_on(disk.uuid)}
            for volume in here & growing:
                self.settler.settle_growth(volume)

    def _check_node(self, name: str, most: int | None = None, *, is_changed: bool = True) -> bool:
        return self.settler.planner.check_node(name, self.clock.now_utc(), most, is_changed=is_changed)


Put = Callable[[World, str, F | None], Any]  # returns the keys of the affected claims, unless there is a React
React = Callable[[EventContext, str, F | None], Sequence[str]] | None
Known = Callable[[World, str], Any] | None


class Events(ABC):
    """The allocator's methods for events. `facts` None: the object is gone, and `gone` is what it was.

    An event that is older than what a live read has shown changes nothing. Costs: the plans and holds of what an event
    touches, for a class those of 10 unbound claims at a time; for a new node a look at all claims and pods; as
    `begin_term` where an invariant broke.
    """

    @abstractmethod
    def _observe(
        self, key: str, facts: F | None, put: Put[F], react: React[F] = None, known: Known = None, gone: Any = None
    ) -> None:
        """Apply one event: a world does so by `put`, an allocator by `react` if there is one. `known` finds the facts
        that a live read may have shown; an older event changes nothing."""

    def observe_pod(self, key: str, facts: Pod | None, gone: Pod | None = None) -> None:
        self._observe(key, facts, World.put_pod, EventContext.pod, World.pod_by_key, gone)

    def observe_claim(self, key: str, facts: Claim | None, gone: Claim | None = None) -> None:
        self._observe(key, facts, World.put_claim, EventContext.claim, lambda world, _: world.claims.get(key), gone)

    def observe_pv(self, name: str, facts: PersistentVolume | None, _gone: PersistentVolume | None = None) -> None:
        self._observe(name, facts, World.put_pv, known=World.pv)

    def observe_volume(self, name: str, facts: Volume | None, _gone: Volume | None = None) -> None:
        self._observe(name, facts, World.put_volume, known=World.volume)

    def observe_replica(self, name: str, facts: Replica | None, _gone: Replica | None = None) -> None:
        self._observe(name, facts, World.put_replica, EventContext.replica, lambda world, _: world.replicas.get(name))

    def observe_class(self, name: str, facts: StorageClass | None, _gone: StorageClass | None = None) -> None:
        self._observe(name, facts, World.put_class)

    def observe_node(self, name: str, facts: LonghornNode | None, _gone: LonghornNode | None = None) -> None:
        self._observe(name, facts, World.put_node, EventContext.node)

    def observe_kube_node(self, name: str, facts: KubeNode | None, _gone: KubeNode | None = None) -> None:
        self._observe(name, facts, World.put_kube_node, EventContext.kube_node)

    def observe_backing_image(self, name: str, facts: BackingImage | None, _gone: BackingImage | None = None) -> None:
        self._observe(name, facts, World.put_backing_image, EventContext.backing_image, World.backing_image)

    def observe_backup(self, name: str, facts: Backup | None, _gone: Backup | None = None) -> None:
        self._observe(name, facts, World.put_backup)

    def observe_engine_image(self, name: str, facts: EngineImage | None, _gone: EngineImage | None = None) -> None:
        self._observe(name, facts, World.put_engine_image)

    def observe_instance_manager(
        self, name: str, facts: InstanceManager | None, _gone: InstanceManager | None = None
    ) -> None:
        self._observe(name, facts, World.put_instance_manager)


def is_outdated(known: Any, facts: Any, gone: Any) -> bool:
    """Whether an event is older than what is `known` of its object: the facts have an earlier `version`, or an object
    is `gone` that had the name before, by its `uid`; the one that has it now has later versions than all of the former.
    """
    if known is None:
        return False
    if facts is None:
        return gone is not None and bool(gone.uid != known.uid)
    return bool(facts.version < known.version)
