"""The fourth invariant: no place exceeds its disk or breaks its volume's rules, and nobody let through goes without.

A place is judged when it arrives at the API server, by the truth of that moment. What the leader could not know when it
decided is set aside: what its watches had not delivered, and what came later from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.allocator.outcome import PlaceWrite, ReplicaTurn, TakenBytes, TurnStep, WaitReason
from controller.model.longhorn import Replica, Volume
from controller.model.workload import Pod
from tests.race.told import EVERYWHERE, Yes, is_local, is_short
from tests.race.world import RaceWorld

FURTHER_SECONDS: Final = 8.0  # that a further copy waits for bytes that nobody has
_FAULTS: Final = (WaitReason.FAULT, WaitReason.ILLEGAL)


class Limits:
    """Watches all that is decided and placed."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world
        self._known: dict[str, int] = {}  # by replica, the last write that its decision knew of

    # Decisions

    def decided(self, turn: ReplicaTurn) -> None:
        world = self._world
        world.check(not turn.fault and turn.reason not in _FAULTS, f"{turn.reason}: {turn.fault}")
        if turn.write is not None:
            self._known[turn.write.replica] = world.seen_serial()
            self._check_open(turn.write)
            self._check_how(turn.write)
        elif turn.reason == WaitReason.NO_ROOM:
            self.check_room(turn.volume, "finds no room")
        if turn.step is TurnStep.HOLD:
            used = [one.name for one in world.replicas_of(turn.volume) if one.is_placed and not one.failed_at]
            is_known = not world.waiting()
            world.check(not (used and is_known), f"a copy of {turn.volume} is kept from Longhorn beside {used}")

    def _check_open(self, write: PlaceWrite) -> None:
        """Checks that the disk takes replicas, as far as the product knows."""
        node = self._world.nodes[write.place.node]
        disk = next(one for one in node.disks if one.uuid == write.place.disk_uuid)
        is_known = "node" not in self._world.waiting()
        self._world.check(disk.schedulable or not is_known, f"{write.replica} is given {disk.uuid}, which is closed")

    def _check_how(self, write: PlaceWrite) -> None:
        """Checks that planned bytes went to a further copy, after a while, or to one that has lost its place."""
        world = self._world
        if write.how != TakenBytes.DISPLACED or world.waiting():
            return
        waited = world.now - max(world.made_at[write.replica], world.term_at)
        world.check(waited >= FURTHER_SECONDS, f"{write.replica} takes planned bytes after {waited:g} s")
        others = [one for one in world.replicas_of(write.volume) if one.is_placed]
        has_lost = all(self._is_explained(yes, write.volume) for yes in self._told(write.volume))
        has_lost = has_lost and world.told.all_at > 0
        world.check(bool(others) or has_lost, f"{write.replica} is the first copy, and takes planned bytes")

    # Places

    def arrives(self, write: PlaceWrite, facts: Replica) -> None:
        world, uuid, known = self._world, write.place.disk_uuid, self._known[write.replica]
        here = [one for one in world.replicas.values() if one.disk_uuid == uuid]
        unseen = sum(world.told.came(uuid, known).values())
        used = sum(one.size_bytes for one in here) + facts.size_bytes
        limit = world.rules().limits()[uuid]
        text = f"{facts.name} puts its disk over the limit: {used / 1024**3:g} of {limit / 1024**3:g} GiB on {uuid}"
        world.check(used - unseen <= limit, text)
        volume = world.volumes.get(facts.volume)
        others = [one for one in world.replicas_of(facts.volume) if one.is_placed and one.is_usable]
        others = [one for one in others if one.name not in world.told.came(one.disk_uuid, known)]
        if volume is not None:
            self._check_affinity(volume, write, others)

    def _check_affinity(self, volume: Volume, write: PlaceWrite, others: list[Replica]) -> None:
        settings, where = self._world.settings, write.place
        is_zone_soft = _flag(volume.zone_soft_anti_affinity, settings.zone_soft_anti_affinity)
        is_node_soft = is_zone_soft and _flag(volume.soft_anti_affinity, settings.soft_anti_affinity)
        is_disk_soft = _flag(volume.disk_soft_anti_affinity, settings.disk_soft_anti_affinity)
        beside = [one.name for one in others if one.node == where.node and not is_node_soft]
        beside += [one.name for one in others if one.disk_uuid == where.disk_uuid and not is_disk_soft]
        self._world.check(not beside, f"{write.replica} lies on {where.disk_uuid}, beside {beside}")

    # Who goes without

    def check_room(self, volume: str, what: str) -> None:
        """Whoever was let through, and whose choice is shown, has a place for its volume."""
        world = self._world
        facts = world.volumes.get(volume)
        if facts is None or world.waiting() or volume in world.writing.values():
            return
        for node, offered in self.due(facts):
            world.check(False, f"{volume} {what}, and its pod was offered {offered}; it is due on {node}")

    def due(self, facts: Volume) -> Iterator[tuple[str, list[str]]]:
        """The node, or EVERYWHERE, where the volume lacks a copy though a pod was told a place for it, and nothing
        explains that; with the nodes that the pod was offered."""
        for pod in self._told_pods(facts.name):
            yes = self._world.told.yes[pod.uid]
            due = yes.due.get(facts.name.removeprefix("pvc-"), 0)
            if is_short(self._world, facts, pod.node_name, due) and not self._is_explained(yes, facts.name):
                yield pod.node_name if is_local(facts) else EVERYWHERE, sorted(yes.nodes)

    def check_at_rest(self) -> None:
        """When all is quiet, nobody who was promised a place is without one."""
        for facts in list(self._world.volumes.values()):
            if any(not one.node and not one.failed_at for one in self._world.replicas_of(facts.name)):
                self.check_room(facts.name, "is without a place for ever")

    def _told_pods(self, volume: str) -> list[Pod]:
        """Bound pods that were told a place for it where they are."""
        world, claim = self._world, self._world.claim_of(volume)
        users = world.users_of(claim) if claim is not None else []
        if claim is None or (is_local(world.volume_of(claim)) and len(users) > 1):
            return []
        told = ((pod, world.told.yes.get(pod.uid)) for pod in users if pod.node_name)
        return [pod for pod, yes in told if yes is not None and yes.nodes_of(claim.uid) & {pod.node_name, EVERYWHERE}]

    def _told(self, volume: str) -> list[Yes]:
        return [self._world.told.yes[pod.uid] for pod in self._told_pods(volume)]

    def _is_explained(self, yes: Yes, volume: str) -> bool:
        return self._world.told.is_explained(yes, volume)


def _flag(own: str, setting: bool) -> bool:
    return own == "enabled" if own in ("enabled", "disabled") else setting
