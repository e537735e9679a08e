"""What explains that a place holds more than its limit, and what does not.

The product promises that nobody is given bytes which an earlier visible promise or replica may take. So for every
volume that was given a yes, all that counted at that time has to fit beside it: what lay there, and what had been
promised. What came without a promise afterwards does not count for it, and explains an excess, as long as a record says
so that the caller hands in:

- a change of reach on that disk after the yes, for a replica that could not reach the disk before it;
- a lower limit or an image, up to its bytes;
- discretion, for the own volumes of a pod that was told of it, on one disk, but the largest of them;
- the tolerance for volumes that roam, unless a local volume or growth was pending on that node;
- Longhorn's own copies, and volumes of pods that never asked.

What time a yes was given is not in the history: it came before the choice shows, by no more than `CHOICE_SECONDS`, and
after there was a pod to ask for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from tests.e2e.disks_seen import CLOSED, DisksSeen, Shown
from tests.e2e.origins import Origins, Piece
from tests.e2e.world import Item, total

CHOICE_SECONDS: Final = 2.0
RECORD_SECONDS: Final = 2.0  # within which the product and the recorder see the same change
SAME_SECONDS: Final = 0.75  # within which two copies of the product record it
MORE_ROOM, OPENED, RETAGGED, REPLICA_LOST = "more-room", "opened", "retagged", "replica-lost"
LOWER_LIMIT, OWN_COPY, IMAGE = "lower-limit", "longhorn-copy", "backing-image"
REACH: Final = frozenset({MORE_ROOM, OPENED, RETAGGED, REPLICA_LOST})  # a disk that closes lets nothing in
UNASKED, REBUILD, DISCRETION, TOLERANCE = "unasked", "rebuild", "discretion", "tolerance"
ON_ITS_DISKS: Final = "judged by disk"


@dataclass(frozen=True, slots=True)
class ReachRecord:
    """An entry of `reach_changes` in the product's `/status`, with the time of its wall clock."""

    at: float
    node: str
    disk: str
    change: str
    size_bytes: int


def reach_records(status: Mapping[str, Any], now: float) -> list[ReachRecord]:
    return [
        ReachRecord(now - entry["age_seconds"], entry["node"], entry["disk"], entry["change"], entry["size_bytes"])
        for entry in status["reach_changes"]
    ]


def merged(known: Sequence[ReachRecord], new: Iterable[ReachRecord]) -> list[ReachRecord]:
    """Both in the order of time, each change once, however often and by however many copies it was shown."""
    latest: dict[tuple[str, str, str, int], float] = {}
    found = []
    for record in sorted([*known, *new], key=lambda one: one.at):
        key = (record.node, record.disk, record.change, record.size_bytes)
        if record.at - latest.get(key, -math.inf) > SAME_SECONDS:
            latest[key] = record.at
            found.append(record)
    return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """The facts that may explain an excess. Pods by uid: told of discretion, and let through to run remotely.

    `everybody_asked`: that a pod did not ask explains nothing, as where runs without the extender are compared.
    """

    reach: Sequence[ReachRecord] = ()
    at_discretion: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()
    tolerance_pct: int = 25
    everybody_asked: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is promised at a place while it is over its limit."""

    rv: int
    at: float
    limits: Mapping[str, int]  # of all disks that make up the place, by UUID
    items: tuple[Item, ...]

    @property
    def limit_bytes(self) -> int:
        return sum(self.limits.values())

    @property
    def over_bytes(self) -> int:
        return total(self.items) - self.limit_bytes


@dataclass(frozen=True, slots=True)
class Judged:
    """A moment's excess: bytes by explanation, and the rest."""

    by: Mapping[str, int]
    unexplained_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one item that were promised at one time, or for which there is a `reason` instead of a promise."""

    volume: str
    disk: str
    size_bytes: int
    landed_at: float  # infinity: it has no disk yet
    yes_at: float  # when the choice showed
    asked_at: float  # the yes came later than this
    is_local: bool
    is_growth: bool = False
    reason: str = ""
    seen_at: float = math.inf  # from when on it counts, where there is a reason

    @property
    def first_yes_at(self) -> float:
        return max(self.yes_at - CHOICE_SECONDS, min(self.asked_at, self.yes_at))

    def counts_for(self, other: Part) -> bool:
        """Was it there, or promised, when the other one was given its yes?"""
        if self.reason:
            return self.seen_at < other.first_yes_at
        return min(self.yes_at, self.landed_at) <= other.yes_at


@dataclass(slots=True)
class Explanations:
    """Judges moments of one place after the other. Threads: one."""

    origins: Origins
    disks: DisksSeen
    recorded: Recorded
    _records: dict[str, list[ReachRecord]] = field(default_factory=dict)  # by the disk's UUID

    def __post_init__(self) -> None:
        for record in self.recorded.reach:
            uuid = self.disks.uuids.get((record.node, record.disk))
            if uuid is not None:
                self._records.setdefault(uuid, []).append(record)

    def judge(self, moment: Moment) -> Judged:
        parts = self._with_own_copies(list(self._parts(moment)), moment.limits)
        by = Counter[str]()
        if len(moment.limits) > 1:
            by[ON_ITS_DISKS] = self._over_on_disks(moment)
        promised = [part for part in parts if not part.reason]
        own = sum(by.values())
        unexplained = max((self._over(part, parts, moment) - own for part in promised), default=0)
        unexplained = min(max(0, unexplained), moment.over_bytes)
        for part in parts:
            if part.reason:
                by[part.reason] += part.size_bytes
        by[DISCRETION] = self._most_at_discretion(promised)
        for change in (LOWER_LIMIT, IMAGE):
            by[change] = max((self._changed(change, moment, part) for part in promised), default=0)
        roaming = sum(part.size_bytes for part in promised if not part.is_local and not part.is_growth)
        by[TOLERANCE] = min(self._tolerance(moment.limit_bytes), roaming)
        explained = _shared_out(moment.over_bytes - unexplained, by)
        return Judged(explained, moment.over_bytes - sum(explained.values()))

    def _tolerance(self, limit_bytes: int) -> int:
        return max(0, limit_bytes * self.recorded.tolerance_pct // 100)

    # What is there

    def _parts(self, moment: Moment) -> Iterator[Part]:
        for item in moment.items:
            copy = self.origins.copies.get(item.replica)
            request = self.origins.request_of(item.volume)
            chosen_at = request.chosen_at if request is not None else None
            volume = self.origins.volumes.get(item.volume)
            asked_at = self.origins.first_asked_at(item.volume)
            is_asked = self.recorded.everybody_asked or self.origins.is_asked_for(item.volume)
            reason = "" if is_asked else UNASKED
            if copy is None:  # demand that has no disk yet: one copy beside its pod
                yes_at = moment.at if chosen_at is None else chosen_at
                yield Part(
                    item.volume, "", item.size_bytes, math.inf, yes_at, asked_at, True, reason=reason, seen_at=yes_at
                )
                continue
            for piece in copy.pieces:
                if piece.at > moment.at:
                    break
                yes_at = min(piece.at if chosen_at is None else chosen_at, piece.at)
                if piece.is_growth and request is not None:
                    yes_at = request.grown_at(piece.at)
                is_local = volume is not None and volume.is_local
                made = Part(
                    item.volume, copy.disk, piece.size_bytes, piece.at, yes_at, asked_at, is_local, piece.is_growth
                )
                if reason or (copy.is_rebuild and not piece.is_growth):
                    yield replace(made, reason=reason or REBUILD, seen_at=piece.at)
                else:
                    yield self._with_change(made, piece)

    def _with_change(self, part: Part, piece: Piece) -> Part:
        """The same with the first change of reach without which it would not have come."""
        if part.is_growth:
            return part
        volume = self.origins.volumes.get(part.volume)
        for record in self._records.get(part.disk, ()):
            is_between = part.first_yes_at < record.at <= piece.at + RECORD_SECONDS
            if record.change in REACH and is_between:
                before = self._before(part.disk, record)
                if before is not None and not before.takes(piece.size_bytes, volume):
                    return replace(part, reason=record.change, seen_at=min(record.at, piece.at))
        return part

    def _before(self, uuid: str, record: ReachRecord) -> Shown | None:
        """How the disk was reported just before the record. None: the history shows no such change."""
        reports = [(-math.inf, CLOSED), *self.disks.reports.get(uuid, ())]
        found = [
            (abs(at - record.at), before)
            for (_, before), (at, after) in pairwise(reports)
            if abs(at - record.at) <= RECORD_SECONDS and _is_it(record, before, after)
        ]
        return min(found, key=lambda entry: entry[0])[1] if found else None

    def _with_own_copies(self, parts: list[Part], disks: Iterable[str]) -> list[Part]:
        """Each record of a copy of Longhorn's own speaks for one replica of that size that landed then."""
        for uuid in disks:
            for record in self._records.get(uuid, ()):
                if record.change != OWN_COPY:
                    continue
                near = [
                    (abs(part.landed_at - record.at), index)
                    for index, part in enumerate(parts)
                    if part.disk == uuid and part.size_bytes == record.size_bytes and part.reason != OWN_COPY
                    if not part.is_growth and abs(part.landed_at - record.at) <= RECORD_SECONDS
                ]
                # One that is explained already is what the record speaks of.
                near.sort(key=lambda entry: (not parts[entry[1]].reason, entry[0]))
                if near and not parts[near[0][1]].reason:
                    part = parts[near[0][1]]
                    parts[near[0][1]] = replace(part, reason=OWN_COPY, seen_at=part.landed_at)
        return parts

    def _over_on_disks(self, moment: Moment) -> int:
        """Bytes by which replicas exceed their disks, which are places of their own; demand has the rest to itself."""
        used = Counter[str]()
        for item in moment.items:
            if item.replica in self.origins.copies:
                used[self.origins.copies[item.replica].disk] += item.size_bytes
        return sum(max(0, used[uuid] - limit) for uuid, limit in moment.limits.items())

    # What fits

    def _over(self, part: Part, parts: Sequence[Part], moment: Moment) -> int:
        """By how much all that counted when this part was promised exceeds what was allowed then."""
        there = [other for other in parts if other is part or other.counts_for(part)]
        allowed = moment.limit_bytes + sum(self._changed(change, moment, part) for change in (LOWER_LIMIT, IMAGE))
        is_strict = part.is_local or part.is_growth or any(_is_pending(other, part) for other in there)
        if not is_strict and not self._is_local_pending_beside(part):
            allowed += self._tolerance(moment.limit_bytes)
        companions = self._companions(part)
        beside = sum(one.size_bytes for one in there if one.disk == part.disk and one.volume in companions)
        return sum(one.size_bytes for one in there) - beside - allowed

    def _is_local_pending_beside(self, part: Part) -> bool:
        """Whether a local volume, or growth, surely was pending on the node, on whatever disk of it, when this part was
        promised."""
        nodes = {copy.node for copy in self.origins.copies.values() if copy.disk == part.disk}
        for copy in self.origins.copies.values():
            volume, request = self.origins.volumes.get(copy.volume), self.origins.request_of(copy.volume)
            if copy.node not in nodes or request is None or not self.origins.is_asked_for(copy.volume):
                continue
            for piece in copy.pieces:
                is_local = volume is not None and volume.is_local and not copy.is_rebuild
                since = request.grown_at(piece.at) if piece.is_growth else request.chosen_at
                is_due = (piece.is_growth or is_local) and since is not None and since < part.first_yes_at
                if is_due and piece.at > part.yes_at:
                    return True
        return False

    def _companions(self, part: Part) -> set[str]:
        """The other volumes of pods that were told that they may be too many for one disk."""
        pods = [pod for pod in self.origins.pods_of(part.volume) if pod.uid in self.recorded.at_discretion]
        if not pods or not part.disk or part.is_growth:
            return set()
        found = {self.origins.volume_of_claim(key) for pod in pods for key in pod.claims}
        return found - {part.volume, ""}

    def _most_at_discretion(self, parts: Sequence[Part]) -> int:
        found = 0
        for part in parts:
            companions = self._companions(part)
            own = [one.size_bytes for one in parts if one.disk == part.disk and one.volume in companions]
            found = max(found, sum(own) + part.size_bytes - max([*own, part.size_bytes]))
        return found

    def _changed(self, change: str, moment: Moment, part: Part) -> int:
        """Bytes of such records after this part's yes."""
        return sum(
            record.size_bytes
            for uuid in moment.limits
            for record in self._records.get(uuid, ())
            if record.change == change and part.first_yes_at < record.at <= moment.at + RECORD_SECONDS
        )


def _is_it(record: ReachRecord, before: Shown, after: Shown) -> bool:
    """Is this the change that was recorded?"""
    if record.change == MORE_ROOM:
        return before.is_open and after.is_open and after.room_bytes - before.room_bytes == record.size_bytes
    if record.change == OPENED:
        return not before.is_open and after.is_open
    return before.suits != after.suits


def _is_pending(other: Part, part: Part) -> bool:
    """Was the other one a local volume, or growth, that had been promised and had not come yet?"""
    is_strict = other.is_local or other.is_growth
    return other is not part and not other.reason and is_strict and other.landed_at > part.yes_at


def _shared_out(explained_bytes: int, by: Mapping[str, int]) -> dict[str, int]:
    """To each explanation no more than it can bear, in the order of `by`."""
    found = {}
    for name, most in by.items():
        share = min(most, explained_bytes)
        if share > 0:
            found[name] = share
            explained_bytes -= share
    return found
