"""The events of the cluster, one method for each kind of objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from controller.allocator.verbs.observe import Observing
from controller.allocator.world.world import World
from controller.model.allocations import NodeRecord
from controller.model.longhorn import BackingImage, Backup, EngineImage, InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass


class Versioned(Protocol):
    """Facts of which a live read may have shown a later version than the watch has delivered."""

    @property
    def version(self) -> int: ...


class Named(Versioned, Protocol):
    """Facts of an object whose name may be used again."""

    @property
    def uid(self) -> str: ...


Apply = Callable[[Observing], Sequence[str]]


class Events(ABC):
    """What the allocator is told. `facts` None: the object is gone, and `gone` tells which one it was.

    What a live read has shown is not undone by an older event that the watch delivers later. Costs: the promises of
    what an event touches, for a class those of 25 unbound claims at a time; for a new node a look at all claims and
    pods; as `begin_term` where a rule of the ledger broke.
    """

    @abstractmethod
    def _observe(self, key: str, apply: Apply, is_outdated: Callable[[World], bool] | None = None) -> None:
        """Apply one change under the lock, unless it is outdated; `key` is put into quarantine if that breaks a
        rule."""

    def observe_pod(self, key: str, facts: Pod | None, gone: Pod | None = None) -> None:
        self._observe(
            key,
            lambda observing: observing.pod(key, facts),
            lambda world: _is_another(world.pod_by_key(key), facts, gone),
        )

    def observe_claim(self, key: str, facts: Claim | None, gone: Claim | None = None) -> None:
        self._observe(
            key,
            lambda observing: observing.claim(key, facts),
            lambda world: _is_another(world.claims.get(key), facts, gone),
        )

    def observe_pv(self, name: str, facts: PersistentVolume | None, _gone: PersistentVolume | None = None) -> None:
        self._observe(
            name,
            lambda observing: observing.touched(observing.world.put_pv(name, facts)),
            lambda world: _is_outdated(world.pvs.get(name), facts),
        )

    def observe_volume(self, name: str, facts: Volume | None, _gone: Volume | None = None) -> None:
        self._observe(
            name,
            lambda observing: observing.touched(observing.world.put_volume(name, facts)),
            lambda world: _is_outdated(world.volumes.get(name), facts),
        )

    def observe_replica(self, name: str, facts: Replica | None, _gone: Replica | None = None) -> None:
        self._observe(name, lambda observing: observing.replica(name, facts))

    def observe_class(self, name: str, facts: StorageClass | None, _gone: StorageClass | None = None) -> None:
        self._observe(name, lambda observing: observing.touched(observing.world.put_class(name, facts)))

    def observe_node(self, name: str, facts: LonghornNode | None, _gone: LonghornNode | None = None) -> None:
        self._observe(name, lambda observing: observing.node(name, facts))

    def observe_record(self, node: str, facts: NodeRecord | None, _gone: NodeRecord | None = None) -> None:
        """What is allocated on that Longhorn node, as it stands on record in an object of our own."""
        self._observe(node, lambda observing: observing.record(node, facts))

    def observe_kube_node(self, name: str, facts: KubeNode | None, _gone: KubeNode | None = None) -> None:
        self._observe(name, lambda observing: observing.kube_node(name, facts))

    def observe_backing_image(self, name: str, facts: BackingImage | None, _gone: BackingImage | None = None) -> None:
        self._observe(name, lambda observing: observing.touched(observing.world.put_backing_image(name, facts)))

    def observe_backup(self, name: str, facts: Backup | None, _gone: Backup | None = None) -> None:
        self._observe(name, lambda observing: observing.touched(observing.world.put_backup(name, facts)))

    def observe_engine_image(self, name: str, facts: EngineImage | None, _gone: EngineImage | None = None) -> None:
        self._observe(name, lambda observing: observing.touched(observing.world.put_engine_image(name, facts)))

    def observe_instance_manager(
        self, name: str, facts: InstanceManager | None, _gone: InstanceManager | None = None
    ) -> None:
        self._observe(name, lambda observing: observing.touched(observing.world.put_instance_manager(name, facts)))


def _is_outdated(known: Versioned | None, facts: Versioned | None) -> bool:
    """Whether the stores know a later version already: watches repeat themselves, and live reads run ahead."""
    return known is not None and facts is not None and facts.version < known.version


def _is_another(known: Named | None, facts: Named | None, gone: Named | None) -> bool:
    """Whether it is outdated, or about the end of an object whose name another one has by now: that one has later
    versions than all of the former."""
    if facts is None:
        return known is not None and gone is not None and gone.uid != known.uid
    return _is_outdated(known, facts)
