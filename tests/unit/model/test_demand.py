"""What each kind of volume asks of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.world import World
from controller.model.demand import Missing, VolumeDemand, demand_of_claim, rounded_volume_bytes
from controller.model.longhorn import LonghornSettings
from controller.model.workload import Claim, PersistentVolume, StorageClass
from tests.fakes.builders import EPOCH, GIB, replica, volume

MIB = 1024**2
SETTINGS = LonghornSettings()


def claim(**fields: Any) -> Claim:
    facts = Claim("u", "ns", "c", "sc", "", GIB, "", False, False, "", "")
    return replace(facts, **fields)


def world(provisioner: str = "driver.longhorn.io", **parameters: str) -> World:
    made = World()
    made.put_class("sc", StorageClass("sc", provisioner, parameters, False, True, EPOCH))
    return made


def bound(made: World, driver: str = "driver.longhorn.io") -> Claim:
    made.put_pv("pv", PersistentVolume("pv", driver, "vol", "u", "ns/c", GIB, EPOCH))
    return claim(volume_name="pv")


def demand(made: World, of: Claim, settings: LonghornSettings = SETTINGS) -> VolumeDemand:
    found = demand_of_claim(of, made, settings)
    assert isinstance(found, VolumeDemand)
    return found


@pytest.mark.parametrize(
    ("requested", "expected"),
    [(0, 10 * MIB), (1, 10 * MIB), (10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB), (12 * MIB, 12 * MIB)],
)
def test_sizes_are_rounded_as_longhorn_rounds_them(requested: int, expected: int) -> None:
    assert expected == rounded_volume_bytes(requested)
    assert expected == demand(world(), claim(requested_bytes=requested)).size_bytes


@pytest.mark.parametrize(
    ("parameters", "is_local"),
    [
        ({"dataLocality": "best-effort", "numberOfReplicas": "1"}, True),
        ({"dataLocality": "strict-local", "numberOfReplicas": "1"}, True),
        ({"dataLocality": "best-effort", "numberOfReplicas": "2"}, False),
        ({"dataLocality": "best-effort"}, False),  # three by default
        ({"numberOfReplicas": "1"}, False),
        ({}, False),
    ],
)
def test_only_single_best_effort_and_strict_local_volumes_need_the_pods_own_node(
    parameters: dict[str, str], is_local: bool
) -> None:
    found = demand(world(**parameters), claim())
    assert (is_local, not is_local) == (found.is_local, found.is_roaming)


def test_longhorns_settings_fill_what_the_class_leaves_open() -> None:
    settings = LonghornSettings(default_data_locality="best-effort", default_replica_count_v1=1)
    assert demand(world(), claim(), settings).is_local
    assert not demand(world(dataEngine="v2"), claim(), settings).is_local  # three of the other engine


def test_selectors_are_split_at_commas_and_not_trimmed() -> None:
    needs = demand(world(nodeSelector="b,a", diskSelector="ssd, fast", dataEngine="v2"), claim()).needs
    assert (("a", "b"), (" fast", "ssd"), "v2") == (needs.node_selector, needs.disk_selector, needs.data_engine)


def test_shared_volumes_pin_nobody_unless_they_migrate() -> None:
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
    assert not demand(world(**parameters), claim(is_shared=True)).is_local
    assert demand(world(**parameters, migratable="true"), claim(is_shared=True)).is_local


def test_what_is_not_longhorns_asks_for_nothing() -> None:
    assert demand_of_claim(claim(), world("ebs.csi.aws.com"), SETTINGS) is None
    assert demand_of_claim(claim(class_name=""), world(), SETTINGS) is None
    assert demand_of_claim(claim(class_name=None), world(), SETTINGS) is None  # no default class
    assert demand_of_claim(claim(data_source="DataVolume/x"), world(), SETTINGS) is None
    made = world()
    assert demand_of_claim(bound(made, "ebs.csi.aws.com"), made, SETTINGS) is None


def test_the_newest_default_class_serves_a_claim_without_one() -> None:
    made = world()
    for name, created in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-01-02T00:00:00Z")):
        parameters = {"dataLocality": "best-effort", "numberOfReplicas": "1"} if name == "new" else {}
        made.put_class(name, StorageClass(name, "driver.longhorn.io", parameters, True, True, created))
    assert demand(made, claim(class_name=None)).is_local


def test_what_is_not_in_the_stores_is_missing_not_nothing() -> None:
    made = World()
    assert Missing("class", "", "sc") == demand_of_claim(claim(), made, SETTINGS)
    assert Missing("pv", "", "pv") == demand_of_claim(claim(volume_name="pv"), made, SETTINGS)
    assert Missing("volume", "", "vol") == demand_of_claim(bound(made), made, SETTINGS)


@pytest.mark.parametrize(
    ("fields", "is_usable"),
    [
        ({}, True),
        ({"failed_at": "x"}, False),
        ({"eviction_requested": True}, False),
        ({"deleting": True}, False),
        ({"active": False}, False),
    ],
)
def test_a_replica_is_usable_unless_failed_evicting_deleting_or_a_twin(fields: dict[str, Any], is_usable: bool) -> None:
    made = world()
    made.put_volume("vol", volume("vol"))
    made.put_replica("r", replica("r", "vol", on="n1", **fields))
    assert (frozenset({"n1"}) if is_usable else frozenset()) == demand(made, bound(made)).usable_nodes


def test_an_existing_volume_counts_with_its_own_size_and_what_was_written() -> None:
    made = world()
    made.put_volume("vol", volume("vol", 5, actual_size_bytes=3 * GIB))
    found = demand(made, bound(made))
    assert (5 * GIB, 3 * GIB) == (found.size_bytes, found.required_bytes)


def test_a_strict_local_volume_is_pinned_once_it_is_placed() -> None:
    made = world()
    made.put_volume("vol", volume("vol", locality="strict-local"))
    assert not demand(made, bound(made)).is_pinned
    made.put_replica("r", replica("r", "vol", on="n1"))
    assert demand(made, bound(made)).is_pinned
