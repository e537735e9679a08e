"""Claims, volumes and what is asked for them, for the tests of demands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.allocator.world.world import World
from controller.model.longhorn import LonghornSettings, Replica
from controller.model.versions import behaviour_of
from controller.model.workload import Claim, PersistentVolume
from controller.rules.demand import VolumeDemand, demand_of_claim
from tests.fakes import builders
from tests.fakes.builders import DRIVER, EPOCH, GIB, replica, storage_class, volume

SETTINGS = LonghornSettings()
OLD = LonghornSettings(behaviour=behaviour_of("v1.9.2"))
FAILED = {"healthy_at": EPOCH, "failed_at": EPOCH}


def claim(**fields: Any) -> Claim:
    return replace(builders.claim("c", class_name="sc", uid="u"), **fields)


def world(provisioner: str = DRIVER, **parameters: str) -> World:
    """A world with one class, called "sc"."""
    made = World()
    made.put_class("sc", storage_class("sc", parameters, provisioner=provisioner))
    return made


def bound(made: World, driver: str = DRIVER, handle: str = "vol") -> Claim:
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
