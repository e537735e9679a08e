"""Which promises bind those who give room away by name, while the record decides where replicas go.

Nothing lands on a disk then but what asks for it, so only what was promised after a check of ours has to be left alone:
what a pod that asked us was offered or has chosen, and growth. A replica that waits for its own call keeps nobody off,
nor does a pod that nobody asked us about, or that runs where we never let it go; else two that want the same last bytes
would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.allocator.promises.claims import CLAIM
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import Promise, Source
from controller.allocator.world.world import World


def new_ledger(world: World, memory: Memory) -> Ledger:
    """An empty one, which tells what binds."""
    ledger = Ledger()
    ledger.keep_binding(binding_of(world, memory))
    return ledger


def binding_of(world: World, memory: Memory) -> Callable[[Promise], bool] | None:
    """What `Ledger.keep_binding` asks; None while the record does not decide, as all promises bind then. A promise is
    looked at again when its pod changes or goes, so that the pod of that moment tells."""
    return (lambda promise: _binds(world, memory, promise)) if world.allocated.counts else None


def _binds(world: World, memory: Memory, promise: Promise) -> bool:
    if promise.source is Source.LONGHORN or promise.claimant == CLAIM:
        return False
    pod = world.pods.get(promise.claimant)
    if pod is None:
        return promise.source is not Source.CHOICE
    if not pod.is_opted_in:  # a choice that failed is held in doubt like an answer
        return False
    return not pod.node_name or pod.uid in memory.former or memory.was_let_through(pod.uid, pod.node_name)
