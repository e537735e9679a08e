"""Scores of the nodes that passed: data first, then certainty, preferred room, and the strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import SURE, Judgement, Verdict
from controller.allocator.outcome import Mode
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import ANYWHERE, Roams, Verb
from controller.allocator.verbs.prioritize import Strategy, score_nodes
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds
from controller.model.workload import KubeNode
from controller.rules.demand import VolumeDemand
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, TestCluster, disk, node, promise, replica, volume
from tests.fakes.clock import TickingClock
from tests.fakes.rooms import local, roaming, room, world_of


def scores(cluster: TestCluster, pod: str, *names: str) -> dict[str, int]:
    return dict(cluster.allocator.score_nodes(cluster.pods[pod].uid, list(names)))


def made(strategy: str = "off", **free_gib: float) -> TestCluster:
    return TestCluster(live=LiveSettings(enabled=True, strategy=strategy)).add_nodes(**free_gib)


def test_a_node_with_the_pods_data_is_better_than_one_with_room() -> None:
    cluster = made(n1=400, n2=400)
    cluster.add_pod("a")
    cluster.place(cluster.provision("a"), "n1")

    assert scores(cluster, "a", "n2", "n1") == {"n2": 2, "n1": 6}  # both are robust

    cluster.add_pod("half", "a", "b")
    cluster.place(cluster.provision("b"), "n2")
    assert scores(cluster, "half", "n1", "n2") == {"n1": 4, "n2": 4}


def test_a_node_where_every_choice_fits_is_better_than_one_where_only_some_do() -> None:
    """On n1 Longhorn may put the small volume on the large disk, and then the large one finds no room."""
    cluster = made()
    cluster.add_node("n1", disk("d1", 100, node="n1"), disk("d2", 50, node="n1"))
    cluster.add_node("n2", disk("d1", 150, node="n2"), disk("d2", 150, node="n2"))
    cluster.add_pod("a", ("large", 100), ("small", 50))

    assert cluster.offered("a", "n1", "n2") == {"n2"}
    assert scores(cluster, "a", "n1", "n2") == {"n1": 0, "n2": 2}


def test_best_effort_volumes_of_several_copies_prefer_a_node_with_room_for_one() -> None:
    cluster = made(n1=400, n2=400, n3=400, n4=50)
    cluster.add_class("three", dataLocality="best-effort", numberOfReplicas="3")
    cluster.add_pod("a", ("c", 100, "three"))

    assert scores(cluster, "a", "n1", "n4") == {"n1": 2, "n4": 0}


@pytest.mark.parametrize(("strategy", "expected"), [("spread", (4, 3)), ("pack", (2, 3)), ("off", (2, 2))])
def test_the_strategy_prefers_the_emptier_or_the_fuller_node(strategy: str, expected: tuple[int, int]) -> None:
    cluster = made(strategy, n1=1000, n2=1000)
    cluster.add_pod("other", gib=600)
    cluster.filter("other", "n2")
    cluster.add_pod("a")

    assert tuple(scores(cluster, "a", "n1", "n2").values()) == expected


def test_the_best_node_has_ten_points() -> None:
    cluster = made("spread", n1=100_000)
    cluster.add_class("two", dataLocality="best-effort", numberOfReplicas="2")
    cluster.add_pod("a", "local", ("preferring", 100, "two"))
    cluster.place(cluster.provision("local"), "n1")

    assert scores(cluster, "a", "n1") == {"n1": 10}


def test_bypass_has_no_opinion_and_nothing_is_ever_held() -> None:
    cluster = made("spread", n1=400)
    cluster.add_pod("a")
    assert scores(cluster, "a", "n1") == {"n1": 4}
    assert cluster.pending() == {}

    cluster.allocator.set_mode(Mode.BYPASS)
    assert scores(cluster, "a", "n1") == {"n1": 0}


# As the plain computation, node by node


def robust_plainly(judge: Judge, name: str) -> bool:
    wanted = judge.wanted_on(name)
    if isinstance(wanted, Judgement):
        return False
    if not wanted:
        return True
    shape = judge.shape(name, wanted)
    if isinstance(shape, Judgement):
        return False
    own = judge.own_roaming_on(shape.room)
    roaming = [(entry.item.size_bytes, disk) for _, entry, disks in own for disk in disks]
    for index, free in enumerate(shape.free):
        reach = shape.room.disks[index].reach_bytes
        sizes = [item.size_bytes for item in shape.items if index in item.all_disks and item.size_bytes <= reach]
        if sizes and sum(sizes) + sum(size for size, disk in roaming if disk == index) > free:
            return False
    return all(any(item.size_bytes <= shape.free[disk] for disk in item.all_disks) for item in shape.items)


def free_share_plainly(world: World, ledger: Ledger, name: str) -> float:
    node_room = world.room(name)
    if node_room is None or node_room.rejection is not None:
        return 0.0
    usable = {entry.uuid for entry in node_room.disks}
    most = sum(max(0, at.maximum_bytes - at.reserved_bytes) for at in world.nodes[name].disks if at.uuid in usable)
    free = sum(max(0, entry.free_bytes) for entry in node_room.disks) - ledger.pending_bytes(name)
    return min(1.0, max(0, free) / most) if most else 0.0


def alone(judge: Judge, demand: VolumeDemand) -> Judge:
    return judge.of(replace(demand, is_roaming=False))


def score_plainly(judge: Judge, ledger: Ledger, name: str, strategy: Strategy) -> int:
    placed = [demand for demand in judge.demands if demand.usable_nodes]
    points = 4.0 * (sum(name in demand.usable_nodes for demand in placed) / len(placed)) if placed else 0.0
    if any(demand.is_local for demand in judge.demands) and robust_plainly(judge, name):
        points += 2
    preferring = [demand for demand in judge.demands if demand.prefers_local]
    suits = [
        name in demand.usable_nodes or alone(judge, demand).judge_room(name, (demand,)).verdict is Verdict.SURE
        for demand in preferring
    ]
    points += 2.0 * (sum(suits) / len(suits)) if suits else 0.0
    if strategy is not Strategy.OFF and name in judge.world.nodes:
        free = free_share_plainly(judge.world, ledger, name)
        points += 2.0 * (free if strategy is Strategy.SPREAD else 1 - free)
    return min(10, int(points + 0.5))


def preferring(size: int, name: str = "p", **fields: Any) -> VolumeDemand:
    """A best-effort volume of three copies that Longhorn has not placed yet."""
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
def ledgers(draw: st.DrawFn) -> Ledger:
    ledger = Ledger()
    for number in range(draw(st.integers(0, 6))):
        where, size = draw(st.sampled_from((*NODES, *NODES, ANYWHERE))), draw(st.integers(1, 25))
        of, since = draw(st.sampled_from((f"other-{number}", "uid-v0"))), draw(st.sampled_from((0.0, 9.5)))
        made = promise(of, where, f"uid-{number}", size=size, needs=draw(NEEDS), since=since)
        if where == ANYWHERE:
            barred, per_disk = draw(st.sampled_from(((), (), ("n1",)))), draw(st.sampled_from((1, 1, 1, 2)))
            made = replace(made, places=Roams(frozenset(barred), per_disk, per_disk))
        ledger.put(Verb.HOLD, made)
    return ledger


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
            written, soft = draw(st.sampled_from((0, 1, 11))), draw(st.sampled_from(("ignored", "enabled")))
            demand = replace(
                demand,
                usable_nodes=usable,
                placed_nodes=at,
                home_nodes=usable,
                required_bytes=written,
                copies=1,
                facts=replace(demand.facts, soft_anti_affinity=soft, disk_soft_anti_affinity=soft),
            )
        demands.append(demand)
    return demands


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_points_are_those_of_the_plain_computation(data: st.DataObject) -> None:
    world, ledger = data.draw(worlds()), data.draw(ledgers())
    demands = data.draw(pods(world))
    names = [*NODES, "unknown"]
    for strategy in Strategy:
        found = score_nodes(Judge(world, ledger, demands, 10.0), ledger, demands, names, strategy)
        judge = Judge(world, ledger, demands, 10.0)
        assert {name: score_plainly(judge, ledger, name, strategy) for name in names} == found


@settings(max_examples=400, deadline=None)
@given(worlds(), ledgers(), st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_many_nodes_are_judged_as_each_of_them_alone(world: World, ledger: Ledger, sizes: list[int]) -> None:
    judge = Judge(world, ledger, [local(size, f"v{index}") for index, size in enumerate(sizes)], 10.0)

    expected = {name: judge.judge(name) for name in NODES}

    sure, refused = judge.sure_among(NODES)
    assert expected == {**dict.fromkeys(sure, SURE), **refused}


# The budget


def many(count: int, *frees: int) -> World:
    return world_of(
        *(room(f"d{index}", free, size=max(100, free)) for index, free in enumerate(frees)),
        names=[f"n{i}" for i in range(count)],
    )


SLOW = [
    pytest.param([local(40, "a"), local(30, "b")], Strategy.OFF, (70, 29), id="robustness"),
    pytest.param([preferring(40)], Strategy.OFF, (50,), id="preferred room"),
    pytest.param([local(40)], Strategy.SPREAD, (90,), id="the strategy"),
    pytest.param([local(40, "a"), preferring(40, "b")], Strategy.SPREAD, (90,), id="all of them"),
]


@pytest.mark.parametrize(("demands", "strategy", "frees"), SLOW)
def test_what_there_is_no_time_for_counts_for_no_node(
    demands: list[VolumeDemand], strategy: Strategy, frees: tuple[int, ...]
) -> None:
    world = many(60, *frees)
    found: set[int] = set()
    for looks in range(0, 300, 3):
        budget = Budget.of(TickingClock(1), looks * 1000)
        judge = Judge(world, Ledger(), demands, 0.0, budget=budget)
        scores = score_nodes(judge, Ledger(), demands, list(world.nodes), strategy)
        assert list(world.nodes) == list(scores)
        assert len(set(scores.values())) == 1, looks
        found.update(scores.values())
    assert len(found) > 1, "the budget never mattered"


def test_nothing_is_looked_at_closely_once_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many nodes and volumes are left."""
    seen: list[str] = []
    for method in ("is_robust", "judge_room", "shape"):
        monkeypatch.setattr(Judge, method, lambda *_, method=method: seen.append(method))
    clock = TickingClock(1)
    demands = [local(40, "a"), *(preferring(40, f"p{index}") for index in range(4))]
    judge = Judge(many(200, 50), Ledger(), demands, 0.0, budget=Budget.of(clock, 0))

    score_nodes(judge, Ledger(), demands, list(judge.world.nodes), Strategy.SPREAD)
    assert not seen
    assert clock.looks == 2  # when the budget was made, and when it was found spent


def test_data_counts_however_little_time_there_is() -> None:
    demand = local(40, usable_nodes=frozenset({"n1"}))
    judge = Judge(many(3, 50), Ledger(), [demand], 0.0, budget=Budget.of(TickingClock(1), 0))
    judge.budget.is_spent()

    assert {"n0": 0, "n1": 4} == score_nodes(judge, Ledger(), [demand], ["n0", "n1"], Strategy.SPREAD)


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
