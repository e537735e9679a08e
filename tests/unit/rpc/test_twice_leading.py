"""The same process leads, then another one, then the first one again."""

from __future__ import annotations

import pytest

from controller.errors import NotReadyError
from controller.model.allocations import Allocation, Purpose, Put
from tests.fakes.builders import GIB
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import GivingLeader
from tests.unit.rpc.late import SECONDS, Late, arrives, free, lose_answers


def test_what_a_term_owes_is_not_taken_back_in_a_later_one() -> None:
    cell = ReplicaCell(n1=100)
    v, w, x = cell.add("v", 60), cell.add("w", 60), cell.add("x", 10)
    one = GivingLeader(cell, term=1)
    mend = lose_answers(one)
    with pytest.raises(NotReadyError):
        one.giving.place("v", v, SECONDS)
    mend()
    assert cell.on_record() == {v: "n1"}
    one.checks.is_leading = False
    one.cluster.allocator.end_term()
    assert GivingLeader(cell, term=2).see().giving.place("v", v, SECONDS).allocations  # its caller may rely on that
    one.checks.is_leading, one.checks.term = True, 3
    one.see()
    one.cluster.allocator.begin_term(has_predecessor=True)
    one.see()
    assert one.giving.place("x", x, SECONDS).allocations  # any write of that node
    one.see()
    assert not one.giving.place("w", w, SECONDS).allocations
    assert cell.on_record() == {v: "n1", x: "n1"}


def test_what_one_term_frees_on_two_nodes_is_not_freed_in_a_later_one() -> None:
    """As while an entry goes from one node to another."""
    cell = ReplicaCell(n1=100, n2=100)
    v = cell.add("v", 60)
    for node in ("n1", "n2"):
        arrives(cell, v, 60, node=node)
    one = GivingLeader(cell, term=1)
    late = Late(one, lambda: free(one, v))
    told = Allocation(Purpose.REPLICA, v, "n1", "n1-d1", 60 * GIB)
    GivingLeader(cell, term=2).commit(Put(told))
    one.checks.term = 3
    one.cluster.allocator.end_term()
    one.cluster.allocator.begin_term(has_predecessor=True)
    one.see()
    late.let_go()
    assert "term" in late.error
    assert told in cell.entries()
