"""A round of the wake-up: who is woken together, in slices, and as a filter call would decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.settings import LiveSettings
from tests.fakes.builders import LATER, TestCluster, node


def waiting(count: int, *, gib: float = 100, free_gib: float = 50) -> TestCluster:
    """Pods w0, w1, ..., each younger than the one before, refused on a node that is too small."""
    cluster = TestCluster().add_nodes(n1=free_gib)
    for number in range(count):
        cluster.add_pod(f"w{number}", gib=gib, created=f"2026-01-01T00:{number:02}:00Z")
        assert not cluster.offered(f"w{number}", "n1")
    return cluster


def test_every_pod_is_reached_however_many_there_are() -> None:
    cluster = waiting(30)
    for number in range(29):  # sizes that the first ones do not have
        claim = cluster.claims[f"w{number}"]
        cluster.set_claim(replace(claim, requested_bytes=claim.requested_bytes * (100 + number)))
    cluster.put_node(node("n1", free_gib=100))
    cluster.make_looks_cost(0.002)
    slices = list(cluster.allocator.wake_slices())

    assert len(slices) > 5
    assert ["w29"] == [wakeup.name for wakeups in slices for wakeup in wakeups]


def test_a_pod_that_gets_its_room_during_the_plan_counts_once() -> None:
    cluster = waiting(8)
    cluster.put_node(node("n1", free_gib=300))
    cluster.make_looks_cost(0.002)
    found = []
    for wakeups in cluster.allocator.wake_slices():
        for wakeup in wakeups:
            found.append(wakeup.name)
            assert {"n1"} == cluster.offered(wakeup.name, "n1")

    assert ["w0", "w1", "w2"] == found


def test_a_pod_that_goes_during_the_plan_leaves_its_room_to_the_next() -> None:
    cluster = waiting(4)
    cluster.put_node(node("n1", free_gib=200))
    cluster.make_looks_cost(0.002)
    found = []
    for wakeups in cluster.allocator.wake_slices():
        found += [wakeup.name for wakeup in wakeups]
        if found == ["w0"] and "w0" in cluster.pods:
            cluster.drop_pod("w0")

    assert ["w0", "w1", "w2"] == found


def test_the_lock_is_free_between_slices() -> None:
    cluster = waiting(20)
    cluster.make_looks_cost(0.002)
    for _ in cluster.allocator.wake_slices():
        assert cluster.allocator._changed.acquire(blocking=False)
        cluster.allocator._changed.release()


@pytest.mark.parametrize(("priority", "expected"), [(0, ["w1"]), (1, ["w0"])])
def test_what_is_kept_for_one_pod_does_not_hide_its_room_from_that_pod(priority: int, expected: list[str]) -> None:
    """Two equal pods; the younger one waits for long, the older one came to know of the node only now."""
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=300)).add_nodes(n1=200)
    for name in ("tiny-1", "tiny-2"):  # in a cluster of fewer than three nodes nothing is kept
        cluster.add_node(name, free_gib=1)
    cluster.add_pod("other", gib=150)
    cluster.set_claim(replace(cluster.claims["other"], owner_pod_uid="pod-other"))
    cluster.run("other", "other", "n1", gib=150)
    cluster.add_pod("w1", created=LATER)
    assert not cluster.offered("w1", "n1")
    cluster.clock.advance(301)
    assert [] == cluster.woken()  # from now on the node is kept for it
    cluster.add_pod("w0", priority=priority)
    assert not cluster.offered("w0", "n1")

    cluster.delete_volume("other")
    cluster.put_node(node("n1", free_gib=200))
    cluster.put_node(node("n1", free_gib=100))

    assert expected == cluster.woken()


def test_a_contended_answer_begins_the_back_off_anew_but_no_hot_loop() -> None:
    """Whatever makes a filter call see it otherwise than the plan: twice a second at most."""
    cluster = waiting(1)
    cluster.put_node(node("n1", free_gib=100))
    wakes = 0
    for _ in range(100):
        wakes += len(cluster.woken())
        cluster.allocator._refusals.refused("pod-w0", ["n1"], True, cluster.clock.now())
        cluster.clock.advance(0.1)
    assert 15 <= wakes <= 20


def test_the_back_off_grows_and_a_contended_answer_resets_it() -> None:
    cluster = waiting(1)
    cluster.put_node(node("n1", free_gib=100))
    waits = []
    for _ in range(6):
        assert ["w0"] == cluster.woken()
        cluster.allocator._refusals.refused("pod-w0", ["n1"], False, cluster.clock.now())
        waits.append(cluster.allocator.next_wakeup_due())
        cluster.clock.advance(waits[-1] or 0)
    assert [0.5, 1, 2, 5, 10, 10] == waits

    cluster.allocator._refusals.refused("pod-w0", ["n1"], True, cluster.clock.now())
    assert ["w0"] == cluster.woken()
    cluster.allocator._refusals.refused("pod-w0", ["n1"], False, cluster.clock.now())
    assert 0.5 == cluster.allocator.next_wakeup_due()


def test_a_pod_that_waits_in_the_schedulers_queue_is_not_woken_again_and_keeps_its_room() -> None:
    cluster = waiting(2)
    cluster.put_node(node("n1", free_gib=100))
    assert ["w0"] == cluster.woken()
    cluster.clock.advance(4.9)
    assert [] == cluster.woken()
    cluster.clock.advance(0.2)
    assert ["w1"] == cluster.woken()  # something else seems to keep the first one
    cluster.clock.advance(4.9)
    assert ["w0"] == cluster.woken()


def test_a_search_among_many_nodes_goes_on_where_the_last_slice_ended() -> None:
    cluster = TestCluster()
    names = [f"n{number}" for number in range(200)]
    for name in names:
        cluster.add_node(name, free_gib=50)
    cluster.add_pod("w0")
    assert not cluster.offered("w0", *names)
    cluster.put_node(node("n199", free_gib=100))
    cluster.make_looks_cost(0.002)
    found = []
    for number, wakeups in enumerate(cluster.allocator.wake_slices()):
        assert number < 20
        found += [wakeup.name for wakeup in wakeups]

    assert ["w0"] == found
