"""On which nodes a pod's volumes fit: every rule that makes a node unsuitable or full, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.choose.verdict import Verdict
from controller.allocator.world.world import World
from controller.model.longhorn import (
    BackingImage,
    DiskNeeds,
    LonghornSettings,
    SpacePolicy,
    TopologyTerm,
)
from controller.model.workload import KubeNode
from controller.plan.fit import GivenPromise, NodeFit, fit_pod
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import EXT_LIMIT_BYTES
from controller.rules.reasons import Reason
from tests.fakes.builders import node, replica, volume
from tests.fakes.rooms import OPEN, local, roaming, room, world_of


def fit(world: World, *demands: VolumeDemand, promises: Sequence[GivenPromise] = ()) -> NodeFit:
    return fit_pod(world, demands, ["n1"], promises)["n1"]


def reasons(found: NodeFit) -> set[tuple[str, Reason]]:
    return {(entry.disk, entry.rejection.reason) for entry in found.refusals}


# Verdicts and their boundaries


def test_a_volume_fits_to_the_last_byte_and_not_beyond() -> None:
    assert Verdict.SURE is fit(world_of(room("d1", 50)), local(50)).verdict
    found = fit(world_of(room("d1", 49)), local(50))

    assert Verdict.FULL is found.verdict
    assert (
        "50 bytes + 51 bytes scheduled exceeds the disk's limit of 100 bytes by 1 byte"
        in found.refusals[-1].rejection.message
    )


def test_volumes_that_fit_one_by_one_but_not_together_are_full() -> None:
    found = fit(world_of(room("d1", 50), room("d2", 30)), local(40, "a"), local(40, "b"))
    assert (Verdict.FULL, {"n1"}) == (found.verdict, {entry.node for entry in found.refusals})
    assert any("cannot take these together" in entry.rejection.message for entry in found.refusals)

    disks = world_of(room("d1", 100), room("d2", 60))
    assert {"a": "d1"} == fit(disks, local(70, "a"), roaming(60, "b")).placement
    found = fit(disks, local(70, "a"), roaming(61, "b"))
    assert Verdict.FULL is found.verdict
    text = "n1: the node's disks cannot take these together: ns/a 70 bytes, ns/b 61 bytes"
    assert text == found.refusals[0].rejection.message


def test_promises_make_contended_what_is_not_full_without_them() -> None:
    world = world_of(room("d1", 50), room("d2", 50))
    promises = [GivenPromise("n1", name, size) for name, size in (("x", 10), ("y", 40), ("z", 11))]

    assert Verdict.SURE is fit(world, local(40), promises=promises[:2]).verdict  # both are put on one disk
    found = fit(world, local(40), promises=promises)
    assert (Verdict.CONTENDED, {("", Reason.CONTENDED)}) == (found.verdict, reasons(found))
    assert "n1: 61 bytes are promised on this node" == found.refusals[0].rejection.message
    assert {} == found.placement
    assert Verdict.FULL is fit(world, local(51), promises=promises).verdict


def test_a_replica_without_a_disk_is_put_where_the_leader_would_place_it() -> None:
    """Not on the disk that a promise takes. Copies of the pod's own volumes, and those that nobody places yet, are not
    in its way."""
    world = world_of(room("d1", 60), room("d2", 50))
    for name, locality, size in (("x", "disabled", 50), ("waits", "best-effort", 60), ("v", "disabled", 60)):
        world.put_volume(name, replace(volume(name, locality=locality), size_bytes=size))
        world.put_replica(f"{name}-r", replica(f"{name}-r", name, size))

    assert {"v": "d2"} == fit(world, local(50)).placement
    assert Verdict.CONTENDED is fit(world, local(60)).verdict
    found = fit(world, local(50), promises=[GivenPromise("n1", "other", 60)])
    assert Verdict.CONTENDED is found.verdict
    assert {"v": "d2"} == fit(world, local(50), promises=[GivenPromise("n1", "x", 60)]).placement


@pytest.mark.parametrize(
    "promises",
    [
        pytest.param([GivenPromise("n1", "v", 50)], id="its own"),
        pytest.param([GivenPromise("n2", "x", 70)], id="another node's"),
        pytest.param([GivenPromise("n1", "x", 20), GivenPromise("n1", "x", 10)], id="two of one volume count once"),
    ],
)
def test_promises_that_do_not_stand_in_a_pods_way(promises: list[GivenPromise]) -> None:
    assert Verdict.SURE is fit(world_of(room("d1", 70)), local(50), promises=promises).verdict


def test_too_little_available_space_is_full_and_copied_bytes_count() -> None:
    settings = LonghornSettings(space=SpacePolicy(minimal_available_pct=25))
    world = world_of(room("d1", 100, available_bytes=36), settings=settings)

    assert Verdict.SURE is fit(world, local(50, required_bytes=10)).verdict
    found = fit(world, local(50, required_bytes=11))
    assert (Verdict.FULL, {("", Reason.TOO_FULL), ("d1", Reason.TOO_FULL)}) == (found.verdict, reasons(found))
    empty = fit(world_of(room("d1", 100, available_bytes=0)), local(1))
    assert (Verdict.FULL, Verdict.FULL) == (empty.verdict, fit(world_of(room("d1", 0, size=0)), local(1)).verdict)


# Rules


@pytest.mark.parametrize(
    ("fields", "asks", "reason"),
    [
        ({"ready": False}, {}, Reason.NODE_NOT_READY),
        ({}, {"needs": DiskNeeds(node_selector=("ssd",))}, Reason.NODE_TAGS),
        ({}, {"needs": DiskNeeds(disk_selector=("ssd",))}, Reason.DISK_TAGS),
        ({}, {"needs": DiskNeeds(data_engine="v2")}, Reason.DISK_TYPE),
        ({"zone": "a"}, {"needs": DiskNeeds(topology=(TopologyTerm("b"),))}, Reason.TOPOLOGY),
        ({}, {"clone_disks": frozenset({"other"})}, Reason.LINKED_CLONE),
        ({}, {"size_bytes": EXT_LIMIT_BYTES}, Reason.INCOMPATIBLE_SIZE),
    ],
)
def test_a_rule_other_than_room_makes_a_node_unsuitable(
    fields: dict[str, Any], asks: dict[str, Any], reason: Reason
) -> None:
    found = fit(world_of(room("d1", 2 * EXT_LIMIT_BYTES, size=2 * EXT_LIMIT_BYTES), **fields), local(1, **asks))

    assert (Verdict.UNSUITABLE, False, {}) == (found.verdict, found.is_bounded, found.placement)
    assert reason in {entry.rejection.reason for entry in found.refusals}


def test_a_disk_whose_uuid_another_one_of_its_node_has_takes_nothing() -> None:
    world = world_of(room("d1", 100), room("d2", 100))
    twins = world.nodes["n1"]
    world.put_node("n1", replace(twins, disks=tuple(replace(one, uuid="n1-d1") for one in twins.disks)))

    found = fit(world, local(1))
    assert Verdict.UNSUITABLE is found.verdict
    assert {("d1", Reason.DISK_NOT_FOUND), ("d2", Reason.DISK_NOT_FOUND)} == reasons(found)

    world.put_node("n1", replace(twins, name="n2"))
    world.put_node("n1", twins)
    assert Verdict.SURE is fit(world, local(1)).verdict


def test_a_kubernetes_node_without_longhorn_is_unsuitable_for_each_pod_with_a_volume() -> None:
    world = world_of(room("d1", 100))
    for name in ("n1", "n2"):
        world.put_kube_node(name, KubeNode(name, unschedulable=False))
    nodes = ["n1", "n2"]

    found = fit_pod(world, [local(10)], nodes)
    assert (Verdict.SURE, Verdict.UNSUITABLE) == (found["n1"].verdict, found["n2"].verdict)
    assert {("", Reason.NO_LONGHORN_NODE)} == reasons(found["n2"])
    assert found == fit_pod(world, [roaming(10)], nodes) | {"n1": found["n1"]}
    assert {Verdict.SURE} == {entry.verdict for entry in fit_pod(world, [], nodes).values()}


# Replicas that are there


def test_a_disk_with_another_replica_is_barred_or_the_last_resort() -> None:
    """An evicting replica on d1 does not keep its volume off the node, and with hard disk anti-affinity off the
    disk."""
    world = world_of(room("d1", 100), room("d2", 40))
    world.put_replica("r", replace(replica("r", "v", 0, on="n1"), eviction_requested=True))
    world.put_volume("v", volume("v", 0))
    assert {"v": "d2"} == fit(world, local(40)).placement
    assert {"v": "d1"} == fit(world, local(41)).placement

    facts = replace(local(41).facts, disk_soft_anti_affinity="disabled")
    assert Verdict.SURE is fit(world, local(40, facts=facts)).verdict
    found = fit(world, local(41, facts=facts))
    assert Verdict.FULL is found.verdict
    assert ("d1", Reason.DISK_ANTI_AFFINITY) in reasons(found)
    only = world_of(room("d1", 100))
    only.put_replica("r", replace(replica("r", "v", 0, on="n1"), eviction_requested=True))
    assert Verdict.UNSUITABLE is fit(only, local(41, facts=facts)).verdict


def test_a_node_with_an_inactive_replica_takes_no_second_one() -> None:
    world = world_of(room("d1", 100))
    world.put_replica("r", replace(replica("r", "v", 0, on="n1"), active=False))

    found = fit(world, local(1))
    assert (Verdict.UNSUITABLE, {("", Reason.NODE_ANTI_AFFINITY)}) == (found.verdict, reasons(found))


def test_the_restart_rule_keeps_a_pod_at_its_data() -> None:
    world = world_of(room("d1", 50), names=("n1", "n2", "n3"))
    n1, nodes = frozenset({"n1"}), ["n1", "n2", "n3"]
    at_home = local(50, "a", usable_nodes=n1, placed_nodes=n1, home_nodes=n1)

    found = fit_pod(world, [at_home], nodes)
    assert [Verdict.SURE, Verdict.UNSUITABLE, Verdict.UNSUITABLE] == [found[name].verdict for name in nodes]
    assert {("", Reason.REPLICA_ELSEWHERE)} == reasons(found["n2"])
    assert {} == found["n1"].placement

    found = fit_pod(world, [at_home, local(51, "b")], nodes)
    assert {Verdict.FULL} == {entry.verdict for entry in found.values()}
    found = fit_pod(world, [at_home], ["n2", "n3"])
    assert {Verdict.SURE} == {entry.verdict for entry in found.values()}


def test_a_strict_local_volume_goes_nowhere_else() -> None:
    world = world_of(room("d1", 50), names=("n1", "n2"))
    pinned = local(50, is_pinned=True, placed_nodes=frozenset({"n2"}), home_nodes=frozenset({"n2"}))

    found = fit(world, pinned)
    assert (Verdict.UNSUITABLE, {("", Reason.REPLICA_ELSEWHERE)}) == (found.verdict, reasons(found))
    assert "n2" in found.refusals[0].rejection.message


# Backing images


@pytest.mark.parametrize(
    ("size", "on_disk", "expected"),
    [(20, (), Verdict.SURE), (21, (), Verdict.CONTENDED), (21, ("n1-d1",), Verdict.SURE)],
)
def test_a_backing_image_that_is_not_on_the_node_needs_room_as_well(
    size: int, on_disk: tuple[str, ...], expected: Verdict
) -> None:
    image = BackingImage("i", real_size_bytes=size, disk_uuids=frozenset(on_disk))
    found = fit(world_of(room("d1", 50)), local(30, image=image))

    assert expected is found.verdict
    assert ({("", Reason.BACKING_IMAGE)} if expected is Verdict.CONTENDED else set()) == reasons(found)
    assert ({"v": "d1"} if expected is Verdict.SURE else {}) == found.placement


# Sets


def test_the_whole_set_decides_on_every_node() -> None:
    world = world_of(room("d1", 50), names=("n1", "n2"), settings=replace(OPEN, degraded_availability=False))
    nodes = ["n1", "n2"]

    assert {Verdict.SURE} == {entry.verdict for entry in fit_pod(world, [roaming(50, copies=2)], nodes).values()}
    found = fit_pod(world, [roaming(51, copies=2)], nodes)
    assert {Verdict.FULL} == {entry.verdict for entry in found.values()}
    assert {("d1", Reason.INSUFFICIENT_STORAGE)} == reasons(found["n1"])
    assert Verdict.UNSUITABLE is fit_pod(world, [roaming(50, copies=3)], nodes)["n1"].verdict
    world.put_settings(OPEN)
    assert Verdict.SURE is fit_pod(world, [roaming(50, copies=3)], nodes)["n1"].verdict


def test_a_class_that_binds_volumes_to_a_zone_is_judged_zone_by_zone() -> None:
    world = World()
    world.put_settings(OPEN)
    for name, zone, free in (("n1", "a", 50), ("n2", "a", 10), ("n3", "b", 10)):
        world.put_node(name, node(name, room("d1", free), zone=zone))
    demand = replace(roaming(50), follows="zone")

    found = fit_pod(world, [demand], ["n1", "n2", "n3"])

    assert [Verdict.SURE, Verdict.SURE, Verdict.FULL] == [found[name].verdict for name in ("n1", "n2", "n3")]
