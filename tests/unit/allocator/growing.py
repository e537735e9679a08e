"""Volumes that are asked to grow, beside plans and holds, and what is held for them: the parts alone, without pods."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.plans.growths import Growth, Growths
from controller.allocator.plans.journal import Journal
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.plans.table import Table
from controller.allocator.verbs.grow import Caller, Expansions, GrowthOutcome, GrowthRequest, resize_holds
from controller.allocator.world.world import World
from controller.model.longhorn import LonghornNode, LonghornSettings
from controller.model.places import Place
from controller.model.workload import Claim, PersistentVolume
from tests.fakes.builders import DRIVER, EPOCH, GIB, claim, disk, node, replica, volume
from tests.fakes.clock import VirtualClock
from tests.fakes.rooms import OPEN

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A: Final = "pvc-uid-a"  # the volume of claim `a`


class Growing:
    """A world with node n1, of one disk of 400 GiB unless said otherwise. After each change the growth of its volume
    and what is planned and held for it are brought in line, as the allocator does."""

    def __init__(self, settings: LonghornSettings = OPEN, clock: VirtualClock | None = None, **disks: float) -> None:
        self.clock = clock or VirtualClock()
        self.journal, self.table = Journal(), Table()
        self.growths = Growths(self.journal)
        self.world = self.growths.world = World(self.growths)
        self.world.put_settings(settings)
        self.claims: dict[str, Claim] = {}
        self.is_active = True
        self.expansions = Expansions(
            threading.Condition(threading.Lock()),
            self.clock,
            self.world,
            self.table,
            self.growths,
            Chooser(self.world),
            self.journal,
            lambda: self.is_active,
            self._replan,
        )
        self.add_node("n1", **(disks or {"d1": 400}))

    # The cluster

    def add_node(self, name: str, **disks: float) -> None:
        """With disks of so many GiB."""
        self.put_node(node(name, *(disk(one, free) for one, free in disks.items())))

    def put_node(self, facts: LonghornNode) -> None:
        self.world.put_node(facts.name, facts)
        for name in list(self.world.growing):
            self.settle(name)

    def add(self, name: str, gib: float = 100, *, on: str = "n1", disk_name: str = "d1", **other: Any) -> str:
        """A claim that is bound, with its volume; the volume's name. One copy of it lies there; none if `on` is ""."""
        facts = claim(name, gib)
        made = f"pvc-{facts.uid}"
        self.put_pv(made, facts, gib)
        self.grow_volume(made, gib, **other)
        self.place(made, on, gib, disk_name)
        self.put_claim(replace(facts, volume_name=made))
        return made

    def add_by_hand(self, *, claim_gib: float, pv_gib: float, volume_gib: float) -> None:
        """A volume `lhv` and a PV `pv` that somebody made, bound to the claim `hand`, with a copy on n1."""
        facts = claim("hand", claim_gib, "", volume_name="pv")
        self.put_pv("pv", facts, pv_gib, handle="lhv")
        self.grow_volume("lhv", volume_gib, locality="disabled")
        self.place("lhv", "n1", volume_gib)
        self.put_claim(facts)

    def put_claim(self, facts: Claim) -> None:
        self.claims[facts.name] = facts
        self.world.put_claim(facts.key, facts)
        pv = self.world.pvs.get(facts.volume_name)
        if pv is not None:
            self.settle(pv.handle)

    def put_pv(self, name: str, of: Claim, gib: float, handle: str = "") -> None:
        self.world.put_pv(name, PersistentVolume(name, DRIVER, handle or name, of.uid, of.key, int(gib * GIB), EPOCH))

    def grow_claim(self, name: str, gib: float) -> None:
        self.put_claim(replace(self.claims[name], requested_bytes=int(gib * GIB)))

    def grow_volume(self, name: str, gib: float, **other: Any) -> None:
        self.world.put_volume(name, volume(name, gib, **other))
        self.settle(name)

    def place(self, name: str, on: str, gib: float, disk_name: str = "d1", *, number: int = 1) -> None:
        """That copy of the volume lies there, or, if `on` is "", nowhere."""
        made = replica(f"{name}-r-{number}", name, gib, on=on, disk_name=disk_name)
        self.world.put_replica(made.name, made)
        self.settle(name)

    def drop_volume(self, name: str) -> None:
        self.world.put_volume(name, None)
        self.settle(name)

    # Plans and holds

    def plan(self, name: str, gib: float, *disks: str) -> None:
        """So much is planned for that volume on each of the disks, `n1-d1` and so on."""
        places = tuple(Place(one.split("-")[0], one, int(gib * GIB)) for one in disks)
        self.table.put(Plan(name, f"uid-{name}", places, ("pod",), NOW))

    def hold(self, pod: str, name: str, gib: float, *disks: str) -> None:
        """So much is held for that volume on one of the disks' nodes, whichever is chosen."""
        places = (Place(one.split("-")[0], one, int(gib * GIB)) for one in disks)
        nodes = {place.node: {name: place} for place in places}
        self.table.put_hold(Hold(pod, Source.FILTER, nodes, {}, 0.0, NOW))

    def settle(self, name: str, *, ends_hold: bool = False) -> None:
        self.growths.settle(name, self.clock.now(), ends_hold=ends_hold)
        resize_holds(self.world, self.table, name)
        self._replan(name)

    def _replan(self, name: str) -> None:
        plan, facts = self.table.plan(name), self.world.volume(name)
        if plan is not None and facts is not None:
            places = tuple(replace(place, size_bytes=facts.size_bytes) for place in plan.places)
            self.table.put(replace(plan, places=places))

    # Reviews

    def ask(self, name: str, gib: float, *, dry_run: bool = False, caller: Caller | None = None) -> GrowthOutcome:
        """For the claim of that name."""
        facts = self.claims[name]
        request = GrowthRequest(facts.volume_name, int(gib * GIB), facts.namespace, facts.name, is_dry_run=dry_run)
        assert self.expansions.missing(request) is None
        return self.expansions.hold(request, NOW, caller)

    def ask_volume(self, name: str, gib: float, *, dry_run: bool = False) -> GrowthOutcome:
        return self.expansions.hold(GrowthRequest(name, int(gib * GIB), is_dry_run=dry_run), NOW)

    def look(self, name: str) -> bool:
        """As after a live read that showed nothing; whether what was held has ended."""
        is_over = self.growths.look(name, self.clock.now())
        if is_over:
            self.settle(name, ends_hold=True)
        return is_over

    # What is seen

    def grown(self) -> Mapping[str, tuple[str, int]]:
        """State and GiB more on all disks together, by the claims' names; of those that have none, by the volumes'."""
        found = {}
        for growth in self.growths.all():
            owner = self.world.claim_of_volume(growth.volume)
            name = owner.name if owner is not None else growth.volume
            found[name] = "HELD" if growth.is_held else "ASKED", more_bytes(growth) // GIB
        return found

    def free_gib(self, on: str = "n1", disk_name: str = "d1") -> float:
        """What nobody has of that disk."""
        self.world.refresh()  # so that rooms are worked out anew only where something changed since
        room = self.world.room(on)
        assert room is not None
        (there,) = (one for one in room.disks if one.name == disk_name)
        return (there.free_bytes - self.table.taken_bytes(on, there.uuid)) / GIB


def more_bytes(growth: Growth) -> int:
    """On all disks together."""
    return sum(more for _, _, more in growth.on_disks)
