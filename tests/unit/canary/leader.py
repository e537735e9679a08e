"""A leader that proves the wiring of schedulers, on an API server in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.canary.pod import Canaries, canary_name
from controller.canary.proof import Finding, Recognition, Wiring, WiringProof
from controller.canary.prover import WiringProver
from controller.follow.kinds import interesting_pod
from controller.kube import resources
from controller.kube.resources import LEASES, PODS
from controller.kube.store import Store
from controller.model.names import CANARY_LABEL, EXTENDER_RESOURCE
from controller.model.workload import Pod
from controller.settings import LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAMESPACE, LEASE = "longhorn-system", "our-lease"
SCHEDULER = "default-scheduler"
CANARY = canary_name(SCHEDULER)
MESSAGE = f"0/2 nodes are available: 2 Insufficient {EXTENDER_RESOURCE}. preemption: not helpful."
Raw = dict[str, Any]


class NumberedApi(FakeApiServer):
    """Gives every object a uid, and leaves everything else to the server in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.after_create: Callable[[Raw], None] = lambda _raw: None
        self.alive: list[int] = []  # canaries, after each creation

    def create(self, resource: resources.Resource, namespace: str | None, body: Raw, **options: Any) -> Raw:
        body = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self.version}"}}
        made = super().create(resource, namespace, body, **options)
        if resource is PODS:
            self.alive.append(len(self.canaries()))
            self.after_create(made)
        return made

    def canaries(self) -> list[Raw]:
        pods = [raw for (path, _, _), raw in self.objects.items() if path == PODS.path()]
        return [raw for raw in pods if CANARY_LABEL in (raw["metadata"].get("labels") or {})]


class ProofBench:
    """A leader that proves one scheduler's wiring, unless told otherwise; steps are taken by hand."""

    def __init__(self, *schedulers: str) -> None:
        self.clock, self.api = VirtualClock(), NumberedApi()
        self.api.create(LEASES, NAMESPACE, {"metadata": {"name": LEASE}})
        self.pods: Store[Pod] = Store("pod", interesting_pod)
        self.proof = WiringProof(schedulers or (SCHEDULER,), NAMESPACE, self.clock, self.pods.get)
        self.pods.subscribe(self.proof.pods_changed)
        self.term: int | None = 1
        self.live = LiveSettings(wiring_check_every_seconds=300)
        self.told: list[tuple[str, str, bool]] = []
        self.prover = WiringProver(
            self.proof,
            Canaries(self.api, NAMESPACE, LEASE),
            self.clock,
            serving=lambda: self.term,
            live=lambda: self.live,
            tell=lambda reason, text, is_bad: self.told.append((reason, text, is_bad)),
            clear_leases=self.clear_leases,
        )

    def clear_leases(self, may_write: Callable[[], bool]) -> None:
        """Nothing is known of Leases here."""

    def step(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.prover.step()

    def state(self) -> Wiring:
        """UNKNOWN too where there is no finding."""
        return next((one.state for one in self.proof.findings() if one.scheduler == SCHEDULER), Wiring.UNKNOWN)

    @property
    def finding(self) -> Finding:
        (finding,) = self.proof.findings()
        return finding

    def canary(self) -> Raw:
        (canary,) = self.api.canaries()
        return canary

    def filter_canary(self) -> Recognition:
        """kube-scheduler asks about the canary that is there."""
        return self.proof.recognise(self.canary()["metadata"]["uid"], NAMESPACE, CANARY)

    def show(self, raw: Raw, verb: str = "MODIFIED") -> None:
        """The watch tells of a pod."""
        self.pods.apply(verb, raw)

    def refuse(self, raw: Raw, message: str = MESSAGE) -> None:
        """kube-scheduler writes its condition, and the watch tells of it."""
        self.show(with_condition(raw, message))


def with_condition(raw: Raw, message: str) -> Raw:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {**raw, "status": {"phase": "Pending", "conditions": [condition]}}


def real_pod(name: str = "web-0", *, scheduler: str = SCHEDULER) -> Raw:
    asked = {"requests": {EXTENDER_RESOURCE: "1"}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": asked}]},
    }
