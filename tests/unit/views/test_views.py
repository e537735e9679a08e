"""Several people ask while the cluster changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.views.views import Views
from tests.fakes.builders import GIB, TestCluster
from tests.unit.views.asking import everything

ROUNDS = 40


def test_questions_beside_changes_are_answered_from_one_moment() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=400)
    views, names = Views(cluster.allocator), ("n1", "n2")
    cluster.ask("waits", 900, *names)
    failures, is_over = list[BaseException](), threading.Event()

    def change() -> None:
        for number in range(ROUNDS):
            name = f"p{number}"
            assert cluster.ask(name, 10, *names)
            cluster.select_node(name, "n1")
            cluster.run(name, name, "n1", 10)
            cluster.clock.advance(1)
            cluster.allocator.sweep()

    def ask() -> None:
        while not is_over.is_set():
            found = views.parts()
            assert sum(one.used_bytes + one.planned_bytes for one in found.disks) <= ROUNDS * 10 * GIB
            assert "waits" == views.explain_pod("ns", "waits", everything).state
            assert {"n1", "n2"} == {one.node for one in views.capacity().nodes}

    def tell() -> None:
        while not is_over.is_set():
            assert "900 GiB" in cluster.allocator.account_of("pod-waits", names)

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return run

    askers = [threading.Thread(target=guarded(work)) for work in (ask, ask, tell)]
    changer = threading.Thread(target=guarded(change))
    for thread in (*askers, changer):
        thread.start()
    changer.join(60)
    is_over.set()
    for thread in askers:
        thread.join(60)
    assert [] == failures
    cluster.clock.advance(2)
    (first, second) = views.parts().disks
    assert (ROUNDS * 10, 0, 0) == (first.used_bytes // GIB, first.planned_bytes, second.used_bytes)


@pytest.mark.parametrize("allowed", [True, False])
def test_nobody_waits_while_the_api_server_is_asked_what_a_caller_may_see(*, allowed: bool) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.ask("waits", 900, "n1")
    name = cluster.add_volume("c", 10)
    cluster.attach(name, "n1", 10)
    pv = cluster.allocator.look().world.pvs[name]
    cluster.allocator.observe_claim("ns/c", None)
    cluster.allocator.observe_claim("other/c", replace(cluster.claims["c"], namespace="other"))
    cluster.allocator.observe_pv(name, replace(pv, claim_key="other/c"))
    cluster.clock.advance(2)
    views, asked, seen = Views(cluster.allocator), list[str](), list[int]()

    def may_see(namespace: str) -> bool:
        asked.append(namespace)
        asker = threading.Thread(target=lambda: seen.append(views.parts().totals.disks), daemon=True)
        asker.start()
        asker.join(30)
        return namespace == "ns" or (allowed and bool(namespace))

    found = views.explain_pod("ns", "waits", may_see)
    assert (["", "ns", "other"], [1, 1, 1]) == (asked, seen)
    assert ["other/c" if allowed else ""] == [one.name for node in found.nodes for one in node.holders]
