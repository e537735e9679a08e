"""The facts that the allocator decides on, with the indices that its questions need.

Threads: none of its own; the allocator's lock guards it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from controller.allocator.outcome import SharedDisk
from controller.allocator.world.backups import claims_restored_from
from controller.allocator.world.facts import Facts
from controller.allocator.world.replicas import Granted
from controller.allocator.world.rooms import Rooms, make_room
from controller.model.longhorn import (
    BackingImage,
    Backup,
    DiskNeeds,
    EngineImage,
    InstanceManager,
    LonghornNode,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass
from controller.rules.demand import Missing
from controller.rules.eligibility import DiskRoom, Engines, NodeRoom
from controller.rules.locality import node_of_copy_to_come
from controller.rules.provisioning import provisioned_name

_T = TypeVar("_T")
_AT_ONCE: Final = 8  # rooms that are worked out with the event that changed them


class World(Facts):
    """Latest facts by kind and key. A `put_*` returns what its change touches; the allocator settles that.

    `granted` tells what volumes may become at any moment: whoever asks what a disk holds must count those bytes.
    """

    def __init__(self, granted: Granted | None = None) -> None:
        super().__init__(granted, self._stale_rooms)
        self._copies_to_come: dict[str, tuple[str, int]] = {}  # by volume: the engine's node, and bytes
        self.bytes_to_come: Counter[str] = Counter()  # of those, by node
        self._nodes_of_disk: dict[str, tuple[str, ...]] = {}  # disk uuid -> its nodes, a node once for each such disk
        self._shared_uuids: set[str] = set()  # of several disks
        self._rooms = Rooms(self._make_room, self.has_node)
        self._changed_volumes: set[str] = set()
        self._changed_nodes: set[str] = set()

    def copy(self, granted: Granted, settings: LonghornSettings | None = None) -> World:
        """The facts of this moment, for questions that nobody holds the lock for. Facts are immutable, so this costs
        one copied mapping for each kind: a few milliseconds for 10,000 volumes. `settings`: other ones than now."""
        other = World(granted)
        kinds = "pods claims pvs spare_pvs classes volumes nodes kube_nodes backing_images absent reused"
        indices = "_unbound backups _claim_by_uid _nodes_of_disk _shared_uuids _claim_key_by_volume _demands _engines"
        for name in (*kinds.split(), *indices.split()):
            setattr(other, name, getattr(self, name).copy())
        other.settings, other.replicas = settings or self.settings, self.replicas.copy()
        vars(other)["_rooms"] = self._rooms.copy(vars(other)["_rooms"])
        if settings is not None:
            other._demands.clear()
            other._rooms.touch(other.nodes)
        return other

    # Changes. Sets hold the keys of the claims whose plans may change; pods are settled through their claims.

    def put_pod(self, key: str, pod: Pod | None) -> Pod | None:
        """Replaces the entry under `key`. Returns the former pod if it is gone, or another one has its name now."""
        self.share_managers.put(key, pod)
        old = self.pod_by_key(key)
        if old is not None:
            self._unlink_pod(old)
        if pod is not None and (pod.volumes or pod.is_opted_in):
            self.pods[pod.uid] = pod
            self._link_pod(key, pod)
        return old if old is not None and (pod is None or pod.uid != old.uid) else None

    def _link_pod(self, key: str, pod: Pod) -> None:
        if pod.is_opted_in and pod.is_pending:
            self.waiting.add(pod.uid)
        self._uid_by_pod_key[key] = pod.uid
        for claim in pod.claim_keys:
            self._pods_by_claim.setdefault(claim, set()).add(pod.uid)

    def complete(self) -> World:
        """Bring a copy to the state in which several threads may ask it. Costs: a step for each pod, and the rooms of
        nodes that changed."""
        for pod in self.pods.values():
            self._link_pod(pod.key, pod)
        self.refresh()
        return self

    def _unlink_pod(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self.waiting.discard(pod.uid)
        self._uid_by_pod_key.pop(pod.key, None)
        for key in pod.claim_keys:
            users = self._pods_by_claim.get(key, set())
            users.discard(pod.uid)
            if not users:
                self._pods_by_claim.pop(key, None)

    def put_claim(self, key: str, claim: Claim | None) -> Claim | None:
        """Replaces the entry. Returns the former claim if it is gone, or another one has its name now."""
        old = self.claims.pop(key, None)
        if old is not None:
            self._claim_by_uid.pop(old.uid, None)
        self._unbound.discard(key)
        if claim is not None:
            self.claims[key] = claim
            self._claim_by_uid[claim.uid] = key
            if not claim.volume_name:
                self._unbound.add(key)
        self.absent.pop(Missing("claim", *key.split("/", 1)), None)
        for entry in (old, claim):
            if entry is not None:
                pv = self.pvs.get(entry.volume_name)
                self._demands.pop(entry.uid, None)
                for name in {provisioned_name(entry), *((pv.handle,) if pv is not None else ())}:
                    self._forget_demands(name)
                    self.resize(name)
        return old if old is not None and (claim is None or claim.uid != old.uid) else None

    def put_pv(self, name: str, pv: PersistentVolume | None) -> set[str]:
        old = self.pvs.pop(name, None)
        handles = {entry.handle for entry in (old, pv) if entry is not None}
        self._forget_demands(*handles)
        touched = {entry.claim_key for entry in (old, pv) if entry is not None and entry.claim_key}
        if old is not None and self._claim_key_by_volume.get(old.handle) == old.claim_key:
            del self._claim_key_by_volume[old.handle]
        if old is not None and old.is_spare:
            left = tuple(one for one in self.spare_pvs.pop(old.class_name) if one.name != name)
            self.spare_pvs |= {old.class_name: left} if left else {}
        if pv is not None and pv.is_spare:
            self.spare_pvs[pv.class_name] = (*self.spare_pvs.get(pv.class_name, ()), pv)
        if pv is not None:
            self.pvs[name] = pv
            if pv.claim_key and pv.handle:
                self._claim_key_by_volume[pv.handle] = pv.claim_key
        self.absent.pop(Missing("pv", "", name), None)
        if any(entry is not None and entry.is_spare for entry in (old, pv)):
            self._demands.clear()
        self._forget_demands(*handles)
        for handle in handles:
            touched |= self.resize(handle)
        return touched

    def put_class(self, name: str, storage_class: StorageClass | None) -> set[str]:
        self.absent.pop(Missing("class", "", name), None)
        old = _exchange(self.classes, name, storage_class)
        if old == storage_class:
            return set()
        self._demands.clear()
        is_default = any(entry is not None and entry.is_default for entry in (old, storage_class))
        names = (name, None) if is_default else (name,)
        return {claim.key for claim in self.claims.values() if not claim.volume_name and claim.class_name in names}

    def put_volume(self, name: str, volume: Volume | None) -> set[str]:
        self._forget_demands(name)
        self.absent.pop(Missing("volume", "", name), None)
        _exchange(self.volumes, name, volume)
        self._replicas_changed(name)
        return self._claims_touched_by(name)

    def resize(self, name: str) -> set[str]:
        """Work out anew how large the cluster wants the volume, by its claim or PV; keys of the claims it touches."""
        if name not in self.volumes:
            return set()
        self._forget_demands(name)
        self._replicas_changed(name)
        return self._claims_touched_by(name)

    def growth_changed(self, name: str, disk_uuids: Iterable[str]) -> None:
        """Take note that the volume was granted another size; its replicas lie on those disks."""
        self._forget_demands(name)
        self._changed_volumes.add(name)
        for uuid in disk_uuids:
            self._stale_rooms(uuid)

    def put_replica(self, name: str, replica: Replica | None) -> set[str]:
        return self.volumes_touched(self.replicas.put(name, replica))

    def volumes_touched(self, volumes: Iterable[str]) -> set[str]:
        """Take note that the replicas of these volumes changed; keys of the claims that this touches."""
        touched: set[str] = set()
        for volume in volumes:
            self._forget_demands(volume)
            self._replicas_changed(volume)
            touched |= self._claims_touched_by(volume)
        return touched

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` has anything to tell."""
        return bool(self._changed_volumes or self._changed_nodes or self._rooms.has_touched)

    def take_changes(self) -> tuple[set[str], set[str], set[str]]:
        """What changed since the last call: volumes, by themselves or their replicas; nodes with other room on disks;
        nodes that may take other volumes than before."""
        self.refresh(_AT_ONCE)  # one object changes a node or two, and no question has to work them out
        changes = self._changed_volumes, self._rooms.take_touched(), self._changed_nodes
        self._changed_volumes, self._changed_nodes = set(), set()
        return changes

    def look_again_at(self, node: str) -> None:
        """Count the node as changed."""
        self._changed_nodes.add(node)

    def _replicas_changed(self, name: str) -> None:
        self._changed_volumes.add(name)
        (self.growing.add if self._is_growing(name) else self.growing.discard)(name)
        self._foresee_copy(name)

    def _claims_touched_by(self, volume: str) -> set[str]:
        return {claim.key for claim in self.claims_of_volume(volume)}

    def _foresee_copy(self, name: str) -> None:
        """Count the copy that data locality is going to add where the volume's engine runs."""
        volume = self.volumes.get(name)
        former = self._copies_to_come.pop(name, None)
        if former is not None:
            self.bytes_to_come[former[0]] -= former[1]
        replicas = self.replicas_of(name).values()
        node = node_of_copy_to_come(volume, replicas, self.settings) if volume is not None else ""
        if volume is not None and node:
            self._copies_to_come[name] = node, volume.size_bytes
            self.bytes_to_come[node] += volume.size_bytes

    def put_node(self, name: str, node: LonghornNode | None) -> None:
        old = self.nodes.pop(name, None)
        for disk in old.disks if old is not None else ():
            holders = self._nodes_of_disk.pop(disk.uuid)
            place = holders.index(name)
            left = (*holders[:place], *holders[place + 1 :])
            if left:
                self._nodes_of_disk[disk.uuid] = left
            if len(left) < 2:
                self._shared_uuids.discard(disk.uuid)
        if node is not None:
            self.nodes[name] = node
            for disk in node.disks:
                holders = self._nodes_of_disk.get(disk.uuid, ())
                self._nodes_of_disk[disk.uuid] = (*holders, name)
                if holders and disk.uuid:
                    self._shared_uuids.add(disk.uuid)
        if (old is None) is not (node is None):
            self._engines.forget()
        self._changed_nodes.add(name)
        self._rooms.touch((name,))

    def put_kube_node(self, name: str, node: KubeNode | None) -> None:
        had_any = bool(self.kube_nodes)
        self.kube_nodes.pop(name, None)
        if node is not None:
            self.kube_nodes[name] = node
        touched = (name,) if had_any and self.kube_nodes else self.nodes
        self._changed_nodes.update(touched)
        self._rooms.touch(touched)

    def put_backup(self, name: str, backup: Backup | None) -> set[str]:
        self.absent.pop(Missing("backup", "", name), None)
        if not self.backups.put(name, backup):
            return set()
        self._demands.clear()
        return claims_restored_from(name, self.claims.values(), self.classes.values(), self.storage_class(None))

    def put_backing_image(self, name: str, image: BackingImage | None) -> set[str]:
        self._demands.clear()
        old = _exchange(self.backing_images, name, image)
        before, after = (one.copy_disk_uuids if one is not None else frozenset[str]() for one in (old, image))
        for uuid in self.disks_with_image(name) | before | after if image != old else ():
            self._stale_rooms(uuid)
            self._changed_nodes.update(self._nodes_of_disk.get(uuid, ()))
        made_on = (volume.name for volume in self.volumes.values() if volume.backing_image == name)
        return set[str]().union(*map(self._claims_touched_by, made_on))

    def put_engine_image(self, name: str, image: EngineImage | None) -> set[str]:
        return self._engines_changed(self._engines.put_image(name, image))

    def put_instance_manager(self, name: str, manager: InstanceManager | None) -> set[str]:
        return self._engines_changed(self._engines.put_manager(name, manager))

    def _engines_changed(self, nodes: frozenset[str] | None) -> set[str]:
        if nodes is not None:
            self._demands.clear()  # a new volume's engine image may be another one
            self._changed_nodes |= nodes
            self._rooms.tell(nodes)
        return set()  # it decides where replicas may go, not what a claim asks for

    def has_node(self, name: str) -> bool:
        """Whether Longhorn may place a replica there at all: a node of both Longhorn and Kubernetes."""
        return name in self.nodes and (not self.kube_nodes or name in self.kube_nodes)

    def put_settings(self, settings: LonghornSettings) -> None:
        self.settings = settings
        for name in self.volumes:
            self._foresee_copy(name)
        self._demands.clear()
        self._engines.put_manager_image(settings.instance_manager_image)
        self._changed_nodes.update(self.nodes)
        self._rooms.touch(self.nodes)
        self.refresh()

    def _stale_rooms(self, disk_uuid: str) -> None:
        self._rooms.touch(self._nodes_of_disk.get(disk_uuid, ()))

    # Rooms, computed once after a change of their node

    def room(self, name: str) -> NodeRoom | None:
        """What that Longhorn node can take, plans and holds aside; None if Longhorn has no such node."""
        return self._rooms.get(name)

    def disk_room(self, name: str, disk_uuid: str) -> DiskRoom | None:
        """The same of one disk; None where it takes no replicas, or another disk there has its UUID."""
        room = self.room(name)
        return next((one for one in room.disks if one.uuid == disk_uuid), None) if room is not None else None

    def refresh(self, most: int | None = None) -> bool:
        """Work out the rooms of nodes that changed, `most` of them, for `best`; whether some are left."""
        return self._rooms.refresh(most)

    def listen_to_rooms(self) -> set[str]:
        """`Rooms.listen`, for whoever keeps facts about nodes as long as this world lives. The set also gets nodes on
        which an engine image or an instance manager came or went."""
        return self._rooms.listen()

    @property
    def best(self) -> Mapping[str, int]:
        """The most that a plain volume finds on one disk, by node, as of the last `refresh`."""
        return self._rooms.best

    def overdrawn(self) -> list[tuple[str, str, int]]:
        """Node, disk and bytes beyond the limit of each disk that takes replicas, as of the last `refresh`."""
        return [(node, disk, over) for node, disks in self._rooms.overdrawn.items() for disk, over in disks]

    def _make_room(self, name: str) -> NodeRoom | None:
        node = self.nodes.get(name)
        if node is None:
            return None
        return make_room(node, self.counted_on, self.settings.space, self.images_on)

    def nodes_of_disk(self, uuid: str) -> tuple[str, ...]:
        """The nodes with a disk of that UUID."""
        return self._nodes_of_disk.get(uuid, ())

    def is_repeated_disk(self, node: str, uuid: str) -> bool:
        """Whether several disks of that node have that UUID, so that nobody can tell where a replica lies."""
        return bool(uuid) and self._nodes_of_disk.get(uuid, ()).count(node) > 1

    def shared_disks(self) -> tuple[SharedDisk, ...]:
        """The UUIDs that several disks have, sorted. Costs: mostly nothing."""
        found = list[SharedDisk]()
        for uuid in sorted(self._shared_uuids):
            nodes = [self.nodes[name] for name in set(self._nodes_of_disk[uuid])]
            disks = sorted((of.name, one.name) for of in nodes for one in of.disks if one.uuid == uuid)
            found.append(SharedDisk(uuid, tuple(disks)))
        return tuple(found)

    @property
    def engines(self) -> Engines:
        """What runs replicas; a kind of which there is no object at all decides nothing."""
        return self._engines.engines

    def engine_gaps(self, needs: DiskNeeds) -> frozenset[str]:
        """Longhorn nodes that cannot run a replica with these needs."""
        return self._engines.gaps(needs, self.nodes)


def _exchange(facts: dict[str, _T], key: str, new: _T | None) -> _T | None:
    """Replaces the entry, and returns the former one. New entries come last, also under an old key."""
    old = facts.pop(key, None)
    if new is not None:
        facts[key] = new
    return old
