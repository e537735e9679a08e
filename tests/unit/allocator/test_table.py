"""The table of plans and holds: the bytes that are taken on each disk, and what is to be stored."""

from __future__ import annotations

from collections import Counter
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


def test_a_plan_without_places_ends() -> None:
    table = Table()
    table.put(plan("v", "n1a"))
    table.put(plan("v"))
    assert table.plan("v") is None


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


def test_what_keeps_out_some_alone_takes_nothing_from_all() -> None:
    table = Table()
    kept = replace(hold("p", {"n1": {"v": "n1a"}}), source=Source.KEPT_ROOM, keeps_out=KeepsOut(0))
    table.put_hold(kept)
    assert [0] == taken(table, "n1a")
    assert [kept] == list(table.limited())
    assert kept == table.end_hold("p", Source.KEPT_ROOM)
    assert not table.limited()


def test_holds_of_one_pod_stand_beside_each_other() -> None:
    table = Table()
    table.put_hold(hold("p", {"n1": {"v": "n1a"}}))
    table.put_hold(replace(hold("p", {"n2": {"v": "n2a"}}), source=Source.NOMINATION, keeps_out=KeepsOut(0)))
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
    some, whole = table.on_nodes(["n1"]), Table.of(table.plans(), table.all_holds())
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
    """A volume counts once on a disk, at the most that its plan or a hold takes there, and copies of one plan count
    each. The sums that are kept agree, and nothing is left of what has ended."""
    table = Table()
    plans, holds = dict[str, Plan](), dict[str, Hold]()
    for _, name, what, size in steps:
        if isinstance(what, list):
            plans[name] = plan(name, *what, size=size)
            table.put(plans[name])
        elif isinstance(what, dict):
            nodes = {disk[:2]: {volume: disk} for volume, disk in what.items()}
            holds[name] = hold(name, nodes, size=size, **what)
            table.put_hold(holds[name])
        else:
            assert (holds.pop(name, None) is None) is (table.end_hold(name) is None)
        by_node = {name: Counter[str]() for name in ("n1", "n2", "n3")}
        for disk in ("n1a", "n1b", "n2a", "n3a"):
            volumes = counted(disk, plans, holds)
            by_node[disk[:2]] += Counter(volumes)
            assert sum(volumes.values()) == table.taken_bytes(disk[:2], disk)
            planned = counted(disk, plans, {})
            assert planned == table.planned_on(disk[:2], disk)
            assert sum(planned.values()) - planned.get("v", 0) == table.planned_bytes(disk[:2], disk, "v")
            for volume in ("v", "w", "x"):
                others = sum(volumes.values()) - volumes.get(volume, 0)
                assert others == table.taken_bytes(disk[:2], disk, (volume, "unknown"))
        assert {name: sizes.total() for name, sizes in by_node.items() if sizes} == table.taken_by_node()
        assert list(by_node.values()) == [table.bytes_by_volume(name) for name in by_node]
        for volume in ("v", "w", "x"):
            assert sorted(pod for pod, one in holds.items() if one.has_place_of(volume)) == [
                one.pod for one in table.holding(volume)
            ]
    table.clear()
    assert not table.taken_by_node()


def counted(disk: str, plans: dict[str, Plan], holds: dict[str, Hold]) -> dict[str, int]:
    """Bytes on that disk by volume."""
    found = {
        one.volume: sum(there.size_bytes for there in one.places if there.disk_uuid == disk) for one in plans.values()
    }
    for held in holds.values():
        sizes = Counter[str]()
        for volume, there in held.places():
            sizes[volume] += there.size_bytes if there.disk_uuid == disk else 0
        for volume, size in sizes.items():
            found[volume] = max(size, found.get(volume, 0))
    return {volume: size for volume, size in found.items() if size}
