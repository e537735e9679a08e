"""What is remembered of refused pods costs little, however many nodes they were asked about."""

from __future__ import annotations

from controller.allocator.refusals import MOST_LISTS, Refusals


def candidates_of(refusals: Refusals, uid: str) -> tuple[str, ...]:
    found = refusals.get(uid)
    assert found is not None
    return found.candidates


def test_pods_refused_on_the_same_nodes_share_one_list() -> None:
    refusals = Refusals()
    for uid in ("a", "b"):
        refusals.refused(uid, [f"node-{number}" for number in range(3)], False, 1.0)
    refusals.refused("c", ["node-2"], False, 1.0)

    assert candidates_of(refusals, "a") is candidates_of(refusals, "b")
    assert candidates_of(refusals, "c")[0] is candidates_of(refusals, "a")[2]


def test_lists_that_nobody_refers_to_are_dropped() -> None:
    refusals = Refusals()
    for number in range(3 * MOST_LISTS):
        refusals.refused("a", [f"node-{number}"], False, 1.0)
        assert len(refusals._lists) <= MOST_LISTS
    refusals.drop("a")
    assert not refusals._lists
