"""Replicas that Longhorn may place at any moment and that no promise stands for: Replica objects without a disk, and
those that it is going to make by itself (controller/model/rebuilds.py)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from controller.allocator.promises.ledger import ANYWHERE, Ledger, Promise
from controller.allocator.world.world import World
from controller.model.demand import needs_of_volume
from controller.model.longhorn import LOCALITY_DISABLED, Volume
from controller.model.rebuilds import Cause
from controller.rules.affinity import Affinity, copies_per_node
from controller.rules.eligibility import check_node


class Awaited(NamedTuple):
    """What is to come to `node`, or to any node that is not `barred` when it is "": `copies` times in all, on one node
    `per_node` times at most."""

    promise: Promise
    node: str
    barred: frozenset[str]
    copies: int
    per_node: int


def awaited_replicas(
    world: World, ledger: Ledger, own: frozenset[str], now_utc: datetime | None = None
) -> Iterator[Awaited]:
    """`own` are the keys of the asking pod's volumes, which are not told. `now_utc` None: rebuilds that fall due later
    are."""
    bars = _Bars(world)
    roaming: dict[str, list[int]] = {}  # sizes, by volume
    for replica in world.unplaced.values():
        volume = world.volumes.get(replica.volume)
        if volume is None or (volume.data_locality != LOCALITY_DISABLED and not volume.node_id):
            continue  # placed at attach only
        node = replica.hard_node_affinity
        if _has_promise(world, ledger, own, volume, node or volume.node_id):
            continue
        size = max(replica.size_bytes, volume.size_bytes)  # the scheduler asks for the volume's
        if node:
            yield Awaited(_promise(world, volume, size), node, frozenset(), 1, 1)
        else:
            roaming.setdefault(volume.name, []).append(size)
    for name, sizes in roaming.items():
        volume = world.volumes[name]
        yield _anywhere(world, volume, max(sizes), bars, len(sizes))
    for name, rebuilds in world.rebuilds.items():
        volume = world.volumes[name]
        for entry in rebuilds:
            if now_utc is not None and not entry.is_due(now_utc):
                continue
            node = entry.node or ("" if entry.cause is Cause.CREATION else ANYWHERE)
            if _has_promise(world, ledger, own, volume, node):
                continue
            if entry.node:
                yield Awaited(_promise(world, volume, entry.size_bytes), entry.node, frozenset(), entry.copies, 1)
            else:
                yield _anywhere(world, volume, entry.size_bytes, bars, entry.copies)


def _anywhere(world: World, volume: Volume, size_bytes: int, bars: _Bars, copies: int) -> Awaited:
    """So many copies on nodes that suit; several of them on one node only where anti-affinity is soft."""
    per_node = copies_per_node(Affinity.of(volume, world.settings), copies)
    return Awaited(_promise(world, volume, size_bytes), "", bars.of(volume), copies, per_node)


def _has_promise(world: World, ledger: Ledger, own: frozenset[str], volume: Volume, node: str) -> bool:
    """Whether a promise, or the asking pod, stands for a replica of the volume that goes to `node` (ANYWHERE: to any;
    "": where is not known).

    A volume may be attached where no pod of it is, to be restored, cloned or grown, and gets its replica there.
    """
    keys = {claim.uid for claim in world.claims_of_volume(volume.name)} or {volume.name}
    if not keys.isdisjoint(own):
        return True
    promised = {entry.node for key in keys for entry, _ in ledger.of_volume(key)}
    return bool(promised) and (not node or not promised.isdisjoint((node, ANYWHERE)))


class _Bars:
    """Nodes that take no further replica of a volume by Longhorn's anti-affinity, zones included."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_zone: dict[str, set[str]] = {}

    def of(self, volume: Volume) -> frozenset[str]:
        nodes = self._world.nodes
        barred = self._world.barred_nodes(volume.name)
        affinity = Affinity.of(volume, self._world.settings)
        if not barred or affinity.zone_soft or affinity.balances:
            return barred
        if not self._by_zone:
            for name, node in nodes.items():
                self._by_zone.setdefault(node.zone, set()).add(name)
        used = {nodes[name].zone for name in barred if name in nodes and check_node(nodes[name]) is None}
        return barred.union(*(self._by_zone[zone] for zone in used))


def _promise(world: World, volume: Volume, size_bytes: int) -> Promise:
    needs = needs_of_volume(volume, world)
    return Promise(volume.name, size_bytes, volume.actual_size_bytes, needs, is_assumed=True, since=0.0)
