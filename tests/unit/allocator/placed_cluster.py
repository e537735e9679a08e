"""A cluster of which the leader places the Replicas, for tests that ask where one goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from controller.allocator.outcome import ReplicaTurn
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.table import Table
from controller.allocator.verbs.planning import Planner
from controller.model.longhorn import Replica
from controller.model.places import Place
from tests.fakes import builders
from tests.fakes.builders import GIB, TestCluster

NOW: Final = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class PlacedCluster(TestCluster):
    """A cluster of which the leader places the Replicas. Names of Replicas are those that `provision` gives."""

    def turn(self, replica: str) -> ReplicaTurn:
        return self.allocator.places.turn_of(replica, NOW)

    def where(self, replica: str) -> str:
        """The disk that the Replica is given, or why it is given none."""
        turn = self.turn(replica)
        return turn.write.place.disk_uuid if turn.write is not None else f"{turn.step}: {turn.reason}"

    def wait(self, replica: str, seconds: float) -> ReplicaTurn:
        """What the Replica is told after that time, looked at every second."""
        turn = self.turn(replica)
        for _ in range(int(seconds)):
            self.clock.advance(1)
            turn = self.turn(replica)
        return turn

    def store(self, turn: ReplicaTurn) -> Replica:
        """Its write arrives, and the answer comes."""
        assert turn.write is not None
        facts = self.written(turn)
        self.allocator.places.stored(turn.write, facts)
        return facts

    def written(self, turn: ReplicaTurn) -> Replica:
        assert turn.write is not None
        place = turn.write.place
        made = builders.replica(turn.write.replica, turn.volume, place.size_bytes / GIB)
        return replace(made, node=place.node, disk_uuid=place.disk_uuid, uid=turn.uid)

    def chosen(self, pod: str, gib: float, to: str, class_name: str = "longhorn") -> str:
        """The volume of a pod that asked, and whose node is chosen."""
        self.ask(pod, gib, to, class_name=class_name)
        self.select_node(pod, to)
        return f"pvc-uid-{pod}"

    @property
    def table(self) -> Table:
        return self.allocator._table

    @property
    def planner(self) -> Planner:
        return self.allocator._settler.planner

    def plans(self) -> dict[str, list[str]]:
        """The disks that are planned, by volume, as they would be stored; of what changed since the last call."""
        return {
            volume: sorted(place.disk_uuid for place in plan.places) if plan is not None else []
            for volume, plan in self.allocator.places.take_changes().plans
        }


def add_free_volume(site: PlacedCluster, name: str, gib: float, *, copies: int = 1, **facts: Any) -> list[str]:
    """A volume that nobody asked us about, with its unplaced Replicas' names."""
    made = builders.volume(name, gib, locality="disabled", replica_count=copies, **facts)
    site.allocator.observe_volume(name, made)
    names = [f"{name}-r-{number}" for number in range(1, copies + 1)]
    for one in names:
        site.allocator.observe_replica(one, builders.replica(one, name, gib, uid=f"uid-{one}"))
    return names


def add_second_copy(site: PlacedCluster, gib: float, *, first_on: str, volume: str = "v") -> str:
    """A volume with a copy on that node, and another one without a node; that one's name."""
    first, second = add_free_volume(site, volume, gib, copies=2)
    site.allocator.observe_replica(first, builders.replica(first, volume, gib, on=first_on, uid=f"uid-{first}"))
    return second


def made_plan(volume: str, uid: str, places: Sequence[Place], *pods: str) -> Plan:
    """As it was stored, made for these pods."""
    return Plan(volume, uid, tuple(places), pods, NOW)
