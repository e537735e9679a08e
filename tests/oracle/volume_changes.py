"""What may be the matter with a volume's replicas and flags: one function each, which changes a world at random."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

from tests.longhorn_rules.objects import LONG_AGO, conditions, replica
from tests.oracle.worlds import NOW, OracleWorld, place_replica, set_condition

FIELDS: Final = {
    "replicaSoftAntiAffinity": "replica-soft-anti-affinity",
    "replicaZoneSoftAntiAffinity": "replica-zone-soft-anti-affinity",
    "replicaDiskSoftAntiAffinity": "replica-disk-soft-anti-affinity",
}
TRUE: Final = ("true", "1", "T", "True")
FALSE: Final = ("false", "0", "f", "FALSE")


def set_flag(world: OracleWorld, field: str, soft: bool) -> None:
    """By the volume's own word, or by the setting while the volume has none."""
    dice = world.dice
    by_volume = dice.chance(0.5)
    if by_volume:
        world.volume["spec"][field] = "enabled" if soft else "disabled"
        if dice.chance(0.5):
            world.settings[FIELDS[field]] = dice.one(FALSE if soft else TRUE)
    else:
        world.volume["spec"].pop(field, None)
        if dice.chance(0.6):
            world.volume["spec"][field] = "ignored"
        world.settings[FIELDS[field]] = dice.one(TRUE if soft else FALSE)


def soft_flags(world: OracleWorld) -> None:
    for field in world.dice.some(tuple(FIELDS), 0.7):
        set_flag(world, field, world.dice.chance(0.5))


def few_zones(world: OracleWorld) -> None:
    names = world.dice.one((("",), ("east",), ("east", "west")))
    for node in world.nodes:
        node["status"]["zone"] = world.dice.one(names)


def everywhere(world: OracleWorld) -> None:
    """A replica on most nodes."""
    for node in world.nodes:
        if world.dice.chance(0.75):
            place_replica(world, node)


def evicting_replicas(world: OracleWorld) -> None:
    probability = world.dice.one((0.3, 0.7, 1.0))
    for raw in world.dice.some(world.placed, probability):
        raw["spec"]["evictionRequested"] = True


def failed_replicas(world: OracleWorld) -> None:
    for raw in world.dice.some(world.placed, 0.6):
        raw["spec"]["failedAt"] = LONG_AGO
        raw["spec"]["rebuildRetryCount"] = world.dice.one((0, 1, 4, 4, 5, 5, 6))
        if world.dice.chance(0.2):
            raw["spec"]["healthyAt"] = ""
        if world.dice.chance(0.15):
            raw["spec"]["evictionRequested"] = True
        if world.dice.chance(0.1):
            raw["spec"]["diskID"] = ""


def due_replacements(world: OracleWorld) -> None:
    """A degraded volume whose failed replicas are about to be replaced."""
    dice = world.dice
    failed_replicas(world)
    wait = 600
    if dice.chance(0.4):
        wait = dice.one((0, 60, 3600))
        world.settings["replica-replenishment-wait-interval"] = str(wait)
    since = NOW - timedelta(seconds=wait + dice.one((-1, 0, 0, 1, 1, 300, -30)))
    text = _written(world, since)
    world.volume["status"]["robustness"] = dice.one(("degraded",) * 5 + ("healthy", "unknown", "faulted"))
    world.volume["status"]["lastDegradedAt"] = dice.one((text,) * 9 + ("",))


def _written(world: OracleWorld, moment: datetime) -> str:
    """In one of the forms of RFC 3339."""
    form = world.dice.between(0, 9)
    if form == 0:
        return moment.astimezone(timezone(timedelta(hours=2))).isoformat()
    if form == 1:
        return (moment - timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
    return moment.isoformat().replace("+00:00", "Z")


def deleted_replicas(world: OracleWorld) -> None:
    for raw in world.dice.some(world.placed, 0.6):
        raw["metadata"]["deletionTimestamp"] = LONG_AGO


def inactive_replicas(world: OracleWorld) -> None:
    for raw in world.dice.some(world.placed, 0.6):
        raw["spec"]["active"] = False


def auto_balance(world: OracleWorld) -> None:
    """Best effort, with disks under pressure or at its edge."""
    dice = world.dice
    if dice.chance(0.5):
        world.volume["spec"]["replicaAutoBalance"] = dice.one(
            ("best-effort",) * 4 + ("least-effort", "disabled", "ignored")
        )
    if dice.chance(0.5):
        world.settings["replica-auto-balance"] = dice.one(("best-effort",) * 4 + ("least-effort", "disabled"))
    percentage = 90
    if dice.chance(0.5):
        percentage = dice.one((0, 50, 70, 80, 100, 95, -5))
        world.settings["replica-auto-balance-disk-pressure-percentage"] = str(percentage)
    if dice.chance(0.3):
        world.settings["storage-minimal-available-percentage"] = "0"
    for _, _, spec, status in world.disks():
        if dice.chance(0.4):
            maximum = status.get("storageMaximum", 0)
            edge = -(-maximum * (100 - percentage) // 100)  # the fewest bytes without pressure
            status["storageAvailable"] = spec["storageReserved"] + edge + dice.one((-1, -1, 0, 1, -maximum // 50))


def tries(world: OracleWorld) -> None:
    """All zones are used, and then some: what decides is where else a replica may go."""
    dice = world.dice
    few_zones(world)
    soft_zone = dice.chance(0.55)
    set_flag(world, "replicaZoneSoftAntiAffinity", soft_zone)
    set_flag(world, "replicaSoftAntiAffinity", dice.chance(0.5))
    used: set[str] = set()
    for node in dice.shuffled(world.nodes):
        zone = node["status"].get("zone", "")
        if zone not in used or dice.chance(0.5):
            raw = place_replica(world, node)
            used.add(zone)
            if raw is not None and dice.chance(0.3 if soft_zone else 0.7):
                raw["spec"]["evictionRequested"] = True


def disk_affinity(world: OracleWorld) -> None:
    """Replicas on most disks of a few nodes, and word about whether disks may hold two."""
    dice = world.dice
    set_flag(world, "replicaDiskSoftAntiAffinity", dice.chance(0.4))
    if dice.chance(0.8):
        set_flag(world, "replicaSoftAntiAffinity", True)
    few_zones(world)
    everywhere(world)
    del world.nodes[dice.between(1, 3) :]


def foreign_replicas(world: OracleWorld) -> None:
    """Replicas on nodes that are not there, on disks of other nodes, or on none."""
    dice = world.dice
    for raw in dice.some(world.placed, 0.5):
        raw["spec"]["nodeID" if dice.chance(0.7) else "diskID"] = dice.one(
            ("gone", *(n["metadata"]["name"] for n in world.nodes))
        )


def asked_again(world: OracleWorld) -> None:
    """A replica that has its place is asked for."""
    place_replica(world)
    if world.dice.chance(0.2):
        world.asked.append(world.asked[0])
    elif world.placed:
        world.asked.insert(world.dice.between(0, 1), world.dice.one(world.placed)["metadata"]["name"])


def strangers(world: OracleWorld) -> None:
    """Replicas of another volume, which nobody asks for: only what a disk's figures say counts."""
    for _, _, _, status in list(world.disks()):
        if world.dice.chance(0.5):
            name = f"stranger-{len(world.others)}"
            world.others.append(replica(name, status["diskUUID"], size=world.size, of="stranger"))


def unplaced_failures(world: OracleWorld) -> None:
    """Replicas that failed without a place, once healthy or never."""
    for raw in world.new:
        raw["spec"]["failedAt"] = world.dice.one((LONG_AGO, LONG_AGO, ""))
        raw["spec"]["healthyAt"] = world.dice.one((LONG_AGO, "", ""))


def other_releases(world: OracleWorld) -> None:
    world.version = world.dice.one(
        (
            "v1.9.0", "v1.9.3", "v1.10.0", "v1.10.1", "v1.10.2", "v1.11.0", "v1.11.1", "v1.11.3", "v1.12.0", "v1.12.1",
            "v1.13.0-dev", "master-head",
        )
    )  # fmt: skip


def sizeless_replicas(world: OracleWorld) -> None:
    """Replicas of another size than their volume, as during an expansion."""
    for raw in world.dice.some(world.replicas, 0.6):
        raw["spec"]["volumeSize"] = str(world.dice.one((world.size // 2, world.size * 2)))


def stuck_volume(world: OracleWorld) -> None:
    """A volume that may not grow as it is, at least in some releases; now and then for several reasons."""
    for change in world.dice.some(STATES, 0.12) or [world.dice.one(STATES)]:
        change(world)


def _faulted(world: OracleWorld) -> None:
    world.volume["status"]["robustness"] = "faulted"


def _cloned(world: OracleWorld) -> None:
    dice = world.dice
    if dice.chance(0.8):
        world.volume["spec"]["dataSource"] = dice.one(("vol://src", "vol://src", "snap://src/s", "snap://src", "src"))
    states = ("", "initiated", "copy-completed-awaiting-healthy", "completed", "completed", "failed", "failed")
    world.volume["status"]["cloneStatus"] = dice.one((*({"state": state} for state in states), {}))


def _restored(world: OracleWorld) -> None:
    world.volume["status"]["restoreRequired"] = True
    if world.dice.chance(0.5):
        world.volume["status"]["isStandby"] = world.dice.chance(0.9)


def _second_engine(world: OracleWorld) -> None:
    dice, spec = world.dice, world.volume["spec"]
    spec["dataEngine"], spec["frontend"] = dice.one(("v2", "v2", "v1")), dice.one(("ublk", "ublk", "nvmf"))
    if dice.chance(0.3):
        spec["disableFrontend"] = True
    if dice.chance(0.6):
        world.version = dice.one(("v1.9.3", "v1.9.3", "v1.9.3", "v1.10.0"))


def _in_transition(world: OracleWorld) -> None:
    states = ("creating", "attaching", "detaching", "deleting", "attached", "detached", "")
    world.volume["status"]["state"] = world.dice.one(states)


def _migrating(world: OracleWorld) -> None:
    world.volume["spec"]["migrationNodeID"] = world.dice.one(("n1", "n1", ""))


def _unscheduled(world: OracleWorld) -> None:
    dice, status = world.dice, world.volume["status"]
    status["conditions"] = conditions(Scheduled=dice.one(("False", "False", "Unknown", "True")))
    status["state"] = dice.one(("detached", "detached", "attached", ""))


def _unplaced(world: OracleWorld) -> None:
    for raw in world.dice.some(world.placed, world.dice.one((0.5, 1))):
        raw["spec"].update(nodeID="", diskID="")


def _unready_disks(world: OracleWorld) -> None:
    """Their figures stay, as those of a node that has gone."""
    for _, _, _, status in world.disks():
        if world.dice.chance(0.5):
            set_condition(status, "Ready", world.dice.one(("False", "False", "Unknown", None)))


STATES: Final = (
    _faulted, _cloned, _restored, _restored, _second_engine, _second_engine, _second_engine, _in_transition,
    _in_transition, _migrating, _unscheduled, _unscheduled, _unplaced, _unready_disks,
)  # fmt: skip
