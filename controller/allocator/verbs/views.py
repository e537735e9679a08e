"""Plans, holds and growth as people and metrics see them: one row for each volume, node and kind."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

from controller.allocator.choose.choose import Chooser
from controller.allocator.outcome import DiskOver, Mode, PromiseView, SharedDisk, TableView
from controller.allocator.plans.growths import Growth, Growths
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.plans.table import Table
from controller.allocator.waiting.refusals import RefusedPod
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.settings import LiveSettings

_T = TypeVar("_T")
_NameOf: TypeAlias = Callable[[str], str]

HELD: Final = "HELD"
PLANNED: Final = "PLANNED"
ANSWER: Final = "answer"


@dataclass(frozen=True, slots=True)
class Look:
    """What the allocator had at one moment, for people: any thread may ask it, without the lock, and nobody changes it.
    `refused`: by pod UID; `quarantined`: keys of pods and claims; `schedulers`: as the allocator has them."""

    world: World
    table: Table
    growths: Growths
    refused: Mapping[str, RefusedPod]
    quarantined: frozenset[str]
    approvals: Approvals
    mode: Mode
    live: LiveSettings
    schedulers: Container[str] | None
    clock: Clock
    now: float
    now_utc: datetime

    def room(self, world: World | None = None, table: Table | None = None) -> PodRoom:
        """Return what asks for room for a pod, in this world and table or in changed copies of them."""
        world = world or self.world
        return PodRoom(world, table or self.table, Chooser(world), self.clock, self.approvals)


def kind_of(source: Source) -> str:
    """Return what people call a hold of that source (docs/rules/plans.md)."""
    return ANSWER if source is Source.FILTER else str(source)


def rows_of(
    plans: Iterable[Plan],
    holds: Iterable[Hold],
    growths: Iterable[Growth],
    name_of: _NameOf,
    now: float,
    now_utc: datetime,
) -> tuple[PromiseView, ...]:
    """Rows, sorted by volume, node and kind. What several pods hold for a volume is one row, of the largest size and
    the greatest age. `name_of` tells the claim of a Longhorn volume, as "namespace/name"."""
    found = defaultdict[tuple[str, str, str], list[PromiseView]](list)
    parts = (
        (row for plan in plans for row in _of_plan(plan, name_of, now_utc)),
        (row for hold in holds for row in _of_hold(hold, name_of, now)),
        (row for growth in growths for row in _of_growth(growth, name_of, now)),
    )
    for row in itertools.chain(*parts):
        found[row.volume, row.node, row.kind].append(row)
    return tuple(rows[0] if len(rows) == 1 else _together(rows) for _, rows in sorted(found.items()))


def _together(rows: list[PromiseView]) -> PromiseView:
    return replace(
        rows[0],
        size_bytes=max(row.size_bytes for row in rows),
        claimants=tuple(sorted({claimant for row in rows for claimant in row.claimants})),
        age_seconds=max(row.age_seconds for row in rows),
    )


def _of_plan(plan: Plan, name_of: _NameOf, now_utc: datetime) -> Iterator[PromiseView]:
    age, claim, pods = max(0.0, (now_utc - plan.since_utc).total_seconds()), name_of(plan.volume), sorted(plan.pods)
    for node, size in _sums((place.node, place.size_bytes) for place in plan.places).items():
        yield PromiseView(plan.volume, claim, node, "plan", PLANNED, size, tuple(pods), age)


def _of_hold(hold: Hold, name_of: _NameOf, now: float) -> Iterator[PromiseView]:
    kind, age, pods = kind_of(hold.source), now - hold.since, (hold.pod,)
    sizes = _sums(((volume, place.node), place.size_bytes) for volume, place in hold.places())
    for (volume, node), size in sizes.items():
        yield PromiseView(volume, name_of(volume), node, kind, HELD, size, pods, age)


def _of_growth(growth: Growth, name_of: _NameOf, now: float) -> Iterator[PromiseView]:
    """A row for each node, with the bytes that its copies there are to gain."""
    state, age = HELD if growth.is_held else PLANNED, now - growth.since
    for node, size in _sums((node, more) for node, _, more in growth.on_disks).items():
        yield PromiseView(growth.volume, name_of(growth.volume), node, "growth", state, size, (), age)


def _sums(sizes: Iterable[tuple[_T, int]]) -> dict[_T, int]:
    found = dict[_T, int]()
    for key, size in sizes:
        found[key] = found.get(key, 0) + size
    return found


@dataclass(slots=True)
class Sums:
    """Of all rows, without them. `oldest_seconds`: of an answer without a choice."""

    held_count: int
    held_bytes: int
    planned_count: int
    planned_bytes: int
    oldest_seconds: float


def sums_of(plans: Iterable[Plan], holds: Iterable[Hold], growths: Iterable[Growth], now: float) -> Sums:
    """The sums over `rows_of`, at a tenth of the cost: a scrape of metrics asks for nothing else."""
    held, planned, oldest = dict[tuple[str, str, str], int](), dict[tuple[str, str, str], int](), 0.0
    for plan in plans:
        for node, size in _sums((place.node, place.size_bytes) for place in plan.places).items():
            planned[plan.volume, node, "plan"] = size
    for hold in holds:
        kind = kind_of(hold.source)
        for node, here in (hold.nodes or {}).items():
            for volume, place in here.items():
                key = volume, node, kind
                if place.size_bytes > held.get(key, -1):
                    held[key] = place.size_bytes
        for volume, places in hold.anywhere.items():
            for node, size in _sums((place.node, place.size_bytes) for place in places).items():
                held[volume, node, kind] = max(size, held.get((volume, node, kind), 0))
        # What is held for longer on purpose (growth, nominations, kept room) is nothing that anybody has to look into.
        if kind == ANSWER and next(hold.places(), None) is not None:
            oldest = max(oldest, now - hold.since)
    for growth in growths:
        found = held if growth.is_held else planned
        for node, size in _sums((node, more) for node, _, more in growth.on_disks).items():
            found[growth.volume, node, "growth"] = size
    return Sums(len(held), sum(held.values()), len(planned), sum(planned.values()), oldest)


def snapshot_of(
    rows: tuple[PromiseView, ...],
    sums: Sums,
    mode: Mode,
    refused_count: int,
    quarantined: Iterable[str],
    counters: Mapping[str, int],
    over: Iterable[tuple[str, str, int]],
    shared_disks: tuple[SharedDisk, ...] = (),
) -> TableView:
    """The view. `over`: node, disk and bytes of disks that hold more than their limit."""
    return TableView(
        mode=mode,
        promises=rows,
        held_count=sums.held_count,
        held_bytes=sums.held_bytes,
        planned_count=sums.planned_count,
        planned_bytes=sums.planned_bytes,
        oldest_hold_seconds=sums.oldest_seconds,
        refused_count=refused_count,
        quarantined=tuple(sorted(quarantined)),
        counters=dict(counters),
        disks_over=tuple(sorted(itertools.starmap(DiskOver, over), key=lambda one: (one.node, one.disk))),
        shared_disks=shared_disks,
    )
