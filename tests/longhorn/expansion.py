"""Whether a volume may grow, by the check that Longhorn makes of its replicas' disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.longhorn.placement import SIZE, file_system_takes
from tests.longhorn.release import at_least
from tests.longhorn.space import growth_problem, int64
from tests.longhorn.state import Raw, SearchState

NOT_EXPANDABLE: Final = "volume cannot grow"
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


def volume_problem(state: SearchState, volume: Raw) -> str:
    """Why Longhorn's API or webhook refuses any growth of the volume, space aside; "" if they do not.

    A dump without the condition Scheduled tells nothing about it.
    """
    spec, status, release = volume["spec"], volume.get("status") or {}, state.release
    if spec.get("dataEngine") == "v2" and not at_least(release, (1, 10, 0)):
        return "no v2 volume grows before 1.10.0"
    if spec.get("dataEngine") == "v2" and spec.get("frontend") == "ublk":
        return "v2 volumes with frontend ublk do not grow"
    if status.get("robustness") == "faulted":
        return "it is faulted"
    if (status.get("cloneStatus") or {}).get("state") == "initiated":
        return "it is being cloned"
    said = [entry.get("status") for entry in status.get("conditions") or () if entry.get("type") == "Scheduled"]
    if said and "True" not in said and not at_least(release, (1, 12, 0)):
        return "its condition Scheduled is not True"
    passes_over_unplaced = at_least(release, (1, 11, 3)) and release != (1, 12, 0)
    if state.replicas and not any(replica["spec"].get("nodeID") for replica in state.replicas):
        return "" if passes_over_unplaced else "none of its replicas has a place"
    return ""


def check_expansion(state: SearchState, volume: Raw, size: int) -> list[DiskGrowth]:
    """What is the matter with the volume itself, if anything is, without node and disk; then one entry per disk.

    Disks are those with placed replicas of `state.replicas`, failed ones included; by node and disk.
    """
    counts = Counter(
        (str(replica["spec"]["nodeID"]), str(replica["spec"].get("diskID") or ""))
        for replica in state.replicas
        if replica["spec"].get("nodeID")
    )
    old = int(volume["spec"]["size"])
    file = size if size > old and (volume["spec"].get("dataEngine") or "v1") == "v1" else 0
    found = [_grow(state, node, uuid, int64(count * (size - old)), file) for (node, uuid), count in counts.items()]
    found.sort(key=lambda entry: (entry.node, entry.disk))
    problem = volume_problem(state, volume) if size > old else ""
    return [DiskGrowth("", "", 0, NOT_EXPANDABLE, problem), *found] if problem else found


def _grow(state: SearchState, node: str, uuid: str, growth: int, file: int) -> DiskGrowth:
    """`file`: how large the replica's file becomes, 0 where nobody asks. Longhorn looks at the disk of one replica,
    whichever comes first, so that growth is certain only where all take it."""
    raw = state.nodes.get(node)
    specs = ((raw or {}).get("spec") or {}).get("disks") or {}
    for name, status in (((raw or {}).get("status") or {}).get("diskStatus") or {}).items():
        if uuid and status.get("diskUUID") == uuid and name in specs:
            problem = growth_problem(state, specs[name], status, growth)
            kind = str(status.get("filesystemType") or "")
            if not file_system_takes(kind, file):
                problem = SIZE, f"{file} bytes on {kind}"
            return DiskGrowth(node, name, growth, *(problem or ()))
    return DiskGrowth(node, "", growth, "disk not found", f"no disk {uuid} on node {node}")


def is_admitted(growths: Iterable[DiskGrowth]) -> bool:
    return not any(entry.reason for entry in growths)


def largest_size(state: SearchState, volume: Raw) -> int:
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
