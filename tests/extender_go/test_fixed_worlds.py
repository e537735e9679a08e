"""kube-scheduler's own HTTPExtender against the product's server: worlds in which the right answer is plain to see."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from tests.cluster import build as cluster_build
from tests.extender_go import build as client_build
from tests.extender_go.client import SchedulerClient, ServedExtender, wiring
from tests.extender_go.worlds import NAMESPACE, PodSpec, VolumeSpec, WorldSpec, kube_node, kube_pod
from tests.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "wire" / "golden"
RESOURCE = "longhorn.io/scheduler-extender"
DB = PodSpec("db", (VolumeSpec("db", 100),))
ROOMY_AND_FULL = WorldSpec({"n1": (400,), "n2": (50,), "n3": (100,)}, (DB,))
FULL_TEXT = "Longhorn: not enough space on the node's disks"
BOTH_FORMS = pytest.mark.parametrize("by_name", [True, False], ids=["NodeNames", "Nodes"])


def nodes(*names: str) -> list[dict[str, Any]]:
    return [kube_node(name, odd='<a> & \u2028 \u00fc \U0001f40d \\ " /') for name in names]


def held(server: ServedExtender) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for claim, node, *_ in server.ledger()["promises"]:
        found.setdefault(claim, []).append(node)
    return found


@pytest.mark.parametrize("prefix", ["", "/", "/api/scheduler", "/api/scheduler/"])
def test_a_prefix_may_end_with_a_slash(client: SchedulerClient, server: ServedExtender, prefix: str) -> None:
    server.put(ROOMY_AND_FULL)
    wired = wiring(server.url + prefix)
    assert client.filter(wired, kube_pod(DB), nodes("n1")).passed == ["n1"]
    scored = client.ask(wired, "prioritize", kube_pod(DB), nodes=nodes("n1"))
    assert (scored.error, list(scored.scores)) == ("", ["n1"])


@BOTH_FORMS
@pytest.mark.parametrize("is_ignorable", [True, False])
def test_a_failure_of_ours_is_an_error_and_never_a_refusal(
    client: SchedulerClient, server: ServedExtender, by_name: bool, is_ignorable: bool
) -> None:
    """What follows from an error is the scheduler's: it fails the cycle, or goes on without an ignorable extender."""
    wired = wiring(server.url, by_name, ignorable=is_ignorable)
    server.put(WorldSpec({"n1": (400,)}, (DB,), mode=Mode.CLOSED))
    closed = client.filter(wired, kube_pod(DB), nodes("n1"))
    assert closed.error.endswith("code 503")
    assert (closed.passed, closed.failed, closed.unresolvable) == ([], {}, {})
    assert client.ask(wired, "look", {}).traits["ignorable"] is is_ignorable
    assert held(server) == {}


@pytest.mark.parametrize(
    ("node", "error", "bound"),
    [("n3", "", [[DB.uid, "n3"]]), ("refuses-1", "pods 'db' cannot be bound to 'refuses-1'", [])],
)
def test_a_binding_is_made_or_refused_in_the_api_servers_words_and_ends_no_promise(
    client: SchedulerClient, server: ServedExtender, node: str, error: str, bound: list[Any]
) -> None:
    server.put(WorldSpec({"n1": (400,), "n3": (100,), "refuses-1": (400,)}, (DB,)))
    wired = wiring(server.url)
    client.filter(wired, kube_pod(DB), nodes("n1", node))
    assert client.ask(wired, "bind", kube_pod(DB), target=node).error == error
    assert (server.ledger()["bound"], held(server)) == (bound, {f"{NAMESPACE}/db": ["n1", node]})


@pytest.mark.parametrize(
    ("managed", "asked", "is_interested"),
    [((), (), True), ((RESOURCE,), (RESOURCE,), True), ((RESOURCE,), (), False), ((RESOURCE,), ("cpu",), False)],
)
def test_which_pods_the_scheduler_brings_to_us(
    client: SchedulerClient,
    server: ServedExtender,
    managed: tuple[str, ...],
    asked: tuple[str, ...],
    is_interested: bool,
) -> None:
    traits = client.ask(wiring(server.url, managed_resources=managed), "look", kube_pod(DB, asked)).traits
    assert traits["interested"] is is_interested
    assert all(traits[verb] for verb in ("filter", "prioritizer", "preempting", "binder"))


FIRST, SECOND = (PodSpec(name, (VolumeSpec(name, 100),)) for name in ("first", "second"))


@pytest.fixture
def contended(client: SchedulerClient, server: ServedExtender) -> ServedExtender:
    """The first pod holds both nodes, so that a call about the second one waits."""
    server.put(
        WorldSpec(
            {"n1": (100,), "n2": (100,)}, (FIRST, SECOND), contention_wait_milliseconds=20_000, runs_in_real_time=True
        )
    )
    client.filter(wiring(server.url), kube_pod(FIRST), nodes("n1", "n2"))
    return server


def test_a_scheduler_that_gives_up_leaves_no_hold(client: SchedulerClient, contended: ServedExtender) -> None:
    hasty = client.filter(wiring(contended.url, timeout_milliseconds=200), kube_pod(SECOND), nodes("n1"))
    contended.choose("first", "n2")  # makes room for the call that nobody waits for
    assert "Client.Timeout exceeded" in hasty.error
    wait_until(lambda: "client-gone" in contended.ledger()["failures"])
    assert held(contended) == {f"{NAMESPACE}/first": ["n2"]}


def test_a_scheduler_that_waits_is_answered_in_time(client: SchedulerClient, contended: ServedExtender) -> None:
    chooser = threading.Timer(0.2, contended.choose, ("first", "n2"))
    chooser.start()
    patient = client.filter(wiring(contended.url, timeout_milliseconds=20_000), kube_pod(SECOND), nodes("n1"))
    chooser.join()
    assert (patient.error, patient.passed) == ("", ["n1"])
    assert held(contended) == {f"{NAMESPACE}/first": ["n2"], f"{NAMESPACE}/second": ["n1"]}


@BOTH_FORMS
def test_a_recorded_filter_call_is_understood_in_the_form_that_was_sent(
    client: SchedulerClient, server: ServedExtender, by_name: bool
) -> None:
    """Pod and nodes as they were recorded from kube-scheduler 1.36, with all their fields."""
    recorded = json.loads((GOLDEN / "filter_nodes.json").read_text())
    pod, items = recorded["Pod"], recorded["Nodes"]["items"]
    names = [item["metadata"]["name"] for item in items]
    spec = PodSpec(pod["metadata"]["name"], (VolumeSpec("data", 100),))
    server.put(WorldSpec(dict.fromkeys(names[:-1], (400,)) | {names[-1]: (50,)}, (spec,)))
    pod["metadata"] |= {"namespace": NAMESPACE, "uid": spec.uid}

    understood = client.filter(wiring(server.url, by_name), pod, items)

    assert (understood.error, understood.is_intact) == ("", True)
    assert understood.passed == names[:-1]
    assert (understood.failed, understood.unresolvable) == ({}, {names[-1]: FULL_TEXT})
    assert held(server) == {f"{NAMESPACE}/data": sorted(names[:-1])}


@BOTH_FORMS
def test_recorded_candidates_of_a_preemption_keep_their_victims_where_there_is_room(
    client: SchedulerClient, server: ServedExtender, by_name: bool
) -> None:
    """kube-scheduler takes an empty list in the answer for an error of the whole preemption, so `idle` is left out."""
    recorded = json.loads((GOLDEN / "preempt_nodes.json").read_text())
    running = [pod for entry in recorded["NodeNameToVictims"].values() for pod in entry["Pods"]]
    victims = {
        node: {"uids": [pod["metadata"]["uid"] for pod in entry["Pods"]], "violations": entry["NumPDBViolations"]}
        for node, entry in recorded["NodeNameToVictims"].items()
    } | {"idle": {"uids": [], "violations": 0}}
    server.put(WorldSpec({"worker-0": (50,), **dict.fromkeys(("worker-1", "worker-2", "idle"), (400,))}, (DB,)))
    pod = recorded["Pod"]
    pod["metadata"] |= {"name": DB.name, "namespace": NAMESPACE, "uid": DB.uid}
    pod["spec"]["volumes"] += kube_pod(DB)["spec"]["volumes"]
    wired = wiring(server.url, by_name)

    understood = client.ask(wired, "preempt", pod, nodes=nodes(*victims), running=running, victims=victims)

    assert understood.error == ""
    assert understood.victims == {node: (victims[node]["uids"], 0) for node in ("worker-1", "worker-2")}
    assert held(server) == {}


def test_five_thousand_whole_nodes_are_answered_and_not_refused(server: ServedExtender) -> None:
    names = [f"n{number}" for number in range(5_000)]
    server.put(WorldSpec(dict.fromkeys(names, (400,)), (DB,), max_offers=0))
    items = [kube_node(name, images="x" * 7_000) for name in names]
    body = json.dumps({"Pod": kube_pod(DB), "Nodes": {"items": items}}, separators=(",", ":")).encode()
    status, answer, _ = server.call("POST", "/filter", body)
    assert len(body) > 35e6
    assert status == 200
    assert answer["Nodes"]["items"] == items


def test_the_client_is_of_the_same_release_as_the_test_clusters_scheduler() -> None:
    def versions(module: Path) -> dict[str, str]:
        return dict(re.findall(r"^\s+(\S+) (v\S+)", (module / "go.mod").read_text(), re.MULTILINE))

    ours, cluster = versions(client_build.MODULE), versions(cluster_build.MODULE)

    assert ours["k8s.io/kubernetes"] == cluster["k8s.io/kubernetes"]
    assert {} == {name: version for name, version in ours.items() if cluster.get(name) != version}
