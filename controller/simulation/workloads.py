"""Workloads as people write them, turned into the pods and claims that their controllers make.

Names are those of the controllers. Where a controller takes a random end, as ReplicaSets do, the end here follows from
the name and the number, so that the same question has the same answer.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.reader import Raw, flag_at, integer_at, list_at, mapping_at, text_at
from controller.plan.complaints import InputError, Notes, nearest
from controller.plan.objects import flat, named

MOST_PODS: Final = 100_000
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # of Kubernetes' random names
_APPS, _BATCH = "apps/v1", "batch/v1"
_LIKE_KIND: Final = 0.85


@dataclass(slots=True)
class Workload:
    """Pods of one controller, or one pod by itself. `is_ordered`: a pod is made once the one before runs. `per_node`: a
    DaemonSet, whose one template `pods` has, for each node."""

    owner: str
    pods: list[dict[str, Any]] = field(default_factory=list)
    claims: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by pod, that are made with it
    is_ordered: bool = False
    per_node: bool = False


@dataclass(slots=True)
class Workloads:
    """What is to come. `ignored` counts objects of kinds that find no place by themselves."""

    workloads: list[Workload] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def suffix(text: str, length: int) -> str:
    """Letters that follow from `text`, as random names have them."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:length])


def read_workloads(file: str, documents: Iterable[object], namespace: str, notes: Notes, wanted: Workloads) -> None:
    """Adds what the documents of `file` ask for. `namespace`: of objects that name none. InputError names file, object
    and field."""
    object_name = ""
    try:
        for where, raw in flat([one for one in documents if one is not None], "document"):
            object_name = named(where, raw)
            _read(raw, namespace, wanted, notes, object_name)
    except MalformedRequestError as error:
        raise InputError(f"{file}: {object_name}", error.field, error.problem) from error
    except InputError as error:
        raise InputError(file, error.object_name or error.field_name, str(error).partition(": ")[2]) from error


def _read(raw: Mapping[str, Any], namespace: str, wanted: Workloads, notes: Notes, object_name: str) -> None:
    kind, version = raw["kind"], raw["apiVersion"]
    key = version, kind
    if key not in _KINDS:
        _check_kind(object_name, version, kind, notes)
        wanted.ignored[kind] += 1
        return
    made = copy.deepcopy(dict(raw))
    meta = made["metadata"] = dict(mapping_at(made, "", "metadata"))
    if kind != "StorageClass":
        meta["namespace"] = text_at(meta, "metadata", "namespace") or namespace
    if not text_at(meta, "metadata", "name"):
        prefix = text_at(meta, "metadata", "generateName")
        if not prefix or kind not in ("Pod", "Job"):
            raise MalformedRequestError("metadata.name", "is missing")
        meta["name"] = prefix + suffix(f"{prefix}{len(wanted.workloads)}", 5)
    if kind == "PersistentVolumeClaim":
        wanted.claims.append(made)
    elif kind == "StorageClass":
        wanted.classes.append(made)
    else:
        wanted.workloads.append(_KINDS[key](made))


def _check_kind(object_name: str, version: str, kind: str, notes: Notes) -> None:
    known = sorted(of for of, one in _KINDS if one == kind)
    if known and version.rpartition("/")[0] in {one.rpartition("/")[0] for one in known}:
        raise InputError(object_name, "apiVersion", f"{version} is not read, {' or '.join(known)} is")
    near = nearest(kind, tuple(one for _, one in _KINDS), _LIKE_KIND)
    if near and not known:
        notes.pass_over(InputError(object_name, "kind", f"{kind} is not read, {near} is"))


# One function for each kind


def _pod(raw: dict[str, Any]) -> Workload:
    return Workload("", [raw])


def _owner(raw: Raw) -> str:
    meta = raw["metadata"]
    return f"{raw['kind']} {meta['namespace']}/{meta['name']}"


def _template(raw: Raw) -> Raw:
    template = mapping_at(raw, "", "spec", "template")
    if not mapping_at(template, "spec.template", "spec"):
        raise MalformedRequestError("spec.template.spec", "is missing")
    return template


def _made(raw: Raw, name: str, owner_kind: str, owner_name: str) -> dict[str, Any]:
    """The pod of that name that a controller makes of its template."""
    template, meta = _template(raw), raw["metadata"]
    given = dict(mapping_at(template, "spec.template", "metadata"))
    owner = {"apiVersion": raw["apiVersion"], "kind": owner_kind, "name": owner_name, "controller": True, "uid": ""}
    given.update(name=name, namespace=meta["namespace"], ownerReferences=[owner])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": copy.deepcopy(dict(template["spec"]))}


def _count_at(raw: Raw, path: str, name: str, default: int) -> int:
    """An integer of at least 0; `default` where it is missing."""
    found = integer_at(raw, path, name, default)
    if found < 0:
        raise MalformedRequestError(f"{path}.{name}", f"is negative: {found}")
    return found


def _count(raw: Raw, name: str) -> int:
    found = _count_at(mapping_at(raw, "", "spec"), "spec", name, 1)
    if found > MOST_PODS:
        raise MalformedRequestError(f"spec.{name}", f"is more than {MOST_PODS}")
    return found


def _replica_set(raw: dict[str, Any]) -> Workload:
    name = raw["metadata"]["name"]
    return _random(raw, "ReplicaSet", name, _count(raw, "replicas"))


def _deployment(raw: dict[str, Any]) -> Workload:
    name = raw["metadata"]["name"]
    return _random(raw, "ReplicaSet", f"{name}-{suffix(name, 10)}", _count(raw, "replicas"))


def _random(raw: dict[str, Any], owner_kind: str, owner_name: str, count: int) -> Workload:
    names = (f"{owner_name}-{suffix(f'{owner_name}/{index}', 5)}" for index in range(count))
    return Workload(_owner(raw), [_made(raw, name, owner_kind, owner_name) for name in names])


def _daemon_set(raw: dict[str, Any]) -> Workload:
    name = raw["metadata"]["name"]
    return Workload(_owner(raw), [_made(raw, name, "DaemonSet", name)], per_node=True)


def _job(raw: dict[str, Any]) -> Workload:
    spec, name = mapping_at(raw, "", "spec"), raw["metadata"]["name"]
    parallel = _count_at(spec, "spec", "parallelism", 1)
    count = min(parallel, _count_at(spec, "spec", "completions", parallel), MOST_PODS)
    if flag_at(spec, "spec", "suspend"):
        count = 0
    is_indexed = text_at(spec, "spec", "completionMode") == "Indexed"
    names = [f"{name}-{index}" if is_indexed else name for index in range(count)]
    made = [f"{one}-{suffix(f'{name}/{index}', 5)}" for index, one in enumerate(names)]
    return Workload(_owner(raw), [_made(raw, one, "Job", name) for one in made])


def _cron_job(raw: dict[str, Any]) -> Workload:
    """One run of it."""
    template = dict(mapping_at(raw, "", "spec", "jobTemplate"))
    name = f"{raw['metadata']['name']}-1"
    job = {**raw, "kind": "Job", "metadata": {**raw["metadata"], "name": name}, "spec": template.get("spec")}
    return _job(job)


def _stateful_set(raw: dict[str, Any]) -> Workload:
    spec, meta = mapping_at(raw, "", "spec"), raw["metadata"]
    start = _count_at(mapping_at(spec, "spec", "ordinals"), "spec.ordinals", "start", 0)
    policy = text_at(spec, "spec", "podManagementPolicy") or "OrderedReady"
    found = Workload(_owner(raw), is_ordered=policy == "OrderedReady")
    templates = list(_claim_templates(spec))
    for ordinal in range(start, start + _count(raw, "replicas")):
        pod = _made(raw, f"{meta['name']}-{ordinal}", "StatefulSet", meta["name"])
        labels = pod["metadata"]["labels"] = dict(mapping_at(pod["metadata"], "metadata", "labels"))
        labels["statefulset.kubernetes.io/pod-name"] = pod["metadata"]["name"]
        volumes = [one for one in list_at(pod["spec"], "spec", "volumes") if isinstance(one, Mapping)]
        own, claims = {name for name, _ in templates}, list[dict[str, Any]]()
        pod["spec"]["volumes"] = [one for one in volumes if one.get("name") not in own]
        for name, template in templates:
            claim = f"{name}-{pod['metadata']['name']}"
            pod["spec"]["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
            claims.append(_claim(template, claim, meta["namespace"]))
        found.claims[pod["metadata"]["name"]] = claims
        found.pods.append(pod)
    return found


def _claim_templates(spec: Raw) -> Iterator[tuple[str, Raw]]:
    for index, template in enumerate(list_at(spec, "spec", "volumeClaimTemplates")):
        path = f"spec.volumeClaimTemplates[{index}]"
        name = text_at(mapping_at(template, path, "metadata"), f"{path}.metadata", "name")
        if not name:
            raise MalformedRequestError(f"{path}.metadata.name", "is missing")
        yield name, template


def _claim(template: Raw, name: str, namespace: str) -> dict[str, Any]:
    meta = {**mapping_at(template, "", "metadata"), "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template.get("spec") or {}}


_KINDS: Final[Mapping[tuple[str, str], Any]] = {
    ("v1", "Pod"): _pod,
    ("v1", "PersistentVolumeClaim"): None,
    ("storage.k8s.io/v1", "StorageClass"): None,
    (_APPS, "Deployment"): _deployment,
    (_APPS, "ReplicaSet"): _replica_set,
    (_APPS, "StatefulSet"): _stateful_set,
    (_APPS, "DaemonSet"): _daemon_set,
    (_BATCH, "Job"): _job,
    (_BATCH, "CronJob"): _cron_job,
}
