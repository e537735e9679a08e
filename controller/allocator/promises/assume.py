"""How an assumption is made: where the volume's replica comes once a node is chosen, since when it is Longhorn's to
place it, and what shows that it is there."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from controller.allocator.promises.holds import kind_of, promise_of
from controller.allocator.promises.journal import NODE_RESERVATION, Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.own import OWN, first_places, roaming_places
from controller.allocator.promises.promise import NOWHERE, Kind, OneOf, Places, Promise, Source, State, Verb
from controller.allocator.world.world import World
from controller.model.longhorn import LOCALITY_DISABLED
from controller.model.workload import Claim
from controller.rules.demand import Missing, VolumeDemand, demand_of_claim


class Assuming:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, ledger: Ledger, memory: Memory, journal: Journal) -> None:
        self._world, self._ledger, self._memory, self._journal = world, ledger, memory, journal
        self._impossible: dict[str, int] = {}  # by key of the demand: its bytes, more than any disk there can hold

    def assume(
        self, claimant: str, demand: VolumeDemand, node: str, now: float, *, falls_back: bool, until: float | None
    ) -> None:
        """That node is chosen for the volume. `falls_back`: it may find no disk there beside the pod's other volumes;
        `until`: when it ends unless more shows by then."""
        places, kind = self.places(demand, node, falls_back=falls_back), kind_of(demand)
        # What roams is Longhorn's to place while the volume is attached: each time anew.
        situation: Hashable = (node, demand.facts.node_id) if kind is Kind.ROAMING else node
        if until is not None:
            situation = situation, "for a while"
        if places is None or self._memory.is_spent(demand.key, claimant, situation):
            record = self._ledger.get(demand.key, claimant)
            if record is not None:
                self.end(record, demand, now, may_lapse=places is None)
            return
        self.put(claimant, demand, kind, places, self.chance(demand, kind, node, now), situation, now, until=until)

    def put(
        self,
        claimant: str,
        demand: VolumeDemand,
        kind: Kind,
        places: Places,
        chance_at: float | None,
        situation: Hashable,
        now: float,
        *,
        until: float | None = None,
        charged_to: str = "",
    ) -> None:
        """Enters the assumption, or adjusts the present one. What is larger than any disk there could ever hold takes
        no room from anybody, so nothing is promised to it; but a volume that was only granted such a size may still
        come as large as it is."""
        old, since = self._ledger.get(demand.key, claimant), now
        node = next(iter(places.nodes)) if isinstance(places, OneOf) and places.nodes else ""
        if not self._world.limits.can_hold(demand.size_bytes, node):
            self._impossible[demand.key] = demand.size_bytes
            volume = self._world.volumes.get(demand.volume)
            if volume is None or not self._world.limits.can_hold(volume.size_bytes, node):
                if old is not None:
                    self.drop(Verb.FORGET, old, now)
                return
            demand = replace(demand, size_bytes=volume.size_bytes)
        if old is not None and old.state is State.ASSUMED and old.kind is kind:
            since = old.since
            chance_at = old.chance_at if chance_at is not None and old.chance_at is not None else chance_at
            until = old.until if until is not None and old.until is not None else until
        source = Source.LONGHORN if claimant.startswith(OWN) else Source.CHOICE
        promise = replace(
            promise_of(demand, claimant, source, kind, places, since),
            state=State.ASSUMED,
            chance_at=chance_at,
            until=until,
            charged_to=charged_to,
            situation=situation,
        )
        if promise == old:
            return
        if old is not None and old.state is State.ASSUMED and kind is Kind.MOVE and old.kind is Kind.FIRST:
            self._journal.record(NODE_RESERVATION, now - old.since, True)  # placed, on another node
        self._ledger.put(Verb.ASSUME, promise)

    def take_possible(self, node: str) -> list[str]:
        """Keys of demands that were too large, and that a disk of that node could hold by now."""
        found = [key for key, size in self._impossible.items() if size <= self._world.limits.of(node)]
        for key in found:
            del self._impossible[key]
        return found

    def forget(self, key: str) -> None:
        self._impossible.pop(key, None)

    def places(self, demand: VolumeDemand, node: str, *, falls_back: bool = False) -> Places | None:
        """Where the volume's replica comes once `node` is chosen; None where none is to come."""
        if demand.never:
            return None
        if demand.is_local:
            if node in demand.home_nodes or demand.is_pinned:
                return None
            replicas = self._world.replicas_of(demand.volume).values()
            if any(entry.node == node and not (entry.failed_at or entry.deleting) for entry in replicas):
                return None  # Longhorn adds none beside it, though it may be evicting
            if demand.placed_nodes:
                return OneOf(frozenset((node,))) if self._world.has_node(node) else None
            return first_places(self._world, demand, node, falls_back=falls_back)
        return roaming_places(self._world, demand, demand.copies) if demand.is_roaming else None

    def chance(self, demand: VolumeDemand, kind: Kind, node: str, now: float) -> float | None:
        """`now` once it is Longhorn's to place the volume: attached to that node, or told that it cannot be placed; for
        one that roams, as soon as Longhorn places it at all."""
        volume = self._world.volume(demand.volume)
        if volume is None:
            return None
        if kind is Kind.ROAMING:
            return now if volume.data_locality == LOCALITY_DISABLED or volume.node_id else None
        if volume.node_id != node:
            return None
        if kind is Kind.MOVE:
            replicas = self._world.replicas_of(demand.volume).values()
            is_waiting = any(not entry.node and entry.hard_node_affinity == node for entry in replicas)
            return now if volume.scheduled is False and is_waiting else None
        return now if volume.scheduled is False or volume.state == "attached" else None

    def verb_for(self, record: Promise) -> Verb:
        """Shown, if the volume has a replica where there was none when the promise was made; undone otherwise."""
        claim = self._world.claim_by_uid(record.volume)
        if claim is None or record.state is not State.ASSUMED:
            return Verb.FORGET
        demand = demand_of_claim(claim, self._world, self._world.settings)
        if not isinstance(demand, VolumeDemand):
            return Verb.FORGET
        shown = demand.placed_nodes if record.kind is Kind.FIRST else demand.usable_nodes & record.nodes
        return Verb.CONFIRM if shown or (record.kind is Kind.ROAMING and not demand.is_roaming) else Verb.FORGET

    def end(self, record: Promise, demand: VolumeDemand, now: float, *, may_lapse: bool = True) -> None:
        """Nothing more is to come of what is assumed, or was held and is chosen. While that is so only by what
        was given by name, and may come to nothing, it counts nowhere."""
        if not (may_lapse and self._world.allocated.lapsing(demand.volume)):
            self.drop(self.verb_for(record), record, now)
            return
        since = record.since if record.state is State.ASSUMED else now
        waiting = replace(record, state=State.ASSUMED, source=Source.CHOICE, since=since, chance_at=None)
        self._ledger.put(Verb.ASSUME, replace(waiting, places=NOWHERE, asked=record.as_asked.places))

    def drop(self, verb: Verb, record: Promise, now: float) -> None:
        entry = self._ledger.drop(verb, record.volume, record.claimant)
        if entry is None or entry.state is not State.ASSUMED or verb not in (Verb.CONFIRM, Verb.EXPIRE):
            return
        if entry.source is not Source.CHOICE:
            return
        others = self._ledger.of_volume(entry.volume)
        if not any(one.source is Source.CHOICE and one.places == entry.places for one in others):
            self._journal.record(NODE_RESERVATION, now - entry.since, verb is Verb.CONFIRM)

    def demands(self, claims: Iterable[Claim]) -> tuple[list[VolumeDemand], frozenset[str]]:
        """Demands, and the uids of claims whose demand is unknown because an object is not in our stores."""
        found: dict[str, VolumeDemand] = {}
        unknown = set()
        for claim in claims:
            demand = demand_of_claim(claim, self._world, self._world.settings)
            if isinstance(demand, Missing):
                if demand not in self._world.absent:
                    unknown.add(claim.uid)
            elif demand is not None:
                found[demand.key] = demand
        return list(found.values()), frozenset(unknown)
