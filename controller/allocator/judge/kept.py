"""Whether a newcomer leaves the room that is kept on a node for somebody else."""

from __future__ import annotations

from collections.abc import Sequence

from controller.allocator.judge.packing import COVER_STEPS, Item, Steps, is_sure
from controller.allocator.judge.shape import promised_items
from controller.allocator.promises.ledger import PendingItem
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


def leaves_what_is_kept(world: World, room: NodeRoom, newcomer: Sequence[Item], kept: Sequence[PendingItem]) -> bool:
    """Whether all that is kept there still finds room wherever Longhorn puts the newcomer's volumes, once the data that
    leaves anyway is gone."""
    items = promised_items(world, room, kept)
    free = [disk.free_bytes + more for disk, more in zip(room.disks, leaving_bytes(world, room), strict=True)]
    return is_sure(items, newcomer, free, Steps(COVER_STEPS)) if items else True
