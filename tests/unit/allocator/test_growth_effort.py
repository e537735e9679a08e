"""What the question about a growth may cost while the allocator's lock is held."""

from __future__ import annotations

from controller.allocator.choose.growth import SEARCH_MILLISECONDS
from controller.allocator.verbs.grow import GrowthVerdict
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB
from tests.fakes.clock import TickingClock
from tests.unit.allocator.growing import Growing


def crowded(clock: TickingClock) -> Growing:
    """The volume of claim `a` has a copy of 100 GiB on each of three nodes, whose disks are planned for others up to
    the last 180 GiB."""
    stage = Growing(clock=clock)
    name = stage.add("a", 100, replica_count=3)
    for number in (2, 3):
        stage.add_node(f"n{number}", d1=400)
        stage.place(name, f"n{number}", 100, number=number)
    stage.plan("b", 120, "n1-d1", "n2-d1", "n3-d1")
    return stage


def test_the_search_for_the_largest_size_ends_with_its_time_and_tells_what_was_proved() -> None:
    clock = TickingClock(0.0)
    stage = crowded(clock)
    exact = stage.ask("a", 400, dry_run=True)
    assert (GrowthVerdict.REFUSED, True, 280 * GIB) == (exact.verdict, exact.is_largest, exact.largest_bytes)

    clock.seconds = 0.009
    began = clock.now()
    refused = stage.ask("a", 400, dry_run=True)
    assert (GrowthVerdict.REFUSED, False) == (refused.verdict, refused.is_largest)
    assert 100 * GIB < refused.largest_bytes < exact.largest_bytes
    assert [Reason.CONTENDED] * 3 == [entry.rejection.reason for entry in refused.obstacles]
    assert clock.now() - began < 2 * SEARCH_MILLISECONDS / 1000

    assert GrowthVerdict.ADMITTED is stage.ask("a", refused.largest_bytes / GIB).verdict
