"""The one loop over nodes: its order, its lots, and what a budget did not reach."""

from __future__ import annotations

from dataclasses import replace

from controller.allocator.judge.search import LOT, NodeSearch, in_order
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Verb
from controller.model.longhorn import DiskNeeds
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk, promise
from tests.fakes.rooms import local


def ledger_of(**sizes: int) -> Ledger:
    return Ledger.of(promise(f"v-{name}", name, size=size) for name, size in sizes.items())


def test_nodes_with_data_come_first_then_what_was_not_reached_then_quiet_ones_then_the_least_promised() -> None:
    near = replace(local(1), home_nodes=frozenset({"n5"}))
    names = ("n1", "n2", "n3", "n4", "n5")
    found = in_order(names, [near], ledger_of(n1=7, n2=3), unreached={"n4"})

    assert ["n5", "n4", "n3", "n2", "n1"] == list(found)


def test_what_is_planned_beside_the_ledger_counts_as_promised() -> None:
    planned = {"n1": 9}
    names = ("n1", "n2", "n3")
    found = in_order(names, [local(1)], ledger_of(n2=3), more_bytes=lambda name: planned.get(name, 0))
    assert ["n3", "n2", "n1"] == list(found)


def test_a_cluster_without_promises_keeps_the_order_of_the_question() -> None:
    names = ("n2", "n1")
    assert names is in_order(names, [local(1)], Ledger())


def crowded(sure: str) -> TestCluster:
    """Two hundred nodes that take a closer look each and have no room beside what is promised, but for one."""
    cluster = TestCluster(live=LiveSettings(enabled=True, max_offers=1000))
    cluster.add_class("copied", dataLocality="best-effort", numberOfReplicas="1", diskSelector="ssd")
    names = [f"n{index:03}" for index in range(200)]
    for name in names:
        cluster.add_node(name, disk("d1", 100, tags=("ssd",)))
        size = 10 if name == sure else 60
        cluster.allocator._ledger.put(Verb.HOLD, promise(f"other-{name}", name, size=size * GIB, since=-100.0))
    cluster.add_pod("asks", ("asks", 50, "copied"))
    cluster.make_looks_cost(0.001)
    return cluster


def test_what_one_call_had_no_time_for_comes_first_in_the_next() -> None:
    names = [f"n{index:03}" for index in range(200)]
    cluster = crowded(sure="n199")
    calls, seen = 0, set[str]()
    while calls < 12 and not cluster.offered("asks", *names):
        calls += 1
        refused = cluster.filter("asks", *names).refused
        seen |= {name for name, reason in refused.items() if reason is not Reason.NOT_EVALUATED}

    assert calls <= 4
    assert len(seen) < len(names)


def test_a_search_goes_on_where_it_stopped() -> None:
    cluster = crowded(sure="n199")
    filtering = cluster.allocator._filtering_locked(0.0)
    judge = filtering._judge(cluster.pods["asks"], [local(1, needs=DiskNeeds(disk_selector=("ssd",)))])
    names = sorted(cluster.allocator._world.nodes)
    search = NodeSearch(names)
    rounds = 1
    while not search.go_on(judge, lambda _sure: False, lambda: True):
        assert len(names) - rounds * LOT == len(search.rest)
        rounds += 1

    assert -(-len(names) // LOT) == rounds
    assert set(names) == {*search.sure, *search.refused}
