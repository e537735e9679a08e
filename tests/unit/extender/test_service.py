"""A filter call: the order of its steps, and that no failure leaves a hold behind. The allocator is the real one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import MOST_CLAIMS, Decision, FilterOutcome, Mode
from controller.allocator.world.absences import ABSENT_SECONDS
from controller.errors import BugError, ClusterError, NotLeaderError, NotReadyError, NotSyncedError, UnavailableError
from controller.model.longhorn import Backup
from controller.model.workload import Claim, Pod, PodVolume
from controller.rules.reasons import Reason
from extender.preconditions import PodFailedError
from extender.service import ClientGoneError
from tests.fakes.builders import GIB, ONE_LOCAL, observe, pod
from tests.fakes.edges import Anywhere
from tests.unit.extender.bench import VerbBench, args_for


@pytest.fixture
def bench() -> VerbBench:
    return VerbBench(n1=400, n2=50)


def test_a_node_with_room_is_offered_and_held(bench: VerbBench) -> None:
    answer = bench.filter(bench.cluster.add_pod("a"), "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]
    assert answer["FailedNodes"] == {}
    assert bench.held == 1
    assert bench.decisions == [Decision.OFFERED]
    (noted,) = bench.noted.after()
    assert ("filter", "Pod ns/a", "offered", "1 of 2 nodes passed") == (
        noted.kind,
        noted.about,
        noted.decision,
        noted.text,
    )
    assert {"InsufficientStorage": 1} == noted.reasons


@pytest.mark.parametrize(
    "check", [pytest.param(1, id="a follower"), pytest.param(2, id="who loses the lease meanwhile")]
)
def test_who_does_not_lead_answers_nobody_and_leaves_no_hold(bench: VerbBench, check: int) -> None:
    bench.gate.checks_left = check - 1
    bench.fails(bench.cluster.add_pod("a"), NotLeaderError)
    with pytest.raises(NotLeaderError):
        bench.service.check_ready()


def test_an_answer_of_an_earlier_term_is_not_given(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")
    bench.live.shows[""] = lambda: setattr(bench.gate, "openings", 2)
    bench.fails(pod, NotReadyError)


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.UNKNOWN])
def test_disabled_is_an_error_and_bypass_lets_all_pass_without_a_hold(bench: VerbBench, mode: Mode) -> None:
    pod = bench.cluster.add_pod("a")
    bench.mode = mode
    bench.fails(pod, NotReadyError)
    bench.mode = Mode.BYPASS
    bench.stale = "pods"  # bypass is the break-glass: it asks for nothing
    assert bench.filter(pod, "n2", "n9")["NodeNames"] == ["n2", "n9"]
    assert bench.held == 0
    assert bench.decisions == [Decision.BYPASS]


def test_stale_stores_are_an_error(bench: VerbBench) -> None:
    bench.stale = "replicas"
    bench.fails(bench.cluster.add_pod("a"), NotSyncedError, "replicas")


def test_a_pod_without_claims_passes_without_being_looked_up(bench: VerbBench) -> None:
    bench.stale = "replicas"
    assert bench.filter(pod("plain"), "n1", "n9")["NodeNames"] == ["n1", "n9"]
    assert bench.decisions == [Decision.NOTHING_NEEDED]
    assert bench.live.reads == []


@pytest.mark.parametrize("kind", ["pod", "claim"])
def test_what_our_watch_does_not_show_yet_is_read_once_and_counts(bench: VerbBench, kind: str) -> None:
    pod = bench.cluster.add_pod("a")
    facts = {"pod": pod, "claim": bench.cluster.claims["a"]}[kind]
    observe(bench.allocator, kind, "ns/a", None)
    bench.live.objects[kind, "ns/a"] = facts
    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1"]
    assert (bench.live.reads, bench.held) == ([(kind, "ns/a")], 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_deleting": True}, "being deleted"),
        ({"is_finished": True}, "has ended"),
        ({"node_name": "n2"}, "already bound"),
    ],
)
def test_a_pod_that_is_not_pending_holds_nothing(bench: VerbBench, change: dict[str, Any], message: str) -> None:
    bench.cluster.add_pod("a")
    bench.fails(bench.cluster.change_pod("a", **change), PodFailedError, message)
    assert bench.live.reads == []


def test_a_pod_that_does_not_exist_and_one_of_another_uid_hold_nothing(bench: VerbBench) -> None:
    gone = bench.cluster.add_pod("gone")
    bench.cluster.drop_pod("gone")
    bench.fails(gone, PodFailedError, "does not exist")
    old = bench.cluster.add_pod("a")
    bench.live.objects["pod", "ns/a"] = bench.cluster.change_pod("a", uid="newer")
    bench.fails(old, PodFailedError, "another pod")


def test_a_claim_that_does_not_exist_needs_nothing(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")
    for _ in range(2):
        assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1", "n2"]
        assert bench.live.reads == [("claim", "ns/a")]


def with_ephemeral_volume(bench: VerbBench) -> tuple[Pod, Claim]:
    """A pod that was made again under its old name; our store has the former pod's claim only."""
    claim = replace(bench.cluster.add_claim("a"), is_deleting=True, owner_pod_uid="former")
    bench.cluster.set_claim(claim)
    pod = bench.cluster.add_pod("a")
    return bench.cluster.change_pod("a", volumes=(PodVolume("v0", "a", is_ephemeral=True),)), replace(
        claim, uid="next", is_deleting=False, owner_pod_uid=pod.uid
    )


def test_a_former_pods_claim_of_the_same_name_is_read_again(bench: VerbBench) -> None:
    pod, bench.live.objects["claim", "ns/a"] = with_ephemeral_volume(bench)
    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1"]
    assert bench.held == 1


def test_another_pods_claim_is_read_once_a_call_and_no_more(bench: VerbBench) -> None:
    pod, _ = with_ephemeral_volume(bench)
    bench.live.objects["claim", "ns/a"] = bench.cluster.claims["a"]
    bench.fails(pod, PodFailedError, "could not be read")
    assert bench.live.reads == [("claim", "ns/a")]


def test_an_api_server_that_does_not_answer_is_an_error_and_no_refusal(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")
    bench.live.fails[""] = UnavailableError("503")
    bench.fails(pod, PodFailedError, "did not answer about the claim")


def test_all_live_reads_of_a_call_share_half_a_second(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a", "c1", "c2", "c3")
    for name in ("c1", "c2", "c3"):
        bench.cluster.drop_claim(name)
    bench.live.shows[""] = lambda: bench.cluster.clock.advance(0.3)
    bench.fails(pod, PodFailedError, "in time")
    assert bench.live.timeouts == [pytest.approx(0.5), pytest.approx(0.2)]


def test_a_call_whose_client_has_left_is_not_looked_at_and_an_earlier_answer_stays(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.filter(pod, "n1")
    bench.is_gone = True
    bench.fails(pod, ClientGoneError)


def contended(waitable: bool = True) -> FilterOutcome:
    return FilterOutcome(Decision.CONTENDED, (), 7, {"n1": Reason.CONTENDED}, waitable)


URL = "s3://bucket/?backup=backup-1&volume=vol-1"


def restored(free_gib: float) -> tuple[VerbBench, Pod]:
    """A pod whose claim of 100 GiB is to be restored, and a node with so much room."""
    bench = VerbBench(n1=free_gib)
    bench.cluster.add_class("restored", **ONE_LOCAL, fromBackup=URL)
    return bench, bench.cluster.add_pod("a", ("a", 100, "restored"))


def held_gib(bench: VerbBench) -> int:
    return bench.allocator.snapshot().held_bytes // GIB


def test_a_restored_volume_is_held_as_large_as_its_backup_which_is_read_once(bench: VerbBench) -> None:
    bench, pod = restored(400)
    bench.live.objects["backup", "backup-1"] = Backup("backup-1", URL, 300 * GIB)
    for _ in range(2):
        assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
    assert (300, [("backup", "backup-1")]) == (held_gib(bench), bench.live.reads)
    bench, pod = restored(200)
    bench.live.objects["backup", "backup-1"] = Backup("backup-1", URL, 300 * GIB)
    assert bench.filter(pod, "n1")["NodeNames"] == []


@pytest.mark.parametrize("error", [None, UnavailableError("away"), ClusterError("forbidden")])
def test_while_a_backup_cannot_be_read_the_request_is_held(
    error: ClusterError | None, caplog: pytest.LogCaptureFixture
) -> None:
    bench, pod = restored(400)
    if error is not None:
        bench.live.fails["backup"] = error
    with caplog.at_level(logging.INFO):
        assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
    assert 100 == held_gib(bench)
    assert "unread_backups=backup-1 " in caplog.text

    bench.live.fails.clear()
    bench.live.objects["backup", "backup-1"] = Backup("backup-1", URL, 300 * GIB)
    bench.cluster.clock.advance(ABSENT_SECONDS + 0.1)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        bench.filter(pod, "n1")
    assert (300, True) == (held_gib(bench), "unread_backups" not in caplog.text)


OFFERED = FilterOutcome(Decision.OFFERED, ("n1",), 8, held_bytes=10)


class ScriptedAllocator:
    """The allocator answers from a list; every wait moves the clock, and succeeds if there is time enough."""

    def __init__(self, *outcomes: FilterOutcome, wait: float = 0.1) -> None:
        self.bench = VerbBench()
        self.bench.wait_seconds = 0.3
        self.outcomes, self.wait = list(outcomes), wait
        self.ended: list[tuple[str, int]] = []
        self.waits: list[float] = []
        self.leaves_while_waiting = False
        self.pod = self.bench.cluster.add_pod("a")
        self.bench.build(Anywhere(), self)

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome:
        return self.outcomes.pop(0)

    def wait_for_change(self, version: int, timeout: float) -> bool:
        self.waits.append(timeout)
        self.bench.is_gone = self.leaves_while_waiting
        self.bench.cluster.clock.advance(min(self.wait, timeout))
        return self.wait < timeout

    def end_holds(self, pod_uid: str, serial: int) -> None:
        self.ended.append((pod_uid, serial))

    def filter(self) -> dict[str, Any]:
        return self.bench.filter(self.pod, "n1")


def test_a_call_waits_for_other_pods_fresh_holds_and_asks_again() -> None:
    script = ScriptedAllocator(contended(), OFFERED)
    assert script.filter()["NodeNames"] == ["n1"]
    assert script.waits == [pytest.approx(0.3)]
    assert script.bench.waits == [pytest.approx(0.1)]


def test_a_call_gives_up_at_the_contention_wait_and_refuses() -> None:
    script = ScriptedAllocator(*[contended()] * 5)
    assert script.filter()["FailedAndUnresolvableNodes"] == {"n1": Reason.CONTENDED.text}
    assert sum(script.bench.waits) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("held", "asked", "wakes"),
    [
        pytest.param(["n1", "n2"], ["n1"], True, id="gives a node back"),
        pytest.param(["n1"], ["n3"], True, id="is refused"),
        pytest.param(["n1"], ["n2", "n1"], False, id="holds all that it held"),
    ],
)
def test_a_pods_new_answer_wakes_calls_that_wait_for_what_it_frees(
    held: list[str], asked: list[str], wakes: bool
) -> None:
    bench = VerbBench(n1=150, n2=150, n3=50)
    allocator = bench.allocator
    first, second = bench.cluster.add_pod("a"), bench.cluster.add_pod("b")
    assert held == allocator.hold_pod(first.uid, held).passed
    waiting = allocator.hold_pod(second.uid, held[-1:])
    assert waiting.waitable

    again = allocator.hold_pod(first.uid, asked)

    assert wakes is allocator.wait_for_change(waiting.version, 0.0)
    assert wakes is bool(allocator.hold_pod(second.uid, held[-1:]).passed)
    # Its own call hears of later changes alone.
    assert not allocator.wait_for_change(again.version, 0.0)


def test_a_call_does_not_wait_when_more_than_fresh_holds_is_in_the_way() -> None:
    script = ScriptedAllocator(contended(waitable=False))
    assert script.filter()["NodeNames"] == []
    assert script.waits == []


def test_all_calls_together_wait_no_longer_than_the_budget() -> None:
    script = ScriptedAllocator(*[contended()] * 100, wait=1.0)
    for _ in range(5):
        script.filter()
    assert sum(script.bench.waits) == pytest.approx(0.5)


def test_a_client_that_leaves_while_its_call_waits_ends_the_call() -> None:
    script = ScriptedAllocator(contended(), OFFERED)
    script.leaves_while_waiting = True
    with pytest.raises(ClientGoneError):
        script.filter()
    assert script.ended == [(script.pod.uid, 0)]
    assert script.outcomes == [OFFERED]


@pytest.mark.parametrize(("knows_callers", "held"), [(True, 0), (False, 1)])
def test_a_lost_answer_takes_holds_back_where_callers_are_known(
    bench: VerbBench, knows_callers: bool, held: int
) -> None:
    """A stranger who leaves before his answer must not end what the scheduler was answered."""
    bench.preconditions.knows_callers = knows_callers
    pod = bench.cluster.add_pod("a")
    bench.filter(pod, "n1")
    leaves = iter([False, True])
    with pytest.raises(ClientGoneError):
        bench.service.filter_pod(args_for(pod, "n1"), lambda: next(leaves))
    assert held == bench.held


def test_a_pod_of_a_scheduler_that_is_not_ours_is_an_error_and_held_nowhere(bench: VerbBench) -> None:
    bench.allocator._schedulers = frozenset({"ours"})
    bench.cluster.add_pod("a")
    bench.fails(bench.cluster.change_pod("a", scheduler_name="nobody's"), PodFailedError, "scheduler")
    bench.allocator.begin_term()
    assert 0 == bench.held
    assert ["n1"] == bench.filter(bench.cluster.change_pod("a", scheduler_name="ours"), "n1")["NodeNames"]


def test_a_pod_with_gates_is_an_error_unless_a_live_read_shows_none(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    gated = bench.cluster.change_pod("a", is_gated=True)
    bench.live.objects["pod", "ns/a"] = gated
    bench.fails(gated, PodFailedError, "gates")
    bench.live.objects["pod", "ns/a"] = pod
    assert ["n1"] == bench.filter(pod, "n1")["NodeNames"]


def test_a_pod_of_too_many_claims_is_an_error_that_says_so_and_is_never_woken(bench: VerbBench) -> None:
    names = [f"c{number}" for number in range(MOST_CLAIMS + 1)]
    pod = bench.cluster.add_pod("a", *names, gib=0.1)
    bench.fails(pod, PodFailedError, "the pod has more than 256 claims")
    bench.allocator.begin_term()
    assert 0 == bench.held == bench.allocator.snapshot().refused_count
    assert ["n1"] == bench.filter(bench.cluster.add_pod("b", *names[:-1], gib=0.1), "n1")["NodeNames"]


def test_the_owner_of_a_refused_pod_is_told_and_nobody_else(bench: VerbBench) -> None:
    fits, too_large = bench.cluster.add_pod("a"), bench.cluster.add_pod("b", gib=10_000)
    bench.filter(fits, "n1")
    bench.filter(too_large, "n1")
    assert bench.told == [(too_large.uid, ("n1",))]


def test_a_pod_that_breaks_a_rule_of_ours_is_told_of(bench: VerbBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold_pod(pod_uid: str, candidates: Sequence[str], *, adds_up: bool) -> FilterOutcome:
        raise BugError("HOLD of nothing")

    monkeypatch.setattr(bench.allocator, "hold_pod", hold_pod)
    pod = bench.cluster.add_pod("a")
    with pytest.raises(BugError):
        bench.filter(pod, "n1")
    assert [(pod.uid, ())] == bench.told
