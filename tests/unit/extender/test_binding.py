"""The bind verb: the promise stays on the chosen node, and goes with a binding that failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from controller.errors import ConflictError, MalformedRequestError, NotLeaderError, UnavailableError
from controller.model.workload import Pod
from extender import binding
from extender.binding import BindingArgs, BindingService
from extender.preconditions import PodFailedError, Preconditions
from extender.wire import PodRef
from tests.fakes.builders import TestCluster
from tests.unit.extender.test_service import FakeGate, FakeLive

ARGS = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}


class FakeBinder:
    """Remembers what was posted; `then` plays what else happens meanwhile, or fails."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str, str]] = []
        self.then: Callable[[], None] = lambda: None

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.posted.append((namespace, name, uid, node))
        self.then()


class Bench:
    """The service over a real allocator; a pod with a bound claim was offered two nodes."""

    def __init__(self) -> None:
        self.cluster = TestCluster()
        for name in ("n1", "n2"):
            self.cluster.add_node(name, free_gib=100)
        self.gate, self.binder, self.mode = FakeGate(), FakeBinder(), Mode.ACTIVE
        allocator = self.cluster.allocator
        self.live = FakeLive(allocator)
        preconditions = Preconditions(
            allocator, self.gate, self.live, self.cluster.clock, mode=lambda: self.mode, stale_kind=lambda: None
        )
        self.service = BindingService(allocator, preconditions, self.binder, self.live)
        self.pod = self.cluster.add_pod("a")
        self.cluster.provision("a")
        self.cluster.filter("a", "n1", "n2")

    def bind(self, node: str = "n1", pod: Pod | None = None) -> str:
        facts = pod or self.pod
        return self.service.bind(BindingArgs(PodRef(facts.uid, facts.namespace, facts.name), node))

    def fail(self, error: Exception) -> None:
        def then() -> None:
            raise error

        self.binder.then = then


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    assert bench.cluster.pending() == {"n1": 100, "n2": 100}
    return bench


def test_a_binding_names_the_pods_uid_and_frees_the_other_nodes(bench: Bench) -> None:
    seen: list[dict[str, int]] = []
    bench.binder.then = lambda: seen.append(bench.cluster.pending())

    assert bench.bind() == ""
    assert bench.binder.posted == [("ns", "a", "pod-a", "n1")]
    assert seen == [{"n1": 100}]  # promised before the API server is asked
    assert bench.cluster.pending() == {"n1": 100}


def test_the_promise_lasts_until_the_pod_shows_its_node_and_then_as_every_choice_does(bench: Bench) -> None:
    bench.bind()
    bench.cluster.change_pod("a", priority=5)  # an event from before the binding
    assert bench.cluster.pending() == {"n1": 100}

    bench.cluster.change_pod("a", node_name="n1")
    assert bench.cluster.pending() == {"n1": 100}
    bench.cluster.drop_pod("a")
    bench.cluster.let_doubts_pass()
    assert bench.cluster.pending() == {}


def test_a_refused_binding_is_told_in_the_api_servers_words_and_leaves_no_promise(bench: Bench) -> None:
    bench.fail(ConflictError("409: pod a is already assigned"))

    assert bench.bind() == "409: pod a is already assigned"
    assert bench.cluster.pending() == {}


def test_a_binding_whose_answer_was_lost_keeps_its_promise_if_the_pod_shows_it(bench: Bench) -> None:
    bench.fail(UnavailableError("timed out"))
    bench.live.objects["pod", "ns", "a"] = replace(bench.pod, node_name="n1")

    assert bench.bind() == "timed out"
    assert bench.cluster.pending() == {"n1": 100}


def test_a_binding_whose_answer_was_lost_leaves_nothing_if_the_pod_shows_none(bench: Bench) -> None:
    bench.fail(UnavailableError("timed out"))
    bench.live.objects["pod", "ns", "a"] = bench.pod

    assert bench.bind() == "timed out"
    assert bench.cluster.pending() == {}


def test_a_choice_that_the_cluster_shows_survives_a_failed_binding(bench: Bench) -> None:
    """Its claim names the node: Longhorn goes on there, whatever became of the binding."""
    bench.cluster.add_pod("b")
    bench.cluster.drop_pod("a")
    bench.cluster.filter("b", "n2")
    bench.cluster.select_node("b", "n2")
    bench.fail(ConflictError("409"))

    assert bench.bind("n2", bench.cluster.pods["b"]) == "409"
    assert bench.cluster.pending() == {"n2": 100}


def test_nothing_is_written_outside_a_term(bench: Bench) -> None:
    bench.gate.closes_at = bench.gate.checks + 2  # right before the call

    with pytest.raises(NotLeaderError):
        bench.bind()
    assert bench.binder.posted == []
    assert bench.cluster.pending() == {}


def test_bypass_binds_and_promises_nothing(bench: Bench) -> None:
    bench.mode = Mode.BYPASS
    bench.cluster.allocator.set_mode(Mode.BYPASS)

    assert bench.bind() == ""
    assert bench.cluster.pending() == {}


def test_a_pod_that_is_bound_or_gone_is_an_error(bench: Bench) -> None:
    bench.cluster.change_pod("a", node_name="n2")
    with pytest.raises(PodFailedError, match="bound already"):
        bench.bind()
    bench.cluster.drop_pod("a")
    with pytest.raises(PodFailedError, match="does not exist"):
        bench.bind()
    assert bench.binder.posted == []


def decode(**fields: Any) -> BindingArgs:
    return binding.decode_binding_args(json.dumps(fields).encode())


def test_the_request_of_kube_scheduler_in_any_letter_case() -> None:
    wanted = BindingArgs(PodRef("u", "ns", "p"), "n1")

    assert decode(**ARGS) == wanted
    assert decode(**{name.lower(): text for name, text in ARGS.items()}) == wanted


@pytest.mark.parametrize("name", list(ARGS))
@pytest.mark.parametrize("value", [None, "", 7])
def test_what_is_missing_or_no_text_is_named(name: str, value: object) -> None:
    with pytest.raises(MalformedRequestError, match=name):
        decode(**{**ARGS, name: value})


def test_the_answer_has_gos_key() -> None:
    assert json.loads(binding.encode_binding_result("")) == {"Error": ""}
