"""Growth of volumes, admitted one after the other and held until Longhorn shows it.

One growth is asked for up to three times: for the claim, for the claim again when Longhorn's API grows it, and for the
Longhorn volume. It is one hold, of the largest size admitted, by volume: whatever was granted once is granted at every
size up to it. What the cluster itself asks for (a claim's request beyond its PV, a volume larger than its replicas)
counts as granted without having been admitted: Longhorn will take it when it can.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from controller.allocator.judge.growth import plan_growth
from controller.allocator.outcome import Obstacle
from controller.allocator.promises.growths import Growths
from controller.allocator.promises.journal import Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.verbs.held import check_one_place
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import CallerGoneError, PreconditionError
from controller.model.longhorn import Volume
from controller.model.names import LONGHORN_DRIVERS
from controller.rules.demand import Missing
from controller.rules.expandable import Route
from controller.rules.provisioning import rounded_volume_bytes
from controller.rules.reasons import Reason, Rejection

UNKNOWN_SECONDS: Final = 60.0  # after a change of leader; longer than the API server's own deadline for a request
LEADER_CHANGED: Final = Rejection(
    Reason.LEADER_CHANGED,
    "the leader has just changed, and expansions that its predecessor admitted may not be stored yet",
)


class GrowthVerdict(StrEnum):
    ADMITTED = "admitted"
    REFUSED = "refused"
    TRY_AGAIN = "try-again"  # it fits, but earlier admissions, perhaps by another leader, are not visible yet
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

    @property
    def route(self) -> Route:
        return Route.CLAIM if self.claim_name else Route.VOLUME


@dataclass(frozen=True, slots=True)
class GrowthOutcome:
    """`volume`: Longhorn's; `size_bytes` as Longhorn rounds it. `obstacles`: what stands in the way, or, of what is
    admitted, what has to pass first. The rest of a refusal: `is_largest` False means that more than `largest_bytes` may
    fit, which was not found out in time."""

    verdict: GrowthVerdict
    volume: str = ""
    size_bytes: int = 0
    largest_bytes: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    is_largest: bool = True


@dataclass(slots=True)
class Caller:
    """Who waits for an answer. Threads: any may say that it has left."""

    has_left: bool = False

    def leave(self) -> None:
        self.has_left = True


@dataclass(frozen=True, slots=True)
class UnderLock:
    """Parts of the allocator, each to be called under its lock only."""

    is_active: Callable[[], bool]
    ledger: Callable[[], Ledger]
    growths: Callable[[], Growths]
    memory: Callable[[], Memory]
    settle: Callable[[str], None]  # that volume's promises may have changed; a broken invariant rebuilds the ledger


class Expansions:
    """The allocator's part that deals with growth, behind the allocator's own lock.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(
        self, lock: threading.Condition, clock: Clock, world: World, journal: Journal, under_lock: UnderLock
    ) -> None:
        self._lock, self._clock = lock, clock
        self._world, self._journal, self._under_lock = world, journal, under_lock
        self._unknown_until = -math.inf  # when all that the leader before has admitted is seen, or never stored

    def missing(self, request: GrowthRequest) -> Missing | None:
        """What our stores lack to tell: to be read before `hold` is asked, which takes what is missing for absent.
        Costs: two look-ups."""
        with self._lock:
            found = self._resolve(request)
            return found if isinstance(found, Missing) else None

    def hold(
        self,
        request: GrowthRequest,
        now_utc: datetime | None = None,
        caller: Caller | None = None,
    ) -> GrowthOutcome:
        """Whether the volume may grow to that size; if so, it is held from now on: one step. A dry run holds
        nothing. When its turn comes and the `caller` has left, CallerGoneError, and nothing is held.

        Costs: usually a few milliseconds, for a look at what is promised on the volume's nodes and at all that roams;
        at most `VERDICT_MILLISECONDS`, and `SEARCH_MILLISECONDS` for a refusal, which one search may overrun."""
        with self._lock:
            if caller is not None and caller.has_left:
                raise CallerGoneError("the caller no longer waits for the answer")
            found = self._resolve(request) if self._under_lock.is_active() else None
            if not isinstance(found, Volume):
                return GrowthOutcome(GrowthVerdict.NOT_CHECKED)
            name, size = found.name, rounded_volume_bytes(request.size_bytes)
            outcome = self._judge(name, size, request, now_utc)
            if outcome.verdict is GrowthVerdict.ADMITTED and not request.is_dry_run:
                self._keep(found, size)
            return outcome

    def _judge(self, name: str, size: int, request: GrowthRequest, now_utc: datetime | None) -> GrowthOutcome:
        granted = self._under_lock.growths().granted(name)
        if size <= granted:
            return GrowthOutcome(GrowthVerdict.ADMITTED, name, size)
        try:
            for replica in self._world.replicas_of(name) if self._world.allocated.counts else ():
                check_one_place(self._world, replica)
        except PreconditionError as error:
            unclear = Obstacle("", "", 0, Rejection(Reason.DISK_NOT_FOUND, str(error)))
            return GrowthOutcome(GrowthVerdict.TRY_AGAIN, name, size, granted, (unclear,))
        ledger, route = self._under_lock.ledger(), request.route
        plan = plan_growth(self._world, ledger, name, size, self._clock, now_utc, route)
        # Longhorn's webhook for volumes refuses what cannot be now; a claim's growth is tried again until it can.
        obstacles = plan.obstacles or (plan.not_yet if route is Route.VOLUME else ())
        if obstacles:
            self._count("expansions_refused", request)
            largest = plan.largest_bytes if plan.obstacles else granted
            return GrowthOutcome(GrowthVerdict.REFUSED, name, size, largest, obstacles, plan.is_largest)
        if self.is_unknown_locked():
            self._count("expansions_put_off", request)
            return GrowthOutcome(GrowthVerdict.TRY_AGAIN, name, size, granted, (Obstacle("", "", 0, LEADER_CHANGED),))
        self._count("expansions_admitted", request)
        return GrowthOutcome(GrowthVerdict.ADMITTED, name, size, obstacles=plan.not_yet)

    def _count(self, counter: str, request: GrowthRequest) -> None:
        if not request.is_dry_run:
            self._journal.counters[counter] += 1

    def _resolve(self, request: GrowthRequest) -> Volume | Missing | None:
        """The Longhorn volume, as Longhorn shows it; None if the volume is not Longhorn's."""
        world, handle = self._world, request.volume
        if request.claim:
            pv = world.pv(request.volume)
            if pv is None:
                return Missing("pv", "", request.volume)
            if pv.driver not in LONGHORN_DRIVERS:
                return None
            handle = pv.handle
        return world.volumes.get(handle) or Missing("volume", "", handle)

    def _keep(self, volume: Volume, size_bytes: int) -> None:
        """Hold what the cluster does not ask for yet, unless the volume's last hold was for nothing."""
        if self._under_lock.growths().hold(volume.name, size_bytes, self._clock.now()):
            self._under_lock.settle(volume.name)

    def is_unknown_locked(self) -> bool:
        """Whether the previous leader may have admitted expansions that are not visible yet."""
        return self._clock.now() < self._unknown_until

    def begin_term_locked(self, *, has_predecessor: bool) -> None:
        """What the leader before has admitted is not known until it is stored and seen. Costs: nothing."""
        self._unknown_until = self._clock.now() + UNKNOWN_SECONDS if has_predecessor else -math.inf
