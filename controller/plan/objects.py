"""Saved objects, as kubectl prints them, read into facts by name, each as the running extender reads it.

One that it would leave out is left out here, too, and one that Kubernetes or Longhorn would refuse is read as it
stands; a remark names either. Only a question that needs what was left out ends with an error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from controller.allocator.verbs.observe import Events, F, Known, Put, React
from controller.allocator.world.world import World
from controller.errors import MalformedRequestError
from controller.follow.kinds import KINDS, FollowedKind
from controller.model.longhorn import BackingImage, Backup, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.longhorn_settings import LONGHORN_NAMES
from controller.model.reader import Raw, mapping_at, read
from controller.model.workload import Claim, PersistentVolume, Pod, StorageClass, claim_facts, pod_facts
from controller.plan.complaints import InputError, LeftOutError, Notes, nearest
from controller.plan.fields import odd_fields

P = TypeVar("P", bound=Pod | Claim)
REPLICAS_OF: Final = "replicas of"  # a kind of `Objects.unread`, by the volume
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
    other kinds; `names` has each object as complaints name it; `unread` has what is wrong with those left out."""

    by_kind: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    ignored: Counter[str] = field(default_factory=Counter)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    unread: dict[tuple[str, str], LeftOutError] = field(default_factory=dict)

    def need(self, kind: str, key: str) -> None:
        """Raises LeftOutError for an object that decides a question, if that could not be read."""
        if (kind, key) in self.unread:
            raise self.unread[kind, key]

    @property
    def settings(self) -> Mapping[str, str]:
        """The values of Setting objects."""
        return self.by_kind["setting"]


class NeededObjects:
    """The world as a question looks objects up (`Lookup` of controller.rules): what is needed and was left out is a
    LeftOutError."""

    def __init__(self, objects: Objects, world: World) -> None:
        self._objects, self._world = objects, world

    def claim(self, namespace: str, name: str) -> Claim | None:
        self._objects.need("claim", f"{namespace}/{name}")
        return self._world.claim(namespace, name)

    def pv(self, name: str) -> PersistentVolume | None:
        self._objects.need("pv", name)
        return self._world.pv(name)

    def storage_class(self, name: str | None) -> StorageClass | None:
        found = self._world.storage_class(name)
        for kind, key in self._objects.unread if found is None else ():
            if kind == "class" and name in (None, key):
                self._objects.need(kind, key)  # one that may be the default
        return found

    def volume(self, name: str) -> Volume | None:
        self._objects.need("volume", name)
        return self._world.volume(name)

    def replicas_of(self, volume: str) -> Mapping[str, Replica]:
        self._objects.need(REPLICAS_OF, volume)
        return self._world.replicas_of(volume)

    def backing_image(self, name: str) -> BackingImage | None:
        self._objects.need("backing_image", name)
        return self._world.backing_image(name)

    def backup(self, name: str) -> Backup | None:
        self._objects.need("backup", name)
        return self._world.backup(name)

    @property
    def spare_pvs(self) -> Mapping[str, tuple[PersistentVolume, ...]]:
        return self._world.spare_pvs

    def unbound_claims(self) -> Iterable[Claim]:
        return self._world.unbound_claims()

    def default_engine_image(self) -> str:
        return self._world.default_engine_image()


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


def settle_cordons(objects: Objects, settings: LonghornSettings, notes: Notes) -> None:
    """Brings Longhorn's nodes in line with the cordons of the Kubernetes nodes, as Longhorn's node controller does
    (`SetSchedulableCondition`): a question may be about a cordon that nobody has made."""
    nodes: dict[str, LonghornNode] = objects.by_kind["node"]
    for name, kube_node in objects.by_kind["kube_node"].items():
        node, is_closed = nodes.get(name), kube_node.unschedulable and settings.closes_cordoned
        if node is None or not (node.is_cordoned or node.schedulable) or node.schedulable is not is_closed:
            continue
        nodes[name] = replace(node, schedulable=not is_closed, not_schedulable="the Kubernetes node is cordoned")
        as_what = "cordoned" if is_closed else "not cordoned"
        notes.remark(f"{objects.names['node', name]}: counts as {as_what}, by {objects.names['kube_node', name]}")


def decode_objects(given: object, notes: Notes) -> Objects:
    """All objects, those of a `List` among them. Other kinds are counted, not read."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list):
        raise InputError("", "objects", "is missing" if given is None else "is not a list")
    reader = _Reader(notes)
    for where, raw in flat(given):
        reader.add(where, raw)
    reader.make_claims()
    _check_disks(reader.found, notes)
    return reader.found


def flat(given: list[Any], at: str = "objects") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object and where it stands, in order; lists stand for their items, however deep they are."""
    levels: list[tuple[str, dict[str, str], Iterator[tuple[int, Any]]]] = [(at, {}, iter(enumerate(given)))]
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


class _Reader:
    """Reads one object after the other into `found`."""

    def __init__(self, notes: Notes) -> None:
        self.found, self._notes = Objects(), notes
        self._templates: list[tuple[str, str, Pod, Raw]] = []  # the pod's name and facts, where a volume stands in it

    def add(self, where: str, raw: Raw) -> None:
        version, kind = raw["apiVersion"], raw["kind"]
        object_name = named(where, raw)
        row = _READ.get((version, kind))
        if row is None:
            group = version.rpartition("/")[0]
            _check_kind(object_name, version, kind, self._notes)
            self.found.ignored[f"{kind}.{group}" if group else kind] += 1
        elif object_name == where:
            self._leave_out(row.name, where, where, MalformedRequestError("metadata.name", "is missing"))
        else:
            self._take(row, object_name, raw)

    def _take(self, row: FollowedKind[Any], object_name: str, raw: Raw) -> None:
        key = raw["metadata"]["name"]
        if not row.by_name:
            key = f"{raw['metadata'].get('namespace') or 'default'}/{key}"
        if (row.name, key) in self.found.names:
            raise InputError(object_name, "metadata.name", "stands in the objects twice")
        self.found.names[row.name, key] = object_name
        facts = read(row.parse, raw)
        if isinstance(facts, MalformedRequestError):
            self._leave_out(row.name, key, object_name, facts)
            spec = raw.get("spec")
            if row.name == "replica" and isinstance(spec, Mapping):
                self.found.unread[REPLICAS_OF, str(spec.get("volumeName"))] = self.found.unread[row.name, key]
            return
        if isinstance(facts, Pod | Claim):
            facts = self._with_uid(row.name, facts, object_name)
        if row.name == "setting":
            _check_setting_name(object_name, key, self._notes)
        for odd in odd_fields(raw, facts):
            self._notes.remark(f"{InputError(object_name, odd.field, odd.problem)}; it is read as it stands")
        if isinstance(facts, Pod) and any(volume.is_ephemeral for volume in facts.volumes):
            volumes = enumerate(raw["spec"]["volumes"])
            self._templates += [(object_name, f"spec.volumes[{index}]", facts, volume) for index, volume in volumes]
        self.found.by_kind[row.name][key] = facts

    def _with_uid(self, kind: str, facts: P, object_name: str) -> P:
        facts = replace(facts, namespace=facts.namespace or "default")
        facts = replace(facts, uid=facts.uid or facts.key)
        twin = self.found.names.setdefault((f"{kind} by uid", facts.uid), object_name)
        if twin != object_name:
            raise InputError(object_name, "metadata.uid", f"{facts.uid} is that of {twin} as well")
        return facts

    def _leave_out(self, kind: str, key: str, object_name: str, problem: MalformedRequestError) -> None:
        error = LeftOutError(object_name, problem.field, problem.problem)
        self.found.unread[kind, key] = error
        self._notes.remark(f"{error}; it is left out")

    def make_claims(self) -> None:
        """Adds the claims that kube-controller-manager has still to make for generic ephemeral volumes."""
        claims = self.found.by_kind["claim"]
        for object_name, path, pod, volume in self._templates:
            key = f"{pod.key}-{volume.get('name') or ''}"
            if volume.get("ephemeral") is None or ("claim", key) in self.found.names:
                continue
            claim = read(partial(claim_to_come, pod), volume)
            self.found.names["claim", key] = f"{object_name}, claim {key}"
            if isinstance(claim, MalformedRequestError):
                problem = MalformedRequestError(f"{path}.ephemeral.{claim.field}", claim.problem)
                self._leave_out("claim", key, object_name, problem)
            else:
                claims[key] = claim


def claim_to_come(pod: Pod, volume: Raw) -> Claim:
    """The claim that the pod's generic ephemeral `volume` will have: named after both, owned by the pod, with the
    template's annotations and spec (Kubernetes' `pkg/controller/volume/ephemeral/controller.go`)."""
    template = mapping_at(volume["ephemeral"], "", "volumeClaimTemplate")
    if not template:
        raise MalformedRequestError("volumeClaimTemplate", "is missing")
    annotations = mapping_at(template, "volumeClaimTemplate", "metadata").get("annotations")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    meta = {"namespace": pod.namespace, "name": f"{pod.name}-{volume.get('name') or ''}", "annotations": annotations}
    claim = read(claim_facts, {"metadata": {**meta, "ownerReferences": [owner]}, "spec": template.get("spec")})
    if isinstance(claim, MalformedRequestError):
        raise MalformedRequestError(f"volumeClaimTemplate.{claim.field}", claim.problem)
    return replace(claim, uid=claim.key)


def _check_kind(object_name: str, version: str, kind: str, notes: Notes) -> None:
    """Checks a kind that is not read in that version: another version of a known kind, or a misspelt one, is refused. A
    kind of the same name in another project's group is another kind."""
    group = version.rpartition("/")[0]
    meant = sorted(known for known, other in _READ if other == kind)
    for known in meant:
        if known.rpartition("/")[0] == group:
            raise InputError(object_name, "apiVersion", f"{version} is not read, {known} is")
    near = nearest(kind, tuple(other for known, other in _READ if known == version), _LIKE_KIND)
    if meant and "." in group and not nearest(group, tuple(known.rpartition("/")[0] for known in meant), _LIKE_KIND):
        return
    if meant:
        problem = f"{version} is not read for a {kind}, {' or '.join(meant)} is"
        notes.pass_over(InputError(object_name, "apiVersion", problem))
    elif near:
        notes.pass_over(InputError(object_name, "kind", f"{kind} is not read, {near} is"))


def _check_setting_name(object_name: str, name: str, notes: Notes) -> None:
    near = "" if name in LONGHORN_NAMES else nearest(name, LONGHORN_NAMES, _LIKE_SETTING)
    if near:
        notes.pass_over(InputError(object_name, "metadata.name", f"nothing is decided by it, {near} is read"))


def named(where: str, raw: Mapping[str, Any]) -> str:
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
            counts = "so that what lies on one counts on all, and two of one node take nothing"
            notes.remark(f"disks have the same UUID {uuid}, {counts}: {', '.join(disks)}")
