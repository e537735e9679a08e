"""What may be wrong with disks and their figures: one function each, which changes a world at random."""

from __future__ import annotations

from tests.longhorn_rules.objects import Raw
from tests.oracle.worlds import MIB, TAGS, TIB, OracleWorld, set_condition


def some_disks(world: OracleWorld, probability: float = 0.4) -> list[tuple[Raw, Raw]]:
    """Spec and status."""
    return world.dice.some([(spec, status) for _, _, spec, status in world.disks()], probability)


def closed_disks(world: OracleWorld) -> None:
    for spec, _ in some_disks(world):
        if world.dice.chance(0.7):
            spec["allowScheduling"] = False
        else:
            spec.pop("allowScheduling", None)


def evicting_disks(world: OracleWorld) -> None:
    for spec, _ in some_disks(world):
        spec["evictionRequested"] = True
        spec["allowScheduling"] = world.dice.chance(0.7)


def unschedulable_disks(world: OracleWorld) -> None:
    for _, status in some_disks(world):
        set_condition(status, "Schedulable", world.dice.one(("False", "False", "Unknown", None)))
        if world.dice.chance(0.3):
            set_condition(status, "Ready", "False")


def unready_disks(world: OracleWorld) -> None:
    """Which Longhorn's scheduler does not look at by itself."""
    for _, status in some_disks(world):
        set_condition(status, "Ready", world.dice.one(("False", "Unknown", None)))


def other_types(world: OracleWorld) -> None:
    for spec, status in some_disks(world):
        spec["diskType"] = "block" if spec["diskType"] == "filesystem" else "filesystem"
        status["filesystemType"] = world.dice.one(("", status["filesystemType"]))


def disk_tags(world: OracleWorld) -> None:
    dice = world.dice
    for spec, _ in some_disks(world, 0.9):
        spec["tags"] = dice.some(TAGS, 0.6)
    if dice.chance(0.6):
        world.volume["spec"]["diskSelector"] = dice.some(TAGS, 0.4)
    if dice.chance(0.4):
        world.settings["allow-empty-disk-selector-volume"] = dice.one(("false", "false", "true"))


def odd_selectors(world: OracleWorld) -> None:
    """Blanks, other cases and the same tag twice."""
    dice = world.dice
    for kind in ("disk", "node"):
        if dice.chance(0.6):
            world.volume["spec"][f"{kind}Selector"] = dice.one(
                (["Fast"], ["fast", "fast"], ["fast "], ["large", "fast"])
            )
    for node in world.nodes:
        node["spec"]["tags"] = dice.one((["fast"], ["Fast"], ["fast", "large"], ["fast "]))
        for disk in node["spec"]["disks"].values():
            disk["tags"] = dice.one((["fast"], ["Fast"], ["fast", "fast", "large"], ["fast "]))


def lonely_disks(world: OracleWorld) -> None:
    """Disks in the spec only, or in the status only."""
    for node in world.nodes:
        for name in list(node["status"]["diskStatus"]):
            if world.dice.chance(0.4):
                part = world.dice.one((node["spec"]["disks"], node["status"]["diskStatus"]))
                part.pop(name, None)


def few_disks(world: OracleWorld) -> None:
    for node in world.dice.some(world.nodes, 0.3):
        node["spec"]["disks"].clear()
        node["status"]["diskStatus"].clear()


def blank_disks(world: OracleWorld) -> None:
    """A disk that was just added, or is not ready, has no figures."""
    for _, status in some_disks(world):
        if world.dice.chance(0.5):
            status["storageMaximum"] = status["storageAvailable"] = 0
        else:
            for name in world.dice.some(("storageMaximum", "storageAvailable", "storageScheduled"), 0.6):
                status.pop(name, None)


def negative_figures(world: OracleWorld) -> None:
    for _, status in some_disks(world):
        name = world.dice.one(("storageMaximum", "storageAvailable", "storageScheduled"))
        status[name] = -status.get(name, 0) - world.dice.between(0, 1)


def large_reserves(world: OracleWorld) -> None:
    for spec, status in some_disks(world):
        spec["storageReserved"] = status.get("storageMaximum", 0) + world.dice.between(-1, 1) * world.size


def full_disks(world: OracleWorld) -> None:
    """Nearly all of it is scheduled."""
    for spec, status in some_disks(world, 0.6):
        room = status.get("storageMaximum", 0) - spec["storageReserved"]
        status["storageScheduled"] = room - world.dice.between(0, 2) * world.size


def used_up_disks(world: OracleWorld) -> None:
    """Little is available."""
    for _, status in some_disks(world, 0.6):
        status["storageAvailable"] = status.get("storageMaximum", 0) * world.dice.between(0, 30) // 100


def file_system_limits(world: OracleWorld) -> None:
    """A volume about as large as ext4 takes, on disks that have the space."""
    size = 16 * TIB + world.dice.between(-1, 1) * world.dice.one((1, 1, 1, 2 * MIB))
    _resize(world, size, 3 * size)
    for _, status in some_disks(world, 0.9):
        status["filesystemType"] = world.dice.one(("ext4", "ext4", "ext3", "xfs", "btrfs", ""))


def huge_file_system_limits(world: OracleWorld) -> None:
    """A volume about as large as xfs takes. No disk is so large, but over-provisioning may make it so."""
    size = 8 * 1024**6 - 1 + world.dice.one((-1, -1, 0))
    _resize(world, size, 2**60)
    world.settings["storage-over-provisioning-percentage"] = "799"
    for spec, status in some_disks(world, 1):
        spec["storageReserved"], status["storageScheduled"], status["scheduledReplica"] = 0, 0, {}
        status["storageMaximum"] = 2**61 if world.dice.chance(0.9) else 2**60
        status["filesystemType"] = world.dice.one(("xfs", "xfs", "btrfs"))
    if world.dice.chance(0.5):
        world.settings["storage-over-provisioning-percentage"] = "400"


def big_figures(world: OracleWorld) -> None:
    """Around the 2^53 bytes up to which 64-bit floats are exact."""
    _resize(world, 2 ** world.dice.between(40, 52) + world.dice.between(0, 3), 2 ** world.dice.between(52, 57))


def _resize(world: OracleWorld, size: int, maximum: int) -> None:
    dice = world.dice
    world.volume["spec"]["size"] = str(size)
    for raw in world.replicas:
        raw["spec"]["volumeSize"] = str(size)
    for spec, status in some_disks(world, 1):
        status["storageMaximum"] = maximum + dice.between(0, 4095)
        status["storageAvailable"] = status["storageMaximum"] - dice.between(0, maximum // 3)
        status["storageScheduled"] = dice.one((0, dice.between(0, maximum // 4)))
        status["scheduledReplica"] = dict.fromkeys(status.get("scheduledReplica") or (), size)
        spec["storageReserved"] = dice.one((0, dice.between(0, maximum // 5)))


def percentages(world: OracleWorld) -> None:
    dice = world.dice
    if dice.chance(0.7):
        world.settings["storage-over-provisioning-percentage"] = dice.one(
            ("200", "50", "110", "97", "33", "0", "500", "+100")
        )
    if dice.chance(0.7):
        world.settings["storage-minimal-available-percentage"] = dice.one(("0", "10", "33", "29", "50", "70", "100"))


def real_bytes(world: OracleWorld) -> None:
    world.volume["status"]["actualSize"] = world.dice.one((0, world.size, 2 * world.size, world.size // 7))


def fresh_replicas(world: OracleWorld) -> None:
    """Disks whose figures do not list what is already there, or list what is not."""
    for _, status in some_disks(world, 0.8):
        for name in list(status["scheduledReplica"]):
            if world.dice.chance(0.7):
                del status["scheduledReplica"][name]
        if world.dice.chance(0.3):
            del status["scheduledReplica"]
