"""Saved objects, as kubectl prints them, decoded and checked into facts by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.errors import MalformedRequestError, SchedulerError
from controller.model import parse
from controller.model.longhorn import (
    BackingImage,
    Backup,
    EngineImage,
    InstanceManager,
    LonghornNode,
    Replica,
    Volume,
)
from controller.model.quantity import quantity_bytes
from controller.model.reader import Raw, mapping_at, text_at
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass
from controller.rules.provisioning import check_class

LONGHORN: Final = "longhorn.io/v1beta2"


class InputError(SchedulerError):
    """Bad input: which object (empty: the document itself), which field, and what is wrong with it."""

    def __init__(self, object_name: str, field_name: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (object_name, field_name, problem) if part))
        self.object_name, self.field_name, self.problem = object_name, field_name, problem


@dataclass(frozen=True, slots=True)
class Objects:
    """Facts by kind and name; pods and claims by `namespace/name`. `ignored` counts the objects of other kinds."""

    nodes: dict[str, LonghornNode] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    backing_images: dict[str, BackingImage] = field(default_factory=dict)
    backups: dict[str, Backup] = field(default_factory=dict)
    engine_images: dict[str, EngineImage] = field(default_factory=dict)
    instance_managers: dict[str, InstanceManager] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    kube_nodes: dict[str, KubeNode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    pvs: dict[str, PersistentVolume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    names: dict[tuple[str, str], str] = field(default_factory=dict)  # (table, key) -> the object as complaints name it


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind that is read: which table of Objects it goes to, and how."""

    table: str
    parse: Callable[[Raw], Any]
    is_keyed_by_namespace: bool = False


def _setting_value(raw: Raw) -> str:
    return text_at(raw, "", "value")


_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    LONGHORN: {
        "Node": _Kind("nodes", parse.node_facts),
        "Volume": _Kind("volumes", parse.volume_facts),
        "Replica": _Kind("replicas", parse.replica_facts),
        "BackingImage": _Kind("backing_images", parse.backing_image_facts),
        "Backup": _Kind("backups", parse.backup_facts),
        "EngineImage": _Kind("engine_images", parse.engine_image_facts),
        "InstanceManager": _Kind("instance_managers", parse.instance_manager_facts),
        "Setting": _Kind("settings", _setting_value),
    },
    "v1": {
        "Node": _Kind("kube_nodes", parse.kube_node_facts),
        "Pod": _Kind("pods", parse.pod_facts, is_keyed_by_namespace=True),
        "PersistentVolumeClaim": _Kind("claims", parse.claim_facts, is_keyed_by_namespace=True),
        "PersistentVolume": _Kind("pvs", parse.pv_facts),
    },
    "storage.k8s.io/v1": {"StorageClass": _Kind("classes", parse.class_facts)},
}


def decode_objects(given: object) -> Objects:
    """All objects, those of a `List` among them. Other kinds are counted, not read."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list):
        raise InputError("", "objects", "is missing" if given is None else "is not a list")
    found = Objects()
    for where, raw in _flat(given, "objects"):
        _add(found, where, raw)
    _check_disks(found)
    return found


def _flat(given: list[Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, raw in enumerate(given):
        where = f"{path}[{index}]"
        if not isinstance(raw, Mapping):
            raise InputError("", where, "is not an object")
        for name in ("apiVersion", "kind"):
            if not isinstance(raw.get(name), str) or not raw[name]:
                raise InputError("", f"{where}.{name}", "is missing, or no string")
        kind, items = raw["kind"], raw.get("items")
        if kind != "List" and not (kind.endswith("List") and isinstance(items, list)):
            yield where, dict(raw)
            continue
        if not isinstance(items, list | None):
            raise InputError("", f"{where}.items", "is not a list")
        # The items of a typed list, as the API server sends it, carry neither kind nor version.
        typed = {} if kind == "List" else {"apiVersion": raw["apiVersion"], "kind": kind.removesuffix("List")}
        yield from _flat(
            [{**typed, **item} if isinstance(item, Mapping) else item for item in items or ()], f"{where}.items"
        )


def _add(found: Objects, where: str, raw: dict[str, Any]) -> None:
    version, kind = raw["apiVersion"], raw["kind"]
    group = version.rpartition("/")[0]
    reader = _KINDS.get(version, {}).get(kind)
    if reader is None:
        read = [known for known in _KINDS if known.rpartition("/")[0] == group and kind in _KINDS[known]]
        if read:
            raise InputError(_named(where, raw), "apiVersion", f"{version} is not read, {read[0]} is")
        found.ignored[f"{kind}.{group}" if group else kind] += 1
        return
    object_name = _named(where, raw)
    if object_name.startswith(where):
        raise InputError("", f"{where}.metadata.name", "is missing")
    try:
        facts = reader.parse(raw)
        _check_facts(raw, facts)
    except MalformedRequestError as error:
        raise InputError(object_name, error.field, error.problem) from error
    if isinstance(facts, Pod | Claim):
        facts = replace(facts, namespace=facts.namespace or "default")
        facts = replace(facts, uid=facts.uid or facts.key)
    key = facts.key if isinstance(facts, Pod | Claim) else raw["metadata"]["name"]
    table = getattr(found, reader.table)
    if key in table:
        raise InputError(object_name, "metadata.name", "stands in the objects twice")
    if isinstance(facts, Pod | Claim):
        twin = found.names.setdefault((f"{reader.table} by uid", facts.uid), object_name)
        if twin != object_name:
            raise InputError(object_name, "metadata.uid", f"{facts.uid} is that of {twin} as well")
    table[key] = facts
    found.names[reader.table, key] = object_name


def _named(where: str, raw: Mapping[str, Any]) -> str:
    """`kind namespace/name`, or where it stands when it has no name."""
    meta = raw.get("metadata")
    name = meta.get("name") if isinstance(meta, Mapping) else None
    if not isinstance(name, str) or not name or not isinstance(meta, Mapping):
        return where
    namespace = meta.get("namespace")
    return f"{raw['kind']} {namespace}/{name}" if namespace else f"{raw['kind']} {name}"


def _check_facts(raw: Raw, facts: object) -> None:
    """What the API server or Longhorn's webhook would have refused, and no reader of facts complains about."""
    if isinstance(facts, LonghornNode):
        for disk in facts.disks:
            if disk.reserved_bytes < 0:
                raise MalformedRequestError(f"spec.disks.{disk.name}.storageReserved", f"{disk.reserved_bytes} < 0")
    elif isinstance(facts, Replica):
        _check_size(raw, "volumeSize")
        if not facts.volume:
            raise MalformedRequestError("spec.volumeName", "is missing")
    elif isinstance(facts, Volume):
        _check_size(raw, "size")
        if facts.actual_size_bytes < 0:
            raise MalformedRequestError("status.actualSize", f"{facts.actual_size_bytes} < 0")
    elif isinstance(facts, Claim):
        request = mapping_at(mapping_at(raw, "", "spec"), "spec", "resources", "requests").get("storage")
        if request is not None and quantity_bytes(request, "spec.resources.requests.storage") < 0:
            raise MalformedRequestError("spec.resources.requests.storage", f"{request} < 0")
    elif isinstance(facts, StorageClass):
        check_class(facts)
    elif isinstance(facts, str) and raw.get("value") is None:
        raise MalformedRequestError("value", "is missing")


def _check_size(raw: Raw, name: str) -> None:
    value = mapping_at(raw, "", "spec").get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise MalformedRequestError(f"spec.{name}", f"is not a string of decimal bytes: {str(value)[:80]!r}")


def _check_disks(found: Objects) -> None:
    """A UUID is one disk's, in the whole cluster."""
    seen: dict[str, str] = {}
    for name, node in found.nodes.items():
        for disk in node.disks:
            if disk.uuid in seen:
                raise InputError(
                    found.names["nodes", name],
                    f"status.diskStatus.{disk.name}.diskUUID",
                    f"{disk.uuid} is that of {seen[disk.uuid]} as well",
                )
            if disk.uuid:
                seen[disk.uuid] = f"disk {disk.name} of node {name}"
