"""The verbs preempt and bind: where pods may be evicted for another one, and bindings, which end no promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import Mode
from controller.errors import (
    ClusterError,
    ConflictError,
    NotLeaderError,
    NotReadyError,
    NotSyncedError,
    UnavailableError,
)
from controller.model.workload import Pod
from extender.binding import BindingArgs
from extender.preconditions import PodFailedError
from extender.wire import PodRef
from tests.fakes.builders import observe
from tests.unit.extender.bench import VerbBench


@pytest.fixture
def bench() -> VerbBench:
    """Two nodes with room for one volume and one without."""
    return VerbBench(n1=100, n2=100, n3=99)


# Preempt


def test_a_node_without_longhorn_room_loses_nobody(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    assert bench.preempt(pod, n1=("x",), n3=("y",)) == {"n1": ["x"]}
    assert bench.counted == [(1, 1)]
    assert bench.preempt(pod, n3=("y",)) == {}
    assert [("preempt", "Pod ns/a", "kept"), ("preempt", "Pod ns/a", "none")] == [
        (noted.kind, noted.about, noted.decision) for noted in bench.noted.after()
    ]


def test_room_that_is_promised_to_another_pod_is_no_room(bench: VerbBench) -> None:
    bench.cluster.add_pod("b")
    bench.cluster.filter("b", "n1")
    pod = bench.cluster.add_pod("a")
    assert bench.preempt(pod, n1=("x",), n2=("y",)) == {"n2": ["y"]}


def test_the_pods_own_promise_is_not_in_its_way_and_nothing_is_held(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.filter("a", "n1")
    assert bench.preempt(pod, n1=("x",), n2=("y",)) == {"n1": ["x"], "n2": ["y"]}
    assert bench.cluster.pending() == {"n1": 100}


def test_a_volume_that_may_lie_anywhere_needs_room_somewhere(bench: VerbBench) -> None:
    bench.cluster.allocator.observe_class("longhorn", None)
    bench.cluster.add_class("longhorn", dataLocality="disabled", numberOfReplicas="1")
    fits, too_large = bench.cluster.add_pod("a"), bench.cluster.add_pod("b", gib=200)
    assert bench.preempt(fits, n3=("x",)) == {"n3": ["x"]}
    assert bench.preempt(too_large, n3=("x",)) == {}


def test_a_candidate_without_victims_is_left_out_as_the_scheduler_takes_it_for_an_error(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    assert bench.preempt(pod, n1=(), n2=("y",)) == {"n2": ["y"]}


def test_bypass_and_a_pod_without_claims_are_not_restricted(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    assert bench.preempt(replace(pod, volumes=()), n3=("x",)) == {"n3": ["x"]}
    bench.mode = Mode.BYPASS
    assert bench.preempt(pod, n3=("x",)) == {"n3": ["x"]}


def test_only_a_leader_with_fresh_data_answers(bench: VerbBench) -> None:
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


def test_room_that_is_kept_for_a_waiting_pod_is_no_room(bench: VerbBench) -> None:
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


def test_the_owner_is_told_when_nobody_may_be_evicted_at_all(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.preempt(pod, n1=("x",), n3=("y",))
    bench.preempt(pod, n1=())
    assert bench.told == []
    bench.preempt(pod, n3=("y",), n1=())
    assert bench.told == [(pod.uid, ("n3",))]


def woken(bench: VerbBench) -> list[str]:
    bench.cluster.clock.advance(11)
    return [wakeup.name for wakeup in bench.cluster.plan_wakeups()]


def test_a_pod_that_we_failed_is_woken_since_nobody_asks_again(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.stale = "replica"
    version = bench.cluster.allocator.version
    with pytest.raises(NotSyncedError):
        bench.preempt(pod, n1=("x",))
    assert bench.cluster.allocator.version != version  # or the waker would sleep on
    assert woken(bench) == ["a"]


@pytest.mark.parametrize("kind", ["pod", "claim"])
def test_a_pod_that_could_not_be_read_is_woken_once_our_stores_show_all_of_it(bench: VerbBench, kind: str) -> None:
    pod = bench.cluster.add_pod("a")
    facts = {"pod": pod, "claim": bench.cluster.claims["a"]}[kind]
    observe(bench.allocator, kind, "ns/a", None)
    bench.live.fails[""] = UnavailableError("no answer")
    with pytest.raises(PodFailedError):
        bench.preempt(pod, n1=("x",))
    assert kind == "claim" or woken(bench) == []
    observe(bench.allocator, kind, "ns/a", facts)
    assert woken(bench) == ["a"]


def test_a_pod_that_waits_no_more_is_not_remembered(bench: VerbBench) -> None:
    pod = bench.cluster.add_pod("a")
    bench.cluster.bind("a", "n1")
    with pytest.raises(PodFailedError, match="bound"):
        bench.preempt(pod, n1=("x",))
    assert bench.cluster.allocator.snapshot().refused_count == 0


# Bind


@pytest.fixture
def offered(bench: VerbBench) -> Pod:
    """A pod with a bound claim that was offered two nodes."""
    pod = bench.cluster.add_pod("a")
    bench.cluster.provision("a")
    bench.cluster.filter("a", "n1", "n2")
    assert bench.cluster.pending() == {"n1": 100, "n2": 100}
    return pod


@pytest.mark.parametrize("failure", [None, ConflictError("409: pod a is already assigned")])
def test_a_binding_names_the_pods_uid_and_tells_of_a_failure_in_the_api_servers_words(
    bench: VerbBench, offered: Pod, failure: ClusterError | None
) -> None:
    bench.binder.failure = failure
    assert bench.bind(offered) == ("" if failure is None else str(failure))
    assert bench.binder.posted == [("ns", "a", "pod-a", "n1")]
    assert bench.cluster.pending() == {"n1": 100, "n2": 100}  # until the pod shows its node


def test_every_pod_is_bound_that_a_scheduler_hands_over_whatever_is_known_of_it(bench: VerbBench) -> None:
    """Without `managedResources` these are all pods, also those without claims, which no store keeps. Whether the pod
    is there, is that one and is unbound the API server decides."""
    bench.stale = "pod"
    bench.live.fails[""] = UnavailableError("no answer")
    assert "" == bench.binding.bind(BindingArgs(PodRef("unseen-uid", "ns", "unseen"), "n1"))
    assert [("ns", "unseen", "unseen-uid", "n1")] == bench.binder.posted


def test_no_binding_is_written_outside_a_term(bench: VerbBench, offered: Pod) -> None:
    bench.gate.checks_left = 0
    with pytest.raises(NotLeaderError):
        bench.bind(offered)
    assert bench.binder.posted == []


def test_bypass_binds_and_promises_nothing(bench: VerbBench, offered: Pod) -> None:
    bench.mode = Mode.BYPASS
    bench.cluster.allocator.set_mode(Mode.BYPASS)
    assert bench.bind(offered) == ""
    assert bench.cluster.pending() == {}


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.UNKNOWN])
def test_no_binding_is_written_while_the_extender_is_switched_off(bench: VerbBench, offered: Pod, mode: Mode) -> None:
    bench.mode = mode
    with pytest.raises(NotReadyError):
        bench.bind(offered)
    assert bench.binder.posted == []
