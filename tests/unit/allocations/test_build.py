"""Which nodes' records are looked at again after which change, and what the parts of the record know of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.allocations.backends import LonghornNodeBackend, NodeDiskAllocationBackend
from controller.allocations.build import LeaderGate, RecordParts, build_record
from controller.allocations.keeper import Scope, news_of
from controller.election.gate import Gate
from controller.follow.kinds import FOLLOWED
from controller.kube.resources import CRDS
from controller.kube.store import Store
from controller.model.allocations import NodeRecord
from controller.model.longhorn import BackingImage
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import disk, node, replica
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import BACKENDS, NAMESPACE, Answered, entry, longhorn, nodes_crd, on_record, put

KINDS = ("node", "replica", "volume", "backing_image", "record")
N1 = node("n1", disk("d1"))


R1, R2 = entry("r1"), entry("r2")
BAD = NodeRecord("n1", problem="garbage")


class Leading:
    """A gate that is open, in a term of a Lease that counts anew."""

    term, is_open = 1, True

    def check(self) -> None: ...


def built(
    api: FakeApiServer,
    stores: dict[str, Store[Any]],
    clock: VirtualClock,
    gate: LeaderGate,
    live: Callable[[], LiveSettings] = LiveSettings,
) -> RecordParts:
    return build_record(
        api,
        NAMESPACE,
        clock,
        gate,
        stores,
        CollectorRegistry(),
        openings=lambda: 1,
        settings=live,
        is_fresh=lambda: True,
        answers=Answered(),
        learn=lambda _record, _place, is_written: None,
    )


def followed(api: FakeApiServer) -> dict[str, Store[Any]]:
    """As its watches show it."""
    stores: dict[str, Store[Any]] = {kind.name: Store(kind.name, kind.parse) for kind in FOLLOWED}
    for kind in FOLLOWED:
        raws = api.list_page(kind.resource, NAMESPACE if kind.in_longhorn else None).items
        stores[kind.name].replace(raws)
    return stores


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
        ("backing_image", None, BackingImage("i"), Scope(images=frozenset("i"))),
    ],
)
def test_a_change_is_news_of_what_is_another_by_it(
    kind: str, before: object, after: object, expected: Scope | None
) -> None:
    facts = {"1": before, "2": after}
    stores: dict[str, Store[Any]] = {name: Store(name, lambda raw: facts[raw["is"]]) for name in KINDS}
    clock = VirtualClock()
    record = built(longhorn(), stores, clock, Gate(clock))
    heard = list[Scope | None]()
    stores[kind].apply("ADDED", {"metadata": {"name": "x"}, "is": "1"})
    record.keeper.changed = heard.append  # type: ignore[method-assign,assignment]
    stores[kind].apply("MODIFIED", {"metadata": {"name": "x"}, "is": "2"})
    assert [expected] == heard
    assert expected == news_of(kind, before, after)


@pytest.mark.parametrize("made", BACKENDS)
@pytest.mark.parametrize("has_field", [False, True])
def test_the_latest_term_is_known_before_anybody_has_looked_where_the_record_is(made: Any, has_field: bool) -> None:
    """The Lease of the term on record is gone. Metrics and /status ask before the first look, and the place may become
    the other one within a term."""
    api, clock = longhorn(), VirtualClock()
    api.put(CRDS, None, nodes_crd(has_field=has_field))
    backend = made(api, NAMESPACE)
    backend.write(backend.read("n1"), [entry("a")], 7)
    record = built(api, followed(api), clock, Leading())
    record.addition.status()
    record.holder.look()
    writer = record.holder.known_writer()
    assert writer is not None
    writer.commit([put("b")], clock.now() + 5)
    place = (LonghornNodeBackend if has_field else NodeDiskAllocationBackend)(api, NAMESPACE)
    assert 8 == place.read("n1").record.term


def test_the_former_place_is_left_alone_while_the_record_is_not_kept_or_another_process_leads() -> None:
    api, clock = longhorn(), VirtualClock()
    api.put(CRDS, None, nodes_crd(has_field=True))
    former = NodeDiskAllocationBackend(api, NAMESPACE)
    former.write(former.read("n1"), [entry("a")], 1)
    lives = [LiveSettings(allocation_record=False), LiveSettings(allocation_authority=DISK_SCHEDULER)]
    gate, stores = Leading(), followed(api)
    record = built(api, stores, clock, gate, lambda: lives[0])
    record.holder.look()
    lives.pop(0)
    gate.is_open = False
    record.holder.look()
    assert {"a": 10} == on_record(former)
    gate.is_open = True
    record.holder.look()
    assert ({}, {"a": 10}) == (on_record(former), on_record(LonghornNodeBackend(api, NAMESPACE)))
