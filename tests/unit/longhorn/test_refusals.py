"""Places that the API server refuses, and places that somebody else wrote first."""

from __future__ import annotations

import pytest

from tests.longhorn import paths
from tests.longhorn.options import GIB
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, Raw, attach_for_a_pod, grow, provision, state


def closed(*nodes: str) -> LonghornStage:
    """A stage where nothing gets a first place until `open_up`."""
    stage = LonghornStage(*nodes, refused=0.3, rebuild=1.0)
    stage.api.is_closed = True
    return stage


def open_up(stage: LonghornStage) -> None:
    stage.api.is_closed = False


def robustness(stage: LonghornStage, volume: str) -> str:
    return str(stage.get("volumes", volume)["status"]["robustness"])


def used(stage: LonghornStage, node: str, **spec: object) -> str:
    """A volume that a pod uses, with its first copy on that node and nothing refused yet."""
    is_closed, stage.api.is_closed = stage.api.is_closed, False
    _, name = provision(stage, **{"dataLocality": "disabled", **{key: str(value) for key, value in spec.items()}})
    stage.run(1)
    attach_for_a_pod(stage, name, node)
    stage.run(1)
    stage.api.is_closed = is_closed
    return name


def leave(stage: LonghornStage, volume: str, node: str) -> None:
    """The pod ends: kube-controller-manager deletes its attachment."""
    stage.api.delete(f"{paths.ATTACHMENTS}/{volume}-{node}")


def evict(stage: LonghornStage, volume: str) -> None:
    (replica,) = stage.replicas(volume)
    stage.change("replicas", replica["metadata"]["name"], lambda raw: raw["spec"].update(evictionRequested=True))
    stage.volumes.consider(volume)


# Refusals


def test_a_refused_place_is_tried_three_times_within_a_second_and_then_after_a_while() -> None:
    stage = LonghornStage("a", refused=0.3, retry_seconds=30.0)
    stage.api.is_closed = True
    stage.volume("v", node="a")
    stage.run(1)
    assert (3, []) == (stage.api.refusals, stage.timers.failures)
    stage.run(28)
    assert 3 == stage.api.refusals
    stage.run(3)
    assert 6 == stage.api.refusals


def test_a_refused_place_is_tried_again_at_the_next_event() -> None:
    stage = closed("a")
    stage.volume("v", node="a")
    stage.run(60)
    assert 3 == stage.api.refusals
    stage.node("b")
    stage.run(60)
    assert 6 <= stage.api.refusals <= 12  # a new node is more than one event
    open_up(stage)
    stage.change("volumes", "v", lambda raw: raw["spec"].update(staleReplicaTimeout=1))
    stage.run(1)
    assert ["a"] == stage.places("v")


def test_a_volume_without_a_copy_loses_nothing_by_a_refusal() -> None:
    stage = closed("a")
    _, name = provision(stage)
    stage.run(1)
    attach_for_a_pod(stage, name, "a")
    stage.run(60)
    assert ([""], "detached", "a") == (
        stage.places(name),
        state(stage, name),
        stage.get("volumes", name)["spec"]["nodeID"],
    )
    open_up(stage)
    stage.node("b")
    stage.run(1)
    assert (["a"], "attached", "healthy") == (stage.places(name), state(stage, name), robustness(stage, name))


def test_a_volume_whose_further_copy_is_refused_cannot_be_detached() -> None:
    stage = closed("a", "b")
    name = used(stage, "a")
    evict(stage, name)
    stage.run(1)
    leave(stage, name, "a")
    stage.run(60)
    assert "attached" == state(stage, name)
    assert stage.api.get_or_none(f"{paths.ATTACHMENTS}/{name}-a") is not None
    open_up(stage)
    stage.node("c")
    stage.run(1)
    assert "detached" == state(stage, name)
    assert stage.api.get_or_none(f"{paths.ATTACHMENTS}/{name}-a") is None


def test_one_that_follows_its_node_can_be_detached_as_nothing_of_it_is_placed_without_one() -> None:
    stage = closed("a", "b")
    name = used(stage, "a", dataLocality="best-effort")
    evict(stage, name)
    stage.run(1)
    leave(stage, name, "a")
    stage.run(0.1)
    assert stage.api.get_or_none(f"{paths.ATTACHMENTS}/{name}-a") is None


def test_a_copy_that_was_refused_ends_with_the_detachment() -> None:
    stage = closed("a", "b", "c")
    name = used(stage, "a", dataLocality="best-effort", numberOfReplicas=2)
    (lost,) = (entry for entry in stage.replicas(name) if entry["spec"]["nodeID"] != "a")
    stage.api.delete(paths.longhorn("replicas", NAMESPACE, lost["metadata"]["name"]))
    stage.run(60)
    assert ["", "a"] == stage.places(name)
    leave(stage, name, "a")
    stage.run(1)
    assert ["a"] == stage.places(name)


def test_it_does_not_show_that_it_has_grown() -> None:
    stage = closed("a", "b")
    name = used(stage, "a")
    evict(stage, name)
    stage.run(1)
    grow(stage, name, 20)
    stage.run(60)
    sizes = {entry["spec"]["volumeSize"] for entry in stage.replicas(name)}
    assert {str(10 * GIB)} == sizes - {str(20 * GIB)}
    open_up(stage)
    stage.node("c")
    stage.run(5)
    assert {str(20 * GIB)} == {entry["spec"]["volumeSize"] for entry in stage.replicas(name)}
    assert not stage.get("volumes", name)["status"]["expansionRequired"]


def test_nobody_knows_how_it_is_after_it_was_attached_away_from_its_data() -> None:
    stage = closed("a", "b")
    name = used(stage, "a", dataLocality="best-effort")
    leave(stage, name, "a")
    stage.run(1)
    attach_for_a_pod(stage, name, "b")
    stage.run(60)
    assert ("attached", "unknown", ["", "a"]) == (state(stage, name), robustness(stage, name), stage.places(name))
    open_up(stage)
    stage.node("c")
    stage.run(1)
    assert ("healthy", ["b"]) == (robustness(stage, name), stage.places(name))


def test_where_no_disk_has_room_nothing_is_written_and_nothing_freezes() -> None:
    stage = closed("a")
    stage.node("b", 5)
    name = used(stage, "a", dataLocality="best-effort")
    leave(stage, name, "a")
    stage.run(1)
    attach_for_a_pod(stage, name, "b")
    stage.run(60)
    assert (0, "healthy", ["", "a"]) == (stage.api.refusals, robustness(stage, name), stage.places(name))


# Places by somebody else


@pytest.mark.parametrize("after", [0.5, 1.0])
def test_a_place_that_was_stored_first_stands(after: float) -> None:
    """Before the choice, and between the choice and its write."""
    stage = LonghornStage("a", placement=0.7, write=1.0)
    _, name = provision(stage)
    stage.run()
    attach_for_a_pod(stage, name, "a")
    stage.run(after)
    stage.place_first(stage.replicas(name)[0], "a")
    stage.run(60)
    assert ["placed"] == [entry["spec"]["dataDirectoryName"] for entry in stage.replicas(name)]
    assert ("True", "attached", "healthy") == (stage.scheduled(name), state(stage, name), robustness(stage, name))
    assert 10 == stage.scheduled_gib("a")


def test_a_copy_that_waits_for_room_and_is_placed_by_somebody_else_is_used() -> None:
    stage = LonghornStage("a")
    stage.node("b", 1)
    stage.node("c", 1)
    stage.volume("v", locality="disabled", replicas=2, node="a")
    stage.run(1)
    assert (["", "a"], "False") == (stage.places("v"), stage.scheduled("v"))
    waiting = next(entry for entry in stage.replicas("v") if not entry["spec"]["nodeID"])
    stage.place_first(waiting, "b")
    stage.run(1)
    assert ("True", "healthy") == (stage.scheduled("v"), robustness(stage, "v"))


def affinity_of(stage: LonghornStage, name: str) -> Raw:
    found: Raw = stage.api.get(f"{paths.PVS}/{name}")["spec"].get("nodeAffinity") or {}
    return found


@pytest.mark.parametrize("is_placed", [False, True])
def test_the_pv_of_a_strict_local_volume_follows_its_node(is_placed: bool) -> None:
    stage = LonghornStage("a", "b")
    _, name = provision(stage, dataLocality="strict-local")
    stage.run(1)
    if is_placed:
        stage.place_first(stage.replicas(name)[0], "b")
        stage.run(1)
    assert {} == affinity_of(stage, name)
    attach_for_a_pod(stage, name, "b")
    stage.run(1)
    (term,) = affinity_of(stage, name)["required"]["nodeSelectorTerms"]
    assert ["b"] == term["matchExpressions"][0]["values"]


def test_a_refusal_delays_the_pvs_affinity() -> None:
    stage = closed("a")
    _, name = provision(stage, dataLocality="strict-local")
    stage.run(1)
    attach_for_a_pod(stage, name, "a")
    stage.run(10)
    assert {} == affinity_of(stage, name)
    open_up(stage)
    stage.node("b")
    stage.run(1)
    assert {} != affinity_of(stage, name)


def test_an_engine_is_seen_to_run_at_its_monitors_next_beat() -> None:
    stage = LonghornStage("a", start=1.0, beat=5.0)
    stage.volume("v", node="a")
    stage.run(5.9)
    assert "attached" != state(stage, "v")
    stage.run(0.2)
    assert "attached" == state(stage, "v")
