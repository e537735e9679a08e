"""What time ends: after a live read, which is asked for by name, and never before."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from controller.allocator.outcome import Due
from controller.allocator.plans.ends import BIND_SECONDS, MOST_DUE, PLAN
from controller.allocator.plans.plan import KeepsOut, Source
from tests.fakes.builders import TestCluster

HOLD_READS: Final = (("pod", "ns/a"), ("claim", "ns/a"))


@pytest.fixture
def cluster() -> TestCluster:
    """One node of 100 GiB, and a pod `a` that holds all of it."""
    cluster = TestCluster().add_nodes(n1=100)
    assert cluster.ask("a", 100, "n1")
    return cluster


# Holds


def test_it_ends_when_the_read_has_shown_nothing_and_others_may_have_its_bytes(cluster: TestCluster) -> None:
    cluster.clock.advance(5)
    (due,) = cluster.allocator.due()
    version = cluster.allocator.version

    cluster.allocator.expire(due)

    assert {} == cluster.pending()
    assert version != cluster.allocator.version
    assert 1 == cluster.allocator.snapshot().counters["holds_ended_expired"]
    assert cluster.ask("b", 100, "n1")


def test_one_that_is_not_due_any_more_stays(cluster: TestCluster) -> None:
    cluster.clock.advance(5)
    (due,) = cluster.allocator.due()
    cluster.filter("a", "n1")  # while it was being read
    cluster.allocator.expire(due)
    assert {"n1": 100} == cluster.pending()

    cluster.select_node("a", "n1")
    cluster.clock.advance(5)
    assert () == cluster.allocator.due()
    cluster.allocator.expire(due)
    assert {"n1": 100} == cluster.pending()


def test_what_its_claim_names_and_nobody_has_seen_is_read_as_well_and_keeps_it(cluster: TestCluster) -> None:
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))
    cluster.clock.advance(200)
    (due,) = cluster.allocator.due()
    assert (*HOLD_READS, ("pv", "pvc-uid-a")) == due.reads

    cluster.allocator.expire(due)

    assert {"n1": 100} == cluster.pending()


def test_those_that_could_not_be_read_come_last_and_no_more_than_so_many_are_told() -> None:
    cluster = TestCluster().add_nodes(n1=1000)
    names = [f"p{number:03}" for number in range(MOST_DUE + 2)]
    for name in names:
        assert cluster.ask(name, 1, "n1")
    cluster.clock.advance(5)

    first = [due.claimant for due in cluster.allocator.due()]
    later = [due.claimant for due in cluster.allocator.due({"pod-p000", "pod-p001", "pod-p002"})]

    assert (MOST_DUE, "pod-p000") == (len(first), first[0])
    assert (MOST_DUE, "pod-p003", "pod-p000") == (len(later), later[0], later[-1])


# Plans


def test_a_plan_that_nothing_binds_ends_after_ten_minutes_and_a_live_read(cluster: TestCluster) -> None:
    cluster.select_node("a", "n1")
    cluster.allocator.drain_records()
    cluster.clock.advance(BIND_SECONDS - 1)
    assert () == cluster.allocator.due()
    cluster.clock.advance(1)
    (due,) = cluster.allocator.due()
    assert Due(PLAN, "pvc-uid-a", HOLD_READS, is_capped=False) == due

    cluster.allocator.expire(due)

    assert {} == cluster.pending()
    assert (("node_reservation", BIND_SECONDS, False),) == cluster.allocator.drain_records()
    cluster.select_node("a", "n1")  # the same again, as a watch may deliver it
    assert {} == cluster.pending()
    assert cluster.offered("a", "n1")  # it is asked about again


@pytest.mark.parametrize("what", ["bound", "gone", "moved"])
def test_one_of_a_pod_that_was_bound_or_is_gone_or_was_chosen_for_another_node_does_not(
    cluster: TestCluster, what: str
) -> None:
    cluster.add_node("n2", free_gib=100)
    cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    cluster.clock.advance(BIND_SECONDS)
    (due,) = cluster.allocator.due()
    if what == "bound":
        cluster.bind("a", "n1")
    elif what == "gone":
        cluster.attach("pvc-uid-a", "n1")
        cluster.drop_pod("a")
    else:
        cluster.bind("a", "n2")
    assert () == cluster.allocator.due()
    cluster.allocator.expire(due)
    assert {"n2" if what == "moved" else "n1": 100} == cluster.pending()


# What is kept for single pods


def test_what_is_kept_for_a_pod_ends_at_its_time_by_itself(cluster: TestCluster) -> None:
    table = cluster.allocator._table
    held = table.hold("pod-a")
    assert held is not None
    for source in (Source.NOMINATION, Source.KEPT_ROOM, Source.WAKE_PLAN):
        table.put_hold(replace(held, source=source, until=cluster.clock.now() + 7, against=KeepsOut(0)))
    for seconds, left in ((6.9, 3), (0.1, 0)):
        cluster.clock.advance(seconds)
        version = cluster.allocator.version
        cluster.allocator.sweep()
        assert (left, left == 0) == (len(table.limited()), version != cluster.allocator.version)
    assert {"n1": 100} == cluster.pending()
    assert 1 == cluster.allocator.snapshot().counters["ended_nomination"]
