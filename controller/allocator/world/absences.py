"""Objects to which a pod refers and that our stores do not show, and how long the answer of a live read counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from controller.allocator.outcome import UnknownObjectError
from controller.allocator.world.world import World
from controller.model.workload import Claim, Pod
from controller.rules.demand import Missing, VolumeDemand

ABSENT_SECONDS: Final = 1.0  # longer than the live reads of one call, shorter than a retry of the scheduler


def _unknown(missing: Iterable[Missing], world: World, now: float) -> Iterator[Missing]:
    """The objects that no live read found absent just now."""
    return (entry for entry in missing if world.absent.get(entry, -math.inf) < now - ABSENT_SECONDS)


def missing_for(claims: Iterable[Claim], world: World, now: float) -> Iterator[Missing]:
    """The objects that existing claims miss: the volume to which one is bound, or its class. Left out is what a live
    read found absent just now."""
    found = map(world.demand_for, claims)
    return _unknown((entry for entry in found if isinstance(entry, Missing)), world, now)


def known_demands(pod: Pod, world: World, now: float) -> Sequence[VolumeDemand]:
    """The pod's demands. Raises UnknownObjectError if an object is missing: an unknown one would count as needing no
    room."""
    demands, missing = world.demands_of(pod)
    for entry in _unknown(missing, world, now):
        raise UnknownObjectError(pod, entry)
    return demands
