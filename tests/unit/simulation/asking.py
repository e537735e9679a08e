"""Small clusters as kubectl prints them, workloads, and what a simulation of them says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controller.plan.complaints import Notes
from controller.simulation.documents import PodOutcome, Simulation
from controller.simulation.run import GrownClaim, Question, simulate
from controller.simulation.state import SavedCluster
from controller.simulation.workloads import Workloads, read_workloads
from tests.fakes import saved
from tests.fakes.saved import GIB, Raw, core, node, replica, storage_class
from tests.unit.plan import asking

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
WAITS = {"volumeBindingMode": "WaitForFirstConsumer"}
LOCAL = {**storage_class("local", numberOfReplicas="1", dataLocality="best-effort"), **WAITS}
THREE = {**storage_class("three", numberOfReplicas="3"), **WAITS}
AT_ONCE = storage_class("at-once", numberOfReplicas="2")


def kube_node(name: str, *, cpu: str = "8", labels: Raw | None = None, **spec: Any) -> Raw:
    capacity = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    meta = {"labels": labels} if labels is not None else {}
    return core("Node", name, spec=spec, status={"allocatable": capacity}, metadata=meta)


def cluster(**gib: int) -> list[Raw]:
    """Three classes, and nodes with one disk of that size each."""
    nodes = [one for name, size in gib.items() for one in (kube_node(name), node(name, gib=size))]
    return [LOCAL, THREE, AT_ONCE, *nodes]


def stateful_set(name: str, replicas: int = 1, gib: int = 60, of_class: str = "local", **more: Any) -> Raw:
    """In the namespace `ns`, with a claim for each pod; `pod`: of its template's spec."""
    pod = more.pop("pod", {})
    claim = {"storageClassName": of_class, "resources": {"requests": {"storage": f"{gib}Gi"}}}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [], **pod}}, **more}
    spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}


def running(name: str, on: str, *copies: str, gib: int = 60, owner: str = "StatefulSet", **spec: Any) -> list[Raw]:
    """A pod with a claim and a Longhorn volume of that name, whose copies lie on these nodes."""
    wanted = {"numberOfReplicas": len(copies), "nodeID": on, "dataLocality": "disabled", **spec}
    facts = saved.volume(name, gib=gib, status={"state": "attached", "robustness": "healthy"}, **wanted)
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "db", "uid": "o", "controller": True}] if owner else []
    pod = asking.pod(name, name=name)
    pod["metadata"]["ownerReferences"] = owners
    pod["spec"]["nodeName"] = on
    placed = [replica(f"{name}-r{number}", where, of=name, gib=gib) for number, where in enumerate(copies)]
    pv = asking.pv(name, name)
    pv["spec"]["capacity"] = {"storage": f"{gib}Gi"}
    return [facts, *placed, pv, asking.claim(name, gib, bound=name), pod]


def ask(objects: list[Raw], *workloads: Raw, **question: Any) -> Simulation:
    wanted = Workloads()
    read_workloads("w.yaml", workloads, "ns", Notes(), wanted)
    grow = tuple(GrownClaim("ns", name, size * GIB) for name, size in question.pop("grow", {}).items())
    return simulate(SavedCluster(list(objects), "saved"), Question(wanted=wanted, grow=grow, **question), NOW)


def pods(found: Simulation) -> dict[str, str]:
    """By pod, its node; what it is of one without."""
    return {one.name: one.node or one.state for one in found.pods}


def pod_of(found: Simulation, name: str) -> PodOutcome:
    return next(one for one in found.pods if one.name == name)


def used(found: Simulation) -> dict[str, int]:
    """By node, GiB in use afterwards on its disks."""
    sums: dict[str, int] = {}
    for disk in found.disks:
        sums[disk.node] = sums.get(disk.node, 0) + disk.used_after // GIB
    return sums


def about(found: Simulation) -> list[str]:
    """What finds no place, with its reason."""
    return [f"{one.kind} {one.about} {one.reason}" for one in found.findings]
