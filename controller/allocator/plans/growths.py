"""Volumes that grow, and the bytes that they will take on the disks that hold them: on all of these, or on none.

A growth is *held* when an expansion was admitted and the cluster does not ask for that size yet. It is *asked for* when
the claim's request exceeds the volume, or the volume exceeds its replicas: then Longhorn grows it as soon as it can.
The latter follows from the facts whenever they change, so that a follower and a new leader know it as well.

Nothing in an admission review proves who sent it. An expansion that is meant is stored, nearly always in a moment. So a
hold has one end, counted from its first review, which further reviews do not move. After a hold that ended in vain the
volume is judged as ever, and for a while nothing is held for it: a forged review takes room once, and never keeps an
owner from growing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.plans.journal import ClaimEvent, ClaimEventKind, Journal
from controller.allocator.world.world import World
from controller.model.longhorn import Volume
from controller.rules.expandable import GrowthCase, Lasting, check_expandable
from controller.rules.growth import most_if_empty

STORE_SECONDS: Final = 5.0  # within which nearly every admitted growth is stored; then the API server is read
HOLD_SECONDS: Final = 60.0  # from the first review; longer than the API server's own deadline for a request
MOST_HELD_SECONDS: Final = 300.0  # after which a hold ends although the API server cannot be read
UNSTORED_SECONDS: Final = 600.0  # for which an expansion that was admitted and never stored is remembered


@dataclass(frozen=True, slots=True)
class Growth:
    """A volume that is to have `size_bytes`. `on_disks`: node, disk UUID and bytes by which each copy grows.

    `is_held`: the cluster does not ask for that size yet; a live read is due at `until`. `was_admitted`: by this
    leader. `is_certain`: it is known who asked.
    """

    volume: str
    size_bytes: int
    on_disks: tuple[tuple[str, str, int], ...]
    is_held: bool
    since: float
    until: float | None = None
    was_admitted: bool = False
    is_certain: bool = False


class Growths:
    """All growths, one for each volume. Threads: none of its own; the allocator's lock guards it."""

    world: World  # whose volumes grow; it asks this class as well, so it is set once both are made

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._growths: dict[str, Growth] = {}
        self._on_disk: dict[str, dict[str, int]] = {}  # disk UUID -> volume -> bytes more
        self._unstored: dict[str, tuple[int, float]] = {}  # volume -> size, until when it is remembered; in that order

    def copy(self) -> Growths:
        """Return a copy for questions on a copy of the world, which the caller sets."""
        other = Growths(Journal())
        other._growths = self._growths.copy()
        other._on_disk = {uuid: members.copy() for uuid, members in self._on_disk.items()}
        return other

    # As the world asks

    def target_of(self, volume: str) -> int:
        """Return the size that the volume is to have; 0 if it does not grow."""
        growth = self._growths.get(volume)
        return 0 if growth is None else growth.size_bytes

    def grows_on(self, disk_uuid: str) -> bool:
        return disk_uuid in self._on_disk

    # Questions

    def all(self) -> list[Growth]:
        return list(self._growths.values())

    def held(self) -> list[Growth]:
        """Return the growths that were admitted and that the cluster does not ask for yet."""
        return [growth for growth in self._growths.values() if growth.is_held]

    def get(self, name: str) -> Growth | None:
        return self._growths.get(name)

    def granted(self, name: str) -> int:
        """Return the size to which the volume may grow at any moment; 0 for an unknown volume."""
        volume = self.world.volumes.get(name)
        return 0 if volume is None else max(volume.size_bytes, self.target_of(name))

    def growing_by(self, disk_uuid: str) -> Iterable[tuple[str, int]]:
        """Return the volumes whose copies on that disk grow, each with the bytes more."""
        return self._on_disk.get(disk_uuid, {}).items()

    # Reviews

    def hold(self, name: str, size_bytes: int, now: float, *, is_certain: bool = False) -> bool:
        """Hold an expansion to that size, which was admitted; return whether more is granted than before. `is_certain`:
        it is known who asks, so that its time begins anew, whatever was never stored before."""
        held = self._held(name)
        if is_certain and held is not None and size_bytes <= held.size_bytes:
            self._growths[name] = replace(held, since=now, until=now + STORE_SECONDS)
        if size_bytes <= self.granted(name):
            return False
        volume, held = self.world.volumes[name], None if is_certain else held
        if not is_certain and self._is_unstored(name, now):
            self._tell(ClaimEventKind.GROWTH_NOT_HELD, volume, size_bytes, 0, "")
            return False
        since, until = (now, now + STORE_SECONDS) if held is None else (held.since, held.until)  # its time goes on
        return self._put(Growth(name, size_bytes, self._more(volume, size_bytes), True, since, until, True, is_certain))

    def look(self, name: str, now: float) -> bool:
        """Note that a live read after `until` did not show the held growth; return whether its time is over for
        good."""
        held = self._held(name)
        if held is None or held.until is None or now < held.until:
            return False
        end = held.since + HOLD_SECONDS
        if now < end:
            self._growths[name] = replace(held, until=end)
        return now >= end

    def _held(self, name: str) -> Growth | None:
        growth = self._growths.get(name)
        return growth if growth is not None and growth.is_held else None

    def _is_unstored(self, name: str, now: float) -> bool:
        """Whether an expansion of that volume was held not long ago and never stored."""
        while self._unstored and self._unstored[first := next(iter(self._unstored))][1] <= now:
            del self._unstored[first]
        return name in self._unstored

    def _note_stored(self, name: str, size_bytes: int) -> None:
        """Forget an expansion that was never stored, once the cluster asks for its size: it was meant."""
        if self._unstored.get(name, (math.inf, 0.0))[0] <= size_bytes:
            del self._unstored[name]

    # Facts

    def settle(self, name: str, now: float, *, ends_hold: bool = False) -> bool:
        """Bring the volume's growth in line with the facts; return whether the granted size changed. `ends_hold`: end
        what was admitted and does not show."""
        volume, old = self.world.volumes.get(name), self.get(name)
        if volume is None:
            return self._drop(name)
        asked = self.world.asked_bytes(volume)
        if asked > volume.size_bytes and not self._can_be(volume, asked, old):
            asked = volume.size_bytes
        self._note_stored(name, asked)
        if old is not None and old.is_held and old.size_bytes > asked:
            if not ends_hold:
                return self._put(replace(old, on_disks=self._more(volume, old.size_bytes)))
            if not old.is_certain:
                self._unstored[name] = old.size_bytes, now + UNSTORED_SECONDS
        if asked > volume.size_bytes or (self._is_behind(name, asked) and self._can_be(volume, asked, old)):
            since = old.since if old is not None and not old.is_held else now
            more, was_admitted = self._more(volume, asked), _was_admitted(old, asked)
            return self._put(Growth(name, asked, more, False, since, was_admitted=was_admitted))
        return self._drop(name)

    def clear(self) -> bool:
        """End all growths; return whether any was held that the cluster does not ask for."""
        is_unseen = bool(self.held())
        for name in list(self._growths):
            self._drop(name)
        self._unstored.clear()
        return is_unseen

    def _can_be(self, volume: Volume, size_bytes: int, old: Growth | None) -> bool:
        """Whether every disk that holds the volume could take that size, for which the cluster asks: if the leader
        admitted it, were the disk otherwise empty; else by its figures of now. While one cannot, Longhorn does not grow
        the volume, so that its growth takes no room; nor does that of a volume that never grows. The owner is told."""
        if size_bytes > volume.size_bytes and self._is_barred(volume, size_bytes):
            return False
        was_admitted = _was_admitted(old, size_bytes)
        placed = [entry for entry in self.world.replicas_of(volume.name).values() if entry.node]
        for node, uuid in dict.fromkeys((entry.node, entry.disk_uuid) for entry in placed):
            sizes = [entry.size_bytes for entry in placed if entry.disk_uuid == uuid]
            disk = self.world.disk(node, uuid)
            limit = most_if_empty(disk, self.world.settings.space) if disk is not None else None
            if disk is None or limit is None:
                continue
            where, count = f"{node}, {disk.name}", len(sizes)
            if count * size_bytes > limit:
                self._tell(ClaimEventKind.GROWS_TOO_FAR, volume, size_bytes, limit // count, where)
                return False
            most = max(0, limit - disk.scheduled_bytes) + sum(sizes)
            if not was_admitted and count * size_bytes > most:
                self._tell(ClaimEventKind.GROWS_LATER, volume, size_bytes, most // count, where)
                return False
        return True

    def _is_barred(self, volume: Volume, size_bytes: int) -> bool:
        """Whether Longhorn never gives the volume that size, for another reason than room."""
        replicas = tuple(self.world.replicas_of(volume.name).values())
        disks = {(entry.node, entry.disk_uuid) for entry in replicas if entry.node}
        shown = ((node, self.world.disk(node, uuid)) for node, uuid in sorted(disks))
        known = tuple((node, disk) for node, disk in shown if disk is not None)
        found = check_expandable(GrowthCase(volume, replicas, known, size_bytes, self.world.settings.behaviour))
        if found is None or found.lasting is not Lasting.NEVER:
            return False
        self._tell(ClaimEventKind.NEVER_GROWS, volume, size_bytes, volume.size_bytes, found.rejection.message)
        return True

    def _is_behind(self, name: str, size_bytes: int) -> bool:
        """Whether a replica of the volume is smaller."""
        return any(entry.size_bytes < size_bytes for entry in self.world.replicas_of(name).values())

    def is_so(self, event: ClaimEvent, name: str) -> bool:
        """Whether what is told of that volume's growth still holds: its size is not stored, or it is, and the volume
        neither has it nor is to have it."""
        volume, size = self.world.volumes.get(name), event.asked_bytes
        asked = 0 if volume is None else self.world.asked_bytes(volume)
        if volume is None or event.kind is ClaimEventKind.GROWTH_NOT_HELD:
            return volume is not None and asked < size
        return asked == size > self.target_of(name) and (size > volume.size_bytes or self._is_behind(name, size))

    def _tell(self, kind: ClaimEventKind, volume: Volume, asked_bytes: int, most_bytes: int, where: str) -> None:
        claim = self.world.claim_of_volume(volume.name)
        if claim is not None:
            self._journal.tell(kind, claim, asked_bytes, most_bytes, where)

    # Entries

    def _more(self, volume: Volume, size_bytes: int) -> tuple[tuple[str, str, int], ...]:
        """Node, disk UUID and the bytes more of each placed copy."""
        return tuple(
            (entry.node, entry.disk_uuid, size_bytes - entry.size_bytes)
            for entry in self.world.replicas_of(volume.name).values()
            if entry.node and entry.size_bytes < size_bytes
        )

    def _put(self, growth: Growth) -> bool:
        """Enter the growth; return whether the granted size changed."""
        old = self._growths.get(growth.volume)
        if growth == old:
            return False
        before = self._unlink(growth.volume)
        self._growths[growth.volume] = growth
        for _, uuid, more in growth.on_disks:
            members = self._on_disk.setdefault(uuid, {})
            members[growth.volume] = members.get(growth.volume, 0) + more
        self.world.growth_changed(growth.volume, before | {uuid for _, uuid, _ in growth.on_disks})
        return old is None or old.size_bytes != growth.size_bytes

    def _drop(self, name: str) -> bool:
        """End the volume's growth; return whether there was one."""
        if name not in self._growths:
            return False
        self.world.growth_changed(name, self._unlink(name))
        return True

    def _unlink(self, name: str) -> set[str]:
        """Take the volume's growth out; return the UUIDs of its disks."""
        old = self._growths.pop(name, None)
        uuids = {uuid for _, uuid, _ in old.on_disks} if old is not None else set[str]()
        for uuid in uuids:
            del self._on_disk[uuid][name]
            if not self._on_disk[uuid]:
                del self._on_disk[uuid]
        return uuids


def _was_admitted(growth: Growth | None, size_bytes: int) -> bool:
    return growth is not None and growth.was_admitted and size_bytes <= growth.size_bytes
