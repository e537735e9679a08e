"""Puts together what keeps the record in the leader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from controller.allocations.backends import LonghornNodeBackend
from controller.allocations.expected import LonghornObjects
from controller.allocations.holder import RecordHolder, tell_problem
from controller.allocations.keeper import KnownCalls, RecordKeeper, is_kept, news_of, status_of
from controller.allocations.metrics import RecordMetrics
from controller.allocations.terms import RecordTerm
from controller.allocations.writer import Learn
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.store import Change, Store
from controller.model.allocations import NodeRecord
from controller.process.addition import Addition
from controller.process.worker import Group
from controller.settings import LiveSettings


class LeaderGate(Protocol):
    @property
    def term(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    def check(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecordParts:
    """`holder` knows where the record is kept, and writes it; `addition` runs both parts."""

    holder: RecordHolder
    keeper: RecordKeeper
    addition: Addition


def build_record(
    api: KubeApi,
    namespace: str,
    clock: Clock,
    gate: LeaderGate,
    stores: Mapping[str, Store[Any]],
    registry: CollectorRegistry,
    *,
    openings: Callable[[], int],
    settings: Callable[[], LiveSettings],
    is_fresh: Callable[[], bool],
    answers: KnownCalls,
    learn: Learn,
) -> RecordParts:
    """`stores`: of `node`, `replica`, `volume`, `backing_image` and `record`, before their informers start.
    `answers`: as `RecordKeeper`'s; `learn`: as `RecordHolder`'s. Starts nothing."""

    def records() -> Sequence[NodeRecord]:
        is_in_nodes = isinstance(holder.backend, LonghornNodeBackend)
        return _in_nodes(stores) if is_in_nodes else stores["record"].values()

    def lost_records() -> Mapping[str, str]:
        """What is at the other place, and cannot be read there: nothing is given on such a node either."""
        others = stores["record"].values() if isinstance(holder.backend, LonghornNodeBackend) else _in_nodes(stores)
        return {one.node: one.problem for one in others if one.problem}

    def left() -> Collection[str]:
        is_ours = gate.is_open and is_kept(settings())
        return [one.node for one in stores["record"].values()] if is_ours else ()

    def seen(name: str) -> NodeRecord | None:
        key = f"{namespace}/{name}"
        if isinstance(holder.backend, LonghornNodeBackend):
            node = stores["node"].get(key)
            return node.record if node is not None else None
        return stores["record"].get(key)

    def objects() -> LonghornObjects:
        return LonghornObjects(
            stores["node"].values(),
            stores["replica"].values(),
            {volume.name: volume for volume in stores["volume"].values()},
            stores["backing_image"].values(),
        )

    def lease_term() -> int:
        gate.check()
        return gate.term

    term = RecordTerm(lease_term, openings, lambda: _latest_term(stores))
    holder = RecordHolder(api, namespace, term, clock, tell_problem, seen, learn, left)
    parts = holder, records, objects, settings, clock
    keeper = RecordKeeper(
        *parts, is_leading=lambda: gate.is_open, is_fresh=is_fresh, answers=answers, lost_records=lost_records
    )
    _tell(keeper, stores)
    registry.register(RecordMetrics(keeper.figures, lambda: gate.is_open))

    def status() -> Mapping[str, Any]:
        return {**holder.status(), **status_of(keeper.figures())}

    return RecordParts(holder, keeper, Addition("allocations", Group((holder, keeper)), status))


def _in_nodes(stores: Mapping[str, Store[Any]]) -> Sequence[NodeRecord]:
    return [node.record for node in stores["node"].values() if node.record is not None]


def _latest_term(stores: Mapping[str, Store[Any]]) -> int:
    """At either place: it may not be known yet which one is in use, and it may become the other one."""
    return max((one.term for one in (*_in_nodes(stores), *stores["record"].values())), default=0)


def _tell(keeper: RecordKeeper, stores: Mapping[str, Store[Any]]) -> None:
    """Of every change that may have made a record another one than it should be."""

    def of(kind: str) -> Callable[[Sequence[Change[Any]]], None]:
        def tell(changes: Sequence[Change[Any]]) -> None:
            for change in changes:
                keeper.changed(news_of(kind, change.old, change.new))

        return tell

    for kind in ("node", "replica", "record", "backing_image"):
        stores[kind].subscribe(of(kind))
