"""What explains an excess, and that no explanation explains more than it may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.checker import Report
from tests.e2e.explained import ReachRecord, Recorded, merged, reach_records
from tests.fakes.histories import GIB, History, history

Verdict = tuple[dict[str, int], int]  # GiB by explanation, and GiB that nothing explains


def played(steps: str, *disks_gib: int) -> tuple[History, list[ReachRecord]]:
    """Steps of a history on a node n1 with these disks, and what the product recorded: `record CHANGE GIB [NODE DISK]`
    is what it wrote right after the last line."""
    made, records = history(*disks_gib), list[ReachRecord]()
    for step in steps.split("; "):
        if step.startswith("record"):
            _, change, gib, node, disk = (*step.split(), "n1", "d0")[:5]
            records.append(ReachRecord(made.now + 0.1, node, disk, change, int(gib) * GIB))
        else:
            made.play(step)
    return made, records


def verdict_on(report: Report) -> Verdict:
    explained = {name: size // GIB for name, size in report.explained_bytes().items()}
    return explained, sum(violation.unexplained_bytes for violation in report.violations) // GIB


def judged(steps: str, *disks_gib: int, told: str = "", **recorded: Any) -> Verdict:
    """`told`: the pod that was told of discretion."""
    made, records = played(steps, *(disks_gib or (100,)))
    pods = frozenset({made.uid("Pod", told)} if told else ())
    return verdict_on(made.check(recorded=Recorded(records, at_discretion=pods, **recorded)))


# A volume that roams and a local one come to a disk of 100 GiB.
LARGE, SMALL = "chosen large 60 locality=disabled; ", "chosen small 50; "
LANDED = "replica large @large-0 n1 n1-d0 60; replica small @small-0 n1 n1-d0 50"
FILLED = f"node n1 100 scheduled_gib=50; {LARGE}{SMALL}wait; node n1 100; "
TAGGED = "wait; node n1 100 tags=fast,; record retagged 0; wait; "
NOTHING: Verdict = ({}, 10)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(f"{FILLED}wait; {LANDED}", NOTHING, id="nothing without a record"),
        pytest.param(
            f"{FILLED}record more-room 50; wait; {LANDED}", ({"more-room": 10}, 0), id="it was too large before"
        ),
        pytest.param(
            f"{FILLED.replace('=50', '=40')}record more-room 40; wait; {LANDED}", NOTHING, id="it had found room before"
        ),
        pytest.param(
            f"node n1 100 scheduled_gib=50; {LARGE}wait; node n1 100; record more-room 50; wait; {SMALL}{LANDED}",
            NOTHING,
            id="what was promised afterwards",
        ),
        pytest.param(f"{FILLED}record more-room 50 n2; wait; {LANDED}", NOTHING, id="a record of another node"),
        pytest.param(f"{FILLED}record more-room 50 n1 d1; wait; {LANDED}", NOTHING, id="a record of another disk"),
        pytest.param(f"{FILLED}record more-room 49; wait; {LANDED}", NOTHING, id="not what the history shows"),
        pytest.param(
            f"node n1 100 scheduled_gib=50; {LARGE}{SMALL}{LANDED}; wait; node n1 100; record more-room 50",
            NOTHING,
            id="a record long after the replica landed",
        ),
        pytest.param(
            f"node n1 100 is_open=0; {LARGE}{SMALL}wait; node n1 100; record opened 100; wait; {LANDED}",
            ({"opened": 10}, 0),
            id="the disk was closed before",
        ),
        pytest.param(
            f"{LARGE}{SMALL}wait; node n1 100 is_open=0; record closed 0; wait; {LANDED}",
            NOTHING,
            id="a disk that closes was in reach",
        ),
        pytest.param(
            f"node n1 100 is_open=0; node n1 100; record opened 100; hurry; {LARGE}{SMALL}{LANDED}",
            NOTHING,
            id="a change before there was a pod",
        ),
        pytest.param(
            f"{LARGE[:-2]} disk_selector=fast,; {SMALL}{TAGGED}{LANDED}",
            ({"retagged": 10}, 0),
            id="new tags, which it wants",
        ),
        pytest.param(f"{LARGE}{SMALL}{TAGGED}{LANDED}", NOTHING, id="new tags, which it does not want"),
        pytest.param(
            "chosen p 110 locality=disabled; wait; record backing-image 4; wait; replica r @p-0 n1 n1-d0 110",
            ({"backing-image": 4}, 6),
            id="an image, up to its bytes",
        ),
    ],
)
def test_a_change_explains_what_could_not_come_before_it(steps: str, expected: Verdict) -> None:
    assert expected == judged(steps, tolerance_pct=0)


def test_what_is_explained_is_no_complaint() -> None:
    made, records = played(f"{FILLED}record more-room 50; wait; {LANDED}", 100)
    (violation,) = made.check().violations
    assert (10 * GIB, {}) == (violation.unexplained_bytes, violation.explained)
    assert [] == made.check().explained

    report = made.check(recorded=Recorded(records, tolerance_pct=0))
    assert ([], ["node n1"]) == (report.complaints(), [violation.place for violation in report.explained])


P_LANDS = "replica r @p-0 n1 n1-d0 100"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (f"chosen p 100; {P_LANDS}; wait; node n1 80; record lower-limit 20", ({"lower-limit": 20}, 0)),
        (f"chosen p 100; {P_LANDS}; wait; node n1 80; record lower-limit 15", ({"lower-limit": 15}, 5)),
        (f"node n1 80; record lower-limit 20; wait; chosen p 100; {P_LANDS}", ({}, 20)),
    ],
    ids=["all of it", "no more than its bytes", "nothing of what was promised after it"],
)
def test_a_lower_limit_explains_what_was_there(steps: str, expected: Verdict) -> None:
    assert expected == judged(steps)


def own_volumes(beside_gib: int = 0) -> str:
    """Two volumes of 60 GiB of one pod come to one disk of 100, after a volume of another pod."""
    other = f"chosen other {beside_gib}; replica other @other-0 n1 n1-d0 {beside_gib}; " if beside_gib else ""
    return f"{other}wait; chosen p 60 60; replica r0 @p-0 n1 n1-d0 60; replica r1 @p-1 n1 n1-d0 60"


@pytest.mark.parametrize(
    ("beside_gib", "told", "expected"),
    [
        pytest.param(0, "p", ({"discretion": 20}, 0), id="its own volumes on one disk"),
        pytest.param(0, "", ({}, 20), id="not told"),
        pytest.param(10, "other", ({}, 30), id="another pod was told"),
        pytest.param(50, "p", ({"discretion": 60}, 10), id="all of its volumes but the largest"),
    ],
)
def test_discretion_explains_a_pods_own_volumes(beside_gib: int, told: str, expected: Verdict) -> None:
    assert expected == judged(own_volumes(beside_gib), 100, 100, told=told)


def test_a_node_whose_disks_are_judged_by_themselves_is_not_blamed_for_them_again() -> None:
    made, _ = played(f"{own_volumes()}; chosen other 90; replica other @other-0 n1 n1-d1 90", 100, 100)
    report = made.check(recorded=Recorded(at_discretion=frozenset({made.uid("Pod", "p")})))
    assert [] == report.complaints()
    assert {"disk n1-d0 of n1", "node n1"} == {violation.place for violation in report.explained}


LOCAL = "chosen local 50; "
LOCAL_LANDS = "; replica local @local-0 n1 n1-d{} 50"


def roamers(*gib: int) -> str:
    chosen = (f"chosen p{number} {size} locality=disabled" for number, size in enumerate(gib))
    placed = (f"replica r{number} @p{number}-0 n1 n1-d0 {size}" for number, size in enumerate(gib))
    return "; ".join([*chosen, *placed])


@pytest.mark.parametrize(
    ("steps", "pct", "expected"),
    [
        pytest.param(roamers(60, 60), 25, ({"tolerance": 20}, 0), id="volumes that roam"),
        pytest.param(roamers(60, 65), 25, ({"tolerance": 25}, 0), id="just as much"),
        pytest.param(roamers(60, 66), 25, ({"tolerance": 25}, 1), id="too much"),
        pytest.param(roamers(60, 60), 10, ({"tolerance": 10}, 10), id="a smaller one"),
        pytest.param(roamers(60, 60), 0, ({}, 20), id="none"),
        pytest.param(
            roamers(60) + f"; wait; {LOCAL.strip('; ')}" + LOCAL_LANDS.format(0), 25, NOTHING, id="a local one on top"
        ),
        pytest.param(
            f"{LOCAL}{roamers(60).replace('; ', '; wait; ')}" + LOCAL_LANDS.format(0), 25, NOTHING, id="one is pending"
        ),
        pytest.param(
            f"{LOCAL.strip('; ')}{LOCAL_LANDS.format(0)}; wait; {roamers(60)}",
            25,
            ({"tolerance": 10}, 0),
            id="beside a local one that has its disk",
        ),
        pytest.param(
            roamers(60) + "; wait; claim p0-0 110 selected=n1; replica r0 @p0-0 n1 n1-d0 110", 25, NOTHING, id="growth"
        ),
    ],
)
def test_there_is_tolerance_for_volumes_that_roam_unless_a_local_one_waits(
    steps: str, pct: int, expected: Verdict
) -> None:
    assert expected == judged(steps, tolerance_pct=pct)


@pytest.mark.parametrize(("is_placed", "expected"), [(False, ({}, 20)), (True, ({"tolerance": 20}, 0))])
def test_there_is_no_tolerance_while_a_local_volume_is_pending_for_another_disk(
    is_placed: bool, expected: Verdict
) -> None:
    placed = LOCAL_LANDS.format(1)
    first = f"{LOCAL.strip('; ')}{placed if is_placed else ''}; wait; "
    assert expected == judged(f"{first}{roamers(120).replace('; ', '; wait; ')}{placed}", 100, 100)


STRANGER = "chosen stranger 50 asks=0 locality=disabled; replica s @stranger-0 n1 n1-d0 50; "
PROMISED, LANDS = "chosen p 60; ", "replica r @p-0 n1 n1-d0 60"


@pytest.mark.parametrize(
    ("steps", "recorded", "expected"),
    [
        pytest.param(f"{PROMISED}wait; {STRANGER}wait; {LANDS}", {}, ({"unasked": 10}, 0), id="after the promise"),
        pytest.param(
            f"{PROMISED}wait; {STRANGER}wait; {LANDS}",
            {"everybody_asked": True, "tolerance_pct": 0},
            NOTHING,
            id="unless everybody asked",
        ),
        pytest.param(f"{STRANGER}wait; {PROMISED}{LANDS}", {}, NOTHING, id="not what was promised after it"),
    ],
)
def test_a_pod_that_never_asked_explains_its_bytes(steps: str, recorded: dict[str, Any], expected: Verdict) -> None:
    assert expected == judged(steps, **recorded)


@pytest.mark.parametrize(("copies", "expected"), [(1, ({"rebuild": 10}, 0)), (2, NOTHING)])
def test_a_copy_beyond_what_its_volume_wants_is_longhorns_own(copies: int, expected: Verdict) -> None:
    steps = f"node n2 100; chosen rebuilt 50 replicas={copies} locality=disabled; "
    steps += f"replica first @rebuilt-0 n2 n2-d0 50; gone Replica first; {PROMISED}wait; "
    assert expected == judged(f"{steps}replica second @rebuilt-0 n1 n1-d0 50; {LANDS}", tolerance_pct=0)


@pytest.mark.parametrize(("gib", "expected"), [(50, ({"longhorn-copy": 10}, 0)), (40, NOTHING)])
def test_a_recorded_copy_explains_one_replica_of_its_size(gib: int, expected: Verdict) -> None:
    steps = f"chosen copied 50 locality=disabled; {PROMISED}wait; replica c @copied-0 n1 n1-d0 50; "
    assert expected == judged(f"{steps}record longhorn-copy {gib}; wait; {LANDS}", tolerance_pct=0)


def test_records_are_dated_by_their_age_and_kept_once() -> None:
    entry = {"node": "n1", "disk": "d0", "change": "opened", "size_bytes": 7, "age_seconds": 2.5}
    (first,) = reach_records({"reach_changes": [entry]}, 100.0)
    assert ReachRecord(97.5, "n1", "d0", "opened", 7) == first
    again, later = ReachRecord(97.9, "n1", "d0", "opened", 7), ReachRecord(99.0, "n1", "d0", "opened", 7)
    other = ReachRecord(97.5, "n1", "d0", "opened", 8)
    assert [first, other, later] == merged([first, later], [again, other])
