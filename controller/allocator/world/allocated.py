"""What is allocated on disks by name, by the durable record or by a decision that is about to be written, joined with
what Longhorn's objects show.

An allocation stands for its object until that shows the same: a replica without a disk lies where it is allocated, and
one that lies there is as large as either says. What no object shows takes its bytes all the same, as long as it is on
record. So whoever asks what a disk holds, or where a volume lies, need not know of allocations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from msgspec.structs import replace as replace_entry

from controller.allocator.world.entries import Entries
from controller.allocator.world.extra import Extra, Name
from controller.allocator.world.placed import Placed
from controller.allocator.world.readings import NEVER_READ, Ahead, Decided, RecordReading, read, together
from controller.model.allocations import Allocation, NodeRecord, Purpose, version_number
from controller.model.longhorn import BackingImage, LonghornNode, Replica
from controller.rules.reasons import Reason, Rejection

_NONE: Final[tuple[Allocation, ...]] = ()
_NO_DECISIONS: Final[tuple[Decided, ...]] = ()
_NOWHERE: Final = ("", "")
_NOT_OURS: Final = (0, -1, -1)
_Place = tuple[Purpose, str, str, str]


REUSED_SECONDS: Final = 90.0  # until a failed replica shows that it comes back, or does not


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
        holders: Callable[[str], tuple[str, ...]],
    ) -> None:
        """`images` are those with their allocations; `touch` hears of the UUIDs of disks whose content changed, and
        `closing` of nodes that are closed now, or no more; `holders` tells which nodes show a disk of that UUID."""
        self._placed, self._nodes, self._joined_images, self._holders = placed, nodes, images, holders
        self._closing = closing
        self.counts = False
        self.switches = 0  # how often that changed
        self.problems: dict[str, str] = {}  # by node, why its record cannot be read; the last one that could counts on
        self._unread: set[str] = set()  # nodes of whose record nothing is known: no reading of it has succeeded here
        self._places: dict[str, dict[str, RecordReading]] = {}  # by node and place, as they were last seen
        self._records: dict[str, tuple[Allocation, ...]] = {}  # by node, what counts of them
        self.entries = Entries()  # of these
        self._recorded: dict[Purpose, dict[str, tuple[Allocation, ...]]] = {one: {} for one in Purpose}  # the same
        self._ahead: dict[tuple[str, str], Ahead] = {}  # by node and place
        self._decided: dict[Name, tuple[Decided, ...]] = {}
        # Decided here in this term, since the record decides: by which number last, up to which size, and before that.
        self._ours: dict[_Place, tuple[int, int, int]] = {}
        self.has_former = False  # what a leader before gave may not be known yet
        self.reused: dict[str, float] = {}  # failed replicas of which somebody was told that they come back, and when
        self._shown: dict[str, Replica] = {}  # as Longhorn has them, where `placed` has something else
        self._images: dict[str, BackingImage] = {}  # as Longhorn has them, of those that have allocations
        self.extra = Extra(touch)

    def copy_to(self, other: Allocated) -> None:
        """For questions only."""
        other.counts, other.problems, other.reused = self.counts, self.problems.copy(), self.reused
        other.extra = self.extra.copy()
        vars(other).update(_unread=self._unread.copy())

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

    def of(self, purpose: Purpose, name: str) -> tuple[Allocation, ...]:
        """All of that name, the largest of each disk: decisions first, the latest before."""
        recorded = self._recorded[purpose].get(name, _NONE)
        decided = self._decided.get((purpose, name), _NO_DECISIONS)
        if not decided:
            return recorded
        found = dict[tuple[str, str], Allocation]()
        for one in (*(entry.allocation for entry in reversed(decided)), *recorded):
            there = found.get((one.node, one.disk_uuid))
            if there is None or there.size_bytes < one.size_bytes:
                found[one.node, one.disk_uuid] = one
        return tuple(found.values())

    def every(self, one: Allocation) -> list[Allocation]:
        """What is on record or decided of that name on that disk, of whatever size."""
        decided = (entry.allocation for entry in self._decided.get(_name(one), _NO_DECISIONS))
        found = (*decided, *self._recorded[one.purpose].get(one.name, _NONE))
        return [other for other in found if (other.node, other.disk_uuid) == (one.node, one.disk_uuid)]

    def held_of(self, replica: str) -> list[Allocation]:
        """The disks that a replica without one was given, as far as nodes show them. The first one counts as its place:
        what was decided last in this term. Of several that a leader before gave nobody knows which it told last: the
        term of the node's record is a guess."""
        best = {one.disk_uuid: one for one in sorted(self.shown_of(replica), key=self.rank)}  # one that moved has two
        return sorted(best.values(), key=self.rank, reverse=True)

    def given_bytes(self, replica: str) -> int:
        """The most that it was given room for, on whatever disk."""
        return max((one.size_bytes for one in self.of(Purpose.REPLICA, replica)), default=0)

    def shown_of(self, replica: str) -> list[Allocation]:
        """What is allocated to it on disks that a node shows."""
        return [one for one in self.of(Purpose.REPLICA, replica) if self.place_of(one)[0]]

    def rank(self, one: Allocation) -> tuple[int, int]:
        """Of several the one with the highest was told last, as far as that is known."""
        return self._ours.get(_place(one), _NOT_OURS)[0], self._record_of(one.node).term

    def is_being_written(self, wanted: Allocation) -> bool:
        """Whether somebody waits for it to be on record."""
        decided = self._decided.get((wanted.purpose, wanted.name), _NO_DECISIONS)
        return any(one.until is None and one.allocation == wanted for one in decided)

    def is_ours(self, one: Allocation) -> bool:
        """Whether all that was promised since it was decided, here and in this term, left its room alone. A leader
        before may have written the others late, told nobody, and promised their room to a pod."""
        return self._ours.get(_place(one), _NOT_OURS)[1] >= one.size_bytes

    def disown(self, entries: Iterable[Allocation]) -> None:
        """They are freed, or gone."""
        for one in entries:
            self._ours.pop(_place(one), None)

    def told(self, number: int, entries: Iterable[Allocation]) -> set[str]:
        """Their caller hears of them now, as of that number: it may write them, whatever was decided since."""
        several = set[Name]()
        for one in entries:
            known = self._ours.get(_place(one))
            if known is not None:
                self._ours[_place(one)] = number, *known[1:]
                several.update({_name(one)} if len(self.of(*_name(one))) > 1 else ())
        return self._join(several)

    def not_written(self, number: int, entries: Iterable[Allocation]) -> None:
        """By the decision of that number: its place is ours as far as it was before."""
        for place in map(_place, entries):
            known = self._ours.get(place, _NOT_OURS)
            if known[0] == number:
                self._ours[place] = number, known[2], -1
                if known[2] < 0:
                    del self._ours[place]

    def is_on_record(self, wanted: Allocation) -> bool:
        """Whether the record shows that much there."""
        entries = self._recorded[wanted.purpose].get(wanted.name, _NONE)
        places = {(one.node, one.disk_uuid): one.size_bytes for one in entries}
        return places.get((wanted.node, wanted.disk_uuid), -1) >= wanted.size_bytes

    def seen_by(self, number: int, allocations: Iterable[Allocation]) -> tuple[NodeRecord, ...]:
        """The records by which that was decided."""
        decided = (self._decided.get((one.purpose, one.name), _NO_DECISIONS) for one in allocations)
        return tuple(one.seen for entries in decided for one in entries if one.number == number)

    def doubted(self) -> Counter[tuple[str, str]]:
        """By node and name of the disk, the bytes that count although nobody knows whether they are on record. Costs: a
        look at each decision."""
        found = Counter[tuple[str, str]]()
        for one in self._decisions():
            if one.until is not None and not self.is_on_record(one.allocation):
                found[self.place_of(one.allocation)] += one.allocation.size_bytes
        return found

    def doubted_nodes(self) -> frozenset[str]:
        """Costs: the same."""
        return frozenset(node for node, _ in self.doubted())

    def place_of(self, allocation: Allocation) -> tuple[str, str]:
        """The node and the name of the disk that it is on, though that may be on another node by now; "" and "" when no
        node shows it."""
        uuid = allocation.disk_uuid
        holders = self._holders(uuid) if uuid else ()
        if not holders:
            return _NOWHERE
        node = allocation.node if allocation.node in holders else holders[0]
        return node, next(one.name for one in self._nodes[node].disks if one.uuid == uuid)

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
        self.counts, self.switches = counts, self.switches + 1
        self._ours.clear()
        for node in self._unread:
            self._closing(node)
        return self._join({*self._names(), *((Purpose.BACKING_IMAGE, name) for name in self._joined_images)})

    def observe(self, node: str, record: NodeRecord | None, place: str = "") -> set[str]:
        """What a watch shows on record for that node, at one of the places where it may be; None: nothing. While it is
        moved it is in two places, and the larger entry counts. Of one that cannot be read the last reading counts on,
        and older ones than what this process has written do not count."""
        last, ahead = self._places.get(node, {}).get(place, NEVER_READ), self._ahead.get((node, place))
        if ahead is not None and (record is None or version_number(record.version) < version_number(last.version)):
            self._ahead[node, place] = Ahead(ahead.until, read(record, ahead.shown or NEVER_READ))
            return set()
        self._ahead.pop((node, place), None)
        return self._set(node, place, read(record, last)) or set()

    def learn(self, record: NodeRecord, until: float, place: str = "", *, is_written: bool) -> set[str] | None:
        """This process has written or read that. The watch shows it before `until`, or it is there no more. Where it
        `is_written`, none of this process's earlier writes there arrives any more. None: it changes nothing."""
        node = record.node
        mine = (one for one in self._decisions() if one.allocation.node == node) if is_written else ()
        found = self._end_all([one for one in mine if one.until is not None and one.place == place])
        last, ahead = self._places.get(node, {}).get(place), self._ahead.get((node, place))
        if last is not None and version_number(record.version) <= version_number(last.version):
            return found
        self._ahead[node, place] = Ahead(until, ahead.shown if ahead is not None else last)
        more = self._set(node, place, read(record, last or NEVER_READ))
        return found if more is None else more | (found or set())

    def _set(self, node: str, place: str, seen: RecordReading | None) -> set[str] | None:
        places = self._places.setdefault(node, {})
        places.pop(place, None)
        if seen is not None:
            places[place] = seen
        if not places:
            del self._places[node]
        self._note_problems(node, tuple(places.values()))
        allocations = together(tuple(one.allocations or _NONE for one in places.values()))
        before = self._records.get(node, _NONE)
        if before == allocations:
            return None
        self._records.pop(node, None)
        if allocations:
            self._records[node] = allocations
        old, new = set(before), set(allocations)
        was = self._all_of(old ^ new)
        stays = {_place(one) for one in new}
        self.disown(one for one in old - new if _place(one) not in stays)
        for gone in old - new:
            self._forget(gone)
            self.entries.add(gone, -1)
        for came in new - old:
            self._forget(came)
            members = self._recorded[came.purpose]
            members[came.name] = (*members.get(came.name, _NONE), came)
            self.entries.add(came, 1)
        return self._rejoin(was)

    def _note_problems(self, node: str, places: tuple[RecordReading, ...]) -> None:
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

    def decide(self, number: int, allocations: Iterable[Allocation], *, is_judged: bool = False) -> set[str]:
        """One caller's count from now on, under that number, until they `end`. `is_judged`: there is room for them by
        what is on record now; else by what was, when somebody decided the same who does not know whether it is."""
        entries = list(allocations)
        for one in entries:
            _, size, _ = self._ours.get(_place(one), _NOT_OURS)
            self._ours[_place(one)] = number, max(one.size_bytes, size), size
        for one in entries:
            there = self._decided.get(_name(one), _NO_DECISIONS)
            same = () if is_judged else (entry.seen for entry in there if entry.allocation == one)
            seen = next(iter(same), None) or self._record_of(one.node)
            self._decided[_name(one)] = (*there, Decided(number, one, seen))
        return self._join({_name(one) for one in entries})

    def end(self, number: int, allocations: Iterable[Allocation]) -> set[str] | None:
        """What was decided under that number is on record by now, or was not sent, and will not be. None: that changes
        nothing."""
        decided = chain.from_iterable(self._decided.get(_name(one), _NO_DECISIONS) for one in allocations)
        return self._end_all([there for there in decided if there.number == number])

    def doubt(self, number: int, allocations: Iterable[Allocation], until: float, place: str = "") -> set[str]:
        """Its write may have arrived, or arrive until then: it counts until this process has written there again.
        Nothing is
        left of what was decided in a former term: that is as a former leader's."""
        entries = list(allocations)
        for one in entries:
            there = self._decided.get(_name(one), _NO_DECISIONS)
            if there:
                self._decided[_name(one)] = tuple(
                    replace(entry, until=until, place=place) if entry.number == number else entry for entry in there
                )
        return self._join({_name(one) for one in entries})

    def expire(self, now: float) -> set[str]:
        """What was decided or written, and never came to stand on record."""
        found = self._end_all([one for one in self._decisions() if one.until is not None and now >= one.until]) or set()
        self.reused = {name: at for name, at in self.reused.items() if now - at < REUSED_SECONDS}
        late = [(key, ahead) for key, ahead in self._ahead.items() if now >= ahead.until]
        for (node, place), ahead in late:
            del self._ahead[node, place]
            found |= self._set(node, place, ahead.shown) or set()
        return found

    def begin_term(self) -> set[str]:
        """What was decided in another term is on record by now, or never will be."""
        self.has_former = True
        several = (name for name, entries in self._recorded[Purpose.REPLICA].items() if len(entries) > 1)
        names = {*self._decided, *((Purpose.REPLICA, name) for name in several)}
        self._decided.clear()
        self._ours.clear()
        return self._join(names)

    def node_changed(self, old: LonghornNode | None, new: LonghornNode | None) -> set[str]:
        """Disks came or went: what waits for its object on one of them lies there now, or nowhere."""
        uuids = [{disk.uuid for disk in node.disks} if node is not None else set[str]() for node in (old, new)]
        moved = (uuids[0] ^ uuids[1]) - {""}
        if not moved:
            return set()
        names = self.extra.names_on(moved)
        return self._join({*names, *((Purpose.REPLICA, name) for name in self._lying_on(moved))})

    def _lying_on(self, uuids: Collection[str]) -> list[str]:
        """Of replicas without a disk those that lie there by their allocations."""
        joined = ((name, self._placed.get(name)) for name, shown in self._shown.items() if not shown.is_placed)
        return [name for name, one in joined if one is not None and one.disk_uuid in uuids]

    def put_replica(self, name: str, replica: Replica | None) -> set[str]:
        """Longhorn shows it like that."""
        self._shown.pop(name, None)
        if not self.counts or not self.of(Purpose.REPLICA, name):
            return self._placed.put(name, replica)
        return self._join_replica(name, replica)

    def put_image(self, name: str, image: BackingImage | None) -> BackingImage | None:
        """Longhorn shows it like that; as it is with its allocations."""
        self._images.pop(name, None)
        return self._join_image(name, image) if self.counts or self.of(Purpose.BACKING_IMAGE, name) else image

    def _record_of(self, node: str) -> NodeRecord:
        """Of all places together."""
        term = max((one.term for one in self._places.get(node, {}).values()), default=0)
        return NodeRecord(node, self._records.get(node, _NONE), term=term)

    def _forget(self, allocation: Allocation) -> None:
        members = self._recorded[allocation.purpose]
        place = allocation.node, allocation.disk_uuid
        left = tuple(one for one in members.get(allocation.name, _NONE) if (one.node, one.disk_uuid) != place)
        if left:
            members[allocation.name] = left
        else:
            members.pop(allocation.name, None)

    def _end_all(self, ended: Sequence[Decided]) -> set[str] | None:
        for one in ended:
            if one.until is not None and not self.is_on_record(one.allocation):
                self.not_written(one.number, (one.allocation,))
        was = self._all_of(one.allocation for one in ended)
        for name in was:
            left = tuple(one for one in self._decided.get(name, _NO_DECISIONS) if one not in ended)
            if left:
                self._decided[name] = left
            else:
                self._decided.pop(name, None)
        return self._rejoin(was)

    def _decisions(self) -> Iterator[Decided]:
        return chain.from_iterable(self._decided.values())

    def _names(self) -> Iterator[Name]:
        yield from self._decided
        for purpose, members in self._recorded.items():
            yield from ((purpose, name) for name in members)

    # Joining

    def _all_of(self, entries: Iterable[Allocation]) -> dict[Name, tuple[Allocation, ...]]:
        return {name: self.of(*name) for name in {_name(one) for one in entries}}

    def _rejoin(self, was: Mapping[Name, tuple[Allocation, ...]]) -> set[str] | None:
        """Of those that were like that before: None where all are as they were."""
        names = [one for one, entries in was.items() if self.of(*one) != entries]
        return self._join(names) if names else None

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

    def _entries_of(self, purpose: Purpose, name: str) -> tuple[Allocation, ...]:
        """Those that count."""
        return self.of(purpose, name) if self.counts else _NONE

    def _join_replica(self, name: str, shown: Replica | None) -> set[str]:
        entries = self._entries_of(Purpose.REPLICA, name)
        joined, used = shown, ""
        if shown is not None and shown.is_placed:
            used = shown.disk_uuid
        elif shown is not None and not (shown.node or shown.failed_at or shown.deleting):
            held = self.held_of(name) if entries else ()
            if held:
                used = held[0].disk_uuid
                joined = replace(shown, node=self.place_of(held[0])[0], disk_uuid=used)
        if joined is not None and used:
            largest = max((one.size_bytes for one in entries if one.disk_uuid == used), default=0)
            joined = replace(joined, size_bytes=largest) if largest > joined.size_bytes else joined
        if shown is not None and joined != shown:
            self._shown[name] = shown
        else:
            self._shown.pop(name, None)
        brings = shown.backing_image if shown is not None and not shown.is_placed else ""
        self.extra.put((Purpose.REPLICA, name), [one for one in entries if one.disk_uuid != used], brings)
        return self._placed.put(name, joined) if joined != self._placed.get(name) else set[str]()

    def _join_image(self, name: str, shown: BackingImage | None) -> BackingImage | None:
        """Each copy that is on record, or that Longhorn has decided on, counts as far as the disk's own figure does not
        list it: as large as the image is, or was said to be."""
        entries = self._entries_of(Purpose.BACKING_IMAGE, name)
        size = shown.real_size_bytes if shown is not None and self.counts else 0
        copies = [replace_entry(one, size_bytes=max(size, one.size_bytes)) for one in entries]
        uuids = {one.disk_uuid for one in entries}
        decided = sorted(shown.disk_uuids - uuids) if shown is not None and size else ()
        copies += [Allocation(Purpose.BACKING_IMAGE, name, "", uuid, size) for uuid in decided]
        self.extra.put((Purpose.BACKING_IMAGE, name), copies)
        if shown is None or uuids <= shown.disk_uuids:
            self._images.pop(name, None)
            return shown
        self._images[name] = shown
        return replace(shown, disk_uuids=shown.disk_uuids | uuids)


def _name(one: Allocation) -> Name:
    return one.purpose, one.name


def _place(one: Allocation) -> _Place:
    return one.purpose, one.name, one.node, one.disk_uuid
