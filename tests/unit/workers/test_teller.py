"""Events on refused pods: with numbers, from outside the filter call, and not more than one a minute a pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.kube.recorder import Recorder
from controller.kube.resources import EVENTS
from controller.workers.teller import EVERY_SECONDS, Teller
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import TestCluster
from tests.waiting import wait_until


class TellerBench:
    """One node with 100 GiB, of which 60 are promised to the pod `a`."""

    def __init__(self) -> None:
        self.cluster, self.server = TestCluster(), FakeApiServer()
        self.cluster.add_node("n1", free_gib=100)
        self.cluster.add_pod("a", gib=60)
        self.cluster.filter("a", "n1")
        self.recorder = Recorder(self.server, self.cluster.clock, component="extender", instance="pod-a")
        self.teller = Teller(self.cluster.allocator, self.recorder, self.cluster.clock)

    def add_stranger(self, name: str, gib: float) -> None:
        """A pod of another namespace with a claim of that name, to which the node is promised as well."""
        claim = replace(self.cluster.add_claim(name, gib), namespace="theirs")
        self.cluster.allocator.observe_claim(f"ns/{name}", None)
        self.cluster.set_claim(claim)
        self.cluster.set_pod(replace(self.cluster.add_pod(name), uid=f"of-{name}", namespace="theirs"))
        self.cluster.filter(name, "n1")

    def refuse(self, name: str, *nodes: str) -> None:
        self.teller.refused(self.cluster.pods[name].uid, "ns", name, nodes)

    def tell(self) -> list[dict[str, Any]]:
        """Everything that waits, told and written."""
        while self.teller.tell_next() is not None:
            pass
        while self.recorder.run_once() is not None:
            self.cluster.clock.advance(0.1)
        return self.server.list_page(EVENTS).items


@pytest.fixture
def scene() -> TellerBench:
    return TellerBench()


def test_the_event_has_the_numbers_and_whose_promise_stands_in_the_way(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")

    (event,) = scene.tell()
    assert (event["type"], event["reason"]) == ("Warning", "LonghornNoRoom")
    assert event["involvedObject"]["name"] == "b"
    assert event["message"] == (
        "No Longhorn room for ns/b 50 GiB: 1 node Contended (n1: 60 GiB are promised on this node, 0 bytes to volumes "
        "that may go to any node: ns/a 60 GiB)"
    )


def test_of_other_namespaces_the_event_has_numbers_and_no_names(scene: TellerBench) -> None:
    scene.add_stranger("payroll", 10)
    scene.add_stranger("ledger", 5)
    for name in ("x", "y", "z"):
        scene.cluster.ask(name, 1, "n1")
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    (event,) = scene.tell()
    told = ": ns/a 60 GiB, ns/x 1 GiB, ns/y 1 GiB, 1 more of this namespace, 2 volumes of other namespaces 15 GiB)"
    assert event["message"].endswith(told)
    assert not [word for word in ("payroll", "ledger", "theirs") if word in event["message"]]


def test_reasons_are_counted_with_the_numbers_of_one_node_each(scene: TellerBench) -> None:
    scene.cluster.add_node("n2", free_gib=40)
    scene.cluster.add_node("n3", free_gib=40)
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1", "n2", "n3", "n4")

    (event,) = scene.tell()
    assert event["message"].startswith("No Longhorn room for ns/b 50 GiB: 2 nodes InsufficientStorage (pvc-uid-b: d1: ")
    assert "50 GiB + 0 bytes scheduled exceeds the disk's limit of 40 GiB by 10 GiB " in event["message"]
    assert "1 node Contended" in event["message"]
    assert "1 node NoLonghornNode" in event["message"]


def test_a_refusal_by_preempt_is_told_together_with_that_by_filter_which_still_waits(scene: TellerBench) -> None:
    scene.cluster.add_node("n2", free_gib=40)
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    scene.refuse("b", "n2", "n1")

    (event,) = scene.tell()
    assert event["count"] == 1
    assert "1 node InsufficientStorage (pvc-uid-b: " in event["message"]
    assert "1 node Contended (n1: " in event["message"]


def test_a_pod_is_told_of_once_a_minute(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    for counts in ([1], [1], [2]):
        scene.refuse("b", "n1")
        assert counts == [event["count"] for event in scene.tell()]
        scene.cluster.clock.advance(EVERY_SECONDS / 2)


def test_a_pod_that_has_room_by_now_or_is_gone_is_not_told_of(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.cluster.add_pod("c", gib=50)
    scene.refuse("b", "n1")
    scene.refuse("c", "n1")
    scene.cluster.drop_pod("c")
    scene.cluster.drop_pod("a")
    scene.cluster.drop_claim("a")

    assert [] == scene.tell()


@pytest.mark.parametrize(
    ("decision", "reason"),
    [(Decision.REMOTE, "LonghornRemoteFallback"), (Decision.AT_DISCRETION, "AtLonghornsDiscretion")],
)
def test_a_pod_that_is_let_through_all_the_same_is_told_why(
    scene: TellerBench, decision: Decision, reason: str
) -> None:
    pod = scene.cluster.pods["a"]
    scene.refuse("a", "n1")  # told just before
    scene.teller.let_through(pod.uid, "ns", "a", decision)

    (event,) = scene.tell()
    assert (event["type"], event["reason"]) == ("Normal", reason)


def test_a_pod_that_a_fault_of_ours_concerns_is_told_once_a_minute(scene: TellerBench) -> None:
    pod = scene.cluster.add_pod("b")
    for seconds in (0, 30, 31):
        scene.cluster.clock.advance(seconds)
        scene.teller.broken(pod.uid, "ns", "b")
        scene.tell()
    (event,) = scene.tell()
    assert ("Warning", "LonghornSchedulerExtenderFault", 2) == (event["type"], event["reason"], event["count"])
    assert event["message"].endswith("with the controller's log")


def test_the_thread_tells_and_ends(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.recorder.start()
    scene.teller.start()
    scene.refuse("b", "n1")
    wait_until(lambda: bool(scene.server.list_page(EVENTS).items))
    scene.teller.stop()
    scene.recorder.stop()
