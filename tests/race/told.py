"""What pods were told, as long as it counts, and what has happened since that explains why it does not come true.

Bytes that come from elsewhere explain it: copies that somebody else than the leader has placed, further copies that
were given planned bytes, growth that this leader has not admitted. So does what closes, shrinks or comes back. Nothing
else does, whatever order watches deliver in and whichever writes fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.allocator.outcome import TakenBytes
from controller.model.longhorn import InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, Pod
from tests.race.driver import RaceAnswer

if TYPE_CHECKING:
    from tests.race.world import RaceWorld

EVERYWHERE: Final = "*"


@dataclass
class Yes:
    """Nodes that a pod was offered, and of the volumes that lacked a copy there, by the claims' uids, these nodes, or
    EVERYWHERE; of the latter, how many copies are `due` then, those that are there included. `chosen`: the node, once
    the cluster shows it, by more than what was said before (`older`). `step` of the answer; of the `last_step` where
    answers add up."""

    nodes: frozenset[str]
    needs: dict[str, frozenset[str]]
    step: int
    last_step: int
    at: float
    older: frozenset[tuple[str, str]]
    due: dict[str, int]
    chosen: str = ""

    def nodes_of(self, claim_uid: str) -> frozenset[str]:
        """Where the volume has a place by now, as far as is known."""
        nodes = self.needs.get(claim_uid, frozenset())
        return nodes & {self.chosen, EVERYWHERE} if self.chosen else nodes


def is_local(facts: Volume) -> bool:
    """Whether a copy has to lie on the node of the pod."""
    if facts.access_mode == "rwx":
        return False
    return facts.data_locality == "strict-local" or (facts.data_locality == "best-effort" and facts.replica_count == 1)


def stays(replica: Replica) -> bool:
    """Whether the replica's data is on its disk, or is brought back there."""
    return replica.is_usable or (replica.is_potentially_reusable and replica.active and not replica.deleting)


def lacks(world: RaceWorld, claim: Claim, node: str) -> str:
    """Where the claim's volume has no copy yet if its pod runs on `node`: that node, EVERYWHERE, or "" for nowhere."""
    facts = world.volume_of(claim)
    replicas = world.lying_of(facts.name)
    placed = any(replica.is_placed for replica in replicas)
    if not is_local(facts):
        is_enough = placed and world.settings.degraded_availability
        return "" if is_enough or sum(map(stays, replicas)) >= facts.replica_count else EVERYWHERE
    is_there = any((stays(entry) or entry.eviction_requested) and entry.node == node for entry in replicas)
    return "" if is_there or (placed and facts.data_locality == "strict-local") else node


def is_short(world: RaceWorld, facts: Volume, node: str, due: int) -> bool:
    """Whether the volume of a pod on that node has fewer copies than are due."""
    placed = [one for one in world.lying_of(facts.name) if one.is_placed and not one.failed_at]
    return len(placed) < due if due else not any(one.node == node for one in placed)


class ToldPlaces:
    """Hears of all that is answered, written and delivered; `step` counts that."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world
        self.step = 0
        self.yes: dict[str, Yes] = {}  # by the pod's uid
        self.all_at = 0  # the last step that explains everything
        self.lost_at = 0  # the last one at which a leader went without having stored all
        self._volume_at: Counter[str] = Counter()  # the same of one volume
        self._stored_step = 0
        self._states: dict[str, object] = {}  # of nodes and managers, as the product knows them
        self._came: list[tuple[int, str, str, int]] = []  # bytes from elsewhere: serial, disk, replica

    # Answers

    def answered(self, pod: Pod, answer: RaceAnswer) -> None:
        world, adds_up = self._world, self._world.shape.has_strangers
        self.step += 1
        old = self.yes.get(pod.uid)
        if answer.is_chosen or (adds_up and not answer.is_held):
            return
        if adds_up and world.driver.is_chosen(pod.uid):  # places elsewhere are looked for once they are chosen
            if old is not None:
                old.nodes |= frozenset(answer.passed)
            return
        self.yes.pop(pod.uid, None)
        if not answer.is_held:
            return
        needs = {claim.uid: self._lacking(claim, answer.passed) for claim in world.claims_of(pod)}
        needs = {uid: nodes for uid, nodes in needs.items() if nodes}
        due = {uid: self._due(uid) for uid, nodes in needs.items() if EVERYWHERE in nodes}
        yes = Yes(frozenset(answer.passed), needs, self.step, self.step, world.now, self._said(pod), due)
        if adds_up and old is not None:
            needs = {uid: needs.get(uid, frozenset()) | nodes for uid, nodes in old.needs.items()} | {
                uid: nodes for uid, nodes in needs.items() if uid not in old.needs
            }
            nodes, due = yes.nodes | old.nodes, yes.due | old.due
            yes = replace(yes, nodes=nodes, needs=needs, due=due, step=old.step, older=old.older, chosen=old.chosen)
        self.yes[pod.uid] = yes
        self._note_choice(pod)

    def _due(self, claim_uid: str) -> int:
        """How many copies the volume has, or has places for. One at least, and all where Longhorn wants them all."""
        world, name = self._world, f"pvc-{claim_uid}"
        claim = world.claim_of(name)
        assert claim is not None
        held = Counter(row.holder for row in world.driver.rows() if row.volume == name)
        found = sum(map(stays, world.lying_of(name))) + max(held.values(), default=0)
        least = 1 if world.settings.degraded_availability else world.volume_of(claim).replica_count
        world.check(found >= least or bool(world.waiting()), f"{name} has {found} places, and {least} are wanted")
        return max(found, 1)

    def _lacking(self, claim: Claim, nodes: tuple[str, ...]) -> frozenset[str]:
        """Where the volume lacks a copy that room is held for: none that seems to lie there, or is being written."""
        name = f"pvc-{claim.uid}"
        if name in self._world.writing.values():
            return frozenset()
        unseen = (entry for _, facts, gone in self._world.undelivered() for entry in (facts, gone))
        if any(isinstance(one, Replica) and one.volume == name for one in unseen):
            return frozenset()
        return frozenset(filter(None, (lacks(self._world, claim, node) for node in nodes)))

    def _said(self, pod: Pod) -> frozenset[tuple[str, str]]:
        """The nodes that the pod's claims and its nomination name, as far as the product has seen that."""
        unseen = {facts.uid for _, facts, _ in self._world.undelivered() if isinstance(facts, (Claim, Pod))}
        said = {(claim.uid, claim.selected_node) for claim in self._world.claims_of(pod) if claim.uid not in unseen}
        return frozenset(said | ({("", pod.nominated_node)} if pod.uid not in unseen else set()))

    def ended(self, pod_uid: str) -> None:
        """What the pod was told has ended by time."""
        self.yes.pop(pod_uid, None)

    def stored(self) -> None:
        self._stored_step = self.step

    def leader_changed(self) -> None:
        """Answers that the former leader had not stored count no more."""
        if self.step > self._stored_step:
            self.lost_at = self.step
        for uid in [uid for uid, yes in self.yes.items() if yes.last_step > self._stored_step]:
            del self.yes[uid]
        world = self._world
        self._states = {name: _state(one) for name, one in (world.nodes | world.managers).items()}

    # Choices

    def _note_choice(self, pod: Pod) -> None:
        yes = self.yes.get(pod.uid)
        if yes is None:
            return
        named = {pod.node_name} if pod.node_name else self._named(pod, yes)
        if not named:
            return
        if len(named) > 1 or not named <= yes.nodes or yes.chosen not in ("", *named):
            del self.yes[pod.uid]  # what of this was seen, and when, nobody can tell
        else:
            yes.chosen = next(iter(named))

    def _named(self, pod: Pod, yes: Yes) -> set[str]:
        """Offered nodes that the pod's claims, or its nomination, have named since."""
        world, found = self._world, set[str]()
        for claim in world.claims_of(pod):
            pv = world.pvs.get(claim.volume_name)
            is_older = bool(claim.volume_name) and (pv is None or pod.created_utc >= pv.created_utc)
            is_news = (claim.uid, claim.selected_node) not in yes.older and claim.selected_node in yes.nodes
            if is_news and not is_older and len(world.users_of(claim)) == 1:
                found.add(claim.selected_node)
        is_news = ("", pod.nominated_node) not in yes.older and pod.nominated_node in yes.nodes
        return found or ({pod.nominated_node} if is_news else set())

    # What explains

    def disturb(self, volume: str = "") -> None:
        """Something happens that explains what becomes of that volume, or of all."""
        self.step += 1
        if volume:
            self._volume_at[volume] = self.step
        else:
            self.all_at = self.step

    def written(self, kind: str, facts: object | None, old: object | None, by: str) -> None:
        """Notes a write of the API server, after it was stored."""
        self.step += 1
        if kind == "pod" and isinstance(old, Pod) and (not isinstance(facts, Pod) or facts.is_finished):
            self.yes.pop(old.uid, None)
        if isinstance(facts, Pod):
            self._note_choice(facts)
        elif isinstance(facts, Claim):
            for pod in self._world.users_of(facts):
                self._note_choice(pod)
        elif kind in ("node", "instance_manager") and _state(facts) != _state(old):
            self._note_smaller(facts, old)
            self.disturb()
        elif kind == "replica":
            before, after = (one if isinstance(one, Replica) else None for one in (old, facts))
            self._note_replica(before, after, by)

    def _note_smaller(self, facts: object | None, old: object | None) -> None:
        known = {disk.uuid: disk for disk in old.disks} if isinstance(old, LonghornNode) else {}
        for disk in facts.disks if isinstance(facts, LonghornNode) else ():
            less = disk.reserved_bytes - known[disk.uuid].reserved_bytes
            self._came.append((self._world.serial, disk.uuid, "", less))

    def _note_replica(self, before: Replica | None, after: Replica | None, by: str) -> None:
        was_placed = before is not None and bool(before.disk_uuid)
        if before is not None and was_placed and (after is None or _health(after) != _health(before)):
            self.disturb(before.volume)
        if after is None or not after.disk_uuid:
            return
        more = after.size_bytes - (before.size_bytes if before is not None and was_placed else 0)
        if was_placed:
            is_known = more <= 0 or self._world.record is not None
            is_known = is_known or bool(self._world.grants_of(after.volume, after.size_bytes))
        else:
            is_known = by in tuple(TakenBytes) or by == "told"
        if not is_known:
            self._came.append((self._world.serial, after.disk_uuid, after.name, more))
        if not is_known or by == TakenBytes.DISPLACED:
            self.disturb()

    def came(self, disk_uuid: str, since: int) -> Counter[str]:
        """Bytes that came to that disk from elsewhere after that write, by replica; "" for what it became smaller."""
        found: Counter[str] = Counter()
        for serial, uuid, name, size in self._came:
            if uuid == disk_uuid and serial > since:
                found[name] += size
        return found

    def delivered(self, facts: object | None, gone: object | None) -> None:
        """The product knows it now; what happened before may have been unknown when a yes was given after it."""
        self.step += 1
        known = facts if facts is not None else gone
        if self._is_news(facts, gone):
            self.disturb()
        if isinstance(known, (LonghornNode, InstanceManager)):
            self._states[known.name] = _state(facts)
        elif isinstance(known, Replica) and known.disk_uuid and (facts is None or any(_health(known))):
            self.disturb(known.volume)

    def _is_news(self, facts: object | None, gone: object | None) -> bool:
        """Whether the event tells of something that explains what becomes of any volume."""
        known = facts if facts is not None else gone
        return isinstance(known, (LonghornNode, InstanceManager)) and self._states.get(known.name) != _state(facts)

    def is_explained(self, yes: Yes, volume: str) -> bool:
        if max(self.all_at, self._volume_at[volume]) > yes.step:
            return True
        return any(self._is_news(facts, gone) for _, facts, gone in self._world.undelivered())


def _health(facts: Replica) -> tuple[bool, bool]:
    return bool(facts.failed_at), facts.eviction_requested


def _state(facts: object | None) -> object:
    """The facts without the figures that follow the replicas."""
    if not isinstance(facts, LonghornNode):
        return facts
    disks = tuple(replace(disk, scheduled_bytes=0, scheduled_replicas={}, scheduled_images={}) for disk in facts.disks)
    return replace(facts, disks=disks)
