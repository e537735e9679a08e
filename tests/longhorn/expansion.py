"""Whether a volume may grow, by the check that Longhorn makes of its replicas' disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.longhorn.space import growth_problem, int64
from tests.longhorn.state import Raw, State

GRANULE_BYTES: Final = 2 * 1024**2
LARGEST_BYTES: Final = (2**63 - 1) // GRANULE_BYTES * GRANULE_BYTES


@dataclass(frozen=True)
class DiskGrowth:
    """What one disk would take on, and why it cannot ("" twice: it can)."""

    node: str
    disk: str
    growth_bytes: int
    reason: str = ""
    message: str = ""


def check_expansion(state: State, volume: Raw, size: int) -> list[DiskGrowth]:
    """One entry per disk with placed replicas of `state.replicas`, failed ones included; by node and disk."""
    counts = Counter(
        (str(replica["spec"]["nodeID"]), str(replica["spec"].get("diskID") or ""))
        for replica in state.replicas
        if replica["spec"].get("nodeID")
    )
    old = int(volume["spec"]["size"])
    found = [_grow(state, node, uuid, int64(count * (size - old))) for (node, uuid), count in counts.items()]
    return sorted(found, key=lambda entry: (entry.node, entry.disk))


def _grow(state: State, node: str, uuid: str, growth: int) -> DiskGrowth:
    raw = state.nodes.get(node)
    specs = ((raw or {}).get("spec") or {}).get("disks") or {}
    for name, status in (((raw or {}).get("status") or {}).get("diskStatus") or {}).items():
        if uuid and status.get("diskUUID") == uuid and name in specs:
            problem = growth_problem(state, specs[name], status, growth)
            return DiskGrowth(node, name, growth, *(problem or ()))
    return DiskGrowth(node, "", growth, "disk not found", f"no disk {uuid} on node {node}")


def is_admitted(growths: Iterable[DiskGrowth]) -> bool:
    return not any(entry.reason for entry in growths)


def largest_size(state: State, volume: Raw) -> int:
    """The largest multiple of 2 MiB that is admitted, or the present size when nothing larger is."""
    old = int(volume["spec"]["size"])
    placed = sum(1 for replica in state.replicas if replica["spec"].get("nodeID"))
    # No growth of a disk may wrap, or admission would not be monotonous.
    highest = LARGEST_BYTES if not placed else min(LARGEST_BYTES, old + 2**61 // placed)
    low, high = old // GRANULE_BYTES, highest // GRANULE_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if is_admitted(check_expansion(state, volume, middle * GRANULE_BYTES)):
            low = middle
        else:
            high = middle - 1
    return max(old, low * GRANULE_BYTES)
