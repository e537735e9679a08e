"""Saved objects, as kubectl prints them, decoded and checked into facts by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from controller.allocator.world.world import World
from controller.errors import MalformedRequestError
from controller.model import parse, workload
from controller.model.longhorn import (
    BackingImage,
    Backup,
    EngineImage,
    InstanceManager,
    LonghornNode,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.longhorn_settings import LONGHORN_NAMES, setting_value
from controller.model.reader import Raw
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass
from controller.plan.complaints import InputError, Notes, nearest
from controller.plan.fields import check_fields, unknown_words

LONGHORN: Final = "longhorn.io/v1beta2"
# From which likeness to a known name on another one counts as a misspelling of it: no kind and no setting that
# Kubernetes or Longhorn really has is as much like one that is read.
_LIKE_KIND: Final = 0.85
_LIKE_SETTING: Final = 0.9


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


class _Kind(NamedTuple):
    """A kind that is read: which table of Objects it goes to, and how; and how a world takes it, but for settings."""

    table: str
    parse: Callable[[Raw], Any]
    put: Callable[[World, str, Any], object] | None = None


_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    LONGHORN: {
        "Node": _Kind("nodes", parse.node_facts, World.put_node),
        "BackingImage": _Kind("backing_images", parse.backing_image_facts, World.put_backing_image),
        "Backup": _Kind("backups", parse.backup_facts, World.put_backup),
        "EngineImage": _Kind("engine_images", parse.engine_image_facts, World.put_engine_image),
        "InstanceManager": _Kind("instance_managers", parse.instance_manager_facts, World.put_instance_manager),
        "Volume": _Kind("volumes", parse.volume_facts, World.put_volume),
        "Replica": _Kind("replicas", parse.replica_facts, World.put_replica),
        "Setting": _Kind("settings", setting_value),
    },
    "storage.k8s.io/v1": {"StorageClass": _Kind("classes", workload.class_facts, World.put_class)},
    "v1": {
        "Node": _Kind("kube_nodes", workload.kube_node_facts, World.put_kube_node),
        "PersistentVolume": _Kind("pvs", workload.pv_facts, World.put_pv),
        "PersistentVolumeClaim": _Kind("claims", workload.claim_facts, World.put_claim),
        "Pod": _Kind("pods", workload.pod_facts, World.put_pod),
    },
}
"""By version and kind; what others refer to comes before them, so that a world takes it once."""


def world_of(objects: Objects, settings: LonghornSettings) -> World:
    """A world that knows nothing but `objects`. A volume that is to grow stands there as Longhorn shows it: what is
    promised beyond that is part of the question."""
    world = World()
    world.put_settings(settings)
    for kinds in _KINDS.values():
        for table, _, put in kinds.values():
            if put is not None:
                for key, facts in getattr(objects, table).items():
                    put(world, key, facts)
    return world


def decode_objects(given: object, notes: Notes) -> Objects:
    """All objects, those of a `List` among them. Other kinds are counted, not read."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list):
        raise InputError("", "objects", "is missing" if given is None else "is not a list")
    found = Objects()
    for where, raw in _flat(given):
        _add(found, where, raw, notes)
    _check_disks(found)
    return found


def _flat(given: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object and where it stands, in order; lists stand for their items, however deep they are."""
    levels: list[tuple[str, dict[str, str], Iterator[tuple[int, Any]]]] = [("objects", {}, iter(enumerate(given)))]
    while levels:
        path, typed, rest = levels[-1]
        index, item = next(rest, (-1, None))
        if index < 0:
            levels.pop()
            continue
        where = f"{path}[{index}]"
        if not isinstance(item, Mapping):
            raise InputError("", where, "is not an object")
        raw = {**typed, **item}
        for name in ("apiVersion", "kind"):
            if not isinstance(raw.get(name), str) or not raw[name]:
                raise InputError("", f"{where}.{name}", "is missing, or no string")
        kind, items = raw["kind"], raw.get("items")
        if kind != "List" and not (kind.endswith("List") and isinstance(items, list)):
            yield where, raw
        elif isinstance(items, list | None):
            # The items of a typed list, as the API server sends it, carry neither kind nor version.
            typed = {} if kind == "List" else {"apiVersion": raw["apiVersion"], "kind": kind.removesuffix("List")}
            levels.append((f"{where}.items", typed, iter(enumerate(items or ()))))
        else:
            raise InputError("", f"{where}.items", "is not a list")


def _add(found: Objects, where: str, raw: dict[str, Any], notes: Notes) -> None:
    version, kind = raw["apiVersion"], raw["kind"]
    object_name = _named(where, raw)
    reader = _KINDS.get(version, {}).get(kind)
    if reader is None:
        group = version.rpartition("/")[0]
        _check_kind(object_name, version, kind, notes)
        found.ignored[f"{kind}.{group}" if group else kind] += 1
        return
    if object_name == where:
        raise InputError("", f"{where}.metadata.name", "is missing")
    try:
        facts = reader.parse(raw)
        check_fields(raw, facts)
        for error in unknown_words(kind, raw) if version == LONGHORN else ():
            notes.pass_over(InputError(object_name, error.field, error.problem))
    except MalformedRequestError as error:
        raise InputError(object_name, error.field, error.problem) from error
    table, key, uid = getattr(found, reader.table), raw["metadata"]["name"], ""
    if isinstance(facts, Pod | Claim):
        facts = replace(facts, namespace=facts.namespace or "default")
        facts = replace(facts, uid=facts.uid or facts.key)
        key, uid = facts.key, facts.uid
    if table is found.settings:
        _check_setting_name(object_name, key, notes)
    if key in table:
        raise InputError(object_name, "metadata.name", "stands in the objects twice")
    twin = found.names.setdefault((f"{reader.table} by uid", uid), object_name) if uid else object_name
    if twin != object_name:
        raise InputError(object_name, "metadata.uid", f"{uid} is that of {twin} as well")
    table[key] = facts
    found.names[reader.table, key] = object_name


def _check_kind(object_name: str, version: str, kind: str, notes: Notes) -> None:
    """Checks a kind that is not read in that version: another version of a known kind, or a misspelt one, is
    refused."""
    group = version.rpartition("/")[0]
    meant = [known for known, kinds in _KINDS.items() if kind in kinds]
    for known in meant:
        if known.rpartition("/")[0] == group:
            raise InputError(object_name, "apiVersion", f"{version} is not read, {known} is")
    near = nearest(kind, tuple(_KINDS.get(version, ())), _LIKE_KIND)
    if meant:
        problem = f"{version} is not read for a {kind}, {' or '.join(meant)} is"
        notes.pass_over(InputError(object_name, "apiVersion", problem))
    elif near:
        notes.pass_over(InputError(object_name, "kind", f"{kind} is not read, {near} is"))


def _check_setting_name(object_name: str, name: str, notes: Notes) -> None:
    near = "" if name in LONGHORN_NAMES else nearest(name, LONGHORN_NAMES, _LIKE_SETTING)
    if near:
        notes.pass_over(InputError(object_name, "metadata.name", f"nothing is decided by it, {near} is read"))


def _named(where: str, raw: Mapping[str, Any]) -> str:
    """`kind namespace/name`, or where it stands when it has no name."""
    meta = raw.get("metadata")
    if not isinstance(meta, Mapping) or not isinstance(meta.get("name"), str) or not meta["name"]:
        return where
    namespace = meta.get("namespace")
    return f"{raw['kind']} {namespace}/{meta['name']}" if namespace else f"{raw['kind']} {meta['name']}"


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
