"""Random worlds with a leader, a Longhorn and pods, as histories; and leaders that have a fault.

Nothing here is the product's: it is the simplest leader that keeps the rules, so that the judge can be shown both kinds
of history. Sizes are GiB; every node has one disk.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.judge.chronicle import LONGHORN, Chronicle

NODES = 6
DISK = 100
STEPS = 150
STEAL_SECONDS = 8.0  # from then on a further copy may take planned bytes
HELD_SECONDS = 300.0
SILENT_SECONDS, YOUNG_SECONDS = 46.0, 31.0  # a second more than the gate's: stamps are whole seconds


class LeaderFault(Enum):
    FORGETS_BYTES = "does not count what was placed within the last minute"
    FORGETS_MARKS = "never marks a copy as held"
    LOADS_NO_PLANS = "begins a term without the plans that are stored"
    NO_RECHECK = "places where it once chose, whatever has happened since"
    NO_GATE = "nobody is refused"


@dataclass(slots=True)
class UnplacedCopy:
    """A copy without a place."""

    name: str
    volume: str
    size: int
    since: float
    chosen: str = ""  # the disk, when it appeared
    is_held: bool = False
    was_held: bool = False


class RandomWorld:
    """One world; `run` writes its history. Threads: one."""

    def __init__(self, seed: int, fault: LeaderFault | None = None) -> None:
        self.told, self.fault = Chronicle(), fault
        self._dice = random.Random(seed)
        self._limits = {f"n{number}-0": DISK for number in range(NODES)}
        self._sizes: dict[str, int] = {}  # of volumes
        self._placed: dict[str, tuple[str, str, float]] = {}  # copy -> volume, disk, when
        self._waiting: dict[str, UnplacedCopy] = {}
        self._plans: dict[str, list[str]] = {}  # volume -> disks; what the leader has in memory
        self._number = 0

    def run(self) -> list[dict[str, Any]]:
        for disk in self._limits:
            self.told.node(disk.removesuffix("-0"), DISK)
        self.told.lead("term-0")
        steps = [self._ask, self._ask, self._unasked, self._rebuild, self._delete, self._limit, self._appear]
        for _ in range(STEPS):
            self._dice.choice(steps)()
            if self._dice.random() < 0.04:
                self._change_leader()
            self.told.live(self._dice.choice((0.2, 1.0, 4.0, 12.0)))
            self._lead()
            self._longhorn()
        return self.told.entries

    # -- what happens --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """A pod is let through if its volume finds room; its copies appear later."""
        size, copies = self._dice.randint(5, 30), self._dice.choice((1, 1, 2))
        name = self._new_volume(size)
        disks = self._choose(name, copies)
        if len(disks) == copies:
            self._plan(name, disks)
        else:
            self._forget(name)

    def _unasked(self) -> None:
        self._make_copy(self._new_volume(self._dice.randint(5, 30)))

    def _appear(self) -> None:
        for volume, disks in list(self._plans.items()):
            if not any(one.volume == volume for one in self._waiting.values()) and self._dice.random() < 0.5:
                for _ in disks:
                    self._make_copy(volume)

    def _rebuild(self) -> None:
        if self._placed:
            volume, _, _ = self._placed[self._dice.choice(sorted(self._placed))]
            self._make_copy(volume)

    def _delete(self) -> None:
        if self._sizes:
            self._forget(self._dice.choice(sorted(self._sizes)))
            self._plan_anew()

    def _limit(self) -> None:
        disk = self._dice.choice(sorted(self._limits))
        self._limits[disk] = self._dice.choice((DISK, DISK, 70))
        self.told.node(disk.removesuffix("-0"), self._limits[disk])
        if self.fault is not LeaderFault.NO_RECHECK:
            self._plan_anew()

    def _change_leader(self) -> None:
        for _ in range(self._dice.choice((2, 10, 60))):
            self.told.wait(1.0)
            self._longhorn()
        self._number += 1
        self.told.lead(f"term-{self._number}")
        if self.fault is LeaderFault.LOADS_NO_PLANS:
            self._plans.clear()
        self._plan_anew()

    # -- the leader ----------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        if self.fault is not LeaderFault.NO_RECHECK:
            self._plan_anew()
        for one in self._dice.sample(list(self._waiting.values()), len(self._waiting)):
            self._place(one)

    def _place(self, one: UnplacedCopy) -> None:
        planned = [disk for disk in self._plans.get(one.volume, ()) if disk not in self._disks_of(one.volume)]
        if self.fault is LeaderFault.NO_RECHECK:
            disk = next(iter(planned), one.chosen)
        else:
            disk = next(iter(planned or self._choose(one.volume, 1)), "")
        is_further = bool(self._disks_of(one.volume))
        if not disk and is_further and self.told.now - one.since > STEAL_SECONDS:
            disk = next(iter(self._choose(one.volume, 1, spares_plans=False)), "")
        if disk:
            self._store_place(one, disk, "")
            if disk in self._plans.get(one.volume, ()):
                self._plan(one.volume, [other for other in self._plans[one.volume] if other != disk])
            self._plan_anew()
        elif not is_further:
            self._hold(one)

    def _hold(self, one: UnplacedCopy) -> None:
        """For five minutes."""
        if one.is_held and self.told.now - one.since > HELD_SECONDS:
            one.is_held = False
            self.told.mark(one.name, "held", off=True)
        elif not one.was_held and self.fault is not LeaderFault.FORGETS_MARKS:
            one.is_held = one.was_held = True
            self.told.mark(one.name, "held")

    def _plan_anew(self) -> None:
        """Where a disk keeps more than it has, plans move or end."""
        for volume, disks in list(self._plans.items()):
            good = [disk for disk in disks if self._free(disk) >= 0]
            if good != disks:
                self._plan(volume, good)
                self._plan(volume, good + self._choose(volume, len(disks) - len(good)))

    def _plan(self, volume: str, disks: list[str]) -> None:
        self._plans[volume] = disks
        if not disks:
            del self._plans[volume]
        self.told.plan(volume, [(disk, self._sizes[volume]) for disk in disks])

    def _choose(self, volume: str, copies: int, *, spares_plans: bool = True) -> list[str]:
        """The emptiest disks with room that no copy of the volume has or will have."""
        size, avoided = self._sizes[volume], {*self._disks_of(volume), *self._plans.get(volume, ())}
        free = {disk: self._free(disk) if spares_plans else self._hard(disk) for disk in self._limits}
        disks = [disk for disk in self._limits if disk not in avoided and free[disk] >= size]
        return sorted(disks, key=lambda disk: -free[disk])[:copies]

    def _hard(self, disk: str) -> int:
        forgets = self.fault is LeaderFault.FORGETS_BYTES
        return self._limits[disk] - sum(
            self._sizes[volume]
            for volume, where, at in self._placed.values()
            if where == disk and not (forgets and at > self.told.now - 60)
        )

    def _free(self, disk: str) -> int:
        return self._hard(disk) - sum(self._sizes[v] for v, disks in self._plans.items() if disk in disks)

    # -- Longhorn ------------------------------------------------------------------------------------------------

    def _longhorn(self) -> None:
        """It places whatever the gate lets it place, where it sees room."""
        for one in list(self._waiting.values()):
            away = self.told.now - self.told.renewed_at
            had = self.told.renewed_at - max(one.since, self.told.since_at)
            may = away > SILENT_SECONDS or (not one.is_held and had > YOUNG_SECONDS)
            disks = [disk for disk in self._limits if disk not in self._disks_of(one.volume)]
            room = [disk for disk in disks if self._room(disk) >= one.size]
            if room and (may or self.fault is LeaderFault.NO_GATE):
                self._store_place(one, self._dice.choice(room), LONGHORN)

    def _room(self, disk: str) -> int:
        return self._limits[disk] - sum(self._sizes[v] for v, where, _ in self._placed.values() if where == disk)

    # -- objects -------------------------------------------------------------------------------------------------

    def _new_volume(self, size: int) -> str:
        self._number += 1
        name = f"v{self._number}"
        self.told.volume(name, size, copies=0)
        self._sizes[name] = size
        return name

    def _make_copy(self, volume: str) -> None:
        self._number += 1
        name = self.told.replica(volume, f"{volume}-r{self._number}")
        chosen = next(iter(self._choose(volume, 1)), "")
        self._waiting[name] = UnplacedCopy(name, volume, self._sizes[volume], self.told.now, chosen)

    def _store_place(self, one: UnplacedCopy, disk: str, by: str) -> None:
        del self._waiting[one.name]
        self._placed[one.name] = one.volume, disk, self.told.now
        self.told.place(one.name, disk, by)

    def _forget(self, volume: str) -> None:
        """The volume goes, with all that it had."""
        names = [name for name, (of, _, _) in self._placed.items() if of == volume]
        names += [name for name, one in self._waiting.items() if one.volume == volume]
        for name in names:
            self._placed.pop(name, None)
            self._waiting.pop(name, None)
            self.told.remove("Replica", name)
        self.told.remove("Volume", volume)
        if volume in self._plans:
            self._plan(volume, [])
        del self._sizes[volume]

    def _disks_of(self, volume: str) -> list[str]:
        return [disk for of, disk, _ in self._placed.values() if of == volume]
