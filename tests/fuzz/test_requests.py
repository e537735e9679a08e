"""Random requests at every route: no failure but those meant, no hold that nobody was told of."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from extender import binding
from extender.wire import ClusterSize
from tests.extender_go.served import create_stage_app
from tests.extender_go.worlds import NAMESPACE, PodSpec, kube_pod
from tests.fuzz.requests import VERBS, FuzzedRequest, throw_random
from tests.fuzz.target import BODY_LIMIT, MOST_CHECKS, NODES, PODS, THROWS, Fault, VerbTarget


@pytest.fixture(scope="module")
def target() -> VerbTarget:
    return VerbTarget()


@pytest.mark.parametrize("examples", [50, pytest.param(120, marks=pytest.mark.slow)], ids=["a few", "many"])
def test_random_requests(target: VerbTarget, examples: int) -> None:
    throw_random(target.throw_all, THROWS, examples)


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
def test_no_fault_at_any_moment_leaves_a_hold_behind(target: VerbTarget, fault: Fault, verb: str) -> None:
    statuses: Counter[int] = Counter()
    for checks in range(MOST_CHECKS + 1) if fault is Fault.NO_LEADER else (0,):
        for pod in PODS:
            target.reset()
            body = json.dumps(requests_for(pod, list(NODES))[verb]).encode()
            statuses[target.throw(FuzzedRequest("POST", f"/{verb}", body), fault, checks)] += 1

    assert statuses[503 if fault is Fault.NO_LEADER else 200] > 0
    assert (503 in statuses) == (fault is Fault.NO_LEADER or ("CLIENT" in fault.name and verb == "filter"))


def test_a_pod_that_fits_is_held_which_is_what_the_other_tests_look_for(target: VerbTarget) -> None:
    target.reset()
    small = next(pod for pod in PODS if pod.name == "small")

    before = target.promised()
    target.throw(FuzzedRequest("POST", "/filter", json.dumps(requests_for(small, list(NODES))["filter"]).encode()))

    assert {("ns/small", node) for node in NODES} == target.promised() - before


@pytest.mark.parametrize("verb", VERBS)
def test_a_body_over_the_limit_is_refused(target: VerbTarget, verb: str) -> None:
    assert 413 == target.throw(FuzzedRequest("POST", f"/{verb}", b" " * (BODY_LIMIT + 1)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_body_larger_than_the_known_nodes_account_for_is_refused_below_the_limit(
    target: VerbTarget, verb: str
) -> None:
    size = ClusterSize(4)
    client = create_stage_app(target.stage, max_body_bytes=2 * size.most_bytes, size=size).test_client()
    largest = b" " * (size.most_bytes if verb != "bind" else binding.MOST_BYTES)
    assert [400, 413] == [client.post(f"/{verb}", data=body).status_code for body in (largest, largest + b" ")]
