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
from controller.model.workload import PersistentVolume, Pod, PodVolume
from controller.rules.demand import Missing, demand_of_claim
from tests.fakes import builders
from tests.fakes.builders import DRIVER, EPOCH, GIB, ONE_LOCAL, replica, storage_class, volume
from tests.unit.rules.asking import (
    FAILED,
    OLD,
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
        made.put_class(name, storage_class(name, parameters, is_default=True, created=created))
    assert demand(made, claim(class_name=None)).is_local


def test_what_is_not_in_the_stores_is_missing_not_nothing() -> None:
    made = World()
    assert Missing("class", "", "sc") == demand_of_claim(claim(), made, SETTINGS)
    assert Missing("pv", "", "pv") == demand_of_claim(claim(volume_name="pv"), made, SETTINGS)
    assert Missing("volume", "", "vol") == demand_of_claim(bound(made), made, SETTINGS)


def test_a_volume_is_found_by_its_pvs_handle_whatever_its_name() -> None:
    made = with_volume()
    made.put_volume("by-hand", volume("by-hand", 7))
    found = demand(made, bound(made, handle="by-hand"))
    assert ("by-hand", 7 * GIB) == (found.volume, found.size_bytes)


def test_a_volume_that_is_made_already_counts_before_its_claim_is_bound() -> None:
    made = world(**ONE_LOCAL)
    assert not demand(made, claim()).exists
    made.put_volume("pvc-u", volume("pvc-u", 9, locality="disabled"))
    found = demand(made, claim())
    assert (True, 9 * GIB, "roams") == (found.exists, found.size_bytes, placing(found))


# Pods


def pod(*volumes: PodVolume) -> Pod:
    return builders.pod("pod", uid="p", volumes=volumes)


def test_an_ephemeral_volumes_claim_counts_if_the_pod_owns_it_and_another_pods_is_still_to_be_made() -> None:
    made = world(**ONE_LOCAL)
    entry = pod(PodVolume("scratch", "pod-scratch", is_ephemeral=True))
    assert ([], [Missing("claim", "ns", "pod-scratch")]) == made.demands_of(entry)
    for owner, count in (("p", 1), ("other", 0), ("", 0)):
        made.put_claim("ns/pod-scratch", claim(name="pod-scratch", owner_pod_uid=owner))
        demands, missing = made.demands_of(entry)
        assert (count, 1 - count) == (len(demands), len(missing))


def test_a_claim_that_the_pod_names_twice_counts_once_as_does_one_volume_behind_two_claims() -> None:
    made = with_volume()
    for uid in ("u1", "u2"):
        made.put_claim(f"ns/{uid}", claim(uid=uid, name=uid, volume_name=f"pv-{uid}"))
        made.put_pv(f"pv-{uid}", PersistentVolume(f"pv-{uid}", DRIVER, "vol", uid, f"ns/{uid}", GIB, EPOCH))
    made.put_claim("ns/c", claim())
    for names, expected in ((("c", "c"), ["pvc-u"]), (("u1", "u2"), ["vol"])):
        demands, _ = made.demands_of(pod(*(PodVolume(f"v{index}", name) for index, name in enumerate(names))))
        assert expected == [entry.volume for entry in demands]


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
    assert [set(placed)] * 3 == [found.placed_nodes, found.usable_nodes, found.home_nodes]
    assert count - len(placed) == found.copies


STRICT = {**ONE_LOCAL, "dataLocality": "strict-local"}


@pytest.mark.parametrize(
    ("parameters", "shared", "settings", "expected"),
    [
        (ONE_LOCAL, False, SETTINGS, "local"),
        (STRICT, False, SETTINGS, "local"),
        ({**ONE_LOCAL, "numberOfReplicas": "2"}, False, SETTINGS, "roams"),
        ({"dataLocality": "best-effort"}, False, SETTINGS, "roams"),  # three by default
        ({"numberOfReplicas": "1"}, False, SETTINGS, "roams"),
        ({}, False, SETTINGS, "roams"),
        ({**ONE_LOCAL, "numberOfReplicas": "0"}, False, SETTINGS, "roams"),  # as if it were not given
        ({**ONE_LOCAL, "numberOfReplicas": "one"}, False, SETTINGS, "roams"),
        # Shared volumes pin nobody unless they migrate
        (ONE_LOCAL, True, SETTINGS, "roams"),
        ({**ONE_LOCAL, "migratable": "true"}, True, SETTINGS, "local"),
        ({**ONE_LOCAL, "migratable": "1"}, True, SETTINGS, "local"),  # as Go reads booleans
        ({**ONE_LOCAL, "migratable": "yes"}, True, SETTINGS, "roams"),
        ({**ONE_LOCAL, "migratable": "true"}, False, SETTINGS, "local"),
        ({**ONE_LOCAL, "share": "true"}, False, SETTINGS, "roams"),
        # Releases that place best-effort volumes when they are made
        (ONE_LOCAL, False, OLD, "roams"),
        (STRICT, False, OLD, "local"),
        # Sharded volumes restrict nothing
        ({**ONE_LOCAL, "dataLayout.type": "sharded"}, False, SETTINGS, "nowhere"),
        ({**STRICT, "dataLayout.type": "sharded"}, False, SETTINGS, "nowhere"),
        ({"numberOfReplicas": "1", "dataLayout.type": "sharded"}, False, SETTINGS, "nowhere"),
    ],
)
def test_where_a_new_volume_goes(
    parameters: dict[str, str], shared: bool, settings: LonghornSettings, expected: str
) -> None:
    assert expected == placing(demand(world(**parameters), claim(is_shared=shared), settings))


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


@pytest.mark.parametrize(
    ("fields", "replicas", "settings", "expected"),
    [
        # Shared volumes pin nobody unless they migrate
        ({"access_mode": "rwx"}, (), SETTINGS, "roams"),
        ({"access_mode": "rwx", "attached_to": "n1"}, (), SETTINGS, "roams"),  # wherever the share manager runs
        ({"access_mode": "rwx"}, (on("n1"),), SETTINGS, "nowhere"),
        ({"access_mode": "rwx", "migratable": True}, (), SETTINGS, "local"),
        ({"access_mode": "rwop"}, (), SETTINGS, "local"),
        ({"access_mode": "rwo", "migratable": True}, (), SETTINGS, "local"),
        # Sharded volumes restrict nothing
        ({"data_layout": "sharded", "locality": "disabled"}, (), SETTINGS, "nowhere"),
        ({"data_layout": "sharded", "locality": "best-effort"}, (), SETTINGS, "nowhere"),
        ({"data_layout": "sharded", "locality": "strict-local"}, (), SETTINGS, "nowhere"),
        # Standby and restoring volumes ask as others do
        ({"is_standby": True}, (), SETTINGS, "local"),
        ({"restore_required": True}, (), SETTINGS, "local"),
        ({"from_backup": "s3://x"}, (), SETTINGS, "local"),
        ({"frontend": ""}, (), SETTINGS, "local"),
        # A replica on its way out pins nothing
        ({"locality": "strict-local"}, (on("n1", deleting=True),), SETTINGS, "local"),
        # Releases that place best-effort volumes when they are made
        ({}, (), OLD, "roams"),
        ({}, (on("n1"),), OLD, "local"),  # what follows the engine later goes to its node
    ],
)
def test_which_existing_volumes_go_elsewhere_than_their_locality_says(
    fields: dict[str, Any], replicas: tuple[Replica, ...], settings: LonghornSettings, expected: str
) -> None:
    made = with_volume(*replicas, **fields)
    assert expected == placing(demand(made, bound(made), settings))


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
    ("engine", "settings", "is_home"),
    [
        ("v2", SETTINGS, True),
        ("v2", replace(SETTINGS, fast_rebuild_v2=False), False),
        ("v2", OLD, False),  # off by default then
        ("v2", replace(OLD, fast_rebuild_v2=True), True),
        ("v2", replace(SETTINGS, fast_rebuild_v1=False), True),
        ("v1", OLD, True),
    ],
)
def test_failed_replicas_come_back_where_longhorn_reuses_those_of_their_engine(
    engine: str, settings: LonghornSettings, is_home: bool
) -> None:
    made = with_volume(on("n1", **FAILED), needs=DiskNeeds(data_engine=engine))
    assert is_home == ("n1" in demand(made, bound(made), settings).home_nodes)


@pytest.mark.parametrize("state", [{}, FAILED, {**FAILED, "rebuild_retry_count": 5}, {"eviction_requested": True}])
def test_a_strict_local_volume_runs_next_to_its_replica_whatever_that_ones_state(state: dict[str, Any]) -> None:
    made = with_volume(on("n1", **state), locality="strict-local")
    found = demand(made, bound(made))
    assert (True, frozenset({"n1"})) == (found.is_pinned, found.home_nodes)


@pytest.mark.parametrize(
    ("count", "replicas", "copies"),
    [
        pytest.param(
            3, (on("n1"), on("n2", eviction_requested=True), on("n3", **FAILED)), 1, id="a failed one comes back"
        ),
        pytest.param(
            3,
            (on("n1"), on("n2", eviction_requested=True), on("n3", **FAILED, rebuild_retry_count=5)),
            2,
            id="an evicting one and a lost one do not",
        ),
        pytest.param(2, (on("n1"), replica("twin", "vol", on="n1", active=False)), 1, id="a twin is no further copy"),
    ],
)
def test_how_many_copies_are_to_be_placed(count: int, replicas: tuple[Replica, ...], copies: int) -> None:
    made = with_volume(*replicas, replica_count=count)
    assert copies == demand(made, bound(made)).copies


def test_an_encrypted_volume_counts_with_its_plain_size() -> None:
    assert demand(world(encrypted="true"), claim()).size_bytes == GIB
