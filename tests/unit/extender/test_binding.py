"""The bind verb: no promise begins or ends by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from controller.errors import ClusterError, ConflictError, MalformedRequestError, NotLeaderError
from controller.model.workload import Pod
from extender import binding
from extender.binding import BindingArgs, BindingService
from extender.preconditions import PodFailedError
from extender.wire import PodRef
from tests.fakes.edges import FakeBinder
from tests.unit.extender.bench import VerbBench

ARGS = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}


class BindBench(VerbBench):
    """A pod with a bound claim was offered two nodes."""

    def __init__(self) -> None:
        super().__init__(n1=100, n2=100)
        self.binder = FakeBinder()
        self.service = BindingService(self.preconditions, self.binder)
        self.pod = self.cluster.add_pod("a")
        self.cluster.provision("a")
        self.cluster.filter("a", "n1", "n2")

    def bind(self, node: str = "n1", pod: Pod | None = None) -> str:
        facts = pod or self.pod
        return self.service.bind(BindingArgs(PodRef(facts.uid, facts.namespace, facts.name), node))


@pytest.fixture
def bench() -> BindBench:
    bench = BindBench()
    assert bench.cluster.pending() == {"n1": 100, "n2": 100}
    return bench


@pytest.mark.parametrize("failure", [None, ConflictError("409: pod a is already assigned")])
def test_a_binding_names_the_pods_uid_and_tells_of_a_failure_in_the_api_servers_words(
    bench: BindBench, failure: ClusterError | None
) -> None:
    bench.binder.failure = failure

    assert bench.bind() == ("" if failure is None else str(failure))
    assert bench.binder.posted == [("ns", "a", "pod-a", "n1")]
    assert bench.cluster.pending() == {"n1": 100, "n2": 100}  # until the pod shows its node


def test_nothing_is_written_outside_a_term(bench: BindBench) -> None:
    bench.gate.checks_left = 1  # right before the call

    with pytest.raises(NotLeaderError):
        bench.bind()
    assert bench.binder.posted == []


def test_bypass_binds_and_promises_nothing(bench: BindBench) -> None:
    bench.mode = Mode.BYPASS
    bench.cluster.allocator.set_mode(Mode.BYPASS)

    assert bench.bind() == ""
    assert bench.cluster.pending() == {}


def test_a_pod_that_is_bound_or_gone_is_an_error(bench: BindBench) -> None:
    bench.cluster.change_pod("a", node_name="n2")
    with pytest.raises(PodFailedError, match="already bound"):
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
