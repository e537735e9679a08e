"""Saved objects, as kubectl prints them, decoded and checked into facts by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.allocator.verbs.observe import Events, F, Known, Put, React
from controller.allocator.world.world import World
from controller.errors import MalformedRequestError
from controller.follow.kinds import KINDS
from controller.model.longhorn import LonghornNode, LonghornSettings
from controller.model.longhorn_settings import LONGHORN_NAMES
from controller.model.workload import Claim, Pod, pod_facts
from controller.plan.complaints import InputError, Notes, nearest
from controller.plan.fields import check_fields, unknown_words

# From which likeness to a known name on another one counts as a misspelling of it: no kind and no setting that
# Kubernetes or Longhorn really has is as much like one that is read.
_LIKE_KIND: Final = 0.85
_LIKE_SETTING: Final = 0.9
# By version and kind. The leader's own record decides nothing here; a question may be about any pod.
_READ: Final = {
    (kind.resource.api_version, kind.resource.kind): replace(kind, parse=pod_facts) if kind.name == "pod" else kind
    for kind in KINDS
    if kind.name != "record"
}


@dataclass(frozen=True, slots=True)
class Objects:
    """Facts by kind, as in `KINDS`, and name; pods and claims by `namespace/name`. `ignored` counts the objects of
    other kinds; `names` has each object as complaints name it."""

    by_kind: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    ignored: Counter[str] = field(default_factory=Counter)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, str]:
        """The values of Setting objects."""
        return self.by_kind["setting"]


class _Saved(Events):
    """A world that takes saved objects as a running allocator takes those of its watches."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _observe(
        self, key: str, facts: F | None, put: Put[F], react: React[F] = None, known: Known = None, gone: Any = None
    ) -> None:
        del react, known, gone
        put(self._world, key, facts)


def world_of(objects: Objects, settings: LonghornSettings) -> World:
    """A world that knows nothing but `objects`. A volume that is to grow stands there as Longhorn shows it: what is
    promised beyond that is part of the question."""
    world = World()
    world.put_settings(settings)
    saved = _Saved(world)
    for kind in reversed(KINDS):  # nodes before what lies on them, mostly
        for key, facts in objects.by_kind[kind.name].items():
            kind.observe(saved, key, facts, None)
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
    _check_disks(found, notes)
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
    row = _READ.get((version, kind))
    if row is None:
        group = version.rpartition("/")[0]
        _check_kind(object_name, version, kind, notes)
        found.ignored[f"{kind}.{group}" if group else kind] += 1
        return
    if object_name == where:
        raise InputError("", f"{where}.metadata.name", "is missing")
    try:
        facts = row.parse(raw)
        check_fields(raw, facts)
        for error in unknown_words(kind, raw) if row.in_longhorn else ():
            notes.pass_over(InputError(object_name, error.field, error.problem))
    except MalformedRequestError as error:
        raise InputError(object_name, error.field, error.problem) from error
    table, key, uid = found.by_kind[row.name], raw["metadata"]["name"], ""
    if isinstance(facts, Pod | Claim):
        facts = replace(facts, namespace=facts.namespace or "default")
        facts = replace(facts, uid=facts.uid or facts.key)
        key, uid = facts.key, facts.uid
    if row.name == "setting":
        _check_setting_name(object_name, key, notes)
    if key in table:
        raise InputError(object_name, "metadata.name", "stands in the objects twice")
    twin = found.names.setdefault((f"{row.name} by uid", uid), object_name) if uid else object_name
    if twin != object_name:
        raise InputError(object_name, "metadata.uid", f"{uid} is that of {twin} as well")
    table[key] = facts
    found.names[row.name, key] = object_name


def _check_kind(object_name: str, version: str, kind: str, notes: Notes) -> None:
    """Checks a kind that is not read in that version: another version of a known kind, or a misspelt one, is
    refused."""
    group = version.rpartition("/")[0]
    meant = sorted(known for known, other in _READ if other == kind)
    for known in meant:
        if known.rpartition("/")[0] == group:
            raise InputError(object_name, "apiVersion", f"{version} is not read, {known} is")
    near = nearest(kind, tuple(other for known, other in _READ if known == version), _LIKE_KIND)
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


def _check_disks(found: Objects, notes: Notes) -> None:
    """A UUID that several disks have, as of nodes that were cloned, is worth a remark."""
    seen: dict[str, list[str]] = {}
    nodes: Mapping[str, LonghornNode] = found.by_kind["node"]
    for name, node in nodes.items():
        for disk in node.disks:
            seen.setdefault(disk.uuid, []).append(f"{disk.name} of {name}")
    for uuid, disks in seen.items():
        if uuid and len(disks) > 1:
            notes.remark(f"disks have the same UUID {uuid}, so that what lies on one counts on all: {', '.join(disks)}")
