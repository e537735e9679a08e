"""Claims, volumes and what is asked for them, for the tests of demands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.allocator.world.world import World
from controller.model.longhorn import LonghornSettings, Replica
from controller.model.versions import behaviour_of
from controller.model.workload import Claim, PersistentVolume, StorageClass
from controller.rules.demand import VolumeDemand, demand_of_claim
from tests.fakes.builders import EPOCH, GIB, replica, volume

SETTINGS = LonghornSettings()
OLD = LonghornSettings(behaviour=behaviour_of("v1.9.2"))
LONGHORN = "driver.longhorn.io"
ONE_LOCAL = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
FAILED = {"healthy_at": EPOCH, "failed_at": EPOCH}


def claim(**fields: Any) -> Claim:
    facts = Claim("u", "ns", "c", "sc", "", GIB, "", False, False, "", "")
    return replace(facts, **fields)


def world(provisioner: str = LONGHORN, **parameters: str) -> World:
    """A world with one class, called "sc"."""
    made = World()
    made.put_class("sc", StorageClass("sc", provisioner, parameters, False, True, EPOCH))
    return made


def bound(made: World, driver: str = LONGHORN, handle: str = "vol") -> Claim:
    made.put_pv("pv", PersistentVolume("pv", driver, handle, "u", "ns/c", GIB, EPOCH))
    return claim(volume_name="pv")


def with_volume(*replicas: Replica, **fields: Any) -> World:
    """A world with the volume "vol", best-effort with one replica unless told otherwise."""
    made = world()
    made.put_volume("vol", volume("vol", **fields))
    for entry in replicas:
        made.put_replica(entry.name, entry)
    return made


def on(node: str, **fields: Any) -> Replica:
    return replica(f"r-{node}", "vol", on=node, **fields)


def demand(made: World, of: Claim, settings: LonghornSettings = SETTINGS) -> VolumeDemand:
    found = demand_of_claim(of, made, settings)
    assert isinstance(found, VolumeDemand)
    return found


def placing(found: VolumeDemand) -> str:
    """Where the volume's next replica goes."""
    assert not (found.is_local and found.is_roaming)
    if found.is_pinned:
        return "pinned"
    return "local" if found.is_local else "roams" if found.is_roaming else "nowhere"
