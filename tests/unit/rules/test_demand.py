"""What each kind of volume asks of a node, existing ones and those that a claim will get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.world.world import World
from controller.model.longhorn import (
    DiskNeeds,
    LonghornSettings,
    Replica,
)
from controller.model.workload import PersistentVolume, Pod, PodVolume, StorageClass
from controller.rules.demand import Missing, demand_of_claim, demands_of_pod
from tests.fakes.builders import EPOCH, GIB, replica, volume
from tests.unit.rules.asking import (
    FAILED,
    LONGHORN,
    OLD,
    ONE_LOCAL,
    SETTINGS,
    bound,
    claim,
    demand,
    on,
    placing,
    with_volume,
    world,
)

# What is no demand, and what is not known


def test_what_is_not_longhorns_asks_for_nothing() -> None:
    assert demand_of_claim(claim(), world("ebs.csi.aws.com"), SETTINGS) is None
    assert demand_of_claim(claim(class_name=""), world(), SETTINGS) is None
    assert demand_of_claim(claim(class_name=None), world(), SETTINGS) is None  # no default class
    made = with_volume()
    assert demand_of_claim(bound(made, "ebs.csi.aws.com"), made, SETTINGS) is None
    assert demand_of_claim(bound(made, ""), made, SETTINGS) is None


def test_the_retired_driver_name_is_known_on_volumes_and_provisions_nothing() -> None:
    made = with_volume()
    assert "vol" == demand(made, bound(made, "io.rancher.longhorn")).volume
    assert demand_of_claim(claim(), world("io.rancher.longhorn"), SETTINGS) is None


def test_the_newest_default_class_serves_a_claim_without_one() -> None:
    made = world()
    for name, created in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-01-02T00:00:00Z")):
        parameters = ONE_LOCAL if name == "new" else {}
        made.put_class(name, StorageClass(name, LONGHORN, parameters, True, True, created))
    assert demand(made, claim(class_name=None)).is_local


def test_what_is_not_in_the_stores_is_missing_not_nothing() -> None:
    made = World()
    assert Missing("class", "", "sc") == demand_of_claim(claim(), made, SETTINGS)
    assert Missing("pv", "", "pv") == demand_of_claim(claim(volume_name="pv"), made, SETTINGS)
    assert Missing("volume", "", "vol") == demand_of_claim(bound(made), made, SETTINGS)


def test_a_volume_is_found_by_its_pvs_handle_whatever_its_name() -> None:
    made = with_volume()
    made.put_volume("by-hand", volume("by-hand", 7))
    assert ("by-hand", 7 * GIB) == (
        (found := demand(made, bound(made, handle="by-hand"))).volume,
        found.size_bytes,
    )


def test_a_volume_that_is_made_already_counts_before_its_claim_is_bound() -> None:
    made = world(**ONE_LOCAL)
    assert not demand(made, claim()).exists
    made.put_volume("pvc-u", volume("pvc-u", 9, locality="disabled"))
    found = demand(made, claim())
    assert (True, 9 * GIB, "roams") == (found.exists, found.size_bytes, placing(found))


# Pods


def pod(*volumes: PodVolume) -> Pod:
    return Pod("p", "ns", "pod", EPOCH, 0, True, "", "", False, False, volumes)


def test_an_ephemeral_volumes_claim_counts_if_the_pod_owns_it_and_another_pods_is_still_to_be_made() -> None:
    made = world(**ONE_LOCAL)
    entry = pod(PodVolume("scratch", "pod-scratch", is_ephemeral=True))
    assert ([], [Missing("claim", "ns", "pod-scratch")]) == demands_of_pod(entry, made, SETTINGS)
    for owner, count in (("p", 1), ("other", 0), ("", 1)):
        made.put_claim("ns/pod-scratch", claim(name="pod-scratch", owner_pod_uid=owner))
        demands, missing = demands_of_pod(entry, made, SETTINGS)
        assert (count, 1 - count) == (len(demands), len(missing))


def test_a_claim_that_the_pod_names_twice_counts_once() -> None:
    made = world(**ONE_LOCAL)
    made.put_claim("ns/c", claim())
    demands, _ = demands_of_pod(pod(PodVolume("a", "c"), PodVolume("b", "c")), made, SETTINGS)
    assert ["u"] == [entry.key for entry in demands]


def test_one_longhorn_volume_behind_two_claims_of_a_pod_counts_once() -> None:
    made = with_volume()
    for uid in ("u1", "u2"):
        made.put_claim(f"ns/{uid}", claim(uid=uid, name=uid, volume_name=f"pv-{uid}"))
        made.put_pv(f"pv-{uid}", PersistentVolume(f"pv-{uid}", LONGHORN, "vol", uid, f"ns/{uid}", GIB, EPOCH))
    demands, _ = demands_of_pod(pod(PodVolume("a", "u1"), PodVolume("b", "u2")), made, SETTINGS)
    assert ["vol"] == [entry.volume for entry in demands]


# Data locality and replica count


@pytest.mark.parametrize(
    ("locality", "count", "placed", "expected"),
    [
        ("strict-local", 1, (), "local"),
        ("strict-local", 1, ("n1",), "pinned"),
        ("best-effort", 1, (), "local"),
        ("best-effort", 1, ("n1",), "local"),  # a move, when the pod goes elsewhere
        ("best-effort", 2, (), "roams"),
        ("best-effort", 2, ("n1",), "roams"),
        ("best-effort", 2, ("n1", "n2"), "nowhere"),
        ("disabled", 1, (), "roams"),
        ("disabled", 1, ("n1",), "nowhere"),
        ("disabled", 3, ("n1", "n2"), "roams"),
        ("disabled", 3, ("n1", "n2", "n3"), "nowhere"),
    ],
)
def test_where_an_existing_volume_goes(locality: str, count: int, placed: tuple[str, ...], expected: str) -> None:
    made = with_volume(*(on(name) for name in placed), locality=locality, replica_count=count)
    found = demand(made, bound(made))
    assert expected == placing(found)
    assert (frozenset(placed), frozenset(placed), frozenset(placed)) == (
        found.placed_nodes,
        found.usable_nodes,
        found.home_nodes,
    )
    assert count - len(placed) == found.copies


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (ONE_LOCAL, "local"),
        ({"dataLocality": "strict-local", "numberOfReplicas": "1"}, "local"),
        ({"dataLocality": "best-effort", "numberOfReplicas": "2"}, "roams"),
        ({"dataLocality": "best-effort"}, "roams"),  # three by default
        ({"numberOfReplicas": "1"}, "roams"),
        ({}, "roams"),
        ({**ONE_LOCAL, "numberOfReplicas": "0"}, "roams"),  # as if it were not given
        ({**ONE_LOCAL, "numberOfReplicas": "one"}, "roams"),
    ],
)
def test_where_a_new_volume_goes(parameters: dict[str, str], expected: str) -> None:
    assert expected == placing(demand(world(**parameters), claim()))


@pytest.mark.parametrize(
    ("engine", "settings", "count", "is_local"),
    [
        ("", {}, 3, False),
        ("", {"default_replica_count_v1": 1}, 1, False),
        ("", {"default_replica_count_v1": 1, "default_data_locality": "best-effort"}, 1, True),
        ("v1", {"default_replica_count_v2": 1, "default_data_locality": "best-effort"}, 3, False),
        ("v2", {"default_replica_count_v1": 1, "default_data_locality": "best-effort"}, 3, False),
        ("v2", {"default_replica_count_v2": 1, "default_data_locality": "best-effort"}, 1, True),
    ],
)
def test_longhorns_settings_fill_what_the_class_leaves_open(
    engine: str, settings: dict[str, Any], count: int, is_local: bool
) -> None:
    made = world(dataEngine=engine) if engine else world()
    found = demand(made, claim(), replace(SETTINGS, **settings))
    assert (count, is_local) == (found.copies, found.is_local)


@pytest.mark.parametrize(
    ("fields", "prefers"),
    [
        ({"replica_count": 2}, True),
        ({"replica_count": 1}, False),  # it needs it
        ({"replica_count": 2, "locality": "disabled"}, False),
        ({"replica_count": 2, "access_mode": "rwx"}, False),  # it follows the share manager
        ({"replica_count": 2, "access_mode": "rwx", "migratable": True}, True),
    ],
)
def test_best_effort_volumes_with_several_copies_prefer_the_pods_node(fields: dict[str, Any], prefers: bool) -> None:
    made = with_volume(**fields)
    assert prefers == demand(made, bound(made)).prefers_local


# Access modes


@pytest.mark.parametrize(
    ("shared", "parameters", "expected"),
    [
        (False, {}, "local"),
        (True, {}, "roams"),
        (True, {"migratable": "true"}, "local"),
        (True, {"migratable": "1"}, "local"),  # as Go reads booleans
        (True, {"migratable": "yes"}, "roams"),
        (False, {"migratable": "true"}, "local"),
        (False, {"share": "true"}, "roams"),
    ],
)
def test_new_shared_volumes_pin_nobody_unless_they_migrate(
    shared: bool, parameters: dict[str, str], expected: str
) -> None:
    assert expected == placing(demand(world(**ONE_LOCAL, **parameters), claim(is_shared=shared)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"access_mode": "rwx"}, "roams"),
        ({"access_mode": "rwx", "attached_to": "n1"}, "roams"),  # wherever the share manager runs
        ({"access_mode": "rwx", "migratable": True}, "local"),
        ({"access_mode": "rwop"}, "local"),
        ({"access_mode": "rwo", "migratable": True}, "local"),
    ],
)
def test_existing_shared_volumes_pin_nobody_unless_they_migrate(fields: dict[str, Any], expected: str) -> None:
    made = with_volume(**fields)
    assert expected == placing(demand(made, bound(made)))


def test_a_shared_volume_with_all_its_copies_asks_for_nothing() -> None:
    made = with_volume(on("n1"), access_mode="rwx")
    assert "nowhere" == placing(demand(made, bound(made)))


# Replicas


@pytest.mark.parametrize(
    ("fields", "is_usable", "is_home"),
    [
        ({}, True, True),
        ({"eviction_requested": True}, False, False),
        ({"deleting": True}, False, False),
        ({"active": False}, False, False),
        ({**FAILED}, False, True),  # brought back where it lies
        ({**FAILED, "rebuild_retry_count": 4}, False, True),
        ({**FAILED, "rebuild_retry_count": 5}, False, False),
        ({**FAILED, "eviction_requested": True}, False, False),
        ({**FAILED, "active": False}, False, False),
        ({**FAILED, "deleting": True}, False, False),
    ],
)
def test_no_room_is_asked_for_where_the_data_lies_and_stays(
    fields: dict[str, Any], is_usable: bool, is_home: bool
) -> None:
    made = with_volume(on("n1", **fields))
    found = demand(made, bound(made))
    assert (is_usable, is_home) == ("n1" in found.usable_nodes, "n1" in found.home_nodes)
    assert (0 if is_home else 1) == found.copies


def test_a_replica_without_a_disk_lies_nowhere() -> None:
    made = with_volume(on("n1", disk_uuid=""))
    found = demand(made, bound(made))
    assert (frozenset(), frozenset()) == (found.placed_nodes, found.home_nodes)


@pytest.mark.parametrize(
    ("settings", "is_home"),
    [
        (SETTINGS, True),
        (replace(SETTINGS, fast_rebuild_v2=False), False),
        (OLD, False),  # off by default then
        (replace(OLD, fast_rebuild_v2=True), True),
        (replace(SETTINGS, fast_rebuild_v1=False), True),
    ],
)
def test_failed_v2_replicas_come_back_where_longhorn_reuses_them(settings: LonghornSettings, is_home: bool) -> None:
    made = with_volume(on("n1", **FAILED), needs=DiskNeeds(data_engine="v2"))
    assert is_home == ("n1" in demand(made, bound(made), settings).home_nodes)


@pytest.mark.parametrize("state", [{}, FAILED, {**FAILED, "rebuild_retry_count": 5}, {"eviction_requested": True}])
def test_a_strict_local_volume_runs_next_to_its_replica_whatever_that_ones_state(state: dict[str, Any]) -> None:
    made = with_volume(on("n1", **state), locality="strict-local")
    found = demand(made, bound(made))
    assert (True, frozenset({"n1"})) == (found.is_pinned, found.home_nodes)


def test_a_replica_on_its_way_out_pins_nothing() -> None:
    made = with_volume(on("n1", deleting=True), locality="strict-local")
    assert "local" == placing(demand(made, bound(made)))


def test_copies_that_evict_or_are_lost_are_to_be_placed_again_and_failed_ones_that_come_back_are_not() -> None:
    made = with_volume(on("n1"), on("n2", eviction_requested=True), on("n3", **FAILED), replica_count=3)
    assert 1 == demand(made, bound(made)).copies
    made.put_replica("r-n3", on("n3", **FAILED, rebuild_retry_count=5))
    assert 2 == demand(made, bound(made)).copies


def test_inactive_twins_are_no_further_copies() -> None:
    twin = replica("twin", "vol", on="n1", active=False)
    made = with_volume(on("n1"), twin, replica_count=2)
    assert 1 == demand(made, bound(made)).copies


# Sharded volumes, and what makes no difference


@pytest.mark.parametrize("locality", ["disabled", "best-effort", "strict-local"])
def test_sharded_volumes_restrict_nothing(locality: str) -> None:
    made = with_volume(data_layout="sharded", locality=locality)
    assert "nowhere" == placing(demand(made, bound(made)))
    parameters = {"dataLayout.type": "sharded", "dataLocality": locality, "numberOfReplicas": "1"}
    assert "nowhere" == placing(demand(world(**parameters), claim()))


@pytest.mark.parametrize(
    "fields", [{"is_standby": True}, {"restore_required": True}, {"from_backup": "s3://x"}, {"frontend": ""}]
)
def test_standby_and_restoring_volumes_ask_as_others_do(fields: dict[str, Any]) -> None:
    made = with_volume(**fields)
    assert "local" == placing(demand(made, bound(made)))


def test_an_encrypted_volume_counts_with_its_plain_size() -> None:
    assert demand(world(encrypted="true"), claim()).size_bytes == GIB


# Releases that place best-effort volumes when they are made


@pytest.mark.parametrize(
    ("settings", "replicas", "expected"),
    [
        (OLD, (), "roams"),
        (OLD, (on("n1"),), "local"),  # what follows the engine later goes to its node
        (SETTINGS, (), "local"),
        (SETTINGS, (on("n1"),), "local"),
    ],
)
def test_old_releases_place_best_effort_volumes_anywhere(
    settings: LonghornSettings, replicas: tuple[Replica, ...], expected: str
) -> None:
    made = with_volume(*replicas)
    assert expected == placing(demand(made, bound(made), settings))


def test_old_releases_place_strict_local_volumes_at_attach_as_well() -> None:
    assert "roams" == placing(demand(world(**ONE_LOCAL), claim(), OLD))
    parameters = {"dataLocality": "strict-local", "numberOfReplicas": "1"}
    assert "local" == placing(demand(world(**parameters), claim(), OLD))
