"""What is remembered of refused pods costs little, however many nodes they were asked about."""

from __future__ import annotations

from controller.allocator.waiting.refusals import MOST_LISTS, Refusals
from controller.settings import LiveSettings


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


def test_what_time_alone_changes_is_known_beforehand() -> None:
    refusals, live = Refusals(), LiveSettings(remote_fallback_after_seconds=60, starvation_after_seconds=300)
    assert refusals.next_due(1.0, live) is None
    refusals.refused("a", ["node-1"], False, 1.0)
    assert 60 == refusals.next_due(1.0, live)
    assert 240 == refusals.next_due(61.0, live)
    assert refusals.next_due(301.0, live) is None
    refusals.mark_woken("a", 61.0)
    assert 10 == refusals.next_due(61.0, live)
    refusals.refused("a", ["node-1"], False, 61.1)
    assert 0.5 == refusals.next_due(61.0, live)
    assert refusals.next_due(61.5, LiveSettings(remote_fallback_after_seconds=0, starvation_after_seconds=0)) is None
