"""Holds whose pod was never chosen, on virtual time and over the real allocator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.plans.growths import HOLD_SECONDS
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.allocator.world.backups import READ_AGAIN_SECONDS
from controller.errors import ClusterError, UnavailableError
from controller.model.longhorn import Backup
from controller.rules.demand import Missing
from controller.workers.sweeper import Sweeper
from tests.fakes.builders import GIB, ONE_LOCAL, TestCluster, observe
from tests.fakes.edges import FakeReads


class SweeperBench:
    def __init__(self) -> None:
        self.cluster = TestCluster()
        self.reads = FakeReads()
        self.cluster.add_node("n1")
        self.is_leading = True
        self.rounds: list[None] = []
        self.sweeper = Sweeper(
            self.cluster.allocator,
            self.reads,
            is_leading=lambda: self.is_leading,
            after_round=lambda: self.rounds.append(None),
        )

    @property
    def held(self) -> int:
        return self.cluster.allocator.snapshot().held_count

    def admit_growth(self, claim: str, gib: float) -> None:
        """Of a placed volume of that size to twice as much, a minute ago."""
        request = GrowthRequest(self.cluster.add_volume(claim, gib), int(2 * gib * GIB), "ns", claim)
        assert GrowthVerdict.ADMITTED is self.cluster.allocator.expansions.hold(request).verdict
        self.cluster.clock.advance(HOLD_SECONDS)


def held_and_due() -> SweeperBench:
    bench = SweeperBench()
    bench.cluster.add_pod("a")
    bench.cluster.filter("a", "n1")
    bench.cluster.clock.advance(6)
    return bench


def bound_to_an_unseen_volume() -> SweeperBench:
    bench = held_and_due()
    bench.cluster.set_claim(replace(bench.cluster.claims["a"], volume_name="pvc-uid-a"))
    bench.cluster.bind("a", "n1")
    return bench


@pytest.mark.parametrize("is_pod_damaged", [False, True], ids=["", "its pod cannot be parsed"])
def test_a_hold_ends_when_what_its_claim_is_bound_to_does_not_exist(is_pod_damaged: bool) -> None:
    """An object that cannot be parsed keeps nobody from reading the others."""
    bench = bound_to_an_unseen_volume()
    bench.reads.absent = {("pv", "pvc-uid-a")}
    if is_pod_damaged:
        bench.reads.fails["pod"] = ClusterError("pod cannot be read: spec.volumes: is no list")
        bench.cluster.clock.advance(1000)
    bench.sweeper.run_once()
    assert (("pv", "pvc-uid-a"), 0) == (bench.reads.reads[-1], bench.held)


def test_a_hold_outlives_its_cap_while_what_its_claim_is_bound_to_cannot_be_read() -> None:
    bench = bound_to_an_unseen_volume()
    bench.reads.fails["pv"] = ClusterError("pv cannot be read: spec.capacity: is missing")
    for _ in range(2):
        bench.sweeper.run_once()
        assert bench.held == 1
        bench.cluster.clock.advance(1000)


def test_what_is_read_last_may_show_that_a_choice_was_made() -> None:
    bench = bound_to_an_unseen_volume()
    bench.reads.shows["pv"] = lambda: bench.cluster.provision("a")
    bench.sweeper.run_once()
    assert bench.cluster.pending() == {"n1": 100}
    assert bench.held == 0  # it is planned


def growing() -> SweeperBench:
    """A volume of 100 GiB that was allowed to grow to 200, a minute ago."""
    bench = SweeperBench()
    bench.admit_growth("a", 100)
    return bench


@pytest.mark.parametrize(
    ("make", "reads"),
    [
        pytest.param(held_and_due, [("pod", "ns/a"), ("claim", "ns/a")], id="hold"),
        pytest.param(growing, [("claim", "ns/a"), ("volume", "pvc-uid-a")], id="expansion"),
    ],
)
def test_what_was_never_seen_ends_after_its_time_and_a_live_read(
    make: Callable[[], SweeperBench], reads: list[tuple[str, str]]
) -> None:
    bench = make()
    assert bench.held == 1
    bench.sweeper.run_once()
    assert (bench.held, bench.reads.reads, len(bench.rounds)) == (0, reads, 1)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        pytest.param(held_and_due, {"selected_node": "n1"}, id="the choice of a node"),
        pytest.param(growing, {"requested_bytes": 200 * GIB}, id="an expansion"),
    ],
)
def test_what_only_the_live_read_shows_keeps_the_room(make: Callable[[], SweeperBench], shown: dict[str, Any]) -> None:
    bench = make()
    bench.reads.shows["claim"] = lambda: bench.cluster.set_claim(replace(bench.cluster.claims["a"], **shown))
    bench.sweeper.run_once()
    snapshot = bench.cluster.allocator.snapshot()
    assert (snapshot.held_count, snapshot.planned_count) == (0, 1)


@pytest.mark.parametrize(
    ("make", "stays", "cap"),
    [pytest.param(held_and_due, 0, 120, id="hold"), pytest.param(growing, 3 * HOLD_SECONDS, 300, id="expansion")],
)
def test_a_read_that_fails_keeps_it_up_to_the_cap(make: Callable[[], SweeperBench], stays: float, cap: float) -> None:
    bench = make()
    bench.reads.fails[""] = UnavailableError("503")
    bench.cluster.clock.advance(stays)
    bench.sweeper.run_once()
    assert bench.held == 1
    bench.cluster.clock.advance(cap - stays)
    bench.sweeper.run_once()
    assert bench.held == 0


@pytest.mark.parametrize("make", [held_and_due, growing], ids=["hold", "expansion"])
def test_a_follower_ends_nothing(make: Callable[[], SweeperBench]) -> None:
    bench = make()
    bench.is_leading = False
    bench.sweeper.run_once()
    assert (bench.held, bench.reads.reads) == (1, [])


def test_an_expansion_whose_objects_cannot_be_parsed_keeps_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    bench, bad = SweeperBench(), "pvc-uid-a"
    bench.admit_growth("a", 100)
    bench.admit_growth("b", 10)
    bench.reads.fails[bad] = ClusterError("volume cannot be read: spec.size: is missing")
    for _ in range(3):
        bench.sweeper.run_once()
    assert [bad] == bench.cluster.due_growths()
    assert 1 == len(caplog.records), "said once"


URL = "s3://bucket/?backup=backup-1&volume=vol-1"


def chosen_and_restored() -> SweeperBench:
    """The leader before has answered, and no backup was read."""
    bench = SweeperBench()
    bench.reads.allocator = bench.cluster.allocator
    bench.cluster.add_class("restored", **ONE_LOCAL, fromBackup=URL)
    bench.cluster.add_pod("a", ("a", 100, "restored"))
    bench.cluster.allocator.confirm_absent(Missing("backup", "", "backup-1"))
    bench.cluster.filter("a", "n1")
    bench.cluster.select_node("a", "n1")
    bench.cluster.change_leader()
    return bench


def planned_gib(bench: SweeperBench) -> list[int]:
    return [view.size_bytes // GIB for view in bench.cluster.allocator.snapshot().promises]


def test_a_new_leader_reads_the_backup_of_a_volume_that_is_chosen_already() -> None:
    bench = chosen_and_restored()
    assert [100] == planned_gib(bench)
    bench.reads.objects["backup", "backup-1"] = Backup("backup-1", URL, 300 * GIB)
    for _ in range(3):
        bench.sweeper.run_once()
    assert ([300], [("backup", "backup-1")]) == (planned_gib(bench), bench.reads.reads)


def test_a_backup_that_is_not_there_is_read_again_after_a_while_as_long_as_a_class_names_it() -> None:
    bench = chosen_and_restored()
    bench.reads.fails["backup"] = ClusterError("forbidden")
    for _ in range(3):
        bench.sweeper.run_once()
    assert ([100], 1) == (planned_gib(bench), len(bench.reads.reads))
    bench.cluster.clock.advance(READ_AGAIN_SECONDS)
    bench.sweeper.run_once()
    assert 2 == len(bench.reads.reads)
    observe(bench.cluster.allocator, "class", "restored", None)
    bench.cluster.clock.advance(READ_AGAIN_SECONDS)
    bench.sweeper.run_once()
    assert 2 == len(bench.reads.reads)
