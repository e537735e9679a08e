"""Which candidates of a preemption stay: those where the pod's volumes find room without any eviction."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.allocator.outcome import Mode
from controller.errors import NotLeaderError, NotReadyError, NotSyncedError, UnavailableError
from controller.model.workload import Pod
from extender.preconditions import PodFailedError
from extender.preemption import PreemptionArgs, PreemptionService, Victims
from extender.wire import PodRef
from tests.fakes.builders import observe
from tests.fakes.edges import Anywhere
from tests.unit.extender.bench import VerbBench


class PreemptBench(VerbBench):
    """Two nodes with room for one volume and one without."""

    def __init__(self) -> None:
        super().__init__(n1=100, n2=100, n3=99)
        self.counted: list[tuple[int, int]] = []
        self.service = PreemptionService(self.allocator, self.preconditions, self, self, Anywhere())

    def preempted(self, kept: int, dropped: int) -> None:
        self.counted.append((kept, dropped))

    def preempt(self, pod: Pod, *, has_claims: bool = True, **victims: tuple[str, ...]) -> dict[str, list[str]]:
        args = PreemptionArgs(
            PodRef(pod.uid, pod.namespace, pod.name, has_claims),
            {node: Victims(uids, 0) for node, uids in victims.items()},
        )
        answer = json.loads(self.service.preempt(args))["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in entry["Pods"]] for node, entry in answer.items()}


@pytest.fixture
def bench() -> PreemptBench:
    return PreemptBench()


def test_a_node_without_longhorn_room_loses_nobody(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")

    assert bench.preempt(pod, n1=("x",), n3=("y",)) == {"n1": ["x"]}
    assert bench.counted == [(1, 1)]


def test_room_that_is_promised_to_another_pod_is_no_room(bench: PreemptBench) -> None:
    bench.cluster.add_pod("b")
    bench.cluster.filter("b", "n1")
    pod = bench.cluster.add_pod("a")

    assert bench.preempt(pod, n1=("x",), n2=("y",)) == {"n2": ["y"]}


def test_the_pods_own_promise_is_not_in_its_way_and_nothing_is_held(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.filter("a", "n1")

    assert bench.preempt(pod, n1=("x",), n2=("y",)) == {"n1": ["x"], "n2": ["y"]}
    assert bench.cluster.pending() == {"n1": 100}


def test_a_volume_that_may_lie_anywhere_needs_room_somewhere(bench: PreemptBench) -> None:
    bench.cluster.allocator.observe_class("longhorn", None)
    bench.cluster.add_class("longhorn", dataLocality="disabled", numberOfReplicas="1")
    fits, too_large = bench.cluster.add_pod("a"), bench.cluster.add_pod("b", gib=200)

    assert bench.preempt(fits, n3=("x",)) == {"n3": ["x"]}
    assert bench.preempt(too_large, n3=("x",)) == {}


def test_a_candidate_without_victims_is_left_out_as_the_scheduler_takes_it_for_an_error(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")

    assert bench.preempt(pod, n1=(), n2=("y",)) == {"n2": ["y"]}


@pytest.mark.parametrize("because", ["bypass", "no claims"])
def test_bypass_and_a_pod_without_claims_are_not_restricted(bench: PreemptBench, because: str) -> None:
    pod = bench.cluster.add_pod("a")
    bench.mode = Mode.BYPASS if because == "bypass" else Mode.ACTIVE

    assert bench.preempt(pod, has_claims=because != "no claims", n3=("x",)) == {"n3": ["x"]}


def test_only_a_leader_with_fresh_data_answers(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.stale = "replica"
    with pytest.raises(NotSyncedError):
        bench.preempt(pod, n1=("x",))
    bench.stale, bench.mode = "", Mode.CLOSED
    with pytest.raises(NotReadyError):
        bench.preempt(pod, n1=("x",))
    bench.mode, bench.gate.checks_left = Mode.ACTIVE, 1  # right before the answer
    with pytest.raises(NotLeaderError):
        bench.preempt(pod, n1=("x",))


def test_room_that_is_kept_for_a_waiting_pod_is_no_room(bench: PreemptBench) -> None:
    cluster = bench.cluster
    cluster.add_pod("large", gib=500)
    cluster.add_node("n4", free_gib=550)
    cluster.add_pod("small", gib=200)
    cluster.set_claim(replace(cluster.claims["small"], owner_pod_uid="pod-small"))
    cluster.run("small", "small", "n4", gib=200)
    cluster.add_pod("a")
    assert not cluster.offered("large", "n4")
    cluster.clock.advance(300)
    cluster.plan_wakeups()
    pod = cluster.pods["a"]

    assert bench.preempt(pod, n1=("x",), n4=("y",)) == {"n1": ["x"]}


def test_the_owner_is_told_when_nobody_may_be_evicted_at_all(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.preempt(pod, n1=("x",), n3=("y",))
    bench.preempt(pod, n1=())
    assert bench.told == []

    bench.preempt(pod, n3=("y",), n1=())
    assert bench.told == [(pod.uid, ("n3",))]


def woken(bench: PreemptBench) -> list[str]:
    bench.cluster.clock.advance(11)
    return [wakeup.name for wakeup in bench.cluster.plan_wakeups()]


def test_a_pod_that_we_failed_is_woken_since_nobody_asks_again(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.stale = "replica"
    version = bench.cluster.allocator.version
    with pytest.raises(NotSyncedError):
        bench.preempt(pod, n1=("x",))

    assert bench.cluster.allocator.version != version  # or the waker would sleep on
    assert woken(bench) == ["a"]


@pytest.mark.parametrize("kind", ["pod", "claim"])
def test_a_pod_that_could_not_be_read_is_woken_once_our_stores_show_all_of_it(bench: PreemptBench, kind: str) -> None:
    pod = bench.cluster.add_pod("a")
    facts = {"pod": pod, "claim": bench.cluster.claims["a"]}[kind]
    observe(bench.allocator, kind, "ns/a", None)
    bench.live.fails[""] = UnavailableError("no answer")
    with pytest.raises(PodFailedError):
        bench.preempt(pod, n1=("x",))
    assert kind == "claim" or woken(bench) == []
    observe(bench.allocator, kind, "ns/a", facts)

    assert woken(bench) == ["a"]


def test_a_pod_that_waits_no_more_is_not_remembered(bench: PreemptBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.bind("a", "n1")
    with pytest.raises(PodFailedError, match="bound"):
        bench.preempt(pod, n1=("x",))

    assert bench.cluster.allocator.snapshot().refused_count == 0
