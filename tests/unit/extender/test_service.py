"""The order of a filter call's steps, and that no failure leaves a hold behind. The allocator is the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision, FilterOutcome, Mode
from controller.errors import (
    BugError,
    ClusterError,
    NotLeaderError,
    NotReadyError,
    NotSyncedError,
    UnavailableError,
)
from controller.model.workload import Claim, Pod, PodVolume
from controller.rules.reasons import Reason
from extender import wire
from extender.contention import WaitBudget
from extender.preconditions import PodFailedError, Preconditions
from extender.service import ClientGoneError, ExtenderService
from tests.fakes.builders import TestCluster, observe


class FakeGate:
    """Open; `script` closes it or changes its term at the given check."""

    def __init__(self) -> None:
        self.term = 1
        self.checks = 0
        self.closes_at: int | None = None

    def check(self) -> None:
        self.checks += 1
        if self.closes_at is not None and self.checks >= self.closes_at:
            raise NotLeaderError("not leading")


class FakeLive:
    """Objects that the API server has and our stores do not; reading one hands it to the allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.objects: dict[tuple[str, str, str], Any] = {}
        self.failure: ClusterError | None = None
        self.reads: list[tuple[str, str, str]] = []
        self.timeouts: list[float] = []
        self.before_read: Callable[[], None] = lambda: None

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        self.reads.append((kind, namespace, name))
        self.timeouts.append(timeout_seconds)
        self.before_read()
        if self.failure is not None:
            raise self.failure
        facts = self.objects.get((kind, namespace, name))
        observe(self.allocator, kind, f"{namespace}/{name}" if namespace else name, facts)
        return facts is not None


class Recorder:
    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.reasons: list[Mapping[Reason, int]] = []
        self.waits: list[float] = []
        self.told: list[tuple[str, tuple[str, ...]]] = []

    def decided(self, decision: Decision, reasons: Mapping[Reason, int], is_bounded: bool) -> None:
        self.decisions.append(decision)
        self.reasons.append(dict(reasons))

    def contention_waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None:
        self.told.append((uid, tuple(candidates)))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        self.told.append((uid, ()))

    def broken(self, uid: str, namespace: str, name: str, what: str) -> None:
        self.told.append((uid, (what,)))


class Bench:
    """A service over a real allocator on virtual time, with everything else in reach."""

    def __init__(self, allocator: Any = None) -> None:
        self.cluster = TestCluster()
        self.allocator = self.cluster.allocator
        self.gate, self.live, self.observer = FakeGate(), FakeLive(self.allocator), Recorder()
        self.mode, self.wait_seconds = Mode.ACTIVE, 0.0
        self.stale: str | None = None
        self.is_gone = False
        self.service = ExtenderService(
            allocator if allocator is not None else self.allocator,
            Preconditions(
                self.allocator,
                self.gate,
                self.live,
                self.cluster.clock,
                mode=lambda: self.mode,
                stale_kind=lambda: self.stale,
            ),
            self.cluster.clock,
            self.observer,
            self.observer,
            contention_wait_seconds=lambda: self.wait_seconds,
            budget=WaitBudget(),
        )

    def filter(self, pod: Pod, *nodes: str) -> dict[str, Any]:
        args = wire.FilterArgs(pod.uid, pod.namespace, pod.name, list(nodes), has_names=True, items=None)
        answer: dict[str, Any] = json.loads(self.service.filter_pod(args, lambda: self.is_gone))
        return answer

    @property
    def held(self) -> int:
        return self.allocator.snapshot().held_count


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.cluster.add_node("n1")
    bench.cluster.add_node("n2", free_gib=50)
    return bench


def test_a_node_with_room_is_offered_and_held(bench: Bench) -> None:
    answer = bench.filter(bench.cluster.add_pod("a"), "n1", "n2")

    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]
    assert answer["FailedNodes"] == {}
    assert bench.held == 1
    assert bench.observer.decisions == [Decision.OFFERED]


def test_a_follower_answers_nobody(bench: Bench) -> None:
    bench.gate.closes_at = 1

    with pytest.raises(NotLeaderError):
        bench.filter(bench.cluster.add_pod("a"), "n1")

    assert bench.held == 0
    assert not bench.service.is_ready()


def test_a_gate_that_closes_during_the_call_takes_the_answer_and_its_hold_back(bench: Bench) -> None:
    bench.gate.closes_at = 2

    with pytest.raises(NotLeaderError):
        bench.filter(bench.cluster.add_pod("a"), "n1")

    assert bench.held == 0


def test_an_answer_of_an_earlier_term_is_not_given(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")
    bench.live.objects["claim", "ns", "a"] = bench.cluster.claims.get("a")

    def next_term() -> None:
        bench.gate.term = 2

    bench.live.before_read = next_term

    with pytest.raises(NotReadyError):
        bench.filter(pod, "n1")

    assert bench.held == 0


def test_disabled_is_an_error_and_bypass_lets_all_pass_without_a_hold(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.mode = Mode.CLOSED
    with pytest.raises(NotReadyError):
        bench.filter(pod, "n1")

    bench.mode = Mode.BYPASS
    bench.stale = "pods"  # bypass is the break-glass: it asks for nothing

    assert bench.filter(pod, "n2", "n9")["NodeNames"] == ["n2", "n9"]
    assert bench.held == 0
    assert bench.observer.decisions == [Decision.BYPASS]


def test_stale_stores_are_an_error(bench: Bench) -> None:
    bench.stale = "replicas"

    with pytest.raises(NotSyncedError, match="replicas"):
        bench.filter(bench.cluster.add_pod("a"), "n1")

    assert bench.held == 0


def test_a_pod_without_claims_passes_without_being_looked_up(bench: Bench) -> None:
    bench.stale = "replicas"
    args = wire.FilterArgs("unknown", "ns", "plain", ["n1", "n9"], has_names=True, items=None, has_claims=False)

    answer = json.loads(bench.service.filter_pod(args, lambda: False))

    assert answer["NodeNames"] == ["n1", "n9"]
    assert bench.observer.decisions == [Decision.NOTHING_NEEDED]
    assert bench.live.reads == []


def test_a_pod_that_our_watch_does_not_show_yet_is_read_once(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_pod("a")
    bench.live.objects["pod", "ns", "a"] = pod

    assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
    assert bench.live.reads == [("pod", "ns", "a")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_deleting": True}, "being deleted"),
        ({"is_finished": True}, "has ended"),
        ({"node_name": "n2"}, "bound already"),
    ],
)
def test_a_pod_that_is_not_pending_holds_nothing(bench: Bench, change: dict[str, Any], message: str) -> None:
    bench.cluster.add_pod("a")
    pod = bench.cluster.change_pod("a", **change)

    with pytest.raises(PodFailedError, match=message):
        bench.filter(pod, "n1")

    assert bench.held == 0
    assert bench.live.reads == []


def test_a_pod_that_does_not_exist_and_one_of_another_uid_hold_nothing(bench: Bench) -> None:
    gone = bench.cluster.add_pod("gone")
    bench.cluster.drop_pod("gone")
    with pytest.raises(PodFailedError, match="does not exist"):
        bench.filter(gone, "n1")

    old = bench.cluster.add_pod("a")
    bench.live.objects["pod", "ns", "a"] = bench.cluster.change_pod("a", uid="newer")
    with pytest.raises(PodFailedError, match="another pod"):
        bench.filter(old, "n1")

    assert bench.held == 0


def test_a_claim_missing_in_our_store_is_read_and_counts(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a", gib=100)
    claim = bench.cluster.claims["a"]
    bench.cluster.drop_claim("a")
    bench.live.objects["claim", "ns", "a"] = claim

    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1"]
    assert bench.held == 1


def test_a_claim_that_does_not_exist_needs_nothing(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")

    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1", "n2"]
    assert bench.live.reads == [("claim", "ns", "a")]
    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1", "n2"]
    assert bench.live.reads == [("claim", "ns", "a")]


def with_ephemeral_volume(bench: Bench) -> tuple[Pod, Claim]:
    """A pod that was made again under its old name; our store has the former pod's claim only."""
    claim = replace(bench.cluster.add_claim("a"), is_deleting=True, owner_pod_uid="former")
    bench.cluster.set_claim(claim)
    pod = bench.cluster.add_pod("a")
    return bench.cluster.change_pod("a", volumes=(PodVolume("v0", "a", is_ephemeral=True),)), replace(
        claim, uid="next", is_deleting=False, owner_pod_uid=pod.uid
    )


def test_a_former_pods_claim_of_the_same_name_is_read_again(bench: Bench) -> None:
    pod, bench.live.objects["claim", "ns", "a"] = with_ephemeral_volume(bench)

    assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1"]
    assert bench.held == 1


def test_another_pods_claim_is_read_once_a_call_and_no_more(bench: Bench) -> None:
    pod, _ = with_ephemeral_volume(bench)
    bench.live.objects["claim", "ns", "a"] = bench.cluster.claims["a"]

    with pytest.raises(PodFailedError, match="could not be read"):
        bench.filter(pod, "n1")

    assert bench.live.reads == [("claim", "ns", "a")]


def test_an_api_server_that_does_not_answer_is_an_error_and_no_refusal(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.drop_claim("a")
    bench.live.failure = UnavailableError("503")

    with pytest.raises(PodFailedError, match="did not answer about the claim"):
        bench.filter(pod, "n1")

    assert bench.held == 0


def test_all_live_reads_of_a_call_share_half_a_second(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a", "c1", "c2", "c3")
    for name in ("c1", "c2", "c3"):
        bench.cluster.drop_claim(name)
    bench.live.before_read = lambda: bench.cluster.clock.advance(0.3)

    with pytest.raises(PodFailedError, match="in time"):
        bench.filter(pod, "n1")

    assert len(bench.live.reads) == 2
    assert bench.live.timeouts[0] == pytest.approx(0.5)
    assert bench.live.timeouts[1] == pytest.approx(0.2)


def test_a_client_that_went_away_leaves_no_hold(bench: Bench) -> None:
    bench.is_gone = True

    with pytest.raises(ClientGoneError):
        bench.filter(bench.cluster.add_pod("a"), "n1")

    assert bench.held == 0


class ScriptedAllocator:
    """Answers hold_pod from a list; every wait moves the clock and succeeds."""

    def __init__(self, bench: Bench, outcomes: Sequence[FilterOutcome], wait: float = 0.1) -> None:
        self._bench, self._inner, self._clock = bench, bench.allocator, bench.cluster.clock
        self._outcomes, self._wait = list(outcomes), wait
        self.ended: list[tuple[str, int]] = []
        self.waits: list[float] = []
        self.leaves_while_waiting = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def hold_pod(self, pod_uid: str, candidates: Sequence[str]) -> FilterOutcome:
        return self._outcomes.pop(0)

    def wait_for_change(self, version: int, timeout: float) -> bool:
        self.waits.append(timeout)
        self._bench.is_gone = self.leaves_while_waiting
        self._clock.advance(min(self._wait, timeout))
        return self._wait < timeout

    def end_holds(self, pod_uid: str, serial: int) -> None:
        self.ended.append((pod_uid, serial))


def contended(waitable: bool = True) -> FilterOutcome:
    return FilterOutcome(Decision.CONTENDED, (), {"n1": Reason.CONTENDED}, waitable, 7, 0)


def offered() -> FilterOutcome:
    return FilterOutcome(Decision.OFFERED, ("n1",), {}, False, 8, 10)


def scripted(outcomes: Sequence[FilterOutcome], wait: float = 0.1) -> tuple[Bench, ScriptedAllocator, Pod]:
    bench = Bench()
    allocator = ScriptedAllocator(bench, outcomes, wait)
    pod = bench.cluster.add_pod("a")
    bench.wait_seconds = 0.3
    bench.service._allocator = allocator
    return bench, allocator, pod


def test_a_call_waits_for_other_pods_fresh_holds_and_asks_again() -> None:
    bench, allocator, pod = scripted([contended(), offered()])

    assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
    assert allocator.waits == [pytest.approx(0.3)]
    assert bench.observer.waits == [pytest.approx(0.1)]


def test_a_call_gives_up_at_the_contention_wait_and_refuses() -> None:
    bench, _, pod = scripted([contended()] * 5)

    answer = bench.filter(pod, "n1")

    assert answer["FailedAndUnresolvableNodes"] == {"n1": Reason.CONTENDED.text}
    assert sum(bench.observer.waits) == pytest.approx(0.3)


def test_what_a_pods_new_answer_gives_back_wakes_a_call_that_waits_for_it() -> None:
    bench = Bench()
    allocator, cluster = bench.allocator, bench.cluster
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=150)
    first, second = cluster.add_pod("a"), cluster.add_pod("b")
    assert {"n1", "n2"} == set(allocator.hold_pod(first.uid, ["n1", "n2"]).passed)
    waiting = allocator.hold_pod(second.uid, ["n2"])
    assert waiting.waitable

    again = allocator.hold_pod(first.uid, ["n1"])

    assert allocator.wait_for_change(waiting.version, 0.0)
    assert ["n2"] == allocator.hold_pod(second.uid, ["n2"]).passed
    # Its own call hears of later changes alone.
    assert not allocator.wait_for_change(again.version, 0.0)


def test_an_answer_that_holds_all_that_the_former_one_held_wakes_nobody() -> None:
    bench = Bench()
    bench.cluster.add_node("n1", free_gib=150)
    bench.cluster.add_node("n2", free_gib=150)
    pod = bench.cluster.add_pod("a")
    before = bench.allocator.hold_pod(pod.uid, ["n1"]).version

    bench.allocator.hold_pod(pod.uid, ["n2", "n1"])

    assert not bench.allocator.wait_for_change(before, 0.0)


def test_a_refused_pod_gives_back_what_it_held_and_does_not_wait_for_itself() -> None:
    bench = Bench()
    bench.cluster.add_node("n1", free_gib=150)
    bench.cluster.add_node("n2", free_gib=50)
    first, second = bench.cluster.add_pod("a"), bench.cluster.add_pod("b")
    bench.allocator.hold_pod(first.uid, ["n1"])
    waiting = bench.allocator.hold_pod(second.uid, ["n1"])

    refused = bench.allocator.hold_pod(first.uid, ["n2"])

    assert Decision.REFUSED is refused.decision
    assert bench.allocator.wait_for_change(waiting.version, 0.0)
    assert not bench.allocator.wait_for_change(refused.version, 0.0)


def test_a_call_does_not_wait_when_more_than_fresh_holds_is_in_the_way() -> None:
    bench, allocator, pod = scripted([contended(waitable=False)])

    assert bench.filter(pod, "n1")["NodeNames"] == []
    assert allocator.waits == []


def test_all_calls_together_wait_no_longer_than_the_budget() -> None:
    bench, _, pod = scripted([contended()] * 100, wait=1.0)

    for _ in range(5):
        bench.filter(pod, "n1")

    assert sum(bench.observer.waits) == pytest.approx(0.5)


def test_a_client_that_leaves_while_its_call_waits_ends_the_call() -> None:
    bench, allocator, pod = scripted([contended(), offered()])
    allocator.leaves_while_waiting = True

    with pytest.raises(ClientGoneError):
        bench.filter(pod, "n1")

    assert allocator.ended == [(pod.uid, 0)]
    assert len(allocator._outcomes) == 1


def test_a_call_whose_client_has_left_is_not_looked_at() -> None:
    bench, allocator, pod = scripted([offered()])
    bench.is_gone = True

    with pytest.raises(ClientGoneError):
        bench.filter(pod, "n1")

    assert len(allocator._outcomes) == 1


def test_a_call_that_was_given_up_before_it_held_anything_leaves_an_earlier_answer_alone(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.filter(pod, "n1")
    bench.is_gone = True

    with pytest.raises(ClientGoneError):
        bench.filter(pod, "n1")

    assert bench.held == 1


def test_a_call_that_fails_late_does_not_end_what_a_later_call_of_the_pod_holds(bench: Bench) -> None:
    pod = bench.cluster.add_pod("a")
    late = bench.allocator.hold_pod(pod.uid, ["n1"])
    bench.filter(pod, "n1")

    bench.allocator.end_holds(pod.uid, late.serial)
    assert bench.held == 1

    bench.allocator.end_holds(pod.uid, late.serial + 1)
    assert bench.held == 0


def test_the_owner_of_a_refused_pod_is_told_and_nobody_else(bench: Bench) -> None:
    fits, too_large = bench.cluster.add_pod("a"), bench.cluster.add_pod("b", gib=10_000)
    bench.filter(fits, "n1")
    bench.filter(too_large, "n1")

    assert bench.observer.told == [(too_large.uid, ("n1",))]


def test_a_pod_that_breaks_a_rule_of_ours_is_told_of_and_gets_an_error() -> None:
    class Broken:
        def hold_pod(self, pod_uid: str, candidates: Sequence[str]) -> FilterOutcome:
            raise BugError("HOLD of nothing")

    bench = Bench(Broken())
    pod = bench.cluster.add_pod("a")
    with pytest.raises(BugError):
        bench.filter(pod, "n1")
    assert [(pod.uid, ("HOLD of nothing",))] == bench.observer.told
