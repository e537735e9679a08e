"""Each verdict on a history written by hand, beside the nearest history that is innocent."""

from __future__ import annotations

import pytest

from tests.judge.chronicle import LONGHORN, Chronicle
from tests.judge.facts import GATE, LEADER, PROOF
from tests.judge.gate_seen import AGED, AGED_IN_ALL, LEFT, OPEN
from tests.judge.judge import (
    BALANCE,
    CREATED,
    FURTHER,
    IMAGE,
    LOWERED,
    PLAN_WENT,
    UNSEEN,
    WITH_ITS_DISK,
    Found,
    HistoryGap,
    guilt,
    judge,
)

Verdict = tuple[Found, str, str]  # what, which copy, and its explanation
OVER, PLANNED, AFFINITY, FOREIGN = Found.OVER, Found.PLANNED, Found.AFFINITY, Found.FOREIGN

FULL = "volume old {}; place old-r0 a-d0; live 10; "  # a-d0, with so many GiB that were there long before
LIMIT_120 = "node a 100 reserved=20; setting storage-over-provisioning-percentage 150; "
PLAN = "volume u 60 copies=0; plan u a-d0:60; wait 1; "  # for a volume whose Replica is still to come
BY_LONGHORN = f"place v-r0 a-d0 {LONGHORN}"
IMAGES = "volume v 80 backingImage=win; place v-r0 a-d0; volume w 40 backingImage=win; place w-r0 b-d0; "
SOFT = "setting replica-soft-anti-affinity true; "
TWO_PLANNED = SOFT + "volume v 40 copies=2; plan v {}; place v-r0 a-d0; live 10; "
BESIDE = "plan v a-d0:40 b-d0:40; volume w 60; place w-r0 a-d0"
LEFT_60 = f"volume v 60; mark v-r0 left; volume w 60; {BY_LONGHORN}; "

ZONED = "2027-01-15T08:01:00+00:00"  # a moment ago, in a form that the policy does not read

BYTES: dict[str, tuple[str, list[Verdict]]] = {
    "a disk may be full": (FULL.format(60) + "volume v 40; place v-r0 a-d0", []),
    "not more than full": (FULL.format(60) + "volume v 41; place v-r0 a-d0", [(OVER, "v-r0", "")]),
    "the limit is Longhorn's own": (
        LIMIT_120 + "volume v 120; volume w 1; place v-r0 a-d0; live 10; place w-r0 a-d0",
        [(OVER, "w-r0", "")],
    ),
    "a limit that fell a moment ago": ("volume v 80; node a 50; live 4; place v-r0 a-d0", [(OVER, "v-r0", LOWERED)]),
    "a limit that fell long ago": ("volume v 80; node a 50; live 6; place v-r0 a-d0", [(OVER, "v-r0", "")]),
    "a limit that falls afterwards is nobody's guilt": (
        FULL.format(80) + "node a 50; node a",
        [(OVER, "", LOWERED), (OVER, "", LOWERED)],
    ),
    "a copy brings its image once": ("image win 20 b-d0; " + IMAGES + "volume x 40; place x-r0 b-d0", []),
    "a copy brings its image": ("image win 20; " + IMAGES + "volume x 41; place x-r0 b-d0", [(OVER, "x-r0", "")]),
    "an image that comes is nobody's guilt": (
        FULL.format(90) + "image win 20 a-d0; image win 20 a-d0",
        [(OVER, "", IMAGE)],
    ),
    "growth up to the limit and beyond": (
        FULL.format(60) + "grow old-r0 100; grow old-r0 101",
        [(OVER, "old-r0", "")],
    ),
    "growth under an open gate": (FULL.format(60) + "wait 46; grow old-r0 101", [(OVER, "old-r0", OPEN)]),
    "the leader does not see at once what others placed": (
        LEFT_60 + "live 4; place w-r0 a-d0",
        [(FOREIGN, "v-r0", LEFT), (OVER, "w-r0", UNSEEN)],
    ),
    "it sees that in the end": (
        LEFT_60 + "live 6; place w-r0 a-d0",
        [(FOREIGN, "v-r0", LEFT), (OVER, "w-r0", "")],
    ),
    "others have no such excuse": (
        LEFT_60 + f"place w-r0 a-d0 {LONGHORN}",
        [(FOREIGN, "v-r0", LEFT), (FOREIGN, "w-r0", ""), (OVER, "w-r0", "")],
    ),
}
PLANS: dict[str, tuple[str, list[Verdict]]] = {
    "beside a plan": (PLAN + "volume v 40; place v-r0 a-d0", []),
    "more than is left beside a plan": (PLAN + "volume v 41; place v-r0 a-d0", [(PLANNED, "v-r0", "")]),
    "its own plan may be taken": (
        "volume v 60; volume u 60; plan v a-d0:60; place v-r0 a-d0; wait 0.1; plan v; plan u b-d0:60; place u-r0 b-d0",
        [],
    ),
    "a plan is used up by its copy before it is removed": (
        "volume v 60; plan v a-d0:60; volume w 40; place v-r0 a-d0; place w-r0 a-d0; wait 5",
        [],
    ),
    "a plan that is written after its copy keeps nothing more": (
        "volume v 60; volume w 40; place v-r0 a-d0; plan v a-d0:60; place w-r0 a-d0; wait 5",
        [],
    ),
    "a plan that ends at that moment": (
        PLAN + "volume v 60; place v-r0 a-d0; wait 0.5; plan u",
        [(PLANNED, "v-r0", PLAN_WENT)],
    ),
    "a plan that moves at that moment": (
        PLAN + "volume v 60; place v-r0 a-d0; wait 0.5; plan u b-d0:60",
        [(PLANNED, "v-r0", PLAN_WENT)],
    ),
    "a plan that ends later": (PLAN + "volume v 60; place v-r0 a-d0; wait 3; plan u", [(PLANNED, "v-r0", "")]),
    "a plan that moves later": (PLAN + "volume v 60; place v-r0 a-d0; wait 3; plan u b-d0:60", [(PLANNED, "v-r0", "")]),
    "others do not know of a plan that goes": (
        PLAN + f"volume v 60; {BY_LONGHORN}; plan u",
        [(FOREIGN, "v-r0", ""), (PLANNED, "v-r0", "")],
    ),
    "planned bytes beside what the leader does not see yet": (
        PLAN + f"volume v 20; mark v-r0 left; volume w 30; {BY_LONGHORN}; place w-r0 a-d0",
        [(FOREIGN, "v-r0", LEFT)],
    ),
    "plans on a disk that has shrunk": (
        "node a 120; volume v 60; plan v a-d0:60; volume u 60; plan u a-d0:60; node a 100; live 10; place v-r0 a-d0",
        [],
    ),
    "a plan that is written again keeps what is still to come": (TWO_PLANNED.format("a-d0:40") + BESIDE, []),
    "of two copies on one disk one is still to come": (
        TWO_PLANNED.format("a-d0:40 a-d0:40") + BESIDE,
        [(PLANNED, "w-r0", "")],
    ),
    "a plan that is written long after a copy came is for another one": (
        SOFT + "volume v 40 copies=2; place v-r0 a-d0; live 10; plan v a-d0:40; volume w 30; place w-r0 a-d0",
        [(PLANNED, "w-r0", "")],
    ),
    "plans of volumes that are gone keep nothing": (PLAN + "remove Volume u; volume v 60; place v-r0 a-d0", []),
    "a further copy may take planned bytes": (
        PLAN + "volume v 60 copies=2; place v-r1 b-d0; place v-r0 a-d0",
        [(PLANNED, "v-r0", FURTHER)],
    ),
    "one whose sibling has no place is no further copy": (
        PLAN + "volume v 60 copies=2; place v-r0 a-d0",
        [(PLANNED, "v-r0", "")],
    ),
}
TWO_OF_V = "volume v 10 copies=2; place v-r0 a-d0; "
IN_ZONES = "node c 100 zone={}; volume v 10 copies=2 replicaZoneSoftAntiAffinity=disabled; place v-r0 a-d0; "
SIBLINGS: dict[str, tuple[str, list[Verdict]]] = {
    "two copies in one zone": (IN_ZONES.format("z1") + "place v-r1 c-d0", [(AFFINITY, "v-r1", "")]),
    "two copies in two zones": (IN_ZONES.format("z3") + "place v-r1 c-d0", []),
    "one that failed": (TWO_OF_V + "change v-r0 failedAt=2026-01-01T00:00:00Z; place v-r1 a-d0", []),
    "one that is evicted": (TWO_OF_V + "change v-r0 evictionRequested=True; place v-r1 a-d0", []),
    "one that is not active": (TWO_OF_V + "change v-r0 active=False; place v-r1 a-d0", []),
    "Longhorn balances within a node": (
        "node a 100 100; volume v 10 copies=2 replicaAutoBalance=best-effort; place v-r0 a-d0; place v-r1 a-d1",
        [(AFFINITY, "v-r1", BALANCE)],
    ),
    "one that Longhorn has just placed excuses Longhorn of nothing": (
        f"volume v 10 copies=2; mark v-r0 left; {BY_LONGHORN}; place v-r1 a-d0 {LONGHORN}",
        [(FOREIGN, "v-r0", LEFT), (FOREIGN, "v-r1", ""), (AFFINITY, "v-r1", "")],
    ),
    "one that Longhorn has just placed": (
        f"volume v 10 copies=2; mark v-r0 left; {BY_LONGHORN}; place v-r1 a-d0",
        [(FOREIGN, "v-r0", LEFT), (AFFINITY, "v-r1", UNSEEN)],
    ),
}
TERMS = "volume v 10; " + "".join(f"live 10; lead term-{number}; " for number in range(12))
PLACERS: dict[str, tuple[str, list[Verdict]]] = {
    "a gate that is still closed": (f"wait 45; volume v 10; {BY_LONGHORN}", [(FOREIGN, "v-r0", "")]),
    "a gate that opens by itself": (f"wait 46; volume v 10; {BY_LONGHORN}", [(FOREIGN, "v-r0", OPEN)]),
    "no policy": (
        f"remove ValidatingAdmissionPolicy {GATE}; live 10; volume v 10; {BY_LONGHORN}",
        [(FOREIGN, "v-r0", OPEN)],
    ),
    "a binding that does not deny": (
        f"bind Audit; live 10; volume v 10; {BY_LONGHORN}; bind Deny; live 10; volume w 10; place w-r0 a-d0 {LONGHORN}",
        [(FOREIGN, "v-r0", OPEN), (FOREIGN, "w-r0", "")],
    ),
    "a young copy": (f"volume v 10; live 29; {BY_LONGHORN}", [(FOREIGN, "v-r0", "")]),
    "one that the leader has had for long": (f"volume v 10; live 30; {BY_LONGHORN}", [(FOREIGN, "v-r0", AGED)]),
    "one that is held": (f"volume v 10; mark v-r0 held; live 30; {BY_LONGHORN}", [(FOREIGN, "v-r0", "")]),
    "a copy of many terms": (TERMS + BY_LONGHORN, [(FOREIGN, "v-r0", "")]),
    "one that is older than all terms may hold it": (
        TERMS + f"live 1; {BY_LONGHORN}",
        [(FOREIGN, "v-r0", AGED_IN_ALL)],
    ),
    "a twin is created with its place": (
        "volume v 10; place v-r0 a-d0; replica v v-twin nodeID=a diskID=a-d0 active=False",
        [(FOREIGN, "v-twin", CREATED)],
    ),
    "a place of a former term": (
        f"volume v 10; volume w 10; lead two; place v-r0 a-d0 {LEADER}one; live 10; place w-r0 a-d0 {LEADER}one",
        [(Found.TERM, "w-r0", "")],
    ),
    "what Longhorn may place alone it may place anywhere": (
        PLAN + f"volume v 60; mark v-r0 left; {BY_LONGHORN}",
        [(FOREIGN, "v-r0", LEFT), (PLANNED, "v-r0", LEFT)],
    ),
    "a first copy that was held is excused by its age": (
        PLAN + f"volume v 60; mark v-r0 held; wait 300; mark v-r0 held off=True; live 30; {BY_LONGHORN}",
        [(FOREIGN, "v-r0", AGED), (PLANNED, "v-r0", AGED)],
    ),
    "one that was never held is not": (
        PLAN + f"volume v 60; live 30; {BY_LONGHORN}",
        [(FOREIGN, "v-r0", AGED), (PLANNED, "v-r0", "")],
    ),
    "a copy that moves": ("volume v 10; place v-r0 a-d0; place v-r0 b-d0", [(Found.MOVED, "v-r0", "")]),
    "a copy that is placed after its place was taken back": (
        "volume v 10; place v-r0 a-d0; change v-r0 nodeID=- diskID=-; place v-r0 a-d0",
        [(Found.MOVED, "v-r0", "")],
    ),
    "another copy of the same name is another one": (
        "volume v 10; place v-r0 a-d0; remove Replica v-r0; replica v v-r0; place v-r0 b-d0",
        [],
    ),
}
VERDICTS = BYTES | PLANS | SIBLINGS | PLACERS


@pytest.fixture
def told() -> Chronicle:
    """Two nodes with a disk of 100 GiB each, under a leader."""
    found = Chronicle()
    found.play("node a 100 zone=z1; node b 100 zone=z2; lead one; live 60")
    return found


def found_in(told: Chronicle) -> list[Verdict]:
    return [(one.what, one.copy, one.explained) for one in judge(told.entries)]


@pytest.mark.parametrize(("steps", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_a_history_has_its_verdict(told: Chronicle, steps: str, expected: list[Verdict]) -> None:
    told.play(steps)
    assert expected == found_in(told)


def test_who_took_it_is_told(told: Chronicle) -> None:
    told.play("volume v 101; place v-r0 a-d0")
    (one,) = judge(told.entries)
    text = "over the limit at 12: v-r0 on a/a-d0 by 'longhorn-scheduler-extender-one'; 1.000 GiB over 100.000"
    assert text == str(one).replace(str(one.rv), "12")


def test_a_deleted_copy_counts_until_it_is_gone(told: Chronicle) -> None:
    told.play(FULL.format(60))
    told.store("Replica", "old-r0", metadata={"deletionTimestamp": told.stamp()})
    told.play("volume v 50; volume w 50; place v-r0 a-d0; remove Replica old-r0; place w-r0 a-d0")
    assert [(OVER, "v-r0", "")] == found_in(told)


def test_a_claims_plan_keeps_its_bytes_before_there_is_a_volume(told: Chronicle) -> None:
    claim = told.store("PersistentVolumeClaim", "data")
    told.plan("pvc-1", "a-d0:60", uid=claim["metadata"]["uid"])
    told.play("volume v 60; place v-r0 a-d0")
    assert [(PLANNED, "v-r0", "")] == found_in(told)


def test_what_is_no_plan_keeps_nothing(told: Chronicle) -> None:
    told.store("ConfigMap", "longhorn-scheduler-extender-plans-3", data={"u": "{", "x": '{"places": 3}'})
    told.play("volume v 100; place v-r0 a-d0")
    assert [] == found_in(told)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "node"),
        ("setting replica-soft-anti-affinity true", ""),
        ('setting replica-soft-anti-affinity {"v1":"true"}', ""),
        ("setting replica-soft-anti-affinity true; setting replica-disk-soft-anti-affinity false", "disk"),
        ("setting replica-soft-anti-affinity true; setting replica-zone-soft-anti-affinity false", "node"),
    ],
)
def test_two_copies_on_one_disk(told: Chronicle, settings: str, expected: str) -> None:
    told.play(settings)
    told.play("volume v 10 copies=2; place v-r0 a-d0; place v-r1 a-d0")
    assert ([f"v-r0 is on the same {expected}"] if expected else []) == [one.detail for one in judge(told.entries)]


@pytest.mark.parametrize("by", [LONGHORN, PROOF, "kubectl"])
def test_a_place_that_the_leader_did_not_give(told: Chronicle, by: str) -> None:
    told.play(f"volume v 10; place v-r0 a-d0 {by}")
    assert [(FOREIGN, "v-r0", "")] == found_in(told)
    assert [] == guilt(judge(told.entries), only_leader_places=False)


@pytest.mark.parametrize("renewed", ["", "soon", "2026-13-01T00:00:00Z", "2999-01-01T00:00:00Z", ZONED])
def test_a_stamp_that_says_nothing_closes_nothing(told: Chronicle, renewed: str) -> None:
    told.account(told.stamp(), renewed)
    told.play(f"wait 10; volume v 10; {BY_LONGHORN}")
    assert [(FOREIGN, "v-r0", OPEN)] == found_in(told)


def test_a_copy_that_follows_its_disk(told: Chronicle) -> None:
    told.play("volume v 10; place v-r0 a-d0; node a")
    told.store("Node", "b", spec={"disks": {"x": {}}}, status={"diskStatus": {"x": {"diskUUID": "a-d0"}}})
    told.change("v-r0", nodeID="b")
    assert (Found.MOVED, "v-r0", WITH_ITS_DISK) in found_in(told)


def test_a_gap_cannot_be_judged(told: Chronicle) -> None:
    told.entries.append({**told.entries[0], "type": "GAP", "object": None})
    with pytest.raises(HistoryGap):
        judge(told.entries)


def test_what_was_there_before_was_placed_by_nobody(told: Chronicle) -> None:
    told.play(f"volume v 200; {BY_LONGHORN}")
    line = {**told.entries[-1], "type": "LISTED"}
    assert [] == [one for one in judge([*told.entries[:5], line]) if one.copy]
