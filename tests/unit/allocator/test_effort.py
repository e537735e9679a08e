"""That a question costs no more than it has to: searches and looks are counted, not timed."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from controller.allocator.choose import pod_fit
from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import PACK_STEPS, Item, Steps, pack
from controller.allocator.choose.pod_fit import LOT, PodFit
from controller.allocator.choose.verdict import FULL
from controller.allocator.choose.wanted import NothingTaken, Plus, Taken
from controller.allocator.plans.ends import MOST_READS
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.planning import Planner
from controller.allocator.verbs.settle import SLICE_SECONDS
from controller.allocator.world import facts as facts_module
from controller.model.places import Place
from controller.model.workload import PersistentVolume
from controller.rules.demand import VolumeDemand, demand_of_claim
from tests.fakes.builders import (
    DRIVER,
    GIB,
    LATER,
    ONE_LOCAL,
    TestCluster,
    claim,
    node,
    observe,
    replica,
    storage_class,
    volume,
)
from tests.fakes.counting import counted
from tests.fakes.rooms import local, room, world_of

# Packing: what best fit packs needs no search


@pytest.mark.parametrize(
    ("sizes", "free"),
    [
        ((5, 5), (5, 5)),  # each disk filled to the last byte
        ((5, 4, 4), (8, 5)),  # the fuller disk first, wherever it stands
        ((5, 4, 4), (5, 8)),
        ((4, 3, 2, 1), (5, 5)),
        ((6, 3, 3), (6, 7, 6)),
        ((6, 1, 7), (7, 7)),
    ],
)
def test_what_best_fit_packs_costs_a_step_for_each_volume(sizes: tuple[int, ...], free: tuple[int, ...]) -> None:
    disks, steps = tuple(range(len(free))), Steps(len(sizes))
    assert pack([Item(size, disks) for size in sizes], free, steps) is not None
    assert not steps.exhausted


# Searches: the same problems take the same steps, whatever is changed about the code


def whole(dice: Random, least: int, most: int) -> int:
    return least + int(dice.random() * (most - least + 1))


def some(dice: Random, disks: int) -> tuple[int, ...]:
    return tuple(disk for disk in range(disks) if dice.random() < 0.7) or (whole(dice, 0, disks - 1),)


def tight(dice: Random) -> tuple[list[Item], list[int]]:
    """Items whose bytes fill three to four disks but for a few: where greed fails, a packing may still exist."""
    disks = whole(dice, 3, 4)
    items, free = [], [whole(dice, 0, 1) for _ in range(disks)]
    for _ in range(whole(dice, 5, 9)):
        home, size = whole(dice, 0, disks - 1), whole(dice, 2, 9)
        free[home] += size
        usable = tuple(sorted({home, *some(dice, disks)}))
        if dice.random() < 0.2:
            items.append(Item(size, usable[:1], usable[1:]))
        else:
            items.append(Item(size, usable))
    if dice.random() < 0.5:
        free[whole(dice, 0, disks - 1)] += whole(dice, -1, 1)
    return items, [max(0, room) for room in free]


def packing_steps(dice: Random) -> int:
    items, free = tight(dice)
    steps = Steps(PACK_STEPS)
    pack(items, free, steps)
    return PACK_STEPS - steps.left


def test_a_search_takes_no_more_steps_than_it_did() -> None:
    taken = [sum(packing_steps(Random(f"{batch}-{number}")) for number in range(60)) for batch in range(6)]
    assert [538, 477, 543, 449, 496, 460] == taken


# Judging


def fit(*demands: VolumeDemand, taken: Taken | None = None) -> PodFit:
    """Beside what is taken on n1, which has 100 bytes; n2 has 10."""
    world = world_of(room("d1", 100))
    world.put_node("n2", node("n2", room("d2", 10)))
    return PodFit(world, Chooser(world), demands, taken or NothingTaken())


def test_a_node_whose_disks_are_all_too_small_needs_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = counted(monkeypatch, PodFit, "judge")
    found = fit(local(60, "a"), local(5, "b")).judge_all(["n1", "n2"])
    assert (True, FULL) == (found["n1"].is_sure, found["n2"])
    assert 1 == len(looks)


def test_the_nodes_of_a_usual_pod_need_no_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counted(monkeypatch, pod_fit, "pack")
    found = fit(local(60)).judge_all(["n1", "n2"])
    assert (True, FULL) == (found["n1"].is_sure, found["n2"])
    assert not seen


@pytest.mark.parametrize(("taken", "packings"), [(40, 1), (41, 2)])
def test_a_sure_node_costs_one_packing_and_another_one_a_second(
    monkeypatch: pytest.MonkeyPatch, taken: int, packings: int
) -> None:
    seen = counted(monkeypatch, pod_fit, "pack")
    others = Plus(NothingTaken(), [Place("n1", "n1-d1", taken)])
    assert (packings == 1) is fit(local(60, required_bytes=1), taken=others).judge("n1").is_sure
    assert packings == len(seen)


# Whole questions


def test_a_volume_that_goes_anywhere_costs_a_search_for_each_copy_however_many_nodes_are_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"n{number}" for number in range(50)]
    cluster = TestCluster().add_nodes(**dict.fromkeys(names, 100))
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    cluster.add_pod("asks", ("asks", 10, "three"))
    searches, looks = counted(monkeypatch, Chooser, "choose"), counted(monkeypatch, PodFit, "judge")

    assert set(names) == cluster.offered("asks", *names)

    assert (3, 1) == (len(searches), len(looks))


def test_a_wake_up_looks_once_for_sizes_that_reach_the_same_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    for name in ("n1", "n2"):
        cluster.add_pod(f"on-{name}", gib=60)
        assert cluster.offered(f"on-{name}", name)
        cluster.select_node(f"on-{name}", name)
    for number in range(20):
        cluster.add_pod(f"p{number}", gib=60 + number / 10)
        assert not cluster.offered(f"p{number}", "n1", "n2")
    looks = counted(monkeypatch, PodFit, "open_among")
    cluster.plan_wakeups()
    assert 1 == len(looks)


# Events: claims that very many pods share, and pods that have very many claims


def shared(*, pods: int, claims: int, class_name: str = "longhorn") -> TestCluster:
    """Nodes n1 and n2, and pods `p0`, `p1`, ... that all use the claims `c0`, `c1`, ..."""
    cluster = TestCluster().add_nodes(n1=1000, n2=1000)
    for number in range(claims):
        cluster.add_claim(f"c{number}", 1, class_name=class_name)
    for number in range(pods):
        cluster.add_pod(f"p{number}", *cluster.claims)
    return cluster


@pytest.mark.parametrize("state", ["pending", "answered", "all answered", "bound"])
@pytest.mark.parametrize(
    "change", [{"requested_bytes": 5}, {"selected_node": "n2"}, {"volume_name": "gone"}, {"is_deleting": True}], ids=str
)
def test_a_change_of_a_claim_costs_its_volume_alone(
    monkeypatch: pytest.MonkeyPatch, state: str, change: dict[str, Any]
) -> None:
    class_name = "roaming" if state == "all answered" else "longhorn"
    cluster = shared(pods=5, claims=20, class_name=class_name)
    for number in range({"answered": 1, "all answered": 5}.get(state, 0)):
        assert cluster.offered(f"p{number}", "n1")
    for number in range(5 if state == "bound" else 0):
        cluster.bind(f"p{number}", "n1")
    planned = counted(monkeypatch, Planner, "settle")

    cluster.set_claim(replace(cluster.claims["c3"], **change))

    assert len(planned) <= 2


def test_a_choice_costs_each_volume_of_its_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = shared(pods=5, claims=20)
    assert cluster.offered("p0", "n1", "n2")
    planned = counted(monkeypatch, Planner, "settle")

    cluster.select_node("c3", "n2")

    assert 21 == len(planned)
    assert {"n2"} == {place.node for plan in cluster.allocator._table.plans() for place in plan.places}
    assert 20 == len(cluster.allocator._table.plans())


@pytest.mark.parametrize("is_bound", [False, True], ids=["pending", "bound"])
def test_a_pod_that_comes_or_changes_costs_its_volumes_once_at_most(
    monkeypatch: pytest.MonkeyPatch, is_bound: bool
) -> None:
    cluster = shared(pods=5, claims=20)
    for number in range(5 if is_bound else 0):
        cluster.bind(f"p{number}", "n1")
    planned = counted(monkeypatch, Planner, "settle")

    cluster.change_pod("p1", priority=7)
    assert not planned

    cluster.drop_pod("p1")
    cluster.add_pod("new", *cluster.claims)
    assert len(planned) <= 20


def test_the_volumes_of_a_pod_are_planned_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = shared(pods=1, claims=20)
    assert cluster.offered("p0", "n1", "n2")
    held = cluster.allocator._table.hold("pod-p0")
    assert held is not None
    cluster.make_looks_cost(SLICE_SECONDS)
    cluster.allocator._settler._clock = cluster.allocator._clock
    planned, left = counted(monkeypatch, Planner, "settle"), list[tuple[int, int]]()

    def let_in(_seconds: float) -> None:
        """Between two holds of the lock: the choice counts, and every byte is a plan's or still the pod's."""
        table = cluster.allocator._table
        left.append((len(planned), table.taken_by_node().get("n2", 0) // GIB))
        assert "n1" not in table.taken_by_node()

    monkeypatch.setattr(time, "sleep", let_in)
    cluster.select_node("c3", "n2")

    assert len(left) >= 10
    assert {20} == {gib for _, gib in left}
    assert 20 == len(cluster.allocator._table.plans())
    narrowed = cluster.allocator._table.hold("pod-p0")
    assert narrowed is not None
    assert ("n2", 0) == (narrowed.chosen, narrowed.size_bytes)


def test_a_claim_of_very_many_pods_has_them_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TestCluster().add_nodes(n1=1000, n2=1000, n3=1000)
    cluster.add_volume("shared", on="n1")
    for number in range(30):
        cluster.add_pod(f"p{number}", "shared")
        cluster.bind(f"p{number}", f"n{1 + number % 3}")
    sorts = counted(monkeypatch, SharedClaims, "_bound")

    cluster.set_claim(replace(cluster.claims["shared"], is_deleting=True))

    assert len(sorts) <= 2


def test_a_replica_that_comes_has_plans_beside_it_looked_at_only_where_bytes_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = shared(pods=1, claims=20)
    assert cluster.offered("p0", "n1")
    cluster.select_node("c3", "n1")
    looks = counted(monkeypatch, Planner, "_is_illegal")

    cluster.add_volume("another", 900, on="n1")
    assert not looks
    cluster.add_volume("one-more", 90, on="n1")
    assert 10 == sum(place.node == "n1" for plan in cluster.allocator._table.plans() for place in plan.places)
    assert 20 == len(cluster.allocator._table.plans())

    cluster.put_node(node("n1", free_gib=1000))
    assert len(looks) >= 10


def test_a_pod_of_very_many_volumes_is_packed_like_any_other() -> None:
    items = [Item(1 + number % 3, (0, 1)) for number in range(3000)]
    found = pack(items, [3000, 3000], Steps(PACK_STEPS))
    assert found is not None
    assert 6000 == sum(found.size_bytes)
    assert pack(items, [3000, 2999], Steps(PACK_STEPS)) is None


def test_a_pod_of_many_volumes_has_few_nodes_judged_before_others_are_let_in() -> None:
    lots = [fit(*(local(1, f"v{number}") for number in range(count))).lot for count in (0, 1, 8, 9, 64, 1000)]
    assert [LOT, LOT, LOT, 28, 4, 1] == lots


def test_bytes_beside_many_own_volumes_cost_a_look_at_those_on_the_disk() -> None:
    class Seen(dict[str, dict[str, int]]):
        looks = 0

        def __contains__(self, key: object) -> bool:
            Seen.looks += 1
            return super().__contains__(key)

    table = Table()
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for name in ("own-3", "another"):
        table.put(Plan(name, "", (Place("n1", "n1-d1", 5),), (), since))
    table._holders["n1", "n1-d1"] = Seen(table._holders["n1", "n1-d1"])
    assert 5 == table.taken_bytes("n1", "n1-d1", {f"own-{number}" for number in range(1000)})
    assert 0 == Seen.looks


def test_pods_that_rest_cost_other_pods_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    for number in range(50):
        assert not cluster.ask(f"huge-{number}", 500, "n1")
    cluster.add_pod("small", gib=1)
    looks = counted(monkeypatch, Table, "hold")
    assert cluster.offered("small", "n1")
    assert len(looks) < 20


def test_what_is_due_asks_for_few_reads_at_a_time() -> None:
    cluster = TestCluster().add_nodes(n1=1000)
    for name in "abcdef":
        cluster.add_pod(name, *((f"{name}{number}", 0.1) for number in range(200)))
        assert cluster.offered(name, "n1")
    cluster.clock.advance(60)
    seen = set[str]()
    while found := cluster.allocator.due():
        assert sum(len(one.reads) for one in found) < 2 * MOST_READS
        seen.update(one.claimant for one in found)
        for one in found:
            cluster.allocator.expire(one)
    assert {f"pod-{name}" for name in "abcdef"} == seen


# Demands: worked out once, and never older than the facts


def some_fact(dice: Random) -> tuple[str, str, object | None]:
    """An object of one of the kinds that demands follow from, one of a few that refer to each other, or its end."""
    name, other, third = (dice.choice("abc") for _ in range(3))
    volume_name = dice.choice(("", "", "v1", "v2", f"pvc-uid-{other}"))
    kind = dice.choice(("claim", "claim", "pv", "pv", "volume", "replica", "class"))
    if kind == "claim":
        source = dice.choice(("", "", f"PersistentVolumeClaim/{other}"))
        chosen = dice.choice(("", "n1"))
        made = claim(name, dice.choice((1, 2)), volume_name=volume_name, data_source=source, selected_node=chosen)
        return kind, made.key, made if dice.random() < 0.8 else None
    is_there = dice.random() < 0.8
    if kind == "pv":
        key = volume_name or "v1"
        handle, owner = dice.choice((key, f"pvc-uid-{other}")), dice.choice(("", "", f"ns/{third}"))
        uid = dice.choice(("", f"uid-{third}")) if owner else ""
        spare = dice.choice(("", "longhorn")) if not owner else ""
        pv = PersistentVolume(key, DRIVER, handle, uid, owner, GIB, LATER, class_name=spare, is_spare=bool(spare))
        return kind, key, pv if is_there else None
    volume_name = volume_name or "v1"
    if kind == "volume":
        one = volume(volume_name, dice.choice((1, 2)), replica_count=dice.choice((1, 2)))
        return kind, volume_name, one if is_there else None
    if kind == "replica":
        copy = replica(f"{volume_name}-r", volume_name, 1, on=dice.choice(("", "n1")))
        return kind, copy.name, copy if is_there else None
    parameters = dice.choice((ONE_LOCAL, {"numberOfReplicas": "3"}))
    return kind, "longhorn", storage_class("longhorn", parameters) if dice.random() < 0.8 else None


@pytest.mark.parametrize("seed", range(20))
def test_a_demand_is_as_the_facts_have_it(seed: int) -> None:
    cluster, dice = TestCluster().add_nodes(n1=400), Random(seed)
    world = cluster.allocator._world
    for _ in range(200):
        observe(cluster.allocator, *some_fact(dice))
        for one in world.claims.values():
            assert demand_of_claim(one, world, world.settings) == world.demand_for(one)


def test_a_filter_call_works_out_again_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = shared(pods=2, claims=20)
    cluster.add_claim("another", 1)
    assert cluster.offered("p0", "n1")
    found = counted(monkeypatch, facts_module, "demand_of_claim")

    cluster.set_claim(replace(cluster.claims["another"], requested_bytes=5))
    cluster.set_claim(replace(cluster.claims["c3"], requested_bytes=5))
    assert cluster.offered("p0", "n1")

    assert 2 == len(found)
