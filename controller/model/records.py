"""The record of a node as it stands in an object: `{disk: {replicas: {name: bytes}, backingImages: {name: bytes}}}`
under `spec.diskAllocations`, by the UUIDs of disks, of the Longhorn Node or of a NodeDiskAllocation of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.model.names import RECORDED_ANNOTATION
from controller.model.reader import Raw, integer_at, mapping_at

FIELD_OF: Final[Mapping[Purpose, str]] = {Purpose.REPLICA: "replicas", Purpose.BACKING_IMAGE: "backingImages"}
FIELD: Final = "diskAllocations"
DROPPED: Final = "spec.diskAllocations was written and is gone: a writer that does not know the field has dropped it"
NODE_ITSELF: Final = "node"  # the place of a record that the Longhorn Node carries; of one of our own: ""
MAX_ENTRIES: Final = 10_000  # of one kind on a disk
MAX_TERM: Final = 2**53 - 1  # more is a mistake: the next leader's term has to fit, into any reader's number
_PATH: Final = f"spec.{FIELD}"


def node_record(raw: Raw) -> NodeRecord | None:
    """That of a Longhorn Node; None where nobody keeps one there. The annotation survives a writer that drops the
    field, so that such a record is known to be lost, and not taken for an empty one."""
    marks = mapping_at(raw, "", "metadata").get("annotations") or {}
    spec = raw.get("spec") or {}
    mark = str(marks.get(RECORDED_ANNOTATION, "")) if isinstance(marks, Mapping) else ""
    is_there = isinstance(spec, Mapping) and spec.get(FIELD) is not None
    if not mark and not is_there:
        return None
    term = int(mark) if mark.isascii() and mark.isdigit() and len(mark) < 19 else 0
    return _record(raw, spec, term if term <= MAX_TERM else 0, "" if is_there else DROPPED)


def no_place(purpose: Purpose, node: str, disk_uuid: str) -> str:
    """Why nothing more of that is recorded there."""
    return f"the record of {node} has no place for more than {MAX_ENTRIES} {FIELD_OF[purpose]} on {disk_uuid}"


def own_record(raw: Raw) -> NodeRecord:
    """That of a NodeDiskAllocation."""
    spec = raw.get("spec") or {}
    try:
        term = integer_at(mapping_at(spec, "spec"), "spec", "term")
        if term > MAX_TERM:
            raise MalformedRequestError("spec.term", f"is more than {MAX_TERM}")
    except MalformedRequestError as error:
        return _record(raw, spec, 0, str(error))
    return _record(raw, spec, term, "")


def _record(raw: Raw, spec: object, term: int, problem: str) -> NodeRecord:
    """The record in `spec`; one that does not parse has a problem, and no allocations."""
    node, version = str(raw["metadata"]["name"]), str(raw["metadata"].get("resourceVersion", ""))
    allocations: tuple[Allocation, ...] = ()
    if not problem:
        try:
            allocations = allocations_in(mapping_at(spec, "spec").get(FIELD) or {}, node)
        except MalformedRequestError as error:
            problem = str(error)
    return NodeRecord(node, allocations, version, term, problem)


def allocations_in(raw: object, node: str) -> tuple[Allocation, ...]:
    """All of them, sorted; MalformedRequestError names the field where there is anything else. Half a record counts as
    none."""
    disks = mapping_at(raw, _PATH)
    found = []
    for disk in disks:
        path = f"{_PATH}.{disk}"
        lists = mapping_at(disks, _PATH, disk)
        unknown = lists.keys() - set(FIELD_OF.values())
        if unknown:
            raise MalformedRequestError(f"{path}.{min(unknown)}", "is not known")
        for purpose, name in FIELD_OF.items():
            sizes = mapping_at(lists, path, name)
            where = f"{path}.{name}"
            for owner in sizes:
                size = sizes[owner]
                if type(size) is not int or size >= 2**63:  # hardly any: else this would be most of reading a record
                    size = integer_at(sizes, where, owner, default=-1)
                if size < 0:
                    raise MalformedRequestError(f"{where}.{owner}", "is not a number of bytes")
                found.append(Allocation(purpose, owner, node, disk, size))
    return tuple(sorted(found))


def sharing(old: NodeRecord, new: NodeRecord) -> NodeRecord:
    """The new record, with the entries of the old one where they are the same, so that they are in memory once."""
    there = {one: one for one in old.allocations}
    return replace(new, allocations=tuple(there.get(one, one) for one in new.allocations))


def encode_allocations(allocations: Iterable[Allocation]) -> dict[str, Any]:
    """What `allocations_in` reads back."""
    disks: dict[str, dict[str, dict[str, int]]] = {}
    for one in sorted(allocations):
        disks.setdefault(one.disk_uuid, {}).setdefault(FIELD_OF[one.purpose], {})[one.name] = one.size_bytes
    return {disk: disks[disk] for disk in sorted(disks)}


def changes_between(before: Iterable[Allocation], after: Iterable[Allocation]) -> dict[str, Any]:
    """What makes a record of `after` of one of `before`, by JSON merge patch (RFC 7396). Costs: a look at each entry,
    and what differs."""
    known, wanted = set(before), set(after)
    changes: dict[str, Any] = {}
    gone, came = [(one, None) for one in known - wanted], [(one, one.size_bytes) for one in wanted - known]
    for one, size in (*gone, *came):  # what has another size is in both
        changes.setdefault(one.disk_uuid, {}).setdefault(FIELD_OF[one.purpose], {})[one.name] = size
    left = {one.disk_uuid for one in wanted}
    return {disk: change if disk in left else None for disk, change in changes.items()}
