"""A cluster that goes on by itself: saved facts, and a leader's allocator that decides over them on a standing clock.

Nothing here is a second way to decide. The allocator is the leader's: it answers filter calls, scores nodes, keeps
plans and places Replicas. What others do is played: kube-scheduler binds, the provisioner makes volumes, Longhorn
makes Replica objects. Objects come and go through the same events by which a leader follows its watches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.choose.wanted import replica_to_come
from controller.allocator.core import LOOK_SECONDS
from controller.allocator.outcome import Mode, TurnStep, WaitReason
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.verbs.place import BESIDE_SECONDS
from controller.allocator.world.world import World
from controller.follow.kinds import KINDS
from controller.model.longhorn import LonghornNode, LonghornSettings, TopologyTerm, Volume
from controller.model.names import LONGHORN_DRIVER
from controller.model.times import rfc3339
from controller.model.workload import Claim, PersistentVolume, Pod
from controller.plan.objects import Objects
from controller.rules.demand import VolumeDemand
from controller.rules.locality import locality_of, node_of_copy_to_come
from controller.settings import LiveSettings
from controller.simulation.documents import CopyPlace
from controller.views.documents import DiskView, Explanation
from controller.views.explain.pod import explain_pod
from controller.views.overview import disk_views

_START: Final = 1_000.0  # monotonic seconds, so that no interval reaches back before zero
_TRIES: Final = 2  # for a copy: at once, and when it may take planned bytes


class StandingClock:
    """Goes on only when it is told to, so that no search runs out of time and the same question has one answer."""

    def __init__(self, now_utc: datetime) -> None:
        self._now_utc, self._elapsed = now_utc, 0.0

    def now(self) -> float:
        return _START + self._elapsed

    def now_utc(self) -> datetime:
        return self._now_utc + timedelta(seconds=self._elapsed)

    def stamp(self) -> str:
        """The time as Kubernetes writes it."""
        return rfc3339(self.now_utc())

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds


class SimulatedLeader(Allocator):
    """The leader's allocator, which others may read. Threads: one."""

    @property
    def world(self) -> World:
        return self._world


class SimulatedCluster:
    """The leader over saved facts, and the steps of everybody else."""

    def __init__(
        self,
        objects: Objects,
        settings: LonghornSettings,
        live: LiveSettings,
        now_utc: datetime,
        plans: Collection[Plan] = (),
        holds: Collection[Hold] = (),
    ) -> None:
        self.clock = StandingClock(now_utc)
        self.leader = SimulatedLeader(self.clock)
        for kind in reversed(KINDS):  # nodes before what lies on them, mostly
            for key, facts in objects.by_kind[kind.name].items():
                if kind.name == "node":
                    self.put_node(facts)
                else:
                    kind.observe(self.leader, key, facts, None)
        self.leader.configure(live, settings)
        self.leader.set_mode(Mode.ACTIVE)
        self.leader.begin_term(has_predecessor=False, plans=plans, holds=holds)
        self._numbers = 0

    @property
    def world(self) -> World:
        return self.leader.world

    def explanation(self, pod: Pod) -> Explanation:
        """Why the pod, which was refused, waits, as `explain` says it to somebody who may see all."""
        self.clock.advance(LOOK_SECONDS)
        return explain_pod(self.leader.look(), pod.namespace, pod.name, lambda _namespace: True)

    def disks(self) -> Sequence[DiskView]:
        """Every disk of Longhorn, as `status` shows it."""
        self.clock.advance(LOOK_SECONDS)
        return disk_views(self.leader.look())

    # Volumes

    def provision(self, claim: Claim, node: str = "") -> str:
        """Makes the claim's volume, as the provisioner and Longhorn do, with replicas that have no disk yet; returns
        the volume's name, "" if there is none to make. `node`: the one that was chosen for the pod."""
        demand = self.world.demand_of(claim.uid)
        if demand is None or demand.never or claim.volume_name:
            return ""
        if not demand.exists:
            facts = _bound(demand, self.world.nodes.get(node))
            made = replace(facts, uid=f"volume-{facts.name}", state="detached", robustness="unknown")
            self.leader.observe_volume(made.name, made)
            for _ in range(made.replica_count):
                self._make_replica(made)
        pv = PersistentVolume(
            demand.volume, LONGHORN_DRIVER, demand.volume, claim.uid, claim.key, demand.size_bytes, self.clock.stamp()
        )
        self.leader.observe_pv(pv.name, pv)
        self.leader.observe_claim(claim.key, replace(claim, volume_name=pv.name, selected_node=node))
        return demand.volume

    def _make_replica(self, volume: Volume, hard_node_affinity: str = "") -> str:
        self._numbers += 1
        name = f"{volume.name}-r-new{self._numbers}"
        made = replica_to_come(volume, hard_node_affinity)
        self.leader.observe_replica(name, replace(made, name=name, uid=name))
        return name

    def attach(self, name: str, node: str) -> None:
        """The volume's engine runs on that node from now on; "" for none."""
        volume = self.world.volumes.get(name)
        if volume is not None and volume.node_id != node and not (volume.node_id and node):
            state = "attached" if node else "detached"
            self.leader.observe_volume(name, replace(volume, node_id=node, state=state))

    def make_missing(self, name: str) -> None:
        """Longhorn makes a Replica for each copy that the volume lacks, and has none for."""
        volume = self.world.volumes.get(name)
        if volume is None:
            return
        there = [one for one in self.world.replicas_of(name).values() if not (one.failed_at or one.deleting)]
        for _ in range(volume.replica_count - len(there)):
            self._make_replica(volume)

    def place_copies(self, name: str, tries: int = _TRIES) -> list[CopyPlace]:
        """The leader places all that it can of the volume's Replicas without a disk; where they go."""
        found = list[CopyPlace]()
        for replica in list(self.world.replicas_of(name).values()):
            if not replica.node:
                found.extend(self._place(replica.name, tries))
        return found

    def is_placed_detached(self, name: str) -> bool:
        """Whether the volume's copies are placed while it is attached nowhere."""
        return locality_of(self.world.volumes[name]).places_detached(self.world.settings.behaviour)

    def add_copy(self, name: str) -> list[CopyPlace]:
        """Longhorn makes one Replica more, which the leader places; nothing stays of it if no disk takes it."""
        made = self._make_replica(self.world.volumes[name])
        placed = list(self._place(made))
        if not placed:
            self.leader.observe_replica(made, None)
        return placed

    def _place(self, name: str, tries: int = _TRIES) -> Iterable[CopyPlace]:
        for attempt in range(tries):
            turn = self.leader.places.turn_of(name, self.clock.now_utc())
            stored = self.world.replicas.get(name)
            if turn.step is TurnStep.PLACE and turn.write is not None and stored is not None:
                where = turn.write.place
                affinity = turn.write.hard_node_affinity or stored.hard_node_affinity
                facts = replace(stored, hard_node_affinity=affinity, healthy_at=self.clock.stamp(), held="")
                self.leader.places.stored(turn.write, facts)
                return (self._named(where.node, where.disk_uuid),)
            if turn.step in (TurnStep.LEAVE, TurnStep.NOTHING):
                break
            if attempt + 1 < tries and turn.reason == WaitReason.NO_ROOM:
                self.clock.advance(BESIDE_SECONDS + 1)
        return ()

    def _named(self, node: str, uuid: str) -> CopyPlace:
        disk = self.world.disk(node, uuid)
        return CopyPlace(node, disk.name if disk is not None else "", uuid)

    def places_of(self, name: str) -> list[CopyPlace]:
        """Where the volume's copies lie, those of failed replicas aside."""
        there = [one for one in self.world.replicas_of(name).values() if one.is_placed and not one.failed_at]
        return sorted((self._named(one.node, one.disk_uuid) for one in there), key=lambda one: (one.node, one.disk))

    def missing_copies(self, name: str) -> int:
        """How many copies the volume has too few."""
        volume = self.world.volumes.get(name)
        return 0 if volume is None else max(0, volume.replica_count - len(self.places_of(name)))

    def why_missing(self, name: str) -> str:
        """Why no disk takes a further copy of the volume, in a sentence; "" if one does."""
        self.clock.advance(LOOK_SECONDS)
        for replica in self.world.replicas_of(name).values():
            if not replica.node:
                found = self.leader.lack_of(replica.name)
                return found.text if found is not None else ""
        return ""

    def follow_engine(self, name: str) -> list[CopyPlace]:
        """Longhorn gives a best-effort volume a copy next to its engine, and removes one elsewhere in exchange."""
        volume, replicas = self.world.volumes.get(name), self.world.replicas_of(name)
        if volume is None:
            return []
        node = node_of_copy_to_come(volume, replicas.values(), self.world.settings)
        if not node:
            return []
        made = self._make_replica(volume, hard_node_affinity=node)
        placed = list(self._place(made))
        others = [one for one in self.world.replicas_of(name).values() if one.is_placed and one.node != node]
        if not placed:
            self.remove_replica(made)
        elif others and len(others) >= volume.replica_count:
            self.remove_replica(max(others, key=lambda one: (self._is_closed(one.node), one.name)).name)
        return placed

    def _is_closed(self, node: str) -> bool:
        facts = self.world.nodes.get(node)
        return facts is None or not facts.schedulable

    def remove_replica(self, name: str) -> None:
        """The copy is gone, and its node's figures show that."""
        replica = self.world.replicas.get(name)
        self.leader.observe_replica(name, None)
        node = self.world.nodes.get(replica.node) if replica is not None else None
        if node is None:
            return
        disks = []
        for disk in node.disks:
            size = disk.scheduled_replicas.get(name, 0)
            left = {key: value for key, value in disk.scheduled_replicas.items() if key != name}
            disks.append(replace(disk, scheduled_replicas=left, scheduled_bytes=disk.scheduled_bytes - size))
        if tuple(disks) != node.disks:
            self.leader.observe_node(node.name, replace(node, disks=tuple(disks)))

    def remove_volume(self, claim: Claim) -> None:
        """The claim is deleted, and its volume with it."""
        name = self.world.volume_of(claim.uid)
        self.leader.observe_claim(claim.key, None)
        for replica in list(self.world.replicas_of(name)):
            self.remove_replica(replica)
        self.leader.observe_volume(name, None)
        if claim.volume_name:
            self.leader.observe_pv(claim.volume_name, None)

    # Nodes

    def put_node(self, facts: LonghornNode) -> None:
        """Every disk gets a path, as the leader wants it of a disk before it writes; people leave it out."""
        disks = tuple(replace(disk, path=disk.path or disk.name) for disk in facts.disks)
        self.leader.observe_node(facts.name, replace(facts, disks=disks))

    def cordon(self, name: str) -> None:
        kube_node, node = self.world.kube_nodes.get(name), self.world.nodes.get(name)
        if kube_node is not None:
            self.leader.observe_kube_node(name, replace(kube_node, unschedulable=True))
        if node is not None and self.world.settings.closes_cordoned:
            why = "the Kubernetes node is cordoned"
            self.leader.observe_node(name, replace(node, schedulable=False, is_cordoned=True, not_schedulable=why))

    def lose(self, name: str) -> list[str]:
        """The node never comes back, nor does what lies on it; returns the volumes that had copies there."""
        gone = [one for of in self.world.volumes for one in self.world.replicas_of(of).values() if one.node == name]
        self.leader.observe_kube_node(name, None)
        self.leader.observe_node(name, None)
        for replica in gone:
            self.leader.observe_replica(replica.name, None)
        for volume in list(self.world.volumes.values()):
            if volume.node_id == name:
                self.attach(volume.name, "")
        return sorted({one.volume for one in gone})


def _bound(demand: VolumeDemand, node: LonghornNode | None) -> Volume:
    """The volume as its class makes it for that node."""
    facts = demand.facts
    if not demand.follows or node is None or not (node.zone or node.region):
        return facts
    term = TopologyTerm(node.zone if demand.follows == "zone" else "", node.region)
    return replace(facts, needs=replace(facts.needs, topology=(term,)))
