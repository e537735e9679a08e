"""How many nodes one pod is offered.

Every offer is a hold until the pod's choice shows, and what one answer holds, the next pods cannot be offered. While
room is ample this does not matter, and kube-scheduler is given many nodes to choose from, which spreads the pods. Near
full a pod is offered few, and while many pods wait each gets its share of what is left, down to a single node, so that
the room suffices for all the answers that will be given before the first choices show. A single node is better than
none: a refused pod costs a whole cycle of kube-scheduler, and a wake-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.table import Table
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.world.world import World

MANY: Final = 8  # pods that wait or were answered; fewer get out of each other's way by themselves
AHEAD: Final = 64  # answers that kube-scheduler may well ask for before the first choice shows
AMPLE_PLACES: Final = 64  # for volumes of that size on the nodes found: below, room is not ample
FEW: Final = 4  # nodes that a pod is offered then


def sharers(world: World, table: Table, answers: Answers, refusals: Refusals) -> int:
    """The number of answers that share the remaining room, the present one included; 1 while few pods wait.

    Until the choice for this answer shows, about as many other pods will ask as now wait for theirs: in a steady stream
    as many come in as are resolved, including pods that are not visible yet. At the beginning of a burst, when hardly
    any pod has been answered, it is the number of pods that wait for a node, at most AHEAD. Pods that were refused wait
    too if other pods' holds were the reason; those that fit nowhere do not come back before there is room.
    """
    unchosen = len(answers)
    if unchosen >= AHEAD:
        return 1 + unchosen
    waiting = -1  # the pod itself
    for uid in world.waiting - refusals.resting:
        if table.hold(uid) is None:
            waiting += 1
            if waiting >= AHEAD:
                break
    return 1 + max(unchosen, waiting) if waiting + unchosen + 1 >= MANY else 1


def places_left(fit: PodFit, names: Collection[str], size_bytes: int, enough: int) -> int:
    """About how many pods that ask for `size_bytes` find a place on these sure nodes, this one included: at least one
    for each node, and not counted further than `enough`. An estimate, which decides how much is offered and never what
    is sure."""
    world, places = fit.world, 0
    for name in names:
        room, free = world.room(name), 0
        for disk in room.disks if room is not None and size_bytes > 0 else ():
            left = disk.free_bytes - fit.taken.taken_bytes(name, disk.uuid)
            free += max(0, left) // size_bytes
        places += max(1, free)
        if places >= enough:
            break
    return places


def places_beyond(world: World, names: Iterable[str], taken: Mapping[str, int], size_bytes: int, enough: int) -> int:
    """The same on nodes that were not looked at, if all of them suit: by what is free on a node altogether. `taken`:
    bytes by node."""
    places = 0
    for name in names:
        room = world.room(name)
        if room is not None and room.rejection is None:
            places += max(0, room.left_bytes - taken.get(name, 0)) // size_bytes
        if places >= enough:
            break
    return places
