"""On which nodes a pod's volumes fit: every rule that makes a node unsuitable or full, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.node import LATE, Judge
from controller.allocator.judge.sets import NO_ROOM as NO_ROOM_IN_CLUSTER
from controller.allocator.judge.verdict import SURE, Judgement, Verdict
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import ANYWHERE, Roams, Verb
from controller.allocator.verbs.fit import GivenPromise, NodeFit, fit_pod, ledger_of
from controller.allocator.world.world import World
from controller.model.longhorn import (
    DEFAULT_NEEDS,
    BackingImage,
    Disk,
    DiskNeeds,
    EngineImage,
    InstanceManager,
    LonghornSettings,
    SpacePolicy,
    TopologyTerm,
)
from controller.model.workload import KubeNode
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import EXT_LIMIT_BYTES
from controller.rules.reasons import Reason
from tests.fakes.builders import disk, node, promise, replica, volume
from tests.fakes.clock import VirtualClock

OPEN = LonghornSettings(space=SpacePolicy(minimal_available_pct=0))


def room(name: str, free: int, *, size: int = 100, **fields: Any) -> Disk:
    facts = replace(disk(name), maximum_bytes=size, available_bytes=size, scheduled_bytes=size - free)
    return replace(facts, **fields)


def world_of(*disks: Disk, settings: LonghornSettings = OPEN, names: Sequence[str] = ("n1",), **fields: Any) -> World:
    world = World()
    world.put_settings(settings)
    for name in names:
        world.put_node(name, replace(node(name, *disks), **fields))
    return world


def local(size: int, name: str = "v", **fields: Any) -> VolumeDemand:
    facts = replace(volume(name), size_bytes=size)
    demand = VolumeDemand(
        key=f"uid-{name}",
        claim=f"ns/{name}",
        volume=name,
        size_bytes=size,
        required_bytes=0,
        needs=DEFAULT_NEEDS,
        is_local=True,
        is_pinned=False,
        is_roaming=False,
        copies=1,
        usable_nodes=frozenset(),
        placed_nodes=frozenset(),
        home_nodes=frozenset(),
        facts=facts,
    )
    return replace(demand, **fields)


def roaming(size: int, name: str = "r", copies: int = 1) -> VolumeDemand:
    facts = replace(volume(name, locality="disabled", replica_count=copies), size_bytes=size)
    return replace(local(size, name), is_local=False, is_roaming=True, copies=copies, facts=facts)


def fit(world: World, *demands: VolumeDemand, promises: Sequence[GivenPromise] = ()) -> NodeFit:
    return fit_pod(world, demands, ["n1"], promises)["n1"]


def reasons(found: NodeFit) -> set[tuple[str, Reason]]:
    return {(entry.disk, entry.rejection.reason) for entry in found.refusals}


# Verdicts and their boundaries


def test_a_volume_fits_to_the_last_byte_and_not_beyond() -> None:
    assert Verdict.SURE is fit(world_of(room("d1", 50)), local(50)).verdict
    found = fit(world_of(room("d1", 49)), local(50))

    assert Verdict.FULL is found.verdict
    assert ("d1", Reason.INSUFFICIENT_STORAGE) in reasons(found)
    assert "50 bytes + 51 scheduled is more than 100" in found.refusals[-1].rejection.message


def test_volumes_that_fit_one_by_one_but_not_together_are_full() -> None:
    found = fit(world_of(room("d1", 50), room("d2", 30)), local(40, "a"), local(40, "b"))

    assert (Verdict.FULL, {"n1"}) == (found.verdict, {entry.node for entry in found.refusals})
    assert any("no packing" in entry.rejection.message for entry in found.refusals)


def test_a_placement_names_a_disk_for_every_volume() -> None:
    found = fit(world_of(room("d1", 60), room("d2", 50)), local(60, "a"), local(50, "b"))

    assert (Verdict.CONTENDED, {"a": "d1", "b": "d2"}) == (found.verdict, found.placement)
    assert {("", Reason.OWN_VOLUMES)} == reasons(found)  # b may take d1
    assert fit(world_of(room("d1", 110), room("d2", 50)), local(60, "a"), local(50, "b")).is_robust


def test_promises_make_contended_what_is_not_full_without_them() -> None:
    world = world_of(room("d1", 50), room("d2", 50))
    one, two = GivenPromise("n1", "x", 10), GivenPromise("n1", "y", 10)

    assert Verdict.SURE is fit(world, local(40), promises=[one]).verdict
    found = fit(world, local(40), promises=[one, two])
    assert (Verdict.CONTENDED, {("", Reason.CONTENDED)}) == (found.verdict, reasons(found))
    assert {"v"} == set(found.placement)
    assert Verdict.FULL is fit(world, local(51), promises=[one, two]).verdict


def test_promises_of_the_pods_own_volumes_do_not_stand_in_its_way() -> None:
    world = world_of(room("d1", 50))

    assert Verdict.SURE is fit(world, local(50, "v"), promises=[GivenPromise("n1", "v", 50)]).verdict
    assert Verdict.SURE is fit(world, local(50, "v"), promises=[GivenPromise("n2", "x", 50)]).verdict


def test_several_promises_of_a_volume_on_a_node_count_once() -> None:
    world = world_of(room("d1", 70))
    twice = [GivenPromise("n1", "x", 20), GivenPromise("n1", "x", 10)]

    assert 20 == ledger_of(world, [], twice).pending_bytes("n1")
    assert Verdict.SURE is fit(world, local(50), promises=twice).verdict


def test_too_little_available_space_is_full_and_copied_bytes_count() -> None:
    settings = LonghornSettings(space=SpacePolicy(minimal_available_pct=25))
    world = world_of(room("d1", 100, available_bytes=36), settings=settings)

    assert Verdict.SURE is fit(world, local(50, required_bytes=10)).verdict
    found = fit(world, local(50, required_bytes=11))
    assert (Verdict.FULL, {("", Reason.TOO_FULL), ("d1", Reason.TOO_FULL)}) == (found.verdict, reasons(found))
    empty = fit(world_of(room("d1", 100, available_bytes=0)), local(1))
    assert (Verdict.FULL, Verdict.FULL) == (empty.verdict, fit(world_of(room("d1", 0, size=0)), local(1)).verdict)


def test_a_volume_beyond_the_file_systems_limit_is_unsuitable() -> None:
    world = world_of(room("d1", 2 * EXT_LIMIT_BYTES, size=2 * EXT_LIMIT_BYTES))

    assert Verdict.SURE is fit(world, local(EXT_LIMIT_BYTES - 1)).verdict
    found = fit(world, local(EXT_LIMIT_BYTES))
    assert (Verdict.UNSUITABLE, {("d1", Reason.INCOMPATIBLE_SIZE)}) == (found.verdict, reasons(found))


# Rules


UNSUITABLE: list[tuple[str, dict[str, Any], dict[str, Any], Reason]] = [
    ("not ready", {"ready": False}, {}, Reason.NODE_NOT_READY),
    ("not schedulable", {"schedulable": False}, {}, Reason.NODE_UNSCHEDULABLE),
    ("being deleted", {"deleting": True}, {}, Reason.NODE_DELETING),
    ("node tags", {}, {"needs": DiskNeeds(node_selector=("ssd",))}, Reason.NODE_TAGS),
    ("disk tags", {}, {"needs": DiskNeeds(disk_selector=("ssd",))}, Reason.DISK_TAGS),
    ("disk type", {}, {"needs": DiskNeeds(data_engine="v2")}, Reason.DISK_TYPE),
    ("topology", {"zone": "a"}, {"needs": DiskNeeds(topology=(TopologyTerm("b"),))}, Reason.TOPOLOGY),
    ("linked clone", {}, {"clone_disks": frozenset({"other"})}, Reason.LINKED_CLONE),
]


@pytest.mark.parametrize(("case", "fields", "asks", "reason"), UNSUITABLE, ids=[row[0] for row in UNSUITABLE])
def test_a_rule_other_than_room_makes_a_node_unsuitable(
    case: str, fields: dict[str, Any], asks: dict[str, Any], reason: Reason
) -> None:
    found = fit(world_of(room("d1", 100), **fields), local(1, **asks))

    assert Verdict.UNSUITABLE is found.verdict
    assert reason in {entry.rejection.reason for entry in found.refusals}
    assert not found.is_robust
    assert not found.placement


def test_a_disk_whose_uuid_another_one_has_takes_nothing() -> None:
    world = world_of(room("d1", 100))
    other = node("n2", room("d1", 100))
    world.put_node("n2", replace(other, disks=(replace(other.disks[0], uuid="n1-d1"),)))

    found = fit(world, local(1))
    assert (Verdict.UNSUITABLE, {("d1", Reason.DISK_NOT_FOUND)}) == (found.verdict, reasons(found))

    world.put_node("n2", None)
    assert Verdict.SURE is fit(world, local(1)).verdict


def test_engines_decide_once_there_is_an_object_of_their_kind() -> None:
    world = world_of(room("d1", 100), names=("n1", "n2"))
    asks = local(1, needs=DiskNeeds(engine_image="engine:1"))
    both = ["n1", "n2"]
    assert {Verdict.SURE} == {entry.verdict for entry in fit_pod(world, [asks], both).values()}

    world.put_engine_image("e", EngineImage("e", "engine:1", "deployed", frozenset({"n1"})))
    found = fit_pod(world, [asks], both)
    assert (Verdict.SURE, Verdict.UNSUITABLE) == (found["n1"].verdict, found["n2"].verdict)
    assert {("", Reason.ENGINE_NOT_READY)} == reasons(found["n2"])

    world.put_instance_manager("m", InstanceManager("m", "n2", "v1", "manager:1", "running"))
    assert Verdict.UNSUITABLE is fit(world, asks).verdict


def test_a_kubernetes_node_without_longhorn_is_unsuitable_only_for_local_room() -> None:
    world = world_of(room("d1", 100))
    for name in ("n1", "n2"):
        world.put_kube_node(name, KubeNode(name, unschedulable=False))
    nodes = ["n1", "n2"]

    found = fit_pod(world, [local(10)], nodes)
    assert (Verdict.SURE, Verdict.UNSUITABLE) == (found["n1"].verdict, found["n2"].verdict)
    assert {("", Reason.NO_LONGHORN_NODE)} == reasons(found["n2"])
    assert {Verdict.SURE} == {entry.verdict for entry in fit_pod(world, [roaming(10)], nodes).values()}
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
    at_home = local(
        50, "a", usable_nodes=frozenset({"n1"}), placed_nodes=frozenset({"n1"}), home_nodes=frozenset({"n1"})
    )
    nodes = ["n1", "n2", "n3"]

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
    [(20, (), Verdict.SURE), (21, (), Verdict.CONTENDED), (21, ("n1-d1",), Verdict.SURE), (0, (), Verdict.SURE)],
)
def test_a_backing_image_that_is_not_on_the_node_needs_room_as_well(
    size: int, on_disk: tuple[str, ...], expected: Verdict
) -> None:
    image = BackingImage("i", real_size_bytes=size, disk_uuids=frozenset(on_disk))
    found = fit(world_of(room("d1", 50)), local(30, image=image))

    assert expected is found.verdict
    assert ({("", Reason.BACKING_IMAGE)} if expected is Verdict.CONTENDED else set()) == reasons(found)
    assert {"v": "d1"} == found.placement


def test_two_volumes_of_one_image_bring_it_once() -> None:
    image = BackingImage("i", real_size_bytes=20)
    world = world_of(room("d1", 50))

    assert Verdict.SURE is fit(world, local(15, "a", image=image), local(15, "b", image=image)).verdict
    assert Verdict.FULL is fit(world, local(30, "a", image=image), local(30, "b", image=image)).verdict


# Sets


def test_the_whole_set_decides_on_every_node() -> None:
    world = world_of(room("d1", 50), names=("n1", "n2"), settings=replace(OPEN, degraded_availability=False))
    nodes = ["n1", "n2"]

    assert {Verdict.SURE} == {entry.verdict for entry in fit_pod(world, [roaming(50, copies=2)], nodes).values()}
    found = fit_pod(world, [roaming(51, copies=2)], nodes)
    assert {Verdict.FULL} == {entry.verdict for entry in found.values()}
    assert {("", Reason.NO_ROOM_IN_CLUSTER)} == reasons(found["n1"])
    assert Verdict.UNSUITABLE is fit_pod(world, [roaming(50, copies=3)], nodes)["n1"].verdict
    world.put_settings(OPEN)
    assert Verdict.SURE is fit_pod(world, [roaming(50, copies=3)], nodes)["n1"].verdict


def test_a_roaming_and_a_local_volume_share_a_node_where_neither_takes_the_others_room() -> None:
    world = world_of(room("d1", 100), room("d2", 60))

    found = fit(world, local(40, "a"), roaming(61, "b"))
    assert (Verdict.CONTENDED, {("", Reason.OWN_VOLUMES)}) == (found.verdict, reasons(found))
    assert Verdict.SURE is fit(world, local(39, "a"), roaming(61, "b")).verdict
    assert fit(world, local(20, "a"), roaming(30, "b")).is_robust


def test_volumes_that_fit_in_every_order_are_offered_at_longhorns_discretion() -> None:
    """Two of 100 on two disks of 150: from late figures Longhorn may put both on one."""
    world = world_of(room("d1", 150, size=150), room("d2", 150, size=150))

    found = fit(world, local(100, "a"), local(100, "b"))
    assert (Verdict.SURE, False) == (found.verdict, found.is_robust)
    beside = fit(world, local(100, "a"), local(100, "b"), promises=[GivenPromise("n1", "x", 1)])
    assert (Verdict.CONTENDED, {("", Reason.OWN_VOLUMES)}) == (beside.verdict, reasons(beside))


# The short cuts say what the long way says


@st.composite
def plain_cases(draw: st.DrawFn) -> tuple[World, list[VolumeDemand], list[GivenPromise], list[str]]:
    names = [f"n{index}" for index in range(draw(st.integers(1, 3)))]
    world = World()
    world.put_settings(OPEN)
    for name in names:
        frees = draw(st.lists(st.integers(-5, 30), min_size=1, max_size=4))
        world.put_node(name, node(name, *(room(f"d{index}", free) for index, free in enumerate(frees))))
    demands = [
        local(size, f"v{index}")
        for index, size in enumerate(draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)))
    ]
    promise = st.builds(GivenPromise, st.sampled_from(names), st.sampled_from("abcdefgh"), st.integers(1, 12))
    return world, demands, draw(st.lists(promise, max_size=7)), names


class LongWay(Judge):
    """Without the short cuts for plain volumes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._plain = None


ROAMERS = st.lists(
    st.builds(
        lambda size, per_disk, since, needs, barred: (size, per_disk, since, needs, barred),
        st.integers(1, 12),
        st.sampled_from((1, 1, 1, 2)),
        st.sampled_from((0.0, 99.5)),
        st.sampled_from((DEFAULT_NEEDS, DEFAULT_NEEDS, DEFAULT_NEEDS, DiskNeeds(disk_selector=("ssd",)))),
        st.sampled_from((frozenset[str](), frozenset[str](), frozenset({"n0"}))),
    ),
    max_size=3,
)


@settings(max_examples=600, deadline=None)
@given(plain_cases(), ROAMERS)
def test_the_short_cuts_judge_as_the_long_way_does(
    case: tuple[World, list[VolumeDemand], list[GivenPromise], list[str]],
    roamers: list[tuple[int, int, float, DiskNeeds, frozenset[str]]],
) -> None:
    world, demands, promises, names = case
    ledger = ledger_of(world, demands, promises)
    for number, (size, per_disk, since, needs, barred) in enumerate(roamers):
        made = promise(f"r{number}", ANYWHERE, size=size, since=since, needs=needs, copies=per_disk)
        ledger.put(Verb.HOLD, replace(made, places=Roams(barred, per_disk, per_disk)))
    short, long = Judge(world, ledger, demands, 100.0), LongWay(world, ledger, demands, 100.0)

    expected = {name: long.judge(name) for name in names}

    sure, refused = short.sure_among(names)
    assert expected == {**dict.fromkeys(sure, SURE), **refused}
    assert expected == {name: short.judge(name) for name in names}


# Time


def test_a_spent_budget_leaves_the_rest_unevaluated() -> None:
    world = world_of(room("d1", 50), names=tuple(f"n{index}" for index in range(40)))
    needs = DiskNeeds(disk_selector=("ssd",))
    clock = VirtualClock()
    judge = Judge(world, Ledger(), [local(10, needs=needs)], 0.0, budget=Budget.of(clock, 50))
    first = judge.judge("n0")
    clock.advance(0.051)

    _, refused = judge.sure_among(sorted(world.nodes))
    late = list(refused.values())

    assert Verdict.UNSUITABLE is first.verdict
    assert 40 == late.count(LATE)
    assert LATE is judge.judge("n0")  # once over, it stays over


@pytest.mark.parametrize(("free", "verdict"), [(15, SURE), (5, NO_ROOM_IN_CLUSTER)])
def test_a_spent_budget_matters_to_no_set_that_a_summary_decides(free: int, verdict: Judgement) -> None:
    world = world_of(room("d1", free), names=tuple(f"n{index}" for index in range(40)))
    clock = VirtualClock()
    budget = Budget.of(clock, 50)
    clock.advance(1)
    judge = Judge(world, Ledger(), [roaming(10)], 0.0, budget=budget)

    assert [verdict] == [judgement for _, judgement in judge.judge_sets(["n1"])]


def test_a_class_that_binds_volumes_to_a_zone_is_judged_zone_by_zone() -> None:
    world = World()
    world.put_settings(OPEN)
    for name, zone, free in (("n1", "a", 50), ("n2", "a", 10), ("n3", "b", 10)):
        world.put_node(name, node(name, room("d1", free), zone=zone))
    demand = replace(roaming(50), follows="zone")

    found = fit_pod(world, [demand], ["n1", "n2", "n3"])

    assert [Verdict.SURE, Verdict.SURE, Verdict.FULL] == [found[name].verdict for name in ("n1", "n2", "n3")]
