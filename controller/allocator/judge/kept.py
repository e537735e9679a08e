"""Whether a newcomer leaves untouched the room that is kept on a node for another pod."""

from __future__ import annotations

from collections.abc import Sequence

from controller.allocator.judge.packing import PACK_STEPS, Steps, pack
from controller.allocator.judge.shape import promised_items
from controller.allocator.promises.items import PendingItem
from controller.allocator.world.world import World
from controller.model.longhorn import Replica
from controller.rules.eligibility import NodeRoom


def leaving_bytes(world: World, room: NodeRoom) -> list[int]:
    """Bytes of each of the room's disks that plausibly become free soon: replicas that are being deleted, failed or
    evicting, and all of volumes that go with their pod or claim. Data in use by anybody else stays."""
    return [
        sum(replica.size_bytes for replica in world.replicas_on(disk.uuid) if _leaves(world, replica))
        for disk in room.disks
    ]


def _leaves(world: World, replica: Replica) -> bool:
    if replica.deleting or replica.failed_at or replica.eviction_requested:
        return True
    volume = world.volume(replica.volume)
    if volume is None or volume.deleting:
        return True
    claim = world.claim_of_volume(replica.volume)
    return claim is not None and (claim.is_deleting or bool(claim.owner_pod_uid))


def leaves_what_is_kept(world: World, room: NodeRoom, coming: Sequence[int], kept: Sequence[PendingItem]) -> bool:
    """Whether everything that is kept there still fits once the data that leaves anyway is gone. `coming` are the bytes
    of the newcomer, and of what is promised there, that may come to each disk."""
    items = promised_items(world, room, kept)
    if not items:
        return True
    rows = zip(room.disks, leaving_bytes(world, room), coming, strict=True)
    free = [disk.free_bytes + leaving - more for disk, leaving, more in rows]
    return pack(items, free, Steps(PACK_STEPS)) is not None
