"""Puts together what keeps the record in the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from controller.allocations.backends import LonghornNodeBackend
from controller.allocations.holder import RecordHolder, tell_no_record
from controller.allocations.keeper import LonghornObjects, RecordKeeper, status_of
from controller.allocations.metrics import RecordMetrics
from controller.allocations.terms import RecordTerm
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.store import Change, Store
from controller.model.allocations import Allocation, NodeRecord
from controller.model.longhorn import LonghornNode, Replica
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
    told_at: Callable[[Iterable[Allocation]], Mapping[Allocation, float]],
) -> RecordParts:
    """`stores`: of `node`, `replica`, `volume`, `backing_image` and `record`, before their informers start. `told_at`:
    when callers were told of such entries last. Starts nothing."""

    def records() -> Sequence[NodeRecord]:
        if isinstance(holder.backend, LonghornNodeBackend):
            return [node.record for node in stores["node"].values() if node.record is not None]
        return stores["record"].values()

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

    term = RecordTerm(lease_term, openings, lambda: max((one.term for one in records()), default=0))
    holder = RecordHolder(api, namespace, term, clock, tell_no_record, seen)
    parts = holder, records, objects, settings, clock
    keeper = RecordKeeper(*parts, is_leading=lambda: gate.is_open, is_fresh=is_fresh, told_at=told_at)
    _tell(keeper, stores)
    registry.register(RecordMetrics(keeper.figures, lambda: gate.is_open))

    def status() -> Mapping[str, Any]:
        return {**holder.status(), **status_of(keeper.figures())}

    return RecordParts(holder, keeper, Addition("allocations", Group((holder, keeper)), status))


def _tell(keeper: RecordKeeper, stores: Mapping[str, Store[Any]]) -> None:
    """Of every change that may have made a record another one than it should be."""

    def of_nodes(changes: Sequence[Change[LonghornNode]]) -> None:
        if any(_disks(change.old) != _disks(change.new) for change in changes):
            keeper.changed()  # a disk may have come from any node
        for change in changes:
            old, new = (one.record if one is not None else None for one in (change.old, change.new))
            if old != new:
                keeper.changed({record.node for record in (old, new) if record is not None})

    def of_replicas(changes: Sequence[Change[Replica]]) -> None:
        seen = [one for change in changes for one in (change.old, change.new) if one is not None and one.node]
        keeper.changed((one.node for one in seen), (one.name for one in seen))

    def of_records(changes: Sequence[Change[NodeRecord]]) -> None:
        keeper.changed(one.node for change in changes if (one := change.new or change.old) is not None)

    stores["node"].subscribe(of_nodes)
    stores["replica"].subscribe(of_replicas)
    stores["record"].subscribe(of_records)
    stores["backing_image"].subscribe(lambda _changes: keeper.changed())


def _disks(node: LonghornNode | None) -> set[tuple[str, str]]:
    return {(disk.name, disk.uuid) for disk in node.disks} if node is not None else set()
