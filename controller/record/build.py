"""Builds the part of the controller that keeps the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.store import Change, Store
from controller.model.allocations import NodeRecord
from controller.model.longhorn import LonghornNode
from controller.process.named_part import NamedPart
from controller.record.keeper import RecordKeeper, SeenRecords, WantedRecords
from controller.record.metrics import RecordMetrics
from controller.settings import LiveSettings


class LeaderGate(Protocol):
    @property
    def is_open(self) -> bool: ...
    def check(self) -> None: ...


def build_record(
    api: KubeApi,
    namespace: str,
    clock: Clock,
    gate: LeaderGate,
    stores: Mapping[str, Store[Any]],
    registry: CollectorRegistry,
    wanted: WantedRecords,
    *,
    settings: Callable[[], LiveSettings],
    is_fresh: Callable[[], bool],
) -> tuple[RecordKeeper, NamedPart]:
    """The keeper, and the part that runs it. `stores`: by kind, before their informers start. Starts nothing."""
    keeper = RecordKeeper(
        api,
        namespace,
        clock,
        wanted,
        SeenRecords(namespace, stores),
        settings,
        gate.check,
        is_leading=lambda: gate.is_open,
        is_fresh=is_fresh,
    )
    for kind in ("record", "node"):
        stores[kind].subscribe(lambda changes: keeper.changed(_nodes_of(changes)))
    registry.register(RecordMetrics(keeper.figures, lambda: gate.is_open))
    return keeper, NamedPart("allocations", keeper, lambda: asdict(keeper.figures()))


def _nodes_of(changes: Iterable[Change[Any]]) -> set[str]:
    """The nodes whose records differ after these changes, at either place."""
    return {change.key.rpartition("/")[2] for change in changes if _record_in(change.old) != _record_in(change.new)}


def _record_in(facts: LonghornNode | NodeRecord | None) -> tuple[object, ...] | None:
    """What the object says of the record; None without an object."""
    record = facts.record if isinstance(facts, LonghornNode) else facts
    if record is None:
        return () if facts is not None else None
    return record.allocations, record.problem
