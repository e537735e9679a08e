"""Whether a volume may grow: Longhorn's check of its replicas' disks, and the states in which it grows none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.longhorn.placement import SIZE, file_system_takes
from tests.longhorn.release import at_least
from tests.longhorn.space import INSUFFICIENT, DiskFigures, growth_problem, int64
from tests.longhorn.state import Raw, SearchState, is_true

# Why a volume does not grow, space aside.
ENGINE: Final = "engine does not grow"
CLONE_FAILED: Final = "clone has failed"
CLONING: Final = "cloning"
RESTORING: Final = "restoring"
FAULTED: Final = "faulted"
UNSCHEDULED: Final = "not scheduled"
UNSETTLED: Final = "neither attached nor detached"
MIGRATING: Final = "migrating"
NOT_READY: Final = "disk is not ready"
GONE: Final = "disk not found"
GRANULE_BYTES: Final = 2 * 1024**2
LARGEST_BYTES: Final = (2**63 - 1) // GRANULE_BYTES * GRANULE_BYTES


@dataclass(frozen=True)
class DiskGrowth:
    """What one disk would take on, and why it cannot ("" twice: it can); without node and disk, what the matter is with
    the volume. `is_for_good`: nothing that passes by itself helps."""

    node: str
    disk: str
    growth_bytes: int
    reason: str = ""
    message: str = ""
    is_for_good: bool = False


def volume_problems(state: SearchState, volume: Raw, *, by_webhook: bool = False) -> Iterator[DiskGrowth]:
    """Why the CSI service, Longhorn's API or its webhook refuse any growth of the volume, space aside; `by_webhook`:
    the last of them alone, which is all that a larger Volume object meets.

    A dump without a state or without the condition Scheduled tells nothing about them.
    """
    spec, status, release = volume["spec"], volume.get("status") or {}, state.release

    def said(reason: str, message: str, for_good: bool = False) -> DiskGrowth:
        return DiskGrowth("", "", 0, reason, message, for_good)

    # controller_server.go: ControllerExpandVolume
    phase = status.get("state") or ""
    if not by_webhook and phase not in ("", "attached", "detached"):
        yield said(UNSETTLED, phase, phase == "deleting")
    if not by_webhook and spec.get("migrationNodeID"):
        yield said(MIGRATING, f"to {spec['migrationNodeID']}")
    # manager/volume.go, and the webhook of volumes
    if spec.get("dataEngine") == "v2" and not at_least(release, (1, 10, 0)):
        yield said(ENGINE, "no v2 volume grows before 1.10.0", True)
    elif spec.get("dataEngine") == "v2" and spec.get("frontend") == "ublk":
        yield said(ENGINE, "v2 volumes with frontend ublk do not grow", True)
    if status.get("robustness") == "faulted":
        yield said(FAULTED, "it is faulted")
    if status.get("restoreRequired") and not status.get("isStandby"):
        yield said(RESTORING, "a backup is being restored to it")
    clone = (status.get("cloneStatus") or {}).get("state") or ""
    if str(spec.get("dataSource") or "").startswith(("vol://", "snap://")) and clone != "completed":
        yield said(CLONE_FAILED, clone, True) if clone == "failed" else said(CLONING, clone)
    elif clone == "initiated":
        yield said(CLONING, clone)
    unplaced = [replica for replica in state.replicas if not replica["spec"].get("nodeID")]
    if _lacks_places(state, status, unplaced, by_webhook=by_webhook):
        yield said(UNSCHEDULED, f"{len(unplaced)} replicas have no place")


def _lacks_places(state: SearchState, status: Raw, unplaced: Sequence[Raw], *, by_webhook: bool) -> bool:
    release = state.release
    conditions = [entry.get("status") for entry in status.get("conditions") or () if entry.get("type") == "Scheduled"]
    if conditions and "True" not in conditions:
        if not by_webhook and not at_least(release, (1, 12, 0)):
            return True
        if unplaced and status.get("state") == "detached":
            return True
    asks_for_one = not at_least(release, (1, 11, 3)) or release == (1, 12, 0)
    return asks_for_one and bool(unplaced) and len(unplaced) == len(state.replicas)


def check_space(state: SearchState, volume: Raw, size: int) -> list[DiskGrowth]:
    """Longhorn's check of the space, which is all that its webhook for claims asks: one entry for each disk with placed
    replicas of `state.replicas`, failed ones included; by node and disk."""
    counts = Counter(
        (str(replica["spec"]["nodeID"]), str(replica["spec"].get("diskID") or ""))
        for replica in state.replicas
        if replica["spec"].get("nodeID")
    )
    old = int(volume["spec"]["size"])
    found = [_grow(state, node, uuid, count, old, size) for (node, uuid), count in counts.items()]
    return sorted(found, key=lambda entry: (entry.node, entry.disk))


def _grow(state: SearchState, node: str, uuid: str, count: int, old: int, size: int) -> DiskGrowth:
    growth = int64(count * (size - old))
    spec, status, name = _disk(state, node, uuid)
    if not name:
        return DiskGrowth(node, "", growth, GONE, f"no disk {uuid} on node {node}")
    problem = growth_problem(state, spec, status, growth)
    if problem is None:
        return DiskGrowth(node, name, growth)
    # A disk that is not ready shows no figures.
    has_figures = is_true(status.get("conditions"), "Ready") and int(status.get("storageMaximum") or 0) > 0
    limit = DiskFigures.of(state, spec, status).limit
    return DiskGrowth(node, name, growth, *problem, is_for_good=has_figures and size > old and count * size > limit)


def _disk(state: SearchState, node: str, uuid: str) -> tuple[Raw, Raw, str]:
    """Spec, status and name; "" for a disk that is not there."""
    raw = state.nodes.get(node) or {}
    specs = (raw.get("spec") or {}).get("disks") or {}
    for name, status in ((raw.get("status") or {}).get("diskStatus") or {}).items():
        if uuid and status.get("diskUUID") == uuid and name in specs:
            return specs[name], status, name
    return {}, {}, ""


def check_expansion(state: SearchState, volume: Raw, size: int, *, by_webhook: bool = False) -> list[DiskGrowth]:
    """All that is the matter with the volume itself, without node and disk; then one entry for each disk, of which
    space says why not before its condition does, and its file system before both."""
    found = check_space(state, volume, size)
    if size <= int(volume["spec"]["size"]):
        return found
    problems = list(volume_problems(state, volume, by_webhook=by_webhook))
    file = size if (volume["spec"].get("dataEngine") or "v1") == "v1" else 0
    return [*problems, *(_by_webhook(state, entry, file) for entry in found)]


def _by_webhook(state: SearchState, entry: DiskGrowth, file: int) -> DiskGrowth:
    """What the webhook of volumes says of the disk. It looks at the disk of one replica, whichever comes first, so that
    growth is certain only where all take it. `file`: how large the replica's file becomes, 0 where nobody asks."""
    if not entry.disk:
        return entry
    raw = state.nodes[entry.node]
    status = raw["status"]["diskStatus"][entry.disk]
    kind = str(status.get("filesystemType") or "")
    if not file_system_takes(kind, file):
        return replace(entry, reason=SIZE, message=f"{file} bytes on {kind}", is_for_good=True)
    if not entry.reason and not is_true(status.get("conditions"), "Ready"):
        return replace(entry, reason=NOT_READY, message="condition Ready is not True")
    return entry


def verdict(growths: Sequence[DiskGrowth]) -> str:
    """What becomes of such a growth: now, not-now, no-room or never."""
    if any(entry.is_for_good for entry in growths):
        return "never"
    if any(entry.reason in (INSUFFICIENT, GONE) for entry in growths):
        return "no-room"
    return "now" if is_admitted(growths) else "not-now"


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
