"""What the judge makes of histories that are written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.plans.plan import Plan
from controller.model.places import Place
from tests.fakes import builders
from tests.fakes.clock import VirtualClock
from tests.places.apiserver import LEADER, LONGHORN, Answer, GateStamps, StoredChange
from tests.places.judge import ARRIVES_SECONDS, MADE_ROOM, WorldFault, WorldJudge

MOVED_AT = 30.0  # when the plan of 60 GiB leaves a disk of 100 GiB
OURS = f"{LEADER}0"
NODES = {name: builders.node(name, builders.disk(free_gib=100)) for name in ("n1", "n2", "n3")}


def test_a_plan_may_make_room_for_a_further_copy_whose_write_is_slow() -> None:
    assert [MADE_ROOM] == why_it_moved()


def test_it_is_a_further_copy_if_the_first_one_was_decided_on_before_and_is_stored_later() -> None:
    assert [MADE_ROOM] == why_it_moved(settled_at=MOVED_AT + 6.0)


@pytest.mark.parametrize(
    "world",
    [
        {"gib": 30},
        {"made_at": MOVED_AT + 0.5},
        {"placed_at": MOVED_AT + ARRIVES_SECONDS + 0.1},
        {"by": f"{LEADER}1"},
        {"by": "longhorn"},
        {"sibling_on": ""},
        {"settled_at": MOVED_AT + ARRIVES_SECONDS + 0.1},
        {"placed_on": "n3"},
    ],
    ids=[
        "it fits beside the plan",
        "it came later",
        "it is placed too late",
        "another leader placed it",
        "Longhorn placed it",
        "it is the first one of its volume",
        "the first one came too late",
        "it lies elsewhere",
    ],
)
def test_no_other_copy_explains_a_move(world: dict[str, Any]) -> None:
    assert [""] == why_it_moved(**world)


def test_a_further_copy_that_longhorn_placed_after_the_gate_opened_was_kept_from_it() -> None:
    assert [WorldFault.FROZEN] == faults_of_a_late_place(room_since=10.0)


def test_nobody_kept_it_from_room_that_has_just_come() -> None:
    assert [] == faults_of_a_late_place(room_since=45.0)


@pytest.mark.parametrize(("left_on", "expected"), [("n1", [WorldFault.PLANNED]), ("n2", [])])
def test_a_copy_took_planned_bytes_only_where_the_place_that_went_was_on_its_disk(
    left_on: str, expected: list[WorldFault]
) -> None:
    """A copy of 30 GiB comes to n1, which is full of plans. One of them moves; `a` loses a place, there or on n2."""
    homes = {node: Place(node, f"{node}-d1", 60 * builders.GIB) for node in ("n1", "n2")}
    two_places = replace(plan_on("n1"), places=tuple(homes.values()))
    one_place = replace(two_places, places=tuple(place for node, place in homes.items() if node != left_on))
    copy = builders.replica("c-1", "c", 30)
    moved = replace(plan_on("n1"), volume="b", uid="uid-b", places=(Place("n1", "n1-d1", 40 * builders.GIB),))
    changes = [
        *(StoredChange(0.0, "node", name, None, node, "somebody") for name, node in NODES.items()),
        StoredChange(20.0, "replica", "c-1", None, copy, LONGHORN),
        StoredChange(25.0, "plan", "a", None, two_places, OURS),
        StoredChange(26.0, "plan", "b", None, moved, OURS),
        StoredChange(30.0, "replica", "c-1", copy, replace(copy, node="n1", disk_uuid="n1-d1"), OURS),
        StoredChange(30.1, "plan", "a", two_places, one_place, OURS),
        StoredChange(30.1, "plan", "b", moved, replace(moved, places=(Place("n3", "n3-d1", 1),)), OURS),
    ]
    judge = WorldJudge()
    judge.read(changes)
    assert expected == [one.fault for one in judge.findings if not one.explained]


def faults_of_a_late_place(*, room_since: float) -> list[WorldFault]:
    """Longhorn is refused at 21 and 42 s, and places at 53 s."""
    there, sibling = builders.replica("c-1", "c", 80, on="n1"), builders.replica("b-1", "b", 50, on="n2")
    copy = builders.replica("b-2", "b", 50)
    changes = [
        *(StoredChange(0.0, "node", name, None, node, "somebody") for name, node in NODES.items()),
        StoredChange(1.0, "replica", "c-1", None, there, LONGHORN),
        StoredChange(2.0, "replica", "b-1", None, sibling, LONGHORN),
        StoredChange(20.0, "replica", "b-2", None, copy, LONGHORN),
        StoredChange(21.0, "look", "b-2", None, Answer.REFUSED, LONGHORN),
        StoredChange(42.0, "look", "b-2", None, Answer.REFUSED, LONGHORN),
        StoredChange(room_since, "replica", "c-1", there, None, LONGHORN),
        StoredChange(52.0, "gate", "", GateStamps(), GateStamps(renewed=52.0), OURS),
        StoredChange(53.0, "replica", "b-2", copy, replace(copy, node="n1", disk_uuid="n1-d1"), LONGHORN),
    ]
    judge = WorldJudge()
    judge.read(sorted(changes, key=lambda one: one.at))
    return [one.fault for one in judge.findings if not one.explained]


def why_it_moved(
    *,
    gib: float = 70,
    made_at: float = 20.0,
    placed_at: float = MOVED_AT + 4.0,
    by: str = OURS,
    sibling_on: str = "n2",
    settled_at: float = 2.0,
    placed_on: str = "n1",
) -> list[str]:
    """The explanations of all findings about plans that moved."""
    sibling, copy = builders.replica("b-1", "b", gib), builders.replica("b-2", "b", gib)
    placed = replace(copy, node=placed_on, disk_uuid=f"{placed_on}-d1")
    changes = [
        *(StoredChange(0.0, "node", name, None, node, "somebody") for name, node in NODES.items()),
        StoredChange(1.0, "replica", "b-1", None, sibling, "longhorn"),
        StoredChange(made_at, "replica", "b-2", None, copy, "longhorn"),
        StoredChange(25.0, "plan", "a", None, plan_on("n1"), OURS),
        StoredChange(MOVED_AT, "plan", "a", plan_on("n1"), plan_on("n3"), OURS),
        StoredChange(placed_at, "replica", "b-2", copy, placed, by),
        StoredChange(60.0, "replica", "b-1", sibling, None, "longhorn"),
    ]
    if sibling_on:
        settled = replace(sibling, node=sibling_on, disk_uuid=f"{sibling_on}-d1")
        changes.append(StoredChange(settled_at, "replica", "b-1", sibling, settled, OURS))
    judge = WorldJudge()
    judge.read(sorted(changes, key=lambda one: one.at))
    return [one.explained for one in judge.findings if one.fault is WorldFault.MOVED]


def plan_on(node: str) -> Plan:
    place = Place(node, f"{node}-d1", 60 * builders.GIB)
    return Plan("a", "uid-a", (place,), ("pod",), VirtualClock().now_utc())
