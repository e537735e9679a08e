"""What the question about a growth may cost while the allocator's lock is held, whatever is pending."""

from __future__ import annotations

import pytest

from controller.allocator.allocator import Allocator
from controller.allocator.judge.growth import SEARCH_MILLISECONDS, VERDICT_MILLISECONDS
from controller.allocator.verbs.grow import Caller, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.clock import Clock
from controller.errors import CallerGoneError
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, TestCluster, disk, replica, volume
from tests.fakes.clock import TickingClock
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import Growing

NODES = tuple(f"n{number}" for number in range(6))


class CrowdedGrowth:
    """A volume with a replica of 100 GiB on each of three nodes, among pods whose volumes may go anywhere."""

    def __init__(self) -> None:
        self.clock = TickingClock(0.0)
        self.cluster = TestCluster(settings=OPEN, make_allocator=self._allocator)
        for name in NODES:
            self.cluster.add_node(name, disk("d1", 400), disk("d2", 400))
        self.cluster.allocator.observe_volume("v", volume("v", 100, locality="disabled", replica_count=3))
        for number in range(3):
            facts = replica(f"v-{number}", "v", 100, on=NODES[number])
            self.cluster.allocator.observe_replica(facts.name, facts)
        self.cluster.add_class("three", numberOfReplicas="3", dataLocality="disabled")
        for number in range(6):
            self.cluster.add_claim(f"p{number}", 20, class_name="three")
            self.cluster.add_pod(f"p{number}", f"p{number}")
            assert self.cluster.offered(f"p{number}", *NODES)

    def _allocator(self, _: Clock) -> Allocator:
        return Allocator(self.clock)

    def ask(self, gib: float) -> GrowthOutcome:
        return self.cluster.allocator.expansions.hold(GrowthRequest("v", int(gib * GIB), is_dry_run=True))


def test_the_search_for_the_largest_size_ends_with_its_time_and_tells_what_was_proved() -> None:
    busy = CrowdedGrowth()
    exact = busy.ask(400)
    assert (GrowthVerdict.REFUSED, True) == (exact.verdict, exact.is_largest)
    assert 280 * GIB == exact.largest_bytes

    busy.clock.seconds = 0.004
    began = busy.clock.now()
    refused = busy.ask(400)
    assert (GrowthVerdict.REFUSED, False) == (refused.verdict, refused.is_largest)
    assert 100 * GIB < refused.largest_bytes < exact.largest_bytes
    assert [Reason.CONTENDED] * 3 == [entry.rejection.reason for entry in refused.obstacles]
    assert busy.clock.now() - began < 2 * SEARCH_MILLISECONDS / 1000

    busy.clock.seconds = 0.0
    assert GrowthVerdict.ADMITTED is busy.ask(refused.largest_bytes / GIB).verdict


def test_a_verdict_that_takes_too_long_is_a_refusal_that_says_so() -> None:
    busy = CrowdedGrowth()
    busy.clock.seconds = 0.6 * VERDICT_MILLISECONDS / 1000
    late = busy.ask(150)
    assert (GrowthVerdict.REFUSED, False) == (late.verdict, late.is_largest)
    assert [Reason.NOT_EVALUATED] == [entry.rejection.reason for entry in late.obstacles]

    busy.clock.seconds = 0.0
    assert GrowthVerdict.ADMITTED is busy.ask(150).verdict


def test_nothing_is_worked_out_for_a_caller_that_has_gone() -> None:
    world = Growing()
    name = world.add("a", 100)
    with pytest.raises(CallerGoneError):
        world.allocator.expansions.hold(GrowthRequest(name, 200 * GIB), None, Caller(has_left=True))
    assert {} == world.held()
