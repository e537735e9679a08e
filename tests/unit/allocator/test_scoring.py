"""Scores of the nodes that passed: data first, then the strategy, and preferred room."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.choose.packing import Budget
from controller.allocator.outcome import Mode
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.plans.table import Table
from controller.allocator.verbs.prioritize import Strategy, score_nodes
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds
from controller.model.places import Place
from controller.model.workload import KubeNode
from controller.rules.demand import VolumeDemand
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, TestCluster, node, replica, volume
from tests.fakes.clock import TickingClock
from tests.fakes.rooms import local, roaming, room, world_of

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def scores(cluster: TestCluster, pod: str, *names: str) -> dict[str, int]:
    return dict(cluster.allocator.score_nodes(cluster.pods[pod].uid, list(names)))


def made(strategy: str = "off", **free_gib: float) -> TestCluster:
    return TestCluster(live=LiveSettings(enabled=True, strategy=strategy)).add_nodes(**free_gib)


def test_a_node_with_the_pods_data_is_better_than_one_with_room() -> None:
    cluster = made(n1=400, n2=400)
    cluster.add_pod("a")
    cluster.place(cluster.provision("a"), "n1")

    assert {"n2": 0, "n1": 4} == scores(cluster, "a", "n2", "n1")

    cluster.add_pod("half", "a", "b")
    cluster.place(cluster.provision("b"), "n2")
    assert {"n1": 2, "n2": 2} == scores(cluster, "half", "n1", "n2")


@pytest.mark.parametrize("shared", [{"access_mode": "rwx"}, {"access_mode": "rwx", "migratable": True}])
def test_data_of_a_volume_that_a_share_manager_serves_draws_no_pod_not_even_one_that_migrates(
    shared: dict[str, Any],
) -> None:
    """Its engine is with the share-manager, wherever the pod is. Until it is served, it is served beside the pod."""
    cluster = made(n1=400, n2=400)
    cluster.add_pod("a")
    name = cluster.provision("a", **shared)
    cluster.place(name, "n1")
    assert {"n1": 4, "n2": 0} == scores(cluster, "a", "n1", "n2")

    cluster.attach(name, "n1", **shared)
    assert {"n1": 4 if "migratable" in shared else 0, "n2": 0} == scores(cluster, "a", "n1", "n2")


def test_best_effort_volumes_of_several_copies_prefer_a_node_with_a_place_for_one() -> None:
    cluster = made(n1=400, n2=400, n3=400, n4=50)
    cluster.add_class("two", dataLocality="best-effort", numberOfReplicas="2")
    cluster.add_pod("a", ("c", 100, "two"))

    offered = cluster.offered("a", "n1", "n2", "n3", "n4")
    expected = {name: 2 if name in offered else 0 for name in ("n1", "n2", "n3", "n4")}

    assert 2 == len(offered)
    assert expected == scores(cluster, "a", *expected)
    cluster.select_node("c", min(offered))  # what was held is planned
    assert expected == scores(cluster, "a", *expected)


@pytest.mark.parametrize(("strategy", "expected"), [("spread", (4, 2)), ("pack", (0, 2)), ("off", (0, 0))])
def test_the_strategy_prefers_the_emptier_or_the_fuller_node(strategy: str, expected: tuple[int, int]) -> None:
    cluster = made(strategy, n1=1000, n2=1000)
    cluster.add_pod("other", gib=600)
    cluster.filter("other", "n2")
    cluster.add_pod("a")

    assert expected == tuple(scores(cluster, "a", "n1", "n2").values())


def test_bypass_has_no_opinion_and_nothing_is_ever_held() -> None:
    cluster = made("spread", n1=400)
    cluster.add_pod("a")
    assert {"n1": 4} == scores(cluster, "a", "n1")
    assert {} == cluster.pending()

    cluster.allocator.set_mode(Mode.BYPASS)
    assert {"n1": 0} == scores(cluster, "a", "n1")


def test_a_node_where_longhorn_will_rebuild_a_copy_is_less_free() -> None:
    cluster = made("spread", n1=100, n2=100, n3=100)
    cluster.allocator.observe_replica("v-r", replica("v-r", "v", 60, on="n3", healthy_at=EPOCH))
    cluster.attach("v", "n1", 60, frontend="blockdev")  # its data is to follow the engine
    cluster.add_pod("p", gib=10)
    found = scores(cluster, "p", "n1", "n2")
    assert found["n1"] < found["n2"]

    cluster.allocator.observe_volume("v", None)
    found = scores(cluster, "p", "n1", "n2")
    assert found["n1"] == found["n2"]


# As the plain computation, node by node


def free_share_plainly(world: World, table: Table, name: str) -> float:
    node_room = world.room(name)
    if node_room is None or node_room.rejection is not None:
        return 0.0
    usable = {entry.uuid for entry in node_room.disks}
    most = sum(max(0, at.maximum_bytes - at.reserved_bytes) for at in world.nodes[name].disks if at.uuid in usable)
    taken = sum(table.taken_bytes(name, at.uuid) for at in world.nodes[name].disks)
    free = sum(max(0, entry.free_bytes) for entry in node_room.disks) - taken
    return min(1.0, max(0, free) / most) if most else 0.0


def score_plainly(world: World, table: Table, demands: list[VolumeDemand], name: str, strategy: Strategy) -> int:
    placed = [demand for demand in demands if demand.usable_nodes]
    points = 4.0 * (sum(name in demand.usable_nodes for demand in placed) / len(placed)) if placed else 0.0
    wants_one = [demand for demand in demands if demand.prefers_local]
    given = {(one.volume, place.node) for one in table.plans() for place in one.places}
    for hold in table.holds():
        given.update((volume, place.node) for volume, place in hold.places() if hold.pod == "pod")
    suits = [name in demand.usable_nodes or (demand.volume, name) in given for demand in wants_one]
    points += 2.0 * (sum(suits) / len(suits)) if suits else 0.0
    if strategy is not Strategy.OFF and name in world.nodes:
        free = free_share_plainly(world, table, name)
        points += 4.0 * (free if strategy is Strategy.SPREAD else 1 - free)
    return min(10, int(points + 0.5))


def preferring(size: int, name: str = "p", **fields: Any) -> VolumeDemand:
    """A best-effort volume of three copies that nobody has placed yet."""
    facts = replace(volume(name, replica_count=3), size_bytes=size)
    return replace(local(size, name), is_local=False, is_roaming=True, copies=3, facts=facts, **fields)


NODES = ("n1", "n2", "n3", "n4")
DISKS = st.lists(
    st.tuples(
        st.integers(-5, 40),
        st.booleans(),
        st.sampled_from((0, 0, 10)),
        st.sampled_from((100, 100, 12, 0)),
    ),
    max_size=3,
)
NEEDS = st.sampled_from(
    (DEFAULT_NEEDS, DEFAULT_NEEDS, DiskNeeds(disk_selector=("ssd",)), DiskNeeds(node_selector=("fast",)))
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = world_of(names=())
    for name in NODES:
        disks = [
            room(f"d{index}", free, reserved_bytes=reserved, available_bytes=available, tags=frozenset(["ssd"] * tag))
            for index, (free, tag, reserved, available) in enumerate(draw(DISKS))
        ]
        ready = draw(st.sampled_from((True, True, True, False)))
        tags = frozenset(draw(st.sampled_from(((), (), ("fast",)))))
        world.put_node(
            name, replace(node(name, *disks), disks=node(name, *disks).disks if disks else (), ready=ready, tags=tags)
        )
        if draw(st.sampled_from((True, True, True, False))):
            world.put_kube_node(name, KubeNode(name, unschedulable=False))
    return world


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Plans and holds of others, and of the pod that is asked about."""
    table, volumes = Table(), st.sampled_from(("v0", "v1", "other-1", "other-2", "other-3"))
    place = st.builds(Place, st.sampled_from(NODES), st.just("d0"), st.integers(1, 25))
    places = place.map(lambda one: (replace(one, disk_uuid=f"{one.node}-{one.disk_uuid}"),))
    for name, at in draw(st.dictionaries(volumes, places, max_size=2)).items():
        table.put(Plan(name, name, at, (), SINCE))
    for pod in ("pod", "other"):
        anywhere = draw(st.dictionaries(volumes, places, max_size=2))
        nodes = {at[0].node: {"other-4": at[0]} for at in draw(st.lists(places, max_size=2))}
        table.put_hold(Hold(pod, Source.FILTER, nodes, anywhere, 0.0, SINCE))
    return table


@st.composite
def pods(draw: st.DrawFn, world: World) -> list[VolumeDemand]:
    """New volumes and placed ones, local, preferring or neither."""
    demands = []
    for number in range(draw(st.integers(1, 4))):
        name, size, needs = f"v{number}", draw(st.integers(1, 20)), draw(NEEDS)
        make = draw(st.sampled_from((local, local, preferring, preferring, roaming)))
        demand = replace(make(size, name), needs=needs)
        homes = draw(st.sampled_from(((), (), (), ("n1",), ("n1", "n2"))))
        for home in homes:
            world.put_replica(f"{name}-{home}", replica(f"{name}-{home}", name, on=home))
        if homes:
            at, usable = frozenset(homes), frozenset(draw(st.sampled_from((homes, homes[1:], ()))))
            demand = replace(demand, usable_nodes=usable, placed_nodes=at, home_nodes=usable, copies=1)
        demands.append(demand)
    return demands


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_points_are_those_of_the_plain_computation(data: st.DataObject) -> None:
    world, table = data.draw(worlds()), data.draw(tables())
    demands = data.draw(pods(world))
    names = [*NODES, "unknown"]
    for strategy in Strategy:
        found = score_nodes(world, table, "pod", demands, names, strategy, Budget())
        assert {name: score_plainly(world, table, demands, name, strategy) for name in names} == found


# The budget


def test_what_there_is_no_time_for_counts_for_no_node() -> None:
    world = world_of(room("d1", 90), names=[f"n{number}" for number in range(300)])
    found: set[int] = set()
    for looks in range(6):
        budget = Budget.of(TickingClock(1), looks * 1000)
        points = score_nodes(world, Table(), "", [local(40)], list(world.nodes), Strategy.SPREAD, budget)
        assert list(world.nodes) == list(points)
        assert len(set(points.values())) == 1, looks
        found.update(points.values())
    assert {0, 4} == found


def test_data_counts_however_little_time_there_is() -> None:
    world, demand = world_of(room("d1", 50), names=("n0", "n1")), local(40, usable_nodes=frozenset({"n1"}))
    budget = Budget.of(TickingClock(1), 0)

    assert {"n0": 0, "n1": 4} == score_nodes(world, Table(), "", [demand], ["n0", "n1"], Strategy.SPREAD, budget)
