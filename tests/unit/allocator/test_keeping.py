"""A large pod does not starve behind small ones: after a while one node's room is kept for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.longhorn import LonghornSettings
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, GIB, TestCluster
from tests.fakes.clock import VirtualClock

AFTER = 300


@pytest.fixture
def cluster() -> TestCluster:
    """n1 is full of four small pods whose data goes with them; the large one, which fits nowhere else, has waited."""
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=AFTER))
    cluster.add_node("n1", free_gib=400)
    for name in ("tiny-1", "tiny-2"):  # in a cluster of fewer than three nodes nothing is kept
        cluster.add_node(name, free_gib=1)
    for index in range(4):
        run_ephemeral(cluster, f"small-{index}", "n1")
    cluster.let_figures_follow()
    cluster.add_pod("large", gib=350)
    assert not cluster.offered("large", "n1")
    return cluster


def run_ephemeral(cluster: TestCluster, name: str, on: str, gib: float = 100) -> None:
    cluster.add_claim(name, gib)
    cluster.set_claim(replace(cluster.claims[name], owner_pod_uid=f"pod-{name}"))
    cluster.run(name, cluster.add_pod(name, gib=gib).name, on, gib=gib)


def wait_long(cluster: TestCluster) -> None:
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()


def leave(cluster: TestCluster, index: int) -> None:
    cluster.delete_volume(f"small-{index}")
    cluster.let_doubts_pass()


def test_before_its_time_small_pods_take_what_becomes_free(cluster: TestCluster) -> None:
    cluster.clock.advance(AFTER - 10)
    cluster.plan_wakeups()
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_after_it_room_gathers_until_the_large_pod_fits(cluster: TestCluster) -> None:
    wait_long(cluster)
    cluster.add_pod("next")
    for index in range(4):
        leave(cluster, index)
        assert cluster.filter("next", "n1").refused == {"n1": Reason.KEPT}

    assert [wake.name for wake in cluster.plan_wakeups()] == ["large"]
    assert cluster.filter("next", "n1").refused == {"n1": Reason.KEPT}  # woken, not yet filtered
    assert cluster.offered("large", "n1") == {"n1"}


def test_what_is_left_beside_it_is_free_again_once_it_was_offered_its_room(cluster: TestCluster) -> None:
    wait_long(cluster)
    cluster.add_pod("next", gib=50)
    for index in range(4):
        leave(cluster, index)
    cluster.plan_wakeups()
    cluster.filter("large", "n1")

    assert cluster.offered("next", "n1") == {"n1"}


def test_both_the_pod_that_waits_and_those_that_it_keeps_out_are_told(cluster: TestCluster) -> None:
    wait_long(cluster)
    leave(cluster, 0)
    cluster.add_pod("next")
    assert not cluster.offered("next", "n1")

    assert "room on node n1 is kept for it" in cluster.allocator.account_of("pod-large", ["n1"])
    told = cluster.allocator.account_of("pod-next", ["n1"])
    assert Reason.KEPT in told
    assert f"{350 * GIB} bytes are kept there" in told


def test_other_nodes_are_open_and_the_small_pod_goes_there(cluster: TestCluster) -> None:
    cluster.add_node("n2", free_gib=100)
    wait_long(cluster)
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1", "n2") == {"n2"}


def test_a_pod_of_higher_priority_is_not_held_back(cluster: TestCluster) -> None:
    wait_long(cluster)
    leave(cluster, 0)
    cluster.add_pod("urgent", priority=1)

    assert cluster.offered("urgent", "n1") == {"n1"}


def test_a_pod_whose_data_lies_there_needs_no_room_and_comes_back(cluster: TestCluster) -> None:
    wait_long(cluster)
    cluster.drop_pod("small-1")
    cluster.add_pod("small-1", uid="another")

    assert cluster.offered("small-1", "n1") == {"n1"}


def test_nothing_is_kept_where_the_pod_could_never_fit() -> None:
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=AFTER))
    cluster.add_node("n1", free_gib=400)
    cluster.add_pod("huge", gib=500)
    assert not cluster.offered("huge", "n1")
    wait_long(cluster)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_nothing_is_kept_for_a_pod_that_is_gone(cluster: TestCluster) -> None:
    wait_long(cluster)
    leave(cluster, 0)
    cluster.drop_pod("large")
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_zero_switches_it_off(cluster: TestCluster) -> None:
    cluster.allocator.configure(LiveSettings(enabled=True, starvation_after_seconds=0), LonghornSettings())
    wait_long(cluster)
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_the_node_that_is_kept_stays_the_one_when_another_becomes_emptier(cluster: TestCluster) -> None:
    cluster.add_node("n2", free_gib=350)
    run_ephemeral(cluster, "there", "n2", gib=300)
    assert not cluster.offered("large", "n1", "n2")
    wait_long(cluster)
    for index in range(2):
        leave(cluster, index)
    cluster.plan_wakeups()
    cluster.add_pod("next", gib=40)

    assert cluster.filter("next", "n1", "n2").refused == {"n2": Reason.KEPT}


def test_a_pod_that_goes_while_its_node_is_sought_keeps_nothing(cluster: TestCluster) -> None:
    class TickingClock(VirtualClock):
        def now(self) -> float:
            self.advance(0.004)  # longer than a slice
            return super().now()

    cluster.clock.advance(AFTER)
    clock = TickingClock()
    clock.advance(cluster.clock.now() - 1000)
    cluster.allocator._clock = clock
    for number, _ in enumerate(cluster.allocator.wake_slices(), 1):
        if number == 2:  # one slice to see that it finds no room, one to find its node
            cluster.drop_pod("large")
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def change_leader(cluster: TestCluster) -> None:
    """This process leads again, and knows only what the cluster shows; holds of the term before have ended."""
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    for due in cluster.allocator.due():
        cluster.allocator.expire(due)
    cluster.clock.advance(10)
    for due in cluster.allocator.due():
        cluster.allocator.expire(due)


@pytest.mark.parametrize(
    ("since", "is_kept"),
    [
        ("2026-01-01T00:00:00Z", True),
        ("2026-01-01T01:00:00+01:00", True),
        ("2026-01-01T00:04:00Z", False),
        ("2026-02-01T00:00:00Z", False),  # clocks differ
        ("", False),
        ("yesterday", False),
    ],
)
def test_a_new_leader_counts_what_the_pod_has_waited_already(cluster: TestCluster, since: str, is_kept: bool) -> None:
    cluster.change_pod("large", unschedulable_since_utc=since)
    cluster.clock.advance(AFTER - 10)
    change_leader(cluster)
    assert not cluster.offered("large", "n1")
    cluster.plan_wakeups()
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == (set() if is_kept else {"n1"})


def test_nothing_is_kept_for_a_pod_that_the_new_leader_was_never_asked_about(cluster: TestCluster) -> None:
    cluster.change_pod("large", unschedulable_since_utc=EPOCH)
    cluster.clock.advance(AFTER)
    change_leader(cluster)
    wait_long(cluster)
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_what_a_pod_waited_before_its_first_refusal_counts_only_for_a_new_leader(cluster: TestCluster) -> None:
    cluster.clock.advance(AFTER)
    cluster.add_pod("large-2", gib=350)
    cluster.change_pod("large-2", unschedulable_since_utc=EPOCH)
    cluster.drop_pod("large")
    assert not cluster.offered("large-2", "n1")
    cluster.plan_wakeups()
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.offered("next", "n1") == {"n1"}


def test_the_ledger_derived_anew_takes_no_refusal_back(cluster: TestCluster) -> None:
    cluster.clock.advance(AFTER)
    with cluster.allocator._changed:
        cluster.allocator._derive_locked(holds_everywhere=True)
    cluster.let_doubts_pass()
    cluster.plan_wakeups()
    leave(cluster, 0)
    cluster.add_pod("next")

    assert cluster.filter("next", "n1").refused == {"n1": Reason.KEPT}
