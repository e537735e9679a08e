"""The one loop over nodes: its order, its lots, and what a budget did not reach."""

from __future__ import annotations

from dataclasses import replace

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import LOT, PodFit
from controller.allocator.choose.search import NodeSearch, in_order, search_all, within
from controller.allocator.choose.wanted import NothingTaken, Plus
from controller.model.longhorn import DiskNeeds
from controller.model.places import Place
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster, disk
from tests.fakes.clock import TickingClock
from tests.fakes.rooms import local, room, world_of

NAMES = [f"n{number:03}" for number in range(200)]


def test_nodes_with_data_come_first_then_what_was_not_reached_then_quiet_ones_then_those_with_the_least_taken() -> None:
    near = replace(local(1), home_nodes=frozenset({"n5"}))
    names = ("n1", "n2", "n3", "n4", "n5")

    assert ["n5", "n4", "n3", "n2", "n1"] == list(in_order(names, [near], {"n1": 7, "n2": 3}, unreached={"n4"}))


def test_where_nothing_is_taken_the_order_is_that_of_the_question() -> None:
    names = ("n2", "n1")
    assert names is in_order(names, [local(1)], {})


def test_nodes_with_data_come_first_where_nothing_is_taken_too() -> None:
    near = replace(local(1), home_nodes=frozenset({"n2"}))
    assert ["n2", "n1"] == list(in_order(("n1", "n2"), [near], {}))


def test_lots_are_taken_for_as_long_as_the_budget_lasts() -> None:
    clock = TickingClock(0.01)
    assert [["a", "b"], ["c"]] == list(within(Budget.of(clock, 1_000), ["a", "b", "c"], 2))
    assert [["a", "b"]] == list(within(Budget.of(clock, 15), ["a", "b", "c"], 2))


def crowded_fit(sure: str) -> PodFit:
    """Nodes whose disks have the tag that is asked for, each with 100 bytes of which others have 60, but for one."""
    world = world_of(room("d1", 100, tags=frozenset({"ssd"})), names=NAMES)
    taken = Plus(NothingTaken(), [Place(name, f"{name}-d1", 10 if name == sure else 60) for name in NAMES])
    return PodFit(world, Chooser(world), [local(50, needs=DiskNeeds(disk_selector=("ssd",)))], taken)


def test_a_search_goes_on_where_it_stopped() -> None:
    fit, search = crowded_fit("n199"), NodeSearch(NAMES)
    rounds = 1
    while not search.go_on(fit, lambda _sure: False, lambda: True):
        assert len(NAMES) - rounds * LOT == len(search.rest)
        rounds += 1

    assert -(-len(NAMES) // LOT) == rounds
    assert (["n199"], {*NAMES} - {"n199"}) == (list(search.sure), set(search.refused))


def test_it_ends_with_the_lot_in_which_enough_is_sure() -> None:
    search = search_all(crowded_fit(NAMES[LOT]), NAMES, bool)

    assert [NAMES[LOT]] == list(search.sure)
    assert NAMES[2 * LOT :] == list(search.rest)


def test_what_one_call_had_no_time_for_comes_first_in_the_next() -> None:
    cluster = TestCluster(live=LiveSettings(enabled=True, max_offers=1000))
    cluster.add_class("copied", dataLocality="best-effort", numberOfReplicas="1", diskSelector="ssd")
    for name in NAMES:
        cluster.add_node(name, disk("d1", 100 if name == "n199" else 40, tags=("ssd",)))
    cluster.add_pod("asks", ("asks", 50, "copied"))
    cluster.make_looks_cost(0.001)
    calls, seen = 0, set[str]()
    while calls < 12 and not cluster.offered("asks", *NAMES):
        calls += 1
        refused = cluster.filter("asks", *NAMES).refused
        seen |= {name for name, reason in refused.items() if reason is not Reason.NOT_EVALUATED}

    assert 1 < calls <= 5
    assert len(seen) < len(NAMES)
