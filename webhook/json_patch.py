"""JSON patches (RFC 6902) against a raw object: only what is missing is added, parents first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.errors import MalformedRequestError
from controller.kube.json_pointer import pointer


@dataclass(frozen=True, slots=True)
class Operation:
    """An `add`: of a key that is not there, or, of one that is, its new value."""

    path: str  # a JSON pointer
    value: Any

    def raw(self) -> dict[str, Any]:
        return {"op": "add", "path": self.path, "value": self.value}


def plan_value(raw: Mapping[str, Any], steps: Sequence[str | int], value: Any) -> list[Operation]:
    """The operations that put `value` at `steps` of `raw`; none if it is there already. The last step is a key; a list
    must exist.

    One operation: the missing parents are part of its value.
    """
    current: Any = raw
    for depth, step in enumerate(steps):
        if isinstance(step, int):
            current = current[step]
            continue
        if not isinstance(current, Mapping):
            raise MalformedRequestError(".".join(map(str, steps[:depth])), "is not an object")
        found = current.get(step)
        if depth == len(steps) - 1:
            return [] if found == value else [Operation(pointer(*steps), value)]
        if found is None:  # missing, or null
            for missing in reversed(steps[depth + 1 :]):
                value = {missing: value}
            return [Operation(pointer(*steps[: depth + 1]), value)]
        current = found
    raise ValueError("a path ends with a key")
