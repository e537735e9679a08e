"""What nodes can take, plans and holds aside: worked out when a node, its disks or their replicas change, not when a
pod asks.

Besides the room of each node there is a summary for *plain* volumes (v1, no selectors, no backing image, no topology),
so that a question about thousands of nodes need not look at every disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from controller.model.longhorn import DEFAULT_NEEDS, LonghornNode, Replica, SpacePolicy, repeated_disk_uuids
from controller.rules.eligibility import NodeRoom, check_disk_state, check_node, disk_takes, room_of_disk
from controller.rules.reasons import Reason, Rejection


def make_room(
    node: LonghornNode,
    replicas_on: Callable[[str], Iterable[Replica]],
    space: SpacePolicy,
    images_on: Callable[[str], Mapping[str, int]],
) -> NodeRoom:
    """What `node` can take. `replicas_on` has the replicas by disk UUID; two disks of one UUID take nothing.
    `images_on`: the bytes of backing images there, by name."""
    disks, over, whole = [], list[tuple[str, int]](), 0
    selectors = space.allow_empty_node_selector, space.allow_empty_disk_selector
    kind = (node.tags, node.zone, node.region, *selectors)
    repeated = repeated_disk_uuids(node)
    for disk in node.disks:
        if disk.uuid in repeated:
            continue
        room = room_of_disk(disk, replicas_on(disk.uuid), space, kind, images_on(disk.uuid))
        if room.free_bytes < 0 < disk.maximum_bytes:  # the figures of a disk that is not ready are zero
            over.append((disk.name, -room.free_bytes))
        if check_disk_state(disk) is not None:
            continue
        disks.append(room)
        whole += max(0, disk.maximum_bytes - disk.reserved_bytes)
    rejection = check_node(node)
    if rejection is None and not disks:
        rejection = Rejection(Reason.NO_USABLE_DISK, f"{node.name}: none of its disks accepts replicas")
    usable = rejection is None and (space.allow_empty_node_selector or not node.tags)
    plain = tuple(room for room in disks if usable and disk_takes(room, DEFAULT_NEEDS, 0, 0, space))
    whole = whole if rejection is None else 0
    left = sum(max(0, room.free_bytes) for room in disks)
    return NodeRoom(
        name=node.name,
        tags=node.tags,
        rejection=rejection,
        disks=tuple(disks),
        space_bytes=whole,
        left_bytes=left,
        left_share=min(1.0, left / whole) if whole else 0.0,
        plain_disks=plain,
        over=tuple(over),
    )


class Rooms:
    """Rooms by node, and a summary of all nodes. Threads: none of its own.

    `best` has the most that a plain volume finds on one disk of a node. A node that takes no plain volume is not in it.
    """

    def __init__(self, make: Callable[[str], NodeRoom | None], takes_pods: Callable[[str], bool]) -> None:
        self._make, self._takes_pods = make, takes_pods
        self.overdrawn: dict[str, tuple[tuple[str, int], ...]] = {}  # by node, disks over their limit, and by how much
        self._rooms: dict[str, NodeRoom] = {}
        self._stale: set[str] = set()
        self._touched: set[str] = set()
        self._listeners: list[set[str]] = []
        self.best: dict[str, int] = {}

    def copy(self, other: Rooms) -> Rooms:
        """`other`, with all that is worked out here, for questions only."""
        vars(other).update(_rooms=self._rooms.copy(), _stale=self._stale.copy())
        other.best, other.overdrawn = self.best.copy(), self.overdrawn.copy()
        return other

    def touch(self, names: Iterable[str]) -> None:
        names = list(names)
        self._stale.update(names)
        self._touched.update(names)

    @property
    def has_touched(self) -> bool:
        return bool(self._touched)

    def take_touched(self) -> set[str]:
        """Nodes that were touched since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def listen(self) -> set[str]:
        """A set to which nodes are added from now on as their rooms are worked out anew. The caller takes them out."""
        self._listeners.append(set())
        return self._listeners[-1]

    def tell(self, names: Iterable[str]) -> None:
        """Tell all listeners to look at these nodes anew."""
        for renewed in self._listeners:
            renewed.update(names)

    def get(self, name: str) -> NodeRoom | None:
        if name in self._stale:
            self._renew(name)
        return self._rooms.get(name)

    def refresh(self, most: int | None = None) -> bool:
        """Bring the summary up to date, at the cost of the nodes that changed since, `most` of them; whether some are
        left."""
        for name in list(islice(self._stale, most)):
            self._renew(name)
        return bool(self._stale)

    def _renew(self, name: str) -> None:
        room = self._make(name)
        self.tell((name,))
        if room is None:
            self._rooms.pop(name, None)
        else:
            self._rooms[name] = room
        self._summarise(name, room)
        self._stale.discard(name)

    def _summarise(self, name: str, room: NodeRoom | None) -> None:
        self.best.pop(name, None)
        self.overdrawn.pop(name, None)
        if room is not None and room.over:
            self.overdrawn[name] = room.over
        most = max((disk.free_bytes for disk in room.plain_disks), default=-1) if room is not None else -1
        if most >= 0 and self._takes_pods(name):
            self.best[name] = most
