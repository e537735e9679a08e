"""What is news for replicas without a disk, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.kube.store import Change
from controller.model.allocations import NodeRecord
from controller.model.longhorn import LonghornNode, Replica
from controller.placement.unplaced import News, Unplaced, gives_room
from tests.fakes.builders import GIB, disk, node, replica, volume

DISK = replace(disk("d1"), scheduled_bytes=10, scheduled_replicas={"r": 10}, available_bytes=GIB, path="/d1")
N1 = node("n1", DISK)


def with_disk(**fields: Any) -> LonghornNode:
    return replace(N1, disks=tuple(replace(one, **fields) for one in N1.disks))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (with_disk(scheduled_bytes=9), True),
        (with_disk(scheduled_bytes=11), False),
        (with_disk(scheduled_replicas={}), False),
        (with_disk(available_bytes=GIB + 1), True),
        (with_disk(available_bytes=GIB - 1), False),
        (with_disk(maximum_bytes=N1.disks[0].maximum_bytes + 1), True),
        (with_disk(maximum_bytes=1), False),
        (with_disk(reserved_bytes=1), False),
        (with_disk(schedulable=False), True),
        (with_disk(tags=frozenset({"fast"})), True),
        (replace(N1, allow_scheduling=False), True),
        (replace(N1, zone="z"), True),
        (replace(N1, disks=()), True),
        (replace(N1, record=NodeRecord("n1")), False),
        (None, True),
    ],
)
def test_a_node_gives_room_unless_its_disks_only_got_fuller(after: LonghornNode | None, expected: bool) -> None:
    assert expected is gives_room(N1, after)
    assert gives_room(None, N1)


def changed(old: Replica | None, new: Replica | None) -> list[Change[Replica]]:
    return [Change("longhorn-system/r", old, new)]


def test_replicas_wait_from_their_first_event_until_they_have_a_node() -> None:
    woken = list[int]()
    unplaced = Unplaced(lambda: woken.append(1))
    waits, lies = replica("r", "v"), replica("r", "v", on="n1")
    unplaced.replicas_changed(changed(None, waits))
    assert News({"r": "v"}, frozenset({"r"}), has_room=False) == unplaced.take()
    unplaced.volumes_changed([Change("v", None, volume("v")), Change("w", None, volume("w"))])
    assert News({"r": "v"}, frozenset({"r"}), has_room=False) == unplaced.take()
    assert 2 == len(woken)
    unplaced.replicas_changed(changed(waits, lies))
    assert News({}, frozenset(), has_room=False) == unplaced.take()
    unplaced.volumes_changed([Change("v", None, volume("v"))])
    unplaced.room_came()
    assert 2 == len(woken)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (None, True),
        (replica("r", "v", 1, on="n1"), True),
        (replica("r", "v", on="n2"), True),
        (replica("r", "v", on="n1", failed_at="2026-01-01T00:00:00Z"), True),
        (replica("r", "v", 200, on="n1"), False),
        (replica("r", "v", on="n1", healthy_at="2026-01-01T00:00:00Z"), False),
    ],
)
def test_a_replica_gives_room_when_it_leaves_some(after: Replica | None, expected: bool) -> None:
    unplaced = Unplaced(lambda: None)
    unplaced.replicas_changed(changed(replica("r", "v", on="n1"), after))
    assert expected is unplaced.take().has_room


def test_a_plan_that_changed_touches_its_volumes_replicas_and_wakes_nobody() -> None:
    """Who takes the news tells it."""
    woken = list[int]()
    unplaced = Unplaced(lambda: woken.append(1))
    for name, of in (("r1", "v"), ("r2", "v"), ("r3", "w")):
        unplaced.replicas_changed([Change(name, None, replica(name, of))])
    unplaced.take()
    unplaced.volume_planned("v")
    unplaced.volume_planned("unheard-of")
    assert News({"r1": "v", "r2": "v", "r3": "w"}, frozenset({"r1", "r2"}), has_room=False) == unplaced.take()
    unplaced.replicas_changed([Change("r1", replica("r1", "v"), None)])
    unplaced.volume_planned("v")
    assert News({"r2": "v", "r3": "w"}, frozenset({"r2"}), has_room=False) == unplaced.take()
    assert 1 == len(woken)


def test_they_wait_in_the_order_in_which_they_came() -> None:
    unplaced = Unplaced(lambda: None)
    for name in "zmaq":
        unplaced.replicas_changed([Change(name, None, replica(name, "v"))])
    unplaced.replicas_changed([Change("z", replica("z", "v"), replica("z", "v", failed_at="2026-01-01T00:00:00Z"))])
    assert ["z", "m", "a", "q"] == list(unplaced.take().waiting)


def test_nobody_is_woken_by_news_again_before_they_are_taken() -> None:
    """While placement is off nobody takes them, and there may be some with every event."""
    woken = list[int]()
    unplaced = Unplaced(lambda: woken.append(1))
    for number in range(3):
        unplaced.replicas_changed(changed(None, replica(f"r{number}", "v")))
        unplaced.room_came()
    assert 1 == len(woken)
    unplaced.take()
    unplaced.volumes_changed([Change("v", None, volume("v"))])
    assert 2 == len(woken)
    for number in range(3):
        unplaced.replicas_changed(changed(replica(f"r{number}", "v"), None))
    assert News({}, frozenset(), has_room=False) == unplaced.take(), "what waits no more is no news"
