"""The fifth invariant: what is given away by name counts once, is kept, and exceeds no disk.

Nothing lands but what asked for it, so that no excess is ever explained: what lies on a disk by Longhorn's objects, and
what a caller was given there and may still write, is within the disk's limit at every moment. What was given is on
record before its caller hears of it, and as long as he may act on it. The product counts it once, beside nothing that
is taken for the same volume; and who was told a place before is given it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.by_name.allocate import PASSED_SECONDS
from controller.model.longhorn import BackingImage, Replica, Volume
from controller.model.workload import Claim, PersistentVolume
from tests.race.counts import CountsInvariant
from tests.race.limits import Limits
from tests.race.service import Given, Told
from tests.race.told import EVERYWHERE
from tests.race.world import HeldRoom, Key, RaceWorld, image_key, replica_key

PATIENCE_SECONDS: Final = 50.0  # from the answer about an expansion until the volume is to be that large, or never
NO_ROOM: Final = "more than there is room for"  # of a place that was given before


@dataclass(frozen=True)
class Grown:
    size_bytes: int
    at: float


class Allocations:
    """Watches all that callers are told, and what becomes of it."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world
        self._limits, self._counts = Limits(world), CountsInvariant(world)
        self.given = world.given
        self._told_in: dict[Key, int] = {}  # the term: another leader looks whether there is room
        self.grown: dict[str, Grown] = {}  # volumes for which more was given than they have

    # What callers are told

    def room_due(self, facts: Volume, entry: Replica) -> str:
        """Where the replica has to be given room, because its pod was promised a place: a node or EVERYWHERE; "" where
        nothing was promised, or something explains a refusal. Asked before the call."""
        if self._is_owner_unknown() or entry.hard_node_affinity or self._world.is_doubtful(facts.name):
            return ""
        record, now = self._world.record, self._world.clock.now()
        refused = record.refused_at if record is not None else {}
        due = next((node for node, _ in self._limits.due(facts)), "")
        return "" if now - refused.get(due, -math.inf) < PASSED_SECONDS else due  # a node that refuses is passed by

    def _is_owner_unknown(self) -> bool:
        """Whether a volume was given room whose claim the product has not seen bound: until it does, that room counts
        beside what the claim was promised."""
        given = {self._world.replicas[key[1]].volume for key in self.given if key[1] in self._world.replicas}
        unseen = (facts for kind, facts, _ in self._world.undelivered() if kind in ("claim", "pv"))
        return any(
            (isinstance(one, Claim) and one.volume_name in given)
            or (isinstance(one, PersistentVolume) and one.name in given)
            for one in unseen
        )

    def growth_due(self, name: str, size_bytes: int) -> bool:
        """Whether the present leader has admitted that size, and nothing explains why there is no room for it."""
        world, claim = self._world, self._world.claim_of(name)
        if claim is None or claim.requested_bytes < size_bytes or world.waiting():
            return False
        return any(world.told.all_at <= grant.step for grant in world.grants_of(name, size_bytes))

    def told_replica(self, entry: Replica, told: Told, was_due: str) -> None:
        world, key = self._world, replica_key(entry.name)
        if key in self.given and not entry.is_placed and self._is_no_place(entry, self.given[key]):
            del self.given[key]  # freed, whatever came next
        if not told.given:
            is_refused = told.is_answered and entry.name in world.replicas and not world.replicas[entry.name].node
            text = f"{entry.name} was promised room on {was_due}: {told.reasons}"
            world.check(not (is_refused and was_due and self._still_due(entry)), text)
            is_judged_anew = self._told_in.get(key) != world.term and NO_ROOM in told.reasons
            is_known = told.is_answered and key in self.given
            is_denied = is_known and not (is_judged_anew or self._may_be_closed(self.given[key]))
            world.check(not is_denied, f"{entry.name} was given a disk: {told.reasons}")
            return
        world.check(len(told.given) == 1, f"{entry.name} is given {told.given}")
        one = told.given[0]
        known = self.given.get(key)
        if known is not None:
            world.check(
                (known.node, known.disk_uuid) == (one.node, one.uuid), f"{entry.name} is given two places: {known}"
            )
            world.check(not told.is_new, f"{entry.name} is given anew what it has")
            if world.waits(entry.name):
                self._hold(key, one, known)
        else:
            is_missed = was_due not in ("", EVERYWHERE, one.node) and told.is_new and self._still_due(entry)
            world.check(not is_missed, f"{entry.name} was promised room on {was_due}, and is given {one.node}")
            size = entry.size_bytes if entry.is_placed else one.size_bytes
            self._hold(key, replace(one, size_bytes=size), None)
        self._told_in[key] = world.term
        self._check_size_of(entry, one, told)

    def _may_be_closed(self, held: HeldRoom) -> bool:
        """Whether the disk takes no replicas, by what the product may have seen."""
        disk = next(one for one in self._world.nodes[held.node].disks if one.uuid == held.disk_uuid)
        return not disk.schedulable or "node" in self._world.waiting()

    def _is_no_place(self, entry: Replica, held: HeldRoom) -> bool:
        """Whether the replica has to be on another node, or has grown since and perhaps found no room there."""
        facts = self._world.volumes.get(entry.volume)
        if held.size_bytes < max(entry.size_bytes, facts.size_bytes if facts is not None else 0):
            return True
        return self._world.is_elsewhere(entry, held.node)

    def _check_size_of(self, entry: Replica, one: Given, told: Told) -> None:
        """A further replica is given as much as all others of its volume have."""
        world = self._world
        if not told.is_new or not {"record", "node", "volume", "replica"}.isdisjoint(world.waiting()):
            return
        others = [other for other in world.lying_of(entry.volume) if other.is_placed and other.name != entry.name]
        least = min((other.size_bytes for other in others), default=0)
        text = f"{entry.name} is given {one.size_bytes / 1024**3:g} GiB, and others have {least / 1024**3:g}"
        world.check(one.size_bytes >= least, text)

    def _still_due(self, entry: Replica) -> bool:
        """Whether nothing that happened during the call explains a refusal."""
        facts = self._world.volumes.get(entry.volume)
        return facts is not None and bool(self.room_due(facts, self._world.replicas[entry.name]))

    def told_reuse(self, facts: Volume, told: Told) -> None:
        for one in told.given:
            entry = self._world.replicas[one.name]
            is_there = entry.failed_at and entry.volume == facts.name and entry.node == one.node
            self._world.check(bool(is_there), f"{one} is to be used again, which is {entry}")
            self._check_on_record(replica_key(one.name), self._held(one))

    def told_growth(self, name: str, size_bytes: int, told: Told, was_due: bool) -> None:
        world = self._world
        if not told.given:
            is_refused = told.is_answered and told.reasons != "nothing to do" and self.growth_due(name, size_bytes)
            world.check(
                not (was_due and is_refused), f"{name} was granted {size_bytes / 1024**3:g} GiB: {told.reasons}"
            )
            return
        lying = {entry.name for entry in world.lying_of(name) if entry.is_placed}
        names = {one.name for one in told.given if one.name in world.replicas}  # the others have just gone
        written = {one.name for one in world.recorded()}  # by a call that was never answered, too
        world.check(names <= lying | written, f"{names} are given room, and {lying} are there")
        for one in (one for one in told.given if one.name in names):
            world.check(one.size_bytes >= size_bytes, f"{one.name} is given {one.size_bytes}, not {size_bytes}")
            self._hold(replica_key(one.name), one, self.given.get(replica_key(one.name)))
        self.grown[name] = Grown(size_bytes, world.now)

    def frees(self, key: Key) -> None:
        """Nobody relies any more on what was given under `key`, whatever the call that frees it is answered."""
        self.given.pop(key, None)
        self._world.inherited.pop(key, None)

    def told_freed(self, key: Key, told: Told, *, is_there: bool) -> None:
        """Checks the answer to a call that frees `key`. `is_there`: an object shows it on a disk."""
        world, (purpose, name, uuid) = self._world, key
        world.check(not (is_there and told.given), f"{key} is freed, and lies on a disk")
        if not (told.is_answered and (told.given or told.reasons == "nothing to do")):
            return
        entries = [one for one in world.recorded() if (one.purpose, one.name) == (purpose, name)]
        left = [one for one in entries if uuid in ("", one.disk_uuid)]
        if "record" in world.waiting():  # a former leader's write has just arrived
            left = [one for one in left if one.disk_uuid in {freed.uuid for freed in told.given}]
        world.check(not left or is_there or key in self.given, f"{key} was freed, and is on record: {left}")

    def told_copy(self, image: BackingImage, told: Told) -> None:
        shown = self._world.images[image.name].disk_uuids
        to_come = {held.disk_uuid for held in self.copies_of(image.name) if not self._may_be_closed(held)} - shown
        for one in told.given:
            key = image_key(image.name, one.uuid)
            self._world.check(not (told.is_new and one.uuid in shown), f"a second copy is given: {key}")
            is_another = bool(to_come) and one.uuid not in to_come
            self._world.check(not is_another, f"a copy is given on {one.uuid}, and {to_come} are still to come")
            self._hold(key, one, self.given.get(key))

    def copies_of(self, name: str) -> list[HeldRoom]:
        return [held for key, held in self.given.items() if key[:2] == ("backing-image", name)]

    def _hold(self, key: Key, one: Given, known: HeldRoom | None) -> None:
        held = self._held(one)
        if known is not None:
            most = max(held.most_bytes, known.most_bytes)
            held = replace(held, size_bytes=max(held.size_bytes, known.size_bytes), most_bytes=most)
        self.given[key] = held
        self._check_on_record(key, held)

    def _held(self, one: Given) -> HeldRoom:
        return HeldRoom(one.node, one.uuid, one.size_bytes, self._world.now, one.size_bytes)

    # At every moment

    def check(self) -> None:
        self._forget_what_is_over()
        self._check_sums()
        for key, held in self.given.items():
            self._check_on_record(key, held)
        if not self._world.waiting():
            self._counts.check()

    def check_at_rest(self) -> None:
        """Once everything has arrived, the record says what the objects show, but for replicas that wait for their
        disk, copies of images that are still to come, and volumes that have still to grow."""
        world = self._world
        shown = dict(world.lying())
        for one in world.recorded():
            place = (str(one.purpose), one.name, one.disk_uuid)
            size, entry = shown.pop(place, 0), world.replicas.get(one.name)
            key = image_key(one.name, one.disk_uuid)
            is_to_come = key in world.given or key in world.inherited or world.is_doubtful(one.name)
            if (entry is not None and not entry.is_placed) or (place == key and not size and is_to_come):
                continue
            volume = world.volumes.get(entry.volume) if entry is not None and size else None
            claim = world.claim_of(volume.name) if volume is not None else None
            most = max(size, volume.size_bytes if volume is not None else 0)
            most = max(most, claim.requested_bytes if claim is not None and claim.volume_name else 0)
            text = f"{one} is on record at last, and {size / 1024**3:g} GiB are there"
            world.check(size <= one.size_bytes <= most, text)
        world.check(not shown, f"not on record at last: {shown}")

    def _forget_what_is_over(self) -> None:
        """Drop answers whose object is gone, and growth that nobody asks for any more."""
        world = self._world
        for key, held in list(self.given.items()):
            if key[0] == "replica":
                entry = world.replicas.get(key[1])
                if entry is None:
                    del self.given[key]
                    continue
                volume = world.volumes.get(entry.volume)
                shown = max(entry.size_bytes, volume.size_bytes if volume is not None else 0)
                grown = self.grown.get(entry.volume)
                told_at = held.at if grown is None else max(held.at, grown.at)
                if held.size_bytes > shown and world.now - told_at >= PATIENCE_SECONDS:
                    self.given[key] = replace(held, size_bytes=shown)

    def _check_on_record(self, key: Key, held: HeldRoom) -> None:
        sizes = {
            (one.node, one.disk_uuid): one.size_bytes
            for one in self._world.recorded()
            if (one.purpose, one.name) == key[:2]
        }
        size = sizes.get((held.node, held.disk_uuid), 0)
        text = f"{key[1]} was given {held.size_bytes / 1024**3:g} GiB on {held.node}/{held.disk_uuid}"
        self._world.check(size >= held.size_bytes, f"{text}, and {size / 1024**3:g} GiB are on record")

    def _check_sums(self) -> None:
        sizes = dict(self._world.lying())
        for key, held in self.given.items():
            place = (*key[:2], held.disk_uuid)
            sizes[place] = max(sizes.get(place, 0), held.size_bytes)
        sums: Counter[str] = Counter()
        for (_, _, uuid), size in sizes.items():
            sums[uuid] += size
        limits = self._world.rules().limits()
        for uuid, total in sums.items():
            if total > limits[uuid]:
                listed = sorted(f"{key[1]} {size / 1024**3:g}" for key, size in sizes.items() if key[2] == uuid)
                text = f"{total / 1024**3:g} of {limits[uuid] / 1024**3:g} GiB are on {uuid}: {listed}"
                self._world.check(False, text)
