"""Made-up clusters that travel as JSON, and the product's services over the real allocator on each of them.

The same description builds the same world twice: in the process that serves HTTP, and beside the test, which asks the
allocator there directly and so knows what a client must have understood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.clock import Clock, SystemClock
from controller.errors import ConflictError
from controller.settings import LiveSettings
from extender import binding, preemption, wire
from extender.app import Verbs
from extender.binding import BindingService
from extender.contention import WaitBudget
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService
from tests.fakes.builders import TestCluster, disk
from tests.fakes.edges import Anywhere, FakeBinder, FakeGate, FakeObserver, FakeReads

NAMESPACE: Final = "ns"
REFUSING_NODE: Final = "refuses"  # a name that begins so is a node to which nothing can be bound
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "local": {"dataLocality": "best-effort", "numberOfReplicas": "1"},
    "strict": {"dataLocality": "strict-local", "numberOfReplicas": "1"},
    "three": {"dataLocality": "disabled", "numberOfReplicas": "3"},
    "near": {"dataLocality": "best-effort", "numberOfReplicas": "2"},
}
# What the stores know of a pod. `late`: only a live read shows it; `replaced`: another one has its name.
STATES: Final = ("pending", "late", "bound", "deleting", "finished", "unknown", "replaced")


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A claim of the storage class `kind`; with `placed_on`, a volume whose replica lies on that node already."""

    claim: str
    gib: int
    kind: str = "local"
    placed_on: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    name: str
    volumes: tuple[VolumeSpec, ...] = ()
    state: str = "pending"

    @property
    def uid(self) -> str:
        return f"pod-{self.name}"


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """Nodes by name with the free GiB of each disk, the pods that are known, and the settings that matter."""

    nodes: dict[str, tuple[int, ...]]
    pods: tuple[PodSpec, ...] = ()
    mode: Mode = Mode.ACTIVE
    max_offers: int = 100
    contention_wait_milliseconds: int = 0
    runs_in_real_time: bool = False  # else time stands still

    def as_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> WorldSpec:
        return msgspec.json.decode(text, type=cls)


def refuse_some_nodes(name: str, node: str) -> None:
    if node.startswith(REFUSING_NODE):
        raise ConflictError(f"pods {name!r} cannot be bound to {node!r}")


class MadeUpWorld:
    """One made-up cluster, and everything that answers for it."""

    def __init__(self, spec: WorldSpec, make_allocator: Callable[[Clock], Allocator] = Allocator) -> None:
        self.spec = spec
        real_clock: Clock | None = SystemClock() if spec.runs_in_real_time else None
        live = LiveSettings(
            enabled=True,
            max_offers=spec.max_offers,
            filter_budget_milliseconds=2_000,  # what is decided must not depend on this machine's load
        )
        self.cluster = TestCluster(live=live, make_allocator=lambda clock: make_allocator(real_clock or clock))
        self.allocator = self.cluster.allocator
        self.live, self.binder, self.gate = FakeReads(self.allocator), FakeBinder(), FakeGate()
        self.binder.then = refuse_some_nodes
        self._add_objects()
        self.allocator.set_mode(spec.mode)
        clock: Clock = real_clock or self.cluster.clock
        silent = FakeObserver()
        self.preconditions = Preconditions(
            self.allocator, self.gate, self.live, clock, mode=lambda: spec.mode, stale_kind=lambda: None
        )
        self.filter = ExtenderService(
            self.allocator,
            self.preconditions,
            clock,
            silent,
            silent,
            contention_wait_seconds=lambda: spec.contention_wait_milliseconds / 1000,
            budget=WaitBudget(share=1.0),
            co_scheduler=Anywhere(),
        )
        self.prioritize = PriorityService(self.allocator, self.preconditions, Anywhere())
        self.preempt = PreemptionService(self.allocator, self.preconditions, silent, silent, Anywhere())
        self.bind = BindingService(self.preconditions, self.binder)

    def _add_objects(self) -> None:
        cluster, spec = self.cluster, self.spec
        for kind, parameters in KINDS.items():
            cluster.add_class(kind, **parameters)
        for name, free in spec.nodes.items():
            disks = (disk(f"d{number}", gib, node=name) for number, gib in enumerate(free, 1))
            cluster.add_node(name, *disks, free_gib=0)
        for pod in spec.pods:
            for volume in pod.volumes:
                if volume.claim not in cluster.claims:
                    self._add_volume(volume)
            self._add_pod(pod)

    def _add_volume(self, volume: VolumeSpec) -> None:
        self.cluster.add_claim(volume.claim, volume.gib, class_name=volume.kind)
        if volume.placed_on:
            self.cluster.place(self.cluster.provision(volume.claim), volume.placed_on, volume.gib)

    def _add_pod(self, pod: PodSpec) -> None:
        if not pod.volumes:  # the builder would give it one
            return
        cluster = self.cluster
        facts = cluster.add_pod(pod.name, *(volume.claim for volume in pod.volumes), uid=pod.uid)
        match pod.state:
            case "bound":
                cluster.bind(pod.name, next(iter(self.spec.nodes)))
            case "deleting":
                cluster.change_pod(pod.name, is_deleting=True)
            case "finished":
                cluster.change_pod(pod.name, is_finished=True)
            case "replaced":
                self.live.objects["pod", facts.key] = cluster.change_pod(pod.name, uid=f"newer-{pod.uid}")
            case "late" | "unknown":
                cluster.drop_pod(pod.name)
                if pod.state == "late":
                    self.live.objects["pod", facts.key] = facts

    def ledger(self) -> dict[str, Any]:
        """What is promised now, and which pods were bound."""
        promises = self.allocator.snapshot().promises
        return {
            "promises": sorted([view.claim, view.node, view.kind, view.state, view.size_bytes] for view in promises),
            "bound": sorted([uid, node] for _, _, uid, node in self.binder.posted),
        }


class ExchangeableWorld:
    """Where the world can be exchanged while the server runs. Between requests only."""

    def __init__(self, spec: WorldSpec) -> None:
        self.observer = FakeObserver()
        self.exchange(spec)

    def exchange(self, spec: WorldSpec) -> None:
        self.world = MadeUpWorld(spec)
        self.observer.failures.clear()

    def ledger(self) -> dict[str, Any]:
        """What the world promises now, which pods were bound, and what failed since it is there."""
        return {**self.world.ledger(), "failures": list(self.observer.failures)}

    def check_ready(self) -> None:
        self.world.filter.check_ready()

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        return self.world.filter.filter_pod(args, is_client_gone)

    def prioritize(self, args: wire.FilterArgs) -> bytes:
        return self.world.prioritize.prioritize(args)

    def preempt(self, args: preemption.PreemptionArgs) -> bytes:
        return self.world.preempt.preempt(args)

    def bind(self, args: binding.BindingArgs) -> str:
        return self.world.bind.bind(args)

    @property
    def verbs(self) -> Verbs:
        return Verbs(self, self.prioritize, self.preempt, self.bind)


def kube_pod(pod: PodSpec, resources: Sequence[str] = ()) -> dict[str, Any]:
    """The pod as kube-scheduler has it; its first container asks for one of each of `resources`."""
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": volume.claim}}
        for number, volume in enumerate(pod.volumes)
    ]
    wanted = dict.fromkeys(resources, "1")
    container = {"name": "main", "image": "app:1", "resources": {"requests": wanted, "limits": wanted}}
    return {
        "metadata": {"name": pod.name, "namespace": NAMESPACE, "uid": pod.uid},
        "spec": {"containers": [container], "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}]},
    }


def kube_node(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": annotations},
        "status": {"allocatable": {"cpu": "7910m", "memory": "31Gi", "pods": "110"}},
    }
