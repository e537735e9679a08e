"""A random world: its shape, its processes, its faults, and what is left of it in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from controller.allocator.allocator import Allocator
from controller.clock import Clock
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings, Replica
from controller.model.workload import Claim, KubeNode
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.places.apiserver import Ages, WorldApi
from tests.places.judge import WorldFault, WorldJudge
from tests.places.longhorn import REPLENISHMENT_SECONDS, WorldLonghorn, is_usable, takes_copies
from tests.places.process import ProcessLags, WorldProcess
from tests.places.scheduler import WorldScheduler
from tests.places.timeline import Timeline

BUSY_SECONDS: Final = 110.0  # in which pods come and faults happen
END_SECONDS: Final = 260.0
QUIET_SECONDS: Final = 60.0  # without a place for so long in the end: it is not on its way
KINDS: Final = {
    "local": ("best-effort", "1"),
    "near": ("best-effort", "2"),
    "roaming": ("disabled", "1"),
    "pair": ("disabled", "2"),
    "three": ("disabled", "3"),
    "strict": ("strict-local", "1"),
}
SETTINGS: Final = LonghornSettings(replenishment_wait_seconds=REPLENISHMENT_SECONDS)


@dataclass(frozen=True, slots=True)
class WorldBuild:
    """What runs in a world. Without arguments, the product as it is; mutants differ."""

    make_allocator: Callable[[Clock], Allocator] = Allocator
    loads_plans: bool = True
    has_gate: bool = True
    has_fence: bool = True
    ages: Ages = Ages.RENEWED


@dataclass(frozen=True, slots=True)
class WorldShape:
    """`disks`: GiB by node. `lags`: of each process. The other lags: until Nodes show what lies on their disks, and
    until a claim is provisioned, at most."""

    disks: Sequence[Sequence[int]]
    lags: ProcessLags = field(default_factory=ProcessLags)
    figures_lag: float = 1.0
    provision_lag: float = 1.0


class PlacesWorld:
    """Two processes, of which one leads, and all around them."""

    def __init__(self, seed: int, shape: WorldShape, build: WorldBuild) -> None:
        self.timeline = Timeline(seed)
        self.random = self.timeline.random
        self.api = WorldApi(self.timeline, has_gate=build.has_gate, has_fence=build.has_fence, ages=build.ages)
        self._build, self._lags = build, replace(shape.lags, loads_plans=build.loads_plans)
        self.longhorn = WorldLonghorn(self.timeline, self.api, figures_lag=shape.figures_lag)
        self.api.watchers.append(lambda change: self.longhorn.watch(change.kind, change.before, change.after))
        self.scheduler = WorldScheduler(
            self.timeline, self.api, self.longhorn, lambda: self.answering, lag=shape.provision_lag
        )
        for name, (locality, copies) in KINDS.items():
            facts = builders.storage_class(name, {"dataLocality": locality, "numberOfReplicas": copies})
            self.api.write("class", name, facts)
        for number, sizes in enumerate(shape.disks, start=1):
            name = f"n{number}"
            disks = [builders.disk(f"d{index}", gib, node=name) for index, gib in enumerate(sizes)]
            self.api.write("kube_node", name, KubeNode(name, unschedulable=False))
            self.api.write("node", name, builders.node(name, *disks))
        self.processes = [self.start_process() for _ in range(2)]
        self.leader: WorldProcess | None = None
        self._elect()
        self._made = 0

    # Processes

    def start_process(self) -> WorldProcess:
        return WorldProcess(self.timeline, self.api, self._build.make_allocator, SETTINGS, self._lags)

    @property
    def answering(self) -> WorldProcess | None:
        leader = self.leader
        is_leading = leader is not None and leader.decides and leader.term == self.api.gate.term
        return leader if is_leading else None

    def _elect(self) -> None:
        if self.leader is not None and self.leader.is_running and self.leader.term == self.api.gate.term:
            return
        ready = [one for one in self.processes if one.is_running and not one.term]
        if not ready:
            self.timeline.after(1.0, self._elect)
            return
        self.leader = self.random.choice(ready)
        self.leader.lead()

    def _replace(self, process: WorldProcess, least: float, most: float) -> None:
        def again() -> None:
            self.processes.remove(process)
            self.processes.append(self.start_process())

        self.timeline.between(least, most, again)

    def kill(self) -> None:
        """The leader dies; its Lease runs out."""
        leader = self.leader
        if leader is not None and leader.is_alive:
            leader.die()
            self._replace(leader, 3.0, 20.0)
            self.timeline.between(2.0, 15.0, self._elect)

    def release(self) -> None:
        """The leader stops, and gives up its Lease."""
        leader = self.leader
        if leader is not None and leader.is_running:
            leader.stop()
            self._replace(leader, 3.0, 20.0)
            self.timeline.between(0.1, 2.0, self._elect)

    def freeze(self) -> None:
        """The leader stands still for 20 s, then wakes up with what it had in mind."""
        leader = self.leader
        if leader is None or not leader.is_running:
            return
        leader.frozen_until = self.timeline.now + 20.0
        self.timeline.between(11.0, 15.0, self._elect)
        self.timeline.after(20.05, lambda: self._thaw(leader))

    def _thaw(self, process: WorldProcess) -> None:
        if process.term != self.api.gate.term:
            process.depose()

    def black_out(self, seconds: float) -> None:
        """All processes die, and come back after that time."""
        for process in self.processes:
            if process.is_alive:
                process.die()
                self._replace(process, seconds, seconds + 3)
        self.timeline.after(seconds, self._elect)

    def stall(self, seconds: float) -> None:
        """The leader's watches are late."""
        if self.leader is not None:
            self.leader.stalled_until = self.timeline.now + seconds

    def lose_shard(self) -> None:
        self.api.lose_shard(self.random.randrange(16))

    # Pods

    def submit(self, *volumes: tuple[str, float], asks: bool) -> None:
        """A pod comes, with volumes of these classes and sizes."""
        self._made += 1
        name = f"p{self._made}"
        claims = [
            builders.claim(f"{name}-{index}", gib, kind, uid=f"{name}-{index}")
            for index, (kind, gib) in enumerate(volumes)
        ]
        pod = builders.pod(name, *(claim.name for claim in claims), is_opted_in=asks)
        self.scheduler.submit(pod, claims)

    def restore(self, gib: float, copies: int) -> None:
        """A volume that no pod and no claim asks for comes, and is attached somewhere."""
        self._made += 1
        name = f"restored-{self._made}"
        node = self.random.choice(self.api.all("node")).name
        self.longhorn.make_volume(name, gib, copies, "disabled")
        self.timeline.between(0.5, 5.0, lambda: self.longhorn.attach(name, node))

    def delete_some(self) -> None:
        keys = self.api.keys("pod")
        if keys and self.random.random() < 0.8:
            self.scheduler.delete(self.random.choice(keys))
        else:
            self.longhorn.delete(self.random.choice([one.name for one in self.api.all("volume")] or [""]))

    # Disks, nodes, copies

    def _change_disk(self, node: str, index: int, change: Callable[[Disk], Disk]) -> None:
        facts: LonghornNode = self.api.get("node", node)
        disks = [change(disk) if number == index else disk for number, disk in enumerate(facts.disks)]
        self.api.write("node", node, replace(facts, disks=tuple(disks)))

    def _some_disk(self) -> tuple[str, int]:
        node: LonghornNode = self.random.choice(self.api.all("node"))
        return node.name, self.random.randrange(len(node.disks))

    def close_disk(self) -> None:
        node, index = self._some_disk()
        self._change_disk(node, index, lambda disk: replace(disk, allow_scheduling=False))
        self.timeline.between(
            5.0, 40.0, lambda: self._change_disk(node, index, lambda disk: replace(disk, allow_scheduling=True))
        )

    def reserve(self, node: str, index: int, gib: int) -> None:
        """That disk's limit is so much lower than its size from now on."""
        self._change_disk(node, index, lambda disk: replace(disk, reserved_bytes=gib * GIB))

    def lower_limit(self) -> None:
        node, index = self._some_disk()
        self.reserve(node, index, self.random.randint(5, 60))
        self.timeline.between(5.0, 60.0, lambda: self.reserve(node, index, 0))

    def lose_node(self) -> None:
        node: LonghornNode = self.random.choice(self.api.all("node"))
        self._set_ready(node.name, is_ready=False)
        for one in self.api.all("replica"):
            if one.node == node.name:
                self.longhorn.fail(one.name)
        self.timeline.between(10.0, 50.0, lambda: self._set_ready(node.name, is_ready=True))

    def _set_ready(self, name: str, *, is_ready: bool) -> None:
        self.api.write("node", name, replace(self.api.get("node", name), ready=is_ready))

    def _some_copy(self) -> str:
        usable = [one.name for one in self.api.all("replica") if is_usable(one)]
        return self.random.choice(usable) if usable else ""

    def fail_some(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            self.longhorn.fail(self._some_copy())

    def evict_some(self) -> None:
        self.longhorn.evict(self._some_copy())

    def upgrade_some(self) -> None:
        self.longhorn.upgrade(self._some_copy())

    def grow_some(self) -> None:
        claims: list[Claim] = [one for one in self.api.all("claim") if one.volume_name]
        leader = self.answering
        if claims and leader is not None:
            claim = self.random.choice(claims)
            self.grow(claim, int(claim.requested_bytes / GIB * self.random.uniform(1.1, 1.6)), leader)

    def grow(self, claim: Claim, gib: int, leader: WorldProcess) -> None:
        """The claim grows, if the leader admits it."""
        if not leader.grow(claim.volume_name, claim.key, gib * GIB):
            return

        def store() -> None:
            facts: Claim | None = self.api.get("claim", claim.key)
            if facts is not None:
                self.api.write("claim", claim.key, replace(facts, requested_bytes=gib * GIB))
                self.timeline.between(0.1, 2.0, lambda: self.longhorn.grow(claim.volume_name, gib * GIB))

        self.timeline.between(0.005, 0.1, store)

    # The end

    def run(self, until: float = END_SECONDS) -> WorldJudge:
        """Let it run, and judge it."""
        self.timeline.run(until)
        judge = WorldJudge()
        judge.read(self.api.history)
        for copy in self.api.all("replica"):
            if not copy.node and not copy.failed_at:
                self._judge_idle(judge, copy, until)
        for pod in self.api.all("pod"):
            if pod.is_opted_in and pod.node_name and not self.scheduler.is_ready(pod.key):
                volumes = {claim.volume_name for claim in self.scheduler.claims_of(pod.key)} & judge.planned_once
                self._judge_stuck(judge, pod.key, volumes, until)
        self._judge_rest(judge, until)
        return judge

    def _judge_idle(self, judge: WorldJudge, copy: Replica, now: float) -> None:
        volume = self.longhorn.volume(copy.volume)
        since = max(self.api.made_at[copy.name], BUSY_SECONDS)
        is_due = volume is not None and not volume.deleting and (volume.node_id or volume.data_locality == "disabled")
        if volume is None or not is_due or now - since < QUIET_SECONDS:
            return
        siblings = [one for one in judge.past.siblings(copy) if is_usable(one)]
        used = {one.node for one in siblings}
        for node in self.api.all("node"):
            is_bound = volume.data_locality == "strict-local" and node.name != volume.node_id
            for disk in node.disks if takes_copies(node) and node.name not in used and not is_bound else ():
                key = node.name, disk.uuid
                planned = 0 if siblings else judge.past.planned(key, copy.volume)
                free = disk.maximum_bytes - disk.reserved_bytes - judge.past.taken(key) - planned
                if disk.allow_scheduling and free >= copy.size_bytes:
                    judge.note_end(WorldFault.IDLE, now, copy.name, f"{free / GIB:.0f} GiB are free on {key}", "")
                    return

    def _judge_stuck(self, judge: WorldJudge, key: str, planned: set[str], now: float) -> None:
        for volume in planned:
            facts = self.longhorn.volume(volume)
            if facts is not None and not facts.deleting and not any(map(is_usable, self.api.replicas_of(volume))):
                explained = ", ".join(sorted(judge.notes))
                judge.note_end(WorldFault.STUCK, now, volume, f"of pod {key}", explained)

    def _judge_rest(self, judge: WorldJudge, now: float) -> None:
        claims = {f"pvc-{one.uid}" for one in self.api.all("claim")}
        for volume in sorted(self.api.plans.keys() - claims - set(self.api.keys("volume"))):
            judge.note_end(WorldFault.LEFTOVER, now, volume, "", "")
        for process in self.processes:
            counters = process.allocator.snapshot().counters
            for name in ("quarantines", "places_illegal"):
                if counters.get(name):
                    judge.note_end(WorldFault.BROKEN, now, name, f"{counters[name]} times", "")


# By weight.
FAULTS: Final[Sequence[tuple[int, Callable[[PlacesWorld], None]]]] = (
    (3, PlacesWorld.kill),
    (2, PlacesWorld.release),
    (2, PlacesWorld.freeze),
    (1, lambda world: world.black_out(world.random.uniform(5.0, 70.0))),
    (3, lambda world: world.stall(world.random.uniform(1.0, 7.0))),
    (3, PlacesWorld.close_disk),
    (3, PlacesWorld.lower_limit),
    (2, PlacesWorld.lose_node),
    (6, PlacesWorld.fail_some),
    (3, PlacesWorld.evict_some),
    (1, PlacesWorld.upgrade_some),
    (2, PlacesWorld.lose_shard),
    (8, PlacesWorld.grow_some),
    (4, PlacesWorld.delete_some),
)


def random_world(seed: int, build: WorldBuild) -> PlacesWorld:
    """A world of which everything follows from the seed."""
    random = Random(seed)
    disks = [[random.randint(60, 240) for _ in range(random.randint(1, 3))] for _ in range(random.randint(3, 6))]
    lags = ProcessLags(
        watch=random.choice([0.05, 0.3, 1.0, 5.0]),
        slow_writes=random.choice([0.0, 0.02, 0.2]),
        lost_answers=random.choice([0.0, 0.05, 0.2]),
    )
    shape = WorldShape(disks, lags, random.choice([0.2, 1.5, 5.0]), random.choice([1.0, 6.0, 20.0]))
    world = PlacesWorld(seed, shape, build)
    left = sum(map(sum, disks)) * random.choice([0.7, 0.95, 1.1, 1.4])
    asks, restored = random.choice([0.3, 0.7, 1.0]), random.choice([0.0, 0.15, 0.4])
    crowd = random.choice([5.0, 20.0, 60.0, BUSY_SECONDS])
    while left > 0:
        if random.random() < restored:
            gib, copies = float(random.randint(5, 60)), random.randint(1, 3)
            world.timeline.between(1.0, crowd, partial(world.restore, gib, copies))
            left -= gib * copies
            continue
        count = random.choice([1, 1, 1, 2, 3])
        volumes = [(random.choice(list(KINDS)), float(random.randint(5, 80))) for _ in range(count)]
        left -= sum(gib * int(KINDS[kind][1]) for kind, gib in volumes)
        world.timeline.between(1.0, crowd, partial(world.submit, *volumes, asks=random.random() < asks))
    weights = [weight for weight, _ in FAULTS]
    for _ in range(random.choice([0, 4, 10, 20])):
        ((_, fault),) = random.choices(FAULTS, weights)
        world.timeline.between(2.0, BUSY_SECONDS, partial(fault, world))
    return world
