"""How many nodes one pod of a crowd is offered.

Every offer is a hold until the pod's choice shows, and what one answer holds, the next pods cannot be offered. While
few pods wait this does not matter, and kube-scheduler is given many nodes to choose from. When many pods wait for
little room, each gets its share of what is left, down to a single node, so that the room suffices for all the answers
that will be given before the first choices show. A single node is better than none: a refused pod costs a whole cycle
of kube-scheduler, and a wake-up.
"""

from __future__ import annotations

from typing import Final

from controller.allocator.holds import Answers
from controller.allocator.ledger import Ledger
from controller.allocator.placement import Judge
from controller.allocator.refusals import Refusals
from controller.allocator.world import World

CROWD: Final = 8  # pods that wait or were answered; fewer get out of each other's way by themselves
AHEAD: Final = 64  # answers that kube-scheduler may well ask for before the first choice shows


def sharers(world: World, ledger: Ledger, answers: Answers, refusals: Refusals) -> int:
    """Among how many answers, the one that is asked for now included, the room that is left is to be shared; 1 without
    a crowd.

    The next answers are about as many as those whose choices have not shown yet, since as many come in as resolve, and
    in the beginning AHEAD; but never more than pods wait. Pods that were refused wait too when other pods' promises
    were the reason; those without any room do not come back before there is some.
    """
    unchosen = len(answers)
    most = max(unchosen, AHEAD)
    waiting = -1  # the pod itself
    for uid in world.waiting:
        if (answers.is_foreign(uid) or not ledger.is_claimant(uid)) and not refusals.is_resting(uid):
            waiting += 1
            if waiting >= most:
                break
    return 1 + max(0, waiting) if waiting + unchosen + 1 >= CROWD else 1


def places_left(judge: Judge, name: str, size_bytes: int) -> int:
    """About how many pods like this one a sure node can be promised to, the pod itself included: 1 at least. An
    estimate of whole `size_bytes` by disk, which decides how much is offered and never what is sure."""
    room = judge.world.room(name)
    if room is None or size_bytes <= 0:
        return 1
    pending = judge.pending
    free = sum(max(0, disk.free_bytes) // size_bytes for disk in room.disks)
    return max(1, free - -(-(pending.bound_bytes(name) + pending.roaming_bytes) // size_bytes))
