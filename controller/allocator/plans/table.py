"""The plans of all volumes, and the bytes that they take on each disk.

    ABSENT --put--> PLANNED --put--> PLANNED --remove--> ABSENT

A plan names places for the copies that its volume still misses. A place leaves the plan in the step that shows its copy
on that disk, so that no byte counts twice, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from controller.allocator.plans.plan import Plan
from controller.model.places import Place

_NOTHING: Final[Mapping[str, Mapping[str, int]]] = {}


class Table:
    """Plans by volume, with an index by disk. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._on_node: dict[str, dict[str, dict[str, int]]] = {}  # node -> disk UUID -> volume -> bytes
        self._lent: dict[str, tuple[Plan, Place]] = {}  # by replica, places whose copies are being written
        self._changed: set[str] = set()
        self._is_freed = False

    def __iter__(self) -> Iterator[Plan]:
        return iter(list(self._plans.values()))

    def get(self, volume: str) -> Plan | None:
        return self._plans.get(volume)

    def put(self, plan: Plan) -> None:
        """Enter the plan, or replace the volume's former one. A plan without places ends."""
        old = self._plans.get(plan.volume)
        if plan == old:
            return
        if not plan.places:
            self.remove(plan.volume)
            return
        if old is not None:
            self._unlink(old, plan.places)
        self._plans[plan.volume] = plan
        for place in plan.places:
            members = self._on_node.setdefault(place.node, {}).setdefault(place.disk_uuid, {})
            members[plan.volume] = members.get(plan.volume, 0) + place.size_bytes
        self._changed.add(plan.volume)

    def remove(self, volume: str) -> None:
        """End the volume's plan. Idempotent."""
        plan = self._plans.pop(volume, None)
        if plan is not None:
            self._unlink(plan)
            self._changed.add(volume)

    def _unlink(self, plan: Plan, kept: Iterable[Place] = ()) -> None:
        lent = (place for former, place in self._lent.values() if former.volume == plan.volume)
        self._is_freed |= bool(Counter(plan.places) - Counter((*kept, *lent)))
        for place in plan.places:
            disks = self._on_node.get(place.node, {})
            members = disks.get(place.disk_uuid, {})
            members.pop(plan.volume, None)
            if not members:
                disks.pop(place.disk_uuid, None)
            if not disks:
                self._on_node.pop(place.node, None)

    def load(self, plans: Iterable[Plan]) -> None:
        """Replace all by plans that are stored already."""
        self._plans, self._on_node, self._lent = {}, {}, {}
        for plan in plans:
            self.put(plan)
        self._changed, self._is_freed = set(), False

    # Bytes

    def taken_bytes(self, node: str, disk_uuid: str, besides: str = "") -> int:
        """Bytes that plans take on that disk, but for the volume `besides`."""
        members = self._on_node.get(node, _NOTHING).get(disk_uuid)
        return 0 if members is None else sum(members.values()) - members.get(besides, 0)

    def volumes_on(self, node: str, disk_uuid: str) -> Collection[str]:
        """The volumes that are planned there."""
        return tuple(self._on_node.get(node, _NOTHING).get(disk_uuid, ()))

    def disks_on(self, node: str) -> list[str]:
        """UUIDs of the disks of that node on which anything is planned."""
        return list(self._on_node.get(node, ()))

    def bytes_on(self, nodes: Iterable[str]) -> Table:
        """A copy with the bytes on those nodes alone."""
        other = Table()
        for node in self._on_node.keys() & set(nodes):
            other._on_node[node] = {disk: dict(members) for disk, members in self._on_node[node].items()}
        return other

    # What is to be stored

    def lend(self, replica: str, plan: Plan, place: Place) -> None:
        """A copy is being written to a place of that plan. What is stored keeps the place until `give_back`: the leader
        may be gone before the copy is stored."""
        self._lent[replica] = plan, place

    def give_back(self, replica: str) -> None:
        """That copy is stored, or will not be. Idempotent."""
        lent = self._lent.pop(replica, None)
        if lent is not None:
            self._changed.add(lent[0].volume)

    def take_changes(self) -> list[tuple[str, Plan | None]]:
        """The volumes whose plans changed since the last call, each with its plan as it is now, places that are lent
        included."""
        changed, self._changed = self._changed, set()
        return [(volume, self._stored(volume)) for volume in sorted(changed)]

    def take_freed(self) -> bool:
        """Whether a place has left a plan since the last call, and not for its copy."""
        freed, self._is_freed = self._is_freed, False
        return freed

    def _stored(self, volume: str) -> Plan | None:
        plan = self._plans.get(volume)
        lent = [(former, place) for former, place in self._lent.values() if former.volume == volume]
        if not lent:
            return plan
        places = (*(plan.places if plan is not None else ()), *(place for _, place in lent))
        return replace(plan or lent[0][0], places=places)
