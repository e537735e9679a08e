"""Which nodes have room for all volumes of a pod: rules and packing put together, one judgement a node.

Verdicts: *unsuitable* (a rule other than room), *full* (no packing even without promises), *sure* (a packing remains
wherever Longhorn puts all that is pending), *contended* (the rest). Only sure nodes are offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from controller.allocator.ledger import ANYWHERE, Ledger, Promise
from controller.allocator.packing import COVER_STEPS, PACK_STEPS, Item, Steps, is_sure, pack
from controller.allocator.policy import EXT_LIMIT_BYTES, NodeRoom, check_node_tags, disk_takes, file_system_limit
from controller.allocator.reasons import Reason
from controller.allocator.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import DEFAULT_NEEDS, LOCALITY_DISABLED, Replica

YOUNG_HOLD_SECONDS: Final = 1.0


class Verdict(Enum):
    SURE = auto()
    CONTENDED = auto()
    FULL = auto()
    UNSUITABLE = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """`is_waitable`: young holds of other pods alone stand in the way. `is_bounded`: a search gave up."""

    verdict: Verdict
    reason: Reason | None = None
    is_waitable: bool = False
    is_bounded: bool = False


SURE: Final = Judgement(Verdict.SURE)
FULL: Final = Judgement(Verdict.FULL, Reason.INSUFFICIENT_STORAGE)


class Judge:
    """Judges nodes for one pod's demands against one state of world and ledger; make a new one for each question.

    `extra` adds promises by node that are not in the ledger, for planning several pods together.
    """

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        demands: Sequence[VolumeDemand],
        now: float,
        extra: Mapping[str, Sequence[Promise]] | None = None,
    ) -> None:
        self._world, self._ledger, self._now = world, ledger, now
        self._extra = extra or {}
        self._local = [demand for demand in demands if demand.is_local]
        self._own = frozenset(demand.key for demand in demands)
        self._anywhere = [
            (promise, self._barred(promise.volume))
            for promise in ledger.promises(ANYWHERE)
            if promise.volume not in self._own
        ]
        self._bound_to: dict[str, list[Promise]] = {}
        self._add_unplaced_replicas()
        self._anywhere_bytes = sum(promise.size_bytes for promise, _ in self._anywhere)
        single = self._local[0] if len(self._local) == 1 else None
        self._plain_size = -1  # the size of a single plain new volume, the usual case
        if single is not None and single.needs == DEFAULT_NEEDS and not single.required_bytes:
            self._plain_size = single.size_bytes if single.size_bytes < EXT_LIMIT_BYTES else -1

    def count_anywhere(self, demand: VolumeDemand) -> None:
        """From now on another volume of the same pod is pending too, wherever Longhorn may put it."""
        promise = Promise(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, self._now)
        self._anywhere.append((promise, self._world.barred_nodes(demand.volume)))
        self._anywhere_bytes += demand.size_bytes

    def _barred(self, volume: str) -> frozenset[str]:
        """Where a roaming volume cannot go, by its key in the ledger."""
        claim = self._world.claim_by_uid(volume)
        return self._world.barred_nodes(claim.volume_name) if claim is not None and claim.volume_name else frozenset()

    def _add_unplaced_replicas(self) -> None:
        """Replica objects that Longhorn may place at any moment and that no promise stands for."""
        world = self._world
        for replica in world.unplaced.values():
            volume = world.volumes.get(replica.volume)
            if volume is None or (volume.data_locality != LOCALITY_DISABLED and not volume.node_id):
                continue  # placed at attach only
            claim = world.claim_of_volume(replica.volume)
            if claim is not None and (claim.uid in self._own or self._ledger.of_volume(claim.uid)):
                continue
            promise = _promise_of_replica(replica, world)
            if replica.hard_node_affinity:
                self._bound_to.setdefault(replica.hard_node_affinity, []).append(promise)
            else:
                self._anywhere.append((promise, world.barred_nodes(replica.volume)))

    def judge(self, name: str) -> Judgement:
        """The verdict on node `name` for all local volumes of the pod together."""
        room = self._world.room(name)
        size = self._plain_size
        if size >= 0 and room is not None:
            if size <= room.plain_free_bytes:
                if self._quick(name, room, size):
                    return SURE
            elif room.plain_free_bytes >= 0 and not self._lies_on(name):
                return FULL
        wanted = []
        for demand in self._local:
            if name in demand.usable_nodes:
                continue
            if demand.is_pinned and name not in demand.placed_nodes:
                return Judgement(Verdict.UNSUITABLE, Reason.REPLICA_ELSEWHERE)
            wanted.append(demand)
        return self.judge_room(name, wanted)

    def _quick(self, name: str, room: NodeRoom, size: int) -> bool:
        if self._local[0].is_pinned or name in self._bound_to or name in self._extra:
            return False
        return size + self._ledger.pending_bytes(name) + self._anywhere_bytes <= room.plain_free_bytes

    def _lies_on(self, name: str) -> bool:
        return name in self._local[0].usable_nodes or self._local[0].is_pinned

    def judge_room(self, name: str, wanted: Sequence[VolumeDemand]) -> Judgement:
        """The verdict on placing one replica of each of `wanted` on node `name`."""
        if not wanted:
            return SURE
        room = self._world.room(name)
        if room is None or (self._world.kube_nodes and name not in self._world.kube_nodes):
            return Judgement(Verdict.UNSUITABLE, Reason.NO_LONGHORN_NODE)
        if room.rejection is not None:
            return Judgement(Verdict.UNSUITABLE, room.rejection.reason)
        space = self._world.settings.space
        if not all(check_node_tags(room.tags, demand.needs, space) for demand in wanted):
            return Judgement(Verdict.UNSUITABLE, Reason.NODE_TAGS)
        items = [self._item(room, demand) for demand in wanted]
        for item, demand in zip(items, wanted, strict=True):
            if not item.disks:
                return Judgement(Verdict.UNSUITABLE, self._why_no_disk(room, demand))
        return self._judge_packing(name, room, items)

    def _item(self, room: NodeRoom, demand: VolumeDemand | Promise) -> Item:
        space = self._world.settings.space
        return Item(
            demand.size_bytes,
            tuple(
                index
                for index, disk in enumerate(room.disks)
                if disk_takes(disk, demand.needs, demand.size_bytes, demand.required_bytes, space)
            ),
        )

    def _why_no_disk(self, room: NodeRoom, demand: VolumeDemand) -> Reason:
        limits = [file_system_limit(demand.needs.data_engine, disk.filesystem) for disk in room.disks]
        if limits and all(limit is not None and demand.size_bytes >= limit for limit in limits):
            return Reason.INCOMPATIBLE_SIZE
        if all(disk.written_limit_bytes <= demand.required_bytes for disk in room.disks):
            return Reason.TOO_FULL
        return Reason.NO_USABLE_DISK

    def _judge_packing(self, name: str, room: NodeRoom, items: Sequence[Item]) -> Judgement:
        free = [disk.free_bytes for disk in room.disks]
        steps = Steps(PACK_STEPS)
        if pack(items, free, steps) is None:
            if steps.exhausted:
                return Judgement(Verdict.CONTENDED, Reason.NOT_EVALUATED, is_bounded=True)
            return FULL
        pending = self._pending(name)
        steps = Steps(COVER_STEPS)
        if is_sure(items, self._items(room, pending), free, steps):
            return SURE
        older = [
            promise for promise in pending if promise.is_assumed or promise.since <= self._now - YOUNG_HOLD_SECONDS
        ]
        waitable = len(older) < len(pending) and is_sure(items, self._items(room, older), free, Steps(COVER_STEPS))
        return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=waitable, is_bounded=steps.exhausted)

    def _items(self, room: NodeRoom, pending: Iterable[Promise]) -> list[Item]:
        space = self._world.settings.space
        items = (self._item(room, promise) for promise in pending if check_node_tags(room.tags, promise.needs, space))
        return [item for item in items if item.disks]

    def _pending(self, name: str) -> list[Promise]:
        here = [promise for promise in self._ledger.promises(name) if promise.volume not in self._own]
        roaming = [promise for promise, barred in self._anywhere if name not in barred]
        return [*here, *roaming, *self._bound_to.get(name, ()), *self._extra.get(name, ())]

    def judge_cluster(self, demand: VolumeDemand, nodes: Iterable[str], copies: int) -> Judgement:
        """Whether Longhorn finds room for `copies` replicas of a roaming volume, each on a node of its own."""
        found, worst = 0, Judgement(Verdict.FULL, Reason.NO_ROOM_IN_CLUSTER)
        barred = self._world.barred_nodes(demand.volume)
        for name in nodes:
            if name in barred:
                continue
            judgement = self.judge_room(name, (demand,))
            if judgement.verdict is Verdict.SURE:
                found += 1
                if found >= copies:
                    return SURE
            elif judgement.verdict is Verdict.CONTENDED:
                worst = Judgement(Verdict.CONTENDED, Reason.CONTENDED, worst.is_waitable or judgement.is_waitable)
        return worst


def _promise_of_replica(replica: Replica, world: World) -> Promise:
    volume = world.volumes[replica.volume]
    return Promise(
        volume=replica.volume,
        size_bytes=replica.size_bytes,
        required_bytes=volume.actual_size_bytes,
        needs=volume.needs,
        is_assumed=True,
        since=0.0,
    )
