"""Order of a term's beginning and end, and of the modes; the steps are called by hand, so nothing runs beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.waiting.refusals import Wakeup
from controller.assembly.lifecycle import RULE_OUT_SECONDS, Configured, Lifecycle, Parts, mode_of
from controller.errors import UnavailableError
from controller.model.longhorn import LonghornSettings
from controller.process.common_metrics import StoreState
from controller.process.worker import Worker
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster
from tests.fakes.waiting import wait_until


class Parted:
    """Every part writes what it was asked into one list."""

    def __init__(self) -> None:
        self.cluster = TestCluster(live=LiveSettings(enabled=True))
        self.said: list[str] = []
        self.live = LiveSettings(enabled=True)
        self.problems: dict[str, str] = {}
        self.read_fault: Exception | None = None
        self.no_pod_opts_in = True
        self.gate = FakeGate(self.said)
        self.follower = FakeFollower(self.said)
        self.endpoint = FakeEndpoint(self.said)
        self.waker = FakeWaker(self.said)
        self.lifecycle = Lifecycle(
            Parts(
                clock=self.cluster.clock,
                allocator=self.cluster.allocator,
                followers=[self.follower],
                gate=self.gate,
                elector=Named("elector", self.said),
                sweeper=Named("sweeper", self.said),
                waker=self.waker,
                endpoint=self.endpoint,
                always=[Named("recorder", self.said)],
                read_settings=self.read_settings,
                no_pod_opts_in=lambda: self.no_pod_opts_in,
                end_process=lambda: self.said.append("end"),
            )
        )

    def read_settings(self) -> Configured:
        if self.read_fault is not None:
            fault, self.read_fault = self.read_fault, None
            raise fault
        return Configured(self.live, LonghornSettings(), self.problems)

    def step(self) -> list[str]:
        """What the parts were asked in one step."""
        self.said.clear()
        self.lifecycle.step()
        return list(self.said)

    def leading(self) -> Parted:
        self.lifecycle.step()
        self.lifecycle.begin_term(1)
        self.lifecycle.step()
        return self

    def mode(self) -> str:
        return str(self.lifecycle.mode)

    def set_live(self, **fields: object) -> None:
        self.live = replace(self.live, **fields)  # type: ignore[arg-type]
        self.lifecycle.settings_changed()


class Named:
    workers: Sequence[Worker] = ()

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def start(self) -> None:
        self.said.append(f"{self.name} start")

    def stop(self) -> None:
        self.said.append(f"{self.name} stop")


class FakeWaker(Named):
    def __init__(self, said: list[str]) -> None:
        super().__init__("waker", said)

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        self.said.append("wake " + ",".join(sorted(wakeup.name for wakeup in wakeups)))


class FakeFollower(Named):
    is_synced = True
    catches_up = True
    on_start: Callable[[], None] | None = None

    def start(self) -> None:
        super().start()
        if self.on_start is not None:
            self.on_start()

    def __init__(self, said: list[str]) -> None:
        super().__init__("informer", said)

    def catch_up(self, timeout: float) -> bool:
        self.said.append("catch up")
        return self.catches_up

    def state(self) -> StoreState:
        return StoreState("pods", self.is_synced, objects=0, bad=0, age_seconds=0.0)


class FakeGate:
    is_open = False

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def open(self, term: int) -> None:
        self.said.append(f"gate open {term}")
        self.is_open = True

    def close(self) -> None:
        self.said.append("gate close")
        self.is_open = False


class FakeEndpoint:
    failure: UnavailableError | None = None

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def point_here(self) -> None:
        self.said.append("point here")
        if self.failure is not None:
            raise self.failure

    def clear(self) -> None:
        self.said.append("clear")


def test_nobody_stands_for_election_before_the_stores_are_synced() -> None:
    parted = Parted()
    parted.follower.is_synced = False
    assert parted.step() == []

    parted.follower.is_synced = True
    assert parted.step() == ["elector start"]
    assert parted.step() == []


def test_a_term_begins_with_caught_up_stores_and_ends_its_beginning_with_the_endpoint() -> None:
    parted = Parted()
    parted.step()

    parted.lifecycle.begin_term(7)

    assert parted.step() == ["catch up", "gate open 7", "sweeper start", "waker start", "point here"]
    assert parted.lifecycle.term == 7


def test_the_gate_stays_closed_until_the_stores_have_caught_up() -> None:
    parted = Parted()
    parted.step()
    parted.follower.catches_up = False
    parted.lifecycle.begin_term(1)
    assert parted.step() == ["catch up"]

    parted.follower.catches_up = True
    assert parted.step()[:2] == ["catch up", "gate open 1"]


def test_losing_the_lease_closes_the_gate_first_and_in_the_electors_own_thread() -> None:
    parted = Parted().leading()
    parted.said.clear()

    parted.lifecycle.end_term()
    assert parted.said == ["gate close"]

    assert parted.step() == ["gate close", "waker stop", "sweeper stop"]
    assert parted.lifecycle.term is None


def test_a_lease_that_is_lost_while_the_stores_catch_up_opens_nothing() -> None:
    parted = Parted()
    parted.step()
    parted.lifecycle.begin_term(1)
    catch_up = parted.follower.catch_up

    def lost_meanwhile(timeout: float) -> bool:
        parted.lifecycle.end_term()
        return catch_up(timeout)

    parted.follower.catch_up = lost_meanwhile  # type: ignore[method-assign]

    parted.step()

    assert not parted.gate.is_open
    assert "gate open 1" not in parted.said


def test_a_lease_that_is_lost_as_the_gate_opens_closes_it_again() -> None:
    parted = Parted()
    parted.step()
    parted.lifecycle.begin_term(1)
    begin = parted.cluster.allocator.begin_term

    def lost_meanwhile(*, has_predecessor: bool = True) -> None:
        begin(has_predecessor=has_predecessor)
        parted.lifecycle.end_term()

    parted.cluster.allocator.begin_term = lost_meanwhile  # type: ignore[method-assign]

    parted.step()
    assert not parted.gate.is_open
    parted.step()
    assert parted.lifecycle.term is None


def test_a_new_term_right_after_the_old_one_is_begun_anew() -> None:
    parted = Parted().leading()
    parted.lifecycle.end_term()
    parted.lifecycle.begin_term(2)

    said = parted.step()

    assert said.index("sweeper stop") < said.index("catch up") < said.index("gate open 2")
    assert parted.lifecycle.term == 2


def test_the_endpoint_is_asserted_again_and_tried_again_when_it_failed() -> None:
    parted = Parted().leading()
    assert parted.step() == []
    parted.cluster.clock.advance(10)
    parted.endpoint.failure = UnavailableError("503")
    assert parted.step() == ["point here"]
    assert parted.step() == []
    parted.endpoint.failure = None
    parted.cluster.clock.advance(1)
    assert parted.step() == ["point here"]


def test_bypass_wakes_every_pod_that_waits_and_once_more_those_refused_meanwhile() -> None:
    parted = Parted().leading()
    parted.cluster.add_pod("a")
    parted.cluster.add_pod("b")

    parted.set_live(bypass=True)

    assert parted.step() == ["point here", "wake a,b"]
    assert parted.lifecycle.mode is Mode.BYPASS
    assert parted.step() == []
    parted.cluster.clock.advance(2)
    assert parted.step() == ["wake a,b"]
    parted.cluster.clock.advance(2)
    assert parted.step() == []


def test_switched_off_it_lets_pods_pass_that_still_carry_the_resource_and_then_closes() -> None:
    parted = Parted().leading()
    parted.cluster.add_pod("a")

    parted.set_live(enabled=False)
    parted.step()
    assert parted.mode() == "bypass"

    parted.cluster.change_pod("a", node_name="n1")
    assert parted.step() == ["clear"]
    assert parted.mode() == "closed"

    parted.cluster.add_pod("late")
    assert parted.step() == ["point here"]
    assert parted.mode() == "bypass"


def test_switched_off_pods_stop_opting_in_first_then_it_lets_pods_pass_and_then_it_closes() -> None:
    parted = Parted().leading()
    parted.no_pod_opts_in = False
    parted.cluster.add_pod("a")
    parted.set_live(enabled=False)
    parted.step()
    assert parted.mode() == "active"
    parted.no_pod_opts_in = True
    parted.step()
    assert parted.mode() == "bypass"
    parted.cluster.change_pod("a", node_name="n1")
    parted.step()
    assert parted.mode() == "closed"


def test_a_rule_that_cannot_be_taken_out_delays_bypass_for_seconds_and_closing_for_ever() -> None:
    parted = Parted().leading()
    parted.no_pod_opts_in = False
    parted.set_live(enabled=False)
    parted.step()
    parted.cluster.clock.advance(RULE_OUT_SECONDS - 0.1)
    parted.step()
    assert parted.mode() == "active"
    parted.cluster.clock.advance(0.1)
    parted.step()
    assert parted.mode() == "bypass"
    parted.cluster.clock.advance(3_600)
    parted.step()
    assert parted.mode() == "bypass"


def test_bypass_waits_for_no_rule() -> None:
    parted = Parted().leading()
    parted.no_pod_opts_in = False
    parted.set_live(bypass=True)
    parted.step()
    assert parted.mode() == "bypass"


def test_switched_on_again_it_decides_again() -> None:
    parted = Parted().leading()
    parted.set_live(enabled=False)
    parted.step()

    parted.set_live(enabled=True)

    assert parted.step() == ["point here"]
    assert parted.lifecycle.mode is Mode.ACTIVE


@pytest.mark.parametrize(
    ("enabled", "bypass", "pods", "mode"),
    [
        (True, False, True, Mode.ACTIVE),
        (True, True, True, Mode.BYPASS),
        (False, True, False, Mode.BYPASS),
        (False, False, True, Mode.BYPASS),
        (False, False, False, Mode.CLOSED),
    ],
)
def test_the_mode_follows_settings_and_pods(enabled: bool, bypass: bool, pods: bool, mode: Mode) -> None:
    cluster = TestCluster()
    if pods:
        cluster.add_pod("a")

    assert mode_of(LiveSettings(enabled=enabled, bypass=bypass), cluster.allocator.pending_opted_in) is mode


def run_until_it_points_here(parted: Parted) -> None:
    parted.lifecycle.begin_term(0)
    parted.lifecycle.start()
    end = time.monotonic() + 30
    while "point here" not in parted.said and time.monotonic() < end:
        time.sleep(0.01)


def test_a_stop_clears_the_endpoint_though_the_answer_to_the_write_was_lost() -> None:
    parted = Parted()
    parted.endpoint.failure = UnavailableError("no answer in time")
    run_until_it_points_here(parted)

    parted.lifecycle.stop()

    assert "clear" in parted.said


def test_a_stop_clears_the_endpoint_though_the_lease_has_run_out() -> None:
    parted = Parted().leading()
    parted.gate.is_open = False
    parted.lifecycle.begin_stop()
    parted.lifecycle.start()

    parted.lifecycle.stop()

    assert "clear" in parted.said


def test_a_copy_that_never_led_leaves_the_endpoint_alone() -> None:
    parted = Parted()
    parted.lifecycle.start()

    parted.lifecycle.stop()

    assert "clear" not in parted.said


def test_a_clean_stop_clears_the_endpoint_while_the_lease_is_still_ours() -> None:
    parted = Parted()
    run_until_it_points_here(parted)

    parted.lifecycle.stop()

    ending = parted.said[parted.said.index("waker start") :]
    assert [line for line in ending if line != "point here"] == [
        "waker start",
        "gate close",
        "clear",
        "elector stop",
        "waker stop",
        "sweeper stop",
        "recorder stop",
        "informer stop",
    ]


def test_a_ledger_that_could_not_be_rebuilt_ends_the_process() -> None:
    parted = Parted().leading()
    parted.cluster.allocator._failure = "the ledger could not be rebuilt"
    assert ["gate close", "end"] == parted.step()


def test_a_stop_that_is_asked_for_while_the_parts_start_is_heard() -> None:
    parted = Parted()
    parted.follower.on_start = parted.lifecycle.begin_stop
    parted.lifecycle.start()
    wait_until(lambda: "informer stop" in parted.said)


@pytest.mark.parametrize("part", ["settings", "allocator"])
def test_settings_that_could_not_be_applied_are_applied_again(part: str) -> None:
    parted = Parted()
    parted.read_fault = UnavailableError("odd") if part == "settings" else None
    if part == "allocator":
        parted.cluster.allocator.configure = raising(parted.cluster.allocator.configure)  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        parted.lifecycle.step()
    assert parted.lifecycle.configured is None
    parted.lifecycle.step()
    assert parted.lifecycle.configured is not None


def raising(configure: Callable[..., None]) -> Callable[..., None]:
    """The first call fails."""
    faults = [UnavailableError("odd")]

    def once(*args: object) -> None:
        if faults:
            raise faults.pop()
        configure(*args)

    return once
