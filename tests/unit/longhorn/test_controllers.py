"""Longhorn's controllers as the stand-in plays them, on a clock that the test moves: what comes when, and why."""

from __future__ import annotations

import pytest

from tests.longhorn import paths
from tests.longhorn.eviction import ALL, POLICY
from tests.longhorn.options import GIB, MEASURED
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, Raw, attach_for_a_pod, grow, own, provision, state


def overfull(stage: LonghornStage) -> float:
    """Two volumes of 60 GiB are attached to a node of 100, the second 50 ms after the first; what it ends with."""
    stage.node("a")
    for name in ("v1", "v2"):
        stage.volume(name, 60)
    stage.run()
    stage.attach("v1", "a")
    stage.run(0.05)
    stage.attach("v2", "a")
    stage.run(10)
    return stage.scheduled_gib("a")


# The race


def test_figures_follow_a_replica_at_once_and_its_object_follows_the_choice_late() -> None:
    """`syncVolume` writes replicas in its deferred block."""
    stage = LonghornStage("a", write=0.1, disk_figures=0.03)
    stage.volume("v")
    stage.attach("v", "a")
    stage.run(0.09)
    assert [""] == stage.places("v")
    stage.run(0.02)
    assert (["a"], 0) == (stage.places("v"), stage.scheduled_gib("a"))
    stage.run(0.03)
    assert 10 == stage.scheduled_gib("a")


def test_a_choice_that_is_not_written_yet_is_not_seen_by_the_next_volume() -> None:
    assert 120 == overfull(LonghornStage(write=0.1, disk_figures=0.01))
    assert 60 == overfull(LonghornStage(write=0.0, disk_figures=0.01))


@pytest.mark.parametrize(("locality", "replicas"), [("disabled", 1), ("best-effort", 2)])
def test_volumes_with_roaming_copies_are_written_later_than_local_ones(locality: str, replicas: int) -> None:
    stage = LonghornStage("a", "b", write=0.1, write_roaming=1.0)
    stage.volume("local", locality="strict-local", node="a")
    stage.volume("roaming", locality=locality, replicas=replicas, node="a")
    stage.run(0.2)
    assert (["a"], [""] * replicas) == (stage.places("local"), stage.places("roaming"))
    stage.run(1)
    assert "" not in stage.places("roaming")


def test_a_volumes_own_replicas_see_each_other_before_they_are_written() -> None:
    stage = LonghornStage("a", "b", "c", write_roaming=1.0)
    stage.volume("v", locality="disabled", replicas=3)
    stage.run(2)
    assert ["a", "b", "c"] == stage.places("v")


def test_a_choice_is_lost_and_made_once_more_when_its_replica_was_changed_meanwhile() -> None:
    stage = LonghornStage("a", write=1.0)
    stage.volume("v")
    stage.attach("v", "a")
    stage.run(0.5)
    (replica,) = stage.replicas("v")
    stage.change("replicas", replica["metadata"]["name"], lambda raw: raw["spec"].update(evictionRequested=False))
    stage.run(1)
    assert [""] == stage.places("v")
    stage.run(1)
    assert ["a"] == stage.places("v")


# Retries


def test_replicas_without_a_place_are_tried_again_at_every_event_of_a_node() -> None:
    """`volume_controller.go: enqueueNodeChange`."""
    stage = LonghornStage("a", placement=0.01, write=0.01, disk_figures=0.01)
    waiting = ("w1", "w2", "w3")
    stage.volume("large", 90)
    for name in waiting:
        stage.volume(name, 20)
    stage.run()
    stage.attach("large", "a")
    stage.run(1)
    for name in waiting:
        stage.attach(name, "a")
    stage.run(1)
    assert [[""]] * 3 == [stage.places(name) for name in waiting]
    stage.volumes.delete("large")
    stage.run(0.1)
    assert [["a"]] * 3 == [stage.places(name) for name in waiting]


# A new volume


def test_a_new_volume_has_all_its_replicas_at_once_wherever_they_will_fit() -> None:
    stage = LonghornStage("a", "b")
    stage.volume("v", replicas=3)
    assert ["", "", ""] == stage.places("v")
    stage.attach("v", "a")
    stage.run(1)
    assert ["", "a", "b"] == stage.places("v")


def test_a_new_best_effort_volume_comes_in_longhorns_order() -> None:
    """As measured: detached after 0.8 s, its PV after 1.2 s more, and a replica's place only once it is attached."""
    stage = LonghornStage("a", preset=MEASURED)
    claim, volume = provision(stage)
    stage.run(0.01)
    assert ("creating", [""], "True") == (state(stage, volume), stage.places(volume), stage.scheduled(volume))
    stage.run(0.7)
    assert "creating" == state(stage, volume)
    stage.run(0.2)
    assert "detached" == state(stage, volume)
    stage.run(1.0)
    assert stage.api.get_or_none(f"{paths.PVS}/{volume}") is None
    stage.run(0.2)
    assert claim["metadata"]["name"] == stage.api.get(f"{paths.PVS}/{volume}")["spec"]["claimRef"]["name"]

    attach_for_a_pod(stage, volume, "a")
    stage.run(0.9)
    assert "" == stage.get("volumes", volume)["spec"]["nodeID"]
    stage.run(0.11)
    assert ("a", [""]) == (stage.get("volumes", volume)["spec"]["nodeID"], stage.places(volume))
    stage.run(0.14)
    assert (["a"], "detached") == (stage.places(volume), state(stage, volume))
    stage.run(6.1)
    assert "detached" == state(stage, volume)
    stage.run(0.1)
    assert ("attached", "a") == (state(stage, volume), stage.get("volumes", volume)["status"]["ownerID"])


def test_no_attachment_comes_of_a_frontend_without_a_device() -> None:
    stage = LonghornStage("a")
    _, volume = provision(stage, frontend="iscsi")
    stage.run(1)
    assert "iscsi" == stage.get("volumes", volume)["spec"]["frontend"]
    attach_for_a_pod(stage, volume, "a")
    stage.run(60)
    assert "" == stage.get("volumes", volume)["spec"]["nodeID"]


@pytest.mark.parametrize(
    "parameters",
    [{"dataLocality": "best_effort"}, {"dataLocality": "strict-local", "numberOfReplicas": "2"}, {"frontend": "scsi"}],
)
def test_a_class_that_longhorn_refuses_never_gets_a_volume(parameters: dict[str, str]) -> None:
    stage = LonghornStage("a")
    _, name = provision(stage, **parameters)
    stage.run(60)
    assert stage.api.get_or_none(paths.longhorn("volumes", NAMESPACE, name)) is None


# Eviction


@pytest.mark.parametrize("is_used", [True, False])
def test_a_copy_that_is_to_leave_goes_once_another_is_healthy_also_of_a_volume_that_nobody_uses(is_used: bool) -> None:
    stage = LonghornStage("a", rebuild=5.0)
    stage.volume("v", locality="disabled", node="a" if is_used else "")
    stage.run(1)
    stage.node("b")
    stage.change("nodes", "a", lambda raw: raw["spec"].update(evictionRequested=True, allowScheduling=False))
    stage.run(1)
    assert ["a", "b"] == stage.places("v")
    stage.run(5)
    assert ["b"] == stage.places("v")
    assert ("a" if is_used else "") == stage.get("volumes", "v")["spec"]["nodeID"]


@pytest.mark.parametrize(("policy", "expected"), [("block-if-contains-last-replica", ["a"]), (ALL, ["b"])])
def test_copies_leave_a_cordoned_node_where_that_is_the_policy_and_none_goes_there(
    policy: str, expected: list[str]
) -> None:
    stage = LonghornStage("a")
    stage.api.create(paths.longhorn("settings", NAMESPACE), {"metadata": {"name": POLICY}, "value": policy})
    stage.volume("v", locality="disabled", node="a")
    stage.run(1)
    stage.node("b")
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    stage.api.create(paths.NODES, {"metadata": {"name": "a"}, "spec": {"unschedulable": True}, "status": status})
    stage.run(5)
    stage.volume("later", locality="disabled")
    stage.run(1)
    assert (expected, ["b"]) == (stage.places("v"), stage.places("later"))


# The condition `Scheduled`


@pytest.mark.parametrize("locality", ["best-effort", "strict-local"])
def test_a_local_volume_counts_as_scheduled_before_anything_is_placed(locality: str) -> None:
    """`reconcileVolumeCondition` passes over local replicas that wait for a node."""
    stage = LonghornStage("a")
    stage.volume("v", locality=locality)
    assert ([""], "True") == (stage.places("v"), stage.scheduled("v"))


def test_a_volume_stays_unscheduled_while_it_has_a_replica_too_many() -> None:
    stage = LonghornStage("a", rebuild=5.0)
    stage.node("b", 5)
    stage.volume("v", node="a")
    stage.run(1)
    stage.attach("v", "")
    stage.run()
    stage.attach("v", "b")
    stage.run(1)
    assert (["", "a"], "False") == (stage.places("v"), stage.scheduled("v"))
    stage.change("nodes", "b", lambda raw: disk_of(raw).update(storageMaximum=100 * GIB), status=True)
    stage.change("nodes", "b", lambda raw: disk_of(raw).update(storageAvailable=100 * GIB), status=True)
    stage.run(1)
    assert (["a", "b"], "False") == (stage.places("v"), stage.scheduled("v"))
    stage.run(5)
    assert (["b"], "True") == (stage.places("v"), stage.scheduled("v"))


def disk_of(raw: Raw) -> Raw:
    found: Raw = raw["status"]["diskStatus"]["disk1"]
    return found


# Displaced volumes


def test_a_displaced_best_effort_volume_takes_the_place_of_the_next_one() -> None:
    """`replica_scheduler.go` restricts the candidates to the volume's node only where there are any."""
    stage = LonghornStage()
    for name in ("a", "b", "c"):
        stage.node(name, 5 if name == "a" else 20)
    stage.volume("v1", 10)
    stage.volume("v2", 15)
    stage.run()
    stage.change("nodes", "c", lambda raw: raw["spec"].update(allowScheduling=False))
    stage.run()
    stage.attach("v1", "a")
    stage.run(1)
    stage.change("nodes", "c", lambda raw: raw["spec"].update(allowScheduling=True))
    stage.run()
    stage.attach("v2", "b")
    stage.run(1)
    assert (["", "b"], ["", "c"]) == (stage.places("v1"), stage.places("v2"))


# Growth


def test_growth_places_a_volume_on_its_owners_node_whatever_node_a_pod_was_promised() -> None:
    """`volume_expansion_controller.go: reconcile` attaches it there."""
    stage = LonghornStage("a", "b", own_attach=0.8, write=0.1, start=0.1, expand=0.2, rebuild=1.0)
    stage.volume("v")
    own(stage, "v", "b")
    stage.run()
    grow(stage, "v", 20)
    stage.run(0.1)
    attach_for_a_pod(stage, "v", "a")
    stage.run(0.75)
    assert ("b", [""]) == (stage.get("volumes", "v")["spec"]["nodeID"], stage.places("v"))
    stage.run(0.1)
    assert ["b"] == stage.places("v")
    assert stage.get("volumes", "v")["spec"]["disableFrontend"]
    stage.run(1.3)  # grown, and handed to the pod, beside which a second copy is rebuilt
    assert ("a", ["a", "b"]) == (stage.get("volumes", "v")["spec"]["nodeID"], stage.places("v"))
    assert not stage.get("volumes", "v")["status"]["expansionRequired"]
    stage.run(2)
    assert ["a"] == stage.places("v")


def test_an_attached_volume_grows_where_it_is() -> None:
    stage = LonghornStage("a", "b")
    stage.volume("v", node="a")
    own(stage, "v", "b")
    stage.run(1)
    grow(stage, "v", 20)
    stage.run(1)
    volume = stage.get("volumes", "v")
    assert ("a", False, 20) == (
        volume["spec"]["nodeID"],
        volume["status"]["expansionRequired"],
        stage.scheduled_gib("a"),
    )


def test_a_restored_volume_is_as_large_as_its_backup_and_grows_once_it_is_filled() -> None:
    """`ControllerExpandVolume` is tried again until the volume's state lets it grow."""
    stage = LonghornStage("a", restore=5.0)
    url = "s3://bucket/?backup=backup-1&volume=vol-1"
    backup: Raw = {"metadata": {"name": "backup-1"}, "status": {"url": url, "volumeSize": str(20 * GIB)}}
    stage.api.create(paths.longhorn("backups", NAMESPACE), backup)
    _, name = provision(stage, fromBackup=url)
    stage.run(1)
    claim = paths.claim("ns", "data")
    stage.api.patch(claim, {"spec": {"volumeName": name}, "status": {"capacity": {"storage": "20Gi"}}})
    stage.api.patch(claim, {"spec": {"resources": {"requests": {"storage": "30Gi"}}}})
    stage.run(3)
    assert str(20 * GIB) == stage.get("volumes", name)["spec"]["size"]
    assert stage.get("volumes", name)["status"]["restoreRequired"]
    stage.run(5)
    assert str(30 * GIB) == stage.get("volumes", name)["spec"]["size"]


# Deletion


def test_a_deleted_replica_counts_until_its_finalizer_goes_and_so_does_its_volume() -> None:
    stage = LonghornStage("a", finalize=5.0)
    stage.volume("v", node="a")
    stage.run(1)
    stage.volumes.delete("v")
    stage.run(4)
    (replica,) = stage.replicas("v")
    assert (True, 10) == ("deletionTimestamp" in replica["metadata"], stage.scheduled_gib("a"))
    assert "deletionTimestamp" in stage.get("volumes", "v")["metadata"]
    stage.run(2)
    assert ([], 0) == (stage.replicas("v"), stage.scheduled_gib("a"))
    assert stage.api.get_or_none(paths.longhorn("volumes", NAMESPACE, "v")) is None


# Knobs
