"""Growth of volumes, admitted one after the other and held until Longhorn shows it.

One growth is asked for up to three times: for the claim, for the claim again when Longhorn's API grows it, and for the
Longhorn volume. It is one hold, of the largest size admitted, by volume: whatever was granted once is granted at every
size up to it. What the cluster itself asks for (a claim's request beyond its PV, a volume larger than its replicas)
counts as granted without having been admitted: Longhorn will take it when it can.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.growth import GrowthPlan, GrowthQuestion, plan_growth
from controller.allocator.choose.wanted import copy_bytes
from controller.allocator.outcome import Obstacle
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.journal import Journal
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import CallerGoneError
from controller.model.longhorn import Volume
from controller.model.names import LONGHORN_DRIVERS
from controller.model.places import Place
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
    """The size, not rounded, that a claim, or without one ("" both) a Longhorn volume, is to have. `volume`: the PV of
    the claim, or the Longhorn volume."""

    volume: str
    size_bytes: int
    claim_namespace: str = ""
    claim_name: str = ""
    is_dry_run: bool = False

    @property
    def route(self) -> Route:
        return Route.CLAIM if self.claim_name else Route.VOLUME


@dataclass(frozen=True, slots=True)
class GrowthOutcome:
    """The answer to a growth request. `volume`: Longhorn's. `size_bytes`: as Longhorn rounds it. `obstacles`: why the
    growth is refused, or what an admitted one has to wait for. Of a refusal, `largest_bytes` is the largest size that
    fits, or, unless `is_largest`, the largest that was found in time."""

    verdict: GrowthVerdict
    volume: str = ""
    size_bytes: int = 0
    largest_bytes: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    is_largest: bool = True


@dataclass(slots=True)
class Caller:
    """The client that waits for the answer. Threads: any may tell that it has left."""

    has_left: bool = False

    def leave(self) -> None:
        self.has_left = True


class Expansions:
    """The allocator's part that deals with growth, behind the allocator's own lock.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        clock: Clock,
        world: World,
        table: Table,
        growths: Growths,
        chooser: Chooser,
        journal: Journal,
        is_active: Callable[[], bool],
        settle: Callable[[str], None],
    ) -> None:
        """`is_active` and `settle` are called under the lock. `is_active`: whether growth is checked at all. `settle`
        brings the plan of a volume to the size that it was granted."""
        self._lock, self._clock, self._world = lock, clock, world
        self._table, self._growths, self._chooser, self._journal = table, growths, chooser, journal
        self._is_active, self._settle = is_active, settle
        self._unknown_until = -math.inf  # when all that the leader before has admitted is seen, or never stored

    def missing(self, request: GrowthRequest) -> Missing | None:
        """The object that our stores lack to answer the request, None if they have all. The caller reads it live before
        it calls `hold`, which takes what is missing for absent. Costs: two look-ups."""
        with self._lock:
            found = self._resolve(request)
            return found if isinstance(found, Missing) else None

    def hold(
        self,
        request: GrowthRequest,
        now_utc: datetime | None = None,
        caller: Caller | None = None,
    ) -> GrowthOutcome:
        """Decide whether the volume may grow to that size and, if it may, hold the growth, in one step. A dry run holds
        nothing. Raises CallerGoneError, and holds nothing, if the `caller` has left before its turn.

        Costs: as `plan_growth`."""
        with self._lock:
            if caller is not None and caller.has_left:
                raise CallerGoneError("the caller no longer waits for the answer")
            found = self._resolve(request) if self._is_active() else None
            if not isinstance(found, Volume):
                return GrowthOutcome(GrowthVerdict.NOT_CHECKED)
            name, size = found.name, rounded_volume_bytes(request.size_bytes)
            outcome = self._judge(name, size, request, now_utc)
            if outcome.verdict is GrowthVerdict.ADMITTED and not request.is_dry_run:
                self.grant_locked(name, size, is_certain=False)
            return outcome

    def _judge(self, name: str, size: int, request: GrowthRequest, now_utc: datetime | None) -> GrowthOutcome:
        granted = self._growths.granted(name)
        if size <= granted:
            return GrowthOutcome(GrowthVerdict.ADMITTED, name, size)
        plan = self.plan_locked(name, size, request.route, now_utc)
        # Longhorn's webhook for volumes refuses what cannot be now; a claim's growth is tried again until it can.
        obstacles = plan.obstacles or (plan.not_yet if request.route is Route.VOLUME else ())
        if obstacles:
            self._count("expansions_refused", request)
            largest = plan.largest_bytes if plan.obstacles else granted
            return GrowthOutcome(GrowthVerdict.REFUSED, name, size, largest, obstacles, plan.is_largest)
        if self.is_unknown_locked():
            self._count("expansions_put_off", request)
            return GrowthOutcome(GrowthVerdict.TRY_AGAIN, name, size, granted, (Obstacle("", "", 0, LEADER_CHANGED),))
        self._count("expansions_admitted", request)
        return GrowthOutcome(GrowthVerdict.ADMITTED, name, size, obstacles=plan.not_yet)

    def plan_locked(self, name: str, size_bytes: int, route: Route, now_utc: datetime | None = None) -> GrowthPlan:
        """Plan how that volume, which exists, grows beyond what it was granted. Costs: as `plan_growth`."""
        taken, planned = Beside(self._table, (name,)), places_to_come(self._table, name)
        question = GrowthQuestion(name, size_bytes, taken, planned, route)
        return plan_growth(self._world, self._chooser, self._growths, question, self._clock, now_utc)

    def _count(self, counter: str, request: GrowthRequest) -> None:
        if not request.is_dry_run:
            self._journal.counters[counter] += 1

    def _resolve(self, request: GrowthRequest) -> Volume | Missing | None:
        """The Longhorn volume, as Longhorn shows it; None for a PV of another driver."""
        world, handle = self._world, request.volume
        if request.claim_name:
            pv = world.pv(request.volume)
            if pv is None:
                return Missing("pv", "", request.volume)
            if pv.driver not in LONGHORN_DRIVERS:
                return None
            handle = pv.handle
        return world.volumes.get(handle) or Missing("volume", "", handle)

    def grant_locked(self, volume: str, size_bytes: int, *, is_certain: bool = True) -> None:
        """Hold that growth, as `Growths.hold`, and make what is held and planned for the volume as large."""
        if self._growths.hold(volume, size_bytes, self._clock.now(), is_certain=is_certain):
            resize_holds(self._world, self._table, volume)
            self._settle(volume)

    def is_unknown_locked(self) -> bool:
        """Whether the previous leader may have admitted expansions that are not visible yet."""
        return self._clock.now() < self._unknown_until

    def begin_term_locked(self, *, has_predecessor: bool) -> None:
        """Admit nothing new for `UNKNOWN_SECONDS` if the leader before may have admitted growth that nobody sees yet.
        Costs: nothing."""
        self._unknown_until = self._clock.now() + UNKNOWN_SECONDS if has_predecessor else -math.inf


def places_to_come(table: Table, volume: str) -> tuple[Place, ...]:
    """Where copies of the volume may come: all that its plan and holds name, a disk as often as the one of them that
    names it most often."""
    by_holder = [table.places(volume), *(hold.places_of(volume) for hold in table.holding(volume))]
    found: dict[tuple[str, str], list[Place]] = {}
    for places in by_holder:
        here: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            here.setdefault((place.node, place.disk_uuid), []).append(place)
        found.update((disk, some) for disk, some in here.items() if len(some) > len(found.get(disk, ())))
    return tuple(place for some in found.values() for place in some)


def resize_holds(world: World, table: Table, name: str) -> None:
    """Make the places that pods hold for that volume as large as the volume is to be. Costs: a look at each place of
    those holds."""
    volume = world.volume(name)
    if volume is None:
        return

    def sized(place: Place, before: Collection[Place] = ()) -> Place:
        return replace(place, size_bytes=copy_bytes(world, volume, before, place.disk_uuid))

    for hold in table.holding(name):
        nodes = hold.nodes and {
            node: {**places, name: sized(places[name])} if name in places else places
            for node, places in hold.nodes.items()
        }
        roaming: list[Place] = []
        for place in hold.anywhere.get(name, ()):
            roaming.append(sized(place, roaming))
        anywhere = {**hold.anywhere, name: tuple(roaming)} if roaming else hold.anywhere
        resized = replace(hold, nodes=nodes, anywhere=anywhere)
        if resized != hold:
            table.put_hold(resized)
