"""The third invariant: a pod that was refused and fits now is offered a node within three calls.

Whether it fits is told by sums that leave nothing to chance: on every disk that one of its volumes may reach, all that
is promised with a reason and all of the pod's own volumes go together into what is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from controller.model.workload import Claim, Pod
from tests.race.driver import EVERYWHERE, GROWTH, PromiseRow, RaceAnswer
from tests.race.promises import could_ever_grow, is_local, lacks
from tests.race.scheduler import RaceScheduler
from tests.race.world import ROAMING_SECONDS, RaceWorld, SchedulingRound

MOST_CALLS: Final = 3
ROOM_SECONDS: Final = 90.0  # that the product may take longer than that
REPORT_SECONDS: Final = 5.5  # that Longhorn may still decide by an older figure, which the product allows for
DOUBT_SECONDS: Final = 130.0  # longer than any hold lasts whose pod went or was not chosen


@dataclass
class Waiting:
    """A pod that was refused: what was promised to others at that time, and what is still."""

    older: set[tuple[str, str]] = field(default_factory=set)  # volume and node
    calls: int = 0  # in a row that were refused although it fitted


class Starvation:
    """Watches the answers to refused pods."""

    def __init__(self, world: RaceWorld, scheduler: RaceScheduler) -> None:
        self._world, self._scheduler = world, scheduler
        self._waiting: dict[str, Waiting] = {}  # by the pod's uid

    def waiting(self) -> list[SchedulingRound]:
        return [current for current in self._scheduler.askable() if current.uid in self._waiting]

    def note(self, current: SchedulingRound, answer: RaceAnswer | None) -> None:
        """After any filter call."""
        if answer is None:
            return
        if not answer.is_refused:
            self._waiting.pop(current.uid, None)
        elif current.uid not in self._waiting:
            rows = self._others(self._world.pods[current.key])
            self._waiting[current.uid] = Waiting({(row.volume, row.node) for row in rows})

    def insist(self, current: SchedulingRound) -> None:
        """Ask three times about the same nodes, with all watches delivered."""
        world, scheduler = self._world, self._scheduler
        world.deliver_all()
        for _ in range(MOST_CALLS):
            if world.pods.get(current.key) is None or current.uid not in self._waiting:
                return
            pod, candidates = world.pods[current.key], scheduler.candidates(current, -1)
            fitting = self._fitting(pod, candidates)
            answer = scheduler.ask(current, candidates)
            if answer is None or not answer.is_refused:
                self.note(current, answer)
                return
            entry = self._waiting[current.uid]
            entry.calls = entry.calls + 1 if fitting else 0
            told = "\n".join(f"    {row}" for row in self._world.driver.rows())
            world.check(
                entry.calls < MOST_CALLS,
                f"{current.key} is refused {entry.calls} times and fits on {fitting} beside\n{told}",
            )

    def _fitting(self, pod: Pod, candidates: Iterable[str]) -> list[str]:
        """Nodes where the pod surely fits, if nothing is promised any more that was when it was first refused, and no
        figure is so new that Longhorn may not have it yet. Not those on which it is another one's turn."""
        if self._world.now - max(self._world.figures_seen_at, self._world.term_at) < REPORT_SECONDS:
            return []
        entry, rows = self._waiting[pod.uid], self._others(pod)
        entry.older &= {(row.volume, row.node) for row in rows}
        if entry.older or len(self._world.claims_of(pod)) < len(pod.volumes):
            return []
        closed = self._world.driver.closed_to(pod)
        return fitting_nodes(self._world, pod, rows, [name for name in candidates if name not in closed])

    def _others(self, pod: Pod) -> list[PromiseRow]:
        own = {claim.uid for claim in self._world.claims_of(pod)}
        return [row for row in self._world.driver.rows() if row.volume not in own and has_reason(self._world, row)]


# Reasons


def has_reason(world: RaceWorld, row: PromiseRow) -> bool:
    """Whether anything in the cluster, or an answer of a moment ago, may stand behind that promise."""
    claim = world.claim_by_uid(row.volume)
    if claim is None:
        return False
    facts = world.volume_of(claim)
    replicas = world.replicas_of(facts.name)
    if row.kind == GROWTH:
        least, _ = world.granted_bytes(claim)
        return could_ever_grow(world, [entry for entry in replicas if entry.node == row.node], least)
    if claim.requested_bytes > facts.size_bytes or any(
        grant.volume == facts.name and world.may_be_stored(grant) for grant in world.grants
    ):
        return True  # it is attached to grow, and placed then
    if world.now - world.doubted_at.get(claim.uid, float("-inf")) < DOUBT_SECONDS:
        return True
    if any(_is_claimant(world, pod) for pod in world.users_of(claim)):
        return not _is_hopeless(world, claim, row)
    if not claim.volume_name:
        return bool(claim.selected_node)
    return bool(facts.node_id) or (facts.data_locality == "disabled" and not _is_hopeless(world, claim, row))


def _is_claimant(world: RaceWorld, pod: Pod) -> bool:
    """Whether some scheduler may be at work on the pod, or take it up again where its claims say."""
    current = world.rounds.get(pod.key)
    if pod.node_name or current is None:
        return bool(pod.node_name)
    is_chosen = bool(current.picked) or any(claim.selected_node for claim in world.claims_of(pod))
    return not current.is_gated and (pod.is_opted_in or is_chosen)


def _is_hopeless(world: RaceWorld, claim: Claim, row: PromiseRow) -> bool:
    """Copies that Longhorn could have placed for long, in this leader's time, count for nothing."""
    name = world.volume_of(claim).name
    since = world.placeable_at.get(name)
    if since is None or row.node != EVERYWHERE:
        return False
    _, own_since = world.own_since[name]
    return world.now - max(since, own_since, world.term_at) > ROAMING_SECONDS + ROOM_SECONDS


# Room


def fitting_nodes(world: RaceWorld, pod: Pod, others: Iterable[PromiseRow], candidates: Iterable[str]) -> list[str]:
    """Nodes where no order and no choice of Longhorn's can be in the way of all the pod's volumes."""
    room = Room(world, pod, list(others))
    if not all(room.roams(claim) for claim in world.claims_of(pod) if not is_local(world.volume_of(claim))):
        return []
    return [node for node in candidates if room.takes(node)]


class Room:
    """Free bytes of the disks, and what may come there."""

    def __init__(self, world: RaceWorld, pod: Pod, others: list[PromiseRow]) -> None:
        self._world, self._rules, self._others = world, world.rules(), others
        self._claims = world.claims_of(pod)
        self._free = world.free_bytes()
        for replica in world.replicas.values():
            owner = world.claim_by_uid(replica.volume.removeprefix("pvc-"))
            if replica.disk_uuid and owner is not None:
                self._free[replica.disk_uuid] -= max(0, world.granted_bytes(owner)[1] - replica.size_bytes)

    def _load(self, node: str) -> int:
        """All that may come to any disk of that node, the pod's own volumes included."""
        total = 0
        for row in self._others:
            if row.node in (node, EVERYWHERE) and row.kind != GROWTH:
                owner = self._world.claim_by_uid(row.volume)
                copies = self._world.volume_of(owner).replica_count if owner is not None else 1
                total += row.size_bytes * (copies if row.node == EVERYWHERE else 1)
        for claim in self._claims:
            facts = self._world.volume_of(claim)
            total += self._world.granted_bytes(claim)[1] * (facts.replica_count if not is_local(facts) else 1)
        return total

    def _reach(self, claim: Claim, node: str = "") -> set[tuple[str, str]]:
        facts = self._world.volume_of(claim)
        replicas = self._world.replicas_of(facts.name)
        found = self._rules.reach(facts, replicas, node)
        return {(entry.node, entry.uuid) for entry in found}

    def roams(self, claim: Claim) -> bool:
        """Whether all copies that are missing find room for sure, on nodes of their own."""
        facts = self._world.volume_of(claim)
        if not lacks(self._world, claim, ""):
            return True
        reach = self._reach(claim)
        zones = {self._world.nodes[node].zone for node, _ in reach}
        is_roomy = all(self._load(node) <= self._free[uuid] for node, uuid in reach)
        return is_roomy and len(zones) >= facts.replica_count

    def takes(self, node: str) -> bool:
        """Whether each local volume finds room there for sure."""
        for claim in self._claims:
            facts = self._world.volume_of(claim)
            if not is_local(facts):
                continue
            replicas = self._world.replicas_of(facts.name)
            need = lacks(self._world, claim, node)
            if not need:
                if facts.data_locality == "strict-local" and all(entry.node != node for entry in replicas):
                    return False
                continue
            reach = self._reach(claim, node)
            if not reach or any(self._load(node) > self._free[uuid] for _, uuid in reach):
                return False
        return True
