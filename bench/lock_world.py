"""A large cluster of made-up facts for `bench.lock`, brought to an allocator as watches would bring them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.clock import SystemClock
from controller.model.longhorn import EngineImage, InstanceManager, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, PodVolume, StorageClass
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, GIB, LATER, disk, node, observe, replica, volume

DISKS: Final = 4
DISK_GIB, SMALL_GIB = 16_384, 2_048
SMALL_EVERY: Final = 4  # so many nodes; all that roams would not fit on one with small disks
OFFERS: Final = 100  # nodes a pod
SAMPLE: Final = 200  # nodes that kube-scheduler asks about when it does not ask about all
COPIES: Final = 3
IMAGE: Final = "longhornio/longhorn-engine:v1"
LOCAL, SPREAD, SEVERAL, TAGGED = "longhorn", "spread", "several", "tagged"  # classes
TAG: Final = "fast"
LIVE: Final = LiveSettings(enabled=True, max_offers=OFFERS)
SETTINGS: Final = LonghornSettings(default_engine_image=IMAGE)


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each. `offered`, `refused` and `chosen` are pending pods; the volumes of `chosen` are roaming.
    `sharing` pods use all the `shared` claims."""

    nodes: int = 1_000
    volumes: int = 10_000
    degraded: int = 3_000
    offered: int = 500
    refused: int = 200
    chosen: int = 300
    roaming: int = 1_000
    growths: int = 100
    shared: int = 1_000
    sharing: int = 20

    def scaled(self, scale: float) -> Size:
        """Everything but what is shared, whose cost is that of these numbers."""
        names = {field.name for field in fields(self)} - {"shared", "sharing"}
        return replace(self, **{name: max(10, round(getattr(self, name) * scale)) for name in names})


class ShiftedClock(SystemClock):
    """The system's clock, ahead by `shift` seconds."""

    def __init__(self) -> None:
        self.shift = 0.0

    def now(self) -> float:
        return super().now() + self.shift

    def now_utc(self) -> datetime:
        return super().now_utc() + timedelta(seconds=self.shift)


class MadeUp:
    """The cluster. Its calls of the allocator are preparations, which nobody measures."""

    def __init__(
        self, allocator: Allocator, clock: ShiftedClock, size: Size, seed: int = 1, live: LiveSettings = LIVE
    ) -> None:
        self.allocator, self.clock, self.size, self.live = allocator, clock, size, live
        self.names = [f"worker-{number:05d}.cluster.example" for number in range(size.nodes)]
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, LonghornNode] = {}
        self.volumes: dict[str, Volume] = {}  # the attached and placed ones
        self.replicas: dict[str, list[Replica]] = {}  # by volume
        self.running: list[Pod] = []
        self.offered: list[Pod] = []
        self.refused: list[tuple[Pod, Sequence[str]]] = []  # and where
        self.unplaced: list[Volume] = []  # attached, and none of their replicas is placed
        self.shared: list[Claim] = []
        self.sharing: list[Pod] = []
        self.wake_rounds: Counter[str] = Counter()  # how many came to an end
        self.draw = random.Random(seed)
        self._count = 0

    def build(self) -> None:
        """Pods are answered before anything roams, when that is quickly done."""
        self._put_basics()
        for number in range(self.size.volumes):
            self._put_running(number)
        self._put_nodes()
        self.allocator.configure(self.live, SETTINGS)
        self.allocator.set_mode(Mode.ACTIVE)
        self.allocator.begin_term(has_predecessor=False)
        self._offer()
        self._refuse()
        self._grow()
        self._degrade()
        self._roam()
        self._share()

    def put(self, kind: str, key: str, facts: object | None) -> None:
        observe(self.allocator, kind, key, facts)

    def some_names(self, count: int, number: int) -> Sequence[str]:
        """So many nodes, others for every number; 0 is all."""
        count = min(count, len(self.names)) or len(self.names)
        first = number * 37 % len(self.names)
        return [*self.names[first:], *self.names[:first]][:count]

    # Facts

    def _put_basics(self) -> None:
        local = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
        parameters = {
            LOCAL: local,
            TAGGED: {**local, "diskSelector": TAG},
            SPREAD: {"dataLocality": "disabled", "numberOfReplicas": str(COPIES)},
            SEVERAL: {"dataLocality": "best-effort", "numberOfReplicas": str(COPIES)},
        }
        for name, given in parameters.items():
            self.classes[name] = StorageClass(name, "driver.longhorn.io", given, name == LOCAL, EPOCH)
            self.put("class", name, self.classes[name])
        self.put("engine_image", "engine", self.engine_image(frozenset(self.names)))
        for name in self.names:
            self.put("instance_manager", f"im-{name}", InstanceManager(f"im-{name}", name, "v1", "im", "running"))

    @staticmethod
    def engine_image(nodes: frozenset[str]) -> EngineImage:
        return EngineImage("engine", IMAGE, "deployed", nodes)

    def _put_running(self, number: int) -> None:
        """A pod with a volume, attached and placed: every other one best-effort with one replica, or spread."""
        is_local = number % 2 == 0
        on = self.draw.sample(self.names, 1 if is_local else COPIES)
        gib, name = 1 + number % 4, f"pvc-uid-data-{number}"
        claim = self.claim(f"data-{number}", gib, LOCAL if is_local else SPREAD, volume_name=name, selected_node=on[0])
        self.volumes[name] = self.volume(name, gib, on[0], is_local=is_local, robustness="healthy", scheduled=True)
        self.replicas[name] = [
            self.replica(f"{name}-r-{copy}", name, gib, on=place, disk_name=f"d{self.draw.randrange(DISKS)}")
            for copy, place in enumerate(on)
        ]
        self.put("volume", name, self.volumes[name])
        for entry in self.replicas[name]:
            self.put("replica", entry.name, entry)
        self.put("pv", name, self.pv(claim))
        self.put("claim", claim.key, claim)
        self.running.append(self.pod(f"running-{number}", claim, node_name=on[0]))
        self.put("pod", self.running[-1].key, self.running[-1])

    def _put_nodes(self) -> None:
        lying: dict[str, dict[str, int]] = {}
        for replicas in self.replicas.values():
            for entry in replicas:
                lying.setdefault(entry.disk_uuid, {})[entry.name] = entry.size_bytes
        for place, name in enumerate(self.names):
            disks, gib = [], DISK_GIB if place % SMALL_EVERY else SMALL_GIB
            for number in range(DISKS):
                held = lying.get(f"{name}-d{number}", {})
                facts = disk(f"d{number}", gib, node=name)
                disks.append(replace(facts, scheduled_replicas=held, scheduled_bytes=sum(held.values())))
            self.put("kube_node", name, KubeNode(name, unschedulable=False))
            self.nodes[name] = node(name, *disks)
            self.put("node", name, self.nodes[name])

    def with_figures(self, name: str) -> LonghornNode:
        """The node, another part of a disk in use."""
        facts = self.nodes[name]
        first = replace(facts.disks[0], available_bytes=facts.disks[0].maximum_bytes - self.draw.randrange(100) * GIB)
        return replace(facts, disks=(first, *facts.disks[1:]))

    def tag(self, names: Sequence[str], *tags: str) -> None:
        """Every disk of these nodes gets these tags and no others."""
        for name in names:
            disks = tuple(replace(entry, tags=frozenset(tags)) for entry in self.nodes[name].disks)
            self.put("node", name, replace(self.nodes[name], disks=disks))

    # Answers

    def _offer(self) -> None:
        for number in range(self.size.offered):
            pod = self.new_pod(1, gib=1 + number % 4)
            outcome = self.allocator.hold_pod(pod.uid, self.some_names(OFFERS, number))
            assert len(outcome.passed) == min(OFFERS, self.size.nodes), outcome
            self.offered.append(pod)

    def _refuse(self) -> None:
        """By turns too large for any disk, or in need of a tag that no disk has; some asked about a sample."""
        for number in range(self.size.refused):
            volumes, class_name, gib = ((1, LOCAL, 2 * DISK_GIB + number), (1, TAGGED, 4), (4, TAGGED, 4))[number % 3]
            pod = self.new_pod(volumes, gib=gib, class_name=class_name)
            names = self.some_names(SAMPLE if number % 4 == 1 else 0, number)
            outcome = self.allocator.hold_pod(pod.uid, names)
            assert not outcome.passed, outcome
            self.refused.append((pod, names))

    def _grow(self) -> None:
        for number in range(self.size.growths):
            outcome = self.allocator.expansions.hold(self.growth_of(self.size.volumes - 1 - number))
            assert outcome.verdict is GrowthVerdict.ADMITTED, outcome

    def growth_of(self, number: int, gib: int = 1, *, is_dry_run: bool = False) -> GrowthRequest:
        """The claim of that running pod asks for so much more."""
        name = f"pvc-uid-data-{number}"
        size = self.volumes[name].size_bytes + gib * GIB
        return GrowthRequest(name, size, "ns", f"data-{number}", is_dry_run)

    def _degrade(self) -> None:
        """Volumes with three copies lose one: failed, by turns with gone."""
        spread = [name for name, facts in self.volumes.items() if facts.replica_count == COPIES]
        for number, name in enumerate(spread[: self.size.degraded]):
            lost = self.replicas[name].pop()
            self.put("replica", lost.name, replace(lost, failed_at=EPOCH, healthy_at="") if number % 2 else None)
            self.volumes[name] = replace(self.volumes[name], robustness="degraded", last_degraded_at=EPOCH)
            self.put("volume", name, self.volumes[name])

    def _roam(self) -> None:
        """Volumes that are chosen and not placed: first those of pending pods, then those that exist already."""
        for number in range(self.size.roaming):
            gib, place = 1 + number % 4, self.draw.choice(self.names)
            class_name = SEVERAL if number % 4 == 3 else SPREAD
            claim = self.claim(f"roaming-{number}", gib, class_name, selected_node=place)
            pod = self.pod(f"roaming-{number}", claim)
            self.put("claim", claim.key, claim)
            self.put("pod", pod.key, pod)
            if number >= self.size.chosen:
                self._provision(pod, claim, gib, place)

    def _provision(self, pod: Pod, claim: Claim, gib: int, place: str) -> None:
        """Volume and PV are there, the pod is bound, and none of the replicas is placed."""
        name = f"pvc-{claim.uid}"
        locality = "best-effort" if claim.class_name == SEVERAL else "disabled"
        facts = self.volume(name, gib, place, is_local=False, data_locality=locality, state="attaching")
        self.put("volume", name, facts)
        for copy in range(COPIES):
            self.put("replica", f"{name}-r-{copy}", self.replica(f"{name}-r-{copy}", name, gib, healthy_at=""))
        claim = replace(claim, volume_name=name)
        self.put("pv", name, self.pv(claim))
        self.put("claim", claim.key, claim)
        self.put("pod", pod.key, replace(pod, node_name=place))
        self.unplaced.append(facts)

    def _share(self) -> None:
        self.shared = [self.claim(f"shared-{number}", 1, LOCAL) for number in range(self.size.shared)]
        self.sharing = [self.pod(f"sharing-{number}", *self.shared) for number in range(self.size.sharing)]
        for claim in self.shared:
            self.put("claim", claim.key, claim)
        for pod in self.sharing:
            self.put("pod", pod.key, pod)

    # New objects

    def new_pod(self, volumes: int, *, gib: int = 2, class_name: str = LOCAL) -> Pod:
        """A pending pod with so many new claims, which the allocator knows."""
        self._count += 1
        claims = [self.claim(f"new-{self._count}-{index}", gib, class_name) for index in range(volumes)]
        for claim in claims:
            self.put("claim", claim.key, claim)
        pod = self.pod(f"new-{self._count}", *claims)
        self.put("pod", pod.key, pod)
        return pod

    @contextmanager
    def a_pod(self, volumes: int, *, gib: int = 2, class_name: str = LOCAL) -> Iterator[Pod]:
        """A new pod for the time of the block; nothing of it stays."""
        pod = self.new_pod(volumes, gib=gib, class_name=class_name)
        try:
            yield pod
        finally:
            self.put("pod", pod.key, None)
            for entry in pod.volumes:
                self.put("claim", f"ns/{entry.claim}", None)

    @staticmethod
    def pod(name: str, *claims: Claim, **fields: Any) -> Pod:
        volumes = tuple(PodVolume(f"v{index}", claim.name) for index, claim in enumerate(claims))
        pod = Pod(f"pod-{name}", "ns", name, EPOCH, 0, True, "", "", False, False, volumes)
        return replace(pod, **fields)

    @staticmethod
    def claim(name: str, gib: int, class_name: str, **fields: Any) -> Claim:
        claim = Claim(f"uid-{name}", "ns", name, class_name, "", gib * GIB, "", False, False, "", "")
        return replace(claim, **fields)

    @staticmethod
    def pv(claim: Claim) -> PersistentVolume:
        name = claim.volume_name
        return PersistentVolume(name, "driver.longhorn.io", name, claim.uid, claim.key, claim.requested_bytes, LATER)

    @staticmethod
    def volume(name: str, gib: int, attached_to: str, *, is_local: bool, **fields: Any) -> Volume:
        given: dict[str, Any] = {
            "locality": "best-effort" if is_local else "disabled",
            "replica_count": 1 if is_local else COPIES,
        }
        return replace(volume(name, gib, attached_to=attached_to, image=IMAGE, frontend="blockdev", **given), **fields)

    @staticmethod
    def replica(name: str, of: str, gib: int, **fields: Any) -> Replica:
        return replica(name, of, gib, **{"healthy_at": LATER, "image": IMAGE, **fields})
