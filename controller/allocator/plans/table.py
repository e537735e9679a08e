"""The table of all plans and holds, and the bytes that they take on each disk.

A plan names places for the copies that its volume still misses; a hold, places for a pod's volumes on each node that
the pod was offered. A volume counts once on a disk, at the largest size that its plan or a pod's hold takes there. A
place leaves its plan in the very step that shows the copy on that disk: no byte counts twice, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from controller.allocator.plans.plan import NO_PLACES, Hold, Plan, Source
from controller.model.places import Place

_NO_DISKS: Final[Mapping[str, int]] = {}
_NO_HOLDERS: Final[Mapping[str, dict[str, int]]] = {}
PLANNED: Final = ""  # the holder of a planned place; those of held ones are their pods
_Disk = tuple[str, str]  # node and UUID


class TableChanges(NamedTuple):
    """What is to be stored: volumes with their plans, and pods with the holds of their answers; None ends what is
    stored. `is_freed`: a place left a plan, and not because its copy came, so that others may have room."""

    plans: list[tuple[str, Plan | None]]
    holds: list[tuple[str, Hold | None]]
    is_freed: bool


class Table:
    """Plans by volume, holds by pod, with an index by disk. Threads: none of its own; the allocator's lock guards
    it."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._holds: dict[str, dict[Source, Hold]] = {}
        self._limited: dict[tuple[str, Source], Hold] = {}  # those that do not keep out everybody
        self._holders: dict[_Disk, dict[str, dict[str, int]]] = {}  # disk -> volume -> holder -> bytes
        self._nodes: dict[str, set[str]] = {}  # disk UUID -> nodes where anything is taken: several of cloned ones
        self._taken: dict[str, dict[str, int]] = {}  # node -> disk UUID -> bytes
        self._sums: dict[str, int] = {}  # node -> bytes
        self._holding: dict[str, set[str]] = {}  # volume -> pods that hold a place for it
        self._lent: dict[str, tuple[Plan, Place]] = {}  # by replica, places whose copies are being written
        self._changed: set[str] = set()  # volumes
        self._changed_holds: set[str] = set()  # pods
        self._is_freed = False

    # Plans

    def plans(self) -> list[Plan]:
        return list(self._plans.values())

    def plan(self, volume: str) -> Plan | None:
        return self._plans.get(volume)

    def places(self, volume: str) -> tuple[Place, ...]:
        """Return the places where copies of the volume are planned."""
        plan = self._plans.get(volume)
        return plan.places if plan is not None else ()

    def put(self, plan: Plan) -> None:
        """Enter the plan, or replace the volume's former one. A plan without places ends."""
        old = self._plans.get(plan.volume)
        if plan == old:
            return
        if not plan.places:
            self.remove(plan.volume)
            return
        if old is not None:
            self._end(old, plan.places)
        self._plans[plan.volume] = plan
        for place in plan.places:
            self._link(place, plan.volume, PLANNED)
        self._changed.add(plan.volume)

    def remove(self, volume: str) -> None:
        """End the volume's plan. Idempotent."""
        plan = self._plans.pop(volume, None)
        if plan is not None:
            self._end(plan)
            self._changed.add(volume)

    def _end(self, plan: Plan, kept: Iterable[Place] = ()) -> None:
        lent = (place for former, place in self._lent.values() if former.volume == plan.volume)
        self._is_freed |= bool(Counter(plan.places) - Counter((*kept, *lent)))
        for place in plan.places:
            self._unlink(place, plan.volume, PLANNED)

    def rebuild(self) -> None:
        """Derive all sums and indices anew from the plans and holds."""
        plans, holds = self.plans(), self.all_holds()
        self.clear()
        for plan in plans:
            self.put(plan)
        for hold in holds:
            self.put_hold(hold)

    # Holds

    def holds(self, source: Source = Source.FILTER) -> list[Hold]:
        return [hold for by_source in self._holds.values() if (hold := by_source.get(source)) is not None]

    def all_holds(self) -> list[Hold]:
        """Return the holds of every source."""
        return [hold for by_source in self._holds.values() for hold in by_source.values()]

    def hold(self, pod: str, source: Source = Source.FILTER) -> Hold | None:
        return self._holds.get(pod, {}).get(source)

    def kept_on(self, pod: str) -> str:
        """Return the node on which room is kept for the pod, which has waited for long; "" if none is."""
        kept = self.hold(pod, Source.KEPT_ROOM)
        return next(iter(kept.nodes or ()), "") if kept is not None else ""

    def limited(self) -> Collection[Hold]:
        """Return the holds that keep out some pods alone."""
        return self._limited.values()

    def put_hold(self, hold: Hold) -> None:
        """Enter the hold in place of the pod's former one of that source. Costs: a look at the nodes that differ."""
        former = self.hold(hold.pod, hold.source)
        self._holds.setdefault(hold.pod, {})[hold.source] = hold
        self._limited.pop((hold.pod, hold.source), None)
        if hold.keeps_out is not None:
            self._limited[hold.pod, hold.source] = hold
        self._exchange(former, hold)

    def end_hold(self, pod: str, source: Source = Source.FILTER) -> Hold | None:
        """End the pod's hold of that source; return it, or None if there was none."""
        by_source = self._holds.get(pod, {})
        hold = by_source.pop(source, None)
        if hold is None:
            return None
        if not by_source:
            del self._holds[pod]
        self._limited.pop((pod, source), None)
        self._exchange(hold, None)
        return hold

    def _exchange(self, former: Hold | None, hold: Hold | None) -> None:
        """Take the places of `hold` instead of those of `former`."""
        left, come = _places_beside(former, hold), _places_beside(hold, former)
        pod, source = next((one.pod, one.source) for one in (former, hold) if one is not None)
        for volume, place in left:
            self._unlink(place, volume, pod)
        for volume, place in come:
            self._link(place, volume, pod)
            self._holding.setdefault(volume, set()).add(pod)
        for volume in {volume for volume, _ in left}:
            if hold is not None and hold.keeps_out is None and hold.has_place_of(volume):
                continue
            members = self._holding[volume]
            members.discard(pod)
            if not members:
                del self._holding[volume]
        if source is Source.FILTER:
            self._changed_holds.add(pod)

    def hold_again(self, volume: str, former: Iterable[Hold]) -> None:
        """Give the volume's places back to those of the `former` holds that still wait for their choice: what the
        places were used for has failed."""
        for old in former:
            hold = self.hold(old.pod)
            if hold is not None and not hold.chosen and hold.since == old.since:
                self.put_hold(hold.with_places_of(volume, old))

    def holding(self, volume: str) -> list[Hold]:
        """Return the holds by an answer with a place for that volume, ordered by pod."""
        return [hold for pod in sorted(self._holding.get(volume, ())) if (hold := self.hold(pod)) is not None]

    # Bytes

    def _link(self, place: Place, volume: str, holder: str) -> None:
        members = self._holders.setdefault((place.node, place.disk_uuid), {}).setdefault(volume, {})
        before = max(members.values(), default=0)
        members[holder] = members.get(holder, 0) + place.size_bytes
        more = max(members.values()) - before
        self._nodes.setdefault(place.disk_uuid, set()).add(place.node)
        disks = self._taken.setdefault(place.node, {})
        disks[place.disk_uuid] = disks.get(place.disk_uuid, 0) + more
        self._sums[place.node] = self._sums.get(place.node, 0) + more

    def _unlink(self, place: Place, volume: str, holder: str) -> None:
        disk, disks = (place.node, place.disk_uuid), self._taken[place.node]
        volumes = self._holders[disk]
        members = volumes[volume]
        before = max(members.values())
        members[holder] -= place.size_bytes
        if not members[holder]:
            del members[holder]
        less = before - max(members.values(), default=0)
        disks[place.disk_uuid] -= less
        self._sums[place.node] -= less
        if members:
            return
        del volumes[volume]
        if not volumes:
            del self._holders[disk], disks[place.disk_uuid]
            self._nodes[place.disk_uuid].discard(place.node)
            if not self._nodes[place.disk_uuid]:
                del self._nodes[place.disk_uuid]
        if not disks:
            del self._taken[place.node], self._sums[place.node]

    def taken_on(self, node: str) -> Mapping[str, int]:
        """Return the bytes that are taken on that node's disks, by UUID; disks without any are left out."""
        return self._taken.get(node, _NO_DISKS)

    def taken_by_node(self) -> Mapping[str, int]:
        """Return the bytes that are taken on each node; nodes without any are left out. To be read before any
        change."""
        return self._sums

    def taken_bytes(self, node: str, disk_uuid: str, besides: Collection[str] = ()) -> int:
        """Return the bytes that plans and holds take on that disk, without the volumes `besides`. What is to come to
        one of several disks of a UUID counts on each of them, as it will once it is there (docs/rules/room.md)."""
        nodes = self._nodes.get(disk_uuid, ())
        if len(nodes) > 1 or (nodes and node not in nodes):
            return sum(size for volume, size in self._on_clones(disk_uuid).items() if volume not in besides)
        taken = self._taken.get(node, _NO_DISKS).get(disk_uuid, 0)
        if taken and besides:
            volumes = self._holders[node, disk_uuid]
            few, many = (besides, volumes) if len(besides) < len(volumes) else (volumes, besides)
            for one in few:
                if one in many:
                    taken -= max(volumes[one].values())
        return taken

    def _on_clones(self, disk_uuid: str) -> dict[str, int]:
        """The bytes by volume that are taken on all disks of that UUID. Offered nodes are alternatives, planned places
        are not."""
        found = dict[str, dict[str, int]]()
        for node in self._nodes.get(disk_uuid, ()):
            for volume, members in self._holders[node, disk_uuid].items():
                sums = found.setdefault(volume, {})
                for holder, size in members.items():
                    known = sums.get(holder, 0)
                    sums[holder] = known + size if holder == PLANNED else max(known, size)
        return {volume: max(sums.values()) for volume, sums in found.items()}

    def bytes_of(self, volume: str, node: str, disk_uuid: str) -> int:
        """Return the bytes that plans and holds take for that volume on that disk."""
        members = self._holders.get((node, disk_uuid), _NO_HOLDERS).get(volume)
        return max(members.values()) if members else 0

    def planned_on(self, node: str, disk_uuid: str) -> dict[str, int]:
        """Return the bytes that plans take on that disk, by volume."""
        volumes = self._holders.get((node, disk_uuid), _NO_HOLDERS)
        return {volume: members[PLANNED] for volume, members in volumes.items() if PLANNED in members}

    def planned_bytes(self, node: str, disk_uuid: str, besides: str = "") -> int:
        """Return the bytes that plans take on that disk, or another one of its UUID, without the volume `besides`."""
        return sum(
            size
            for name in {node, *self._nodes.get(disk_uuid, ())}
            for volume, size in self.planned_on(name, disk_uuid).items()
            if volume != besides
        )

    def bytes_by_volume(self, node: str) -> dict[str, int]:
        """Return the bytes that are taken on that node, by volume."""
        found = Counter[str]()
        for uuid in self._taken.get(node, _NO_DISKS):
            for volume, members in self._holders[node, uuid].items():
                found[volume] += max(members.values())
        return found

    def on_nodes(self, nodes: Iterable[str]) -> Table:
        """Return a copy for questions about bytes on those nodes."""
        other = Table()
        for node in self._taken.keys() & set(nodes):
            other._taken[node], other._sums[node] = self._taken[node].copy(), self._sums[node]
            for uuid in self._taken[node]:
                volumes = self._holders[node, uuid]
                other._holders[node, uuid] = {volume: members.copy() for volume, members in volumes.items()}
                other._nodes.setdefault(uuid, set()).add(node)
        return other

    @staticmethod
    def of(plans: Iterable[Plan], holds: Iterable[Hold]) -> Table:
        """Return a table of these, for questions. Costs: a step for each place, so nobody holds the allocator's lock
        for it."""
        other = Table()
        for plan in plans:
            other.put(plan)
        for hold in holds:
            other.put_hold(hold)
        return other

    # What is to be stored

    def load(self, plans: Iterable[Plan]) -> None:
        """Replace everything by these plans, which are stored already."""
        self._plans, self._holds, self._limited, self._lent = {}, {}, {}, {}
        self._holders, self._nodes, self._taken, self._sums, self._holding = {}, {}, {}, {}, {}
        for plan in plans:
            self.put(plan)
        self._changed, self._changed_holds, self._is_freed = set(), set(), False

    def clear(self) -> None:
        """End all plans and holds."""
        for plan in self.plans():
            self.remove(plan.volume)
        for hold in self.all_holds():
            self.end_hold(hold.pod, hold.source)

    def lend(self, replica: str, plan: Plan, place: Place) -> None:
        """Note that a replica is being written to a place of that plan. The stored plan keeps the place until
        `give_back`: this leader may be gone before the replica is stored."""
        self._lent[replica] = plan, place

    def give_back(self, replica: str) -> None:
        """Note that the replica is stored, or will not be. Idempotent."""
        lent = self._lent.pop(replica, None)
        if lent is not None:
            self._changed.add(lent[0].volume)

    def take_changes(self) -> TableChanges:
        """Return what has changed since the last call, as it is to be stored now: with places that are lent."""
        volumes, pods, is_freed = self._changed, self._changed_holds, self._is_freed
        self._changed, self._changed_holds, self._is_freed = set(), set(), False
        plans = [(name, self._stored(name)) for name in sorted(volumes)]
        return TableChanges(plans, [(uid, self.hold(uid)) for uid in sorted(pods)], is_freed)

    def _stored(self, volume: str) -> Plan | None:
        plan = self._plans.get(volume)
        lent = [(former, place) for former, place in self._lent.values() if former.volume == volume]
        if not lent:
            return plan
        places = (*(plan.places if plan is not None else ()), *(place for _, place in lent))
        return replace(plan or lent[0][0], places=places)


def _places_beside(hold: Hold | None, other: Hold | None) -> list[tuple[str, Place]]:
    """The places of `hold` with their volumes, without the nodes for which `other` has the very same mapping."""
    if hold is None or hold.keeps_out is not None:
        return []
    if other is None or other.keeps_out is not None:
        return list(hold.places())
    nodes = other.nodes or {}
    here = {node: places for node, places in (hold.nodes or {}).items() if nodes.get(node) is not places}
    anywhere = NO_PLACES if hold.anywhere is other.anywhere else hold.anywhere
    return list(replace(hold, nodes=here, anywhere=anywhere).places())
