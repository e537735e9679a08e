"""Growth of volumes, admitted one after the other and held until Longhorn shows it.

One growth is asked for up to three times: for the claim, for the claim again when Longhorn's API grows it, and for the
Longhorn volume. It is one hold, of the largest size admitted, by volume: whatever was granted once is granted at every
size up to it. What the cluster itself asks for (a claim's request beyond its PV, a volume larger than its replicas)
counts as granted without having been admitted: Longhorn will take it when it can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from controller.allocator.judge.growth import Obstacle, plan_growth
from controller.allocator.outcome import EXPANSION, PromiseView
from controller.allocator.promises.journal import Journal
from controller.allocator.promises.ledger import Ledger, Source, State
from controller.allocator.world.sizes import GrowthHold
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import CallerGoneError
from controller.model.demand import Missing
from controller.model.longhorn import Volume
from controller.model.names import LONGHORN_DRIVERS
from controller.model.provisioning import rounded_volume_bytes
from controller.rules.reasons import Reason, Rejection

HOLD_SECONDS: Final = 60.0  # longer than the API server's own deadline for a request
MOST_HELD_SECONDS: Final = 240.0  # after which asking again does not prolong it, so that it ends within five minutes
_NEVER_STORED: Final = Rejection(
    Reason.NOT_EXPANDABLE,
    "it was admitted again and again for four minutes and never stored, as when another webhook refuses it; first its "
    "room is given back: try again in a minute",
)


class GrowthVerdict(StrEnum):
    ADMITTED = "admitted"
    REFUSED = "refused"
    NOT_CHECKED = "not-checked"  # nothing of ours, or the extender is switched off


@dataclass(frozen=True, slots=True)
class GrowthRequest:
    """A claim, or ("" both) a Longhorn volume, that is to have `size_bytes`, not rounded. `volume` is the claim's
    PV, or the Longhorn volume."""

    volume: str
    size_bytes: int
    claim_namespace: str = ""
    claim_name: str = ""
    is_dry_run: bool = False

    @property
    def claim(self) -> str:
        return f"{self.claim_namespace}/{self.claim_name}" if self.claim_name else ""


@dataclass(frozen=True, slots=True)
class GrowthOutcome:
    """`volume`: Longhorn's; `size_bytes` as Longhorn rounds it. The rest of a refusal: `is_largest` False means that
    more than `largest_bytes` may fit, which was not found out in time."""

    verdict: GrowthVerdict
    volume: str = ""
    size_bytes: int = 0
    largest_bytes: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    is_largest: bool = True


@dataclass(frozen=True, slots=True)
class DueGrowth:
    """A hold whose time is over; a live read of claim ("" without one), and volume has the last word, but for
    `is_capped`: such a one ends without."""

    volume: str
    claim: str
    is_capped: bool


@dataclass(frozen=True, slots=True)
class Lent:
    """What the allocator lends, each to be called under its lock only."""

    is_active: Callable[[], bool]
    ledger: Callable[[], Ledger]
    guarded: Callable[[str], AbstractContextManager[None]]  # a broken invariant of that key rebuilds the ledger
    settle: Callable[[Iterable[str]], None]  # these claims' promises may have changed


class Expansions:
    """The allocator's part that deals with growth, behind the allocator's own lock.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, lock: threading.Condition, clock: Clock, world: World, journal: Journal, lent: Lent) -> None:
        self._lock, self._clock = lock, clock
        self._world, self._journal, self._lent = world, journal, lent

    def missing(self, request: GrowthRequest) -> Missing | None:
        """What our stores lack to tell: to be read before `hold` is asked, which takes what is missing for absent."""
        with self._lock:
            found = self._resolve(request)
            return found if isinstance(found, Missing) else None

    def hold(
        self,
        request: GrowthRequest,
        now_utc: datetime | None = None,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> GrowthOutcome:
        """Whether the volume may grow to that size; if so, it is held from now on: one step. A dry run holds
        nothing. `is_awaited` is asked when its turn has come: if not, CallerGoneError, and nothing is held."""
        with self._lock:
            if not is_awaited():
                raise CallerGoneError("nobody waits for the answer any more")
            found = self._resolve(request) if self._lent.is_active() else None
            if not isinstance(found, Volume):
                return GrowthOutcome(GrowthVerdict.NOT_CHECKED)
            name, size = found.name, rounded_volume_bytes(request.size_bytes)
            outcome = self._judge(name, size, request, now_utc)
            if outcome.verdict is GrowthVerdict.ADMITTED and not request.is_dry_run:
                self._keep(found, size, request)
            return outcome

    def _judge(self, name: str, size: int, request: GrowthRequest, now_utc: datetime | None) -> GrowthOutcome:
        asked = self._world.sizes.asked.get(name, 0)
        if size > asked and self._is_held_too_long(name):
            self._count("expansions_refused", request)
            return GrowthOutcome(GrowthVerdict.REFUSED, name, size, asked, (Obstacle("", "", 0, _NEVER_STORED),))
        if size > self._world.sizes.granted(name):
            plan = plan_growth(self._world, self._lent.ledger(), name, size, self._clock, now_utc)
            if plan.obstacles:
                self._count("expansions_refused", request)
                return GrowthOutcome(
                    GrowthVerdict.REFUSED, name, size, plan.largest_bytes, plan.obstacles, plan.is_largest
                )
            self._count("expansions_admitted", request)
        return GrowthOutcome(GrowthVerdict.ADMITTED, name, size)

    def _count(self, counter: str, request: GrowthRequest) -> None:
        if not request.is_dry_run:
            self._journal.counters[counter] += 1

    def _is_held_too_long(self, name: str) -> bool:
        """Whether no more is to be admitted of that volume until its hold has ended. It cannot end at once: a request
        that was admitted a moment ago may still be stored."""
        hold = self._world.sizes.holds.get(name)
        return hold is not None and self._clock.now() - hold.since >= MOST_HELD_SECONDS

    def _resolve(self, request: GrowthRequest) -> Volume | Missing | None:
        """The Longhorn volume, as Longhorn shows it; None when it is none of Longhorn's."""
        world, handle = self._world, request.volume
        if request.claim:
            pv = world.pv(request.volume)
            if pv is None:
                return Missing("pv", "", request.volume)
            if pv.driver not in LONGHORN_DRIVERS:
                return None
            handle = pv.handle
        return world.sizes.shown.get(handle) or Missing("volume", "", handle)

    def _keep(self, volume: Volume, size_bytes: int, request: GrowthRequest) -> None:
        """Hold what the cluster does not ask for yet; of a hold that is there, its time begins again."""
        sizes, now = self._world.sizes, self._clock.now()
        old = sizes.holds.get(volume.name)
        if old is not None and old.size_bytes >= size_bytes:
            sizes.holds[volume.name] = replace(old, reviewed_at=now)
            return
        if size_bytes <= sizes.granted(volume.name):
            return
        claim = request.claim or self._claim_of(volume.name)
        since = old.since if old is not None else now
        sizes.holds[volume.name] = GrowthHold(size_bytes, since, now, claim)
        self._resize(volume.name, claim)

    def _claim_of(self, volume: str) -> str:
        claim = self._world.claim_of_volume(volume)
        return claim.key if claim is not None else ""

    def _resize(self, volume: str, claim: str) -> None:
        with self._lent.guarded(claim or volume):
            self._lent.settle(self._world.resize(volume))

    # Time

    def due(self) -> tuple[DueGrowth, ...]:
        """Holds that the cluster has not shown for `HOLD_SECONDS` since they were last asked for."""
        with self._lock:
            holds, capped_since = self._world.sizes.holds, self._clock.now() - MOST_HELD_SECONDS - HOLD_SECONDS
            return tuple(
                DueGrowth(name, hold.claim, hold.since <= capped_since)
                for name, hold in holds.items()
                if self._is_due(hold)
            )

    def _is_due(self, hold: GrowthHold) -> bool:
        return self._clock.now() - hold.reviewed_at >= HOLD_SECONDS

    def expire(self, volume: str) -> None:
        """A live read showed no growth. Nothing happens to a hold that was asked for again meanwhile."""
        with self._lock:
            holds = self._world.sizes.holds
            hold = holds.get(volume)
            if hold is None or not self._is_due(hold):
                return
            del holds[volume]
            self._journal.counters["expansions_expired"] += 1
            self._resize(volume, hold.claim)

    def forget_all_locked(self) -> None:
        """A term began or ended: what is not to be seen in the cluster is nobody's any more."""
        holds = self._world.sizes.holds
        names = list(holds)
        holds.clear()
        for name in names:
            self._world.resize(name)


# Views


def held_on(world: World) -> dict[str, int]:
    """Bytes by node that stand for growths which the cluster does not show yet."""
    found: dict[str, int] = {}
    for name, hold in world.sizes.holds.items():
        for replica in world.placed.shown(name).values():
            growth = hold.size_bytes - max(replica.size_bytes, world.sizes.asked.get(name, 0))
            if replica.node and growth > 0:
                found[replica.node] = found.get(replica.node, 0) + growth
    return found


def growth_views(world: World, now: float) -> list[PromiseView]:
    """Growths that Longhorn does not show in full, one row a volume and node: HELD until the cluster asks for them,
    ASSUMED from then on."""
    views = []
    for name in sorted(world.growing):
        hold = world.sizes.holds.get(name)
        state = State.HELD if hold is not None else State.ASSUMED
        claim = world.claim_of_volume(name)
        missing: dict[str, int] = {}
        for replica in world.placed.shown(name).values():
            if replica.node:
                growth = max(0, world.sizes.granted(name) - replica.size_bytes)
                if growth:
                    missing[replica.node] = missing.get(replica.node, 0) + growth
        for node, size in sorted(missing.items()):
            views.append(
                PromiseView(
                    volume=claim.uid if claim is not None else name,
                    claim=claim.key if claim is not None else "",
                    node=node,
                    kind=EXPANSION,
                    state=state.name,
                    source=str(Source.GROWTH),
                    size_bytes=size,
                    claimants=(name,),
                    age_seconds=now - hold.since if hold is not None else 0.0,
                )
            )
    return views
