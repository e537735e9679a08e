"""Sets of replicas that Longhorn may place anywhere: on every disk that one may come to, all that may goes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.judge.node import Judge
from controller.allocator.judge.pending import Pending
from controller.allocator.judge.sets import SetJudge, WantedCopies
from controller.allocator.judge.verdict import Verdict
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import ANYWHERE, State, Verb
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, LonghornSettings
from controller.rules.demand import VolumeDemand
from tests.fakes.builders import EPOCH, TestCluster, node, promise, replica
from tests.fakes.rooms import OPEN, roaming, room


@dataclass(frozen=True)
class Pod:
    """A pending item of the brute force: its size, and on how many nodes it lands at most."""

    size: int
    copies: int
    node: str = ""  # bound to it


@dataclass(frozen=True)
class SmallWorld:
    """Free bytes by node and disk; zones by node."""

    free: tuple[tuple[int, ...], ...]
    zones: tuple[str, ...]
    pending: tuple[Pod, ...]
    size: int
    copies: int
    zone_soft: bool = True
    node_soft: bool = False
    disk_soft: bool = True

    @property
    def names(self) -> list[str]:
        return [f"n{index}" for index in range(len(self.free))]


def world_of(small: SmallWorld) -> World:
    world = World()
    world.put_settings(
        replace(
            OPEN,
            degraded_availability=False,
            soft_anti_affinity=small.node_soft,
            zone_soft_anti_affinity=small.zone_soft,
            disk_soft_anti_affinity=small.disk_soft,
        )
    )
    for name, frees, zone in zip(small.names, small.free, small.zones, strict=True):
        world.put_node(name, node(name, *(room(f"d{index}", free) for index, free in enumerate(frees)), zone=zone))
    return world


def ledger_of(small: SmallWorld, world: World) -> Ledger:
    """The pending items as the allocator would hold them: claims whose class says how many copies they have."""
    ledger = Ledger()
    for index, item in enumerate(small.pending):
        made = promise(
            f"u{index}",
            item.node or ANYWHERE,
            f"pod-{index}",
            size=item.size,
            state=State.ASSUMED,
            copies=item.copies,
            per_disk=item.copies if shares_disks(small) else 1,
        )
        ledger.put(Verb.ASSUME, made)
    return ledger


def shares_disks(small: SmallWorld) -> bool:
    return small.node_soft and small.zone_soft and small.disk_soft


def verdict_of(small: SmallWorld, *, needs_all: bool = True) -> Verdict:
    world = world_of(small)
    pending = Pending(world, ledger_of(small, world), frozenset({"mine"}))
    wanted = WantedCopies(roaming(small.size, "mine", small.copies), small.copies, needs_all)
    return SetJudge(world, [wanted], pending).judge().verdict


# Brute force

Free = tuple[tuple[int, ...], ...]


def every_end(small: SmallWorld) -> set[Free]:
    """All rooms that may be left once what is pending was placed in any order, every copy on a disk with room at its
    turn; copies of one volume go to different nodes, or to different disks, as far as those are not soft."""
    landings = [(index, item) for index, item in enumerate(small.pending) for _ in range(item.copies)]
    ends: set[Free] = set()

    def go(order: Sequence[tuple[int, Pod]], free: Free, taken: frozenset[tuple[int, int, int]]) -> None:
        if not order:
            ends.add(free)
            return
        number, item = order[0]
        placed = False
        for where, disks in enumerate(free):
            if item.node and small.names[where] != item.node:
                continue
            beside = [place[2] for place in taken if place[:2] == (number, where)]
            if beside and not (small.node_soft and small.zone_soft):
                continue
            for index, space in enumerate(disks):
                if space >= item.size and (small.disk_soft or index not in beside):
                    placed = True
                    left = (*disks[:index], space - item.size, *disks[index + 1 :])
                    go(order[1:], (*free[:where], left, *free[where + 1 :]), taken | {(number, where, index)})
        if not placed:
            go(order[1:], free, taken)

    for order in set(permutations(landings)):
        go(order, tuple(small.free), frozenset())
    return ends


def capacity(small: SmallWorld, free: Free) -> int:
    """How many replicas Longhorn finds room for, one after the other."""
    slots = [[room // small.size for room in disks] for disks in free]
    if not small.zone_soft:
        return len({zone for zone, disks in zip(small.zones, slots, strict=True) if any(disks)})
    if not small.node_soft:
        return sum(1 for disks in slots if any(disks))
    if small.disk_soft:
        return sum(sum(disks) for disks in slots)
    return sum(1 for disks in slots for room in disks if room)


def expected_verdict(small: SmallWorld, *, needs_all: bool = True) -> Verdict:
    """The rule as it is written down, disk by disk."""
    copies = small.copies if needs_all else 1
    if capacity(small, small.free) < copies:
        roomy = tuple(tuple(small.size * copies for _ in disks) for disks in small.free)
        return Verdict.FULL if capacity(small, roomy) >= copies else Verdict.UNSUITABLE
    for name, disks in zip(small.names, small.free, strict=True):
        for space in disks:
            items = [(item.size, item.copies) for item in small.pending if item.node in ("", name)]
            items.append((small.size, small.copies))
            load = sum(size * min(count if shares_disks(small) else 1, space // size) for size, count in items)
            if small.size <= space < load:
                return Verdict.CONTENDED
    return Verdict.SURE


@st.composite
def small_worlds(draw: st.DrawFn, *, roaming: bool = True, most: int = 3) -> SmallWorld:
    count = draw(st.integers(1, 3))
    free = tuple(tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=2))) for _ in range(count))
    nodes = st.sampled_from([f"n{index}" for index in range(count)])
    roamers = st.builds(Pod, st.integers(1, 8), st.integers(1, 2))
    bound = st.builds(Pod, st.integers(1, 8), st.just(1), nodes)
    items = draw(st.lists(st.one_of(roamers, bound) if roaming else bound, max_size=most))
    while sum(item.copies for item in items) > 4:  # the brute force tries every order
        items.pop()
    return SmallWorld(
        free=free,
        zones=tuple(draw(st.sampled_from(["a", "b"])) for _ in range(count)),
        pending=tuple(items),
        size=draw(st.integers(1, 8)),
        copies=draw(st.integers(1, 3)),
        zone_soft=draw(st.booleans()),
        node_soft=draw(st.booleans()),
        disk_soft=draw(st.booleans()),
    )


@settings(max_examples=400, deadline=None)
@given(small_worlds())
def test_a_set_that_is_sure_finds_room_wherever_pending_items_land(small: SmallWorld) -> None:
    if verdict_of(small) is Verdict.SURE:
        assert all(capacity(small, end) >= small.copies for end in every_end(small))


@settings(max_examples=400, deadline=None)
@given(small_worlds(), st.booleans())
def test_a_set_is_judged_by_the_sums(small: SmallWorld, needs_all: bool) -> None:
    assert expected_verdict(small, needs_all=needs_all) is verdict_of(small, needs_all=needs_all)


@pytest.mark.parametrize(("volumes", "expected"), [(9, Verdict.SURE), (10, Verdict.CONTENDED)])
def test_every_disk_has_room_for_all_that_roams(volumes: int, expected: Verdict) -> None:
    """Of each volume one copy at most comes to a node with a disk of 100."""
    small = SmallWorld(free=((100,),) * 20, zones=("",) * 20, pending=(Pod(10, 3),) * volumes, size=10, copies=3)

    assert expected is verdict_of(small)


@pytest.mark.parametrize(("small_disk", "expected"), [(39, Verdict.SURE), (40, Verdict.CONTENDED), (90, Verdict.SURE)])
def test_what_is_too_large_for_a_disk_is_no_load_there(small_disk: int, expected: Verdict) -> None:
    small = SmallWorld(free=((90,), (small_disk,)), zones=("", ""), pending=(Pod(50, 1),), size=40, copies=1)
    beside = replace(small, pending=(Pod(39, 1), Pod(11, 1)))

    assert (Verdict.SURE, expected) == (verdict_of(small), verdict_of(beside))


ZONES = SmallWorld(free=((10,),) * 4, zones=("a", "a", "b", "b"), pending=(), size=10, copies=2, zone_soft=False)
SHARED = SmallWorld(free=((20, 10),), zones=("",), pending=(), size=10, copies=3, node_soft=True)


@pytest.mark.parametrize(
    ("small", "change", "expected"),
    [
        pytest.param(ZONES, {}, Verdict.SURE, id="a zone for each copy"),
        pytest.param(ZONES, {"copies": 3}, Verdict.UNSUITABLE, id="too few zones"),
        pytest.param(ZONES, {"copies": 3, "zone_soft": True}, Verdict.SURE, id="zones are soft"),
        pytest.param(ZONES, {"free": ((10,), (10,), (9,), (9,))}, Verdict.FULL, id="a zone is full"),
        pytest.param(SHARED, {}, Verdict.SURE, id="several copies share a disk"),
        pytest.param(SHARED, {"copies": 4}, Verdict.FULL, id="as far as there is room"),
        pytest.param(SHARED, {"disk_soft": False}, Verdict.UNSUITABLE, id="disks are hard"),
        pytest.param(SHARED, {"node_soft": False}, Verdict.UNSUITABLE, id="nodes are hard"),
    ],
)
def test_each_copy_needs_a_place_of_its_own_as_far_as_anti_affinity_is_hard(
    small: SmallWorld, change: dict[str, Any], expected: Verdict
) -> None:
    assert expected is verdict_of(replace(small, **change))


# A pod's volumes together


@pytest.mark.parametrize(("second", "expected"), [(2, Verdict.SURE), (3, Verdict.CONTENDED), (11, Verdict.FULL)])
def test_two_sets_of_one_pod_go_together_on_every_disk(second: int, expected: Verdict) -> None:
    world = world_of(SmallWorld(free=((10, 6),), zones=("",), pending=(), size=1, copies=1))
    judge = Judge(world, Ledger(), (roaming(4, "a"), roaming(second, "b")), 0.0)
    [(_, judgement)] = judge.judge_sets(sorted(world.nodes))
    assert expected is judgement.verdict


# What the volume has already


def placed(world: World, *replicas: tuple[str, dict[str, Any]]) -> World:
    for index, (where, fields) in enumerate(replicas):
        facts = replica(f"r{index}", "mine", on=where, disk_name="d0", **fields)
        world.put_replica(facts.name, replace(facts, size_bytes=0))
    return world


def set_verdict(world: World, demand: VolumeDemand) -> Verdict:
    return (
        SetJudge(world, [WantedCopies(demand, 1, needs_all=True)], Pending(world, Ledger(), frozenset()))
        .judge()
        .verdict
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Verdict.UNSUITABLE),
        ({"eviction_requested": True}, Verdict.SURE),
        ({"deleting": True}, Verdict.SURE),
        ({"failed_at": EPOCH}, Verdict.UNSUITABLE),
        ({"failed_at": EPOCH, "rebuild_retry_count": 5}, Verdict.SURE),
    ],
)
def test_a_node_with_a_replica_takes_another_one_only_when_that_goes(fields: dict[str, Any], expected: Verdict) -> None:
    world = world_of(SmallWorld(free=((10, 10),), zones=("",), pending=(), size=10, copies=1))
    placed(world, ("n0", fields))

    assert expected is set_verdict(world, roaming(10, "mine"))


def test_a_used_node_needs_no_tags_where_nodes_are_shared() -> None:
    small = SmallWorld(free=((10, 10),), zones=("",), pending=(), size=10, copies=1, node_soft=True)
    demand = replace(roaming(10, "mine"), needs=replace(DEFAULT_NEEDS, node_selector=("ssd",)))

    assert Verdict.UNSUITABLE is set_verdict(world_of(small), demand)
    assert Verdict.SURE is set_verdict(placed(world_of(small), ("n0", {})), demand)


@pytest.mark.parametrize("is_degraded_allowed", [False, True])
def test_one_placed_replica_is_enough_only_where_degraded_volumes_are_allowed(is_degraded_allowed: bool) -> None:
    """The volume's other replica finds no room."""
    cluster = TestCluster(settings=LonghornSettings(degraded_availability=is_degraded_allowed))
    cluster.add_nodes(n1=400, n2=50)
    cluster.add_pod("a", ("a", 100, "roaming"))
    name = cluster.provision("a", copies=2, locality="disabled")
    cluster.place(name, "n1")
    assert is_degraded_allowed == bool(cluster.offered("a", "n1", "n2"))
