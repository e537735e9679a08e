"""What is allocated on disks by name, by the durable record or by a decision that is about to be written, joined with
what Longhorn's objects show.

An allocation stands for its object until that shows the same: a replica without a disk lies where it is allocated, and
one that lies there is as large as either says. What no object shows takes its bytes all the same, as long as it is on
record. So whoever asks what a disk holds, or where a volume lies, need not know of allocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from controller.allocator.world.placed import Placed
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.model.longhorn import BackingImage, LonghornNode, Replica
from controller.rules.reasons import Reason, Rejection

_NONE: Final[tuple[Allocation, ...]] = ()
_NO_PLACES: Final[Mapping[tuple[str, str], Decided]] = {}
Name = tuple[Purpose, str]


@dataclass(frozen=True, slots=True)
class Decided:
    """An allocation that the record need not show yet. `until`: it ends at that time unless the record shows it; None
    while it is being written. `seen`: its node's record as it was when that was decided, by which there is room; None
    once it is written."""

    allocation: Allocation
    until: float | None = None
    seen: NodeRecord | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A record at one place. `allocations` and `term`: by the last reading that succeeded; None: there was none."""

    allocations: tuple[Allocation, ...] | None = None
    term: int = 0
    problem: str = ""


_NEVER_READ: Final = _Seen()


class Allocated:
    """Allocations by name, and what Longhorn's objects are with them. While they do not count, the objects are as
    Longhorn shows them.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(
        self,
        placed: Placed,
        nodes: Mapping[str, LonghornNode],
        images: MutableMapping[str, BackingImage],
        touch: Callable[[str], None],
        closing: Callable[[str], None],
    ) -> None:
        """`images` are those with their allocations; `touch` hears of the UUIDs of disks whose content changed, and
        `closing` of nodes that are closed now, or no more."""
        self._placed, self._nodes, self._joined_images = placed, nodes, images
        self._touch, self._closing = touch, closing
        self.counts = False
        self.problems: dict[str, str] = {}  # by node, why its record cannot be read; the last one that could counts on
        self._unread: set[str] = set()  # nodes of whose record nothing is known: no reading of it has succeeded here
        self._places: dict[str, dict[str, _Seen]] = {}  # by node and place, as they were last seen
        self._records: dict[str, tuple[Allocation, ...]] = {}  # by node, what counts of them
        self._recorded: dict[Purpose, dict[str, tuple[Allocation, ...]]] = {one: {} for one in Purpose}  # the same
        self._decided: dict[Name, dict[tuple[str, str], Decided]] = {}  # by node and disk
        # Until when older records may still show what was freed or taken back, and then no more.
        self._gone: dict[tuple[Purpose, str, str, str], float] = {}
        self._shown: dict[str, Replica] = {}  # as Longhorn has them, where `placed` has something else
        self._images: dict[str, BackingImage] = {}  # as Longhorn has them, of those that have allocations
        self._extra: dict[str, dict[Name, Allocation]] = {}  # by disk UUID, what no object shows there
        self._extra_of: dict[Name, tuple[str, ...]] = {}  # by name, the disks' UUIDs

    def copy_to(self, other: Allocated) -> None:
        """For questions only."""
        other.counts, other.problems = self.counts, self.problems.copy()
        vars(other).update(
            _unread=self._unread.copy(), _extra={uuid: entries.copy() for uuid, entries in self._extra.items()}
        )

    # Look-ups

    def closed(self, node: str) -> str:
        """Why that node takes nothing: this process does not know what is on record for it. "": it does."""
        return self.unreadable(node) if self.counts and node in self._unread else ""

    def unreadable(self, node: str) -> str:
        """Why its record cannot be read now, whether or not another reading is known; "": it can."""
        problem = self.problems.get(node)
        return f"its allocation record cannot be read: {problem}" if problem else ""

    def check_closed(self, node: str) -> Rejection | None:
        why = self.closed(node)
        return Rejection(Reason.RECORD_UNREADABLE, f"{node}: {why}") if why else None

    def extra_on(self, disk_uuid: str) -> Iterable[Allocation]:
        """What is allocated on that disk and shown there by no object of Longhorn's."""
        return self._extra.get(disk_uuid, {}).values()

    def of(self, purpose: Purpose, name: str) -> tuple[Allocation, ...]:
        """All of that name, one of each disk: decisions first, and the larger where one is on record as well."""
        recorded = self._recorded[purpose].get(name, _NONE)
        decided = self._decided.get((purpose, name), _NO_PLACES)
        if not decided:
            return recorded
        found = {place: one.allocation for place, one in decided.items()}
        for one in recorded:
            there = found.get((one.node, one.disk))
            if there is None or there.size_bytes < one.size_bytes:
                found[one.node, one.disk] = one
        return tuple(found.values())

    def is_being_written(self, wanted: Allocation) -> bool:
        """Whether somebody waits for it to be on record."""
        one = self._decided.get((wanted.purpose, wanted.name), _NO_PLACES).get((wanted.node, wanted.disk))
        return one is not None and one.until is None and one.allocation == wanted

    def is_on_record(self, wanted: Allocation) -> bool:
        """Whether the record shows that much there."""
        entries = self._recorded[wanted.purpose].get(wanted.name, _NONE)
        places = {(one.node, one.disk): one.size_bytes for one in entries}
        return places.get((wanted.node, wanted.disk), -1) >= wanted.size_bytes

    def seen_by(self, entries: Iterable[Allocation]) -> tuple[NodeRecord, ...]:
        """The records of their nodes as those were when they were decided; without those that are written by now."""
        places = [(one.node, self._decided.get((one.purpose, one.name), _NO_PLACES), one.disk) for one in entries]
        decided = [members.get((node, disk)) for node, members, disk in places]
        return tuple(one.seen for one in decided if one is not None and one.seen is not None)

    def disk_uuid(self, allocation: Allocation) -> str:
        """Of the disk that it is on; "" when no node shows a disk of that name there."""
        node = self._nodes.get(allocation.node)
        disks = node.disks if node is not None else ()
        return next((disk.uuid for disk in disks if disk.name == allocation.disk), "")

    def shown_replica(self, name: str) -> Replica | None:
        """As Longhorn shows it."""
        return self._shown.get(name) or self._placed.get(name)

    def shown_image(self, name: str) -> BackingImage | None:
        """As Longhorn shows it."""
        return self._images.get(name) or self._joined_images.get(name)

    # Changes. Each returns the volumes whose replicas may be others by it.

    def count(self, counts: bool) -> set[str]:
        """From now on they count, or not any more."""
        if counts == self.counts:
            return set()
        self.counts = counts
        for node in self._unread:
            self._closing(node)
        return self._join(self._names())

    def observe(self, node: str, record: NodeRecord | None, place: str = "") -> set[str]:
        """What is on record for that node, at one of the places where it may be; None: nothing. While it is moved it is
        in two places, and the larger entry counts. Of one that cannot be read the last reading counts on."""
        places = self._places.setdefault(node, {})
        last = places.pop(place, _NEVER_READ)
        if record is not None:
            read = _Seen(record.allocations, record.term)
            places[place] = read if record.is_readable else replace(last, problem=record.problem)
        if not places:
            del self._places[node]
        self._note_problems(node, tuple(places.values()))
        allocations = _together(tuple(one.allocations or _NONE for one in places.values()))
        old, new = set(self._records.pop(node, _NONE)), set(allocations)
        if new:
            self._records[node] = allocations
        for gone in old - new:
            self._forget(gone)
        for came in new - old:
            self._forget(came)
            members = self._recorded[came.purpose]
            members[came.name] = (*members.get(came.name, _NONE), came)
            decided = self._decided.get((came.purpose, came.name), _NO_PLACES).get((came.node, came.disk))
            is_old = _place(came) in self._gone
            if decided is not None and decided.allocation.size_bytes <= came.size_bytes and not is_old:
                self._end(decided.allocation)
        return self._join({(one.purpose, one.name) for one in old ^ new})

    def _note_problems(self, node: str, places: tuple[_Seen, ...]) -> None:
        was_closed = self.closed(node)
        self.problems.pop(node, None)
        self._unread.discard(node)
        for one in places:
            if one.problem:
                self.problems[node] = one.problem
            if one.allocations is None:
                self._unread.add(node)
        if self.closed(node) != was_closed:
            self._closing(node)

    def decide(
        self, allocations: Iterable[Allocation], until: float | None = None, *, is_judged: bool = False
    ) -> set[str]:
        """They count from now on, although they are not on record yet, or will be for a moment no more. `is_judged`:
        there is room for them by what is on record now."""
        entries = list(allocations)
        for one in entries:
            places = self._decided.setdefault((one.purpose, one.name), {})
            there = places.get((one.node, one.disk))
            if there is None or there.allocation.size_bytes <= one.size_bytes:  # else more is being written
                if there is not None and there.allocation == one and not is_judged:
                    seen = there.seen
                else:
                    seen = self._record_of(one.node)
                places[one.node, one.disk] = Decided(one, until, seen)
        return self._join({(one.purpose, one.name) for one in entries})

    def wrote(self, allocations: Iterable[Allocation], until: float) -> list[Allocation]:
        """They are on record by now: what was decided counts until the record shows it, or until then. Returned are
        those that are neither decided any more nor shown."""
        left = []
        for one in allocations:
            places = self._decided.get((one.purpose, one.name), {})
            there = places.get((one.node, one.disk))
            if there is not None and there.allocation == one:
                places[one.node, one.disk] = Decided(one, until)
            elif _place(one) in self._gone or not self.is_on_record(one):
                left.append(one)
        return left

    def doubt(self, allocations: Iterable[Allocation], until: float) -> set[str]:
        """They count until then, as their write may have arrived. Where it has, it may be taken back; so a record that
        shows them confirms no decision."""
        entries = list(allocations)
        self._gone.update((_place(one), until) for one in entries)
        return self.decide(entries, until)

    def withdraw(self, allocations: Iterable[Allocation]) -> set[str]:
        """They are not written, and will not be."""
        entries = [one for one in allocations if self.is_being_written(one)]
        for one in entries:
            self._end(one)
        return self._join({(one.purpose, one.name) for one in entries})

    def release(self, allocations: Iterable[Allocation], until: float) -> set[str]:
        """They are on record no more, and nobody has decided on them. Whoever does before `until` is not confirmed by a
        record that shows them, since it may be one from before."""
        entries = list(allocations)
        for one in entries:
            self._gone[_place(one)] = until
            self._end(one)
            self._forget(one)
        return self._join({(one.purpose, one.name) for one in entries})

    def expire(self, now: float) -> set[str]:
        """What was decided, and never came to stand on record."""
        self._gone = {place: until for place, until in self._gone.items() if now < until}
        entries = [one for places in self._decided.values() for one in places.values()]
        over = [one.allocation for one in entries if one.until is not None and now >= one.until]
        for one in over:
            self._end(one)
        return self._join({(one.purpose, one.name) for one in over})

    def begin_term(self) -> set[str]:
        """What was decided in another term is on record by now, or never will be."""
        names = set(self._decided)
        self._decided.clear()
        self._gone.clear()
        return self._join(names)

    def node_changed(self, old: LonghornNode | None, new: LonghornNode | None) -> set[str]:
        """Disks have another name or UUID, came or went."""
        disks = [{disk.name: disk.uuid for disk in node.disks} if node is not None else {} for node in (old, new)]
        node = new or old
        if node is None or disks[0] == disks[1]:
            return set()
        names = {(one.purpose, one.name) for one in self._records.get(node.name, _NONE)}
        return self._join({*names, *self._decided})

    def put_replica(self, name: str, replica: Replica | None) -> set[str]:
        """Longhorn shows it like that."""
        self._shown.pop(name, None)
        if not self.counts or not self.of(Purpose.REPLICA, name):
            return self._placed.put(name, replica)
        return self._join_replica(name, replica)

    def put_image(self, name: str, image: BackingImage | None) -> BackingImage | None:
        """Longhorn shows it like that; as it is with its allocations."""
        self._images.pop(name, None)
        if not self.counts or not self.of(Purpose.BACKING_IMAGE, name):
            return image
        return self._join_image(name, image)

    def _record_of(self, node: str) -> NodeRecord:
        """Of all places together."""
        term = max((one.term for one in self._places.get(node, {}).values()), default=0)
        return NodeRecord(node, self._records.get(node, _NONE), term=term)

    def _forget(self, allocation: Allocation) -> None:
        members = self._recorded[allocation.purpose]
        place = allocation.node, allocation.disk
        left = tuple(one for one in members.get(allocation.name, _NONE) if (one.node, one.disk) != place)
        if left:
            members[allocation.name] = left
        else:
            members.pop(allocation.name, None)

    def _end(self, allocation: Allocation) -> None:
        name = allocation.purpose, allocation.name
        places = self._decided.get(name, {})
        places.pop((allocation.node, allocation.disk), None)
        if not places:
            self._decided.pop(name, None)

    def _names(self) -> Iterator[Name]:
        yield from self._decided
        for purpose, members in self._recorded.items():
            yield from ((purpose, name) for name in members)

    # Joining

    def _join(self, names: Iterable[Name]) -> set[str]:
        touched = set[str]()
        for purpose, name in list(names):
            if purpose is Purpose.REPLICA:
                touched |= self._join_replica(name, self.shown_replica(name))
            else:
                joined = self._join_image(name, self.shown_image(name))
                if joined is not None:
                    self._joined_images[name] = joined
        return touched

    def _join_replica(self, name: str, shown: Replica | None) -> set[str]:
        entries = self.of(Purpose.REPLICA, name) if self.counts else _NONE
        places = [(uuid, one) for one in entries if (uuid := self.disk_uuid(one))]
        joined, used = shown, ""
        if shown is not None and shown.is_placed:
            used = shown.disk_uuid
        elif shown is not None and places and not (shown.node or shown.failed_at or shown.deleting):
            used, one = places[0]
            joined = replace(shown, node=one.node, disk_uuid=used)
        if joined is not None and used:
            largest = max((one.size_bytes for uuid, one in places if uuid == used), default=0)
            joined = replace(joined, size_bytes=largest) if largest > joined.size_bytes else joined
        if shown is not None and joined != shown:
            self._shown[name] = shown
        else:
            self._shown.pop(name, None)
        self._set_extra((Purpose.REPLICA, name), [(uuid, one) for uuid, one in places if uuid != used])
        return self._placed.put(name, joined) if joined != self._placed.get(name) else set()

    def _join_image(self, name: str, shown: BackingImage | None) -> BackingImage | None:
        """A copy counts by its allocation until the disk's own figure lists it."""
        entries = self.of(Purpose.BACKING_IMAGE, name) if self.counts else _NONE
        places = [(uuid, one) for one in entries if (uuid := self.disk_uuid(one))]
        self._set_extra((Purpose.BACKING_IMAGE, name), places)
        uuids = {uuid for uuid, _ in places}
        if shown is None or uuids <= shown.disk_uuids:
            self._images.pop(name, None)
            return shown
        self._images[name] = shown
        return replace(shown, disk_uuids=shown.disk_uuids | uuids)

    def _set_extra(self, name: Name, entries: list[tuple[str, Allocation]]) -> None:
        for uuid in self._extra_of.pop(name, ()):
            members = self._extra[uuid]
            del members[name]
            if not members:
                del self._extra[uuid]
            self._touch(uuid)
        for uuid, one in entries:
            self._extra.setdefault(uuid, {})[name] = one
            self._touch(uuid)
        if entries:
            self._extra_of[name] = tuple(uuid for uuid, _ in entries)


def _place(one: Allocation) -> tuple[Purpose, str, str, str]:
    return one.purpose, one.name, one.node, one.disk


def _together(lists: tuple[tuple[Allocation, ...], ...]) -> tuple[Allocation, ...]:
    if len(lists) < 2:  # nearly always
        return lists[0] if lists else ()
    found: dict[object, Allocation] = {}
    for one in chain.from_iterable(lists):
        there = found.get(one.key)
        found[one.key] = one if there is None or there.size_bytes < one.size_bytes else there
    return tuple(found.values())
