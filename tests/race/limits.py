"""The place of a fourth invariant, which is not promised yet: no disk exceeds its limit.

It can be asked for by name. Still to come: what a disk may exceed its limit by, because it was reached by what nobody
could foresee (pods that were not asked about, a change of reach after the answer, Longhorn's own copies).
"""

from __future__ import annotations

from tests.race.world import World


def overfull_disks(world: World) -> dict[str, int]:
    """Bytes beyond the limit by disk UUID, as the replicas really lie."""
    used: dict[str, int] = {}
    for replica in world.replicas.values():
        used[replica.disk_uuid] = used.get(replica.disk_uuid, 0) + replica.size_bytes
    limits = world.rules().limits()
    return {uuid: used[uuid] - limit for uuid, limit in limits.items() if used.get(uuid, 0) > limit}


def check_limits(world: World) -> None:
    found = {uuid: f"{excess / 1024**3:g} GiB" for uuid, excess in overfull_disks(world).items()}
    world.check(not found, f"beyond the limit: {found}")
