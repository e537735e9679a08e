"""Copies that a volume lost or lacks, and what Longhorn does about them."""

from __future__ import annotations

import pytest

from tests.longhorn import paths
from tests.longhorn.options import GIB, MEASURED
from tests.longhorn_rules.objects import Raw
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, attach_for_a_pod, grow, own, provision


def use(stage: LonghornStage, name: str, node: str) -> None:
    stage.attach(name, node)
    stage.run(1)


def leave(stage: LonghornStage, name: str) -> None:
    stage.change("volumes", name, lambda raw: raw["spec"].update(nodeID=""))
    stage.change("volumes", name, lambda raw: raw["status"].update(state="detached"), status=True)
    stage.run(1)


def retries(stage: LonghornStage, volume: str) -> list[int]:
    return sorted(int(entry["spec"]["rebuildRetryCount"]) for entry in stage.replicas(volume))


def lose(stage: LonghornStage, volume: str, node: str) -> None:
    (lost,) = (entry for entry in stage.replicas(volume) if entry["spec"]["nodeID"] == node)
    stage.change("replicas", lost["metadata"]["name"], lambda raw: raw["spec"].update(failedAt="2026-01-01T00:00:00Z"))
    stage.volumes.consider(volume)


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
def test_a_copy_without_a_place_ends_at_a_detach_and_comes_again_as_a_rebuild(locality: str) -> None:
    stage = LonghornStage("a")
    stage.volume("v", replicas=2, locality=locality)
    stage.run(1)
    use(stage, "v", "a")
    assert (["", "a"], [0, 0]) == (stage.places("v"), retries(stage, "v"))
    leave(stage, "v")
    assert ["a"] == stage.places("v")
    stage.node("b")
    use(stage, "v", "a")
    stage.run(1)
    assert (["a", "b"], [0, 5]) == (stage.places("v"), retries(stage, "v"))


def test_a_volume_that_never_had_data_keeps_its_copies_at_a_detach() -> None:
    stage = LonghornStage()
    stage.node("a", 1)
    stage.volume("v", gib=1)
    stage.run()
    stage.change("nodes", "a", lambda raw: raw["spec"].update(allowScheduling=False))
    use(stage, "v", "a")
    leave(stage, "v")
    assert ([""], [""]) == (stage.places("v"), [entry["spec"]["failedAt"] for entry in stage.replicas("v")])


def test_a_failed_copy_comes_back_where_it_lies() -> None:
    stage = LonghornStage("a", "b", "c")
    stage.volume("v", replicas=2, locality="disabled")
    stage.run(1)
    use(stage, "v", stage.places("v")[0])
    before = stage.places("v")
    lose(stage, "v", before[1])
    stage.run(1)
    assert (before, [0, 1]) == (stage.places("v"), retries(stage, "v"))
    assert [True, True] == [bool(entry["spec"]["healthyAt"]) for entry in stage.replicas("v")]


def test_one_that_cannot_come_back_is_replaced_only_after_the_interval() -> None:
    stage = LonghornStage("a", "b", "c", retry_seconds=30.0)
    stage.volume("v", replicas=2, locality="disabled")
    stage.run(1)
    first, second = stage.places("v")
    use(stage, "v", first)
    stage.change("nodes", second, lambda raw: raw["spec"].update(allowScheduling=False))
    lose(stage, "v", second)
    stage.run(60)
    assert [first, second] == stage.places("v")
    long_ago = "2026-01-01T00:00:00Z"
    stage.change("volumes", "v", lambda raw: raw["status"].update(lastDegradedAt=long_ago), status=True)
    stage.run(60)
    assert ["a", "b", "c"] == stage.places("v")


def test_a_deep_clone_has_one_copy_until_it_is_filled() -> None:
    stage = LonghornStage("a", "b", restore=5.0)
    spec: Raw = {"size": str(10 * GIB), "numberOfReplicas": 2, "dataLocality": "disabled", "dataSource": "vol://other"}
    stage.volumes.create("v", spec)
    stage.volumes.set_state("v", "detached")
    stage.run(4)
    assert 1 == len(stage.places("v"))
    stage.run(3)
    use(stage, "v", "a")
    stage.run(1)
    assert (["a", "b"], [0, 5]) == (stage.places("v"), retries(stage, "v"))


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_restore_is_attached_to_its_owner_and_placed_there_unless_it_is_placed_already(is_placed: bool) -> None:
    stage = LonghornStage("a", "b", own_attach=1.0, restore=5.0)
    _, name = provision(stage, fromBackup="s3://bucket/?backup=one")
    stage.run()
    own(stage, name, "b")
    if is_placed:
        stage.place_first(stage.replicas(name)[0], "a")
    stage.run(0.5)
    attach_for_a_pod(stage, name, "a")
    stage.run(2)
    assert ("b", ["a" if is_placed else "b"]) == (stage.get("volumes", name)["spec"]["nodeID"], stage.places(name))
    stage.run(5)
    assert "a" == stage.get("volumes", name)["spec"]["nodeID"]


def test_a_restored_volumes_pv_has_the_size_that_was_asked_for() -> None:
    stage = LonghornStage("a")
    backup: Raw = {"metadata": {"name": "one"}, "status": {"volumeSize": str(5 * GIB)}}
    stage.api.create(paths.longhorn("backups", NAMESPACE), backup)
    _, name = provision(stage, fromBackup="s3://bucket/?backup=one")
    stage.run(1)
    capacity = stage.api.get(f"{paths.PVS}/{name}")["spec"]["capacity"]["storage"]
    assert (str(5 * GIB), str(10 * GIB)) == (stage.get("volumes", name)["spec"]["size"], capacity)


def test_growth_of_an_unplaced_volume_falls_back_to_any_node_where_its_owners_has_no_room() -> None:
    stage = LonghornStage("a")
    stage.node("b", 5)
    stage.volume("v")
    own(stage, "v", "b")
    stage.run()
    grow(stage, "v", 20)
    stage.run(1)
    assert ["a"] == stage.places("v")


# From the Replica's CREATE to its place, as measured


@pytest.mark.parametrize(("locality", "least"), [("best-effort", 2.1), ("disabled", 0.044)])
def test_with_measured_delays_there_is_time_to_place_first(locality: str, least: float) -> None:
    stage = LonghornStage("a", preset=MEASURED)
    _, name = provision(stage, dataLocality=locality)
    stage.run(0.01)
    is_attached = False
    while stage.places(name) == [""]:
        if not is_attached and stage.api.get_or_none(f"{paths.PVS}/{name}") is not None:
            attach_for_a_pod(stage, name, "a")
            is_attached = True
        stage.run(0.001)
    assert stage.timers.time >= least


# Who places what
