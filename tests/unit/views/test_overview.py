"""Disks, what is taken, and who waits, as people see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.views.documents import DiskView
from controller.views.overview import disk_views, parts_of, taken_views, totals_of, waiting_pods
from tests.fakes.builders import GIB, TestCluster, disk, node
from tests.unit.views.asking import add_twin


def views_of(cluster: TestCluster) -> dict[tuple[str, str], DiskView]:
    cluster.clock.advance(2)
    return {(one.node, one.disk): one for one in disk_views(cluster.allocator.look())}


def gib(view: DiskView) -> tuple[int, ...]:
    """Limit, used, planned, held, growth and free."""
    parts = view.limit_bytes, view.used_bytes, view.planned_bytes, view.held_bytes, view.growth_bytes, view.free_bytes
    return tuple(part // GIB for part in parts)


def test_a_disk_tells_what_lies_on_it_and_what_is_promised_there() -> None:
    cluster = TestCluster().add_nodes(n1=400)
    cluster.add_volume("stored", 100)
    cluster.ask("held", 30, "n1")
    cluster.ask("chosen", 20, "n1")
    cluster.select_node("chosen", "n1")
    assert (400, 100, 20, 30, 0, 250) == gib(views_of(cluster)["n1", "d1"])
    assert (1, 1, 250 * GIB) == (
        (found := totals_of(disk_views(cluster.allocator.look()))).nodes,
        found.disks,
        found.free_bytes,
    )


def test_what_lies_on_one_of_two_disks_of_a_uuid_counts_on_both() -> None:
    cluster = TestCluster().add_nodes(n1=400)
    add_twin(cluster)
    cluster.add_volume("stored", 100)
    cluster.ask("held", 30, "n1")
    found = views_of(cluster)
    assert [(400, 100, 0, 30, 0, 270)] * 2 == [gib(found["n1", "d1"]), gib(found["n2", "d1"])]


@pytest.mark.parametrize(
    ("of_node", "of_disk", "reason"),
    [
        ({"allow_scheduling": False}, {}, "NodeUnschedulable"),
        ({"ready": False}, {}, "NodeNotReady"),
        ({}, {"allow_scheduling": False}, "DiskUnschedulable"),
        ({}, {"schedulable": False, "is_under_pressure": True}, "DiskPressure"),
        ({}, {"available_bytes": 100 * GIB}, "DiskPressure"),
        ({}, {}, ""),
    ],
)
def test_a_closed_disk_says_why(of_node: dict[str, object], of_disk: dict[str, object], reason: str) -> None:
    cluster, facts = TestCluster(), node("n1", disk())
    cluster.add_node("n1")
    changed = replace(facts, disks=(replace(facts.disks[0], **of_disk),), **of_node)  # type: ignore[arg-type]
    cluster.put_node(changed)
    (found,) = views_of(cluster).values()
    assert reason == found.closed.split(": ")[0]
    assert bool(reason) is (totals_of([found]).free_bytes == 0)


def test_rows_of_what_is_taken_are_bounded_and_the_rest_is_counted() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=400)
    cluster.ask("held", 30, "n1", "n2")
    cluster.ask("chosen", 20, "n1")
    cluster.select_node("chosen", "n1")
    cluster.clock.advance(2)
    look = cluster.allocator.look()
    rows, more = taken_views(look)
    assert [("ns/chosen", "n1", "plan"), ("ns/held", "n1", "answer"), ("ns/held", "n2", "answer")] == sorted(
        [(row.claim, row.node, row.kind) for row in rows]
    )
    assert "plan" == rows[0].kind
    assert 0 == more
    assert (1, 2) == (len((few := taken_views(look, 1))[0]), few[1])


def test_a_pod_that_was_refused_waits_with_what_the_last_call_found() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_node("n3")
    cluster.put_node(replace(node("n3"), ready=False))
    cluster.ask("large", 200, "n1", "n2", "n3")
    cluster.clock.advance(2)
    ((found,), more) = waiting_pods(cluster.allocator.look())
    assert ("ns", "large", "refused", 0) == (found.namespace, found.name, found.decision, more)
    assert {"InsufficientStorage": 2, "NodeNotReady": 1} == dict(found.reasons)
    assert found.text == ("3 nodes refused: not enough space on the node's disks (2), node is not ready (1).")
    assert found.tried == found.since
    assert cluster.allocator.look().mode == parts_of(cluster.allocator.look()).mode


def test_the_longest_waiting_come_first_and_the_others_are_counted() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    for number in (3, 1, 2):
        cluster.add_pod(f"p{number}", gib=200, created=f"2026-01-01T00:00:0{number}Z")
        cluster.filter(f"p{number}", "n1")
    cluster.clock.advance(2)
    found, more = waiting_pods(cluster.allocator.look(), 2)
    assert (["p1", "p2"], 1) == ([one.name for one in found], more)


@pytest.mark.parametrize(
    ("facts", "decision"),
    [({"is_gated": True}, "gated"), ({"lacks_extender": True}, "not-wired"), ({}, None), ({"node_name": "n1"}, None)],
)
def test_a_pod_that_nobody_asks_about_waits_if_something_keeps_it(facts: dict[str, object], decision: str) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("p")
    cluster.change_pod("p", **facts)
    cluster.clock.advance(2)
    found, _ = waiting_pods(cluster.allocator.look())
    assert ([decision] if decision else []) == [one.decision for one in found]


def test_a_pod_in_quarantine_waits() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("p")
    cluster.allocator._quarantine.put("ns/p", "broken", cluster.clock.now())
    ((found,), _) = waiting_pods(cluster.allocator.look())
    assert "quarantined" == found.decision


def test_a_pod_that_another_leader_may_have_refused_waits_unasked() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("p", gib=200)
    cluster.filter("p", "n1")
    cluster.change_leader()
    cluster.clock.advance(2)
    ((found,), _) = waiting_pods(cluster.allocator.look())
    assert ("not-asked", {}, "") == (found.decision, found.reasons, found.tried)


def test_what_is_wrong_with_disks_and_keys_is_among_the_parts() -> None:
    cluster = TestCluster().add_nodes(n1=50)
    add_twin(cluster, 50)
    cluster.add_volume("stored", 60)
    cluster.allocator._quarantine.put("ns/p", "broken", cluster.clock.now())
    cluster.clock.advance(2)
    found, shown = parts_of(cluster.allocator.look()), cluster.allocator.snapshot()
    assert [("n1", "d1", 10 * GIB), ("n2", "d1", 10 * GIB)] == [
        (one.node, one.disk, one.over_bytes) for one in found.disks_over
    ]
    assert (tuple(found.disks_over), found.shared_disks, tuple(found.quarantined)) == (
        shown.disks_over,
        shown.shared_disks,
        shown.quarantined,
    )
