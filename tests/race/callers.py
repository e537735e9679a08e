"""Who asks the DiskScheduler service for room, in place of Longhorn's own search: its controllers, one call after the
other, and what they write of what they are told. They write it at any later time, or never."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from controller.model.longhorn import BackingImage, Replica, Volume
from controller.model.workload import Claim
from tests.fakes.builders import GIB
from tests.race.allocations import PATIENCE_SECONDS, Allocations
from tests.race.longhorn import TOLD, RaceLonghorn
from tests.race.record import WriteFault
from tests.race.service import Service, Told
from tests.race.world import Action, Doubt, Key, RaceWorld, image_key, replica_key

MOST_IMAGES: Final = 2
REST_STEPS: Final = 6
REST_SECONDS: Final = 30.0
GROWTH_DOUBT_SECONDS: Final = 90.0  # for which an expansion without an answer may have been granted
Ask = Callable[[Service], Told]


@dataclass
class Course:
    """What happens around the next call: to its writes, before its answer, and before it is written; if it
    `is_overtaken`, while that waits for its turn."""

    faults: tuple[WriteFault, ...] = ()
    meanwhile: Callable[[], None] | None = None
    beforehand: Callable[[], None] | None = None
    is_overtaken: bool = False


class Callers:
    """Longhorn's controllers as callers of the service; `longhorn` places what they are given."""

    def __init__(self, world: RaceWorld, longhorn: RaceLonghorn, judged: Allocations) -> None:
        self._world, self._longhorn, self._judged = world, longhorn, judged
        self.course = Course()
        longhorn.asks = self

    def actions(self) -> list[Action]:
        """What callers may do beside what Longhorn does by itself."""
        found = [*self._repeats(), *self._reuses(), *self._expansions(), *self._freeing(), *self._images()]
        found.append(("keeper asks what is on record", self._keep))
        record, nodes = self._world.record, self._world.nodes
        found += [(f"the disks of {node} get each other's names", partial(self._rename, node)) for node in nodes]
        assert record is not None
        found += [
            (f"the write of {write.stored.record.node} arrives late", partial(record.arrive, write))
            for write in record.under_way()
        ]
        return found

    def newcomers(self) -> list[Action]:
        """Calls for room that nobody was promised before them, answered while another one looks for a disk."""
        calls = [*self._expansions(), *(one for one in self._images() if " asks " in one[0])]
        return [one for one in calls if not one[0].endswith("as told")]

    def come_to_rest(self) -> None:
        """Nobody asks any more, and everything arrives; the keeper goes on until all growth is over."""
        world = self._world
        assert world.record is not None
        world.log.append("everything comes to rest")
        world.record.lose(world.serial)
        for _ in range(REST_STEPS):
            world.deliver_all()
            world.sweep(REST_SECONDS)
        world.deliver_all()

    def _rename(self, node: str) -> None:
        """The node's disks exchange their names; a single one gets a name that no disk had."""
        facts = self._world.nodes[node]
        names = [disk.name for disk in facts.disks]
        others = [*names[1:], names[0]] if len(names) > 1 else [f"{names[0]}x"]
        disks = (replace(disk, name=name) for disk, name in zip(facts.disks, others, strict=True))
        self._world.write("node", node, replace(facts, disks=tuple(disks)))

    def _keep(self) -> None:
        with self._course() as service:
            service.keep()

    @contextmanager
    def _course(self) -> Iterator[Service]:
        """The service, with the faults and interruptions of the next course during the block."""
        world, course = self._world, self.course
        self.course = Course()
        record, service = world.record, world.driver.service
        assert record is not None and service is not None
        before = record.faults, record.meanwhile  # of the call in the midst of which this one is made
        record.faults, record.meanwhile = deque(course.faults), course.meanwhile
        service.beforehand, service.is_overtaking = course.beforehand, course.is_overtaken
        yield service
        record.faults, record.meanwhile = before
        record.is_cut_off = False
        service.beforehand = None

    def _call(self, key: Key, of: str, ask: Ask, doubt_seconds: float = inf) -> Told:
        """The answer to one call about `key`, which is `of` that volume or image; the call takes the next course."""
        world, term = self._world, self._world.term
        with self._course() as service:
            told = ask(service)
        if told.is_answered and (told.given or told.reasons == "nothing to do"):
            world.in_doubt.pop(key, None)
        elif not told.is_answered and world.term == term:
            world.in_doubt[key] = Doubt(of, world.now + doubt_seconds)
        world.log.append(f"  {told}")
        return told

    # Replicas

    def placing(self, facts: Volume, entry: Replica) -> Iterator[Action]:
        """What Longhorn does about a replica without a disk: it asks for one, or uses the one that it was given."""
        given = self._judged.given.get(replica_key(entry.name))
        if given is None:
            yield f"{entry.name} asks for a disk", partial(self.ask_disk, facts, entry)
        else:
            text = f"{entry.name} is placed on {given.disk_uuid}, as told"
            size = min(given.size_bytes, facts.size_bytes)  # what was given for the volume's growth shows with that
            yield text, partial(self._longhorn.place, facts, entry, given.node, given.disk_uuid, size, TOLD)

    def ask_disk(self, facts: Volume, entry: Replica) -> None:
        was_due = self._judged.room_due(facts, entry)
        key = replica_key(entry.name)
        told = self._call(key, facts.name, lambda service: service.schedule_replica(facts.name, entry.name))
        self._judged.told_replica(entry, told, was_due)
        if told.is_answered and not told.given and facts.name in self._world.volumes:
            self._longhorn.finds_no_disk(facts.name)

    def _repeats(self) -> Iterator[Action]:
        """Calls about replicas that were given a disk before."""
        for name in list(self._judged.given):
            entry = self._world.replicas.get(name[1])
            facts = self._world.volumes.get(entry.volume) if entry is not None else None
            if entry is not None and facts is not None and not entry.failed_at:
                yield f"{entry.name} asks once more", partial(self.ask_disk, facts, entry)
                text = f"{entry.name} asks twice more while nobody can be asked"
                yield text, partial(self._ask_in_vain, facts, entry)

    def _ask_in_vain(self, facts: Volume, entry: Replica) -> None:
        for _ in range(2):
            self.course = Course((WriteFault.AWAY,))
            self.ask_disk(facts, entry)

    def _reuses(self) -> Iterator[Action]:
        for facts in self._world.volumes.values():
            if any(entry.failed_at for entry in self._world.replicas_of(facts.name)):
                yield f"{facts.name} asks for a failed replica to use", partial(self._reuse, facts)

    def _reuse(self, facts: Volume) -> None:
        key = "reused", facts.name, ""
        told = self._call(key, facts.name, lambda service: service.reuse_failed_replica(facts.name))
        self._judged.told_reuse(facts, told)

    # Growth

    def takes_growth(self, entry: Replica, size_bytes: int) -> bool:
        """Whether the replica may become as large: it has no disk, or that much was given to it there."""
        given = self._judged.given.get(replica_key(entry.name))
        return (given is None and not entry.is_placed) or (given is not None and given.size_bytes >= size_bytes)

    def asks_to_grow(self, facts: Volume) -> Iterator[Action]:
        """The call of the engine's controller, before it grows replicas that are smaller than the volume."""
        if any(not self.takes_growth(entry, facts.size_bytes) for entry in self._world.replicas_of(facts.name)):
            text = f"{facts.name} asks for {facts.size_bytes // GIB} GiB on all disks"
            yield text, partial(self._expand, facts.name, facts.size_bytes)

    def _expand(self, name: str, size_bytes: int) -> None:
        was_due = self._judged.growth_due(name, size_bytes)
        key = "growth", name, ""
        told = self._call(key, name, lambda service: service.expand_volume(name, size_bytes), GROWTH_DOUBT_SECONDS)
        self._judged.told_growth(name, size_bytes, told, was_due)

    def _expansions(self) -> Iterator[Action]:
        """A caller that asks first, and has the claim and the volume grow then, or not."""
        world = self._world
        for claim in list(world.claims.values()):
            facts = world.volumes.get(claim.volume_name) if claim.volume_name else None
            if facts is None or not any(entry.is_placed for entry in world.replicas_of(facts.name)):
                continue
            size = max(facts.size_bytes, claim.requested_bytes) + (1 + world.serial % 3) * GIB
            yield f"{facts.name} is to become {size // GIB} GiB", partial(self._expand, facts.name, size)
            known = self._judged.grown.get(facts.name)
            if known is not None and known.size_bytes > facts.size_bytes and self._is_patient(known.at):
                text = f"{facts.name} becomes {known.size_bytes // GIB} GiB, as told"
                yield text, partial(self._grow, claim, facts, known.size_bytes)

    def _is_patient(self, since: float) -> bool:
        return self._world.now - since < PATIENCE_SECONDS

    def _grow(self, claim: Claim, facts: Volume, size_bytes: int) -> None:
        world = self._world
        world.write("claim", claim.key, replace(claim, requested_bytes=max(size_bytes, claim.requested_bytes)))
        world.write("volume", facts.name, replace(facts, size_bytes=size_bytes))
        pv = world.pvs.get(facts.name)
        if pv is not None:
            world.write("pv", pv.name, replace(pv, capacity_bytes=size_bytes))

    # Freeing

    def _freeing(self) -> Iterator[Action]:
        names = {(one.purpose, one.name) for one in self._world.recorded()}
        for key in sorted({*names, *((one[0], one[1]) for one in self._judged.given)}):
            if key[0] == "replica":
                yield f"{key[1]} asks to be freed", partial(self._free, key[1])

    def _free(self, name: str) -> None:
        entry = self._world.replicas.get(name)
        is_there, key = entry is not None and entry.is_placed, replica_key(name)
        if not is_there:
            self._judged.frees(key)
        volume = entry.volume if entry is not None else ""
        told = self._call(key, volume, lambda service: service.deallocate_replica(name))
        if entry is not None:
            self._world.told.disturb(entry.volume)  # what it had is given up
        self._judged.told_freed(key, told, is_there=is_there)

    # Backing images

    def _images(self) -> Iterator[Action]:
        world = self._world
        if len(world.images) < MOST_IMAGES:
            yield "a backing image is made", self._make_image
        for image in list(world.images.values()):
            yield f"{image.name} asks for a copy", partial(self._ask_copy, image)
            for uuid in sorted(image.disk_uuids):
                text = f"the copy of {image.name} on {uuid} goes"
                yield text, partial(self._write_image, image.name, image.disk_uuids - {uuid})
            on_record = [one for one in world.recorded() if one.name == image.name]
            for uuid in sorted({one.disk_uuid for one in on_record} | image.disk_uuids):
                yield f"{image.name} asks to free the copy on {uuid}", partial(self._free_copy, image.name, uuid)
            for given in self._judged.copies_of(image.name):
                if given.disk_uuid not in image.disk_uuids:
                    text = f"the copy of {image.name} is made on {given.disk_uuid}, as told"
                    yield text, partial(self._write_image, image.name, image.disk_uuids | {given.disk_uuid})

    def _make_image(self) -> None:
        self._world.serial += 1
        name = f"image{self._world.serial}"
        size = (1 + self._world.serial % 2) * GIB
        self._world.write("backing_image", name, BackingImage(name, real_size_bytes=size, size_bytes=size))

    def _write_image(self, name: str, uuids: frozenset[str]) -> None:
        image = self._world.images[name]
        for uuid in image.disk_uuids - uuids:
            self._judged.frees(image_key(name, uuid))
        self._world.write("backing_image", name, replace(image, disk_uuids=uuids))

    def _ask_copy(self, image: BackingImage) -> None:
        key = image_key(image.name, "")
        told = self._call(key, image.name, lambda service: service.schedule_backing_image(image.name))
        self._judged.told_copy(image, told)

    def _free_copy(self, name: str, uuid: str) -> None:
        is_there, key = uuid in self._world.images[name].disk_uuids, image_key(name, uuid)
        if not is_there:
            self._judged.frees(key)
        told = self._call(key, name, lambda service: service.deallocate_backing_image(name, uuid))
        self._judged.told_freed(key, told, is_there=is_there)
