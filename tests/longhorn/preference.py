"""Which candidate Longhorn takes: near a best-effort volume's node, and else where the disks end up most alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tests.longhorn.release import at_least
from tests.longhorn.state import Candidate, Raw, SearchState

_K = TypeVar("_K")


def choose(
    state: SearchState,
    volume: Raw,
    candidates: Sequence[Candidate],
    pick: Callable[[int], int],
    *,
    size: int | None = None,
) -> Candidate | None:
    """The candidate that Longhorn takes; `pick(n)` decides ties and failures, which are arbitrary in Longhorn.

    `size`: the replica's bytes, if they are not the volume's.
    Before 1.11.0 it took the disk with the most unreserved bytes, whatever was scheduled there.
    """
    candidates = near(state, volume, candidates)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    if not at_least(state.release, (1, 11, 0)):
        free = {entry: _free(state, entry) for entry in candidates}
        return _any([entry for entry in candidates if free[entry] == max(free.values())], pick)
    size = int(volume["spec"].get("size") or 0) if size is None else size
    usable = {entry: _usable(state, entry) for entry in candidates}
    by_node: dict[str, int] = {}
    for entry in candidates:
        by_node[entry.node] = by_node.get(entry.node, 0) + usable[entry]
    node = best(by_node, size, list(by_node), pick)
    if node is not None:
        disk = best(usable, size, [entry for entry in candidates if entry.node == node], pick)
        if disk is not None:
            return disk
    return _any(candidates, pick)


def _any(entries: Sequence[Candidate], pick: Callable[[int], int]) -> Candidate:
    return entries[pick(len(entries))]


def near(state: SearchState, volume: Raw, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Only those on the node that an attached best-effort volume has no replica on yet, if there are any.

    Before 1.10.0 such volumes were placed with no regard to that node.
    """
    if not at_least(state.release, (1, 10, 0)):
        return candidates
    node = volume["spec"].get("nodeID")
    if volume["spec"].get("dataLocality") != "best-effort" or not node or _has_replica_on(state, node):
        return candidates
    return [entry for entry in candidates if entry.node == node] or candidates


def _has_replica_on(state: SearchState, node: str) -> bool:
    return any(
        replica["spec"].get("nodeID") == node and not replica["spec"].get("failedAt") for replica in state.replicas
    )


def _usable(state: SearchState, candidate: Candidate) -> int:
    status = state.nodes[candidate.node]["status"]["diskStatus"][candidate.disk]
    return max(0, _free(state, candidate) - int(status.get("storageScheduled") or 0))


def _free(state: SearchState, candidate: Candidate) -> int:
    """Available bytes that are not reserved; below 0 if more is reserved than there is."""
    node = state.nodes[candidate.node]
    reserved = int(node["spec"]["disks"][candidate.disk].get("storageReserved") or 0)
    return int(node["status"]["diskStatus"][candidate.disk].get("storageAvailable") or 0) - reserved


def best(usable: Mapping[_K, int], size: int, among: Sequence[_K], pick: Callable[[int], int]) -> _K | None:
    """The key whose choice leaves the smallest (highest - lowest) / mean over all of `usable`."""
    scores: dict[_K, float] = {}
    for key in among:
        if usable[key] >= size:
            after = [room - size if other == key else room for other, room in usable.items()]
            mean = sum(after) / len(after)
            scores[key] = (max(after) - min(after)) / mean if mean > 0 else math.inf
    lowest = min(scores.values(), default=math.inf)
    ties = [key for key, score in scores.items() if score == lowest < math.inf]
    return ties[pick(len(ties))] if ties else None
