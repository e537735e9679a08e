"""Which nodes kube-scheduler's own rules leave to a pod."""

from __future__ import annotations

from typing import Any

import pytest

from controller.simulation.kube_rules import NodePlaces, NodeRules, PodRules, requests_of
from tests.fakes.saved import Raw, core
from tests.unit.simulation.asking import kube_node

GPU: Raw = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def why(node: Raw, **spec: Any) -> str:
    places = NodePlaces({"n1": NodeRules.of(node)})
    return places.why_not(PodRules.of(core("Pod", "p", "ns", spec=spec)))["n1"]


def term(operator: str, *values: str, key: str = "zone") -> Raw:
    matches = [{"key": key, "operator": operator, "values": list(values)}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": matches}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], "untolerated taint gpu"),
        ([{"key": "gpu", "operator": "Exists"}], ""),
        ([{"operator": "Exists"}], ""),
        ([{"key": "gpu", "value": "yes"}], ""),
        ([{"key": "gpu", "value": "no"}], "untolerated taint gpu"),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], "untolerated taint gpu"),
    ],
)
def test_taints_are_tolerated_or_not(tolerations: list[Raw], expected: str) -> None:
    assert expected == why(kube_node("n1", taints=[GPU]), tolerations=tolerations)


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (term("In", "a", "b"), ""),
        (term("In", "c"), "node affinity"),
        (term("NotIn", "c"), ""),
        (term("NotIn", "c", key="other"), ""),
        (term("Exists"), ""),
        (term("DoesNotExist"), "node affinity"),
        (term("Gt", "3", key="cores"), ""),
        (term("Lt", "3", key="cores"), "node affinity"),
    ],
)
def test_required_affinity_to_nodes_is_obeyed(affinity: Raw, expected: str) -> None:
    assert expected == why(kube_node("n1", labels={"zone": "a", "cores": "8"}), affinity=affinity)


def test_a_preference_is_no_rule() -> None:
    soft = {"key": "gpu", "effect": "PreferNoSchedule"}
    assert not why(kube_node("n1", taints=[soft]))


def test_init_containers_count_beside_those_that_go_on() -> None:
    def container(cpu: str, **more: str) -> Raw:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("500m", restartPolicy="Always"), container("2")],
        "containers": [container("1")],
    }
    assert {"cpu": 2500, "pods": 1000} == requests_of(spec)


def test_what_is_not_modelled_is_named() -> None:
    spread = [{"whenUnsatisfiable": "DoNotSchedule"}]
    ports = [{"ports": [{"hostPort": 80}]}]
    found = PodRules.of(core("Pod", "p", spec={"topologySpreadConstraints": spread, "containers": ports}))
    assert {"topology spread constraints", "host ports"} == found.unmodelled
