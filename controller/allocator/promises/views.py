"""The ledger as people and metrics see it: one row for each volume and node."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from controller.allocator.outcome import DiskOver, Mode, PromiseView, ReachView, Snapshot
from controller.allocator.promises.promise import Kind, OnDisks, Promise, Source, State
from controller.allocator.world.reach import ReachChange

_ANSWERED: Final = (Source.FILTER, Source.FORMER)


def promise_views(promises: Iterable[Promise], claims: Mapping[str, str], now: float) -> list[PromiseView]:
    """Promises sorted by volume and node, the claimants of each taken together. `claims`: "namespace/name" by the
    claim's uid, and by the Longhorn volume's name."""
    grouped: dict[tuple[str, str, bool], list[tuple[Promise, int]]] = {}
    for promise in promises:
        is_growth = promise.kind is Kind.GROWTH
        for node, size in _sizes(promise).items():
            grouped.setdefault((promise.volume, node, is_growth), []).append((promise, size))
    views = []
    for (volume, node, _), members in sorted(grouped.items()):
        first = max(members, key=lambda member: (member[0].state is State.ASSUMED, member[1]))[0]
        views.append(
            PromiseView(
                volume=volume,
                claim=claims.get(volume, ""),
                node=node,
                kind=str(first.kind),
                state=first.state.name,
                source=str(first.source),
                size_bytes=max(size for _, size in members),
                claimants=tuple(sorted(promise.claimant for promise, _ in members)),
                age_seconds=max(now - promise.since for promise, _ in members),
            )
        )
    return views


def _sizes(promise: Promise) -> dict[str, int]:
    """Bytes by node; a growth's are those that its replicas there are to gain."""
    if not isinstance(promise.places, OnDisks):
        return dict.fromkeys(promise.listed_nodes, promise.size_bytes)
    return promise.places.bytes_by_node()


def snapshot_of(
    views: list[PromiseView],
    *,
    mode: Mode,
    version: int,
    refused_count: int,
    quarantined: Iterable[str],
    counters: Mapping[str, int],
    changes: Iterable[ReachChange],
    over: Iterable[tuple[str, str, int]],
    now: float,
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
        # What is held for longer on purpose (growth, nominations, kept room) is nothing that anybody has to look into.
        oldest_hold_seconds=max((view.age_seconds for view in held if view.source in _ANSWERED), default=0.0),
        refused_count=refused_count,
        quarantined=tuple(sorted(quarantined)),
        counters=dict(counters),
        reach_changes=tuple(
            ReachView(one.node, one.disk, str(one.change), one.size_bytes, round(now - one.at, 3)) for one in changes
        ),
        disks_over=tuple(sorted(itertools.starmap(DiskOver, over), key=lambda one: (one.node, one.disk))),
    )
