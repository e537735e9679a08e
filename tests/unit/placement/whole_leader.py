"""A leader of all its parts: allocator, placer, gate and plans, without threads."""

from __future__ import annotations

from typing import Any, Self

from prometheus_client import CollectorRegistry

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.follow.feed import follow
from controller.follow.kinds import FOLLOWED
from controller.kube.resources import SERVICE_ACCOUNTS
from controller.kube.store import Store
from controller.model.names import GATE
from controller.placement.build import build_placement
from controller.settings import LiveSettings, ProcessSettings
from tests.fakes.builders import TestCluster
from tests.unit.placement.placer_stage import ScriptedWriters
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.leaders import Checks


class WholeLeader:
    """A leader of a cell, whose informers show what happened whenever they are told to."""

    def __init__(self, cell: ReplicaCell) -> None:
        self.cell, self.checks, self.holds_lease = cell, Checks(), True
        self.live = LiveSettings(enabled=True)
        self.cluster = TestCluster(live=self.live, make_allocator=lambda _clock: Allocator(cell.clock))
        self.stores: dict[str, Store[Any]] = {kind.name: Store(kind.name, kind.parse) for kind in FOLLOWED}
        self.stores["setting"] = Store("setting", lambda raw: raw)
        for kind in FOLLOWED:
            follow(kind, self.stores[kind.name], self.cluster.allocator)
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
        )
        self.placer, self.terms = self.parts.placer, self.parts.terms
        placer: Any = self.placer
        placer._writers = ScriptedWriters()

    def see(self) -> Self:
        for kind in FOLLOWED:
            namespace = NAMESPACE if kind.in_longhorn else None
            self.stores[kind.name].replace(self.cell.api.list_page(kind.resource, namespace).items)
        return self

    def round(self, after_seconds: float = 0.0) -> Self:
        self.cell.clock.advance(after_seconds)
        self.see()
        self.placer.run_once()
        return self

    def status(self, part: str) -> Any:
        (found,) = (one.status() for one in self.parts.additions if one.name == part)
        return found

    def annotation(self, name: str) -> str:
        found = self.cell.api.get(SERVICE_ACCOUNTS, NAMESPACE, GATE)["metadata"].get("annotations") or {}
        return str(found.get(name, ""))
