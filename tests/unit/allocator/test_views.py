"""What is held, planned and about to grow, as rows and as sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.allocator.outcome import DiskOver, Mode, PromiseView, TableView
from controller.allocator.plans.growths import Growth
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.verbs.views import Sums, rows_of, snapshot_of, sums_of
from controller.model.places import Place

NOW, NOW_UTC = 100.0, datetime(2026, 1, 1, tzinfo=UTC)
OVER = [("n2", "d", 5), ("n1", "d", 4)]


def at(place: str, size: int = 10) -> Place:
    """By "node/disk"."""
    node, disk = place.split("/")
    return Place(node, disk, size)


def plan(*places: Place, pods: tuple[str, ...] = ("p",), age: float = 3) -> Plan:
    return Plan("v", "uid", places, pods, NOW_UTC - timedelta(seconds=age))


def hold(pod: str = "p", *nodes: Place, age: float = 2, source: Source = Source.FILTER, anywhere: Any = ()) -> Hold:
    """Of volume "v" on these nodes, and of "w" anywhere."""
    by_node = {one.node: {"v": one} for one in nodes}
    return Hold(pod, source, by_node, {"w": tuple(anywhere)} if anywhere else {}, NOW - age, NOW_UTC)


def rows(*entries: Plan | Hold | Growth, **claims: str) -> tuple[PromiseView, ...]:
    return rows_of(*by_kind(entries), lambda volume: claims.get(volume, ""), NOW, NOW_UTC)


def by_kind(entries: Iterable[Plan | Hold | Growth]) -> tuple[list[Plan], list[Hold], list[Growth]]:
    found = list(entries)
    return (
        [one for one in found if isinstance(one, Plan)],
        [one for one in found if isinstance(one, Hold)],
        [one for one in found if isinstance(one, Growth)],
    )


def sums(*entries: Plan | Hold | Growth) -> TableView:
    found = sums_of(*by_kind(entries), NOW)
    assert found == sums_over(rows(*entries))
    return snapshot_of((), found, Mode.ACTIVE, refused_count=2, quarantined=["b", "a"], counters={}, over=OVER)


def sums_over(rows: Iterable[PromiseView]) -> Sums:
    held, planned = ([row for row in rows if row.state == state] for state in ("HELD", "PLANNED"))
    ages = (row.age_seconds for row in held if row.kind == "answer")
    sizes = [sum(row.size_bytes for row in found) for found in (held, planned)]
    return Sums(len(held), sizes[0], len(planned), sizes[1], max(ages, default=0.0))


def test_the_sums_are_those_of_the_rows() -> None:
    growth = Growth("v", 50, (("n1", "a", 20), ("n1", "b", 5)), is_held=True, since=NOW - 60)
    entries = (
        plan(at("n2/a"), at("n2/b", 5)),
        hold("p", at("n1/a"), at("n2/a"), anywhere=[at("n3/a", 7), at("n3/b", 2)]),
        hold("q", at("n1/b", 12), age=9, anywhere=[at("n3/a", 8)]),
        hold("r", at("n1/a"), source=Source.KEPT_ROOM, age=500),
        hold("s", at("n1/a"), age=90).narrowed("n1"),
        growth,
        replace(growth, volume="w", is_held=False),
    )
    found = sums(*entries)
    assert (5, 2, 9.0) == (found.held_count, found.planned_count, found.oldest_hold_seconds)


def test_a_plan_is_a_row_on_each_of_its_nodes_with_the_copies_there_together() -> None:
    found = rows(plan(at("n2/a"), at("n1/a"), at("n2/b", 5), pods=("q", "p")), v="ns/data")
    assert (
        PromiseView("v", "ns/data", "n1", "plan", "PLANNED", 10, ("p", "q"), 3.0),
        PromiseView("v", "ns/data", "n2", "plan", "PLANNED", 15, ("p", "q"), 3.0),
    ) == found


def test_what_a_pod_was_offered_is_held_on_each_node_and_what_goes_anywhere_where_it_will_be() -> None:
    found = rows(hold("p", at("n1/a"), at("n2/a"), anywhere=[at("n3/a", 7)]), w="ns/logs")
    assert [("v", "", "n1", 10), ("v", "", "n2", 10), ("w", "ns/logs", "n3", 7)] == [
        (one.volume, one.claim, one.node, one.size_bytes) for one in found
    ]
    assert {("answer", "HELD", ("p",), 2.0)} == {(one.kind, one.state, one.claimants, one.age_seconds) for one in found}


def test_what_several_pods_hold_for_a_volume_is_one_row_at_the_largest_size() -> None:
    (found,) = rows(hold("q", at("n1/a"), age=9), hold("p", at("n1/b", 12), age=1))
    assert PromiseView("v", "", "n1", "answer", "HELD", 12, ("p", "q"), 9.0) == found


def test_a_hold_whose_node_is_chosen_is_no_row() -> None:
    assert () == rows(hold("p", at("n1/a"), at("n2/a")).narrowed("n1"))


@pytest.mark.parametrize("source", [Source.NOMINATION, Source.KEPT_ROOM, Source.WAKE_PLAN])
def test_what_is_kept_for_a_pod_has_its_own_row_and_is_no_old_hold(source: Source) -> None:
    answered, kept = hold("p", at("n1/a")), hold("q", at("n1/a"), source=source, age=500)
    assert {("answer", "HELD", 2.0), (str(source), "HELD", 500.0)} == {
        (one.kind, one.state, one.age_seconds) for one in rows(answered, kept)
    }
    found = sums(answered, kept)
    assert (2, 20, 2.0) == (found.held_count, found.held_bytes, found.oldest_hold_seconds)


@pytest.mark.parametrize(("is_held", "state"), [(True, "HELD"), (False, "PLANNED")])
def test_a_growth_shows_the_bytes_that_copies_gain(is_held: bool, state: str) -> None:
    growth = Growth("v", 50, (("n1", "a", 20), ("n1", "b", 5), ("n2", "a", 20)), is_held=is_held, since=NOW - 60)
    assert [
        PromiseView("v", "ns/data", "n1", "growth", state, 25, (), 60.0),
        PromiseView("v", "ns/data", "n2", "growth", state, 20, (), 60.0),
    ] == list(rows(growth, v="ns/data"))
    assert 0.0 == sums(growth).oldest_hold_seconds


def test_the_sums_tell_what_is_held_from_what_is_planned() -> None:
    found = sums(plan(at("n1/a"), at("n2/a")), hold("q", at("n3/a", 4), age=8))
    assert (1, 4, 2, 20) == (found.held_count, found.held_bytes, found.planned_count, found.planned_bytes)
    assert (8.0, 2, ("a", "b")) == (found.oldest_hold_seconds, found.refused_count, found.quarantined)
    assert (DiskOver("n1", "d", 4), DiskOver("n2", "d", 5)) == found.disks_over
