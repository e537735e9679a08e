"""Longhorn's objects: what is read, what is missing, and what is refused with the field's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from controller.model import parse
from controller.model.longhorn import (
    BackingImage,
    EngineImage,
    ImageNeeds,
    InstanceManager,
    TopologyTerm,
    repeated_disk_uuids,
)
from controller.model.times import utc_time
from tests.fakes import builders


def volume(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "v"}, "spec": spec, "status": status or {}}


def test_a_volume_has_everything_that_placement_asks_for() -> None:
    facts = parse.volume_facts(
        volume(
            {"lastDegradedAt": "2026-01-01T00:00:00Z", "cloneStatus": {"state": "initiated"}, "restoreRequired": True},
            replicaZoneSoftAntiAffinity="enabled",
            replicaDiskSoftAntiAffinity="disabled",
            replicaAutoBalance="best-effort",
            cloneMode="linked-clone",
            dataSource="snap://other/s1",
            backingImage="bi",
            image="e:1",
            frontend="ublk",
            fromBackup="s3://b",
            dataLayout={"type": "sharded"},
            migrationNodeID="n2",
            topologyRequirement=[{"zone": "z"}, {"region": "r"}, {}],
        )
    )
    softness = facts.soft_anti_affinity, facts.zone_soft_anti_affinity, facts.disk_soft_anti_affinity
    assert (("ignored", "enabled", "disabled"), "best-effort") == (softness, facts.auto_balance)
    assert ("linked-clone", "other", "initiated") == (facts.clone_mode, facts.source_volume, facts.clone_state)
    assert ("bi", "e:1", "ublk", "s3://b") == (facts.backing_image, facts.image, facts.frontend, facts.from_backup)
    found = facts.last_degraded_at, facts.data_layout, facts.migration_node_id, facts.restore_required
    assert ("2026-01-01T00:00:00Z", "sharded", "n2", True) == found
    assert (TopologyTerm("z", ""), TopologyTerm("", "r"), TopologyTerm()) == facts.needs.topology


def test_empty_texts_mean_the_defaults() -> None:
    enums = "dataLocality", "accessMode", "replicaSoftAntiAffinity", "replicaAutoBalance", "dataEngine", "cloneMode"
    empty: dict[str, Any] = dict.fromkeys(enums, "")
    facts = parse.volume_facts(volume(size="", **empty))
    assert parse.volume_facts(volume()) == facts
    found = facts.size_bytes, facts.needs.data_engine, facts.data_locality, facts.access_mode
    assert (0, "v1", "disabled", "rwo") == found
    assert ("ignored", "ignored", "") == (facts.soft_anti_affinity, facts.auto_balance, facts.clone_mode)


@pytest.mark.parametrize(
    ("conditions", "scheduled", "unknown"),
    [
        ([], None, False),
        ([{"type": "Restore", "status": "True"}], None, False),
        ([{"type": "Scheduled"}], None, True),
        ([{"type": "Scheduled", "status": "Unknown"}], None, True),
        ([{"type": "Scheduled", "status": "False"}], False, False),
        ([{"type": "Scheduled", "status": "True"}], True, False),
    ],
)
def test_the_condition_scheduled(conditions: list[Any], scheduled: bool | None, unknown: bool) -> None:
    facts = parse.volume_facts(volume({"conditions": conditions}))
    assert (scheduled, unknown) == (facts.scheduled, facts.scheduling_unknown)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("vol://a", "a"), ("snap://a/b", "a"), ("", ""), ("a", ""), ("http://a", ""), ("vol://", "")],
)
def test_the_volume_that_a_clone_is_made_of(source: str, expected: str) -> None:
    assert expected == parse.volume_facts(volume(dataSource=source)).source_volume


def test_selectors_are_kept_as_they_stand() -> None:
    facts = parse.volume_facts(volume(nodeSelector=[" ssd", ""], diskSelector=["a b"]))
    assert ((" ssd", ""), ("a b",)) == (facts.needs.node_selector, facts.needs.disk_selector)


def test_the_largest_sizes_are_read_exactly_and_a_negative_one_that_was_written_stays() -> None:
    assert -5 == parse.volume_facts(volume({"actualSize": -5})).actual_size_bytes
    assert 2**63 - 1 == parse.volume_facts(volume(size=str(2**63 - 1))).size_bytes
    assert 2**53 + 1 == parse.volume_facts(volume({"actualSize": 2**53 + 1})).actual_size_bytes


def test_the_other_kinds() -> None:
    files = {"u1": {}, "u2": {"evictionRequested": True}}
    image = {
        "metadata": {"name": "bi"},
        "spec": {"nodeSelector": ["a"], "diskSelector": ["b"], "dataEngine": "v2", "diskFileSpecMap": files},
        "status": {"realSize": 7, "size": 8, "diskFileStatusMap": {"u2": {}, "u3": {"state": "ready"}}},
    }
    found = parse.backing_image_facts(image)
    maps = (frozenset({"u1", "u2"}), frozenset({"u2", "u3"}))
    assert BackingImage("bi", ("a",), ("b",), "v2", 7, 8, maps[0], maps[1]) == found
    assert {"u1", "u2", "u3"} == found.copy_disk_uuids == set(filter(found.names_disk, ("u0", "u1", "u2", "u3")))
    assert ImageNeeds(("a",), ("b",), "bi") == found.needs
    engine = {
        "metadata": {"name": "ei"},
        "spec": {"image": "e:1"},
        "status": {"state": "deployed", "nodeDeploymentMap": {"n1": True, "n2": False}},
    }
    assert EngineImage("ei", "e:1", "deployed", frozenset({"n1"})) == parse.engine_image_facts(engine)
    manager = {
        "metadata": {"name": "im"},
        "spec": {"nodeID": "n1", "image": "im:1", "dataEngine": "v2", "type": "aio"},
        "status": {"currentState": "running"},
    }
    assert InstanceManager("im", "n1", "v2", "im:1", "running") == parse.instance_manager_facts(manager)
    assert InstanceManager("im", "", "v1", "", "") == parse.instance_manager_facts({"metadata": {"name": "im"}})


def test_a_disks_pressure_is_the_reason_of_its_condition() -> None:
    def pressed(status: str, reason: str) -> bool:
        conditions = [{"type": "Schedulable", "status": status, "reason": reason}]
        raw = {"spec": {"disks": {"d": {}}}, "status": {"diskStatus": {"d": {"conditions": conditions}}}}
        return parse.node_facts(raw).disks[0].is_under_pressure

    assert pressed("False", "DiskPressure")
    assert not pressed("False", "DiskNotReady")
    assert not pressed("True", "DiskPressure")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"status": "True"}, ""),
        ({"status": "False"}, "condition Ready is False"),
        ({"status": "False", "reason": "ManagerPodDown", "message": "it is away"},
         "condition Ready is False: ManagerPodDown: it is away"),
        ({"status": "Unknown", "message": "x" * 400}, f"condition Ready is Unknown: {'x' * 300}"),
        ({"type": "Other"}, "condition Ready is missing"),
    ],
)  # fmt: skip
def test_what_a_condition_says_that_is_not_true(condition: dict[str, str], said: str) -> None:
    """Of a node as of a disk."""
    conditions = [{"type": "Ready", **condition}]
    statuses = {"d": {"conditions": conditions}}
    raw = {"spec": {"disks": {"d": {}}}, "status": {"conditions": conditions, "diskStatus": statuses}}
    node = parse.node_facts(raw)
    assert (said, said) == (node.not_ready, node.disks[0].not_ready)
    assert {"condition Schedulable is missing"} == {node.not_schedulable, node.disks[0].not_schedulable}


def test_uuids_that_several_disks_of_a_node_have() -> None:
    one = builders.node("n1", builders.disk("a"), builders.disk("b"), builders.disk("c"))
    assert frozenset() == repeated_disk_uuids(one)
    disks = (*one.disks[:2], replace(one.disks[2], uuid="n1-a"))
    assert {"n1-a"} == repeated_disk_uuids(replace(one, disks=disks))
    assert frozenset() == repeated_disk_uuids(replace(one, disks=tuple(replace(one, uuid="") for one in disks)))


def test_a_disk_counts_only_in_spec_and_status_together() -> None:
    wanted = {"allowScheduling": True, "storageReserved": 3, "tags": ["ssd"]}
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "Unknown"}]
    figures = {"diskUUID": "u-a", "storageMaximum": 10, "scheduledReplica": {"r": 5}, "conditions": conditions}
    spec = {"disks": {"a": wanted, "spec-only": {}}}
    status = {"conditions": conditions, "diskStatus": {"a": figures, "status-only": {}}}
    facts = parse.node_facts({"metadata": {"name": "n1"}, "spec": spec, "status": status})
    (disk,) = facts.disks
    assert (True, False, True, False) == (facts.ready, facts.schedulable, disk.ready, disk.schedulable)
    assert ("a", "u-a", {"r": 5}) == (disk.name, disk.uuid, disk.scheduled_replicas)
    assert (3, 10, 0) == (disk.reserved_bytes, disk.maximum_bytes, disk.available_bytes)


def test_missing_parts_have_the_apis_defaults() -> None:
    bare = {"metadata": {"name": "x"}}
    volume = parse.volume_facts(bare)
    assert ("v1", "disabled", "rwo") == (volume.needs.data_engine, volume.data_locality, volume.access_mode)
    assert parse.replica_facts(bare).active
    assert () == parse.node_facts(bare).disks


def disk_status(**status: Any) -> dict[str, Any]:
    return {"spec": {"disks": {"d": {}}}, "status": {"diskStatus": {"d": status}}}


# What else may not stand in Volumes, Replicas and Nodes: tests/longhorn_rules/cases.yaml, `wrong fields`.
@pytest.mark.parametrize(
    ("read", "raw", "field"),
    [
        (parse.volume_facts, volume(accessMode="rwz"), "spec.accessMode"),
        (parse.volume_facts, volume(cloneMode="deep"), "spec.cloneMode"),
        (parse.volume_facts, volume(dataLayout={"type": "striped"}), "spec.dataLayout.type"),
        (parse.volume_facts, volume(migratable=""), "spec.migratable"),
        (parse.volume_facts, volume({"actualSize": 2**63}), "status.actualSize"),
        (parse.volume_facts, volume(topologyRequirement=[{}, "z"]), "spec.topologyRequirement[1]"),
        (parse.volume_facts, volume(topologyRequirement=[{"zone": 1}]), "spec.topologyRequirement[0].zone"),
        (parse.replica_facts, volume(failedAt="2026-13-01T00:00:00Z"), "spec.failedAt"),
        (parse.replica_facts, volume(healthyAt="2026-01-01 00:00:00"), "spec.healthyAt"),
        (parse.replica_facts, volume(volumeSize="-1"), "spec.volumeSize"),
        (parse.backing_image_facts, {"status": {"realSize": "7"}}, "status.realSize"),
        (parse.backing_image_facts, {"status": {"diskFileStatusMap": ["u1"]}}, "status.diskFileStatusMap"),
        (parse.engine_image_facts, {"status": {"nodeDeploymentMap": {"n": "true"}}}, "status.nodeDeploymentMap.n"),
        (parse.instance_manager_facts, {"spec": {"dataEngine": "v9"}}, "spec.dataEngine"),
        (parse.node_facts, disk_status(scheduledReplica={"r": "1"}), "status.diskStatus.d.scheduledReplica.r"),
        (parse.node_facts, disk_status(storageAvailable=-(2**63) - 1), "status.diskStatus.d.storageAvailable"),
        (parse.volume_facts, volume(size="99999999999999999999"), "spec.size"),
        (parse.volume_facts, volume({"actualSize": 1.5}), "status.actualSize"),
        (parse.volume_facts, volume(nodeSelector=["a", 1]), "spec.nodeSelector[1]"),
        (parse.replica_facts, volume(active="yes"), "spec.active"),
    ],
)
def test_a_wrong_value_is_named(read: Callable[[Any], object], raw: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        read(raw)
    assert field == caught.value.field


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00.000+01:00", "2026-01-01t12:00:00z"])
def test_times_are_read_with_their_zone(text: str) -> None:
    assert utc_time("2026-01-01T12:00:00Z") == utc_time(text)


@pytest.mark.parametrize("text", ["", "2026-01-01", "2026-01-01T12:00:00", "20260101T120000Z", "2026-02-30T12:00:00Z"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="RFC3339"):
        utc_time(text)


def test_a_volumes_frontend_is_longhorns_default_unless_it_says_otherwise() -> None:
    assert "blockdev" == parse.volume_facts(volume()).frontend
    assert "iscsi" == parse.volume_facts(volume(frontend="iscsi")).frontend
    for off in (volume(frontend=""), volume(disableFrontend=True), volume({"frontendDisabled": True})):
        assert "" == parse.volume_facts(off).frontend


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ([1], "status.conditions[0]"),
        ([{"type": "Scheduled", "status": True}], "status.conditions[0].status"),
        ([{"type": "Restore", "status": 5}, {"type": 5}], "status.conditions[1].type"),
        ({}, "status.conditions"),
    ],
)
def test_a_condition_that_is_none_is_named(conditions: Any, field: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        parse.volume_facts(volume({"conditions": conditions}))
    assert field == caught.value.field


def test_words_and_fields_of_a_newer_longhorn_are_read() -> None:
    conditions = [{"type": "Scheduled", "status": "Maybe", "since": 5}, {"status": "True"}]
    facts = parse.volume_facts(
        volume({"robustness": "splendid", "state": "new", "conditions": conditions, "more": [1]})
    )
    assert ("splendid", "new", None, True) == (facts.robustness, facts.state, facts.scheduled, facts.scheduling_unknown)
