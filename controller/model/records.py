"""The record of a node as it stands in an object: `{disk: {replicas: {name: bytes}, backingImages: {name: bytes}}}`
under `spec.diskAllocations`, by the UUIDs of disks, of the Longhorn Node or of a NodeDiskAllocation of its name. In the
Longhorn Node our keys begin with `OURS`; whatever has another key there is somebody else's, and not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.model.names import ALLOCATION_GROUP
from controller.model.reader import Raw, integer_at, mapping_at

FIELD_OF: Final[Mapping[Purpose, str]] = {Purpose.REPLICA: "replicas", Purpose.BACKING_IMAGE: "backingImages"}
FIELD: Final = "diskAllocations"
OURS: Final = f"{ALLOCATION_GROUP}/"
MAX_ENTRIES: Final = 10_000  # of one kind on a disk
_PATH: Final = f"spec.{FIELD}"
_SHOWN: Final = 80  # characters of a name in a complaint


def node_record(raw: Raw) -> NodeRecord | None:
    """The record in a Longhorn Node; None where it has none."""
    spec = raw.get("spec") or {}
    is_there = isinstance(spec, Mapping) and spec.get(FIELD) is not None
    return _record(raw, OURS) if is_there else None


def own_record(raw: Raw) -> NodeRecord:
    """The record in a NodeDiskAllocation."""
    return _record(raw, "")


def no_place(purpose: Purpose, node: str, disk_uuid: str) -> str:
    """The message for a disk whose record is full."""
    return f"the record of {node} has no place for more than {MAX_ENTRIES} {FIELD_OF[purpose]} on {disk_uuid}"


def _record(raw: Raw, prefix: str) -> NodeRecord:
    node, version = str(raw["metadata"]["name"]), str(raw["metadata"].get("resourceVersion", ""))
    problems, found = list[str](), list[Allocation]()
    try:
        disks = mapping_at(mapping_at(raw, "", "spec"), "spec", FIELD)
    except MalformedRequestError as error:
        return NodeRecord(node, version=version, problem=str(error))
    for key in disks:
        for entry in _entries(disks, key, node, key.removeprefix(prefix)) if key.startswith(prefix) else ():
            found += [entry] if isinstance(entry, Allocation) else []
            problems += [entry] if isinstance(entry, str) else []
    return NodeRecord(node, tuple(sorted(found)), version, min(problems, default=""))


def _entries(disks: Mapping[str, Any], key: str, node: str, disk: str) -> Iterator[Allocation | str]:
    """Yields the allocations on that disk, and in the place of one that cannot be read what is wrong with it."""
    path = f"{_PATH}.{key[:_SHOWN]}"
    try:
        lists = mapping_at(disks, _PATH, key)
    except MalformedRequestError as error:
        yield str(error)
        return
    for name in lists.keys() - set(FIELD_OF.values()):
        yield f"{path}.{name[:_SHOWN]}: is not known"
    for purpose, name in FIELD_OF.items():
        where = f"{path}.{name}"
        try:
            sizes = mapping_at(lists, path, name)
        except MalformedRequestError as error:
            yield str(error)
            continue
        for owner in sizes:
            size = sizes[owner]
            if type(size) is not int or not 0 <= size < 2**63:  # hardly any: else this would be most of the reading
                try:
                    size = integer_at(sizes, where, owner, default=-1)
                except MalformedRequestError:
                    size = -1
            yield (
                Allocation(purpose, owner, node, disk, size)
                if size >= 0
                else (f"{where}.{owner[:_SHOWN]}: is not a number of bytes")
            )


def sharing(old: NodeRecord, new: NodeRecord) -> NodeRecord:
    """The new record, with the entries of the old one where they are the same, so that they are in memory once."""
    there = {one: one for one in old.allocations}
    return replace(new, allocations=tuple(there.get(one, one) for one in new.allocations))


def encode_allocations(allocations: Iterable[Allocation], prefix: str = "") -> dict[str, Any]:
    """The field's value; it is read back as the same allocations. `prefix`: of each disk's key."""
    disks: dict[str, dict[str, dict[str, int]]] = {}
    for one in sorted(allocations):
        disks.setdefault(one.disk_uuid, {}).setdefault(FIELD_OF[one.purpose], {})[one.name] = one.size_bytes
    return {prefix + disk: disks[disk] for disk in sorted(disks)}


def changes_between(before: Iterable[Allocation], after: Iterable[Allocation], prefix: str = "") -> dict[str, Any]:
    """The JSON merge patch (RFC 7396) that turns a record of `before` into one of `after`. Costs: a look at each entry,
    and what differs. `prefix`: of each disk's key."""
    known, wanted = set(before), set(after)
    changes: dict[str, Any] = {}
    gone, came = [(one, None) for one in known - wanted], [(one, one.size_bytes) for one in wanted - known]
    for one, size in (*gone, *came):  # what has another size is in both
        changes.setdefault(one.disk_uuid, {}).setdefault(FIELD_OF[one.purpose], {})[one.name] = size
    left = {one.disk_uuid for one in wanted}
    return {prefix + disk: change if disk in left else None for disk, change in changes.items()}
