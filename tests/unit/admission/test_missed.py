"""Pods that the webhook has missed: which they are, and what is told of the workloads that they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from controller.admission.missed import (
    LISTED,
    LOOK_SECONDS,
    MOST_SCHEDULERS,
    NOT_LISTED,
    OTHERS,
    REASON,
    TOLD_AT_ONCE,
    MissedPods,
)
from controller.admission.reconciler import SCHEDULERS_ANNOTATION, Contents, contents_of
from controller.kube.recorder import Target
from controller.kube.store import Store
from controller.model import workload
from controller.rules.opt_in import OptInPolicy
from tests.fakes.clock import VirtualClock

Raw = dict[str, Any]
META = {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {SCHEDULERS_ANNOTATION: "default-scheduler"}}
RULE = contents_of({"metadata": META})
MARK = "scheduling.longhorn.io/opt-in"
ASKS = {"requests": {"longhorn.io/scheduler-extender": "1"}}


def owned_by(name: str, kind: str = "StatefulSet") -> list[Raw]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"u-{name}", "controller": True}]


class Rig:
    """Namespace `ns`, and `out`, which stays out; claims `ours`, bound to a Longhorn volume, `new` of Longhorn's class,
    which is the default, `unnamed` of no class by name, `theirs` of another driver, and `odd` of a class that is not
    there."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        kinds = {
            "pod": workload.pod_facts,
            "claim": workload.claim_facts,
            "pv": workload.pv_facts,
            "class": workload.class_facts,
            "namespace": workload.namespace_facts,
        }
        self.known = {kind: Store[Any](kind, facts) for kind, facts in kinds.items()}
        self.known["namespace"].synced.set()
        self.notes: list[tuple[str, str]] = []
        self.missed = MissedPods(self.clock, self, self.known, ["default-scheduler", "not-wired"])
        self.only_marked = False
        self.put("namespace", "ns")
        self.put("namespace", "out", labels={MARK: "false"})
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.put("class", "lh", annotations=default, provisioner="driver.longhorn.io")
        self.put("class", "nfs", provisioner="nfs.example")
        self.put("pv", "pv", spec={"csi": {"driver": "driver.longhorn.io"}})
        for namespace in ("ns", "out", "kube-system"):
            for name, spec in (
                ("ours", {"volumeName": "pv", "storageClassName": "nfs"}),
                ("new", {"storageClassName": "lh"}),
                ("unnamed", {}),
                ("theirs", {"storageClassName": "nfs"}),
                ("odd", {"storageClassName": "odd"}),
            ):
                self.put("claim", name, namespace=namespace, spec=spec)

    def put(self, kind: str, name: str, *, spec: Raw | None = None, provisioner: str = "", **metadata: Any) -> None:
        raw = {"metadata": {"name": name, **metadata}, "spec": spec or {}, "provisioner": provisioner}
        self.known[kind].apply("ADDED", raw)

    def note(self, target: Target, reason: str, message: str, *, is_warning: bool = False) -> None:
        assert is_warning
        assert reason == (NOT_LISTED if "--scheduler-names" in message else REASON)
        self.notes.append((f"{target.api_version} {target.kind} {target.namespace}/{target.name}", message))

    def add(self, name: str, claim: str = "ours", *, namespace: str = "ns", **changes: Any) -> None:
        """A pod of that claim that runs; `spec_...` changes its spec, everything else its metadata."""
        meta = {"namespace": namespace, "name": name, "uid": name, "creationTimestamp": "2026-01-02T00:00:00Z"}
        spec = {"nodeName": "n", "schedulerName": "default-scheduler", "containers": [{}]}
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        status = {"phase": changes.pop("phase", "Running")}
        for key, value in changes.items():
            (spec if key.startswith("spec_") else meta)[key.removeprefix("spec_")] = value
        self.known["pod"].apply("ADDED", {"metadata": meta, "spec": spec, "status": status})

    def drop(self, name: str) -> None:
        self.known["pod"].apply("DELETED", {"metadata": {"namespace": "ns", "name": name}})

    def look(self, rule: Contents | None = RULE) -> int:
        self.clock.advance(LOOK_SECONDS)
        self.missed.look(rule, self.policy)
        return len(self.missed)

    def policy(self, schedulers: frozenset[str]) -> OptInPolicy:
        return OptInPolicy(schedulers, only_marked=self.only_marked)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, 1),
        ({"spec_nodeName": ""}, 1),
        ({"claim": "new"}, 1),
        ({"claim": "unnamed"}, 1),
        ({"labels": {MARK: "true"}, "namespace": "out"}, 1),
        ({"claim": "theirs"}, 0),
        ({"claim": "odd"}, 0),
        ({"claim": "nowhere"}, 0),
        ({"spec_containers": [{"resources": ASKS}]}, 0),
        ({"labels": {MARK: "false"}}, 0),
        ({"namespace": "out"}, 0),
        ({"namespace": "kube-system"}, 0),
        ({"spec_schedulerName": "not-wired"}, 0),
        ({"spec_schedulerName": "another"}, 1),
        ({"spec_schedulerName": "another", "spec_nodeName": ""}, 1),
        ({"spec_schedulerName": "another", "creationTimestamp": "2025-12-31T23:59:59Z"}, 1),
        ({"spec_schedulerName": "another", "claim": "theirs"}, 0),
        ({"spec_schedulerName": "another", "labels": {MARK: "false"}}, 0),
        ({"spec_schedulerName": "another", "namespace": "kube-system"}, 0),
        ({"spec_schedulerName": "another", "spec_containers": [{"resources": ASKS}]}, 0),
        ({"spec_schedulerName": ""}, 1),
        ({"phase": "Succeeded"}, 0),
        ({"deletionTimestamp": "2026-01-03T00:00:00Z"}, 0),
        ({"creationTimestamp": "2025-12-31T23:59:59Z"}, 0),  # before there was a webhook
    ],
)
def test_missed_is_who_would_opt_in_and_does_not_ask(rig: Rig, pod: Raw, expected: int) -> None:
    rig.add("p", **pod)
    assert expected == rig.look()
    assert expected == len(rig.notes)
    rig.only_marked = True
    assert (expected if MARK in pod.get("labels", {}) else 0) == rig.look()


def test_nobody_is_missed_while_no_pod_opts_in_or_namespaces_are_not_known(rig: Rig) -> None:
    rig.add("p")
    assert 0 == rig.look(None)
    assert 0 == rig.look(Contents((), {}, created_utc=RULE.created_utc))
    rig.known["namespace"].synced.clear()
    assert 0 == rig.look()
    rig.known["namespace"].synced.set()
    assert 1 == rig.look()
    rig.missed.forget()
    assert 0 == len(rig.missed)


def test_each_workload_is_told_of_once_until_it_has_no_missed_pod_left(rig: Rig) -> None:
    for number in range(7):
        rig.add(f"web-{number}", ownerReferences=owned_by("web"))
    rig.add("alone")
    assert 8 == rig.look() == rig.look()
    alone, web = rig.notes
    assert "apps/v1 StatefulSet ns/web" == web[0]
    assert web[1].startswith("7 pods with Longhorn volumes bypassed the webhook and do not request ")
    assert ": web-0, web-1, web-2, web-3, web-4 and 2 more. " in web[1]
    assert ("v1 Pod ns/alone", True) == (alone[0], alone[1].startswith("1 pod "))
    workloads = {"Pod ns/alone": 1, "StatefulSet ns/web": 7}
    assert {"count": 8, "schedulers": {"default-scheduler": 8}, "workloads": workloads} == rig.missed.status()

    rig.drop("alone")
    rig.look()
    rig.add("alone")
    rig.look()
    assert ["v1 Pod ns/alone"] == [target for target, _ in rig.notes[2:]]


def test_a_scheduler_that_is_not_listed_is_told_of_once_on_one_of_its_workloads(rig: Rig) -> None:
    for number in range(2):
        rig.add(f"web-{number}", ownerReferences=owned_by("web"), spec_schedulerName="gpu")
    rig.add("agent", ownerReferences=owned_by("agents", "DaemonSet"), spec_schedulerName="gpu")
    rig.add("alone", spec_schedulerName="nobody")
    rig.add("usual")
    assert 5 == rig.look() == rig.look()
    told = dict(rig.notes)
    assert {"apps/v1 DaemonSet ns/agents", "v1 Pod ns/alone", "v1 Pod ns/usual"} == told.keys()
    assert 3 == len(rig.notes)
    start = (
        "3 pods with Longhorn volumes and the scheduler 'gpu', which --scheduler-names (chart: schedulerNames) does not"
    )
    assert told["apps/v1 DaemonSet ns/agents"].startswith(start)
    assert ": agent, web-0, web-1. List it " in told["apps/v1 DaemonSet ns/agents"]
    assert {"default-scheduler": 1, "gpu": 3, "nobody": 1} == rig.missed.status()["schedulers"]
    assert {"default-scheduler": 1, "not-wired": 0, "gpu": 3, "nobody": 1} == rig.missed.by_scheduler()


def test_of_many_schedulers_those_are_named_of_which_most_pods_are_missed(rig: Rig) -> None:
    for number in range(MOST_SCHEDULERS + 5):
        for pod in range(1 if number < 5 else 2):
            rig.add(f"p{number}-{pod}", spec_schedulerName=f"{'x' * 100}{number}" if number == 7 else f"s{number}")
    rig.look()
    found = rig.missed.by_scheduler()
    assert (5, 2, MOST_SCHEDULERS + 3) == (found[OTHERS], found["x" * 63], len(found))
    assert len(rig.missed) == sum(found.values())


def test_of_many_workloads_some_are_told_of_at_each_look(rig: Rig) -> None:
    for number in range(TOLD_AT_ONCE + 20):
        rig.add(f"p{number}")
    rig.look()
    assert TOLD_AT_ONCE == len(rig.notes)
    rig.look()
    rig.look()
    assert TOLD_AT_ONCE + 20 == len({target for target, _ in rig.notes}) == len(rig.notes)
    assert (TOLD_AT_ONCE + 20, LISTED) == (rig.missed.status()["count"], len(rig.missed.status()["workloads"]))


def test_looks_are_far_apart(rig: Rig) -> None:
    rig.look()
    rig.add("p")
    rig.missed.look(RULE, rig.policy)
    assert 0 == len(rig.missed)
    assert 1 == rig.look()
