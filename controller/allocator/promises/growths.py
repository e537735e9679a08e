"""Growth of volumes as promises: one of each volume, with all its disks, granted or ended together.

HELD: an expansion was admitted, and the cluster does not ask for that size yet. ASSUMED: the cluster asks for it (the
claim's request is beyond the volume, or the volume beyond its replicas), so Longhorn takes it when it can. The second
is worked out of the facts whenever they change, so that a follower and a new leader know it as well.

Nothing in a review proves who sent it. What is asked for in earnest is stored, nearly always in a moment. So a hold
has one end, counted from its first review; who asks again changes nothing. It counts for its namespace, beside what
claims without pods are promised, once a live read has shown that it is not stored yet; what is beyond the cap then ends
at once. After a hold that ended in vain the volume is judged as ever, and for a while nothing is held for it: a forged
review takes room once, and never keeps an owner from growing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from controller.allocator.promises.journal import Journal, Tale
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import Kind, OnDisks, Promise, Source, State, Verb
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, Volume
from controller.rules.expandable import GrowthCase, Lasting, check_expandable
from controller.rules.growth import most_if_empty

_ADMITTED: Final = "admitted"  # by this leader
GROWTH: Final = "growth:"  # the claimant; its volume is Longhorn's, by name
HOLD_SECONDS: Final = 60.0  # from the first review; longer than the API server's own deadline for a request
STORE_SECONDS: Final = 5.0  # within which nearly every growth that was admitted is stored
MOST_HELD_SECONDS: Final = 300.0  # after which it ends although the API server cannot be asked
_OF_NOBODY: Final = "-"  # the namespace of volumes without a claim; no namespace has that name


class GrantedBy:
    """What the world asks of the ledger of the moment."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger

    def target_of(self, volume: str) -> int:
        return self._ledger().target_of(volume)

    def grows_on(self, disk_uuid: str) -> bool:
        return self._ledger().grows_on(disk_uuid)


class Growths:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(
        self, world: World, ledger: Ledger, memory: Memory, journal: Journal, cap_bytes: Callable[[], int]
    ) -> None:
        """`cap_bytes`: what one namespace may be promised without a pod that was scheduled; 0: anything."""
        self._world, self._ledger, self._memory, self._journal = world, ledger, memory, journal
        self._cap_bytes = cap_bytes

    def get(self, name: str) -> Promise | None:
        return self._ledger.get(name, GROWTH)

    def granted(self, name: str) -> int:
        """The size that the volume may grow to at any moment; 0 for a volume that is not there."""
        volume, promise = self._world.volumes.get(name), self.get(name)
        if volume is None:
            return 0
        return max(volume.size_bytes, promise.size_bytes if promise is not None else 0)

    def hold(self, name: str, size_bytes: int, now: float) -> bool:
        """An expansion to that size was admitted. Whether anything is promised that was not."""
        if size_bytes <= self.granted(name):
            return False
        volume, promise = self._world.volumes[name], self.get(name)
        held = promise if promise is not None and promise.state is State.HELD else None
        if not self._may_hold(volume, held, size_bytes, now):
            self._not_held(name, size_bytes)
            return False
        if held is not None:  # its time goes on
            self._put(Verb.HOLD, volume, size_bytes, held.since, held.until, held.charged_to)
        else:
            self._put(Verb.HOLD, volume, size_bytes, now, now + STORE_SECONDS)
        return True

    def _may_hold(self, volume: Volume, held: Promise | None, size_bytes: int, now: float) -> bool:
        """What nobody has looked at yet may be of any size; else many growths at once would be refused."""
        if held is None and self._memory.is_unstored(volume.name, now):
            return False
        namespace = self._namespace(volume.name)
        asked = sum(grown for _, _, grown in self._growth(volume, size_bytes))
        if held is not None:
            return not held.charged_to or self._is_within_cap(namespace, asked - held.most_bytes, now)
        is_trusted = not self._memory.unstored_bytes(namespace, now)
        return is_trusted or self._is_within_cap(namespace, asked, now)

    def _is_within_cap(self, namespace: str, more_bytes: int, now: float) -> bool:
        """Beside claims, what is held and not stored, and what was so a while ago."""
        cap = self._cap_bytes()
        spent = self._ledger.charged(namespace) + self._memory.unstored_bytes(namespace, now)
        return not cap or spent + more_bytes <= cap

    def _not_held(self, name: str, size_bytes: int) -> None:
        self._journal.counters["expansions_capped"] += 1
        claim = self._world.claim_of_volume(name)
        if claim is not None:
            self._journal.tell(Tale.GROWTH_NOT_HELD, claim, size_bytes, self._cap_bytes())

    def look(self, name: str, now: float) -> bool:
        """A live read showed that what is held has reached an end of its time and is not stored. Whether it ended."""
        held = self.get(name)
        if held is None or held.until is None or now < held.until:
            return False
        namespace = self._namespace(name)
        if not held.charged_to:
            if now < held.since + HOLD_SECONDS and self._is_within_cap(namespace, held.most_bytes, now):
                until = held.since + HOLD_SECONDS
                self._ledger.put(Verb.HOLD, replace(held, until=until, charged_to=namespace))
                return False
            if now < held.since + HOLD_SECONDS:
                self._not_held(name, held.size_bytes)
        return True

    def settle(self, name: str, now: float, *, ends_hold: bool = False) -> bool:
        """Bring the volume's growth in line with the facts; whether its size as it was granted changed. `ends_hold`:
        what was admitted and never shown ends."""
        volume, old = self._world.volumes.get(name), self.get(name)
        if volume is None:
            return old is not None and self._drop(Verb.FORGET, old)
        asked = self._world.asked_bytes(volume)
        if asked > volume.size_bytes and not self._can_be(volume, asked, old):
            asked = volume.size_bytes
        self._memory.note_stored(name, asked)
        is_held = old is not None and old.state is State.HELD and old.size_bytes > asked and not ends_hold
        if old is not None and is_held:
            return self._put(Verb.HOLD, volume, old.size_bytes, old.since, old.until, old.charged_to)
        if old is not None and old.state is State.HELD and old.size_bytes > asked:
            self._memory.note_unstored(name, self._namespace(name), old.most_bytes, old.size_bytes, now)
        smaller = any(entry.size_bytes < asked for entry in self._world.replicas_of(name).values())
        if asked > volume.size_bytes or (smaller and self._can_be(volume, asked, old)):
            since = old.since if old is not None and old.state is State.ASSUMED else now
            return self._put(Verb.ASSUME, volume, asked, since, None)
        if old is None:
            return False
        return self._drop(Verb.EXPIRE if ends_hold else Verb.CONFIRM, old)

    def _can_be(self, volume: Volume, size_bytes: int, old: Promise | None) -> bool:
        """Whether every disk that holds the volume could take that size, which the cluster asks for: if it was admitted
        by us, were the disk otherwise empty; else by the figures that Longhorn may go by now. Longhorn does not grow it
        while it cannot, so that such a growth takes no room from anybody; nor does one of a volume that never grows.
        What its state forbids for now is waited for. Who asks for it is told."""
        if size_bytes > volume.size_bytes and self._is_barred(volume, size_bytes):
            return False
        was_admitted = _was_admitted(old, size_bytes)
        by_disk: dict[tuple[str, str], list[int]] = {}
        for entry in self._world.replicas_of(volume.name).values():
            if entry.node:
                by_disk.setdefault((entry.node, entry.disk_uuid), []).append(entry.size_bytes)
        for (node, uuid), sizes in by_disk.items():
            disk = self._disk(node, uuid)
            limit = most_if_empty(disk, self._world.settings.space) if disk is not None else None
            if disk is None or limit is None:
                continue
            if len(sizes) * size_bytes > limit:
                self._tell(Tale.GROWS_TOO_FAR, volume, size_bytes, limit // len(sizes), f"{node}, {disk.name}")
                return False
            room = max(limit - disk.scheduled_bytes, self._world.reach.most_believed(uuid))
            if not was_admitted and len(sizes) * size_bytes - sum(sizes) > max(0, room):
                most = max(0, room + sum(sizes)) // len(sizes)
                self._tell(Tale.GROWS_LATER, volume, size_bytes, most, f"{node}, {disk.name}")
                return False
        return True

    def _is_barred(self, volume: Volume, size_bytes: int) -> bool:
        """Whether Longhorn never gives it that size, for another reason than room."""
        replicas = tuple(self._world.replicas_of(volume.name).values())
        disks = {(entry.node, entry.disk_uuid) for entry in replicas if entry.node}
        shown = ((node, self._disk(node, uuid)) for node, uuid in sorted(disks))
        known = tuple((node, disk) for node, disk in shown if disk is not None)
        found = check_expandable(GrowthCase(volume, replicas, known, size_bytes, self._world.settings.behaviour))
        if found is None or found.lasting is not Lasting.NEVER:
            return False
        self._tell(Tale.NEVER_GROWS, volume, size_bytes, volume.size_bytes, found.rejection.message)
        return True

    def _disk(self, node: str, uuid: str) -> Disk | None:
        facts = self._world.nodes.get(node)
        return next((disk for disk in facts.disks if disk.uuid == uuid), None) if facts is not None else None

    def _tell(self, tale: Tale, volume: Volume, asked_bytes: int, most_bytes: int, where: str) -> None:
        claim = self._world.claim_of_volume(volume.name)
        if claim is not None:
            self._journal.tell(tale, claim, asked_bytes, most_bytes, where)

    def _growth(self, volume: Volume, size_bytes: int) -> tuple[tuple[str, str, int], ...]:
        """Bytes more of each replica that has a disk, with node and disk."""
        return tuple(
            (entry.node, entry.disk_uuid, size_bytes - entry.size_bytes)
            for entry in self._world.replicas_of(volume.name).values()
            if entry.node and entry.size_bytes < size_bytes
        )

    def _put(
        self, verb: Verb, volume: Volume, size_bytes: int, since: float, until: float | None, charged_to: str = ""
    ) -> bool:
        old = self.get(volume.name)
        growth = self._growth(volume, size_bytes)
        promise = Promise(
            volume=volume.name,
            claimant=GROWTH,
            source=Source.GROWTH,
            state=State.HELD if verb is Verb.HOLD else State.ASSUMED,
            kind=Kind.GROWTH,
            size_bytes=size_bytes,
            required_bytes=0,
            needs=volume.needs,
            places=OnDisks(growth),
            since=since,
            until=until,
            charged_to=charged_to,
            situation=_ADMITTED if verb is Verb.HOLD or _was_admitted(old, size_bytes) else None,
        )
        if promise == old:
            return False
        self._ledger.put(verb, promise)
        self._world.growth_changed(volume.name, {uuid for _, uuid, _ in (*growth, *_disks(old))})
        return old is None or old.size_bytes != size_bytes

    def leave(self) -> bool:
        """The ledger is about to be emptied: rooms are worked out without them. Whether one was held that nobody sees
        yet."""
        for promise in self._ledger.growths():
            self._world.growth_changed(promise.volume, {uuid for _, uuid, _ in _disks(promise)})
        return any(promise.state is State.HELD for promise in self._ledger.growths())

    def _namespace(self, name: str) -> str:
        claim = self._world.claim_of_volume(name)
        return claim.namespace if claim is not None else _OF_NOBODY

    def _drop(self, verb: Verb, promise: Promise) -> bool:
        self._ledger.drop(verb, promise.volume, GROWTH)
        self._world.growth_changed(promise.volume, {uuid for _, uuid, _ in _disks(promise)})
        return True


def _was_admitted(promise: Promise | None, size_bytes: int) -> bool:
    return promise is not None and promise.situation == _ADMITTED and size_bytes <= promise.size_bytes


def _disks(promise: Promise | None) -> tuple[tuple[str, str, int], ...]:
    return promise.places.growth_bytes if promise is not None and isinstance(promise.places, OnDisks) else ()
