"""The same process leads, then another one, then the first one again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.errors import NotReadyError, UnavailableError
from tests.unit.placement.stage import PlacingLeader, ReplicaCell

S = 5.0


def lose_answers(leader: PlacingLeader) -> Callable[[], None]:
    """A write arrives, its answer does not, and nothing can be read after it, until the function that is returned."""
    backend: Any = leader.writer._backend
    write, read, is_lost = backend.write, backend.read, False

    def lose(*arguments: Any) -> None:
        nonlocal is_lost
        write(*arguments)
        is_lost = True
        raise UnavailableError("the answer was lost")

    def read_none(*arguments: Any) -> Any:
        if is_lost:
            raise UnavailableError("away")
        return read(*arguments)

    def mend() -> None:
        backend.write, backend.read = write, read

    backend.write, backend.read = lose, read_none
    return mend


def test_what_a_term_owes_is_not_taken_back_in_a_later_one() -> None:
    cell = ReplicaCell(n1=100)
    v, w, x = cell.add("v", 60), cell.add("w", 60), cell.add("x", 10)
    one = PlacingLeader(cell, term=1)
    mend = lose_answers(one)
    with pytest.raises(NotReadyError):
        one.giving.place("v", v, S)
    mend()
    assert cell.on_record() == {v: "n1"}
    one.checks.is_leading = False
    one.cluster.allocator.end_term()
    assert PlacingLeader(cell, term=2).see().giving.place("v", v, S).allocations  # its caller may rely on that
    one.checks.is_leading, one.checks.term = True, 3
    one.see()
    one.cluster.allocator.begin_term(has_predecessor=True)
    one.see()
    assert one.giving.place("x", x, S).allocations  # any write of that node
    one.see()
    assert not one.giving.place("w", w, S).allocations
    assert cell.on_record() == {v: "n1", x: "n1"}
