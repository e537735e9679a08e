"""Order of a term's beginning and end, and of the modes; the steps are called by hand, so nothing runs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from certs.keeper import NoCertificates
from controller.allocator.outcome import Mode, Wakeup
from controller.assembly.configuration import MODE_TEXTS, Configured
from controller.assembly.lifecycle import RULE_OUT_SECONDS, Lifecycle, Parts
from controller.election.gate import Gate
from controller.errors import NotLeaderError, UnavailableError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import LonghornSettings
from controller.placement.plan_objects import Loaded
from controller.process.common_metrics import StoreState
from controller.process.worker import Worker
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, replica, volume
from tests.waiting import wait_until


class Said(list[str]):
    """What the parts were asked, in order; `fails`: what is raised at a line that begins so."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: dict[str, Exception] = {}

    def note(self, line: str) -> None:
        self.append(line)
        for start, failure in self.fails.items():
            if line.startswith(start):
                raise failure

    def noting(self, line: str, then: Callable[[], object] = lambda: None) -> Callable[[], None]:
        def noted() -> None:
            self.note(line)
            then()

        return noted


class Named:
    """A part that writes down what it is asked."""

    workers: Sequence[Worker] = ()
    is_synced = catches_up = True

    def __init__(self, name: str, said: Said) -> None:
        self.said = said
        self.start, self.stop = said.noting(f"{name} start"), said.noting(f"{name} stop")

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        self.said.note("wake " + ",".join(sorted(wakeup.name for wakeup in wakeups)))

    def catch_up(self, timeout: float) -> bool:
        self.said.note("catch up")
        return self.catches_up

    def state(self) -> StoreState:
        return StoreState("pods", self.is_synced, objects=0, bad=0, age_seconds=0.0)


class Parted:
    """Every part writes what it was asked into one list; the endpoint and the steps of a term are this object."""

    def __init__(self) -> None:
        self.cluster = TestCluster(live=LiveSettings(enabled=True))
        clock = self.cluster.clock
        self.said = said = Said()
        self.told: list[tuple[str, bool]] = []
        self.live = LiveSettings(enabled=True)
        self.problems: dict[str, str] = {}
        self.record: list[Allocation] = []
        self.no_pod_opts_in = True
        self.gate = gate = Gate(clock)
        gate.renewed(clock.now(), clock.now_utc().timestamp(), float("inf"))
        gate.open = said.noting("gate open", gate.open)  # type: ignore[method-assign]
        gate.close = said.noting("gate close", gate.close)  # type: ignore[method-assign]
        self.certificates = NoCertificates()
        self.follower = Named("informer", said)
        self.point_here, self.clear = said.noting("point here"), said.noting("clear")
        self.end = said.noting("store plans and holds")
        self.changed = lambda: None
        allocator, followers = self.cluster.allocator, [self.follower]
        self.lifecycle = Lifecycle(clock, allocator, gate, followers, self.read_settings, said.noting("end"))
        self.lifecycle.take_parts(
            Parts(
                elector=Named("elector", said),
                sweeper=Named("sweeper", said),
                waker=Named("waker", said),
                endpoint=self,
                certificates=self.certificates,
                terms=self,
                load_record=self.load_record,
                begun=said.noting("begun"),
                always=[Named("recorder", said)],
                tell=lambda reason, text, is_warning: self.told.append((f"{reason} {text}", is_warning)),
                no_pod_opts_in=lambda: self.no_pod_opts_in,
            )
        )

    def fence(self, term: int) -> None:
        self.said.note(f"fence {term}")

    def load(self, term: int) -> Loaded:
        self.said.note(f"load {term}")
        return Loaded()

    def load_record(self) -> list[Allocation]:
        self.said.note("load record")
        return self.record

    def read_settings(self) -> Configured:
        return Configured(self.live, LonghornSettings(), dict(self.problems))

    def step(self, *, after: float = 0.0) -> list[str]:
        """What the parts were asked in one step."""
        self.cluster.clock.advance(after)
        self.said.clear()
        self.lifecycle.step()
        return list(self.said)

    def next_mode(self, *, after: float = 0.0) -> str:
        self.step(after=after)
        return str(self.lifecycle.mode)

    def elected(self) -> Parted:
        """Just now, and nothing was done about it yet."""
        self.lifecycle.step()
        self.lifecycle.begin_term(1, False)
        return self

    def leading(self) -> Parted:
        self.elected().lifecycle.step()
        return self

    def lead_again(self) -> list[str]:
        """The Lease was lost and won in the next term, and one step was done about both."""
        self.lifecycle.end_term()
        self.lifecycle.begin_term(2, False)
        return self.step()

    def set_live(self, **fields: object) -> None:
        self.live = replace(self.live, **fields)  # type: ignore[arg-type]
        self.lifecycle.settings_changed()

    def told_since(self) -> list[tuple[str, bool]]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def parted() -> Parted:
    return Parted()


@pytest.fixture
def leader(parted: Parted) -> Parted:
    return parted.leading()


BEGINNING = ["fence 1", "catch up", "load 1", "load record", "gate open", "begun"]
BEGINNING += ["sweeper start", "waker start", "point here"]
AWAY = UnavailableError("away")


def test_nobody_stands_for_election_before_the_stores_are_synced(parted: Parted) -> None:
    parted.follower.is_synced = False
    assert parted.step() == []
    parted.follower.is_synced = True
    assert [parted.step(), parted.step()] == [["elector start"], []]


def test_a_term_begins_with_caught_up_stores_and_ends_its_beginning_with_the_endpoint(parted: Parted) -> None:
    assert (parted.elected().step(), parted.lifecycle.term) == (BEGINNING, 1)


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("fence", AWAY),
        ("fence", NotLeaderError("over")),
        ("catch up", AWAY),
        ("catch up", None),
        ("catch up", ValueError("a fault of ours")),  # which is not swallowed
        ("load record", AWAY),
    ],
)
def test_the_gate_stays_closed_until_the_former_leader_is_fenced_off_and_all_it_left_is_known(
    parted: Parted, what: str, fault: Exception | None
) -> None:
    parted.elected().follower.catches_up = fault is not None
    parted.said.fails = {what: fault} if fault is not None else {}
    with pytest.raises(ValueError, match="of ours") if isinstance(fault, ValueError) else nullcontext():
        parted.step()
    assert parted.said == BEGINNING[: len(parted.said)]
    assert parted.said[-1].startswith(what) and not parted.gate.is_open
    parted.said.fails, parted.follower.catches_up = {}, True
    assert parted.step() == BEGINNING


def test_what_the_leader_before_gave_by_name_is_known_when_the_term_begins(parted: Parted) -> None:
    parted.live = replace(parted.live, allocation_authority="disk-scheduler")
    allocator = parted.elected().cluster.allocator
    parted.cluster.add_node("n1")
    allocator.observe_volume("v", volume("v"))
    allocator.observe_replica("r", replica("r", "v"))
    parted.record = [Allocation(Purpose.REPLICA, "r", "n1", "n1-d1", GIB)]
    assert (allocator.record.waiting(), parted.step(), allocator.record.waiting()) == (0, BEGINNING, 1)


def test_losing_the_lease_closes_the_gate_first_and_in_the_electors_own_thread(leader: Parted) -> None:
    leader.said.clear()
    leader.lifecycle.end_term()
    assert leader.said == ["gate close"]
    assert leader.step() == ["gate close", "waker stop", "sweeper stop"]
    assert leader.lifecycle.term is None


@pytest.mark.parametrize("opens", [pytest.param(False, id="stores catch up"), pytest.param(True, id="gate opens")])
def test_a_lease_that_is_lost_while_a_term_begins_leaves_the_gate_closed(
    parted: Parted, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, name = (parted.cluster.allocator, "begin_term") if opens else (parted.follower, "catch_up")
    asked = getattr(part, name)

    def lost_meanwhile(*arguments: Any, **more: Any) -> Any:
        answer = asked(*arguments, **more)
        parted.lifecycle.end_term()
        return answer

    monkeypatch.setattr(part, name, lost_meanwhile)
    assert opens is ("gate open" in parted.elected().step())
    assert not parted.gate.is_open
    parted.step()
    assert parted.lifecycle.term is None


def test_a_new_term_right_after_the_old_one_is_begun_anew_and_held_while_its_lease_is_renewed(leader: Parted) -> None:
    said = leader.lead_again()
    assert said.index("sweeper stop") < said.index("catch up") < said.index("gate open")
    assert leader.lifecycle.term == 2
    assert [leader.lifecycle.holds(term) for term in (1, 2)] == [False, True]
    leader.gate.renewed(0.0, 0.0, 10.0)  # long ago
    assert not leader.lifecycle.holds(2)


def test_the_endpoint_is_asserted_again_and_tried_again_when_it_failed(leader: Parted) -> None:
    assert leader.step() == []
    leader.said.fails = {"point here": AWAY}
    assert [leader.step(after=10), leader.step()] == [["point here"], []]
    leader.said.fails = {}
    assert leader.step(after=1) == ["point here"]


def test_the_service_leads_nowhere_until_there_is_a_certificate(
    parted: Parted, caplog: pytest.LogCaptureFixture
) -> None:
    parted.certificates.is_serving = False
    assert "point here" not in parted.leading().said
    for told in (0, 1, 1):
        for _ in range(15):
            assert [] == parted.step(after=1)
        assert told == caplog.text.count("EndpointSlice: there is no server certificate yet")
    parted.certificates.is_serving = True
    assert ["point here"] == parted.step(after=1)


def test_what_keeps_a_term_from_beginning_is_logged_once(parted: Parted, caplog: pytest.LogCaptureFixture) -> None:
    parted.said.fails = {"fence": AWAY}
    parted.elected()
    for _ in range(20):
        parted.step(after=1)
    parted.said.fails, parted.follower.catches_up = {}, False
    for _ in range(20):
        parted.step(after=1)
    told = [record.getMessage() for record in caplog.records if "the term cannot begin" in record.getMessage()]
    assert ["away", "stores did not catch up in time"] == [text.split(": ")[1] for text in told]


def test_settings_that_are_not_as_by_default_are_logged_by_name_and_then_what_changes(
    parted: Parted, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        found = [text for text in caplog.messages if text.startswith("settings")]
        caplog.clear()
        return found

    caplog.set_level("INFO")
    parted.set_live(max_offers=8, enabled=True)
    parted.step()
    assert ["settings scheduler-extender-enabled=true scheduler-extender-max-offers=8"] == told()
    parted.set_live(bypass=True)
    parted.step()
    assert ['settings changed scheduler-extender-bypass="false -> true"'] == told()
    parted.step()
    assert [] == told()


def test_bypass_wakes_every_pod_that_waits_and_once_more_those_refused_meanwhile(leader: Parted) -> None:
    leader.cluster.add_pod("a")
    leader.cluster.add_pod("b")
    leader.no_pod_opts_in = False  # which bypass does not wait for
    leader.set_live(bypass=True)
    assert leader.step() == ["point here", "wake a,b"]
    assert leader.lifecycle.mode is Mode.BYPASS
    assert [leader.step(), leader.step(after=2), leader.step(after=2)] == [[], ["wake a,b"], []]


def test_a_term_that_begins_in_bypass_wakes_every_pod_that_waits(parted: Parted) -> None:
    """Those that an earlier leader refused: this process may have seen no change of mode."""
    parted.cluster.add_pod("a")
    parted.set_live(bypass=True)
    assert parted.elected().step()[-2:] == ["point here", "wake a"]
    assert parted.step(after=2) == ["wake a"]
    assert parted.lead_again()[-1] == "wake a"


def test_the_leader_tells_of_its_mode_and_of_every_setting_that_is_not_used(parted: Parted) -> None:
    parted.problems = {"one": "'x' is odd"}
    parted.elected()
    assert [] == parted.told_since()  # nobody who only follows speaks
    parted.step()
    parted.step()
    assert parted.told_since() == [
        ("SchedulerExtenderSetting one: 'x' is odd", True),
        (f"SchedulerExtenderMode Mode active: {MODE_TEXTS[Mode.ACTIVE]}", False),
    ]
    parted.problems["two"] = "'y' is odd"
    parted.set_live(bypass=True)
    parted.step()
    assert parted.told_since() == [
        ("SchedulerExtenderSetting two: 'y' is odd", True),
        (f"SchedulerExtenderMode Mode bypass: {MODE_TEXTS[Mode.BYPASS]}", True),
    ]
    parted.lead_again()
    assert 3 == len(parted.told_since())  # to those who look after a change of leader


def test_bypass_says_how_many_pods_it_lets_through_that_had_been_refused(leader: Parted) -> None:
    leader.cluster.add_node("n1", free_gib=10)
    for name in ("a", "b"):
        leader.cluster.add_pod(name)
        assert not leader.cluster.offered(name, "n1")
    leader.told_since()
    leader.set_live(bypass=True)
    leader.step()
    ((text, is_warning),) = leader.told_since()
    assert (True, True) == (is_warning, text.endswith(". 2 pods that were refused are let through now"))
    assert "without room" in text


def test_switched_off_pods_stop_opting_in_first_then_those_that_ask_are_let_through_and_then_it_closes(
    leader: Parted,
) -> None:
    leader.no_pod_opts_in = False
    leader.cluster.add_pod("a")
    leader.set_live(enabled=False)
    assert leader.next_mode() == "active"
    leader.no_pod_opts_in = True
    assert leader.next_mode() == "bypass"
    leader.cluster.change_pod("a", node_name="n1")
    assert (leader.step(), leader.lifecycle.mode) == (["clear"], Mode.CLOSED)
    leader.cluster.add_pod("late")
    assert (leader.step(), leader.lifecycle.mode) == (["point here", "wake late"], Mode.BYPASS)
    leader.set_live(enabled=True)
    assert (leader.step(), leader.lifecycle.mode) == (["point here"], Mode.ACTIVE)


def test_a_rule_that_cannot_be_taken_out_delays_bypass_for_seconds_and_closing_for_ever(leader: Parted) -> None:
    leader.no_pod_opts_in = False
    leader.set_live(enabled=False)
    leader.step()
    modes = [leader.next_mode(after=seconds) for seconds in (RULE_OUT_SECONDS - 0.1, 0.1, 3_600)]
    assert ["active", "bypass", "bypass"] == modes


def run_until_it_points_here(parted: Parted) -> None:
    parted.lifecycle.begin_term(0, False)
    parted.lifecycle.start()
    wait_until(lambda: "point here" in parted.said)


@pytest.mark.parametrize("how", ["its answer to the write was lost", "its lease has run out", "it does not lead yet"])
def test_a_stop_clears_the_endpoint_that_this_pod_may_have_written(parted: Parted, how: str) -> None:
    """Also when another worker in it did, and died."""
    if how == "its answer to the write was lost":
        parted.said.fails = {"point here": AWAY}
        run_until_it_points_here(parted)
    else:
        if how == "its lease has run out":
            parted.leading().gate.close()
            parted.lifecycle.begin_stop()
        parted.lifecycle.start()
    parted.lifecycle.stop()
    assert "clear" in parted.said


@pytest.mark.parametrize("fails", [{}, {"clear": AWAY}], ids=["done", "not done"])
def test_a_clean_stop_clears_the_endpoint_while_the_lease_is_still_ours(
    parted: Parted, fails: dict[str, Exception]
) -> None:
    run_until_it_points_here(parted)
    parted.said.fails = fails
    parted.lifecycle.stop()
    ending = [line for line in parted.said[parted.said.index("waker start") :] if line != "point here"]
    closing = ["waker start", "gate close", "store plans and holds", "clear", "elector stop"]
    assert ending == [*closing, "waker stop", "sweeper stop", "recorder stop", "informer stop"]


def test_a_table_that_could_not_be_rebuilt_ends_the_process(leader: Parted) -> None:
    leader.cluster.allocator._failure = "the table could not be rebuilt"
    assert ["gate close", "end"] == leader.step()


def test_a_stop_that_is_asked_for_while_the_parts_start_is_heard(
    parted: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parted.follower, "start", parted.lifecycle.begin_stop)
    parted.lifecycle.start()
    wait_until(lambda: "informer stop" in parted.said)


@pytest.mark.parametrize("part", ["settings", "allocator"])
def test_settings_that_could_not_be_applied_are_applied_again(
    parted: Parted, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (parted.lifecycle, "_read_settings")
    where, name = settings if part == "settings" else (parted.cluster.allocator, "configure")
    monkeypatch.setattr(where, name, Mock(side_effect=[AWAY, parted.read_settings()]))
    with pytest.raises(UnavailableError):
        parted.lifecycle.step()
    assert parted.lifecycle.configured is None
    parted.lifecycle.step()
    assert parted.lifecycle.configured is not None


def test_a_stop_that_is_asked_for_twice_at_once_is_begun_once(parted: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one signal's handler interrupts another's, in the midst of setting an Event."""
    begin = Mock(side_effect=parted.lifecycle.begin_stop)
    monkeypatch.setattr(parted.lifecycle.worker, "begin_stop", begin)
    parted.lifecycle.begin_stop()
    begin.assert_called_once()
