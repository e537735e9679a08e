"""How many nodes one pod is offered while many wait for little room.

Every offer is a hold until the pod's choice shows, and what one answer holds, the next pods cannot be offered. While
few pods wait this does not matter, and kube-scheduler is given many nodes to choose from. When many pods wait for
little room, each gets its share of what is left, down to a single node, so that the room suffices for all the answers
that will be given before the first choices show. A single node is better than none: a refused pod costs a whole cycle
of kube-scheduler, and a wake-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.allocator.judge.node import Judge
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Answers
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.world.world import World

MANY: Final = 8  # pods that wait or were answered; fewer get out of each other's way by themselves
AHEAD: Final = 64  # answers that kube-scheduler may well ask for before the first choice shows


def sharers(world: World, ledger: Ledger, answers: Answers, refusals: Refusals) -> int:
    """The number of answers that share the remaining room, the present one included; 1 while few pods wait.

    Until the choice for this answer shows, about as many other pods will ask as now wait for theirs: in a steady stream
    as many come in as are resolved, including pods that are not visible yet. At the beginning of a burst, when hardly
    any pod has been answered, it is the number of pods that wait for a node, at most AHEAD. Pods that were refused wait
    too if other pods' promises were the reason; those that fit nowhere do not come back before there is room.
    """
    unchosen, having = len(answers), ledger.claimants()
    if unchosen >= AHEAD:
        return 1 + unchosen
    waiting = -1  # the pod itself
    for uid in world.waiting:
        if (uid not in having or answers.is_foreign(uid)) and not refusals.is_resting(uid):
            waiting += 1
            if waiting >= AHEAD:
                break
    return 1 + max(unchosen, waiting) if waiting + unchosen + 1 >= MANY else 1


def places_left(judge: Judge, names: Sequence[str], size_bytes: int, enough: int) -> int:
    """About how many pods that ask for `size_bytes` could be promised a place on these sure nodes, this one included:
    at least one for each node, and not counted further than `enough`. An estimate, by free bytes and promises, which
    decides how much is offered and never what is sure.
    """
    world, promised, roaming = judge.world, judge.pending.bound_bytes, judge.pending.roaming_bytes
    places = 0
    for name in names:
        room = world.room(name)
        free = 0
        if room is not None and size_bytes > 0:
            for disk in room.disks:
                if disk.free_bytes > 0:
                    free += disk.free_bytes // size_bytes
            free += -(promised(name) + roaming) // size_bytes  # a place that is partly promised does not count
        places += free if free > 1 else 1
        if places >= enough:
            break
    return places
