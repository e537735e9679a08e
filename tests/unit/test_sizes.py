"""That the house does not grow: the figures of `make size`."""

from __future__ import annotations

from controller.allocator.allocator import Allocator
from tests import sizes


def test_every_figure_is_within_its_limit() -> None:
    found = list(sizes.figures())
    assert len(found) > 5
    assert [] == [row for row in found if row[1] > row[2]]


def test_the_walk_is_that_of_a_filter_call() -> None:
    walk = sizes.filter_walk()
    assert ("controller/allocator/allocator.py", Allocator.hold_pod.__qualname__) in walk.functions
    assert "controller/allocator/plans/table.py" in walk.files
    assert not [file for file in walk.files if not file.startswith("controller/")]
