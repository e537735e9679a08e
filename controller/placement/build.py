"""Builds the part of the controller that places replicas."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from controller.allocator.outcome import Mode
from controller.clock import Clock
from controller.errors import NotLeaderError
from controller.follow.kinds import FOLLOWED
from controller.kube.api import KubeApi
from controller.kube.store import Store
from controller.placement.gate import PlacementGate, gate_wanted
from controller.placement.gate_objects import GateObjects
from controller.placement.gate_policy import Enforcement
from controller.placement.metrics import PlacementMetrics
from controller.placement.objects import ReplicaObjects
from controller.placement.placer import Decides, Explains, Placer, TermChecks, status_of
from controller.placement.plan_objects import Loaded, PlanObjects
from controller.placement.unplaced import Unplaced
from controller.process.named_part import NamedPart
from controller.process.version import PACKAGE
from controller.settings import LiveSettings, ProcessSettings
from controller.views.decisions import NoteDecision, log_decision

FLUSH_SECONDS: Final = 2.0  # at a clean stop
# Kinds of which any change may open a disk to replicas.
DISK_OPENERS: Final = tuple(kind.name for kind in FOLLOWED if kind.may_open_disks)


class PlacementTerms:
    """Begins and ends terms of the leader as far as placement is concerned.

    Threads: the lifecycle's; `name` from any. Blocks: for the API server. I/O: the gate's, and stored plans and holds.
    """

    def __init__(self, gate: PlacementGate, plans: PlanObjects, placer: Placer) -> None:
        self._gate, self._plans, self._placer = gate, plans, placer
        self.name = ""  # of the present term; in the gate, and in the field manager of writes
        self.number = -1  # before the first term, which may have number 0
        self._is_fenced = self._has_begun = False

    def fence(self, term: int) -> None:
        """Fence off former leaders: from its return on, no write of theirs reaches a Replica. A call after one that
        failed continues with the same name: else its own first try would pass for the former leader, and the gate's
        time would begin anew. Raises ClusterError or NotReadyError."""
        if self._has_begun or term != self.number:
            self.number, self.name = term, f"{term}-{secrets.token_hex(3)}"
            self._is_fenced = self._has_begun = False
        if not self._is_fenced:
            self._gate.begin_term(self.name)
            self._is_fenced = True

    def load(self, term: int) -> Loaded:
        """The plans and holds that are stored, as far as they can be read. Raises UnavailableError or NotReadyError."""
        loaded = self._plans.load(term)
        self._has_begun = True
        return loaded

    def changed(self) -> None:
        """Settings or the mode have changed: adapt the gate, and decide about what waits for room."""
        self._gate.changed()
        self._placer.unplaced.room_came()

    def end(self) -> None:
        """Store what waits to be stored, within FLUSH_SECONDS: for a clean stop."""
        self._placer.store_plans()
        self._plans.flush(FLUSH_SECONDS)


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """What `build_placement` has built. `parts` run the placer, the gate, and the store of plans and holds."""

    placer: Placer
    gate: PlacementGate
    plans: PlanObjects
    terms: PlacementTerms
    parts: tuple[NamedPart, ...]


def build_placement(
    api: KubeApi,
    settings: ProcessSettings,
    clock: Clock,
    stores: Mapping[str, Store[Any]],
    registry: CollectorRegistry,
    *,
    decides: Decides,
    checks: Callable[[], TermChecks],
    live: Callable[[], LiveSettings],
    mode: Callable[[], Mode],
    holds_lease: Callable[[int], bool],
    is_leading: Callable[[], bool],
    wait: Callable[[float], object],
    tell: Callable[[str, str, bool], None],
    explains: Explains,
    note: NoteDecision = log_decision,
) -> PlacementParts:
    """`stores`: by kind, before their informers start, and after the allocator has subscribed. `holds_lease`: whether
    this process holds the Lease now, in that term. `wait`, `tell`: as in `PlacementGate`. Starts nothing."""

    def now_utc() -> datetime:
        return api.server_utc() or clock.now_utc()

    def is_current(name: str) -> bool:
        return name == terms.name and holds_lease(terms.number)

    def check_lease(term: int) -> None:
        if not holds_lease(term):
            raise NotLeaderError("this process does not hold the Lease")

    def wanted() -> Enforcement:
        return gate_wanted(live(), mode())

    namespace = settings.namespace
    plans = PlanObjects(api, namespace, clock, check_lease)
    objects = ReplicaObjects(api, namespace, lambda: terms.name)
    telling: dict[str, Any] = {"tell": tell, "note": note}
    placer = Placer(
        decides, objects, plans, checks, clock, now_utc=now_utc, is_leading=is_leading, explains=explains, **telling
    )
    gate = PlacementGate(
        GateObjects(api, namespace, PACKAGE),
        clock,
        is_current=is_current,
        is_alive=placer.is_alive,
        wanted=wanted,
        wait=wait,
        **telling,
    )
    terms = PlacementTerms(gate, plans, placer)
    _feed(placer.unplaced, stores)
    registry.register(PlacementMetrics(placer.figures, plans.figures, gate.figures))
    parts = (
        NamedPart("placement", placer, lambda: status_of(placer.figures(), explains.reasons_of)),
        NamedPart("placement_gate", gate, lambda: asdict(gate.figures())),
        NamedPart("plans", plans, lambda: asdict(plans.figures())),
    )
    return PlacementParts(placer, gate, plans, terms, parts)


def _feed(unplaced: Unplaced, stores: Mapping[str, Store[Any]]) -> None:
    stores["replica"].subscribe(unplaced.replicas_changed)
    stores["volume"].subscribe(unplaced.volumes_changed)
    stores["node"].subscribe(unplaced.nodes_changed)
    for kind in DISK_OPENERS:
        stores[kind].subscribe(unplaced.room_came)
