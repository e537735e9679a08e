"""The table of plans and holds: the bytes that are taken on each disk, and what is to be stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.plans.plan import Hold, KeepsOut, Plan, Source
from controller.allocator.plans.table import Table
from controller.model.places import Place

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def place(disk: str, size: int = 10) -> Place:
    return Place(disk[:2], disk, size)


def plan(volume: str, *disks: str, size: int = 10) -> Plan:
    return Plan(volume, f"uid-{volume}", tuple(place(one, size) for one in disks), ("p",), NOW)


def hold(pod: str, nodes: dict[str, dict[str, str]] | None, *, size: int = 10, **anywhere: str) -> Hold:
    """`nodes`: disks by volume, by node."""
    offered = (
        None
        if nodes is None
        else {name: {volume: place(disk, size) for volume, disk in here.items()} for name, here in nodes.items()}
    )
    places = {volume: (place(disk, size),) for volume, disk in anywhere.items()}
    return Hold(pod, Source.FILTER, offered, places, 0.0, NOW)


def taken(table: Table, *disks: str) -> list[int]:
    return [table.taken_bytes(one[:2], one) for one in disks]


def test_a_plan_takes_its_places() -> None:
    table = Table()
    table.put(plan("v", "n1a", "n2a"))
    table.put(plan("w", "n1a"))
    assert [20, 10, 0] == taken(table, "n1a", "n2a", "n3a")
    table.put(plan("v", "n3a"))
    assert [10, 0, 10] == taken(table, "n1a", "n2a", "n3a")
    table.remove("w")
    table.remove("w")
    assert ["n3"] == list(table.taken_by_node())


def test_a_plan_without_places_ends() -> None:
    table = Table()
    table.put(plan("v", "n1a"))
    table.put(plan("v"))
    assert table.plan("v") is None


def test_a_hold_takes_a_disk_on_each_offered_node() -> None:
    table = Table()
    table.put_hold(hold("p", {"n1": {"v": "n1a"}, "n2": {"v": "n2b"}}, w="n3a"))
    assert [10, 10, 10] == taken(table, "n1a", "n2b", "n3a")
    table.put_hold(hold("p", {"n2": {"v": "n2a"}}))
    assert [0, 0, 10, 0] == taken(table, "n1a", "n2b", "n2a", "n3a")
    assert table.end_hold("p") is not None
    assert table.end_hold("p") is None
    assert not table.taken_by_node()


def test_a_chosen_hold_takes_nothing_and_knows_what_was_offered() -> None:
    table = Table()
    asked = hold("p", {"n1": {"v": "n1a"}, "n2": {"v": "n2a"}}, w="n3a")
    table.put_hold(asked.narrowed("n2"))
    kept = table.hold("p")
    assert kept is not None
    assert ("n2", True, True, False) == (kept.chosen, kept.includes("n1"), kept.includes("n2"), kept.includes("n3"))
    assert not table.taken_by_node()


def test_what_a_hold_comes_to_where_a_node_is_chosen() -> None:
    asked = hold("p", {"n1": {"v": "n1a"}, "n2": {}}, w="n3a")
    assert {"v": (place("n1a"),), "w": (place("n3a"),)} == asked.at("n1")
    assert {"w": (place("n3a"),)} == asked.at("n2")
    assert hold("p", None, w="n3a").includes("any")


def test_a_volume_counts_once_on_a_disk_however_many_claim_it() -> None:
    table = Table()
    table.put_hold(hold("p", None, v="n1a"))
    table.put_hold(hold("q", None, v="n1a", size=15))
    table.put(plan("v", "n1a"))
    assert [15] == taken(table, "n1a")
    table.end_hold("q")
    assert [10] == taken(table, "n1a")
    assert ["p"] == [one.pod for one in table.holding("v")]


def test_copies_of_one_volume_on_one_disk_count_each() -> None:
    table = Table()
    table.put(plan("v", "n1a", "n1a"))
    assert [20] == taken(table, "n1a")
    assert 0 == table.taken_bytes("n1", "n1a", ("v",))


def test_who_holds_beside_a_volume_of_its_own() -> None:
    table = Table()
    table.put(plan("v", "n1a"))
    table.put_hold(hold("p", {"n1": {"w": "n1a"}}))
    assert (10, 20, 10) == (
        table.taken_bytes("n1", "n1a", ("v",)),
        table.taken_bytes("n1", "n1a", ("other",)),
        table.planned_bytes("n1", "n1a"),
    )
    assert {"v": 10} == table.planned_on("n1", "n1a")
    assert ["p"] == [one.pod for one in table.holding("w")]
    assert {"v": 10, "w": 10} == table.bytes_by_volume("n1")


def test_what_keeps_out_some_alone_takes_nothing_from_all() -> None:
    table = Table()
    kept = replace(hold("p", {"n1": {"v": "n1a"}}), source=Source.KEPT_ROOM, against=KeepsOut(0))
    table.put_hold(kept)
    assert [0] == taken(table, "n1a")
    assert [kept] == list(table.limited())
    assert kept == table.end_hold("p", Source.KEPT_ROOM)
    assert not table.limited()


def test_holds_of_one_pod_stand_beside_each_other() -> None:
    table = Table()
    table.put_hold(hold("p", {"n1": {"v": "n1a"}}))
    table.put_hold(replace(hold("p", {"n2": {"v": "n2a"}}), source=Source.NOMINATION, against=KeepsOut(0)))
    table.end_hold("p")
    assert table.hold("p", Source.NOMINATION) is not None


def test_changes_are_told_once() -> None:
    table = Table()
    first, held = plan("v", "n1a"), hold("p", None, w="n2a")
    table.put(first)
    table.put_hold(held)
    assert ([("v", first)], [("p", held)], False) == table.take_changes()
    assert ([], [], False) == table.take_changes()
    table.put(first)
    assert [] == table.take_changes().plans
    table.remove("v")
    table.end_hold("p")
    assert ([("v", None)], [("p", None)], True) == table.take_changes()


def test_what_was_loaded_is_no_change() -> None:
    table = Table()
    table.put(plan("old", "n1a"))
    table.put_hold(hold("p", None, w="n3a"))
    table.load([plan("v", "n2a")])
    assert [0, 10, 0] == taken(table, "n1a", "n2a", "n3a")
    assert ([], [], False) == table.take_changes()


def test_a_place_that_is_being_written_stays_in_what_is_stored() -> None:
    table = Table()
    whole = plan("v", "n1a", "n2a")
    table.put(whole)
    table.take_changes()
    table.lend("r", whole, place("n1a"))
    table.put(plan("v", "n2a"))
    ((_, stored),), _, is_freed = table.take_changes()
    assert stored is not None
    assert {"n1a", "n2a"} == {one.disk_uuid for one in stored.places}
    assert not is_freed
    table.give_back("r")
    ((_, stored),) = table.take_changes().plans
    assert stored is not None
    assert ["n2a"] == [one.disk_uuid for one in stored.places]


def test_a_place_that_leaves_without_its_copy_frees_room() -> None:
    table = Table()
    table.put(plan("v", "n1a"))
    table.put(plan("v", "n2a"))
    assert [True, False] == [table.take_changes().is_freed for _ in range(2)]


def test_a_copy_of_some_nodes_and_of_all() -> None:
    table = Table()
    table.put(plan("v", "n1a", "n2a"))
    some, whole = table.on_nodes(["n1"]), table.copy()
    table.clear()
    assert [10, 0] == taken(some, "n1a", "n2a")
    assert [10, 10] == taken(whole, "n1a", "n2a")
    assert not table.taken_by_node()


DISKS = st.sampled_from(["n1a", "n1b", "n2a", "n3a"])
VOLUMES = st.sampled_from(["v", "w", "x"])
PODS = st.sampled_from(["p", "q"])
STEPS = st.one_of(
    st.tuples(st.just("plan"), VOLUMES, st.lists(DISKS, max_size=3), st.integers(1, 5)),
    st.tuples(st.just("hold"), PODS, st.dictionaries(VOLUMES, DISKS, max_size=3), st.integers(1, 5)),
    st.tuples(st.just("end"), PODS, st.none(), st.just(0)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=20))
def test_bytes_are_those_of_what_stands(steps: list[tuple[str, str, list[str] | dict[str, str] | None, int]]) -> None:
    """The sums that are kept agree with sums that are worked out anew, and nothing is left of what has ended."""
    table = Table()
    plans, holds = dict[str, Plan](), dict[str, Hold]()
    for verb, name, what, size in steps:
        if isinstance(what, list):
            plans[name] = plan(name, *what, size=size)
            table.put(plans[name])
        elif isinstance(what, dict):
            nodes = {disk[:2]: {volume: disk} for volume, disk in what.items()}
            holds[name] = hold(name, nodes, size=size, **what)
            table.put_hold(holds[name])
        else:
            assert verb == "end"
            holds.pop(name, None)
            table.end_hold(name)
        for disk in ("n1a", "n1b", "n2a", "n3a"):
            assert _counted(disk, plans, holds) == table.taken_bytes(disk[:2], disk)
        sums = table.taken_by_node()
        assert {node: sum(table.taken_on(node).values()) for node in sums} == sums
    table.clear()
    assert not table.taken_by_node()


def _counted(disk: str, plans: dict[str, Plan], holds: dict[str, Hold]) -> int:
    by_volume: dict[str, dict[str, int]] = {}
    for one in plans.values():
        for there in one.places:
            if there.disk_uuid == disk:
                members = by_volume.setdefault(one.volume, {})
                members[""] = members.get("", 0) + there.size_bytes
    for held in holds.values():
        for volume, there in held.places():
            if there.disk_uuid == disk:
                members = by_volume.setdefault(volume, {})
                members[held.pod] = members.get(held.pod, 0) + there.size_bytes
    return sum(max(members.values()) for members in by_volume.values())
