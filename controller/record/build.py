"""Puts together what keeps the record in the leader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.store import Change, Store
from controller.model.allocations import NodeRecord
from controller.process.addition import Addition
from controller.record.keeper import Projects, RecordKeeper
from controller.record.metrics import RecordMetrics
from controller.settings import LiveSettings


class LeaderGate(Protocol):
    @property
    def is_open(self) -> bool: ...
    def check(self) -> None: ...


class _Followed:
    """Records in the stores. Threads: any."""

    def __init__(self, namespace: str, stores: Mapping[str, Store[Any]]) -> None:
        self._namespace, self._nodes, self._own = namespace, stores["node"], stores["record"]

    def in_nodes(self) -> Sequence[NodeRecord]:
        return [node.record for node in self._nodes.values() if node.record is not None]

    def own(self) -> Sequence[NodeRecord]:
        return self._own.values()

    def nodes(self) -> Collection[str]:
        return {node.name for node in self._nodes.values()}

    def seen(self, node: str, *, in_node: bool) -> NodeRecord | None:
        key = f"{self._namespace}/{node}"
        if not in_node:
            found: NodeRecord | None = self._own.get(key)
            return found
        facts = self._nodes.get(key)
        return facts.record if facts is not None else None


def build_record(
    api: KubeApi,
    namespace: str,
    clock: Clock,
    gate: LeaderGate,
    stores: Mapping[str, Store[Any]],
    registry: CollectorRegistry,
    projects: Projects,
    *,
    settings: Callable[[], LiveSettings],
    is_fresh: Callable[[], bool],
) -> tuple[RecordKeeper, Addition]:
    """The keeper, and what runs it. `stores`: of `node` and `record`, before their informers start. Starts
    nothing."""
    followed = _Followed(namespace, stores)
    keeper = RecordKeeper(
        api,
        namespace,
        clock,
        projects,
        followed,
        settings,
        gate.check,
        is_leading=lambda: gate.is_open,
        is_fresh=is_fresh,
    )
    for kind in ("record", "node"):
        stores[kind].subscribe(lambda changes: keeper.changed(_nodes_of(changes)))
    registry.register(RecordMetrics(keeper.figures, lambda: gate.is_open))
    return keeper, Addition("allocations", keeper, lambda: asdict(keeper.figures()))


def _nodes_of(changes: Iterable[Change[Any]]) -> set[str]:
    """The nodes whose records are others by that, at whichever place."""
    found = set[str]()
    for change in changes:
        rows = [(one.node, one) if isinstance(one, NodeRecord) else (one.name, one.record) for one in _both(change)]
        kept = {(record.allocations, record.problem) if record is not None else None for _, record in rows}
        found.update(name for name, _ in rows if len(kept) > 1 or len(rows) == 1)
    return found


def _both(change: Change[Any]) -> list[Any]:
    return [one for one in (change.old, change.new) if one is not None]
