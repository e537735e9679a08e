"""Objects as they may be: null for what is empty."""

from __future__ import annotations

from tests.oracle.worlds import OracleWorld


def nulls(world: OracleWorld) -> None:
    """null for lists and maps, empty or not, and for what a field's absence says."""
    dice = world.dice
    for node in world.nodes:
        for name in dice.some(("tags", "evictionRequested"), 0.3):
            node["spec"][name] = None
        if dice.chance(0.1):
            node["status"]["conditions"] = None
        if dice.chance(0.3):
            node["status"]["region"] = None
    for _, _, spec, status in world.disks():
        for name in dice.some(("tags", "evictionRequested", "diskType"), 0.2):
            spec[name] = None
        for name in dice.some(("conditions", "scheduledReplica", "filesystemType"), 0.15):
            status[name] = None
    for name in dice.some(("nodeSelector", "diskSelector", "topologyRequirement", "backingImage", "cloneMode"), 0.5):
        world.volume["spec"][name] = None
    for raw in world.replicas:
        raw["metadata"]["deletionTimestamp"] = None
        for name in dice.some(("evictionRequested", "rebuildRetryCount", "hardNodeAffinity", "image"), 0.3):
            raw["spec"][name] = None
