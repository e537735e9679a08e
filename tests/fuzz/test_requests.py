"""Random requests at every route: no failure but those meant, no hold that nobody was told of."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.extender_go.worlds import NAMESPACE, PodSpec, kube_pod
from tests.fuzz.requests import VERBS, Request, make_request
from tests.fuzz.target import NODES, PODS, Fault, Target

MOST_CHECKS = 3


class DataChooser:
    """Choices that hypothesis makes and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, most: int) -> int:
        return self._data.draw(st.integers(0, most))

    def text(self) -> str:
        return self._data.draw(st.text(max_size=20))

    def raw(self) -> bytes:
        return self._data.draw(st.binary(max_size=200))


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


def throw_some(target: Target, data: st.DataObject) -> None:
    target.reset()
    chooser = DataChooser(data)
    for _ in range(data.draw(st.integers(1, 6))):
        fault = data.draw(st.sampled_from(Fault))
        checks = data.draw(st.integers(0, MOST_CHECKS)) if fault is Fault.NO_LEADER else 0
        target.throw(make_request(chooser, PODS, tuple(NODES)), fault, checks)


UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=50, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_a_few_random_requests(target: Target, data: st.DataObject) -> None:
    throw_some(target, data)


@pytest.mark.slow
@settings(max_examples=600, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_many_random_requests(target: Target, data: st.DataObject) -> None:
    throw_some(target, data)


def requests_for(pod: PodSpec, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """A valid call of every verb."""
    call = {"Pod": kube_pod(pod), "NodeNames": nodes}
    victims = {node: {"Pods": [{"UID": f"victim-{node}"}], "NumPDBViolations": 0} for node in nodes}
    binding = {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": nodes[0]}
    return {
        "filter": call,
        "prioritize": call,
        "preempt": {"Pod": kube_pod(pod), "NodeNameToMetaVictims": victims},
        "bind": binding,
    }


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", Fault)
def test_no_fault_at_any_moment_leaves_a_hold_behind(target: Target, fault: Fault, verb: str) -> None:
    statuses: Counter[int] = Counter()
    for checks in range(MOST_CHECKS + 1) if fault is Fault.NO_LEADER else (0,):
        for pod in PODS:
            target.reset()
            body = json.dumps(requests_for(pod, list(NODES))[verb]).encode()
            statuses[target.throw(Request("POST", f"/{verb}", body), fault, checks)] += 1

    assert statuses[503 if fault is Fault.NO_LEADER else 200] > 0
    assert (503 in statuses) == (fault is Fault.NO_LEADER or ("CLIENT" in fault.name and verb == "filter"))


def test_a_pod_that_fits_is_held_which_is_what_the_other_tests_look_for(target: Target) -> None:
    target.reset()
    small = next(pod for pod in PODS if pod.name == "small")

    before = target.promised()
    target.throw(Request("POST", "/filter", json.dumps(requests_for(small, list(NODES))["filter"]).encode()))

    assert {("ns/small", node) for node in NODES} == target.promised() - before
