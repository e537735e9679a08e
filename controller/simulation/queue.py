"""Pods that are to be scheduled, in kube-scheduler's order: by priority, those that wait first, then as given."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.reader import Raw, mapping_at
from controller.model.workload import Pod, PodOwner, owner_of, pod_facts
from controller.plan.complaints import InputError
from controller.simulation.kube_rules import PodRules
from controller.simulation.workloads import Workload

WAITS, MOVES, COMES = "waits", "moves", "comes"
_MIRROR: Final = "kubernetes.io/config.mirror"
_TOLERATED: Final = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")


@dataclass(slots=True)
class QueuedPod:
    """A pod that needs a node. `claims`: raw, that are made with it. `only`: a DaemonSet's pod goes to this node.
    `before`: the pod of its workload that has to run first, or ""."""

    raw: dict[str, Any]
    facts: Pod
    rules: PodRules
    why: str
    owner: str = ""
    claims: list[dict[str, Any]] = field(default_factory=list)
    only: str = ""
    before: str = ""

    @property
    def key(self) -> str:
        return self.facts.key


def queued(raw: dict[str, Any], why: str, **more: Any) -> QueuedPod:
    """Raises InputError, which names pod and field."""
    try:
        facts, rules = pod_facts(raw), PodRules.of(raw)
    except MalformedRequestError as error:
        meta = raw["metadata"]
        raise InputError(f"Pod {meta.get('namespace')}/{meta.get('name')}", error.field, error.problem) from error
    namespace = facts.namespace or "default"
    facts = replace(facts, namespace=namespace, uid=facts.uid or f"{namespace}/{facts.name}", is_opted_in=True)
    return QueuedPod(raw, facts, rules, why, **more)


def in_order(pods: Iterable[QueuedPod]) -> list[QueuedPod]:
    return sorted(pods, key=lambda one: -one.facts.priority)


def controller_of(raw: Raw) -> PodOwner | None:
    return owner_of(mapping_at(raw, "", "metadata"))


def owner_text(raw: Raw) -> str:
    owner, meta = controller_of(raw), raw["metadata"]
    return f"{owner.kind} {meta.get('namespace') or 'default'}/{owner.name}" if owner is not None else ""


def stays_on_node(raw: Raw) -> bool:
    """Whether a drain leaves the pod where it is: a DaemonSet's, or one that the kubelet itself runs."""
    owner, is_mirror = controller_of(raw), _MIRROR in mapping_at(raw, "", "metadata", "annotations")
    return is_mirror or (owner is not None and owner.kind == "DaemonSet")


def again(raw: Raw, stamp: str) -> dict[str, Any]:
    """The pod as its controller makes it once more."""
    made = copy.deepcopy(dict(raw))
    made["metadata"].update(uid=f"{made['metadata'].get('uid', '')}-again", creationTimestamp=stamp)
    made["metadata"].pop("deletionTimestamp", None)
    made["spec"].pop("nodeName", None)
    made.pop("status", None)
    return made


def to_come(
    workload: Workload, standing: Mapping[str, Raw], nodes: Iterable[str], left_out: Counter[str]
) -> Iterator[QueuedPod]:
    """The pods that the workload adds to those that are `standing`, by key. `left_out` counts, by workload, those that
    stand already."""
    if workload.per_node:
        yield from _on_each(workload, standing, nodes, left_out)
        return
    names = {f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in workload.pods}
    by_name = names & standing.keys()
    there = len(by_name) if by_name else _owned(workload, standing)
    if there:
        left_out[workload.owner or f"Pod {next(iter(by_name))}"] += there
    pods = [one for one in workload.pods if f"{one['metadata']['namespace']}/{one['metadata']['name']}" not in by_name]
    before = ""
    for raw in pods if by_name else pods[there:]:
        name = raw["metadata"]["name"]
        claims = workload.claims.get(name, [])
        yield queued(raw, COMES, owner=workload.owner, claims=claims, before=before)
        before = name if workload.is_ordered else ""


def _owned(workload: Workload, standing: Mapping[str, Raw]) -> int:
    """How many pods stand that the workload's controller has made."""
    kind, _, key = workload.owner.partition(" ")
    namespace, _, name = key.partition("/")
    found = 0
    for raw in standing.values() if key else ():
        owner, meta = controller_of(raw), raw["metadata"]
        if (meta.get("namespace") or "default") != namespace or owner is None:
            continue
        by_set = kind == "Deployment" and owner.kind == "ReplicaSet"
        is_own = owner.name.rpartition("-")[0] == name if by_set else owner.name == name
        found += is_own and (by_set or owner.kind == kind)
    return found


def _on_each(
    workload: Workload, standing: Mapping[str, Raw], nodes: Iterable[str], left_out: Counter[str]
) -> Iterator[QueuedPod]:
    template = workload.pods[0]
    there = {
        mapping_at(raw, "", "spec").get("nodeName") for raw in standing.values() if owner_text(raw) == workload.owner
    }
    if there:
        left_out[workload.owner] += len(there)
    for node in nodes:
        if node in there:
            continue
        raw = copy.deepcopy(template)
        raw["metadata"]["name"] += f"-{node}"
        tolerated = [{"key": key, "operator": "Exists"} for key in _TOLERATED]
        raw["spec"]["tolerations"] = [*(raw["spec"].get("tolerations") or ()), *tolerated]
        yield queued(raw, COMES, owner=workload.owner, only=node)


def waits(raw: Raw) -> bool:
    """Whether a scheduler looks for a node for that pod, which is not finished."""
    meta, spec = mapping_at(raw, "", "metadata"), mapping_at(raw, "", "spec")
    return meta.get("deletionTimestamp") is None and not (spec.get("nodeName") or spec.get("schedulingGates"))
