"""Random questions in the format of `plan`: a calm cluster, and what is then done to it.

A calm cluster has room and nothing is wrong with it. A few changes (node_changes.py, disk_changes.py,
volume_changes.py) make it a world in which some rule is likely to decide, and figures are moved next to a limit
(limits.py) in many of them. The same seed and index give the same world.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tests.longhorn_rules.objects import GIB, Raw, disk, longhorn, node, replica, volume

Document = dict[str, Any]
_T = TypeVar("_T")
MIB: Final = 1024**2
TIB: Final = 1024**4
NOW: Final = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
ZONES: Final = ("", "east", "west", "north")
TAGS: Final = ("fast", "large", "ssd")
VOLUME: Final = "vol"
SOURCE: Final = "src"


class Dice:
    """Draws; seeded."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + int(self._random.random() * (high - low + 1))

    def one(self, entries: Sequence[_T]) -> _T:
        return entries[int(self._random.random() * len(entries))]

    def some(self, entries: Sequence[_T], probability: float = 0.5) -> list[_T]:
        return [entry for entry in entries if self._random.random() < probability]

    def shuffled(self, entries: Sequence[_T]) -> list[_T]:
        return self._random.sample(entries, len(entries))


@dataclass
class OracleWorld:
    """A question in the making. `others` are objects besides nodes, the volume and its replicas."""

    dice: Dice
    nodes: list[Raw] = field(default_factory=list)
    volume: Raw = field(default_factory=dict)
    replicas: list[Raw] = field(default_factory=list)
    others: list[Raw] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # names of replicas to be placed; none: a question of growth
    grown_size: int = 0
    version: str | None = None
    has_setting_objects: bool = False

    @property
    def size(self) -> int:
        return int(self.volume["spec"]["size"])

    @property
    def placed(self) -> list[Raw]:
        return [replica for replica in self.replicas if replica["spec"]["nodeID"]]

    @property
    def new(self) -> list[Raw]:
        return [replica for replica in self.replicas if not replica["spec"]["nodeID"]]

    def disks(self) -> Iterator[tuple[Raw, str, Raw, Raw]]:
        """Node, name, spec and status of every disk that has both."""
        for raw in self.nodes:
            for name, status in raw["status"]["diskStatus"].items():
                spec = raw["spec"]["disks"].get(name)
                if spec is not None:
                    yield raw, name, spec, status

    def document(self) -> Document:
        question: Raw = {"schedule": {"volume": VOLUME, "replicas": self.asked}}
        if not self.asked:
            question = {"expand": {"volume": VOLUME, "size": self.grown_size}}
        objects = [*self.nodes, self.volume, *self.replicas, *self.others]
        document: Document = {"objects": objects, "now": NOW.isoformat(), "question": question}
        if self.has_setting_objects:
            objects += [longhorn("Setting", name, value=value) for name, value in self.settings.items()]
        else:
            document["settings"] = self.settings
        if self.version is not None:
            document["longhornVersion"] = self.version
        return document


def set_condition(status: Raw, kind: str, value: str | None) -> None:
    """None takes the condition away."""
    kept = [entry for entry in status["conditions"] if entry["type"] != kind]
    status["conditions"] = kept if value is None else [*kept, {"type": kind, "status": value}]


Change = Callable[[OracleWorld], None]


def calm_world(dice: Dice) -> OracleWorld:
    """A healthy cluster of 1 to 8 nodes with a volume that has some replicas placed and one to three not yet."""
    world = OracleWorld(dice)
    count = dice.one((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
    zones = dice.one((ZONES, ZONES[1:], ZONES[:1], ZONES[:2], ZONES[1:3]))
    size = dice.between(1, 40) * GIB // dice.one((1, 1, 1, 512)) + 2 * MIB * dice.between(0, 3)
    for index in range(1, count + 1):
        world.nodes.append(_node(dice, f"n{index}", dice.one(zones), dice.one((1, 1, 1, 2, 2, 3, 4)), size))
    actual, status = dice.one((0, 0, size // 3)), {"robustness": "healthy"}
    world.volume = volume(size, name=VOLUME, actual=actual, status=status, numberOfReplicas=3, dataEngine="v1")
    for number in range(1, dice.one((1, 1, 1, 1, 2, 2, 3)) + 1):
        name = f"{VOLUME}-r-new{number}"
        world.replicas.append(replica(name, size=size, of=VOLUME))
        world.asked.append(name)
    for _ in range(dice.one((0, 0, 1, 1, 1, 2, 2, 3))):
        place_replica(world)
    return world


def _node(dice: Dice, name: str, zone: str, disks: int, size: int) -> Raw:
    found = {}
    for number in range(1, disks + 1):
        key = f"d{number}"
        maximum = dice.between(100, 900) * GIB + dice.one((0, 0, dice.between(0, 4095)))
        scheduled = min(size * dice.between(0, 3), maximum // 4)
        found[key] = disk(
            maximum,
            scheduled=scheduled,
            reserved=dice.one((0, maximum * 3 // 10, dice.between(0, maximum // 4))),
            available=maximum - maximum * dice.between(0, 40) // 100,
            listed={f"other-{name}-{key}": scheduled} if scheduled else {},
            filesystem=dice.one(("ext4", "xfs")),
            evictionRequested=False,
            path=f"/disks/{key}",
        )
    return node(name, named=found, zone=zone, region="r1" if zone in ("", "east") else "r2")


def place_replica(world: OracleWorld, at: Raw | None = None) -> Raw | None:
    """One more replica of the volume, healthy, on a random disk of node `at` or of any; usually its disk lists it."""
    dice = world.dice
    nodes = [entry for entry in ([at] if at else world.nodes) if entry["status"]["diskStatus"]]
    if not nodes:
        return None
    status = dice.one(list(dice.one(nodes)["status"]["diskStatus"].values()))
    name = f"{VOLUME}-r-{len(world.placed) + 1}"
    raw = replica(name, status["diskUUID"], size=world.size, of=VOLUME)
    world.replicas.append(raw)
    if dice.chance(0.8):
        status["scheduledReplica"] = {**(status.get("scheduledReplica") or {}), name: world.size}
        status["storageScheduled"] = min(status.get("storageScheduled", 0) + world.size, 2**63 - 1)
    return raw
