"""The extender's application over made-up facts: nodes with disks, and one pod. No cluster, no certificates."""

from __future__ import annotations

from collections.abc import Mapping

from bench.echo import create_echo_blueprint
from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings
from controller.model.workload import Claim, KubeNode, Pod, PodVolume, StorageClass
from controller.settings import LiveSettings
from extender.app import Verbs, create_app
from extender.binding import BindingArgs
from extender.contention import WaitBudget
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService
from tests.fakes.served import OnlyApplication

GIB = 1024**3
EPOCH = "2026-01-01T00:00:00Z"


class _OpenGate:
    term = 1

    def check(self) -> None:
        return


class _NoReads:
    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        raise AssertionError(f"{kind} {namespace}/{name} is not in the store ({timeout_seconds} s)")


class _Silent:
    def decided(self, *_: object) -> None:
        return

    contention_waited = filter_answered = failed = preempted = refused = let_through = broken = decided


class _NoBinding:
    def bind(self, args: BindingArgs) -> str:
        return f"{args.node}: not here"


class ExtenderProcess(OnlyApplication):
    """The product's application over this allocator, and the echo route."""

    def __init__(self, allocator: Allocator) -> None:
        clock, silent = SystemClock(), _Silent()
        preconditions = Preconditions(
            allocator, _OpenGate(), _NoReads(), clock, mode=lambda: Mode.ACTIVE, stale_kind=lambda: None
        )
        service = ExtenderService(
            allocator,
            preconditions,
            clock,
            silent,
            silent,
            contention_wait_seconds=lambda: 0.0,
            budget=WaitBudget(),
        )
        preempting = PreemptionService(allocator, preconditions, silent, silent)
        verbs = Verbs(service, PriorityService(allocator, preconditions), preempting, _NoBinding())
        app = create_app(verbs, silent, clock, max_body_bytes=64 * 1024**2)
        app.register_blueprint(create_echo_blueprint())
        super().__init__(app.wsgi_app)


def make_allocator(live: LiveSettings) -> Allocator:
    allocator = Allocator(SystemClock())
    allocator.configure(live, LonghornSettings())
    allocator.set_mode(Mode.ACTIVE)
    return allocator


def node_name(index: int) -> str:
    return f"worker-{index:05d}.cluster.example"


def add_class(allocator: Allocator, copies: int) -> None:
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": str(copies)}
    facts = StorageClass("longhorn", "driver.longhorn.io", parameters, True, True, EPOCH)
    allocator.observe_class(facts.name, facts)


def add_node(allocator: Allocator, index: int, sizes_gib: Mapping[str, int]) -> None:
    """An empty node with these disks."""
    name = node_name(index)
    disks = tuple(
        Disk(
            disk,
            f"{disk}-{index}",
            "filesystem",
            "ext4",
            True,
            False,
            True,
            True,
            frozenset(),
            gib * GIB,
            gib * GIB,
            0,
            0,
            {},
        )
        for disk, gib in sizes_gib.items()
    )
    allocator.observe_kube_node(name, KubeNode(name, unschedulable=False))
    allocator.observe_node(name, LonghornNode(name, "", "", frozenset(), True, True, True, False, disks))


def add_pod(allocator: Allocator, sizes_gib: Mapping[str, float], name: str = "p") -> None:
    """A pod with a new claim of each name."""
    for key, gib in sizes_gib.items():
        claim = Claim(f"uid-{key}", "ns", key, "longhorn", "", int(gib * GIB), "", False, False, "", "")
        allocator.observe_claim(claim.key, claim)
    pod = Pod(
        f"uid-{name}",
        "ns",
        name,
        EPOCH,
        0,
        True,
        "",
        "",
        False,
        False,
        tuple(PodVolume(f"v-{c}", c) for c in sizes_gib),
    )
    allocator.observe_pod(pod.key, pod)


def pod_document(claims: Mapping[str, int]) -> dict[str, object]:
    """The same pod, as kube-scheduler sends it."""
    volumes = [{"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"volumes": volumes, "containers": [{"name": "c"}]},
    }
