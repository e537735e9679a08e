"""Which nodes' records are looked at again after which change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.allocations.build import build_record
from controller.allocations.keeper import Scope, news_of
from controller.election.gate import Gate
from controller.kube.store import Store
from controller.model.allocations import NodeRecord
from controller.settings import LiveSettings
from tests.fakes.builders import disk, node, replica
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import NAMESPACE, entry, longhorn

KINDS = ("node", "replica", "volume", "backing_image", "record")
N1 = node("n1", disk("d1"))


R1, R2 = entry("r1"), entry("r2")
BAD = NodeRecord("n1", problem="garbage")


def scope(*names: str, nodes: str = "n1", whole: str = "") -> Scope:
    return Scope(frozenset(nodes.split()), frozenset(names), frozenset(whole.split()))


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"),
    [
        ("replica", replica("r", "v", on="n1"), replica("r", "v", on="n2"), scope("r", nodes="n1 n2")),
        ("replica", None, replica("r", "v"), Scope()),
        ("record", NodeRecord("n1", (R1,)), NodeRecord("n1", (R1, R2)), scope("r2")),
        ("record", NodeRecord("n1", (R1,)), NodeRecord("n1", (entry("r1", 20),)), scope("r1")),
        ("record", NodeRecord("n1", (R1, R2)), None, scope("r1", "r2")),
        ("record", NodeRecord("n1", (R1,), version="1"), NodeRecord("n1", (R1,), version="2"), scope()),
        ("record", NodeRecord("n1", (R1,)), BAD, scope(whole="n1")),
        ("record", BAD, NodeRecord("n1", (R1,)), scope(whole="n1")),
        ("node", N1, replace(N1, record=NodeRecord("n1", (R1,))), scope("r1")),
        ("node", N1, replace(N1, allow_scheduling=False), Scope()),
        ("node", N1, node("n1", disk("other")), None),
        ("backing_image", None, "an image", None),
    ],
)
def test_a_change_is_news_of_what_is_another_by_it(
    kind: str, before: object, after: object, expected: Scope | None
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
        is_freed=lambda _entry: False,
        learn=lambda _record, _place, is_written: None,
    )
    heard = list[Scope | None]()
    stores[kind].apply("ADDED", {"metadata": {"name": "x"}, "is": "1"})
    record.keeper.changed = heard.append  # type: ignore[method-assign,assignment]
    stores[kind].apply("MODIFIED", {"metadata": {"name": "x"}, "is": "2"})
    assert [expected] == heard
    assert expected == news_of(kind, before, after)
