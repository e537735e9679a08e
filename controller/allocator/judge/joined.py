"""Where Longhorn would put one replica if all that is promised had landed: its own procedure, asked about such disks.

Longhorn's search (controller/rules/candidates.py) goes by the disks' figures. Here a disk's figure is what lies on it
by every Replica object, as large as it may become by growths that were granted, together with the bytes of all that is
promised to others and may come to it, and with the volume's backing image where that is absent. Affinity, the order of
tries and the choice between candidates are Longhorn's; that choice goes by what lies there alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from controller.allocator.judge.pending import EvenLoad, Pending
from controller.allocator.outcome import Obstacle
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Roams, Source
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, LonghornNode, Replica, Volume
from controller.model.quantity import bytes_text
from controller.rules.affinity import (
    Affinity,
    Try,
    Usage,
    counted_replicas,
    disks_with_replicas,
    is_replacement_due,
)
from controller.rules.candidates import (
    Candidate,
    PlacementView,
    check_search,
    find_candidates,
    needs_of,
    reached_nodes,
)
from controller.rules.eligibility import NodeRoom, check_disk_kind, check_disk_state, check_node, check_node_for
from controller.rules.placing import wanted_affinity
from controller.rules.preference import prefer_attach_node, preferred
from controller.rules.reasons import Reason, Refusal, Rejection

_MOST_BYTES: Final = 2**62  # more than any disk has; beyond it Longhorn's sums overflow, and a full disk seems empty


@dataclass(frozen=True, slots=True)
class FoundDisk:
    """A disk that would take the replica. `free_bytes`: what is left of it for newcomers, this one included, beside the
    `promised_bytes` that others may bring to it."""

    node: str
    disk: str
    uuid: str
    free_bytes: int
    promised_bytes: int


@dataclass(frozen=True, slots=True)
class FoundDisks:
    """All disks that would take a replica of `size_bytes`, the one that Longhorn is predicted to take, and why not the
    others. `tried`: which group of nodes decided. `more`: how many obstacles there are beside those."""

    size_bytes: int
    disks: tuple[FoundDisk, ...] = ()
    preferred: FoundDisk | None = None
    obstacles: tuple[Obstacle, ...] = ()
    tried: Try | None = None
    more: int = 0


class DiskSum(NamedTuple):
    """What one disk's figure is made of. `room_bytes`: by over-provisioning, promises and the image aside."""

    room_bytes: int
    promised_bytes: int
    image_bytes: int

    @property
    def free_bytes(self) -> int:
        return self.room_bytes - self.promised_bytes


class JoinedDisks:
    """The disks of one volume's question, of one moment of world and ledger; make a new one for each question."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        volume: Volume,
        now_utc: datetime | None,
        closed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`closed`: nodes by name, and disks by UUID, that take nothing, with the reason, which is not one of
        Longhorn's."""
        world.refresh()
        self.closed = closed
        self.only: frozenset[str] | None = None  # the nodes that are looked at; None: all
        self.is_beside_roaming = True  # what may land on any node has to fit beside it, too
        self._world, self._ledger, self._volume, self._now_utc = world, ledger, volume, now_utc
        self._keys = frozenset({volume.name, *(claim.uid for claim in world.claims_of_volume(volume.name))})
        self._pending = Pending(world, ledger, self._keys)
        self._image = world.backing_image(volume.backing_image)
        self._own: dict[str, dict[str, int]] = {}  # by disk, what of the volume is in the figure, listed or not
        for one in world.replicas_of(volume.name).values():
            if one.disk_uuid:
                self._own.setdefault(one.disk_uuid, {})[one.name] = one.size_bytes
        self._sums: dict[tuple[str, str], DiskSum] = {}

    def tries(self) -> Iterator[Self]:
        """What a call that gives room away looks at, one after the other, until a disk is found; this is among it.

        All that is promised has to fit beside the replica, wherever it lands. Where a pod was told that the volume
        finds room on any node, that was judged with every place in mind that others may take, and theirs with every
        place of this one: it takes nobody's room but where something is bound to a node. So it is on the node that it
        was promised. Without that, two that were promised the last two disks would each wait for the other; so would
        volumes of one pod that were offered a node at discretion, where any order leaves each of them a disk.

        What was promised a node comes there before others are looked at, and where its engine runs, if that is one of
        several. It has no copy there, or nothing would be promised.
        """
        of_volume = (one for key in self._keys for one in self._ledger.of_volume(key))
        yes = [one for one in of_volume if one.source in (Source.FILTER, Source.CHOICE)]
        roams = [one.places for one in yes if isinstance(one.places, Roams)]
        promised = frozenset[str]().union(*(one.nodes for one in yes), (one.fell_from for one in roams)) - {""}
        near = promised & {self._volume.node_id} if self._volume.node_id else promised
        if near:
            yield self._on(near, is_beside_roaming=True)
            yield self._on(near)
            pods = {one.claimant for one in yes}
            yield self._on(near, own={one.volume for pod in pods for one in self._ledger.of_claimant(pod)})
        yield self
        if roams:
            yield self._on(None)
        elif promised - near:
            yield self._on(promised - near)

    def _on(self, only: frozenset[str] | None, *, is_beside_roaming: bool = False, own: Collection[str] = ()) -> Self:
        """The same on these nodes, where the volumes with the keys in `own` take nobody's room."""
        found = copy(self)
        pending = Pending(self._world, self._ledger, self._keys.union(own)) if own else self._pending
        vars(found).update(only=only, is_beside_roaming=is_beside_roaming, _pending=pending, _sums={})
        return found

    def find(self, asked: Replica, among: Collection[str] | None = None) -> FoundDisks:
        """For `asked`, which may be one that does not exist yet. `among`: as for `find_candidates`."""
        nodes = self._world.nodes
        joined = {name: self.joined(nodes[name]) for name in (nodes if among is None else among)}
        view = self._view(asked, joined if among is None else {**nodes, **joined})
        replica = next(one for one in view.replicas if one.name == asked.name)
        size, behaviour = self._volume.size_bytes, view.behaviour
        search = find_candidates(view, self._volume, replica, among)
        narrowed = prefer_attach_node(search.candidates, self._volume, view.replicas, behaviour)
        choice = preferred(narrowed, {one.node: self._counted(nodes[one.node]) for one in narrowed}, size, behaviour)
        return FoundDisks(
            size_bytes=size,
            disks=tuple(self._found(entry) for entry in search.candidates),
            preferred=None if choice is None else self._found(choice),
            obstacles=tuple(self._obstacle(entry, size) for entry in search.refusals),
            tried=search.tried,
        )

    def find_nearest(self, asked: Replica, most: int, besides: Collection[str] = ()) -> FoundDisks:
        """As `find`, where no disk takes it: obstacles are told of the nodes with the `most` disks that have most room,
        promises aside, of those with replicas of the volume, and of those `besides`. A text with its figures for each
        disk of thousands costs far more than to see that none takes it."""
        world, view = self._world, self.unjoined(asked)
        replica = next(one for one in view.replicas if one.name == asked.name)
        reached = [name for name in reached_nodes(view, self._volume, replica) if not self._closed_for(name)]
        rooms = [room for name in reached if (room := world.room(name)) is not None]
        disks = ((disk.free_bytes, room.name) for room in rooms for disk in room.disks)
        near = {name for _, name in nlargest(most, disks)}
        near.update(islice((name for name in world.nodes if name not in near), max(0, most - len(near))))
        uuids = {one.disk_uuid for one in view.replicas if one.disk_uuid}
        own = {one.node for one in view.replicas}.union(*(world.nodes_of_disk(uuid) for uuid in uuids))
        near |= own.union(besides) & world.nodes.keys()
        found = self.find(asked, near)
        if check_search(self._volume, replica, view.backing_image) is not None:
            return found
        obstacles = sum(len(world.nodes[name].disks) or 1 for name in reached if name not in near)
        closed = len(world.nodes) - len(near.union(reached))
        return replace(found, more=obstacles + closed)

    def unjoined(self, asked: Replica | None = None) -> PlacementView:
        """What Longhorn's rules that ask for no room look at."""
        return self._view(asked, self._world.nodes)

    def _view(self, asked: Replica | None, nodes: Mapping[str, LonghornNode]) -> PlacementView:
        world, volume = self._world, self._volume
        replicas = {**world.replicas_of(volume.name), **({asked.name: asked} if asked is not None else {})}
        for name in world.allocated.reused.keys() & replicas.keys() if asked is not None else ():
            replicas[name] = replace(replicas[name], failed_at="")  # it comes back, as somebody was told
        engines = world.engines
        managers = engines.managers
        source = volume.source_volume
        return PlacementView(
            nodes=nodes,
            replicas=tuple(replicas.values()),
            settings=world.settings,
            backing_image=self._image,
            engine_images=None if engines.images is None else tuple(engines.images.values()),
            instance_managers=None if managers is None else tuple(one for here in managers.values() for one in here),
            kube_nodes=world.kube_nodes or None,
            source_replicas=tuple(world.replicas_of(source).values()) if source else (),
            now_utc=self._now_utc,
            behaviour=world.settings.behaviour,
        )

    def even_load(self) -> EvenLoad | None:
        """As `Pending.even_load`, of what this looks at; None where a backing image comes along."""
        if self._image is not None and self._image.real_size_bytes > 0:
            return None
        return self._pending.even_load() if self.is_beside_roaming else EvenLoad(0, 0, frozenset())

    def sums(self, room: NodeRoom) -> list[DiskSum]:
        """Of each disk of the room."""
        image_bytes = [self._image_bytes(disk.uuid) if self._image is not None else 0 for disk in room.disks]
        for disk, more in zip(room.disks, image_bytes, strict=True):
            if more:
                self._pending.own_image(disk.uuid, self._volume.backing_image)
        loads = self._pending.loads(room, roaming=self.is_beside_roaming)
        return [DiskSum(*row) for row in zip((disk.free_bytes for disk in room.disks), loads, image_bytes, strict=True)]

    def check_larger(self, replica: Replica, known_bytes: int) -> Obstacle | None:
        """Why the volume's replica, of which so much was judged before, cannot be as large as the volume on its disk,
        which its node shows."""
        size, node = self._volume.size_bytes, self._world.nodes[replica.node]
        if size <= known_bytes:
            return None
        room, disk = self._world.room(node.name), next(one for one in node.disks if one.uuid == replica.disk_uuid)
        sums = zip(room.disks, self.sums(room), strict=True) if room is not None else ()
        known = next((made_of for one, made_of in sums if one.uuid == disk.uuid), None)
        if known is None:
            shared = Rejection(Reason.DISK_NOT_FOUND, f"{disk.name}: another disk has the same UUID")
            return Obstacle(node.name, disk.name, 0, check_disk_state(disk) or shared)
        counted = max(one.size_bytes for one in self._world.counted_on(disk.uuid) if one.name == replica.name)
        counted = max(counted, disk.scheduled_replicas.get(replica.name, 0))
        missing = size - counted + known.image_bytes - known.free_bytes
        if missing <= 0:
            return None
        text = f"{disk.name}: {bytes_text(size)} are {bytes_text(missing)} more than there is room for"
        text = f"{text}, with the {bytes_text(known_bytes)} that the replica has there"
        return Obstacle(node.name, disk.name, missing, Rejection(Reason.INSUFFICIENT_STORAGE, text))

    def check_place(self, replica: Replica, *, with_others: bool) -> Rejection | None:
        """Why Longhorn's rules, room and engines aside, keep the volume's replica from its disk, which its node shows.
        `with_others`: by the anti-affinity among the volume's replicas as well."""
        view, volume = self.unjoined(), self._volume
        node, affinity = view.nodes[replica.node], Affinity.of(volume, view.settings)
        disk = next(one for one in node.disks if one.uuid == replica.disk_uuid)
        others = [one for one in view.replicas if one.name != replica.name]
        due = is_replacement_due(volume, view.settings, view.now_utc)
        usage = Usage.of(counted_replicas(others, ignore_failed=False, replacement_due=due), view.nodes)
        needs, space = needs_of(volume, replica, view.backing_image), view.settings.space
        ignores_tags = affinity.shares_nodes and node.name in usage.nodes  # as in the last step of its search
        rejection = check_node_for(node, needs, space, with_tags=not ignores_tags) or check_disk_state(disk)
        reason = check_disk_kind(disk, needs, volume.size_bytes, space)
        if reason is None and with_others:
            is_bound = bool(wanted_affinity(volume, replica))
            reason = None if is_bound else usage.bars(node.name, node.zone, affinity)
            if not affinity.disk_soft and disk.uuid in disks_with_replicas(others, ignore_failed=False):
                reason = Reason.DISK_ANTI_AFFINITY
        text = f"{node.name} {disk.name}: {reason}"
        return rejection or (None if reason is None else Rejection(reason, text))

    def joined(self, node: LonghornNode) -> LonghornNode:
        """The node, its disks' figures with all that may come to them. Disks that take nothing stay as they are."""
        room = self._world.room(node.name)
        if room is None or check_node(node) is not None:
            return node
        if self._closed_for(node.name):
            return replace(node, schedulable=False)
        known = {}
        for disk, made_of in zip(room.disks, self.sums(room), strict=True):
            scheduled = disk.limit_bytes - disk.free_bytes + made_of.promised_bytes + made_of.image_bytes
            known[disk.name] = min(scheduled, _MOST_BYTES)
            self._sums[node.name, disk.name] = made_of
        return replace(node, disks=tuple(self._disk(disk, known.get(disk.name)) for disk in node.disks))

    def _counted(self, node: LonghornNode) -> LonghornNode:
        """The node, its disks' figures as Longhorn's would be if they told all that lies there. The choice among disks
        with room goes by these: which of them others will bring more to is not known."""
        room = self._world.room(node.name)
        known = {disk.name: disk.limit_bytes - disk.free_bytes for disk in room.disks} if room is not None else {}
        disks = (replace(one, scheduled_bytes=known.get(one.name, one.scheduled_bytes)) for one in node.disks)
        return replace(node, disks=tuple(disks))

    def _closed_for(self, name: str) -> str:
        """Why nothing is given there, whatever Longhorn's rules say."""
        if self.only is not None and name not in self.only:
            return "nothing was promised there"
        return self.closed.get(name, "") or self._world.allocated.closed(name)

    def _disk(self, disk: Disk, scheduled_bytes: int | None) -> Disk:
        if disk.uuid in self.closed:
            return replace(disk, schedulable=False)
        own = self._own.get(disk.uuid)
        if scheduled_bytes is None or (scheduled_bytes == disk.scheduled_bytes and own is None):
            return disk
        listed = {**disk.scheduled_replicas, **own} if own else disk.scheduled_replicas
        return replace(disk, scheduled_bytes=scheduled_bytes, scheduled_replicas=listed)

    def _image_bytes(self, disk_uuid: str) -> int:
        """Of the volume's backing image, where it would come to that disk with the replica."""
        image = self._image
        return image.real_size_bytes if image is not None and self._world.lacks_image(image, disk_uuid) else 0

    def _found(self, entry: Candidate) -> FoundDisk:
        known = self._sums[entry.node, entry.disk]
        return FoundDisk(entry.node, entry.disk, entry.uuid, known.free_bytes, known.promised_bytes)

    def _obstacle(self, refusal: Refusal, size_bytes: int) -> Obstacle:
        """With the bytes that are missing; and what would fit but for promises, or for the image, says so."""
        rejection, known = refusal.rejection, self._sums.get((refusal.node, refusal.disk))
        why = self._closed_for(refusal.node)
        if why:
            text = f"{refusal.node}: {why}"
            return Obstacle(refusal.node, "", 0, Rejection(Reason.RECORD_UNREADABLE, text))
        node = self._world.nodes.get(refusal.node) if self.closed else None
        disk = next((one for one in node.disks if one.name == refusal.disk), None) if node is not None else None
        if disk is not None and disk.uuid in self.closed:
            return Obstacle(refusal.node, disk.name, 0, Rejection(Reason.RECORD_UNREADABLE, self.closed[disk.uuid]))
        if known is None or rejection.reason is not Reason.INSUFFICIENT_STORAGE:
            return Obstacle(refusal.node, refusal.disk, 0, rejection)
        missing = size_bytes + known.image_bytes - known.free_bytes
        if size_bytes <= known.free_bytes:
            text = f"{bytes_text(known.image_bytes)} of the volume's backing image come along"
            rejection = Rejection(Reason.BACKING_IMAGE, f"{refusal.disk}: {text}; {_free(known)}")
        elif size_bytes <= known.room_bytes:
            text = f"{bytes_text(known.promised_bytes)} are promised to other volumes, which may come to this disk"
            rejection = Rejection(Reason.CONTENDED, f"{refusal.disk}: {text}; {_free(known)}")
        return Obstacle(refusal.node, refusal.disk, missing, rejection)


def _free(known: DiskSum) -> str:
    return f"{bytes_text(max(0, known.free_bytes))} are neither used nor promised"
