"""A leader's gate in an API server that goes by it, with a clock of its own. Time passes only by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from controller.errors import ClusterError, ForbiddenError
from controller.kube.resources import (
    LONGHORN_REPLICAS,
    POLICIES,
    POLICY_BINDINGS,
    SERVICE_ACCOUNTS,
    Resource,
)
from controller.model.names import (
    FENCE,
    GATE,
    GUARD,
    MANAGER_PREFIX,
    PROOF_MANAGER,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)
from controller.placement.gate import PlacementGate
from controller.placement.gate_objects import GateObjects
from controller.placement.gate_policy import POLICY_DIGESTS, SILENT_SECONDS, Enforcement, expected_bindings
from tests.cluster.cache import REPOSITORY
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAMESPACE = "longhorn-system"
STAMPS = {"term": TERM_ANNOTATION, "since": SINCE_ANNOTATION, "renewed": RENEWED_ANNOTATION}
ACCOUNT = "longhorn-scheduler-extender"
MANIFEST = list(yaml.safe_load_all((REPOSITORY / "docs" / "examples" / "install.yaml").read_text()))
SPECS = {one["metadata"]["name"]: one["spec"] for one in MANIFEST if one["kind"] == POLICIES.kind}
BINDINGS = expected_bindings(NAMESPACE)
FIELD_MANAGER_BYTES = 128  # FieldManagerMaxLength of apimachinery
Raw = dict[str, Any]


class GateCell:
    """What the chart brings, one Replica, and an API server that is `ahead` of the clock of this machine."""

    def __init__(self) -> None:
        self.api, self.clock, self.ahead = FakeApiServer(), VirtualClock(), timedelta()
        self.api.date, self.api.admit = self.server_utc, self._admit
        self.fence_lag = 0.0  # seconds for which the fence goes by the former term
        self._written: tuple[float, str] = (-1e9, "")
        self.put_account()
        for name in POLICY_DIGESTS:
            self.put_policy(name)
        for name in (FENCE, GUARD):
            self.put_binding(name)
        self.put_replica("r1")

    def server_utc(self) -> datetime:
        return self.clock.now_utc() + self.ahead

    def put_account(self) -> None:
        self.api.put(SERVICE_ACCOUNTS, NAMESPACE, {"metadata": {"name": GATE}})

    def put_policy(self, name: str, *, spec: Raw | None = None, warning: str = "") -> None:
        """As the chart has it, but for what is given."""
        found = [{"fieldRef": "spec.validations[0]", "warning": warning}] if warning else []
        body = {
            "metadata": {"name": name},
            "spec": {**SPECS[name], **(spec or {})},
            "status": {"typeChecking": {"expressionWarnings": found} if found else {}},
        }
        self.api.put(POLICIES, None, body)

    def put_binding(self, name: str, *, spec: Raw | None = None) -> None:
        self.api.put(POLICY_BINDINGS, None, {"metadata": {"name": name}, "spec": {**BINDINGS[name], **(spec or {})}})

    def put_replica(self, name: str, node: str = "") -> None:
        meta = {"name": name, "labels": {"longhornnode": node}}
        self.api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": meta, "spec": {"nodeID": node}})

    def drop(self, resource: Resource, name: str = GATE) -> None:
        self.api.delete(resource, NAMESPACE if resource.is_namespaced else None, name)

    def stamps(self) -> dict[str, str]:
        annotations = self.raw(SERVICE_ACCOUNTS)["metadata"].get("annotations") or {}
        return {name: annotations.get(annotation, "") for name, annotation in STAMPS.items()}

    def write_stamps(self, **stamps: str | None) -> None:
        """As somebody else would."""
        annotations = {STAMPS[name]: value for name, value in stamps.items()}
        self.api.patch(SERVICE_ACCOUNTS, NAMESPACE, GATE, {"metadata": {"annotations": annotations}})

    def raw(self, resource: Resource, name: str = GATE) -> Raw:
        return self.api.objects[(resource.path(), NAMESPACE if resource.is_namespaced else "", name)]

    def has(self, resource: Resource, name: str = GATE) -> bool:
        return (resource.path(), NAMESPACE if resource.is_namespaced else "", name) in self.api.objects

    def actions(self) -> list[str]:
        """The binding's; none without it."""
        found: list[str] = self.raw(POLICY_BINDINGS)["spec"]["validationActions"] if self.has(POLICY_BINDINGS) else []
        return found

    def is_closed(self) -> bool:
        """Whether the API server refuses the first place of a young Replica to others."""
        has_all = self.has(POLICIES) and self.has(SERVICE_ACCOUNTS) and self.actions() == ["Deny"]
        return has_all and self._age_seconds() <= SILENT_SECONDS

    def _age_seconds(self) -> float:
        try:
            renewed = datetime.strptime(self.stamps()["renewed"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return float("inf")
        age = (self.server_utc() - renewed).total_seconds()
        return age if age >= -5 else float("inf")

    def _admit(self, resource: Resource, old: Raw, new: Raw, manager: str) -> None:
        if len(manager) > FIELD_MANAGER_BYTES or not manager.isprintable():
            raise ClusterError('422: PatchOptions "" is invalid: fieldManager')
        if resource == SERVICE_ACCOUNTS:
            before, after = ((raw["metadata"].get("annotations") or {}).get(TERM_ANNOTATION, "") for raw in (old, new))
            if before != after:
                self._written = self.clock.now(), before
        if resource != LONGHORN_REPLICAS:
            return
        if manager == PROOF_MANAGER:
            if self.is_closed() and new["metadata"]["labels"]["longhornnode"] == "":
                raise refusal(GATE)
            return
        written_at, former = self._written
        term = former if self.clock.now() < written_at + self.fence_lag else self.stamps()["term"]
        if self.has(POLICIES, FENCE) and manager != MANAGER_PREFIX + term:
            raise refusal(FENCE)


def refusal(policy: str) -> ForbiddenError:
    return ForbiddenError(f"403: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: no")


class GateLeader:
    """One process that may lead. `is_current`: its Lease is held."""

    def __init__(self, cell: GateCell, wanted: Enforcement = Enforcement.DENY) -> None:
        self.cell, self.wanted = cell, wanted
        self.is_current = self.is_alive = True
        self.told: list[tuple[str, str, bool]] = []
        self.gate = PlacementGate(
            GateObjects(cell.api, NAMESPACE, ACCOUNT),
            cell.clock,
            is_current=lambda _term: self.is_current,
            is_alive=lambda: self.is_alive,
            wanted=lambda: self.wanted,
            wait=cell.clock.advance,
            tell=lambda *told: self.told.append(told),
        )

    def lead(self, term: str = "1") -> GateLeader:
        self.gate.begin_term(term)
        return self

    def go_on(self, seconds: float) -> GateLeader:
        """The worker's rounds of that time."""
        until = self.cell.clock.now() + seconds
        while True:
            pause = self.gate.run_once()
            if self.cell.clock.now() + pause > until:
                return self
            self.cell.clock.advance(pause)

    def settled(self, term: str = "1") -> GateLeader:
        """It leads, and its gate is proven, if it can be; what was told until then is forgotten."""
        self.lead(term).go_on(8)
        self.told.clear()
        return self

    @property
    def state(self) -> str:
        return self.gate.figures().state

    @property
    def problem(self) -> str:
        return self.gate.figures().problem
