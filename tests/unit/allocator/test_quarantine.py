"""A broken rule costs the one pod or claim that broke it, for a while, and nobody else."""

from __future__ import annotations

import pytest

from controller.allocator.allocator import Allocator
from controller.allocator.plans import quarantine
from controller.allocator.verbs.filter import Filtering
from controller.allocator.verbs.grow import GrowthRequest
from controller.allocator.verbs.observe import EventContext
from controller.allocator.verbs.planning import Planner
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
        self._settle_all, self._settler.settle_all = self._settler.settle_all, self.settle_all  # type: ignore[method-assign]

    def settle_all(self) -> None:
        if self.breaks_rebuild:
            raise BugError("odd facts")
        self._settle_all()

    def _context_locked(self) -> EventContext:
        if self.break_event is not None:
            fault, self.break_event = self.break_event, None
            raise fault
        return super()._context_locked()

    def _filtering_locked(self, *, adds_up: bool = False) -> Filtering:
        if self.break_next is not None:
            fault, self.break_next = self.break_next, None
            raise fault
        return super()._filtering_locked(adds_up=adds_up)


@pytest.fixture
def cluster() -> TestCluster:
    """A node with room, and the pods a and b."""
    cluster = TestCluster(make_allocator=BrokenOnce).add_nodes(n1=300)
    for name in ("a", "b"):
        cluster.add_pod(name)
    return cluster


def breaks(cluster: TestCluster, pod: str) -> None:
    assert isinstance(cluster.allocator, BrokenOnce)
    cluster.allocator.break_next = BugError("a place of nobody")
    with pytest.raises(BugError, match="of nobody"):
        cluster.filter(pod, "n1")


def test_a_pod_that_broke_a_rule_gets_errors_and_others_answers(cluster: TestCluster) -> None:
    breaks(cluster, "a")

    with pytest.raises(BugError, match="ns/a is in quarantine after a fault: a place of nobody"):
        cluster.filter("a", "n1")
    assert cluster.offered("b", "n1") == {"n1"}
    assert cluster.allocator.snapshot().quarantined == ("ns/a",)


def test_the_table_is_made_anew_with_all_that_others_have(cluster: TestCluster) -> None:
    cluster.add_nodes(n2=300)
    for name in ("chosen", "answered", "refused"):
        cluster.add_pod(name, gib=120)
    assert cluster.offered("chosen", "n1") == {"n1"}
    cluster.select_node("chosen", "n1")
    assert cluster.offered("answered", "n1", "n2") == {"n1", "n2"}
    before = cluster.allocator.snapshot().promises
    breaks(cluster, "refused")

    assert before == cluster.allocator.snapshot().promises
    cluster.select_node("answered", "n2")
    assert [("ns/answered", "n2"), ("ns/chosen", "n1")] == cluster.promised()


def test_the_pods_of_a_volume_that_cannot_be_planned_hear_of_it(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("odd")

    assert {"n1"} == cluster.offered("a", "n1")
    monkeypatch.setattr(Planner, "_settle", fail)
    cluster.select_node("a", "n1")
    monkeypatch.undo()
    with pytest.raises(BugError, match=r"ns/a is in quarantine after a fault: .*odd"):
        cluster.filter("a", "n1")
    assert {"n1"} == cluster.offered("b", "n1")


def test_quarantine_ends_with_the_pod(cluster: TestCluster) -> None:
    breaks(cluster, "a")
    cluster.drop_pod("a")

    assert cluster.allocator.snapshot().quarantined == ()


def test_quarantine_ends_after_a_while(cluster: TestCluster) -> None:
    breaks(cluster, "a")

    cluster.clock.advance(quarantine.SECONDS - 1)
    with pytest.raises(BugError):
        cluster.filter("a", "n1")
    cluster.clock.advance(1)
    assert cluster.offered("a", "n1") == {"n1"}
    assert cluster.allocator.snapshot().quarantined == ()


def test_when_the_table_cannot_be_made_anew_nothing_is_offered_any_more(cluster: TestCluster) -> None:
    """An empty one would offer everything again."""
    assert isinstance(cluster.allocator, BrokenOnce)
    volume = cluster.run("b", "b", "n1")
    assert "" == cluster.allocator.failure
    cluster.allocator.break_next, cluster.allocator.breaks_rebuild = BugError("a place of nobody"), True
    with pytest.raises(BugError, match="odd facts"):
        cluster.filter("a", "n1")

    assert "the table could not be rebuilt: BugError('odd facts')" == cluster.allocator.failure
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
    assert cluster.offered("b", "n1") == {"n1"}
    cluster.select_node("b", "n1")
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
