"""Holds whose pod was never chosen, on virtual time and over the real allocator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.allocator.promises.growths import HOLD_SECONDS
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import ClusterError, UnavailableError
from controller.workers.sweeper import Sweeper
from tests.fakes.builders import GIB, TestCluster


class Reads:
    """What the API server says about pods and claims; nothing new unless `on_read` does something."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, str]] = []
        self.on_read: Callable[[str, str], None] = lambda kind, key: None
        self.absent: set[tuple[str, str]] = set()

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        self.reads.append((kind, f"{namespace}/{name}"))
        self.on_read(kind, f"{namespace}/{name}")
        return (kind, f"{namespace}/{name}") not in self.absent


class Bench:
    def __init__(self) -> None:
        self.cluster, self.reads = TestCluster(), Reads()
        self.cluster.add_node("n1")
        self.is_leading = True
        self.rounds = 0
        self.sweeper = Sweeper(
            self.cluster.allocator,
            self.reads,
            is_leading=lambda: self.is_leading,
            after_round=self._count,
        )

    def _count(self) -> None:
        self.rounds += 1

    @property
    def held(self) -> int:
        return self.cluster.allocator.snapshot().held_count


def held_and_due() -> Bench:
    bench = Bench()
    bench.cluster.add_pod("a")
    bench.cluster.filter("a", "n1")
    bench.cluster.clock.advance(6)
    return bench


def test_a_hold_ends_after_its_time_and_a_live_read_of_pod_and_claims() -> None:
    bench = held_and_due()

    bench.sweeper.run_once()

    assert bench.held == 0
    assert bench.reads.reads == [("pod", "ns/a"), ("claim", "ns/a")]
    assert bench.rounds == 1


def bound_to_an_unseen_volume() -> Bench:
    bench = held_and_due()
    bench.cluster.set_claim(replace(bench.cluster.claims["a"], volume_name="pvc-uid-a"))
    bench.cluster.bind("a", "n1")
    return bench


def test_a_hold_ends_when_what_its_claim_is_bound_to_does_not_exist() -> None:
    bench = bound_to_an_unseen_volume()
    bench.reads.absent = {("pv", "/pvc-uid-a")}

    bench.sweeper.run_once()

    assert bench.reads.reads[-1] == ("pv", "/pvc-uid-a")
    assert bench.held == 0


def test_a_hold_outlives_its_cap_while_what_its_claim_is_bound_to_cannot_be_read() -> None:
    bench = bound_to_an_unseen_volume()

    def fail(kind: str, _key: str) -> None:
        if kind == "pv":
            raise ClusterError("pv cannot be read: spec.capacity: is missing")

    bench.reads.on_read = fail
    for _ in range(2):
        bench.sweeper.run_once()
        assert bench.held == 1
        bench.cluster.clock.advance(1000)


def test_what_is_read_last_may_show_that_a_choice_was_made() -> None:
    bench = bound_to_an_unseen_volume()

    def show(kind: str, _key: str) -> None:
        if kind == "pv":
            bench.cluster.provision("a")

    bench.reads.on_read = show
    bench.sweeper.run_once()

    assert bench.cluster.pending() == {"n1": 100}
    assert bench.held == 0  # it is assumed


def test_a_hold_stays_before_its_time() -> None:
    bench = Bench()
    bench.cluster.add_pod("a")
    bench.cluster.filter("a", "n1")
    bench.cluster.clock.advance(4)

    bench.sweeper.run_once()

    assert bench.held == 1
    assert bench.reads.reads == []


def test_a_choice_that_only_the_live_read_shows_keeps_the_promise() -> None:
    bench = held_and_due()

    def choose(kind: str, key: str) -> None:
        if kind == "claim":
            bench.cluster.set_claim(replace(bench.cluster.claims["a"], selected_node="n1"))

    bench.reads.on_read = choose
    bench.sweeper.run_once()

    snapshot = bench.cluster.allocator.snapshot()
    assert (snapshot.held_count, snapshot.assumed_count) == (0, 1)


def test_a_read_that_fails_keeps_the_hold_up_to_the_cap() -> None:
    bench = held_and_due()

    def fail(kind: str, key: str) -> None:
        raise UnavailableError("503")

    bench.reads.on_read = fail
    bench.sweeper.run_once()
    assert bench.held == 1

    bench.cluster.clock.advance(120)
    bench.sweeper.run_once()
    assert bench.held == 0


def test_a_pod_that_is_filtered_again_during_the_read_keeps_its_new_hold() -> None:
    bench = held_and_due()

    def filter_again(kind: str, key: str) -> None:
        bench.cluster.filter("a", "n1")

    bench.reads.on_read = filter_again
    bench.sweeper.run_once()

    assert bench.held == 1


def test_a_follower_ends_nothing() -> None:
    bench = held_and_due()
    bench.is_leading = False

    bench.sweeper.run_once()

    assert bench.held == 1
    assert bench.reads.reads == []


# Expansions


def growing() -> tuple[Bench, str]:
    """A volume of 100 GiB that was allowed to grow to 200, a minute ago."""
    bench = Bench()
    bench.cluster.add_claim("a", 100)
    name = bench.cluster.provision("a")
    bench.cluster.place(name, "n1", 100)
    request = GrowthRequest(name, 200 * GIB, "ns", "a")
    assert GrowthVerdict.ADMITTED is bench.cluster.allocator.expansions.hold(request).verdict
    bench.cluster.clock.advance(HOLD_SECONDS)
    return bench, name


def test_an_expansion_that_was_never_seen_ends_after_a_live_read_of_claim_and_volume() -> None:
    bench, name = growing()
    assert 1 == bench.held
    bench.sweeper.run_once()
    assert [("claim", "ns/a"), ("volume", f"/{name}")] == bench.reads.reads
    assert 0 == bench.held


def test_an_expansion_that_a_live_read_shows_goes_on() -> None:
    bench, _ = growing()

    def on_read(kind: str, key: str) -> None:
        if kind == "claim":
            bench.cluster.set_claim(replace(bench.cluster.claims["a"], requested_bytes=200 * GIB))

    bench.reads.on_read = on_read
    bench.sweeper.run_once()
    assert ["ASSUMED"] == [promise.state for promise in bench.cluster.allocator.snapshot().promises]


def test_an_expansion_that_cannot_be_read_stays() -> None:
    bench, _ = growing()

    def on_read(kind: str, key: str) -> None:
        raise UnavailableError("no connection")

    bench.reads.on_read = on_read
    for _ in range(3):
        bench.cluster.clock.advance(HOLD_SECONDS)
        bench.sweeper.run_once()
    assert 1 == bench.held
    bench.cluster.clock.advance(HOLD_SECONDS)
    bench.sweeper.run_once()
    assert 0 == bench.held, "five minutes are over"


def test_an_expansion_whose_objects_cannot_be_parsed_keeps_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    bench, bad = growing()
    bench.cluster.add_claim("b", 10)
    good = bench.cluster.provision("b")
    bench.cluster.place(good, "n1", 10)
    request = GrowthRequest(good, 20 * GIB, "ns", "b")
    assert GrowthVerdict.ADMITTED is bench.cluster.allocator.expansions.hold(request).verdict
    bench.cluster.clock.advance(HOLD_SECONDS)

    def on_read(kind: str, key: str) -> None:
        if key == f"/{bad}":
            raise ClusterError("volume cannot be read: spec.size: is missing")

    bench.reads.on_read = on_read
    for _ in range(3):
        bench.sweeper.run_once()
    assert [bad] == bench.cluster.due_growths()
    assert 1 == len(caplog.records), "said once"


def test_a_follower_ends_no_expansion() -> None:
    bench, _ = growing()
    bench.is_leading = False
    bench.sweeper.run_once()
    assert (1, []) == (bench.held, bench.reads.reads)


def test_an_object_that_cannot_be_parsed_keeps_nobody_from_reading_the_others() -> None:
    bench = bound_to_an_unseen_volume()
    bench.reads.absent = {("pv", "/pvc-uid-a")}

    def fail(kind: str, _key: str) -> None:
        if kind == "pod":
            raise ClusterError("pod cannot be read: spec.volumes: is no list")

    bench.reads.on_read = fail
    bench.cluster.clock.advance(1000)
    bench.sweeper.run_once()
    assert bench.reads.reads[-1] == ("pv", "/pvc-uid-a")
    assert bench.held == 0
