"""A Longhorn Node that is away for a moment: what was given there before counts on, and is not taken for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_NODES
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import FREES, GIVES, GivingLeader, put_image, wanted
from tests.unit.rpc.late import Late


def hide(leader: GivingLeader, node: str) -> Callable[[], object]:
    """It is back with the function that is returned."""
    api = leader.cell.api
    raw = api.get(LONGHORN_NODES, NAMESPACE, node)
    api.delete(LONGHORN_NODES, NAMESPACE, node)
    leader.see()
    raw["metadata"].pop("resourceVersion")

    def show() -> None:
        api.put(LONGHORN_NODES, NAMESPACE, raw)
        leader.see()

    return show


@pytest.mark.parametrize("is_next", [False, True], ids=["the same leader", "the next leader"])
@pytest.mark.parametrize("what", FREES)
def test_what_was_given_there_is_given_to_nobody_else_when_it_is_back(is_next: bool, what: str) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    show = hide(leader, "n1")
    leader.writer.write("n1", cell.clock.now() + 5)
    if is_next:
        leader.end()
        leader = GivingLeader(cell, has_predecessor=True)
    show()
    assert "" == leader.see().place("w-r-1")
    assert "n1" == GIVES[what](leader)
    assert {what: "n1"} == leader.keep().cell.on_record()


def test_what_is_asked_for_meanwhile_goes_elsewhere_and_stays_there() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    show = hide(leader, "n1")
    assert "n2" == leader.place(first)
    show()
    assert ("n2", "n1") == (leader.place(first), leader.place(second))
    assert {first: "n2", second: "n1"} == leader.keep().cell.on_record()


def test_nor_is_it_given_again_elsewhere_once_its_caller_has_written_it() -> None:
    """Our watch does not show that yet."""
    cell = ReplicaCell(n1=100, n2=90)
    first = cell.add("v", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    hide(leader, "n1")
    cell.change(first, nodeID="n1", diskID="n1-d1")
    with pytest.raises(PreconditionError, match="on no node that Longhorn shows"):
        leader.place(first)
    assert 90 == leader.free_gib("n2")


def test_the_copy_of_an_image_that_is_asked_for_meanwhile_goes_elsewhere_and_both_count() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    put_image(cell, 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.copy_image()
    show = hide(leader, "n1")
    assert "n2" == leader.copy_image()
    show()
    assert (40, 30) == (leader.free_gib(), leader.free_gib("n2"))
    assert leader.copy_image() in ("n1", "n2")
    assert 1 == leader.free_copy("n1")
    assert ("n2", 100) == (leader.copy_image(), leader.free_gib())


def test_a_volume_does_not_grow_while_a_disk_of_it_is_away() -> None:
    cell = ReplicaCell(n1=200, n2=150)
    cell.put_volume("v", 10, numberOfReplicas=2)
    leader = GivingLeader(cell)
    names = [cell.put_replica("v", number) for number in (1, 2)]
    assert ["n1", "n2"] == [leader.see().place(name) for name in names]
    show = hide(leader, "n1")
    with pytest.raises(PreconditionError, match="the disk of replica 'v-r-1' is on no node that Longhorn shows"):
        leader.expand("v", 60)
    show()
    assert "allocated" == leader.expand("v", 60).outcome


def test_room_is_told_to_one_of_two_when_a_slow_call_was_overtaken_by_one_that_moved_it() -> None:
    cell = ReplicaCell(n1=150, n2=100)
    first, second = cell.add("v", 100), cell.add("w", 100)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: leader.place(first))
    show = hide(leader, "n1")
    assert "n2" == leader.place(first)
    show()
    assert "n1" == leader.place(second)
    late.let_go()
    assert "n1" != late.told
    assert {first: "n2", second: "n1"} == leader.see().cell.on_record()
