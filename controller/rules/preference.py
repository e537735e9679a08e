"""Which of its candidates Longhorn prefers, and where it puts several replicas of a volume one after the other. This is
a prediction: Longhorn breaks ties by chance.

Longhorn takes the node that leaves the usable bytes of all nodes most even (their spread over their mean, once the
replica is taken from one of them), and then the node's disk that leaves those of all disks most even. The one with the
most usable bytes always does that: the more an entry has, the less it moves the spread. Others may do so, too. Where
Longhorn takes any of them, or its balancing finds no answer, here the most usable bytes decide, so that replicas
spread, and then the names. Sources: `scheduler/replica_scheduler.go`, enhancement
20251001-replica-balance-scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.model.longhorn import Disk, LonghornNode, Replica, Volume
from controller.model.versions import NEWEST, Behaviour
from controller.rules.candidates import Candidate, Candidates, PlacementView, find_candidates
from controller.rules.locality import Reach, locality_of


@dataclass(frozen=True, slots=True)
class PlacementStep:
    """The placement of one replica: every disk that Longhorn may choose, and the one that it probably chooses."""

    replica: str
    search: Candidates
    preferred: tuple[Candidate, ...]  # what the choice is narrowed to: the attach node, for best-effort
    scheduled: Candidate | None


def schedule_replicas(view: PlacementView, volume: Volume, replicas: Iterable[Replica]) -> tuple[PlacementStep, ...]:
    """Return where `replicas` go, in that order. Later ones see the earlier picks; the disks' figures do not change."""
    known = {replica.name: replica for replica in view.replicas}
    steps = []
    for asked in replicas:
        replica = known.setdefault(asked.name, asked)  # its place as well, if it got one before
        seen = replace(view, replicas=tuple(known.values()))
        search = find_candidates(seen, volume, replica)
        narrowed = prefer_attach_node(search.candidates, volume, seen.replicas, view.behaviour)
        choice = preferred(narrowed, view.nodes, replica.size_bytes or volume.size_bytes, view.behaviour)
        steps.append(PlacementStep(replica.name, search, narrowed, choice))
        if choice is not None:
            known[replica.name] = replace(replica, node=choice.node, disk_uuid=choice.uuid)
    return tuple(steps)


def usable_bytes(disk: Disk) -> int:
    """Return the bytes that balancing counts as usable: available, not reserved, and not scheduled by the figures."""
    return max(0, disk.spare_bytes - disk.scheduled_bytes)


def prefer_attach_node(
    candidates: Sequence[Candidate],
    volume: Volume,
    replicas: Sequence[Replica],
    behaviour: Behaviour = NEWEST,
) -> tuple[Candidate, ...]:
    """Return the candidates to which Longhorn narrows its choice: those on the attach node of a best-effort volume, if
    there are any, and if none of the volume's `replicas` is there that has not failed; else all."""
    if not narrows_to_attach_node(volume, replicas, behaviour):
        return tuple(candidates)
    return tuple(entry for entry in candidates if entry.node == volume.node_id) or tuple(candidates)


def narrows_to_attach_node(volume: Volume, replicas: Iterable[Replica], behaviour: Behaviour) -> bool:
    """Whether candidates on the volume's attach node come before all others."""
    if not behaviour.prefers_attach_node or locality_of(volume).reach is not Reach.NODE_FIRST:
        return False
    return not any(replica.node == volume.node_id and not replica.failed_at for replica in replicas)


def preferred(
    candidates: Sequence[Candidate],
    nodes: Mapping[str, LonghornNode],
    size_bytes: int,
    behaviour: Behaviour = NEWEST,
) -> Candidate | None:
    """Return the candidate that Longhorn takes for a replica of `size_bytes`; None only without candidates."""
    ordered = sorted(candidates, key=lambda entry: (entry.node, entry.disk))
    if len(ordered) < 2:
        return ordered[0] if ordered else None
    disks = [_disk_of(entry, nodes) for entry in ordered]
    if not behaviour.picks_by_balance_score:
        best = max(range(len(ordered)), key=lambda index: disks[index].spare_bytes)
        return ordered[best]
    return ordered[_most_balanced(ordered, [usable_bytes(disk) for disk in disks], size_bytes)]


def _most_balanced(ordered: Sequence[Candidate], usable: Sequence[int], size_bytes: int) -> int:
    """The index of the choice: the node by the nodes' sums, then its disk; 0 if no disk of it has the room."""
    by_node: dict[str, int] = {}
    for entry, value in zip(ordered, usable, strict=True):
        by_node[entry.node] = by_node.get(entry.node, 0) + value
    node = max(by_node, key=by_node.__getitem__)  # the first of equal ones
    fitting = [index for index, entry in enumerate(ordered) if entry.node == node and usable[index] >= size_bytes]
    return max(fitting, key=usable.__getitem__, default=0)


def _disk_of(candidate: Candidate, nodes: Mapping[str, LonghornNode]) -> Disk:
    return next(disk for disk in nodes[candidate.node].disks if disk.name == candidate.disk)
