"""Which nodes' records are looked at again after which change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.allocations.build import build_record
from controller.election.gate import Gate
from controller.kube.store import Store
from controller.model.allocations import NodeRecord
from controller.settings import LiveSettings
from tests.fakes.builders import disk, node, replica
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import NAMESPACE, entry, longhorn

KINDS = ("node", "replica", "volume", "backing_image", "record")
N1 = node("n1", disk("d1"))


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"),
    [
        ("replica", replica("r", "v", on="n1"), replica("r", "v", on="n2"), {"n1", "n2"}),
        ("replica", None, replica("r", "v"), set()),
        ("record", NodeRecord("n1"), NodeRecord("n1", (entry("r1"),)), {"n1"}),
        ("record", NodeRecord("n1"), None, {"n1"}),
        ("node", N1, replace(N1, record=NodeRecord("n1")), {"n1"}),
        ("node", N1, replace(N1, allow_scheduling=False), set()),
        ("node", N1, node("n1", disk("other")), None),
        ("backing_image", None, "an image", None),
    ],
)
def test_a_change_is_news_of_the_nodes_that_it_is_about(
    kind: str, before: object, after: object, expected: set[str] | None
) -> None:
    clock, facts = VirtualClock(), {"1": before, "2": after}
    stores: dict[str, Store[Any]] = {name: Store(name, lambda raw: facts[raw["is"]]) for name in KINDS}
    record = build_record(
        longhorn(),
        NAMESPACE,
        clock,
        Gate(clock),
        stores,
        CollectorRegistry(),
        openings=lambda: 1,
        settings=LiveSettings,
        is_fresh=lambda: True,
        told_at=lambda _entries: {},
    )
    heard, moved = list[set[str] | None](), set[str]()

    def changed(nodes: Iterable[str] | None = None, replicas: Iterable[str] = ()) -> None:
        heard.append(None if nodes is None else set(nodes))
        moved.update(replicas)

    stores[kind].apply("ADDED", {"metadata": {"name": "x"}, "is": "1"})
    record.keeper.changed = changed  # type: ignore[method-assign]
    stores[kind].apply("MODIFIED", {"metadata": {"name": "x"}, "is": "2"})
    found = None if None in heard else {name for names in heard for name in names or ()}
    assert (expected, {"r"} if kind == "replica" and expected else set()) == (found, moved)
