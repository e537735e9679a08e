"""Each verdict on a history written by hand, beside the nearest history that is innocent."""

from __future__ import annotations

import pytest

from tests.judge.chronicle import ADMISSION, LONGHORN, Chronicle
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


@pytest.fixture
def told() -> Chronicle:
    """Two nodes with a disk of 100 GiB each, under a leader."""
    found = Chronicle()
    found.node("a", 100, zone="z1")
    found.node("b", 100, zone="z2")
    found.lead("one")
    found.live(60)
    return found


def found_in(told: Chronicle) -> list[tuple[Found, str, str]]:
    """What, which copy, and its explanation."""
    return [(one.what, one.copy, one.explained) for one in judge(told.entries)]


def fill(told: Chronicle, disk: str, size: int) -> None:
    """By a volume that was there long before."""
    (copy,) = told.volume(f"on-{disk}", size)
    told.place(copy, disk)
    told.live(10)


# Bytes over a limit


@pytest.mark.parametrize(("size", "expected"), [(40, []), (41, [(Found.OVER, "v-r0", "")])])
def test_bytes_beyond_a_limit(told: Chronicle, size: int, expected: list[object]) -> None:
    fill(told, "a-0", 60)
    told.volume("v", size)
    told.place("v-r0", "a-0")
    assert expected == found_in(told)


def test_the_limit_is_longhorns_own(told: Chronicle) -> None:
    told.node("a", 100, reserved=20)
    told.setting("storage-over-provisioning-percentage", "150")
    told.volume("v", 120)
    told.volume("w", 1)
    told.place("v-r0", "a-0")
    assert [] == found_in(told)
    told.live(10)
    told.place("w-r0", "a-0")
    assert [(Found.OVER, "w-r0", "")] == found_in(told)


def test_who_took_it_is_told(told: Chronicle) -> None:
    told.volume("v", 101)
    told.place("v-r0", "a-0")
    (one,) = judge(told.entries)
    text = "over the limit at 12: v-r0 on a/a-0 by 'longhorn-scheduler-extender-one'; 1.000 GiB over 100.000"
    assert text == str(one).replace(str(one.rv), "12")


@pytest.mark.parametrize(("seconds", "explained"), [(4, LOWERED), (6, "")])
def test_a_limit_that_falls_at_the_same_time_explains(told: Chronicle, seconds: int, explained: str) -> None:
    told.volume("v", 80)
    told.node("a", 50)
    told.live(seconds)
    told.place("v-r0", "a-0")
    assert [(Found.OVER, "v-r0", explained)] == found_in(told)


def test_a_limit_that_falls_afterwards_is_told(told: Chronicle) -> None:
    fill(told, "a-0", 80)
    told.node("a", 50)
    told.node("a")
    assert [(Found.OVER, "", LOWERED), (Found.OVER, "", LOWERED)] == found_in(told)


def test_a_deleted_copy_counts_until_it_is_gone(told: Chronicle) -> None:
    fill(told, "a-0", 60)
    told.store("Replica", "on-a-0-r0", metadata={"deletionTimestamp": told.stamp()})
    told.volume("v", 50)
    told.volume("w", 50)
    told.place("v-r0", "a-0")
    told.remove("Replica", "on-a-0-r0")
    told.place("w-r0", "a-0")
    assert [(Found.OVER, "v-r0", "")] == found_in(told)


@pytest.mark.parametrize(("has_image", "expected"), [(True, []), (False, [(Found.OVER, "w-r0", "")])])
def test_a_copy_brings_its_image_once(told: Chronicle, has_image: bool, expected: list[object]) -> None:
    told.image("win", 20, *(["b-0"] if has_image else []))
    for name, disk in (("v", "a-0"), ("w", "b-0")):
        told.volume(name, 80 if name == "v" else 40, backingImage="win")
        told.place(f"{name}-r0", disk)
    told.volume("x", 40 if has_image else 41)
    told.place("x-r0", "b-0")
    assert expected == [(what, "w-r0", why) for what, _, why in found_in(told)]


def test_an_image_that_comes_is_told(told: Chronicle) -> None:
    fill(told, "a-0", 90)
    for _ in range(2):
        told.image("win", 20, "a-0")
    assert [(Found.OVER, "", IMAGE)] == found_in(told)


def test_growth_beyond_a_limit(told: Chronicle) -> None:
    fill(told, "a-0", 60)
    told.change_replica("on-a-0-r0", volumeSize=str(100 * 2**30))
    assert [] == found_in(told)
    told.change_replica("on-a-0-r0", volumeSize=str(101 * 2**30))
    assert [(Found.OVER, "on-a-0-r0", "")] == found_in(told)


def test_growth_under_an_open_gate_is_told(told: Chronicle) -> None:
    fill(told, "a-0", 60)
    told.wait(46)
    told.change_replica("on-a-0-r0", volumeSize=str(101 * 2**30))
    assert [(Found.OVER, "on-a-0-r0", OPEN)] == found_in(told)


@pytest.mark.parametrize(("seconds", "explained"), [(4, UNSEEN), (6, "")])
def test_the_leader_does_not_see_at_once_what_others_placed(told: Chronicle, seconds: int, explained: str) -> None:
    told.volume("v", 60)
    told.mark("v-r0", "left")
    told.volume("w", 60)
    told.place("v-r0", "a-0", LONGHORN)
    told.live(seconds)
    told.place("w-r0", "a-0")
    assert [(Found.FOREIGN, "v-r0", LEFT), (Found.OVER, "w-r0", explained)] == found_in(told)


def test_others_have_no_such_excuse(told: Chronicle) -> None:
    for name in ("v", "w"):
        told.volume(name, 60)
    told.mark("v-r0", "left")
    told.place("v-r0", "a-0", LONGHORN)
    told.place("w-r0", "a-0", LONGHORN)
    assert (Found.OVER, "w-r0", "") in found_in(told)


# Planned bytes


def plan_for_another(told: Chronicle, size: int = 60) -> None:
    """A plan on a-0 for a volume whose Replica is still to come."""
    told.store("Volume", "u", spec={"size": str(size * 2**30)})
    told.plan("u", [("a-0", size)])
    told.wait(1)


@pytest.mark.parametrize(("size", "expected"), [(40, []), (41, [(Found.PLANNED, "v-r0", "")])])
def test_planned_bytes_taken_by_another_volume(told: Chronicle, size: int, expected: list[object]) -> None:
    plan_for_another(told)
    told.volume("v", size)
    told.place("v-r0", "a-0")
    assert expected == found_in(told)


def test_its_own_plan_may_be_taken(told: Chronicle) -> None:
    told.volume("v", 60)
    told.volume("u", 60)
    told.plan("v", [("a-0", 60)])
    told.place("v-r0", "a-0")
    told.wait(0.1)
    told.plan("v", [])
    told.plan("u", [("b-0", 60)])
    told.place("u-r0", "b-0")
    assert [] == found_in(told)


def test_a_plan_is_used_up_by_its_copy_before_it_is_removed(told: Chronicle) -> None:
    told.volume("v", 60)
    told.plan("v", [("a-0", 60)])
    told.volume("w", 40)
    told.place("v-r0", "a-0")
    told.place("w-r0", "a-0")
    told.wait(5)
    assert [] == found_in(told)


def test_a_plan_that_is_written_after_its_copy_keeps_nothing_more(told: Chronicle) -> None:
    told.volume("v", 60)
    told.volume("w", 40)
    told.place("v-r0", "a-0")
    told.plan("v", [("a-0", 60)])
    told.place("w-r0", "a-0")
    told.wait(5)
    assert [] == found_in(told)


@pytest.mark.parametrize("then", [[], [("b-0", 60)]], ids=["ends", "moves"])
@pytest.mark.parametrize(("seconds", "explained"), [(0.5, PLAN_WENT), (3, "")])
def test_a_plan_that_goes_at_that_moment(
    told: Chronicle, then: list[tuple[str, int]], seconds: float, explained: str
) -> None:
    """Its ConfigMap is somewhat older than what the leader knows."""
    plan_for_another(told)
    told.volume("v", 60)
    told.place("v-r0", "a-0")
    told.wait(seconds)
    told.plan("u", then)
    assert [(Found.PLANNED, "v-r0", explained)] == found_in(told)


def test_others_do_not_know_of_a_plan_that_goes(told: Chronicle) -> None:
    plan_for_another(told)
    told.volume("v", 60)
    told.place("v-r0", "a-0", LONGHORN)
    told.plan("u", [])
    assert (Found.PLANNED, "v-r0", "") in found_in(told)


def test_planned_bytes_may_be_taken_beside_what_the_leader_does_not_see_yet(told: Chronicle) -> None:
    plan_for_another(told)
    told.volume("v", 20)
    told.mark("v-r0", "left")
    told.volume("w", 30)
    told.place("v-r0", "a-0", LONGHORN)
    told.place("w-r0", "a-0")
    assert [(Found.FOREIGN, "v-r0", LEFT)] == found_in(told)


def test_a_plan_holds_where_its_disk_has_shrunk(told: Chronicle) -> None:
    told.node("a", 120)
    for name in ("v", "u"):
        told.volume(name, 60)
        told.plan(name, [("a-0", 60)])
    told.node("a", 100)
    told.live(10)
    told.place("v-r0", "a-0")
    assert [] == found_in(told)


@pytest.mark.parametrize(("places", "expected"), [(1, []), (2, [(Found.PLANNED, "w-r0", "")])])
def test_a_plan_that_is_written_again_keeps_what_is_still_to_come(
    told: Chronicle, places: int, expected: list[object]
) -> None:
    """Of several copies on one disk, one has come."""
    told.setting("replica-soft-anti-affinity", "true")
    told.volume("v", 40, copies=2)
    told.plan("v", [("a-0", 40)] * places)
    told.place("v-r0", "a-0")
    told.live(10)
    told.plan("v", [("a-0", 40), ("b-0", 40)])
    told.volume("w", 60)
    told.place("w-r0", "a-0")
    assert expected == found_in(told)


def test_plans_of_volumes_that_are_gone_keep_nothing(told: Chronicle) -> None:
    plan_for_another(told)
    told.remove("Volume", "u")
    told.volume("v", 60)
    told.place("v-r0", "a-0")
    assert [] == found_in(told)


def test_a_claims_plan_keeps_its_bytes_before_there_is_a_volume(told: Chronicle) -> None:
    claim = told.store("PersistentVolumeClaim", "data", "")
    told.plan("pvc-1", [("a-0", 60)], uid=claim["metadata"]["uid"])
    told.volume("v", 60)
    told.place("v-r0", "a-0")
    assert [(Found.PLANNED, "v-r0", "")] == found_in(told)


def test_what_is_no_plan_keeps_nothing(told: Chronicle) -> None:
    told.store("ConfigMap", "longhorn-scheduler-extender-plans-3", "", data={"u": "{", "x": '{"places": 3}'})
    told.volume("v", 100)
    told.place("v-r0", "a-0")
    assert [] == found_in(told)


@pytest.mark.parametrize("first_is_placed", [True, False])
def test_a_further_copy_may_take_planned_bytes(told: Chronicle, first_is_placed: bool) -> None:
    plan_for_another(told)
    told.volume("v", 60, copies=2)
    if first_is_placed:
        told.place("v-r1", "b-0")
    told.place("v-r0", "a-0")
    assert [(Found.PLANNED, "v-r0", FURTHER if first_is_placed else "")] == found_in(told)


# Affinity


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "node"),
        ({"replica-soft-anti-affinity": "true"}, ""),
        ({"replica-soft-anti-affinity": '{"v1":"true"}'}, ""),
        ({"replica-soft-anti-affinity": "true", "replica-disk-soft-anti-affinity": "false"}, "disk"),
        ({"replica-soft-anti-affinity": "true", "replica-zone-soft-anti-affinity": "false"}, "node"),
    ],
)
def test_two_copies_on_one_disk(told: Chronicle, settings: dict[str, str], expected: str) -> None:
    for name, value in settings.items():
        told.setting(name, value)
    told.volume("v", 10, copies=2)
    for name in ("v-r0", "v-r1"):
        told.place(name, "a-0")
    assert ([f"v-r0 is on the same {expected}"] if expected else []) == [one.detail for one in judge(told.entries)]


@pytest.mark.parametrize(("zone", "expected"), [("z1", [(Found.AFFINITY, "v-r1", "")]), ("z3", [])])
def test_two_copies_in_one_zone(told: Chronicle, zone: str, expected: list[object]) -> None:
    told.node("c", 100, zone=zone)
    told.volume("v", 10, copies=2, replicaZoneSoftAntiAffinity="disabled")
    told.place("v-r0", "a-0")
    told.place("v-r1", "c-0")
    assert expected == found_in(told)


@pytest.mark.parametrize(
    "change", [{"failedAt": "2026-01-01T00:00:00Z"}, {"evictionRequested": True}, {"active": False}]
)
def test_a_copy_that_is_on_its_way_out_keeps_nobody_away(told: Chronicle, change: dict[str, object]) -> None:
    told.volume("v", 10, copies=2)
    told.place("v-r0", "a-0")
    told.change_replica("v-r0", **change)
    told.place("v-r1", "a-0")
    assert [] == found_in(told)


def test_balancing_within_a_node_explains(told: Chronicle) -> None:
    told.node("a", 100, 100)
    told.volume("v", 10, copies=2, replicaAutoBalance="best-effort")
    told.place("v-r0", "a-0")
    told.place("v-r1", "a-1")
    assert [(Found.AFFINITY, "v-r1", BALANCE)] == found_in(told)


def test_a_sibling_that_longhorn_has_just_placed_explains(told: Chronicle) -> None:
    told.volume("v", 10, copies=2)
    told.mark("v-r0", "left")
    told.place("v-r0", "a-0", LONGHORN)
    told.place("v-r1", "a-0")
    assert [(Found.FOREIGN, "v-r0", LEFT), (Found.AFFINITY, "v-r1", UNSEEN)] == found_in(told)


# Who placed it


@pytest.mark.parametrize("by", [LONGHORN, PROOF, "kubectl"])
def test_a_place_that_the_leader_did_not_give(told: Chronicle, by: str) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0", by)
    assert [(Found.FOREIGN, "v-r0", "")] == found_in(told)
    assert [] == guilt(judge(told.entries), only_leader_places=False)


@pytest.mark.parametrize(("seconds", "explained"), [(45, ""), (46, OPEN)])
def test_the_gate_opens_by_itself(told: Chronicle, seconds: int, explained: str) -> None:
    told.wait(seconds)
    told.volume("v", 10)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", explained)] == found_in(told)


@pytest.mark.parametrize("renewed", ["", "soon", "2026-13-01T00:00:00Z", "2999-01-01T00:00:00Z"])
def test_a_stamp_that_says_nothing_closes_nothing(told: Chronicle, renewed: str) -> None:
    told.account(told.stamp(), renewed)
    told.wait(10)
    told.volume("v", 10)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", OPEN)] == found_in(told)


def test_without_a_policy_the_gate_is_open(told: Chronicle) -> None:
    told.remove("ValidatingAdmissionPolicy", GATE, ADMISSION)
    told.live(10)
    told.volume("v", 10)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", OPEN)] == found_in(told)


def test_without_a_binding_that_denies_the_gate_is_open(told: Chronicle) -> None:
    told.bind("Audit")
    told.live(10)
    told.volume("v", 10)
    told.place("v-r0", "a-0", LONGHORN)
    told.bind("Deny")
    told.live(10)
    told.volume("w", 10)
    told.place("w-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", OPEN), (Found.FOREIGN, "w-r0", "")] == found_in(told)


@pytest.mark.parametrize(("seconds", "explained"), [(29, ""), (30, AGED)])
@pytest.mark.parametrize("mark", ["", "held"])
def test_a_copy_that_the_leader_has_had_for_long(told: Chronicle, mark: str, seconds: int, explained: str) -> None:
    told.volume("v", 10)
    if mark:
        told.mark("v-r0", mark)
    told.live(seconds)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", "" if mark else explained)] == found_in(told)


@pytest.mark.parametrize(("seconds", "explained"), [(120, ""), (121, AGED_IN_ALL)])
def test_terms_that_change_do_not_keep_a_copy_for_ever(told: Chronicle, seconds: int, explained: str) -> None:
    told.volume("v", 10)
    for number in range(seconds // 10):
        told.live(10)
        told.lead(f"term-{number}")
    told.live(seconds % 10)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", explained)] == found_in(told)


def test_a_twin_is_created_with_its_place(told: Chronicle) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0")
    told.replica("v", "v-twin", nodeID="a", diskID="a-0", active=False)
    assert [(Found.FOREIGN, "v-twin", CREATED)] == found_in(told)


def test_a_place_of_a_former_term(told: Chronicle) -> None:
    told.volume("v", 10)
    told.volume("w", 10)
    told.lead("two")
    told.place("v-r0", "a-0", f"{LEADER}one")
    told.live(10)
    told.place("w-r0", "a-0", f"{LEADER}one")
    assert [(Found.TERM, "w-r0", "")] == found_in(told)


def test_what_longhorn_may_place_alone_it_may_place_anywhere(told: Chronicle) -> None:
    plan_for_another(told)
    told.volume("v", 60)
    told.mark("v-r0", "left")
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", LEFT), (Found.PLANNED, "v-r0", LEFT)] == found_in(told)


@pytest.mark.parametrize(("was_held", "explained"), [(True, AGED), (False, "")])
def test_a_first_copy_has_to_be_held_before_its_age_excuses_it(told: Chronicle, was_held: bool, explained: str) -> None:
    plan_for_another(told)
    told.volume("v", 60)
    if was_held:
        told.mark("v-r0", "held")
        told.wait(300)
        told.mark("v-r0", "held", off=True)
    told.live(30)
    told.place("v-r0", "a-0", LONGHORN)
    assert [(Found.FOREIGN, "v-r0", AGED), (Found.PLANNED, "v-r0", explained)] == found_in(told)


# Twice


def test_a_copy_that_moves(told: Chronicle) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0")
    told.place("v-r0", "b-0")
    assert [(Found.MOVED, "v-r0", "")] == found_in(told)


def test_a_copy_that_is_placed_after_its_place_was_taken_back(told: Chronicle) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0")
    told.change_replica("v-r0", nodeID="", diskID="")
    told.place("v-r0", "a-0")
    assert [(Found.MOVED, "v-r0", "")] == found_in(told)


def test_another_copy_of_the_same_name_is_another_one(told: Chronicle) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0")
    told.remove("Replica", "v-r0")
    told.replica("v", "v-r0")
    told.place("v-r0", "b-0")
    assert [] == found_in(told)


def test_a_copy_that_follows_its_disk(told: Chronicle) -> None:
    told.volume("v", 10)
    told.place("v-r0", "a-0")
    told.node("a")
    told.store("Node", "b", spec={"disks": {"x": {}}}, status={"diskStatus": {"x": {"diskUUID": "a-0"}}})
    told.change_replica("v-r0", nodeID="b")
    assert (Found.MOVED, "v-r0", WITH_ITS_DISK) in found_in(told)


# The history itself


def test_a_gap_cannot_be_judged(told: Chronicle) -> None:
    told.entries.append({**told.entries[0], "type": "GAP", "object": None})
    with pytest.raises(HistoryGap):
        judge(told.entries)


def test_what_was_there_before_was_placed_by_nobody(told: Chronicle) -> None:
    told.volume("v", 200)
    told.place("v-r0", "a-0", LONGHORN)
    line = {**told.entries[-1], "type": "LISTED"}
    assert [] == [one for one in judge([*told.entries[:5], line]) if one.copy]
