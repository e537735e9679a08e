"""A cluster on virtual time, into which many pods with volumes come at once: for benchmarks of what checking costs.

The product's allocator is asked through its public methods alone, and hears of objects by watches that lag. Around it
are models: of kube-scheduler, whose cycle asks about one pod after the other and whose choices show late; of Longhorn,
which provisions, attaches, places from figures that are late themselves, and is kept from placing by the gate while a
leader places; and of the loops that place, sweep and wake up. Without a leader every pod is let through to any node,
and Longhorn places alone. All delays of a pod follow from the seed and its name, so that both ways meet the same ones.

A copy counts as placed no sooner than Longhorn alone would have placed it: what a leader gains by placing early must
not hide what its pods had to wait for.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision, Mode, ReplicaTurn, TurnStep
from controller.model.longhorn import LonghornSettings, Replica
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod
from controller.settings import LiveSettings
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.fakes.leading import LiveReads, marked, placed
from tests.longhorn.preference import best
from tests.places.timeline import Timeline

WRITTEN: Final = 0.5  # of what is scheduled on a disk
GATE_SECONDS: Final = 30.0  # for which the API server keeps a Replica for the leader
TURN_SECONDS: Final = 0.05  # of the placer's loop
SWEEP_SECONDS: Final = 0.2
COALESCE_SECONDS: Final = 0.2  # of the wake-up
QUIET_SECONDS: Final = 40.0  # without a yes and without a place: nothing more happens
MOST_SECONDS: Final = 400.0
LOCAL: Final = ("best-effort", "strict-local")


@dataclass(frozen=True, slots=True)
class VolumeAsk:
    """A volume that is asked for. `copies` 1 and `best-effort`: beside the pod."""

    gib: int
    copies: int = 1
    locality: str = "best-effort"

    @property
    def class_name(self) -> str:
        return f"{self.locality}-{self.copies}"

    @property
    def is_beside(self) -> bool:
        return self.copies == 1 and self.locality in LOCAL


PodAsk = tuple[VolumeAsk, ...]


def fix_hash_seed(program: str) -> None:
    """Start the program again with a fixed order of sets: the product's decisions may follow it."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", program, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


@dataclass(frozen=True, slots=True)
class BurstLags:
    """Seconds: pairs are least and most, evenly between them. Sizes as seen on Longhorn's own controllers: alone it
    places a best-effort volume 3 to 4 s after the choice in the mean, another one after 1 to 2."""

    cycle: float = 0.01  # of kube-scheduler
    choice: tuple[float, float] = (0.05, 0.5)  # from the yes, or the client's turn, until the claims show the node
    watch: tuple[float, float] = (0.01, 0.3)
    provision: tuple[float, float] = (0.3, 1.0)  # from the choice to Volume and Replicas
    bind: tuple[float, float] = (0.2, 1.0)  # from there to the PersistentVolume, and the pod's binding
    attach: tuple[float, float] = (0.3, 1.0)  # from there to `spec.nodeID`
    look_beside: tuple[float, float] = (0.5, 2.5)  # from there until Longhorn looks for a disk
    look_anywhere: tuple[float, float] = (-0.63, 0.8)  # the same from the Replica on, for `disabled`: lognormal
    look_again: tuple[float, float] = (2.0, 15.0)  # after none was found
    store: tuple[float, float] = (0.01, 0.3)  # from Longhorn's decision to the stored Replica
    patch: tuple[float, float] = (0.003, 0.02)  # the same of the leader's
    answer: tuple[float, float] = (0.001, 0.01)
    wake: tuple[float, float] = (0.01, 0.05)  # a patch of a pod's status, until kube-scheduler has it
    figure: tuple[float, float, float] = (0.09, 1.27, 1.5)  # from the stored Replica to the Node: median, sigma, most
    client_qps: float = 0.0  # writes a second of kube-scheduler's client, 50 by its default; 0: no limit
    client_burst: int = 100


DEFAULT_LAGS: Final = BurstLags()


def add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client-qps", type=float, default=0.0, help="of kube-scheduler, whose default is 50; 0: no limit"
    )


@dataclass(slots=True)
class WorldDisk:
    """GiB. `used`: what is stored there; `shown` follows it. `before`: what there was at the beginning."""

    node: str
    uuid: str
    limit: int
    used: int
    before: int = 0
    shown: int = 0
    replicas: dict[str, int] = field(default_factory=dict)  # those shown
    worst: int = 0  # the most that ever lay there

    def __post_init__(self) -> None:
        self.before = self.shown = self.worst = self.used

    @property
    def free(self) -> int:
        return self.limit - self.used


@dataclass(slots=True)
class WorldCopy:
    name: str
    volume: WorldVolume
    made_at: float
    disk: WorldDisk | None = None
    placed_at: float = math.inf

    @property
    def is_away(self) -> bool:
        """Not beside its pod, where it should be."""
        return self.disk is not None and self.volume.ask.is_beside and self.disk.node != self.volume.pod.node


@dataclass(slots=True)
class WorldVolume:
    """`alone_at`: when Longhorn alone would have stored its copies, had it found disks."""

    name: str
    ask: VolumeAsk
    pod: PodRun
    node: str = ""
    alone_at: float = math.inf
    copies: list[WorldCopy] = field(default_factory=list)

    @property
    def placed_at(self) -> float:
        if not self.copies:
            return math.inf
        return max(self.alone_at, *(copy.placed_at for copy in self.copies))


@dataclass(slots=True)
class PodRun:
    """One pod's way. `offers`: how many nodes its yes named; `lost_points`: of kube-scheduler's own points, since the
    best of the nodes with room was not among them, or the leader's points made another one win."""

    name: str
    ask: PodAsk
    came_at: float
    seed: int
    attempts: int = 0
    tried_at: float = -math.inf
    passed_at: float = math.inf
    node: str = ""
    offers: int = 0
    lost_points: int = 0
    volumes: list[WorldVolume] = field(default_factory=list)

    def chance(self, what: str) -> Random:
        """Random numbers for that purpose alone: what happens elsewhere changes nothing."""
        return Random(f"{self.seed}/{self.name}/{what}")

    def between(self, what: str, least_most: tuple[float, float]) -> float:
        return self.chance(what).uniform(*least_most)

    @property
    def placed_at(self) -> float:
        return max((one.placed_at for one in self.volumes), default=math.inf)


# Nodes


@dataclass(frozen=True, slots=True)
class NodeScores:
    """kube-scheduler's own points of a node, by its default plugins: free CPU and memory, and for pods of one owner
    the spread over host names. `pods_on_node`: how many such pods a node has CPU for."""

    has_owner: bool = True
    pods_on_node: int = 32

    def points(self, pods: Counter[str], names: Sequence[str]) -> dict[str, int]:
        found = {name: 100 - 100 * min(pods[name], self.pods_on_node) // self.pods_on_node for name in names}
        if self.has_owner:
            weight = math.log(len(names) + 2)
            raw = {name: round(pods[name] * weight + 2) for name in names}
            least, most = min(raw.values()), max(raw.values())
            for name in names:
                found[name] += 2 * (100 * (most + least - raw[name]) // most)
        return found


# The leader


class BurstLeader:
    """The product: its allocator, what it hears, and its loops without their threads. `store` has the objects."""

    def __init__(self, world: BurstWorld, live: LiveSettings, settings: LonghornSettings) -> None:
        self._world, self._timeline, self._lags = world, world.timeline, world.lags
        self.allocator = Allocator(self._timeline.clock)
        self.allocator.configure(live, settings)
        self._chance = Random(f"{world.seed}/leader")
        self._heard_until: Counter[str] = Counter()
        self._due_at: dict[str, float] = {}  # by Replica without a node
        self._of_volume: dict[str, list[str]] = {}
        self._busy: set[str] = set()
        self._woken_on = -1
        self._wake_at = -math.inf
        self.decisions: Counter[Decision] = Counter()
        self.steps: Counter[str] = Counter()

    def begin(self) -> None:
        """Begin to lead, once it has heard of all that is there."""
        self.allocator.set_mode(Mode.ACTIVE)
        self.allocator.begin_term(has_predecessor=False)
        self._timeline.every(TURN_SECONDS, self._place_due)
        self._timeline.every(SWEEP_SECONDS, self._sweep)
        self._timeline.every(COALESCE_SECONDS, self._wake_up)

    # What it hears

    def hear(self, kind: str, key: str, facts: Any) -> None:
        """In order within a kind, in any order between kinds."""
        now = self._timeline.now
        at = max(now + self._chance.uniform(*self._lags.watch), self._heard_until[kind])
        self._heard_until[kind] = at  # type: ignore[assignment]
        self._timeline.after(at - now, lambda: self.see(kind, key, facts))

    def see(self, kind: str, key: str, facts: Any) -> None:
        getattr(self.allocator, f"observe_{kind}")(key, facts)
        if kind == "replica":
            self._see_replica(key, facts)
        elif kind == "volume":
            self._touch(key)

    def _see_replica(self, name: str, facts: Replica) -> None:
        if facts.node:
            self._due_at.pop(name, None)
        elif name not in self._due_at:
            self._due_at[name] = self._timeline.now
            self._of_volume.setdefault(facts.volume, []).append(name)

    def _touch(self, volume: str) -> None:
        for name in self._of_volume.get(volume, ()):
            if name in self._due_at:
                self._due_at[name] = min(self._due_at[name], self._timeline.now)

    # What it does

    def offers(self, pod: PodRun, names: Sequence[str]) -> list[str]:
        outcome = self.allocator.hold_pod(f"pod-{pod.name}", names)
        self.decisions[outcome.decision] += 1
        return sorted(outcome.passed)

    def points(self, pod: PodRun, names: Sequence[str]) -> Mapping[str, int]:
        return self.allocator.score_nodes(f"pod-{pod.name}", names)

    def _place_due(self) -> None:
        for volume, _ in self.allocator.places.take_changes().plans:
            self._touch(volume)
        now = self._timeline.now
        due = [name for name, at in self._due_at.items() if at <= now and name not in self._busy]
        for name in sorted(due, key=self._due_at.__getitem__):
            turn = self.allocator.places.turn_of(name, self._timeline.clock.now_utc())
            self._due_at[name] = now + max(turn.seconds, TURN_SECONDS)
            self.steps[f"{turn.step}:{turn.reason}" if turn.reason else str(turn.step)] += 1
            if turn.step not in (TurnStep.NOTHING, TurnStep.WAIT):
                self._busy.add(name)
                self._timeline.after(self._chance.uniform(*self._lags.patch), partial(self._patch, name, turn))

    def _patch(self, name: str, turn: ReplicaTurn) -> None:
        """The patch comes to the API server."""
        facts = self._world.longhorn.patched(name, turn, self._timeline.clock.stamp())
        self._timeline.after(self._chance.uniform(*self._lags.answer), partial(self._answered, name, turn, facts))

    def _answered(self, name: str, turn: ReplicaTurn, facts: Replica | None) -> None:
        self._busy.discard(name)
        if turn.write is None:
            return
        if facts is not None:
            self.allocator.places.stored(turn.write, facts)
        else:
            self.allocator.places.failed(turn.write, self._world.stored.get(("replica", name)))

    def _sweep(self) -> None:
        self.allocator.sweep()
        for due in LiveReads(self.allocator, lambda kind, key: self._world.stored.get((kind, key))).due():
            self.allocator.expire(due)

    def _wake_up(self) -> None:
        now, version = self._timeline.now, self.allocator.version
        if version == self._woken_on and now < self._wake_at:
            return
        for wakeups in self.allocator.wake_slices():
            for wakeup in wakeups:
                delay = self._chance.uniform(*self._lags.wake)
                self._timeline.after(delay, partial(self._world.scheduler.wake, wakeup.name))
        self._woken_on = version
        due = self.allocator.next_wakeup_due()
        self._wake_at = math.inf if due is None else now + due


# Longhorn


class BurstLonghorn:
    """Provisions, attaches, and places where it may."""

    def __init__(self, world: BurstWorld) -> None:
        self._world, self._timeline, self._lags = world, world.timeline, world.lags
        self._copies: dict[str, WorldCopy] = {}

    def provision(self, volume: WorldVolume) -> None:
        world, ask = self._world, volume.ask
        gib, count_of = ask.gib, ask.copies
        more: dict[str, Any] = {"replica_count": count_of, "uid": f"uid-{volume.name}"}
        world.write("volume", volume.name, builders.volume(volume.name, gib, locality=ask.locality, **more))
        for number in range(1, count_of + 1):
            name = f"{volume.name}-r-{number}"
            copy = WorldCopy(name, volume, self._timeline.now)
            self._copies[name] = copy
            volume.copies.append(copy)
            world.write("replica", name, builders.replica(name, volume.name, gib, uid=f"uid-{name}"))
        if ask.locality not in LOCAL:
            chance = volume.pod.chance(f"look {volume.name}")
            self._look_after(volume, max(0.044, chance.lognormvariate(*self._lags.look_anywhere)))

    def attach(self, volume: WorldVolume, node: str) -> None:
        volume.node = node
        facts = self._world.stored["volume", volume.name]
        self._world.write("volume", volume.name, replace(facts, node_id=node, state="attached"))
        if volume.ask.locality in LOCAL:
            self._look_after(volume, volume.pod.between(f"look {volume.name}", self._lags.look_beside))

    def _look_after(self, volume: WorldVolume, seconds: float) -> None:
        store = volume.pod.between(f"store {volume.name}", self._lags.store)
        volume.alone_at = self._timeline.now + seconds + store
        self._timeline.after(seconds, partial(self._look, volume, store))

    def _look(self, volume: WorldVolume, store: float) -> None:
        """One sync of the volume: disks for its copies, each beside the ones before, by the figures that are shown."""
        taken = {copy.disk.node for copy in volume.copies if copy.disk is not None}
        left = [copy for copy in volume.copies if copy.disk is None]
        for copy in left if self._world.gate_is_open else [one for one in left if self._is_free(one)]:
            disk = self._find(volume, taken)
            if disk is not None:
                taken.add(disk.node)
                self._timeline.after(store, partial(self._store, copy, disk))
        if left:
            again = self._timeline.random.uniform(*self._lags.look_again)
            self._timeline.after(again, partial(self._look, volume, store))

    def _is_free(self, copy: WorldCopy) -> bool:
        """Whether the gate lets Longhorn place it."""
        facts = self._world.stored["replica", copy.name]
        is_old = not facts.held and self._timeline.now - copy.made_at >= GATE_SECONDS
        return facts.is_left or is_old

    def _find(self, volume: WorldVolume, taken: set[str]) -> WorldDisk | None:
        gib, chance = volume.ask.gib, self._timeline.random
        disks = {
            one.uuid: one
            for one in self._world.disks.values()
            if one.limit - one.shown >= gib and one.node not in taken
        }
        if volume.ask.locality in LOCAL and volume.node not in taken:
            disks = {uuid: one for uuid, one in disks.items() if one.node == volume.node} or disks
        if not disks:
            return None
        usable = {uuid: max(0, one.limit - int(WRITTEN * one.shown) - one.shown) for uuid, one in disks.items()}
        by_node: Counter[str] = Counter()
        for uuid, gib_left in usable.items():
            by_node[disks[uuid].node] += gib_left
        name = best(by_node, gib, list(by_node), chance.randrange)
        among = [uuid for uuid in usable if disks[uuid].node == name]
        found = best(usable, gib, among, chance.randrange) if name is not None else None
        return disks[found or chance.choice(list(usable))]

    def _store(self, copy: WorldCopy, disk: WorldDisk) -> None:
        if copy.disk is None:
            facts = self._world.stored["replica", copy.name]
            self._put(copy, disk, replace(facts, node=disk.node, disk_uuid=disk.uuid))

    def patched(self, name: str, turn: ReplicaTurn, now_utc: str) -> Replica | None:
        """The Replica as the leader's write leaves it; None: it has a node."""
        copy = self._copies[name]
        facts: Replica = self._world.stored["replica", name]
        if copy.disk is not None:
            return None
        if turn.write is not None:
            made = placed(turn.write, facts)
            self._put(copy, self._world.disks[made.disk_uuid], made)
            return made
        made = marked(turn.step, facts, now_utc)
        self._world.write("replica", name, made)
        return made

    def _put(self, copy: WorldCopy, disk: WorldDisk, facts: Replica) -> None:
        gib = copy.volume.ask.gib
        copy.disk, copy.placed_at = disk, self._timeline.now
        disk.used += gib
        disk.worst = max(disk.worst, disk.used)
        self._world.note_place(disk)
        self._world.write("replica", copy.name, facts)
        median, sigma, most = self._lags.figure
        late = min(most, median * math.exp(copy.volume.pod.chance(copy.name).gauss(0.0, sigma)))
        self._timeline.after(late, partial(self._show, disk, copy.name, gib))

    def _show(self, disk: WorldDisk, name: str, gib: int) -> None:
        disk.shown += gib
        disk.replicas[name] = gib
        self._world.write_node(disk.node)


# kube-scheduler


class WriteTurns:
    """When a client with a limit of writes sends each of them, in the order in which they are asked for."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps, self._burst = qps, burst
        self._tokens, self._at = float(burst), 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next write's turn."""
        if not self._qps:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps) - 1
        self._at = now
        return max(0.0, -self._tokens / self._qps)


class BurstScheduler:
    """One cycle after the other. A refused pod sleeps until it is woken, or until something of the core happens, and
    then waits for its back-off, unless nobody else does (as since Kubernetes 1.33)."""

    def __init__(self, world: BurstWorld) -> None:
        self._world, self._timeline, self._lags = world, world.timeline, world.lags
        self._active: dict[str, None] = {}
        self._backing_off: dict[str, float] = {}  # until when
        self._asleep: dict[str, None] = {}
        self._asking, self._is_told = "", False
        self.pods = Counter[str](world.load)  # by node, with those that are not bound yet
        self.cycles = 0
        self._turns = WriteTurns(self._lags.client_qps, self._lags.client_burst)

    def in_turn(self, act: Callable[[], None]) -> None:
        """Act when a write of its client has its turn."""
        self._timeline.after(self._turns.wait(self._timeline.now), act)

    def add(self, name: str) -> None:
        self._active[name] = None

    def wake(self, name: str) -> None:
        if name == self._asking:
            self._is_told = True
        elif name in self._asleep:
            del self._asleep[name]
            self._back_off(name)

    def note_event(self) -> None:
        """Something has changed that may help any pod an extender has refused: a claim, a volume, a pod."""
        for name in (*self._asleep, self._asking):
            self.wake(name)

    def _back_off(self, name: str) -> None:
        pod = self._world.pods[name]
        self._backing_off[name] = pod.tried_at + min(10.0, 2.0 ** (pod.attempts - 1))

    def cycle(self) -> None:
        now = self._timeline.now
        for name in [name for name, until in self._backing_off.items() if until <= now]:
            del self._backing_off[name]
            self._active[name] = None
        name = next(iter(self._active), "")
        if name:
            del self._active[name]
        elif self._backing_off:
            name = min(self._backing_off, key=lambda one: (self._backing_off[one], one))
            del self._backing_off[name]
        if not name:
            self._timeline.after(self._lags.cycle, self.cycle)
            return
        self._asking, self._is_told = name, False
        self._timeline.after(self._lags.cycle, partial(self._end_cycle, name))

    def _end_cycle(self, name: str) -> None:
        world, pod = self._world, self._world.pods[name]
        self.cycles += 1
        pod.attempts += 1
        pod.tried_at = self._timeline.now
        offers = world.leader.offers(pod, world.shuffled(pod)) if world.leader is not None else list(world.nodes)
        if offers:
            pod.passed_at, pod.node, pod.offers = self._timeline.now, self._choose(pod, offers), len(offers)
            self.pods[pod.node] += 1
            world.note_yes()
            self.in_turn(partial(world.nominate, pod))
        elif self._is_told:
            self._back_off(name)
        else:
            self._asleep[name] = None
        self._asking = ""
        self.cycle()

    def _choose(self, pod: PodRun, offers: Sequence[str]) -> str:
        scores = self._world.scores
        if scores is None:
            return offers[int(pod.chance("node").random() * len(offers))]
        points, own = scores.points(self.pods, offers), scores.points(self.pods, self._world.nodes)
        possible = self._world.with_room(pod)
        leader = self._world.leader
        if leader is not None and len(offers) > 1:
            for name, more in leader.points(pod, offers).items():
                points[name] += 10 * more
        most = max(points.values())
        node = pod.chance("node").choice([name for name in offers if points[name] == most])
        pod.lost_points = max(0, max((own[name] for name in possible), default=0) - own[node])
        return node


# All together


@dataclass(slots=True)
class BurstFigures:
    """Seconds since the first pod came. `seconds`: until the last copy was placed, of those that were."""

    pods: int
    seconds: float
    waits: list[float]  # until the yes, of the pods that had one, in the order in which they came
    offers: list[int]
    left: int  # pods without a yes
    unplaced: int  # copies without a disk, of pods that had their yes
    away: int  # copies that should be beside their pod, and are not
    over: int  # placements after which a disk was over its limit
    disks_over: int
    used: float  # of what was free in the beginning; what is over a limit aside
    fullest: float  # of a disk's limit, in the end
    by_node: list[int]  # pods
    cycles: int

    def wait(self, share: float) -> float:
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(len(waits) * share))] if waits else math.nan


class BurstWorld:
    """`nodes`: GiB of each disk, and of that what is used. `live` None: nobody checks. `scores` None: kube-scheduler
    takes any of the nodes that pass."""

    def __init__(
        self,
        nodes: Sequence[Sequence[tuple[int, int]]],
        live: LiveSettings | None,
        *,
        seed: int,
        settings: LonghornSettings | None = None,
        lags: BurstLags = DEFAULT_LAGS,
        scores: NodeScores | None = None,
        load: Sequence[int] = (),
    ) -> None:
        """`load`: other pods on each node."""
        self.seed, self.lags, self.scores = seed, lags, scores
        self.timeline = Timeline(seed)
        self.stored: dict[tuple[str, str], Any] = {}
        self.pods: dict[str, PodRun] = {}
        self.disks: dict[str, WorldDisk] = {}
        self.nodes = [f"n{number:04d}" for number in range(len(nodes))]
        self.load = dict(zip(self.nodes, load, strict=False))
        self._on: dict[str, list[WorldDisk]] = {}
        for name, disks in zip(self.nodes, nodes, strict=True):
            here = [WorldDisk(name, f"{name}-d{index}", limit, used) for index, (limit, used) in enumerate(disks)]
            self._on[name] = here
            self.disks.update((one.uuid, one) for one in here)
        self._orders = Random(f"{seed}/orders")
        self.longhorn, self.scheduler = BurstLonghorn(self), BurstScheduler(self)
        self.leader = BurstLeader(self, live, settings or LonghornSettings()) if live is not None else None
        self._over = self._to_come = 0
        self._news_at = 0.0
        self._classes: set[str] = set()
        self._numbers = count()
        for name in self.nodes:
            self.write("kube_node", name, KubeNode(name, unschedulable=False), is_known=True)
            self.write_node(name, is_known=True)
        if self.leader is not None:
            self.leader.begin()

    @property
    def gate_is_open(self) -> bool:
        return self.leader is None

    def shuffled(self, pod: PodRun) -> list[str]:
        """The candidates of a filter call, which come in another order each time."""
        del pod
        names = list(self.nodes)
        self._orders.shuffle(names)
        return names

    def with_room(self, pod: PodRun) -> list[str]:
        """Nodes on which a disk takes the largest of the volumes that belong beside the pod, by what is stored."""
        gib = max((one.gib for one in pod.ask if one.is_beside), default=0)
        return [name for name in self.nodes if any(one.free >= gib for one in self._on[name])]

    # Objects

    def write(self, kind: str, key: str, facts: Any, *, is_known: bool = False) -> None:
        """`is_known`: the leader has heard of it already."""
        self.stored[kind, key] = facts
        if self.leader is not None:
            (self.leader.see if is_known else self.leader.hear)(kind, key, facts)

    def write_node(self, name: str, *, is_known: bool = False) -> None:
        """As Longhorn shows its disks now."""
        disks = [
            replace(
                builders.disk(one.uuid.partition("-")[2], one.limit, node=name),
                scheduled_bytes=one.shown * GIB,
                available_bytes=int((one.limit - WRITTEN * one.shown) * GIB),
                scheduled_replicas={key: gib * GIB for key, gib in one.replicas.items()},
            )
            for one in self._on[name]
        ]
        self.write("node", name, builders.node(name, *disks), is_known=is_known)

    def note_place(self, disk: WorldDisk) -> None:
        self._over += disk.used > disk.limit
        self._news_at = self.timeline.now

    def note_yes(self) -> None:
        self._news_at = self.timeline.now

    # Pods

    def submit_all(self, asks: Sequence[PodAsk], over_seconds: float = 0.0) -> None:
        """The pods come, in even steps; at once by default."""
        self._to_come += len(asks)
        for number, ask in enumerate(asks):
            if over_seconds:
                self.timeline.after(over_seconds * number / len(asks), partial(self._come, ask))
            else:
                self._come(ask)

    def _come(self, ask: PodAsk) -> None:
        self._to_come -= 1
        self.submit(ask)

    def submit(self, ask: PodAsk) -> PodRun:
        """A pod comes. Our stores know it by the time when kube-scheduler asks about it."""
        name = f"p{next(self._numbers):05d}"
        pod = self.pods[name] = PodRun(name, ask, self.timeline.now, self.seed)
        claims = []
        for index, one in enumerate(ask):
            if one.class_name not in self._classes:
                self._classes.add(one.class_name)
                parameters = {"dataLocality": one.locality, "numberOfReplicas": str(one.copies)}
                made = builders.storage_class(one.class_name, parameters)
                self.write("class", one.class_name, made, is_known=True)
            claim = builders.claim(f"{name}-{index}", one.gib, one.class_name, uid=f"{name}-{index}")
            claims.append(claim)
            self.write("claim", claim.key, claim, is_known=True)
            pod.volumes.append(WorldVolume(f"pvc-{claim.uid}", one, pod))
        # A whole second before what comes of it, since times have whole seconds.
        created = (self.timeline.clock.now_utc() - timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        facts = builders.pod(name, *(one.name for one in claims), created_utc=created)
        self.write("pod", facts.key, facts, is_known=True)
        self.scheduler.add(name)
        return pod

    def nominate(self, pod: PodRun) -> None:
        """The first write of a choice (since Kubernetes 1.35); those of the claims follow it. Without a limit of writes
        they come at the same time."""
        if self.lags.client_qps:
            facts: Pod = self.stored["pod", f"ns/{pod.name}"]
            self.write("pod", facts.key, replace(facts, nominated_node=pod.node))
        for index in range(len(pod.volumes)):
            self.scheduler.in_turn(partial(self._choose_soon, pod, index))

    def _choose_soon(self, pod: PodRun, index: int) -> None:
        self.timeline.after(pod.between("choice", self.lags.choice), partial(self._choose, pod, index))

    def _choose(self, pod: PodRun, index: int) -> None:
        """The choice shows; the claim gets its volume."""
        claim: Claim = self.stored["claim", f"ns/{pod.name}-{index}"]
        self.write("claim", claim.key, replace(claim, selected_node=pod.node))
        delay = pod.between(f"provision {index}", self.lags.provision)
        self.timeline.after(delay, partial(self.longhorn.provision, pod.volumes[index]))
        delay += pod.between(f"bind {index}", self.lags.bind)
        self.timeline.after(delay, partial(self._bind_claim, pod, index))

    def _bind_claim(self, pod: PodRun, index: int) -> None:
        claim: Claim = self.stored["claim", f"ns/{pod.name}-{index}"]
        name, size = pod.volumes[index].name, claim.requested_bytes
        made_utc = self.timeline.clock.stamp()
        pv = PersistentVolume(name, builders.DRIVER, name, claim.uid, claim.key, size, made_utc)
        self.write("pv", name, pv)
        self.write("claim", claim.key, replace(claim, volume_name=name))
        self.scheduler.note_event()
        if all(("pv", one.name) in self.stored for one in pod.volumes):
            self.scheduler.in_turn(partial(self._bind, pod))

    def _bind(self, pod: PodRun) -> None:
        facts: Pod = self.stored["pod", f"ns/{pod.name}"]
        self.write("pod", facts.key, replace(facts, node_name=pod.node, nominated_node=""))
        for volume in pod.volumes:
            delay = pod.between(f"attach {volume.name}", self.lags.attach)
            self.timeline.after(delay, partial(self.longhorn.attach, volume, pod.node))

    # A run

    def run(self) -> BurstFigures:
        """Until all is placed, or nothing happens any more."""
        self.timeline.after(0.0, self.scheduler.cycle)
        while self.timeline.now < MOST_SECONDS and self.timeline.now - self._news_at < QUIET_SECONDS:
            self.timeline.run(self.timeline.now + 1.0)
            if not self._to_come and all(pod.placed_at < math.inf for pod in self.pods.values()):
                break
        return self.figures()

    def figures(self) -> BurstFigures:
        pods = list(self.pods.values())
        passed = [pod for pod in pods if pod.passed_at < math.inf]
        volumes = [volume for pod in passed for volume in pod.volumes]
        copies = [copy for volume in volumes for copy in volume.copies if copy.disk is not None]
        ends = [max(copy.placed_at, copy.volume.alone_at) for copy in copies]
        began = min((pod.came_at for pod in pods), default=0.0)
        free = sum(one.limit - one.before for one in self.disks.values())
        return BurstFigures(
            pods=len(pods),
            seconds=max((end for end in ends if end < math.inf), default=math.nan) - began,
            waits=[pod.passed_at - pod.came_at for pod in passed],
            offers=[pod.offers for pod in passed],
            left=len(pods) - len(passed),
            unplaced=sum(one.ask.copies for one in volumes) - len(copies),
            away=sum(copy.is_away for copy in copies),
            over=self._over,
            disks_over=sum(one.worst > one.limit for one in self.disks.values()),
            used=sum(min(one.used, one.limit) - one.before for one in self.disks.values()) / free,
            fullest=max(one.used / one.limit for one in self.disks.values()),
            by_node=[self.scheduler.pods[name] - self.load.get(name, 0) for name in self.nodes],
            cycles=self.scheduler.cycles,
        )
