"""A broken rule costs the one pod or claim that broke it, for a while, and nobody else."""

from __future__ import annotations

import pytest

from controller.allocator.allocator import Allocator
from controller.allocator.promises import quarantine
from controller.allocator.verbs.filter import Filtering
from controller.allocator.verbs.grow import GrowthRequest
from controller.allocator.verbs.observe import Observing
from controller.clock import Clock
from controller.errors import BugError, NotReadyError
from tests.fakes.builders import GIB, TestCluster


class BrokenOnce(Allocator):
    """Breaks in the next filter call after `break_next`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.break_next: Exception | None = None
        self.break_event: Exception | None = None
        self.breaks_rebuild = False

    def _derive_anew_locked(self, *, holds_everywhere: bool) -> None:
        if self.breaks_rebuild:
            raise BugError("ASSUME of nothing")
        super()._derive_anew_locked(holds_everywhere=holds_everywhere)

    def _observing_locked(self) -> Observing:
        if self.break_event is not None:
            fault, self.break_event = self.break_event, None
            raise fault
        return super()._observing_locked()

    def _filtering_locked(self, now: float, *, adds_up: bool = False) -> Filtering:
        if self.break_next is not None:
            fault, self.break_next = self.break_next, None
            raise fault
        return super()._filtering_locked(now, adds_up=adds_up)


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster(make_allocator=BrokenOnce)
    cluster.add_node("n1", free_gib=300)
    return cluster


def breaks(cluster: TestCluster, pod: str) -> None:
    assert isinstance(cluster.allocator, BrokenOnce)
    cluster.allocator.break_next = BugError("HOLD of nothing while ABSENT")
    with pytest.raises(BugError, match="while ABSENT"):
        cluster.filter(pod, "n1")


def test_a_pod_that_broke_a_rule_gets_errors_and_others_answers(cluster: TestCluster) -> None:
    cluster.add_pod("a")
    cluster.add_pod("b")
    breaks(cluster, "a")

    with pytest.raises(BugError, match="ns/a is in quarantine after a fault: HOLD of nothing"):
        cluster.filter("a", "n1")
    assert cluster.offered("b", "n1") == {"n1"}
    assert cluster.allocator.snapshot().quarantined == ("ns/a",)


def test_the_ledger_is_derived_anew_so_promises_of_others_survive(cluster: TestCluster) -> None:
    cluster.add_pod("b")
    assert cluster.offered("b", "n1") == {"n1"}
    cluster.select_node("b", "n1")
    cluster.add_pod("a")
    breaks(cluster, "a")

    promises = {promise.node: promise for promise in cluster.allocator.snapshot().promises}
    assert "pod-b" in promises["n1"].claimants
    assert promises["n1"].state.upper() == "ASSUMED"


def test_quarantine_ends_with_the_pod(cluster: TestCluster) -> None:
    cluster.add_pod("a")
    breaks(cluster, "a")
    cluster.drop_pod("a")

    assert cluster.allocator.snapshot().quarantined == ()


def test_quarantine_ends_after_a_while(cluster: TestCluster) -> None:
    cluster.add_pod("a")
    breaks(cluster, "a")

    cluster.clock.advance(quarantine.SECONDS - 1)
    with pytest.raises(BugError):
        cluster.filter("a", "n1")
    cluster.clock.advance(1)
    assert cluster.offered("a", "n1") == {"n1"}
    assert cluster.allocator.snapshot().quarantined == ()


def test_when_the_ledger_cannot_be_rebuilt_nothing_is_promised_any_more(cluster: TestCluster) -> None:
    """An empty ledger would promise everything again."""
    assert isinstance(cluster.allocator, BrokenOnce)
    cluster.add_pod("a")
    cluster.add_pod("b")
    volume = cluster.run("b", "b", "n1")
    assert "" == cluster.allocator.failure
    cluster.allocator.break_next, cluster.allocator.breaks_rebuild = BugError("HOLD of nothing"), True
    with pytest.raises(BugError, match="ASSUME of nothing"):
        cluster.filter("a", "n1")

    assert "the ledger could not be rebuilt: BugError('ASSUME of nothing')" == cluster.allocator.failure
    for ask in (
        lambda: cluster.filter("b", "n1"),
        lambda: cluster.allocator.nodes_with_room("pod-b", ["n1"]),
        lambda: cluster.allocator.score_nodes("pod-b", ["n1"]),
        lambda: cluster.allocator.expansions.hold(GrowthRequest(volume, 200 * GIB)),
    ):
        with pytest.raises(NotReadyError, match="could not be rebuilt"):
            ask()


@pytest.mark.parametrize("place", ["question", "event"])
def test_any_fault_of_ours_costs_its_own_key_alone(cluster: TestCluster, place: str) -> None:
    allocator = cluster.allocator
    assert isinstance(allocator, BrokenOnce)
    cluster.add_pod("b")
    assert cluster.offered("b", "n1") == {"n1"}
    cluster.select_node("b", "n1")
    cluster.add_pod("a")
    if place == "question":
        allocator.break_next = KeyError("volume")
        with pytest.raises(BugError, match="KeyError"):
            cluster.filter("a", "n1")
    else:
        allocator.break_event = KeyError("volume")
        cluster.change_pod("a", priority=7)  # and its watch goes on

    assert ("ns/a",) == allocator.snapshot().quarantined
    assert any("pod-b" in promise.claimants and "n1" == promise.node for promise in allocator.snapshot().promises)
    assert "" == allocator.failure
