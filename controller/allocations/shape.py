"""The record as it stands in an object: `{disk: {replicas: {name: bytes}, backingImages: {name: bytes}}}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.allocations import Allocation, Purpose
from controller.model.reader import integer_at, mapping_at

FIELD_OF: Final[Mapping[Purpose, str]] = {Purpose.REPLICA: "replicas", Purpose.BACKING_IMAGE: "backingImages"}
_PATH: Final = "spec.diskAllocations"


def allocations_in(raw: object, node: str) -> tuple[Allocation, ...]:
    """All of them, sorted; MalformedRequestError names the field where anything else stands. Half a record is none."""
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
            for owner in sizes:
                size = integer_at(sizes, f"{path}.{name}", owner, default=-1)
                if size < 0:
                    raise MalformedRequestError(f"{path}.{name}.{owner}", "is not a number of bytes")
                found.append(Allocation(purpose, owner, node, disk, size))
    return tuple(sorted(found, key=lambda one: one.key))


def encode_allocations(allocations: Iterable[Allocation]) -> dict[str, Any]:
    """What `allocations_in` reads back."""
    disks: dict[str, dict[str, dict[str, int]]] = {}
    for one in sorted(allocations, key=lambda one: one.key):
        disks.setdefault(one.disk, {}).setdefault(FIELD_OF[one.purpose], {})[one.name] = one.size_bytes
    return {disk: disks[disk] for disk in sorted(disks)}
