"""The ledger as people and metrics see it: one row a volume and node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.allocator.outcome import EXPANSION, Mode, PromiseView, Snapshot
from controller.allocator.promises.ledger import ANYWHERE, Ledger, Promise, State
from controller.allocator.world.world import World


def promise_views(world: World, ledger: Ledger, now: float) -> list[PromiseView]:
    """Promises sorted by volume and node, the claimants of each taken together."""
    grouped: dict[tuple[str, str], list[Promise]] = {}
    for promise in ledger.promises():
        for node in promise.nodes or (ANYWHERE,):
            grouped.setdefault((promise.volume, node), []).append(promise)
    views = []
    for (volume, node), members in sorted(grouped.items()):
        claim = world.claim_by_uid(volume)
        first = max(members, key=lambda member: (member.state is State.ASSUMED, member.size_bytes))
        views.append(
            PromiseView(
                volume=volume,
                claim=claim.key if claim is not None else "",
                node=node,
                kind=str(first.kind),
                state=first.state.name,
                source=str(first.source),
                size_bytes=max(member.size_bytes for member in members),
                claimants=tuple(sorted(member.claimant for member in members)),
                age_seconds=max(now - member.since for member in members),
            )
        )
    return views


def snapshot_of(
    views: list[PromiseView],
    *,
    mode: Mode,
    version: int,
    refused_count: int,
    quarantined: Iterable[str],
    counters: Mapping[str, int],
) -> Snapshot:
    held = [view for view in views if view.state == State.HELD.name]
    assumed = [view for view in views if view.state == State.ASSUMED.name]
    return Snapshot(
        mode=mode,
        version=version,
        promises=tuple(views),
        held_count=len(held),
        held_bytes=sum(view.size_bytes for view in held),
        assumed_count=len(assumed),
        assumed_bytes=sum(view.size_bytes for view in assumed),
        # A growth that the API server never saw stays for a minute, and nobody has to look into that.
        oldest_hold_seconds=max((view.age_seconds for view in held if view.kind != EXPANSION), default=0.0),
        refused_count=refused_count,
        quarantined=tuple(sorted(quarantined)),
        counters=dict(counters),
    )
