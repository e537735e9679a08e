"""One replica after the other, as Longhorn's volume controller has them placed in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.model.longhorn import Replica, Volume
from controller.rules.candidates import Candidate, Candidates, PlacementView, find_candidates
from controller.rules.preference import prefer_attach_node, preferred


@dataclass(frozen=True, slots=True)
class PlacementStep:
    """The placement of one replica: every disk that Longhorn may choose, and the one that it is predicted to choose."""

    replica: str
    search: Candidates
    preferred: tuple[Candidate, ...]  # what the choice is narrowed to: the attach node, for best-effort
    scheduled: Candidate | None


def schedule_replicas(view: PlacementView, volume: Volume, replicas: Iterable[Replica]) -> tuple[PlacementStep, ...]:
    """Place `replicas` in that order. Later ones see the earlier picks; the disks' figures stay as they are."""
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
