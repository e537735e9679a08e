"""A leader of all its parts: allocator, placer, gate and plans, without threads."""

from __future__ import annotations

from typing import Any, Self

from prometheus_client import CollectorRegistry

from controller.allocator.outcome import Mode
from controller.kube.resources import SERVICE_ACCOUNTS
from controller.model.names import GATE
from controller.placement.build import build_placement
from controller.placement.plan_objects import Loaded
from controller.settings import LiveSettings, ProcessSettings
from tests.unit.placement.placer_stage import ScriptedReasons, ScriptedWriters
from tests.unit.placement.stage import NAMESPACE, InformedLeader, ReplicaCell


class WholeLeader(InformedLeader):
    def __init__(self, cell: ReplicaCell) -> None:
        super().__init__(cell, LiveSettings(enabled=True))
        self.holds_lease = True
        self.registry = CollectorRegistry()
        self.parts = build_placement(
            cell.api,
            ProcessSettings(namespace=NAMESPACE),
            cell.clock,
            self.stores,
            self.registry,
            decides=self.cluster.allocator.places,
            checks=lambda: self.checks,
            live=lambda: self.live,
            mode=lambda: Mode.ACTIVE,
            holds_lease=lambda term: self.holds_lease and term == self.checks.term,
            is_leading=lambda: self.checks.is_leading,
            wait=cell.clock.advance,
            tell=lambda *_told: None,
            explains=ScriptedReasons(),
        )
        self.placer, self.terms = self.parts.placer, self.parts.terms
        writes: Any = self.placer._writes
        writes._writers = ScriptedWriters()

    def begin(self, term: int = 1) -> Loaded:
        """A term, and what the one before has stored."""
        self.checks.term = term
        self.terms.fence(term)
        return self.terms.load(term)

    def round(self, after_seconds: float = 0.0) -> Self:
        self.cell.clock.advance(after_seconds)
        self.see()
        self.placer.run_once()
        return self

    def status(self, part: str) -> Any:
        (found,) = (one.status() for one in self.parts.parts if one.name == part)
        return found

    def annotation(self, name: str) -> str:
        found = self.cell.api.get(SERVICE_ACCOUNTS, NAMESPACE, GATE)["metadata"].get("annotations") or {}
        return str(found.get(name, ""))
