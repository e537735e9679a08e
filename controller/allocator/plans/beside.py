"""The bytes that are taken on each disk, as one question sees them: without its own, and by who asks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass

from controller.allocator.plans.plan import Hold, Source
from controller.allocator.plans.table import Table


@dataclass(frozen=True, slots=True)
class Newcomer:
    """The pod that asks, for holds that keep out some pods alone. `serial` orders approvals of preemption;
    `is_planning`: the wake-up plans several pods together."""

    pod_uid: str
    priority: int
    serial: float = math.inf
    is_planning: bool = False

    def yields_to(self, hold: Hold, *, is_local: bool) -> bool:
        """Whether the bytes of that hold are taken for this pod. `is_local`: it has volumes that need a node's room."""
        keeps_out = hold.keeps_out
        if keeps_out is None:
            return True
        if hold.pod == self.pod_uid or (keeps_out.is_for_local and not is_local):
            return False
        if hold.source is Source.WAKE_PLAN:
            return self.is_planning
        if keeps_out.priority == self.priority:
            return keeps_out.serial < self.serial
        return keeps_out.priority > self.priority


class Beside:
    """What plans and holds take, without the volumes `own`, and with the holds that keep out this newcomer.

    `leaving`: bytes by disk UUID that will be free soon: kept room is made of those first.
    """

    def __init__(
        self,
        table: Table,
        own: Collection[str] = (),
        newcomer: Newcomer | None = None,
        *,
        is_local: bool = True,
        leaving: Callable[[str], int] = lambda _disk: 0,
        keeps_room: bool = True,
    ) -> None:
        """`newcomer` None: only holds that keep out everybody count. `keeps_room` False: room that is kept for pods
        that have waited for long counts as free."""
        self._table = table
        self._own = own if isinstance(own, Set) else frozenset(own)
        self._more = Counter[tuple[str, str]]()
        met = [one for one in table.limited() if newcomer is not None and newcomer.yields_to(one, is_local=is_local)]
        kept = [one for one in met if one.source is Source.KEPT_ROOM]
        self.keeps_room = keeps_room and bool(kept)
        others = self._rooms(one for one in met if one.source is not Source.KEPT_ROOM)
        for disk, volumes in others.items():
            self._more[disk] += sum(volumes.values())
        for disk, volumes in self._rooms(kept).items() if self.keeps_room else ():
            size = sum(size for volume, size in volumes.items() if volume not in others.get(disk, ()))
            self._more[disk] += max(0, size - leaving(disk[1]))

    def _rooms(self, holds: Iterable[Hold]) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """The bytes by disk and volume that these holds take beside the table's; each volume once."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for hold in holds:
            for volume, place in hold.places():
                if volume not in self._own:
                    disk = place.node, place.disk_uuid
                    more = place.size_bytes - self._table.bytes_of(volume, *disk)
                    volumes = found.setdefault(disk, {})
                    volumes[volume] = max(0, more, volumes.get(volume, 0))
        return found

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        taken = self._table.taken_bytes(node, disk_uuid, self._own)
        return taken + self._more[node, disk_uuid] if self._more else taken
