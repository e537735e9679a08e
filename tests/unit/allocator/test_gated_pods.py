"""No scheduler has asked about a pod with scheduling gates, so no leader can have offered it anything."""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocator.allocator import Decision, Mode
from controller.model import parse
from tests.fakes.builders import EPOCH, LATER, TestCluster

GATES = [{"name": "example.com/quota"}]


def manifest(name: str, claim: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"longhorn.io/scheduler-extender": "1"}}}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"pod-{name}", "creationTimestamp": EPOCH},
        "spec": {"containers": [container], "volumes": [volume], **spec},
    }


def cluster_of(*nodes: str, class_name: str = "longhorn") -> TestCluster:
    """Nodes of 100 GiB, and a pending pod `waits` whose claim asks for as much."""
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    for name in nodes:
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("waits", class_name=class_name)
    cluster.add_pod("waits")
    return cluster


def lead_anew(cluster: TestCluster) -> None:
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    cluster.add_pod("next", created=LATER)


@pytest.mark.parametrize("class_name", ["longhorn", "roaming"])
def test_a_gated_pod_is_held_nowhere_after_a_change_of_leader(class_name: str) -> None:
    cluster = cluster_of("n1", "n2", class_name=class_name)
    cluster.change_pod("waits", is_gated=True)
    lead_anew(cluster)

    assert {} == cluster.pending()
    assert {"n1", "n2"} == cluster.offered("next", "n1", "n2")


def test_so_it_is_for_a_pod_as_the_api_server_shows_it() -> None:
    cluster = cluster_of("n1")
    cluster.set_pod(parse.pod_facts(manifest("waits", "waits", schedulingGates=GATES)))
    lead_anew(cluster)

    assert {"n1"} == cluster.offered("next", "n1")


def test_many_gated_pods_do_not_stop_placement() -> None:
    cluster = cluster_of("n1")
    for number in range(300):
        claim = cluster.add_claim(f"gated-{number}").name
        cluster.set_pod(parse.pod_facts(manifest(f"gated-{number}", claim, schedulingGates=GATES)))
    cluster.drop_pod("waits")
    lead_anew(cluster)

    assert {"n1"} == cluster.offered("next", "n1")


@pytest.mark.parametrize("gates", [{}, {"schedulingGates": []}, {"schedulingGates": None}])
def test_a_pod_without_gates_counts_as_held_on_every_node(gates: dict[str, Any]) -> None:
    cluster = cluster_of("n1", "n2")
    cluster.set_pod(parse.pod_facts(manifest("waits", "waits", **gates)))
    lead_anew(cluster)

    assert Decision.CONTENDED is cluster.filter("next", "n1", "n2").decision


def test_a_gated_pod_is_held_nowhere_once_the_extender_is_switched_on_again() -> None:
    cluster = cluster_of("n1")
    cluster.set_pod(parse.pod_facts(manifest("waits", "waits", schedulingGates=GATES)))
    cluster.allocator.set_mode(Mode.BYPASS)
    cluster.allocator.set_mode(Mode.ACTIVE)
    cluster.add_pod("next", created=LATER)

    assert {"n1"} == cluster.offered("next", "n1")


def test_a_choice_that_stands_on_a_gated_pods_claim_counts() -> None:
    """A former pod left it, and provisioning goes on."""
    cluster = cluster_of("n1", "n2")
    cluster.select_node("waits", "n1")
    cluster.change_pod("waits", is_gated=True)
    lead_anew(cluster)

    assert {"n2"} == cluster.offered("next", "n1", "n2")


def test_a_pod_whose_gates_go_is_offered_room_and_holds_it() -> None:
    cluster = cluster_of("n1")
    cluster.change_pod("waits", is_gated=True)
    lead_anew(cluster)
    cluster.change_pod("waits", is_gated=False)

    assert {"n1"} == cluster.offered("waits", "n1")
    assert Decision.CONTENDED is cluster.filter("next", "n1").decision
