"""What the leader writes into Replica objects without a disk, when it waits, and what survives a crash between its two
writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from controller.allocator.outcome import Allotment, Mode
from controller.allocator.verbs.allocate import DOUBT_SECONDS
from controller.errors import ClusterError, ConflictError, PreconditionError, UnavailableError
from controller.kube.resources import LONGHORN_NODES, LONGHORN_REPLICAS
from controller.model.allocations import Allocation, Drop, Purpose, Put
from controller.placement.build import OTHERS
from controller.placement.objects import MOST_TRIES
from controller.placement.placer import (
    BACKOFF_SECONDS,
    EVERY_SECONDS,
    MOST_FAILURES,
    MOST_REST_SECONDS,
    REASONS,
    REUSE_SECONDS,
    SEEN_SECONDS,
    SHOWN,
    PlacementOutcome,
)
from controller.process.common_metrics import PREFIX
from controller.settings import LONGHORN, PLACES_NOTHING
from tests.fakes.builders import GIB
from tests.fakes.clock import TickingClock
from tests.unit.placement.stage import NAMESPACE, OFF, ON, PlacingLeader, ReplicaCell, failing

DEGRADED = {"robustness": "degraded", "lastDegradedAt": "2026-01-01T00:00:00Z", "state": "attached"}
DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_a_replica_gets_all_that_longhorn_writes_when_it_places_one() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    before = cell.replica(name)
    leader = PlacingLeader(cell).round()
    found = cell.replica(name)
    assert re.fullmatch("v-[0-9a-f]{8}", found["spec"].pop("dataDirectoryName"))
    placed = {"nodeID": "n1", "diskID": "n1-d1", "diskPath": "/disks/n1"}
    assert {**before["spec"], **placed} == found["spec"]
    assert {"longhornnode": "n1", "longhorndiskuuid": "n1-d1"} == found["metadata"]["labels"]
    assert ({name: "n1"}, 1) == (cell.on_record(), leader.counted("placed"))
    version = found["metadata"]["resourceVersion"]
    leader.round(SEEN_SECONDS)
    assert ({}, version) == (leader.status["waiting"], cell.replica(name)["metadata"]["resourceVersion"])


def test_disks_are_filled_exactly_and_never_over() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    names = [cell.add(f"v{number:02}", 30) for number in range(9)]
    leader = PlacingLeader(cell).round()
    nodes = [cell.node_of(name) for name in names]
    assert (3, 3, 3) == (nodes.count("n1"), nodes.count("n2"), nodes.count(""))
    assert {"no-room": 3} == {why: count for why, count in leader.status["waiting"].items() if why != "written"}
    assert 6 == len(cell.on_record())


# Whether it places at all


def test_switched_off_nothing_is_written() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell, live=OFF).round()
    assert ("", {}, False, "") == (
        cell.node_of(name),
        cell.on_record(),
        leader.status["is_on"],
        leader.status["problem"],
    )
    leader.live = ON
    assert "n1" == leader.round().cell.node_of(name)


def without_the_authority(leader: PlacingLeader) -> None:
    leader.live = replace(ON, allocation_authority=LONGHORN)


def without_a_record(leader: PlacingLeader) -> None:
    leader.has_record = False


def in_bypass(leader: PlacingLeader) -> None:
    leader.checks.mode = Mode.BYPASS


def with_old_stores(leader: PlacingLeader) -> None:
    leader.checks.is_fresh = False


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (without_the_authority, PLACES_NOTHING),
        (without_a_record, "there is no record of allocations in this cluster"),
        (in_bypass, "the scheduler extender is bypassed or switched off"),
        (with_old_stores, "what is known of claim is too old"),
    ],
)
def test_what_keeps_it_from_placing_is_told(spoil: Callable[[PlacingLeader], None], problem: str) -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    spoil(leader)
    leader.round()
    assert ("", problem) == (cell.node_of(name), leader.status["problem"])
    assert {} == cell.on_record()


# When Longhorn would not place it yet


@pytest.mark.parametrize(
    ("volume", "replica", "reason"),
    [
        ({"dataLocality": "best-effort"}, {}, "not-attached"),
        ({"dataLocality": "strict-local"}, {}, "not-attached"),
        ({"meta": DELETING}, {}, "deleted"),
        ({}, {"meta": DELETING}, "deleted"),
        ({"dataLayout": {"type": "sharded"}}, {}, "sharded"),
        ({}, {"failedAt": "2026-01-01T00:00:00Z"}, "failed-replica"),
        ({}, {"active": False}, "inactive-twin"),
    ],
)
def test_a_replica_waits_as_long_as_longhorn_would_not_place_it(
    volume: dict[str, Any], replica: dict[str, Any], reason: str
) -> None:
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", **volume)
    name = cell.put_replica("v", **replica)
    leader = PlacingLeader(cell).round()
    assert ("", {}, {reason: 1}) == (cell.node_of(name), cell.on_record(), leader.status["waiting"])


def test_a_volume_that_is_attached_has_its_replica_placed_there() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    name = cell.add("v", dataLocality="best-effort")
    leader = PlacingLeader(cell).round()
    assert {"not-attached": 1} == leader.status["waiting"]
    cell.put_volume("v", dataLocality="best-effort", nodeID="n2")
    assert "n2" == leader.round().cell.node_of(name)


def test_a_volume_without_an_object_is_waited_for() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.put_replica("v")
    leader = PlacingLeader(cell).round()
    assert {"no-volume": 1} == leader.status["waiting"]
    cell.put_volume("v")
    assert "n1" == leader.round(EVERY_SECONDS).cell.node_of(name)


def test_a_strict_local_replica_is_bound_to_its_volumes_node_first() -> None:
    cell = ReplicaCell(n1=20, n2=100)
    name = cell.add("v", dataLocality="strict-local", nodeID="n1")
    leader = PlacingLeader(cell).round()
    assert ("n1", "", {}) == (cell.replica(name)["spec"]["hardNodeAffinity"], cell.node_of(name), cell.on_record())
    assert "n1" == leader.round().cell.node_of(name)


def test_a_replica_that_is_bound_to_a_node_goes_nowhere_else() -> None:
    cell = ReplicaCell(n1=5, n2=100)
    cell.put_volume("v")
    name = cell.put_replica("v", hardNodeAffinity="n1")
    leader = PlacingLeader(cell).round()
    assert ("", {"no-room": 1}) == (cell.node_of(name), leader.status["waiting"])


def add_degraded(cell: ReplicaCell, *, failed_on: str = "n1") -> str:
    """A volume with a failed replica, and one that is to take its place, whose name this is."""
    cell.put_volume("v", numberOfReplicas=2, nodeID="n2", status=DEGRADED)
    failed: dict[str, Any] = {"failedAt": "2026-01-01T00:00:00Z", "healthyAt": "2025-01-01T00:00:00Z"}
    cell.put_replica("v", 1, nodeID=failed_on, diskID=f"{failed_on}-d1", **failed)
    return cell.put_replica("v", 2, rebuildRetryCount=5)


def test_a_failed_replica_may_come_back_until_a_new_one_is_due() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    cell.put_node("n1", 100, ready=False)
    name = add_degraded(cell)
    leader = PlacingLeader(cell).round()
    assert ("", {"replacement": 1}) == (cell.node_of(name), leader.status["waiting"])
    assert "" == leader.round(599).cell.node_of(name)
    assert "n2" == leader.round(2).cell.node_of(name)


def test_a_failed_replica_that_longhorn_would_reuse_goes_first() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    name = add_degraded(cell)
    cell.clock.advance(601)
    leader = PlacingLeader(cell).round()
    assert ("", {"reuse": 1}) == (cell.node_of(name), leader.status["waiting"])
    assert "" == leader.round(REUSE_SECONDS - 1).cell.node_of(name)
    assert "n2" == leader.round(REUSE_SECONDS).cell.node_of(name)  # it does not, after all


@pytest.mark.parametrize("change", [{"rebuildRetryCount": 0}, {"hardNodeAffinity": "n2"}], ids=["first", "local"])
def test_a_replica_that_is_in_no_failed_ones_place_does_not_wait_for_it(change: dict[str, Any]) -> None:
    """It was made with its volume, or is to lie next to the engine."""
    cell = ReplicaCell(n1=100, n2=100)
    name = add_degraded(cell)
    cell.change(name, **change)
    assert "n2" == PlacingLeader(cell).round().cell.node_of(name)


# No room


def test_without_room_it_is_tried_less_and_less_often() -> None:
    cell = ReplicaCell(n1=5)
    cell.add("v")
    leader = PlacingLeader(cell)
    tried = list[float]()
    for second in range(100):
        before = leader.counted("no-room")
        if leader.round(1).counted("no-room") > before:
            tried.append(second)
    pauses = [after - before for before, after in pairwise(tried)]
    assert [1, 2, 4, 8, 16, 30, 30] == pauses
    assert BACKOFF_SECONDS[1] == pauses[-1]
    (shown,) = leader.status["replicas"]
    assert (8, "no-room") == (shown["tries"], shown["reason"])
    assert shown["detail"].startswith("n1 d1: ")


def larger_disk(cell: ReplicaCell) -> None:
    cell.put_node("n1", 100)


def another_node(cell: ReplicaCell) -> None:
    cell.put_node("n2", 100)


def replica_gone(cell: ReplicaCell) -> None:
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, "old-r-1")


@pytest.mark.parametrize("give", [larger_disk, another_node, replica_gone])
def test_it_is_tried_again_as_soon_as_room_appears(give: Callable[[ReplicaCell], None]) -> None:
    cell = ReplicaCell(n1=30)
    cell.put_volume("old", 20)
    cell.put_replica("old", gib=20, nodeID="n1", diskID="n1-d1")
    name = cell.add("v", 20)
    leader = PlacingLeader(cell)
    for _ in range(100):
        leader.round(1)
    tries = leader.counted("no-room")
    leader.round(1)
    give(cell)
    assert cell.node_of(name) == "" and tries == leader.counted("no-room")
    assert leader.round().cell.node_of(name)


def test_a_disk_that_gets_fuller_is_no_reason_to_try_again() -> None:
    cell = ReplicaCell(n1=30)
    cell.add("v", 40)
    leader = PlacingLeader(cell)
    for _ in range(100):
        leader.round(1)
    tries = leader.counted("no-room")
    cell.put_node("n1", 30, scheduled_gib=10)
    assert tries == leader.round().counted("no-room")


def test_what_goes_from_the_record_makes_room() -> None:
    cell = ReplicaCell(n1=30)
    leader = PlacingLeader(cell)
    leader.commit(Put(Allocation(Purpose.REPLICA, "ghost", "n1", "n1-d1", 20 * GIB)))
    name = cell.add("v", 20)
    leader.round()
    assert {"no-room": 1} == leader.status["waiting"]
    leader.commit(Drop(Purpose.REPLICA, "ghost", "n1", "n1-d1"))
    assert "n1" == leader.round().cell.node_of(name)


@pytest.mark.parametrize("kind", OTHERS)
def test_whatever_else_may_open_a_disk_has_it_tried_again(kind: str) -> None:
    cell = ReplicaCell(n1=30)
    cell.add("v", 40)
    leader = PlacingLeader(cell).round()
    leader.stores[kind].apply("ADDED", {"metadata": {"name": "any"}, "spec": {}, "status": {}})
    leader.placer.run_once()
    assert 2 == leader.counted("no-room")


def test_who_waits_for_longer_gets_the_room() -> None:
    cell = ReplicaCell(n1=5)
    first = cell.add("v", 10)
    leader = PlacingLeader(cell).round()
    second = cell.add("another", 10)
    cell.put_node("n1", 10)
    leader.round()
    assert ("n1", "") == (cell.node_of(first), cell.node_of(second))


def test_tries_that_take_long_are_followed_by_a_rest() -> None:
    cell = ReplicaCell(TickingClock(0.1), n1=5)
    cell.add("v", 40)
    leader = PlacingLeader(cell).round()
    leader.round(BACKOFF_SECONDS[0])
    cell.put_node("n1", 6)
    assert 2 == leader.round().counted("no-room")
    assert 3 == leader.round(MOST_REST_SECONDS).counted("no-room")


def test_many_without_room_leave_most_of_the_time_to_others_and_none_of_them_is_left_out() -> None:
    cell = ReplicaCell(n1=5)
    names = [cell.add(f"v{number}", 10) for number in range(SHOWN)]
    leader = PlacingLeader(cell)
    tried = dict.fromkeys(names, 0)

    def no_room(volume: str, replica: str, seconds: float, *, frees: bool) -> Allotment:
        del volume, seconds, frees
        tried[replica] += 1
        cell.clock.advance(0.25)
        return Allotment()

    leader.giving.place = no_room  # type: ignore[method-assign, assignment]
    start, rested = cell.clock.now(), 0.0
    while cell.clock.now() < start + 600:
        pause = leader.placer.run_once()
        rested += pause
        cell.clock.advance(pause)
    assert 0.75 < rested / 600 < 0.85
    assert 7 < min(tried.values()) <= max(tried.values()) <= 1 + min(tried.values())


def test_a_new_one_does_not_wait_for_the_rest() -> None:
    cell = ReplicaCell(TickingClock(0.1), n1=5)
    cell.add("v", 40)
    leader = PlacingLeader(cell).round()
    leader.round(BACKOFF_SECONDS[0])
    name = cell.add("w", 1)
    assert "n1" == leader.round().cell.node_of(name)


def test_a_round_has_an_end_and_the_next_one_goes_on() -> None:
    cell = ReplicaCell(TickingClock(0.05), n1=500)
    names = [cell.add(f"v{number}", 1) for number in range(10)]
    leader = PlacingLeader(cell).see()
    assert 0.0 == leader.placer.run_once()
    assert 0 < sum(bool(cell.node_of(name)) for name in names) < len(names)
    for _ in names:
        leader.round()
    assert {"n1"} == set(map(cell.node_of, names))


# Others write as well


def test_a_conflict_is_met_with_a_fresh_read() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    writes = 0

    def touch(verb: str, resource: Any) -> None:
        nonlocal writes
        if (verb, resource) == ("patch", LONGHORN_REPLICAS) and writes < MOST_TRIES - 1:
            writes += 1
            cell.api.replace(resource, NAMESPACE, name, cell.replica(name))

    cell.api.fail = touch
    assert "n1" == leader.round().cell.node_of(name)
    assert (MOST_TRIES - 1, 1, 0) == (writes, leader.counted("placed"), leader.counted("failed"))


def test_conflicts_without_end_are_a_failure_and_what_was_decided_stays() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    cell.api.fail = failing(ConflictError("409"), "patch")
    leader.round()
    given = cell.on_record()
    assert ("", 1) == (cell.node_of(name), leader.counted("failed"))
    cell.api.work()
    leader.round(BACKOFF_SECONDS[0])
    assert given == {name: cell.node_of(name)}


def test_a_replica_that_somebody_else_placed_meanwhile_is_left_alone() -> None:
    cell = ReplicaCell(n1=100, n2=5)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    cell.change(name, nodeID="n2", diskID="n2-d1", dataDirectoryName="theirs")  # and our informer lags
    before = cell.replica(name)
    leader.placer.run_once()
    assert (before, 1, 0) == (cell.replica(name), leader.counted("placed-by-others"), leader.counted("placed"))


@pytest.mark.parametrize("change", [{"failedAt": "2026-01-01T00:00:00Z"}, {"hardNodeAffinity": "n2"}])
def test_what_is_no_place_any_more_is_not_written(change: dict[str, str]) -> None:
    cell = ReplicaCell(n1=100, n2=5)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    cell.change(name, **change)  # and our informer lags
    leader.placer.run_once()
    assert ("", {"changed-meanwhile": 1}) == (cell.node_of(name), leader.status["waiting"])


# Leaders that die


def crash_before_the_replica(cell: ReplicaCell, term: int = 1) -> dict[str, str]:
    """A leader that has put its decision on record and writes no Replica any more; what is on record."""
    leader = PlacingLeader(cell, term)
    cell.api.fail = failing(UnavailableError("gone"), "get", "patch")
    leader.round()
    cell.api.work()
    return cell.on_record()


def test_the_next_leader_goes_on_with_the_disk_that_is_on_record() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    name = cell.add("v", 60)
    given = crash_before_the_replica(cell)
    assert [name] == list(given) and "" == cell.node_of(name)
    (taken,) = given.values()
    other = cell.add("w", 60)  # finds the other disk taken by nobody
    cell.put_node("n3", 500)  # a better one, which is not taken
    PlacingLeader(cell, 2).round()
    assert taken == cell.node_of(name) != cell.node_of(other)
    assert given[name] == cell.on_record()[name]


def test_a_place_that_its_volume_has_left_is_given_up() -> None:
    """A strict-local volume is attached elsewhere by the time that the next leader comes."""
    cell = ReplicaCell(n1=100, n2=100)
    cell.put_volume("v", dataLocality="strict-local", nodeID="n1")
    name = cell.put_replica("v", hardNodeAffinity="n1")
    assert {name: "n1"} == crash_before_the_replica(cell)
    cell.put_volume("v", dataLocality="strict-local", nodeID="n2")
    leader = PlacingLeader(cell, 2)
    for _ in range(4):
        leader.round(EVERY_SECONDS)
    assert ("n2", {name: "n2"}) == (cell.node_of(name), cell.on_record())


def node_down(cell: ReplicaCell) -> None:
    cell.put_node("n1", 100, ready=False)


def disk_closed(cell: ReplicaCell) -> None:
    spec = {"disks": {"d1": {"allowScheduling": False}}}
    cell.api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": spec})


def outgrown(cell: ReplicaCell) -> None:
    cell.put_volume("v", 120)


@pytest.mark.parametrize("close", [node_down, disk_closed, outgrown])
def test_a_place_that_takes_no_replicas_any_more_is_given_up_after_a_while(
    close: Callable[[ReplicaCell], None],
) -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    assert {name: "n1"} == crash_before_the_replica(cell)
    close(cell)
    cell.put_node("n2", 200)
    leader = PlacingLeader(cell, 2).round()
    assert ("", {"closed-disk": 1}) == (cell.node_of(name), leader.status["waiting"])
    leader.round(DOUBT_SECONDS)
    assert {} == cell.on_record()
    leader.round(EVERY_SECONDS)
    assert ("n2", {name: "n2"}) == (cell.node_of(name), cell.on_record())


def test_a_place_where_the_replica_lies_after_all_is_not_given_up() -> None:
    """The write of the leader before has arrived, and our informer lags."""
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    crash_before_the_replica(cell)
    cell.put_node("n1", 100, ready=False)
    leader = PlacingLeader(cell, 2).round()
    cell.change(name, nodeID="n1", diskID="n1-d1")
    cell.clock.advance(DOUBT_SECONDS)
    leader.placer.run_once()
    assert ({name: "n1"}, {"changed-meanwhile": 1}) == (cell.on_record(), leader.status["waiting"])
    with pytest.raises(PreconditionError, match="still exists on node n1"):
        leader.see().giving.release(name, 1.0)


def test_a_node_that_comes_back_gets_what_was_decided() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    crash_before_the_replica(cell)
    cell.put_node("n1", 100, ready=False)
    leader = PlacingLeader(cell, 2).round()
    cell.put_node("n1", 100)
    assert "n1" == leader.round().cell.node_of(name)


def test_a_write_that_arrived_without_an_answer_is_not_made_again() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    patch = cell.api.patch

    def lost(*args: Any, **more: Any) -> Any:
        patch(*args, **more)
        raise UnavailableError("no answer")

    cell.api.patch = lost  # type: ignore[method-assign]
    leader.placer.run_once()
    before = cell.replica(name)
    assert ("n1", 1) == (before["spec"]["nodeID"], leader.counted("failed"))
    cell.clock.advance(BACKOFF_SECONDS[0])
    leader.placer.run_once()
    assert (before, 1) == (cell.replica(name), leader.counted("placed"))


def test_nothing_is_written_once_the_term_has_ended() -> None:
    """It ends after the record was written, and before the Replica is."""
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    read = cell.api.get

    def losing(resource: Any, *args: Any, **more: Any) -> Any:
        if resource == LONGHORN_REPLICAS:
            leader.checks.is_leading = False
        return read(resource, *args, **more)

    cell.api.get = losing  # type: ignore[method-assign]
    leader.round()
    assert ("", {name: "n1"}) == (cell.node_of(name), cell.on_record())
    assert 0 == leader.counted("failed")


@pytest.mark.parametrize("change", [{"replica_placement": False}, {"allocation_authority": LONGHORN}], ids=str)
def test_nor_once_it_was_switched_off_or_longhorn_decides(change: dict[str, Any]) -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    read = cell.api.get

    def switching(resource: Any, *args: Any, **more: Any) -> Any:
        if resource == LONGHORN_REPLICAS and cell.on_record():
            leader.live = replace(ON, **change)
        return read(resource, *args, **more)

    cell.api.get = switching  # type: ignore[method-assign]
    leader.round()
    assert ("", {name: "n1"}) == (cell.node_of(name), cell.on_record())


def test_another_term_of_the_same_process_does_not_write_what_the_one_before_decided() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v")
    leader = PlacingLeader(cell)
    read = cell.api.get

    def losing(resource: Any, *args: Any, **more: Any) -> Any:
        if resource == LONGHORN_REPLICAS:
            leader.checks.term = 2
        return read(resource, *args, **more)

    cell.api.get = losing  # type: ignore[method-assign]
    leader.round()
    assert "" == cell.node_of(name)
    leader.round(BACKOFF_SECONDS[0])
    assert "n1" == cell.node_of(name)


def test_a_follower_writes_nothing_and_takes_up_all_when_it_leads() -> None:
    cell = ReplicaCell(n1=100)
    leader = PlacingLeader(cell)
    leader.checks.is_leading = False
    name = cell.add("v")
    assert ("", []) == (leader.round().cell.node_of(name), leader.status["replicas"])
    leader.checks.is_leading = True
    assert "n1" == leader.round(EVERY_SECONDS).cell.node_of(name)


# Failures, and what is told


def test_failures_are_counted_told_and_tried_again() -> None:
    cell = ReplicaCell(n1=100)
    names = [cell.add(f"v{number}", 1) for number in range(MOST_FAILURES + 2)]
    leader = PlacingLeader(cell)
    cell.api.fail = failing(ClusterError("403: not allowed to patch replicas"), "patch")
    leader.round()
    assert MOST_FAILURES == leader.counted("failed")  # what fails so often fails for all
    assert {"failure": MOST_FAILURES, "new": 2} == leader.status["waiting"]
    assert {"403: not allowed to patch replicas", ""} == {one["detail"] for one in leader.status["replicas"]}
    cell.api.work()
    for _ in names:
        leader.round(BACKOFF_SECONDS[0])
    assert {"n1"} == set(map(cell.node_of, names))


def test_a_fault_of_ours_about_one_keeps_no_other_from_being_placed() -> None:
    cell = ReplicaCell(n1=100)
    bad, good = cell.add("bad"), cell.add("good")
    leader = PlacingLeader(cell)
    place = leader.giving.place

    def faulty(volume: str, replica: str, seconds: float, *, frees: bool) -> Any:
        if replica == bad:
            raise KeyError(replica)
        return place(volume, replica, seconds, frees=frees)

    leader.giving.place = faulty  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError):
        leader.placer.run_once()
    leader.round()
    assert ("", "n1") == (cell.node_of(bad), cell.node_of(good))


def test_a_disk_without_a_path_is_a_failure() -> None:
    cell = ReplicaCell(n1=100)
    cell.api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {"disks": {"d1": {"path": ""}}}})
    name = cell.add("v")
    leader = PlacingLeader(cell).round()
    assert ("", {"failure": 1}) == (cell.node_of(name), leader.status["waiting"])
    assert "path of disk n1-d1 of node n1" in leader.status["replicas"][0]["detail"]


def test_the_status_document_names_some_and_counts_all() -> None:
    cell = ReplicaCell(n1=1)
    for number in range(SHOWN + 5):
        cell.add(f"v{number}", 2)
    leader = PlacingLeader(cell).round()
    assert (SHOWN, {"no-room": SHOWN + 5}) == (len(leader.status["replicas"]), leader.status["waiting"])


def test_every_series_exists_from_the_start() -> None:
    leader = PlacingLeader(ReplicaCell())
    for name, label, values in (
        ("placements_total", "outcome", [one.value for one in PlacementOutcome]),
        ("placement_waiting", "reason", REASONS),
    ):
        for value in values:
            assert 0 == leader.registry.get_sample_value(f"{PREFIX}_replica_{name}", {label: value})


def test_what_waits_is_measured() -> None:
    cell = ReplicaCell(n1=1)
    cell.add("v", 2)
    leader = PlacingLeader(cell).round()
    assert 1 == leader.registry.get_sample_value(f"{PREFIX}_replica_placement_waiting", {"reason": "no-room"})
    assert 1 == leader.registry.get_sample_value(f"{PREFIX}_replica_placements_total", {"outcome": "no-room"})
