"""The record moves both ways, whole, also when the command breaks off and is called again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from controller.allocations.backends import LonghornNodeBackend, NodeDiskAllocationBackend, RecordBackend
from controller.allocations.moving import TRIES, Moved, move_records
from controller.errors import ConflictError, UnavailableError, UnreadableRecordError
from controller.kube.resources import LONGHORN_NODES, Resource
from tests.fakes.apiserver import FakeApiServer
from tests.unit.allocations.stage import NAMESPACE, NODES, entry, longhorn, on_record, touch_node

WRITES = ("create", "replace", "patch", "delete")
Places = tuple[FakeApiServer, RecordBackend, RecordBackend]


@pytest.fixture(params=["to object", "to node"])
def places(request: pytest.FixtureRequest) -> Places:
    api = longhorn()
    source: RecordBackend = LonghornNodeBackend(api, NAMESPACE)
    target: RecordBackend = NodeDiskAllocationBackend(api, NAMESPACE)
    if request.param == "to node":
        source, target = target, source
    for name in NODES:
        source.write(source.read(name), [entry(f"r-{name}", 10, name)], 3)
    return api, source, target


def move(source: RecordBackend, target: RecordBackend) -> int:
    return move_records(source, target, lambda _: None).moved


def test_all_goes_over_and_nothing_stays(places: Places) -> None:
    _, source, target = places
    assert 3 == move(source, target)
    assert [{f"r-{name}": 10} for name in NODES] == [on_record(target, name) for name in NODES]
    assert [{}] * 3 == [on_record(source, name) for name in NODES]
    assert 3 == target.read("n1").record.term
    assert 0 == move(source, target)
    assert 3 == move(target, source)


@pytest.mark.parametrize("allowed", range(7))
def test_it_goes_on_where_it_broke_off(places: Places, allowed: int) -> None:
    api, source, target = places
    left = allowed

    def fail(verb: str, _resource: Resource) -> None:
        nonlocal left
        if verb in WRITES:
            left -= 1
            if left < 0:
                raise UnavailableError("503")

    api.fail = fail
    if allowed < 6:
        with pytest.raises(UnavailableError):
            move(source, target)
    else:
        move(source, target)
    api.work()
    for name in NODES:
        assert {f"r-{name}": 10} == on_record(source, name) | on_record(target, name)
    move(source, target)
    assert [{f"r-{name}": 10} for name in NODES] == [on_record(target, name) for name in NODES]
    assert [{}] * 3 == [on_record(source, name) for name in NODES]


def before_writes(api: FakeApiServer, act: Callable[[], None], times: float = math.inf, after: int = 0) -> None:
    """`act` so many times, each right before a write of the move, when so many have been made."""
    seen = 0

    def fail(verb: str, _resource: Resource) -> None:
        nonlocal seen
        seen += verb in WRITES
        if verb in WRITES and after < seen <= after + times:
            api.work()
            act()
            api.fail = fail

    api.fail = fail


@pytest.mark.parametrize("after", range(6))
def test_a_node_that_longhorn_writes_between_two_steps_is_moved_all_the_same(places: Places, after: int) -> None:
    api, source, target = places

    def touch_all() -> None:
        for name in NODES:
            touch_node(api, name)

    before_writes(api, touch_all, 1, after)
    assert 3 == move(source, target)
    assert [{f"r-{name}": 10} for name in NODES] == [on_record(target, name) for name in NODES]
    assert [{}] * 3 == [on_record(source, name) for name in NODES]


def test_a_node_that_is_written_all_the_time_is_told_and_the_next_call_goes_on(places: Places) -> None:
    api, source, target = places
    before_writes(api, lambda: touch_node(api, "n2"))
    with pytest.raises(ConflictError, match=f"the record of n2: somebody else .* {TRIES} tries"):
        move(source, target)
    api.work()
    assert ({}, {"r-n1": 10}) == (on_record(source, "n1"), on_record(target, "n1"))
    assert {"r-n2": 10} == on_record(source, "n2")
    assert ({"r-n3": 10}, {}) == (on_record(source, "n3"), on_record(target, "n3"))
    assert 2 == move(source, target)
    assert [{f"r-{name}": 10} for name in NODES] == [on_record(target, name) for name in NODES]
    assert [{}] * 3 == [on_record(source, name) for name in NODES]


@pytest.mark.parametrize("after", range(2))
def test_an_entry_that_comes_meanwhile_is_moved_too(places: Places, after: int) -> None:
    api, source, target = places

    def add() -> None:
        there = source.read("n1")
        source.write(there, [*there.record.allocations, entry("late")], 3)

    before_writes(api, add, 1, after)
    assert 3 == move(source, target)
    assert ({}, {"r-n1": 10, "late": 10}) == (on_record(source), on_record(target))


def test_a_record_whose_node_is_gone_stays_and_the_others_move() -> None:
    api, lines = longhorn(), list[str]()
    source, target = NodeDiskAllocationBackend(api, NAMESPACE), LonghornNodeBackend(api, NAMESPACE)
    for name in NODES:
        source.write(source.read(name), [entry(f"r-{name}", 10, name)], 3)
    api.delete(LONGHORN_NODES, NAMESPACE, "n2")
    assert Moved(moved=2, stayed=1) == move_records(source, target, lines.append)
    assert [{}, {"r-n2": 10}, {}] == [on_record(source, name) for name in NODES]
    assert [{"r-n1": 10}, {"r-n3": 10}] == [on_record(target, name) for name in ("n1", "n3")]
    (stays,) = (line for line in lines if line.startswith("n2: its record stays in node-disk-allocation"))
    assert "n2" in stays


def test_where_both_have_an_entry_the_larger_counts(places: Places) -> None:
    _, source, target = places
    target.write(target.read("n1"), [entry("r-n1", 30), entry("own", 1)], 9)
    move(source, target)
    assert {"r-n1": 30, "own": 1} == on_record(target)
    assert 9 == target.read("n1").record.term


def test_nothing_is_moved_when_a_record_cannot_be_read(places: Places) -> None:
    api, source, target = places
    api.patch(
        LONGHORN_NODES, NAMESPACE, "n3", {"metadata": {"annotations": {"scheduling.longhorn.io/allocations-term": "3"}}}
    )
    api.patch(LONGHORN_NODES, NAMESPACE, "n3", {"spec": {"diskAllocations": None}})
    with pytest.raises(UnreadableRecordError, match="n3"):
        move(source, target)
    assert {} == on_record(target)


def test_a_node_whose_crd_prunes_the_field_gets_no_record() -> None:
    api = longhorn()
    source, target = NodeDiskAllocationBackend(api, NAMESPACE), LonghornNodeBackend(api, NAMESPACE)
    source.write(source.read("n1"), [entry("r1")], 3)
    real = api.patch

    def pruned(resource: Resource, namespace: str | None, name: str, body: dict[str, object], **more: Any) -> object:
        spec = body.get("spec", {})
        assert isinstance(spec, dict)
        spec.pop("diskAllocations", None)
        return real(resource, namespace, name, body, **more)

    api.patch = pruned  # type: ignore[method-assign,assignment]
    for busy in (0, 1):  # the second time Longhorn writes the Node before its record is taken back
        before_writes(api, lambda: touch_node(api, "n1"), busy, 1)
        with pytest.raises(UnreadableRecordError, match="does not keep"):
            move(source, target)
    assert {"r1": 10} == on_record(source)
    assert {} == on_record(target)
