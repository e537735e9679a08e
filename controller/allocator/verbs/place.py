"""Decides on which disk a Replica without a node goes; the decision is made under the lock, and the placer writes it.

A decision counts at once: the world shows the copy on its disk from then on, whatever older events the watch delivers.
That ends when the stored copy is seen, or when the write is known to have failed. So no byte is given twice, and nobody
who asks what a disk holds need know of writes that are under way.

Which bytes a copy may take:

- a first copy, of a volume without any placed copy, failed or not: free ones. Without room it is held back from
  Longhorn for `HOLD_SECONDS` at most, and its pod is told;
- a further copy, and one whose planned place was lost: free ones; at once planned ones where every plan that has to
  leave finds another place; after `BESIDE_SECONDS` any within the disk's limit: redundancy goes before promises then.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.legal import legal
from controller.allocator.choose.wanted import NothingTaken, Plus, Wanted, check_image, view_of
from controller.allocator.outcome import PlaceWrite, ReplicaTurn, TakenBytes, TurnStep, WaitReason
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.given import OwnWrite
from controller.allocator.plans.journal import Journal
from controller.allocator.plans.table import Table, TableChanges
from controller.allocator.verbs.planning import Planner, bytes_on, split
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.longhorn import Replica, Volume
from controller.model.places import Place
from controller.rules.demand import is_served
from controller.rules.locality import Reach, is_left_to_longhorn, locality_of
from controller.rules.placing import (
    NotYet,
    Wait,
    check_replacement,
    check_time,
    held_seconds,
    is_replacement,
)
from controller.rules.reasons import Rejection

BESIDE_SECONDS: Final = 8.0  # that a further copy waits for free bytes, before it takes planned ones
HOLD_AFTER_SECONDS: Final = 10.0  # until then its age alone keeps Longhorn away
HOLD_SECONDS: Final = 300.0  # that a first copy without room is held, at most
CHOICE_SECONDS: Final = 2.0  # that a choice may be seen after the Replica that comes of it
LOOK_SECONDS: Final = 1.0  # between looks at what time alone changes
FAULT_SECONDS: Final = 10.0  # the same after a fault
GATE_SECONDS: Final = 10.0  # in which the gate closes, what was written before shows, and late writes have arrived
MOST_FOREIGN: Final = 100  # places of others that wait to be told


class PlaceDecisions:
    """The allocator's part that places Replicas, while it is switched on.

    Threads: any; those that end in `_locked` with the allocator's lock held. Blocks: never. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        clock: Clock,
        world: World,
        table: Table,
        chooser: Chooser,
        planner: Planner,
        journal: Journal,
        settle: Callable[[str], None],
    ) -> None:
        """`settle` is called under the lock and brings plans in line with a change of that volume's replicas."""
        self._lock, self._clock, self._world, self._table = lock, clock, world, table
        self._chooser, self._planner = chooser, planner
        self._journal, self._settle = journal, settle
        self._is_on = False
        self._numbers = count(1)
        self._writes: dict[str, OwnWrite] = {}
        self._unseen: dict[str, float] = {}  # replicas whose places are stored and not seen by the watch, since when
        self._since: dict[str, float] = {}  # by replica, since when it waits under this leader
        self._early: dict[str, str] = {}  # by replica, its mark as long as it was not room that it waited for
        self._first_at: dict[str, float] = {}  # by volume, when its first copy was placed
        self._on_since = -math.inf
        self._foreign = deque[Replica](maxlen=MOST_FOREIGN)  # with the places that somebody else gave them

    # Terms and modes

    @property
    def is_on(self) -> bool:
        """Whether Replicas are placed here now. Costs: nothing."""
        with self._lock:
            return self._is_on

    def switch_locked(self, *, on: bool, forgets: bool) -> None:
        """Switch placing on or off. `forgets`: the term is over, and writes under way are for the next leader to see;
        otherwise they count until their ends are known. Costs: if that changes anything, a look at each write."""
        if on is not self._is_on:
            self._is_on = on
            if on:
                self._on_since = self._clock.now()
                for entries in (self._unseen, self._since, self._early, self._first_at):
                    entries.clear()
        if forgets:
            for name in list(self._writes):
                self._revert(name)

    # Plans

    def take_changes(self) -> TableChanges:
        """Changes of plans and holds since the last call, to be stored. Costs: what changed."""
        with self._lock:
            return self._table.take_changes()

    # What the watch shows

    def show_locked(self, name: str, facts: Replica | None) -> Replica | None:
        """The Replica as the world is to have it, after an event of the watch."""
        own = self._writes.get(name)
        before = self._world.replicas.get(name)
        if facts is None or facts.node:
            self._unseen.pop(name, None)
            self._since.pop(name, None)
            self._early.pop(name, None)
        if facts is None and before is not None and len(self._world.replicas_of(before.volume)) == 1:
            self._first_at.pop(before.volume, None)  # it was the volume's last one
        if own is not None and facts is not None and facts.uid == own.shown.uid and not facts.node:
            own.shown = facts
            return own.placed()
        if own is not None:
            self._end_write(name)
        if self._is_on and before is not None and facts is not None and facts.node and before.uid == facts.uid:
            self._note_first(before, facts, own)
        return facts

    def _note_first(self, before: Replica, facts: Replica, own: OwnWrite | None) -> None:
        """Count a first place that somebody else gave the Replica. In the first seconds everybody was free to: the gate
        may not have stood yet, or the leader before wrote it."""
        if own is not None and (facts.node, facts.disk_uuid) == (own.write.place.node, own.write.place.disk_uuid):
            return
        if own is None and before.node:
            return
        if before.is_left or self._clock.now() - self._on_since < GATE_SECONDS:
            self._journal.counters["foreign_placements_left"] += 1
        else:
            self._journal.counters["foreign_placements"] += 1
            self._foreign.append(facts)

    def take_foreign(self) -> list[Replica]:
        """Replicas that somebody other than the leader has placed since the last call. Costs: nothing."""
        with self._lock:
            found = list(self._foreign)
            self._foreign.clear()
        return found

    def unseen_seconds(self) -> float:
        """Seconds for which the watch has owed us the oldest place that is stored; 0 if it owes none. Costs: a look at
        each."""
        with self._lock:
            return self._clock.now() - min(self._unseen.values(), default=self._clock.now())

    # Decisions

    def turn_of(self, name: str, now_utc: datetime) -> ReplicaTurn:
        """What the placer has to do with that Replica now. A place in it counts from now on; `stored` or `failed` has
        to tell what became of it. Costs: as `choose`, a few times at most."""
        with self._lock:
            replica = self._world.replicas.get(name)
            if not self._is_on or replica is None:
                return ReplicaTurn(TurnStep.NOTHING)
            if name in self._writes:
                return ReplicaTurn(TurnStep.WAIT, replica.volume, replica.uid, WaitReason.WRITTEN, LOOK_SECONDS)
            if replica.node:
                return ReplicaTurn(TurnStep.NOTHING)
            try:
                return self._turn(replica, now_utc)
            except Exception:  # fault barrier: Longhorn places this one
                if name in self._writes:
                    self._revert(name)
                turn = self._let_go(replica, WaitReason.FAULT, FAULT_SECONDS)
                return replace(turn, fault=traceback.format_exc())

    def _turn(self, replica: Replica, now_utc: datetime) -> ReplicaTurn:
        now = self._clock.now()
        self._since.setdefault(replica.name, now)
        volume = self._world.volume(replica.volume)
        if volume is None:
            return self._let_go(replica, WaitReason.NO_VOLUME)
        if replica.is_left:
            return self._wait(replica, WaitReason.LEFT)
        not_yet = self._check_time(volume, replica, now_utc)
        if not_yet is not None and not_yet.wait in (Wait.DELETED, Wait.FAILED, Wait.INACTIVE):
            return self._let_go(replica, not_yet.wait)
        if is_left_to_longhorn(volume):
            return ReplicaTurn(TurnStep.LEAVE, volume.name, replica.uid, WaitReason.LEFT)
        if not_yet is not None and not self._is_early(volume, not_yet):
            return self._not_yet(volume, replica, not_yet)
        found = self._planned(volume, replica, now_utc)
        if found is None and not_yet is not None:
            return self._not_yet(volume, replica, not_yet)
        if found is None and self._may_be_chosen(volume, replica):
            return self._wait(replica, WaitReason.NOT_CHOSEN, CHOICE_SECONDS)
        found = found or self._find_unplanned(volume, replica, now_utc)
        if found is None:
            return self._no_room(volume, replica, now_utc)
        return self._give(volume, replica, *found, now_utc)

    def _check_time(self, volume: Volume, replica: Replica, now_utc: datetime) -> NotYet | None:
        not_yet = check_time(volume, replica, self._world.settings)
        if not_yet is None and is_replacement(replica):
            view = view_of(self._world, Wanted(volume, replica), now_utc, self._world.engines)
            return check_replacement(view, volume)
        return not_yet

    def _is_early(self, volume: Volume, not_yet: NotYet) -> bool:
        """Whether the Replica may be placed before its volume is attached, since a plan tells where it goes."""
        is_planned = self._table.plan(volume.name) is not None and not is_served(volume)
        return not_yet.wait is Wait.NOT_ATTACHED and is_planned

    def _may_be_chosen(self, volume: Volume, replica: Replica) -> bool:
        """Whether a pod holds a place for the volume whose choice of a node may show in a moment."""
        waited = self._clock.now() - self._since[replica.name]
        return (
            waited < CHOICE_SECONDS
            and bool(self._table.holding(volume.name))
            and not has_placed(self._world, volume.name)
        )

    def _planned(self, volume: Volume, replica: Replica, now_utc: datetime) -> tuple[Place, TakenBytes] | None:
        """A legal place of the volume's plan, which is made anew once if it has none; None without any."""
        for _ in range(2):
            plan = self._table.plan(volume.name)
            if plan is None:
                break
            for place in plan.places:
                _, others = split(plan, place.node, place.disk_uuid)
                wanted = replace(place, size_bytes=self._planner.bytes_at(volume, place, others))
                if self._check(volume, replica, wanted, others, now_utc) is None:
                    return wanted, TakenBytes.PLANNED
            self._planner.settle(volume.name, now_utc)
        return None

    def _check(
        self, volume: Volume, replica: Replica, place: Place, planned: tuple[Place, ...], now_utc: datetime
    ) -> Rejection | None:
        """Why the replica may not be put there, whatever others have planned; None if it may."""
        affinity = _affinity(volume, replica, place)
        free = self._planner.hard_bytes(place.node, place.disk_uuid) - bytes_on(planned, place.disk_uuid)
        bound = replace(replica, hard_node_affinity=affinity) if affinity else replica
        return legal(volume, bound, place, planned, self._world, free, now_utc)

    def _find_unplanned(self, volume: Volume, replica: Replica, now_utc: datetime) -> tuple[Place, TakenBytes] | None:
        """A place for a copy without a plan, on bytes that the module's docstring allows it."""
        planned = self._table.places(volume.name)
        asked, beside = Wanted(volume, replica, planned), Plus(Beside(self._table, (volume.name,)), planned)
        is_further = has_placed(self._world, volume.name, or_failed=True)
        if not is_further and check_image(self._world.backing_image(volume.backing_image)) is not None:
            return None
        found = self._chooser.choose(asked, beside, now_utc).place
        if found is not None:
            return found, TakenBytes.FREE
        if not (is_further or self._planner.has_lost(volume.name)):
            return None
        found = self._chooser.choose(asked, NothingTaken(), now_utc).place
        if found is None:
            return None
        if self._planner.make_room(found, volume.name, now_utc):
            return found, TakenBytes.MOVED
        return (found, TakenBytes.DISPLACED) if self._waited(volume, replica) >= BESIDE_SECONDS else None

    def _waited(self, volume: Volume, replica: Replica) -> float:
        """Seconds since it came under this leader, or since the first copy of its volume was placed."""
        return self._clock.now() - max(self._since[replica.name], self._first_at.get(volume.name, -math.inf))

    def _give(self, volume: Volume, replica: Replica, place: Place, how: TakenBytes, now_utc: datetime) -> ReplicaTurn:
        plan = self._table.plan(volume.name)
        others = split(plan, place.node, place.disk_uuid)[1] if plan is not None else ()
        disk = self._world.disk(place.node, place.disk_uuid)
        path = disk.path if disk is not None else ""
        if self._check(volume, replica, place, others, now_utc) is not None or not path:
            self._journal.counters["places_illegal"] += 1
            return self._let_go(replica, WaitReason.ILLEGAL)
        affinity = _affinity(volume, replica, place)
        number = next(self._numbers)
        write = PlaceWrite(
            number, replica.name, replica.uid, volume.name, place, path, affinity, bool(replica.held), how
        )
        own = self._writes[replica.name] = OwnWrite(write, replica, self._table.holding(volume.name))
        if not has_placed(self._world, volume.name):
            self._first_at[volume.name] = self._clock.now()
        if plan is not None and how is TakenBytes.PLANNED:
            self._table.lend(replica.name, plan, place)
        self._world.put_replica(replica.name, own.placed())
        self._settle(volume.name)  # who is displaced is planned anew in this step
        return ReplicaTurn(TurnStep.PLACE, volume.name, replica.uid, write=write)

    # Without a place

    def _not_yet(self, volume: Volume, replica: Replica, not_yet: NotYet) -> ReplicaTurn:
        if not_yet.wait is Wait.NOT_ATTACHED and not has_placed(self._world, volume.name):
            self._early[replica.name] = replica.held
            return self._hold(replica, Wait.NOT_ATTACHED)
        return self._let_go(replica, not_yet.wait, LOOK_SECONDS if not_yet.seconds is None else not_yet.seconds)

    def _no_room(self, volume: Volume, replica: Replica, now_utc: datetime) -> ReplicaTurn:
        if has_placed(self._world, volume.name, or_failed=True):
            return self._let_go(replica, WaitReason.NO_ROOM)
        if replica.held and self._early.get(replica.name) == replica.held:  # its time without room begins now
            return ReplicaTurn(TurnStep.HOLD, replica.volume, replica.uid, WaitReason.NO_ROOM, LOOK_SECONDS)
        if replica.held and held_seconds(replica, now_utc) >= HOLD_SECONDS:
            self._journal.counters["holds_given_up"] += 1
            return ReplicaTurn(TurnStep.LEAVE, replica.volume, replica.uid, WaitReason.NO_ROOM)
        return self._hold(replica, WaitReason.NO_ROOM)

    def _hold(self, replica: Replica, reason: str) -> ReplicaTurn:
        """The Replica waits, and Longhorn has to wait with it."""
        waited = self._clock.now() - self._since[replica.name]
        if not replica.held and waited >= HOLD_AFTER_SECONDS:
            return ReplicaTurn(TurnStep.HOLD, replica.volume, replica.uid, reason, LOOK_SECONDS)
        return self._wait(replica, reason)

    def _let_go(self, replica: Replica, reason: str, seconds: float = LOOK_SECONDS) -> ReplicaTurn:
        """The Replica waits, but Longhorn need not."""
        if replica.held:
            return ReplicaTurn(TurnStep.RELEASE, replica.volume, replica.uid, reason, seconds)
        return self._wait(replica, reason, seconds)

    def _wait(self, replica: Replica, reason: str, seconds: float = LOOK_SECONDS) -> ReplicaTurn:
        return ReplicaTurn(TurnStep.WAIT, replica.volume, replica.uid, reason, seconds)

    # What became of a write

    def stored(self, write: PlaceWrite, facts: Replica) -> None:
        """Take note that the API server has the Replica with that place. Costs: what it touches."""
        with self._lock:
            if self._is_mine(write):
                self._unseen[write.replica] = self._clock.now()
                self._end_write(write.replica)
                self._put(write.replica, facts)

    def failed(self, write: PlaceWrite, facts: Replica | None) -> None:
        """Take back the place, which was not and will not be stored. `facts`: the Replica as it is; None: it is gone.
        Costs: what it touches."""
        with self._lock:
            if self._is_mine(write):
                own = self._end_write(write.replica)
                if facts is not None and facts.node:
                    self._note_first(own.shown, facts, own)
                if facts is None or not facts.node:
                    self._table.hold_again(write.volume, own.holds)
                self._put(write.replica, facts)

    def _is_mine(self, write: PlaceWrite) -> bool:
        """Whether that decision still counts: another one of the same Replica may have taken its place since."""
        own = self._writes.get(write.replica)
        return own is not None and own.write.number == write.number

    def _put(self, name: str, facts: Replica | None) -> None:
        known = self._world.replicas.get(name)
        volume = facts.volume if facts is not None else known.volume if known is not None else ""
        self._world.put_replica(name, facts)
        self._settle(volume)

    def _end_write(self, name: str) -> OwnWrite:
        self._table.give_back(name)
        return self._writes.pop(name)

    def _revert(self, name: str) -> None:
        own = self._end_write(name)
        self._world.put_replica(name, own.shown)


def _affinity(volume: Volume, replica: Replica, place: Place) -> str:
    """The node to which the write has to bind the replica; "" for none, or if it is bound already."""
    is_bound = locality_of(volume).reach is Reach.NODE_ONLY
    return (volume.node_id or place.node) if is_bound and not replica.hard_node_affinity else ""


def has_placed(world: World, volume: str, *, or_failed: bool = False) -> bool:
    """Whether a copy of the volume is placed. `or_failed`: a failed copy is one, too. Longhorn has to detach the volume
    to bring it back."""
    there = (one for one in world.replicas_of(volume).values() if one.is_placed and one.active and not one.deleting)
    return any(or_failed or not one.failed_at for one in there)
