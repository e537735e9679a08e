"""What explains an excess, and that no explanation explains more than it may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.checker import Report
from tests.e2e.explained import ReachRecord, Recorded, merged, reach_records
from tests.fakes.histories import GIB, History, history

ROAMING: dict[str, Any] = {"locality": "disabled"}


def record(made: History, change: str, gib: int = 0, *, node: str = "n1", disk: str = "d0") -> ReachRecord:
    """What the product recorded when the last line was written."""
    return ReachRecord(made.now + 0.1, node, disk, change, gib * GIB)


def judged(made: History, *reach: ReachRecord, **recorded: Any) -> tuple[dict[str, int], int]:
    """GiB by explanation, and GiB that nothing explains."""
    report = made.check(recorded=Recorded(reach, **recorded))
    return gib_of(report), sum(violation.unexplained_bytes for violation in report.violations) // GIB


def gib_of(report: Report) -> dict[str, int]:
    return {name: size // GIB for name, size in report.explained_bytes().items()}


def replica(made: History, name: str, volume: str, gib: int) -> None:
    made.replica(name, volume, "n1", "n1-d0", gib)


# A change of reach


def after_more_room(was_gib: int, *, is_late: bool = False) -> tuple[History, ReachRecord]:
    """A volume of 60 GiB and one of 50 come to a disk of 100 of which so much was scheduled until all of it went. When
    `is_late`, the cluster chose for the second one only afterwards."""
    made = history(100)
    made.node("n1", 100, scheduled_gib=was_gib)
    (large,) = made.chosen("large", 60, **ROAMING)
    small = [] if is_late else made.chosen("small", 50)
    made.wait()
    made.node("n1", 100)
    found = record(made, "more-room", was_gib)
    made.wait()
    small = small or made.chosen("small", 50)
    replica(made, "large", large, 60)
    replica(made, "small", small[0], 50)
    return made, found


def test_without_records_nothing_explains_an_excess() -> None:
    made, _ = after_more_room(50)
    (violation,) = made.check().violations
    assert (10 * GIB, {}) == (violation.unexplained_bytes, violation.explained)
    assert [] == made.check().explained
    assert ({}, 10) == judged(made, tolerance_pct=0)


def test_more_room_explains_a_replica_that_was_too_large_before() -> None:
    made, found = after_more_room(50)
    assert ({"more-room": 10}, 0) == judged(made, found, tolerance_pct=0)
    report = made.check(recorded=Recorded([found], tolerance_pct=0))
    assert [] == report.complaints()
    assert ["node n1"] == [violation.place for violation in report.explained]


def test_more_room_explains_no_replica_that_would_have_found_room_before() -> None:
    made, found = after_more_room(40)
    assert ({}, 10) == judged(made, found, tolerance_pct=0)


def test_more_room_explains_nothing_to_what_was_promised_after_it() -> None:
    made, found = after_more_room(50, is_late=True)
    assert ({}, 10) == judged(made, found, tolerance_pct=0)


@pytest.mark.parametrize("other", [{"node": "n2"}, {"disk": "d1"}, {"gib": 49}])
def test_a_record_speaks_only_of_its_disk_and_of_what_the_history_shows(other: dict[str, Any]) -> None:
    made, found = after_more_room(50)
    wrong = ReachRecord(
        found.at, other.get("node", "n1"), other.get("disk", "d0"), found.change, other.get("gib", 50) * GIB
    )
    assert ({}, 10) == judged(made, wrong, tolerance_pct=0)


def test_a_record_long_after_the_replica_landed_explains_nothing() -> None:
    made = history(100)
    made.node("n1", 100, scheduled_gib=50)
    (large,) = made.chosen("large", 60, **ROAMING)
    (small,) = made.chosen("small", 50)
    replica(made, "large", large, 60)
    replica(made, "small", small, 50)
    made.wait()
    made.node("n1", 100)
    assert ({}, 10) == judged(made, record(made, "more-room", 50), tolerance_pct=0)


def two_come_after(made: History, change: str, gib: int = 0, **node: Any) -> ReachRecord:
    """Two volumes were chosen, then the node changed so, then both came to its disk of 100 GiB."""
    (large,) = made.chosen("large", 60, **ROAMING)
    (small,) = made.chosen("small", 50)
    made.wait()
    made.node("n1", 100, **node)
    found = record(made, change, gib)
    made.wait()
    replica(made, "large", large, 60)
    replica(made, "small", small, 50)
    return found


def test_a_disk_that_was_closed_before_was_in_nobodys_reach() -> None:
    made = history(100)
    made.node("n1", 100, is_open=False)
    found = two_come_after(made, "opened", 100)
    assert ({"opened": 10}, 0) == judged(made, found, tolerance_pct=0)


def test_a_disk_that_closes_was_in_reach_before() -> None:
    made = history(100)
    found = two_come_after(made, "closed", is_open=False)
    assert ({}, 10) == judged(made, found, tolerance_pct=0)


def test_a_change_before_there_was_a_pod_explains_nothing() -> None:
    made = history(100)
    made.node("n1", 100, is_open=False)
    made.node("n1", 100)
    opened = ReachRecord(made.now, "n1", "d0", "opened", 100 * GIB)
    made.step = 0.1  # the cluster chooses at once
    (large,) = made.chosen("large", 60, **ROAMING)
    (small,) = made.chosen("small", 50)
    replica(made, "large", large, 60)
    replica(made, "small", small, 50)
    assert ({}, 10) == judged(made, opened, tolerance_pct=0)


@pytest.mark.parametrize(("selector", "expected"), [(["fast"], ({"retagged": 10}, 0)), ([], ({}, 10))])
def test_new_tags_explain_only_volumes_that_did_not_suit_before(selector: list[str], expected: object) -> None:
    made = history(100)
    (large,) = made.chosen("large", 60, disk_selector=selector, **ROAMING)
    (small,) = made.chosen("small", 50)
    made.wait()
    made.node("n1", 100, tags=["fast"])
    found = record(made, "retagged")
    made.wait()
    replica(made, "large", large, 60)
    replica(made, "small", small, 50)
    assert expected == judged(made, found, tolerance_pct=0)


@pytest.mark.parametrize(("gib", "unexplained"), [(20, 0), (15, 5)])
def test_a_lower_limit_explains_no_more_than_its_bytes(gib: int, unexplained: int) -> None:
    made = history(100)
    (volume,) = made.chosen("p", 100)
    replica(made, "r", volume, 100)
    made.wait()
    made.node("n1", 80)
    assert ({"lower-limit": 20 - unexplained}, unexplained) == judged(made, record(made, "lower-limit", gib))


def test_a_lower_limit_explains_nothing_to_what_was_promised_after_it() -> None:
    made = history(100)
    made.node("n1", 80)
    found = record(made, "lower-limit", 20)
    made.wait()
    (volume,) = made.chosen("p", 100)
    replica(made, "r", volume, 100)
    assert ({}, 20) == judged(made, found)


def test_an_image_explains_no_more_than_its_bytes() -> None:
    made = history(100)
    (volume,) = made.chosen("p", 110, **ROAMING)
    made.wait()
    found = record(made, "backing-image", 4)
    made.wait()
    replica(made, "r", volume, 110)
    assert ({"backing-image": 4}, 6) == judged(made, found, tolerance_pct=0)


# Discretion


def own_volumes(*, beside_gib: int = 0) -> History:
    """Two volumes of 60 GiB of one pod come to one disk of 100, after a volume of another pod."""
    made = history(100, 100)
    if beside_gib:
        (other,) = made.chosen("other", beside_gib)
        replica(made, "other", other, beside_gib)
    made.wait()
    for number, volume in enumerate(made.chosen("p", 60, 60)):
        replica(made, f"r{number}", volume, 60)
    return made


def test_discretion_explains_that_a_pods_own_volumes_lie_on_one_disk() -> None:
    made = own_volumes()
    told = frozenset({made.uid("Pod", "p")})
    assert ({"discretion": 20}, 0) == judged(made, at_discretion=told)
    assert ({}, 20) == judged(made)


def test_discretion_of_another_pod_explains_nothing() -> None:
    made = own_volumes(beside_gib=10)
    assert ({}, 30) == judged(made, at_discretion=frozenset({made.uid("Pod", "other")}))


def test_discretion_explains_no_more_than_all_of_the_pods_volumes_but_the_largest() -> None:
    made = own_volumes(beside_gib=50)
    assert ({"discretion": 60}, 10) == judged(made, at_discretion=frozenset({made.uid("Pod", "p")}))


# Tolerance


def roamers(*gib: int) -> History:
    made = history(100)
    volumes = [made.chosen(f"p{number}", size, **ROAMING)[0] for number, size in enumerate(gib)]
    for number, volume in enumerate(volumes):
        replica(made, f"r{number}", volume, gib[number])
    return made


@pytest.mark.parametrize(
    ("gib", "pct", "expected"),
    [
        ((60, 60), 25, ({"tolerance": 20}, 0)),
        ((60, 65), 25, ({"tolerance": 25}, 0)),
        ((60, 66), 25, ({"tolerance": 25}, 1)),
        ((60, 60), 10, ({"tolerance": 10}, 10)),
        ((60, 60), 0, ({}, 20)),
    ],
)
def test_volumes_that_roam_may_exceed_a_disk_by_the_tolerance(gib: tuple[int, ...], pct: int, expected: object) -> None:
    assert expected == judged(roamers(*gib), tolerance_pct=pct)


def test_there_is_no_tolerance_for_a_local_volume_that_comes_on_top() -> None:
    made = roamers(60)
    made.wait()
    (local,) = made.chosen("local", 50)
    replica(made, "local", local, 50)
    assert ({}, 10) == judged(made)


def test_there_is_no_tolerance_while_a_local_volume_is_pending() -> None:
    made = history(100)
    (local,) = made.chosen("local", 50)
    (roaming,) = made.chosen("p", 60, **ROAMING)
    made.wait()
    replica(made, "r", roaming, 60)
    replica(made, "local", local, 50)
    assert ({}, 10) == judged(made)


@pytest.mark.parametrize(("is_placed", "expected"), [(False, ({}, 20)), (True, ({"tolerance": 20}, 0))])
def test_there_is_no_tolerance_while_a_local_volume_is_pending_for_another_disk(
    is_placed: bool, expected: object
) -> None:
    made = history(100, 100)
    (local,) = made.chosen("local", 50)
    if is_placed:
        made.replica("local", local, "n1", "n1-d1", 50)
    made.wait()
    (roaming,) = made.chosen("p", 120, **ROAMING)
    made.wait()
    replica(made, "r", roaming, 120)
    made.replica("local", local, "n1", "n1-d1", 50)
    assert expected == judged(made)


def test_there_is_tolerance_beside_a_local_volume_that_has_its_disk() -> None:
    made = history(100)
    (local,) = made.chosen("local", 50)
    replica(made, "local", local, 50)
    made.wait()
    (roaming,) = made.chosen("p", 60, **ROAMING)
    replica(made, "r", roaming, 60)
    assert ({"tolerance": 10}, 0) == judged(made)


def test_there_is_no_tolerance_for_growth() -> None:
    made = roamers(60)
    made.wait()
    made.claim("p0-0", 110, selected="n1")
    replica(made, "r0", f"pvc-{made.uid('PersistentVolumeClaim', 'p0-0')}", 110)
    assert ({}, 10) == judged(made)


# What was never promised


def with_stranger(*, is_before: bool) -> History:
    made = history(100)
    promised: list[str] = [] if is_before else made.chosen("p", 60)
    made.wait()
    (stranger,) = made.chosen("stranger", 50, asks=False, **ROAMING)
    replica(made, "s", stranger, 50)
    made.wait()
    promised = promised or made.chosen("p", 60)
    replica(made, "r", promised[0], 60)
    return made


def test_a_pod_that_never_asked_explains_its_bytes() -> None:
    assert ({"unasked": 10}, 0) == judged(with_stranger(is_before=False))
    assert ({}, 10) == judged(with_stranger(is_before=False), everybody_asked=True, tolerance_pct=0)


def test_a_pod_that_never_asked_explains_nothing_to_what_was_promised_after_it() -> None:
    assert ({}, 10) == judged(with_stranger(is_before=True))


@pytest.mark.parametrize(("copies", "expected"), [(1, ({"rebuild": 10}, 0)), (2, ({}, 10))])
def test_a_copy_beyond_what_its_volume_wants_is_longhorns_own(copies: int, expected: object) -> None:
    made = history(100)
    made.node("n2", 100)
    (rebuilt,) = made.chosen("rebuilt", 50, replicas=copies, **ROAMING)
    made.replica("first", rebuilt, "n2", "n2-d0", 50)
    made.gone("Replica", "first")
    (promised,) = made.chosen("p", 60)
    made.wait()
    replica(made, "second", rebuilt, 50)
    replica(made, "r", promised, 60)
    assert expected == judged(made, tolerance_pct=0)


@pytest.mark.parametrize(("gib", "expected"), [(50, ({"longhorn-copy": 10}, 0)), (40, ({}, 10))])
def test_a_recorded_copy_explains_one_replica_of_its_size(gib: int, expected: object) -> None:
    made = history(100)
    (copied,) = made.chosen("copied", 50, **ROAMING)
    (promised,) = made.chosen("p", 60)
    made.wait()
    replica(made, "c", copied, 50)
    found = record(made, "longhorn-copy", gib)
    made.wait()
    replica(made, "r", promised, 60)
    assert expected == judged(made, found, tolerance_pct=0)


def test_a_node_whose_disks_are_judged_by_themselves_is_not_blamed_for_them_again() -> None:
    made = own_volumes()
    (other,) = made.chosen("other", 90)
    made.replica("other", other, "n1", "n1-d1", 90)
    report = made.check(recorded=Recorded(at_discretion=frozenset({made.uid("Pod", "p")})))
    assert [] == report.complaints()
    assert {"disk n1-d0 of n1", "node n1"} == {violation.place for violation in report.explained}


# Records


def test_records_are_dated_by_their_age_and_kept_once() -> None:
    entry = {"node": "n1", "disk": "d0", "change": "opened", "size_bytes": 7, "age_seconds": 2.5}
    (first,) = reach_records({"reach_changes": [entry]}, 100.0)
    assert ReachRecord(97.5, "n1", "d0", "opened", 7) == first
    again, later = ReachRecord(97.9, "n1", "d0", "opened", 7), ReachRecord(99.0, "n1", "d0", "opened", 7)
    other = ReachRecord(97.5, "n1", "d0", "opened", 8)
    assert [first, other, later] == merged([first, later], [again, other])
