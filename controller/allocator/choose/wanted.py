"""The questions that `Chooser` answers, and the facts that Longhorn's rules need for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage, Replica, Volume
from controller.model.places import MOST_BYTES, Place
from controller.rules.candidates import PlacementView
from controller.rules.eligibility import NO_ENGINES, Engines
from controller.rules.locality import bound_to
from controller.rules.reasons import Reason, Rejection


class Taken(Protocol):
    """What is promised beside what objects show, as one question sees it: to other volumes, and to other copies of the
    wanted one."""

    def taken_bytes(self, node: str, disk_uuid: str) -> int: ...


class NothingTaken:
    """Nothing is promised to anybody."""

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        del node, disk_uuid
        return 0


class Plus:
    """What is `taken`, and these places as well: each counts on all disks of its UUID. The disk `shut` is full."""

    def __init__(self, taken: Taken, places: Iterable[Place], shut: tuple[str, str] = ("", "")) -> None:
        self._taken, self._shut = taken, shut
        self._more = Counter[str]()
        for place in places:
            self._more[place.disk_uuid] += place.size_bytes

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        if (node, disk_uuid) == self._shut:
            return MOST_BYTES
        taken = self._taken.taken_bytes(node, disk_uuid)
        return taken + self._more[disk_uuid] if self._more else taken


@dataclass(frozen=True, slots=True)
class Wanted:
    """A disk is wanted for `replica`, which has none and may not exist yet. `volume.node_id`: where the volume runs or
    will run. `planned`: places of its other copies that no object shows yet. `only`: the nodes that may be chosen;
    None: all."""

    volume: Volume
    replica: Replica
    planned: tuple[Place, ...] = ()
    only: Set[str] | None = None


def replica_to_come(volume: Volume, hard_node_affinity: str = "") -> Replica:
    """Return a further replica of the volume, under a name that no object has."""
    return Replica(
        name=f"{volume.name}-new-",
        volume=volume.name,
        size_bytes=volume.size_bytes,
        hard_node_affinity=hard_node_affinity,
        image=volume.image,
        data_engine=volume.needs.data_engine,
        backing_image=volume.backing_image,
    )


def view_of(world: World, wanted: Wanted, now_utc: datetime | None, engines: Engines = NO_ENGINES) -> PlacementView:
    """Return what Longhorn's rules look at for that question, with planned copies as placed replicas."""
    volume, asked = wanted.volume, wanted.replica
    if bound_to(volume):
        asked = replace(asked, hard_node_affinity=bound_to(volume))  # as Longhorn has it when it places it
    replicas = {**world.replicas_of(volume.name), asked.name: asked}
    for name in world.reused.keys() & replicas.keys():
        replicas[name] = replace(replicas[name], failed_at="")  # it comes back, as somebody was told
    stored = {(one.node, one.disk_uuid) for one in replicas.values() if one.is_usable}
    for number, place in enumerate(wanted.planned):
        if (place.node, place.disk_uuid) not in stored:
            name = f"{volume.name}-planned-{number}"
            copy = replace(replica_to_come(volume), name=name, node=place.node, disk_uuid=place.disk_uuid)
            replicas[name] = copy
    source = volume.source_volume
    return PlacementView(
        nodes=world.nodes,
        replicas=tuple(replicas.values()),
        settings=world.settings,
        backing_image=world.backing_image(volume.backing_image),
        engines=engines,
        kube_nodes=world.kube_nodes or None,
        source_replicas=tuple(world.replicas_of(source).values()) if source else (),
        now_utc=now_utc,
    )


def asked_of(view: PlacementView, wanted: Wanted) -> Replica:
    """Return the wanted replica as the view has it."""
    return next(one for one in view.replicas if one.name == wanted.replica.name)


def check_image(image: BackingImage | None) -> Rejection | None:
    """Return why the first copy of a volume waits whose image has no size: nobody knows what it takes on a disk."""
    is_known, name = image is None or image.real_size_bytes, image.name if image is not None else ""
    text = f"the size of backing image {name} is not known: Longhorn is still fetching it, or has failed to"
    return None if is_known else Rejection(Reason.BACKING_IMAGE_SIZE_UNKNOWN, text)


def copy_bytes(world: World, volume: Volume, planned: Iterable[Place], disk_uuid: str) -> int:
    """Return the bytes that a further copy takes on that disk, with its backing image if that comes along."""
    return volume.size_bytes + image_bytes(world, world.backing_image(volume.backing_image), planned, disk_uuid)


def image_bytes(world: World, image: BackingImage | None, planned: Iterable[Place], disk_uuid: str) -> int:
    """Return the bytes of the image that come to that disk with a replica: 0 if it is there, or comes with a copy that
    is `planned` there."""
    if image is None or any(place.disk_uuid == disk_uuid for place in planned):
        return 0
    return image.real_size_bytes if world.lacks_image(image, disk_uuid) else 0
