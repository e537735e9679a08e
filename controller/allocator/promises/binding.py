"""Which promises bind those who give room away by name, while the record decides where replicas go.

Nothing lands on a disk then but what asks for it, so only what was promised after a check of ours has to be left alone:
what a pod that asked us was offered or has chosen, and growth. A replica that waits for its own call keeps nobody off,
nor does a pod that nobody asked us about; else two that want the same last bytes would wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.allocator.promises.claims import CLAIM
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Promise, Source
from controller.allocator.world.world import World


def binding_ledger(world: World, promises: Iterable[Promise]) -> Ledger:
    """Of `promises` those that bind."""
    return Ledger.of(one for one in promises if _binds(world, one))


def binding_at(world: World, ledger: Ledger, nodes: Collection[str], volume: str) -> Ledger:
    """Of all that may come to those nodes, and of the volume's own promises, those that bind."""
    keys = (volume, *(claim.uid for claim in world.claims_of_volume(volume)))
    return binding_ledger(world, ledger.may_come_to(nodes, keys))


def _binds(world: World, promise: Promise) -> bool:
    if promise.source is Source.LONGHORN or promise.claimant == CLAIM:
        return False
    if promise.source is not Source.CHOICE:
        return True
    pod = world.pods.get(promise.claimant)
    return pod is not None and pod.is_opted_in
