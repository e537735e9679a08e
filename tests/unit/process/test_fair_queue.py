"""Owners take turns, and who brings much keeps nobody else out."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from controller.process.fair_queue import FairQueue


def filled(most: int = 6, most_each: int = 5, **items: int) -> FairQueue[str, str]:
    """So many items of each owner, in turn."""
    queue: FairQueue[str, str] = FairQueue(most, most_each)
    for owner, count in items.items():
        for number in range(count):
            assert queue.put(owner, f"{owner}{number}", "x") is None
    return queue


def taken(queue: FairQueue[str, str], now: float = 0.0) -> list[str]:
    found = []
    while (one := queue.take(now)) is not None:
        found.append(one[0])
    return found


def test_owners_take_turns_and_each_gives_the_one_that_came_first() -> None:
    assert ["a0", "b0", "a1", "b1", "a2"] == taken(filled(a=3, b=2))


def test_an_owner_may_have_only_so_many_even_where_there_is_room() -> None:
    queue = filled(a=5)
    assert ("a5", "x") == queue.put("a", "a5", "x")
    assert 5 == len(queue)


def test_in_a_full_queue_the_newest_of_who_has_most_makes_room() -> None:
    queue = filled(a=5, b=1)
    assert ("a4", "x") == queue.put("b", "b1", "x")
    assert ("a3", "x") == queue.put("c", "c0", "x")
    assert ("b3", "x") == filled(a=3, b=3).put("b", "b3", "x")  # who has most brings another
    assert ["a0", "b0", "c0", "a1", "b1", "a2"] == taken(queue)


def test_one_that_is_there_is_replaced_and_nothing_dropped() -> None:
    queue = filled(a=5, b=1)
    assert queue.put("a", "a0", "y") is None
    assert ("y", 6) == (queue.get("a", "a0"), len(queue))
    assert queue.get("b", "a0") is None


def test_what_is_not_due_waits_and_keeps_nobody_waiting() -> None:
    queue = filled(b=1)
    queue.put("a", "late", "x", due_at=5.0)
    queue.put("a", "later", "x", due_at=7.0)
    assert ["b0"] == taken(queue, 4.9)
    assert 5.0 == queue.due_at()
    assert ["late", "later"] == taken(queue, 7.0)
    assert math.inf == queue.due_at()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=60))
def test_it_never_has_more_than_it_may_and_loses_nothing_unsaid(steps: list[tuple[str, int, bool]]) -> None:
    queue: FairQueue[str, str] = FairQueue(6, 4)
    there: set[str] = set()
    for owner, number, takes in steps:
        if takes:
            found = queue.take()
            there -= {found[0]} if found is not None else set()
        else:
            key = f"{owner}{number}"
            dropped = queue.put(owner, key, "x")
            there |= {key}
            there -= {dropped[0]} if dropped is not None else set()
        assert len(there) == len(queue) <= 6
        assert all(sum(key[0] == one for key in there) <= 4 for one in "abc")
    assert there == set(taken(queue))
