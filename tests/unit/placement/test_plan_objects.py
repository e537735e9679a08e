"""Entries in ConfigMaps, shown by plans: what is written when, what a new leader finds, and what becomes of what others
leave there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.clock import SystemClock
from controller.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotLeaderError,
    UnavailableError,
)
from controller.kube.resources import CONFIG_MAPS
from controller.model.names import TERM_ANNOTATION
from controller.placement.plan_entries import (
    KEY,
    LABELS,
    MAX_LINE_BYTES,
    SHARDS,
    encode,
    plan_key,
    read,
)
from controller.placement.plan_objects import GATHER_SECONDS, LOOK_SECONDS, REMOVE_SECONDS, PlanFigures, PlanObjects
from controller.placement.plan_shard import BACKOFF_SECONDS, COMPANY_BYTES, MAX_SHARD_BYTES, PlanShard
from tests.fakes.apiserver import FakeApiServer
from tests.longhorn.options import GIB
from tests.unit.placement.plan_stage import FIRST, NAMES, NAMESPACE, PlanSite, Raw, hold, neighbours, plan
from tests.waiting import wait_until


@pytest.fixture
def site() -> PlanSite:
    return PlanSite()


# The usual


def test_a_plan_is_written_as_one_line_of_compact_json(site: PlanSite) -> None:
    leader = site.leader(term=7)
    leader.put(plan("pvc-1", "d1", "d2"))
    site.pass_time(leader, GATHER_SECONDS)
    raw = site.raw(FIRST)
    assert raw["data"] == {
        "plans": '{"volume":"pvc-1","uid":"uid-pvc-1",'
        '"places":[["node-d1","d1",10737418240],["node-d2","d2",10737418240]],'
        '"pods":["pod-0"],"since":"2026-01-01T00:00:00Z"}\n'
    }
    assert raw["metadata"]["labels"] == LABELS
    assert raw["metadata"]["annotations"][TERM_ANNOTATION].startswith("7-")


def test_plans_that_come_together_share_one_write(site: PlanSite) -> None:
    leader = site.leader()
    before, names = site.writes(), neighbours(5)
    for name in names:
        leader.put(plan(name))
    site.pass_time(leader, GATHER_SECONDS - 0.01)
    assert before == site.writes()
    site.pass_time(leader, 0.01)
    assert (before + 1, set(names)) == (site.writes(), site.volumes())
    assert replace(leader.figures(), size_bytes=0, fullest_bytes=0) == PlanFigures(plans=5, shards=SHARDS, commits=1)


def test_a_plan_that_has_ended_is_removed_with_the_next_write_or_after_a_while(site: PlanSite) -> None:
    leader = site.leader("a", "b")
    before = site.writes()
    leader.remove(plan_key("a"))
    leader.put(plan("c"))
    site.pass_time(leader, GATHER_SECONDS)
    assert (before + 1, {"b", "c"}) == (site.writes(), site.volumes())
    leader.remove(plan_key("b"))
    site.pass_time(leader, REMOVE_SECONDS - 0.01)
    assert before + 1 == site.writes()
    site.pass_time(leader, 0.01)
    assert (before + 2, {"c"}) == (site.writes(), site.volumes())


def test_many_plans_are_spread_and_each_stays_where_it_stands(site: PlanSite) -> None:
    names = neighbours(2_000)
    leader = site.leader(*names)
    stand = {name: site.volumes_in(name) for name in NAMES}
    sizes = [len(volumes) for volumes in stand.values() if volumes]
    assert 4 == len(sizes) and COMPANY_BYTES > 0.9 * max(sizes) * len(encode(plan("v0")))
    leader.put(*(plan(name, "d2") for name in names))
    site.pass_time(leader, GATHER_SECONDS)
    assert stand == {name: site.volumes_in(name) for name in NAMES}


def test_a_place_that_has_ended_waits_for_company_and_another_one_does_not(site: PlanSite) -> None:
    leader = site.leader()
    leader.put(plan("v0", "d1", "d2", "d2"))
    site.pass_time(leader, GATHER_SECONDS)
    before = site.writes()
    leader.put(plan("v0", "d2"))
    site.pass_time(leader, REMOVE_SECONDS - 0.01)
    assert before == site.writes()
    site.pass_time(leader, 0.01)
    assert [["node-d2", "d2", 10 * GIB]] == site.written()["v0"]["places"]
    leader.put(plan("v0", "d3"))
    site.pass_time(leader, GATHER_SECONDS)
    assert [["node-d3", "d3", 10 * GIB]] == site.written()["v0"]["places"]


def test_nothing_is_written_of_what_changes_nothing(site: PlanSite) -> None:
    leader = site.leader("a")
    before = site.writes()
    leader.put(plan("a"), plan("b"))
    leader.remove(plan_key("b"), plan_key("never"))
    site.pass_time(leader, REMOVE_SECONDS)
    assert (before, 0) == (site.writes(), leader.figures().unwritten)


def test_at_a_clean_stop_everything_is_written_at_once_or_is_said_to_be_lost(site: PlanSite) -> None:
    leader = site.leader()
    leader.put(plan("a"), plan("b"))
    leader.remove(plan_key("a"))
    assert leader.flush(1.0)
    assert {"b"} == site.volumes()
    leader.put(plan("c"))
    site.api.fail_with(UnavailableError("away"))
    assert not leader.flush(1.0)


def test_before_the_first_load_nothing_is_written(site: PlanSite) -> None:
    objects = site.new()
    objects.put(plan("a"))
    site.clock.advance(1)
    assert objects.run_once() is None
    assert not objects.flush(1.0)
    assert site.writes() == 0


def test_the_thread_writes_soon_after_a_plan_came() -> None:
    api = FakeApiServer()
    objects = PlanObjects(api, NAMESPACE, SystemClock(), lambda _term: None)
    objects.load(1)
    objects.start()
    try:
        objects.put(plan("a"))
        wait_until(lambda: objects.figures().commits == 1, "the plan in its ConfigMap", 10)
    finally:
        objects.stop()


# The next leader


def test_a_new_leader_changes_every_config_map_even_in_a_term_of_the_same_number(site: PlanSite) -> None:
    """The API server gives no new version to what is written as it stands there."""

    def marks() -> list[str]:
        site.leader()
        return [site.raw(name)["metadata"]["annotations"][TERM_ANNOTATION] for name in NAMES]

    assert all(former != later for former, later in zip(marks(), marks(), strict=True))


@pytest.mark.parametrize("verb", ["replace", "create"])
def test_a_late_write_of_a_former_leader_is_refused(site: PlanSite, verb: str) -> None:
    holds = [True]
    former = site.new(lambda _term: _check(holds[0]))
    former.load(1)
    former.put(plan("v0", "d1"))
    if verb == "create":
        site.api.objects.clear()

    def take_over() -> None:
        holds[0] = False
        site.leader(term=2)

    site.before(verb, take_over)
    site.pass_time(former, GATHER_SECONDS)
    assert (False, set(), 1) == (holds[0], site.volumes(), former.figures().unwritten)


def test_what_a_former_leader_writes_during_the_load_is_loaded(site: PlanSite) -> None:
    former = site.leader()
    former.put(plan("v0"))
    site.before("replace", lambda: former.flush(1.0))
    assert (plan("v0"),) == site.new().load(2).plans
    assert {"v0"} == site.volumes()


@pytest.mark.parametrize("verb", ["get", "replace"])
def test_a_load_that_fails_changes_nothing_in_memory_and_nothing_is_written_any_more(site: PlanSite, verb: str) -> None:
    leader = site.leader()
    leader.put(plan("v0"))
    site.api.fail_with(UnavailableError("away"), verb)
    with pytest.raises(UnavailableError):
        leader.load(2)
    assert leader.figures().plans == 1
    site.api.work()
    before = site.writes()
    assert leader.run_once() is None
    assert not leader.flush(1.0)
    assert before == site.writes()


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("get", ForbiddenError("403: no right")),
        ("create", ForbiddenError("403: no right")),
        ("create", NotFoundError("404: namespaces")),
        ("create", ClusterError("422: invalid")),
    ],
)
def test_without_a_right_a_term_begins_without_plans_and_stores_its_own_once_it_can(
    site: PlanSite, verb: str, error: ClusterError
) -> None:
    site.api.fail_with(error, verb)
    leader = site.leader()
    assert "cannot be read or made" in leader.figures().last_problem
    leader.put(plan("a"))
    site.pass_time(leader, GATHER_SECONDS)
    assert (1, 0) == (leader.figures().unwritten, leader.figures().commits)
    site.api.work()
    site.pass_time(leader, BACKOFF_SECONDS[1])
    assert ({"a"}, 0) == (site.volumes(), leader.figures().unwritten)


@pytest.mark.parametrize("verb", ["get", "replace"])
def test_one_config_map_that_is_refused_costs_its_own_plans_at_most(site: PlanSite, verb: str) -> None:
    names = neighbours(1_000)
    site.leader(*names)
    in_first = set(site.volumes_in(FIRST))
    site.refuse(FIRST, verb)
    found = {one.volume for one in site.new().load(2).plans}
    assert set(names) - found == (in_first if verb == "get" else set())


def test_a_process_that_leads_again_leaves_alone_what_was_stored_meanwhile(site: PlanSite) -> None:
    leads = [1]

    def check(term: int) -> None:
        _check(term == leads[0])

    first, other = site.new(check), site.new(check)
    first.load(1)
    first.put(plan("v0"))
    first.flush(1.0)
    leads[0] = 2
    other.load(2)
    other.remove(plan_key("v0"))
    other.put(plan("v1"))
    other.flush(1.0)
    leads[0] = 3
    site.pass_time(first, LOOK_SECONDS)
    assert ({"v1"}, 0, "") == (site.volumes(), first.figures().overwritten, first.figures().last_problem)
    assert (plan("v1"),) == first.load(3).plans


def test_nothing_is_loaded_or_written_while_the_term_does_not_hold(site: PlanSite) -> None:
    holds = [True]
    leader = site.new(lambda _term: _check(holds[0]))
    leader.load(1)
    before = site.writes()
    leader.put(plan("a"))
    holds[0] = False
    site.pass_time(leader, LOOK_SECONDS)
    assert (before, False) == (site.writes(), leader.flush(1.0))
    holds[0] = True
    site.pass_time(leader, 1.0)
    assert {"a"} == site.volumes()
    before, holds[0] = site.writes(), False
    with pytest.raises(NotLeaderError):
        leader.load(1)
    assert before == site.writes()


def _check(holds: bool) -> None:
    if not holds:
        raise NotLeaderError("another process leads")


# What others leave there

GOOD = json.loads(encode(plan("v0")))
DAMAGED = {
    "not-json": "{",
    "unknown-field": json.dumps({**GOOD, "until": 5}),
    "huge": json.dumps({**GOOD, "places": [["n", "d", 1]] * 100_000}),
    "hold": encode(hold("p", "n1")).replace("[0]", "[1]"),
}  # all that a line may have wrong: test_plan_entries.py


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_line_is_told_and_removed(site: PlanSite, line: str, caplog: pytest.LogCaptureFixture) -> None:
    other = plan("v1")
    site.put(data={KEY: f"{line}\n{encode(other)}\n"})
    objects = site.new()
    found = objects.load(2)
    assert (other,) == found.plans
    assert f"{FIRST}: line 1: " in caplog.text
    site.pass_time(objects, 0)
    assert ({other.volume}, 1) == (site.volumes(), objects.figures().overwritten)


def test_a_line_that_somebody_has_formatted_is_a_plan(site: PlanSite, caplog: pytest.LogCaptureFixture) -> None:
    site.put(data={KEY: f"\n {json.dumps(GOOD)}"})
    site.spoil(metadata={"labels": dict(LABELS)})
    found = site.new().load(2)
    assert ((plan("v0"),), []) == (found.plans, caplog.messages)


@pytest.mark.parametrize("immutable", [False, True])
def test_keys_and_marks_of_others_stay_also_where_an_immutable_config_map_is_made_again(
    site: PlanSite, immutable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{encode(plan('v0'))}\n"
    data, binary = {"ca.crt": "x", "Plans": "{"}, {"picture": "AAAA"}
    labels = {"theirs": "x", "app.kubernetes.io/name": "other"}
    site.put(immutable=immutable, data={**data, KEY: text}, binaryData=binary)
    site.spoil(metadata={"labels": labels, "annotations": {"theirs": "y"}, "finalizers": ["theirs/z"]})
    objects = site.new()
    assert (plan("v0"),) == objects.load(1).plans
    assert "keys that are not ours: Plans, ca.crt, picture" in caplog.text
    assert "its labels are not ours" in caplog.text
    assert immutable is ("immutable" in caplog.text)
    objects.put(plan("v1"))
    objects.flush(1.0)
    raw = site.raw(FIRST)
    meta = raw["metadata"]
    assert ({**data, KEY: f"{text}{encode(plan('v1'))}\n"}, binary) == (raw["data"], raw["binaryData"])
    assert ({"theirs": "x", **LABELS}, ["theirs/z"]) == (meta["labels"], meta["finalizers"])
    assert ("y", False) == (meta["annotations"]["theirs"], raw.get("immutable", False))


@pytest.mark.parametrize(
    "fields",
    [
        {"data": None},
        {"data": ["x"]},
        {"data": {KEY: 5}},
        {"data": {KEY: None}, "binaryData": {KEY: "AAAA"}},
        {"binaryData": "x"},
        {"metadata": {"labels": None}},
    ],
)
def test_a_config_map_of_another_shape_has_no_plans_until_it_is_written(site: PlanSite, fields: Raw) -> None:
    site.leader()
    site.spoil(**fields)
    objects = site.new()
    assert () == objects.load(2).plans
    objects.put(plan("v0"))
    objects.flush(1.0)
    raw = site.raw(FIRST)
    assert ({KEY}, set()) == (set(raw["data"]), set(raw["binaryData"]))


def test_an_immutable_config_map_that_is_somebody_elses_by_now_is_not_deleted(site: PlanSite) -> None:
    site.put(immutable=True, data={"theirs": "x"})
    site.before("delete", lambda: site.put(data={"theirs": "y"}))
    site.leader()
    assert site.raw(FIRST)["data"]["theirs"] == "y"


@pytest.mark.parametrize("is_deleted", [True, False])
def test_what_others_change_or_delete_meanwhile_is_written_anew_from_memory(
    site: PlanSite, is_deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leader = site.leader("v0", "v1", "v2")
    expected = site.written()
    for times in (1, 2):
        if is_deleted:
            site.api.delete(CONFIG_MAPS, NAMESPACE, FIRST)
        else:
            site.spoil(data={KEY: "\n".join(map(encode, (plan("v0", "d9"), plan("v1"), plan("v3"))))})
        site.pass_time(leader, LOOK_SECONDS)
        assert (expected, 3 * times) == (site.written(), leader.figures().overwritten)
    assert leader.figures().last_problem == f"{FIRST}: 3 entries are not what the leader wrote, and are written anew"
    assert 1 + is_deleted == len(caplog.messages), "the same is logged once"


def test_a_write_that_meets_somebody_elses_puts_ours_on_top_of_what_is_known(site: PlanSite) -> None:
    leader = site.leader("v0")
    site.spoil(data={KEY: "{", "theirs": "x"})
    leader.put(plan("v1"))
    site.pass_time(leader, GATHER_SECONDS)
    assert {"v0", "v1"} == site.volumes()
    assert site.raw(FIRST)["data"]["theirs"] == "x"


# What cannot be written


@pytest.mark.parametrize(
    "error",
    [UnavailableError("timeout"), ClusterError("413: too large"), ClusterError("422: invalid"), ConflictError("")],
)
def test_a_failed_write_is_told_and_tried_again_after_a_pause_that_grows(site: PlanSite, error: ClusterError) -> None:
    leader = site.leader()
    leader.put(plan("v0"))
    site.api.fail_with(error, "replace")
    site.pass_time(leader, GATHER_SECONDS)
    leader.put(plan("v0", "d2"))
    first, most = BACKOFF_SECONDS
    for tries, pause in ((2, first), (3, 2 * first), (4, 4 * first)):
        site.pass_time(leader, pause - 0.01)
        assert tries - 1 == leader.figures().failures
        site.pass_time(leader, 0.01)
        assert tries == leader.figures().failures
    figures = leader.figures()
    assert (1, 1, 0) == (figures.plans, figures.unwritten, figures.commits)
    assert str(error) in figures.last_problem
    site.api.work()
    site.pass_time(leader, most)
    assert (0, 1) == (leader.figures().unwritten, leader.figures().commits)


def test_a_write_whose_answer_is_lost_is_nobody_elses_change(site: PlanSite) -> None:
    leader = site.leader()
    leader.put(plan("v0"))
    send = site.api.replace

    def lose(*args: Any, **more: Any) -> Raw:
        send(*args, **more)
        raise UnavailableError("the answer is lost")

    site.api.replace = lose  # type: ignore[method-assign]
    site.pass_time(leader, GATHER_SECONDS)
    site.api.replace = send  # type: ignore[method-assign]
    site.pass_time(leader, BACKOFF_SECONDS[0])
    assert ({"v0"}, 0) == (site.volumes(), leader.figures().overwritten)
    assert (0, 1) == (leader.figures().unwritten, leader.figures().failures)


def test_one_config_map_that_is_refused_gets_no_more_plans(site: PlanSite) -> None:
    leader = site.leader()
    site.refuse(FIRST)
    for name, stored in (("v0", set[str]()), ("v1", {"v1"}), ("v2", {"v1", "v2"})):
        leader.put(plan(name))
        site.pass_time(leader, GATHER_SECONDS)
        assert stored == site.volumes()
    assert ["v1", "v2"] == site.volumes_in(NAMES[1])


def test_a_full_config_map_keeps_its_limit_and_takes_the_rest_when_there_is_room(site: PlanSite) -> None:
    leader, names = site.leader(), neighbours(16 * SHARDS)
    pods = tuple(f"{number:0200}" for number in range(300))
    for name in names:
        leader.put(replace(plan(name), pods=pods))  # 60 KiB each
    site.pass_time(leader, GATHER_SECONDS)
    figures, stored = leader.figures(), site.volumes()
    assert len(names) - len(stored) == figures.unwritten == SHARDS
    assert 840 * 1024 < figures.fullest_bytes <= 900 * 1024
    assert "it is full" in figures.last_problem
    before = site.writes()
    site.pass_time(leader, 4.0)
    assert before == site.writes()
    for name in NAMES:
        leader.remove(plan_key(site.volumes_in(name)[0]))
    site.pass_time(leader, REMOVE_SECONDS)
    assert (0, len(names) - figures.unwritten) == (leader.figures().unwritten, len(site.written()))


def test_bytes_of_others_count_where_they_leave_no_room(site: PlanSite) -> None:
    leader = site.leader("v0")
    site.put(binaryData={"theirs": "A" * 900 * 1024})
    site.pass_time(leader, LOOK_SECONDS)
    leader.put(plan("v1"))
    assert not leader.flush(1.0)
    assert (1, {"v1"}) == (leader.figures().unwritten, site.volumes())
    site.spoil(binaryData={"theirs": None})
    site.pass_time(leader, LOOK_SECONDS)
    assert (0, {"v0", "v1"}) == (leader.figures().unwritten, site.volumes())


def test_lines_count_with_their_ends_beside_what_others_have_there() -> None:
    shard = PlanShard(0)
    lines = {key: key * 99 for key in "abc"}
    assert [True, False, True] == [shard.want(key, lines[key], due) for key, due in zip("abc", (5, 6, 4), strict=True)]
    theirs = "x" * (MAX_SHARD_BYTES - 200 - len("theirs"))
    shard.learn(read({"metadata": {"resourceVersion": "1"}, "data": {"theirs": theirs}}), 0.0)
    goal = shard.goal()
    assert (["a", "b"], ["c"]) == (list(goal.lines), list(goal.left))
    shard.wrote(goal, "uid", "2", 0.0)
    assert MAX_SHARD_BYTES == shard.size_bytes
    shard.want("c", None, 0.0)
    assert 200 == shard.wanted_bytes


def test_a_plan_that_has_become_too_large_leaves_no_former_one_behind(site: PlanSite) -> None:
    leader = site.leader("v0")
    large = plan("v0", "d2", pods=10_000)
    assert len(encode(large)) > MAX_LINE_BYTES
    leader.put(large, plan("v1"))
    assert not leader.flush(1.0)
    assert ({"v1"}, 1) == (site.volumes(), leader.figures().unwritten)
    assert "plan:v0 has " in leader.figures().last_problem
    before = site.writes()
    site.pass_time(leader, REMOVE_SECONDS)
    assert before == site.writes()
    leader.put(plan("v0", "d2"))
    assert leader.flush(1.0)
    assert {"v0", "v1"} == site.volumes()
