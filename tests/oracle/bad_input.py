"""Objects as they should not be, and as they may be: null for what is empty."""

from __future__ import annotations

from typing import Any, Final

from tests.longhorn_rules.cases import wrong_fields
from tests.longhorn_rules.objects import Raw
from tests.oracle.worlds import OracleWorld

WRONG: Final = wrong_fields()
BAD_PERCENTAGES: Final = ("", "ten", "1.5", " 5", "9223372036854775808", '{"v1":"5"}', "0x5")
BAD_FLAGS: Final = ("", "yes", "TRUE ", "2", "on", '{"v1":"true"}')


def spoil(world: OracleWorld) -> None:
    """One field of one object, or one setting, that makes no sense."""
    dice = world.dice
    kind = dice.one(("Volume", "Replica", "Node", "percentage", "flag"))
    if kind == "percentage":
        world.settings["storage-over-provisioning-percentage"] = dice.one(BAD_PERCENTAGES)
    elif kind == "flag":
        world.settings["allow-empty-disk-selector-volume"] = dice.one(BAD_FLAGS)
    else:
        objects = {"Volume": [world.volume], "Replica": world.replicas, "Node": world.nodes}[kind]
        path, value = dice.one(WRONG[kind])
        raw = dice.one(objects)
        # Nobody reads a disk that is not in both.
        is_half = ".d1." in path and not ("d1" in raw["spec"]["disks"] and "d1" in raw["status"]["diskStatus"])
        if not is_half:
            _put(raw, path.split("."), value)


def _put(raw: Raw, path: list[str], value: Any) -> None:
    """Nothing happens where the way to the field is not there."""
    for key in path[:-1]:
        if not isinstance(raw.get(key), dict):
            return
        raw = raw[key]
    raw[path[-1]] = value


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
