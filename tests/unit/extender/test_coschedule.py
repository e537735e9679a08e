"""Pods that follow their shared volumes: which nodes are left, what they score, and when a refused one is woken."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Wakeup
from controller.model.workload import Pod
from controller.rules.reasons import Reason
from extender.coschedule import APART, LOOK_SECONDS, CoScheduler
from tests.fakes.builders import node, pod
from tests.unit.extender.bench import VerbBench

LONGHORN = "longhorn-system"
NODES = ("n1", "n2", "n3")


class Kubevirt(VerbBench):
    """Three nodes, and a pod `vm` with the shared volumes `disk-0`, `disk-1`, ... of 10 GiB."""

    def __init__(self, disks: int = 1, *, migratable: bool = False, **facts: Any) -> None:
        super().__init__(**dict.fromkeys(NODES, 400))
        self.woken: list[Wakeup] = []
        self.events: list[tuple[str, str]] = []
        self.leads = True
        for number in range(disks):
            self.cluster.add_claim(f"disk-{number}", 10)
            name = self.cluster.provision(f"disk-{number}", access_mode="rwx", migratable=migratable)
            self.cluster.place(name, "n3", 10)
        names = (f"disk-{number}" for number in range(disks))
        self.vm = self.cluster.set_pod(pod("vm", *names, **{"follows_shares": True, **facts}))
        self.said = self.allocator._live
        self.scheduler = CoScheduler(
            self.allocator.served,
            self.cluster.clock,
            lambda: self.said,
            namespace=LONGHORN,
            wake=self.woken.extend,
            tell=lambda _pod, reason, text: self.events.append((reason, text)),
            is_leading=lambda: self.leads,
        )
        self.build(self.scheduler, self.allocator)

    def serve(self, number: int, on: str, namespace: str = LONGHORN, **facts: Any) -> Pod:
        """A share-manager of that disk."""
        served = f"pvc-uid-disk-{number}"
        made = pod(
            f"share-manager-{served}",
            namespace=namespace,
            uid=f"uid-{served}",
            is_opted_in=False,
            node_name=on,
            shares_volume=served,
            **facts,
        )
        self.allocator.observe_pod(made.key, made)
        return made

    def passed(self, *candidates: str) -> tuple[list[str], dict[str, str]]:
        """Those that pass, and why not the others; all unresolvably."""
        answer = self.filter(self.vm, *(candidates or NODES))
        assert ({}, "") == (answer["FailedNodes"], answer["Error"])
        return answer["NodeNames"], answer["FailedAndUnresolvableNodes"]

    def best(self) -> dict[str, int]:
        return self.scores(self.vm, *NODES)

    def evicts(self, *candidates: str) -> Set[str]:
        """Where somebody may be evicted."""
        return self.preempt(self.vm, **dict.fromkeys(candidates or NODES, ("victim",))).keys()

    def set(self, **live: Any) -> None:
        self.said = replace(self.said, **live)

    def look(self) -> list[str]:
        """Who is woken at the next look."""
        self.woken.clear()
        self.cluster.clock.advance(LOOK_SECONDS)
        self.scheduler.run_once()
        return [one.name for one in self.woken]


ELSEWHERE = Reason.SERVED_ELSEWHERE.text


def test_the_node_of_the_share_manager_is_left_and_scores_best() -> None:
    bench = Kubevirt()
    bench.serve(0, "n2")
    assert (["n2"], {"n1": ELSEWHERE, "n3": ELSEWHERE}) == bench.passed()
    assert {"n1": 0, "n2": 10, "n3": 0} == bench.best()
    assert [] == bench.live.reads


def test_preferred_refuses_nobody_scores_the_same_and_evicts_elsewhere_as_well() -> None:
    bench = Kubevirt()
    bench.set(co_schedule_strictness="preferred")
    bench.serve(0, "n2")
    assert (list(NODES), {}) == bench.passed()
    assert {"n1": 0, "n2": 10, "n3": 0} == bench.best()
    assert set(NODES) == bench.evicts()


@pytest.mark.parametrize(
    "facts",
    [
        {"on": ""},
        {"on": "n2", "is_deleting": True},
        {"on": "n2", "is_finished": True},
        {"on": "n2", "namespace": "tenant"},  # anybody may label his own pod
    ],
    ids=["unscheduled", "going", "ended", "stranger"],
)
def test_a_share_manager_that_serves_nothing_counts_as_none(facts: dict[str, Any]) -> None:
    bench = Kubevirt()
    bench.serve(0, **facts)
    assert (list(NODES), {}) == bench.passed()
    assert {0} != set(bench.best().values())  # by the room there is


@pytest.mark.parametrize("lost", ["not ready", "gone", "gone from Longhorn"])
def test_a_share_manager_on_a_node_that_is_lost_counts_as_none(lost: str) -> None:
    """Its pod may stand there for long, and the machine is to run elsewhere meanwhile."""
    bench = Kubevirt()
    bench.serve(0, "n2")
    assert ([], {"n1": ELSEWHERE, "n3": ELSEWHERE}) == bench.passed("n1", "n3")
    if lost == "not ready":
        bench.cluster.put_node(replace(node("n2"), ready=False))
    elif lost == "gone":
        bench.allocator.observe_kube_node("n2", None)
    else:
        bench.allocator.observe_node("n2", None)
    assert ["vm"] == bench.look()
    assert (["n1", "n3"], {}) == bench.passed("n1", "n3")


def test_without_the_annotation_nothing_changes() -> None:
    bench = Kubevirt(follows_shares=False)
    before = bench.best()
    bench.serve(0, "n2")
    assert (list(NODES), {}) == bench.passed()
    assert before == bench.best()


def test_volumes_that_migrate_have_no_share_manager() -> None:
    bench = Kubevirt(migratable=True)
    bench.serve(0, "n2")  # a leftover
    passed, refused = bench.passed()
    assert "n3" in passed and ELSEWHERE not in refused.values()  # its data is there


def test_of_several_volumes_the_nodes_that_serve_most_are_left_and_an_event_says_so_once() -> None:
    bench = Kubevirt(disks=3)
    for number, name in enumerate(("n1", "n2", "n2")):
        bench.serve(number, name)
    assert ["n2"] == bench.passed()[0]
    bench.passed()
    ((reason, text),) = bench.events
    assert reason == APART and "(n1, n2)" in text
    bench.serve(2, "n3")
    assert ["n1", "n2", "n3"] == bench.passed()[0]
    assert 2 == len(bench.events)


def test_after_the_fall_back_time_any_node_will_do() -> None:
    bench = Kubevirt()
    bench.set(co_schedule_fallback_after_seconds=300)
    bench.serve(0, "n2")
    waited = bench.cluster.clock.stamp()
    bench.cluster.change_pod("vm", created_utc=waited)
    bench.cluster.clock.advance(299)
    assert ([], {"n1": ELSEWHERE, "n3": ELSEWHERE}) == bench.passed("n1", "n3")
    assert [] == bench.look()[1:]
    bench.cluster.clock.advance(1)
    assert ["n1", "n3"] == bench.passed("n1", "n3")[0]


def test_a_refused_pod_is_woken_when_its_volumes_are_served_elsewhere() -> None:
    bench = Kubevirt()
    bench.serve(0, "n2")
    assert ([], {"n1": ELSEWHERE, "n3": ELSEWHERE}) == bench.passed("n1", "n3")
    assert [] == bench.look()
    bench.serve(0, "n1")
    assert ["vm"] == bench.look()
    assert [] == bench.look()
    assert ["n1"] == bench.passed("n1", "n3")[0]
    bench.serve(0, "n2")
    assert [] == bench.look()  # it was answered


def test_a_pod_whose_node_is_full_is_woken_when_its_volumes_are_served_elsewhere() -> None:
    bench = Kubevirt()
    bench.cluster.add_claim("data", 500)
    bench.cluster.change_pod("vm", volumes=(*bench.vm.volumes, *pod("x", "data").volumes))
    bench.serve(0, "n2")
    passed, refused = bench.passed()
    assert [] == passed and refused["n2"] != ELSEWHERE and ELSEWHERE == refused["n1"]
    assert set() == bench.evicts()
    assert [(bench.vm.uid, ("n2",))] * 2 == bench.told  # what is missing there is told, not that others have it
    assert [] == bench.look()
    bench.allocator.observe_pod("longhorn-system/x", None)
    bench.serve(0, "n3")
    assert ["vm"] == bench.look()


def test_nobody_is_evicted_where_the_pod_may_not_run() -> None:
    bench = Kubevirt()
    bench.serve(0, "n2")
    assert {"n2"} == bench.evicts()
    assert [] == bench.told
    assert set() == bench.evicts("n1", "n3")
    assert [(bench.vm.uid, ())] == bench.told  # no room there would help


def test_a_pod_that_may_evict_nobody_is_woken_when_its_volumes_are_served_elsewhere() -> None:
    """With all nodes full the filter verb was not called at all."""
    bench = Kubevirt()
    bench.serve(0, "n2")
    bench.evicts("n1", "n3")
    assert [] == bench.look()
    bench.serve(0, "n1")
    assert ["vm"] == bench.look()


@pytest.mark.parametrize("change", ["gone", "bound", "follower"])
def test_nobody_is_woken_who_does_not_wait(change: str) -> None:
    bench = Kubevirt()
    bench.serve(0, "n2")
    bench.passed("n1")
    if change == "gone":
        bench.cluster.drop_pod("vm")
    elif change == "bound":
        bench.cluster.bind("vm", "n1")
    else:
        bench.leads = False
    bench.serve(0, "n3")
    assert [] == bench.look()


def test_a_share_manager_that_restarts_elsewhere_is_followed() -> None:
    bench = Kubevirt()
    old = bench.serve(0, "n2", created_utc="2026-01-01T00:00:00Z")
    assert ["n2"] == bench.passed()[0]
    newer = replace(old, uid="newer", name=f"{old.name}-x", node_name="n3", created_utc="2026-01-02T00:00:00Z")
    bench.allocator.observe_pod(newer.key, newer)
    assert ["n3"] == bench.passed()[0]
    bench.allocator.observe_pod(newer.key, None)
    bench.allocator.observe_pod(old.key, None)
    assert list(NODES) == bench.passed()[0]
