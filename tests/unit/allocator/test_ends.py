"""Which pods were given a yes, how long their choices take, and what time ends: after a live read, which is asked for
by name, and never before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from controller.allocator.outcome import Due
from controller.allocator.plans.answers import (
    LAG_SECONDS,
    MOST_UNCHOSEN,
    QUIET_SECONDS,
    UNCHOSEN_SECONDS,
    YOUNG_SECONDS,
    Answers,
)
from controller.allocator.plans.ends import BIND_SECONDS, MOST_DUE, PLAN
from controller.allocator.plans.plan import KeepsOut, Source
from controller.allocator.verbs.settle import SLICE_SECONDS
from tests.fakes.builders import GIB, TestCluster

TIMEOUT, CAP = 5.0, 120.0
HOLD_READS: Final = (("pod", "ns/a"), ("claim", "ns/a"))


def answered(**at: float) -> Answers:
    """Pods of the namespace ns by the time of their answers, each by a call of its own."""
    answers = Answers()
    for serial, (pod, now) in enumerate(at.items(), 1):
        answers.answered(pod, "ns", now, serial)
    return answers


def due(answers: Answers, now: float) -> list[tuple[str, bool]]:
    found = answers.due(now, TIMEOUT, CAP)
    for pod in ("a", "b"):
        assert answers.is_due(pod, now, TIMEOUT, CAP) is (pod in dict(found))
    return found


# How long


def test_the_time_from_an_answer_to_its_choice_or_its_end_is_told_once() -> None:
    answers = answered(a=1, b=2)
    assert 2 == len(answers)
    assert (3.0, 2.5) == (answers.chosen("a", 4), answers.ended("b", 4.5))
    assert (None, None, 0) == (answers.chosen("a", 5), answers.ended("b", 5), len(answers))


def test_where_answers_add_up_a_choice_may_be_due_to_the_first_one() -> None:
    for adds_up, seconds in ((True, 9.0), (False, 4.0)):
        answers = answered(a=1)
        answers.answered("a", "ns", 6, 2, adds_up=adds_up)
        assert seconds == answers.chosen("a", 10)


def test_of_an_answer_of_the_leader_before_no_time_is_told() -> None:
    for end in (Answers.chosen, Answers.ended):
        answers = Answers()
        answers.inherited("a", "ns", 1)
        assert "a" in answers
        assert end(answers, "a", 3) is None
        assert "a" not in answers


def test_only_the_call_that_made_an_answer_may_take_it_back() -> None:
    answers = answered(a=1)
    answers.answered("a", "ns", 2, 7)
    answers.inherited("b", "ns", 2)
    assert [False, True, False] == [answers.is_of_call("a", 1), answers.is_of_call("a", 7), answers.is_of_call("b", 0)]


def test_an_answer_is_young_for_a_second() -> None:
    answers = answered(a=1)
    assert [True, False] == [answers.is_young(1 + YOUNG_SECONDS - 0.1), answers.is_young(1 + YOUNG_SECONDS)]


# What comes of them


def test_a_namespace_whose_last_answers_led_to_no_choice_is_known_for_a_minute() -> None:
    answers = answered(a=0, b=0, c=0)
    answers.answered("other", "theirs", 0, 9)
    for number, pod in enumerate(("a", "b", "c", "other")):
        assert not answers.went_unchosen("ns", number) or number >= MOST_UNCHOSEN
        answers.ended(pod, number)
    assert answers.went_unchosen("ns", 3)
    assert not answers.went_unchosen("theirs", 3)
    assert [True, False] == [answers.went_unchosen("ns", UNCHOSEN_SECONDS + more) for more in (-0.1, 0)]


def test_an_answer_that_was_acted_on_is_none_of_those() -> None:
    answers = answered(a=0, b=0, c=0)
    answers.ended("a", 1)
    answers.ended("b", 1)
    answers.chosen("c", 1)
    assert not answers.went_unchosen("ns", 1)


# When they may end


def test_an_answer_is_due_after_its_time_once_no_choice_has_come_for_long() -> None:
    answers = answered(a=CAP)
    assert [[], [("a", False)]] == [due(answers, CAP + waited) for waited in (TIMEOUT - 0.1, TIMEOUT)]


def test_choices_that_still_come_in_show_that_its_own_may_be_on_its_way() -> None:
    """A slow kube-scheduler is not an absent one."""
    answers = answered(c=0, a=1)
    answers.chosen("c", 6)  # of an earlier answer
    assert [[], [("a", False)]] == [due(answers, now) for now in (6 + QUIET_SECONDS - 0.1, 6 + QUIET_SECONDS)]


def test_choices_of_pods_that_were_answered_later_prove_that_its_own_should_have_come() -> None:
    for lag, found in ((LAG_SECONDS - 0.1, []), (LAG_SECONDS, [("a", False)])):
        answers = answered(a=1, later=1 + lag)
        answers.chosen("later", 6)
        assert found == due(answers, 6)


def test_the_cap_says_so_whatever_still_comes_in() -> None:
    answers = answered(c=0, a=1)
    answers.chosen("c", CAP)
    assert [[], [("a", True)]] == [due(answers, now) for now in (CAP + 0.9, CAP + 1)]


def test_nothing_is_remembered_by_the_next_term() -> None:
    answers = answered(a=0, b=0, c=0, d=0)
    for pod in ("a", "b", "c"):
        answers.ended(pod, 1)
    answers.clear()
    assert (0, False, []) == (len(answers), answers.went_unchosen("ns", 2), due(answers, 500))


# Through the allocator


@pytest.fixture
def asking() -> TestCluster:
    """One node of 100 GiB, and a pod `a` that asks for as much."""
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    return cluster


@pytest.fixture
def cluster(asking: TestCluster) -> TestCluster:
    """And the pod holds all of it."""
    assert asking.offered("a", "n1")
    return asking


def test_a_filter_call_that_replaces_an_answer_ends_the_wait_for_its_choice_unfulfilled(asking: TestCluster) -> None:
    asking.filter("a", "n1")
    asking.clock.advance(3)
    asking.filter("a", "n1")

    assert asking.allocator.drain_records() == (("pod_scheduling_wait", 3.0, False),)
    assert asking.allocator.snapshot().counters["holds_ended_filtered_again"] == 1


def test_durations_are_recorded_once_and_only_for_answers_of_ours(asking: TestCluster) -> None:
    asking.filter("a", "n1")
    asking.run("a", "a", "n1")
    assert (("pod_scheduling_wait", 0.0, True), ("node_reservation", 0.0, True)) == asking.allocator.drain_records()

    asking.add_node("n2", free_gib=100)
    asking.add_pod("b")
    asking.filter("b", "n2")
    asking.change_leader()
    asking.clock.advance(5)
    assert {"n2": 100} == asking.pending()
    asking.let_doubts_pass()
    assert {} == asking.pending()
    assert () == asking.allocator.drain_records()


def test_no_duration_is_recorded_of_a_pod_that_never_asked(asking: TestCluster) -> None:
    name = asking.provision("a")
    asking.bind("a", "n1")
    assert {"n1": 100} == asking.pending()
    asking.clock.advance(7)
    asking.attach(name, "n1")
    asking.place(name, "n1")
    assert {} == asking.pending()
    assert () == asking.allocator.drain_records()


def test_an_answer_that_never_reached_the_scheduler_ends_and_a_later_one_stays(asking: TestCluster) -> None:
    lost = asking.filter("a", "n1")
    again = asking.filter("a", "n1")
    asking.allocator.end_holds("pod-a", lost.serial)
    assert {"n1": 100} == asking.pending()
    for _ in range(2):
        asking.allocator.end_holds("pod-a", again.serial)
        assert {} == asking.pending()


# Holds


def test_it_ends_when_the_read_has_shown_nothing_and_others_may_have_its_bytes(cluster: TestCluster) -> None:
    cluster.clock.advance(5)
    (due,) = cluster.allocator.due()
    version = cluster.allocator.version

    cluster.allocator.expire(due)

    assert {} == cluster.pending()
    assert version != cluster.allocator.version
    assert 1 == cluster.allocator.snapshot().counters["holds_ended_expired"]
    assert cluster.ask("b", 100, "n1")


def test_one_that_is_not_due_any_more_stays(cluster: TestCluster) -> None:
    cluster.clock.advance(5)
    (due,) = cluster.allocator.due()
    cluster.filter("a", "n1")  # while it was being read
    cluster.allocator.expire(due)
    assert {"n1": 100} == cluster.pending()

    cluster.select_node("a", "n1")
    cluster.clock.advance(5)
    assert () == cluster.allocator.due()
    cluster.allocator.expire(due)
    assert {"n1": 100} == cluster.pending()


def test_what_its_claim_names_and_nobody_has_seen_is_read_as_well_and_keeps_it(cluster: TestCluster) -> None:
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))
    cluster.clock.advance(200)
    (due,) = cluster.allocator.due()
    assert (*HOLD_READS, ("pv", "pvc-uid-a")) == due.reads

    cluster.allocator.expire(due)

    assert {"n1": 100} == cluster.pending()


def test_those_that_could_not_be_read_come_last_and_no_more_than_so_many_are_told() -> None:
    cluster = TestCluster().add_nodes(n1=1000)
    names = [f"p{number:03}" for number in range(MOST_DUE + 2)]
    for name in names:
        assert cluster.ask(name, 1, "n1")
    cluster.clock.advance(5)

    first = [due.claimant for due in cluster.allocator.due()]
    later = [due.claimant for due in cluster.allocator.due({"pod-p000", "pod-p001", "pod-p002"})]

    assert (MOST_DUE, "pod-p000") == (len(first), first[0])
    assert (MOST_DUE, "pod-p003", "pod-p000") == (len(later), later[0], later[-1])


# Between two slices, in which the volumes of a choice become plans


def choose_in_slices(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, between: Callable[[], object]) -> None:
    """n1 is chosen for the pod `p` of twenty claims, of 1 GiB; `between` comes after the first of them is planned. All
    the while nobody else gets these bytes."""
    cluster.make_looks_cost(SLICE_SECONDS)
    cluster.allocator._settler._clock = cluster.allocator._clock
    acts, table = iter((between,)), cluster.allocator._table

    def let_in(_seconds: float) -> None:
        next(acts, lambda: None)()
        assert 20 * GIB == table.taken_by_node()["n1"]

    monkeypatch.setattr(time, "sleep", let_in)
    cluster.select_node("c3", "n1")
    assert next(acts, None) is None
    assert 20 == len(table.plans())


@pytest.fixture
def many() -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_pod("p", *((f"c{number}", 1) for number in range(20)))
    return cluster


def test_an_answer_whose_choice_was_seen_does_not_end_by_time(
    many: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"n1", "n2"} == many.offered("p", "n1", "n2")
    many.clock.advance(CAP)

    def expire() -> None:
        (due,) = many.allocator.due()
        many.allocator.expire(due)

    choose_in_slices(many, monkeypatch, expire)


def test_what_is_answered_beside_a_choice_stays_held(many: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    many.adds_up = True
    assert {"n1"} == many.offered("p", "n1")
    choose_in_slices(many, monkeypatch, lambda: many.offered("p", "n2"))
    assert {"n1": 20 * GIB, "n2": 20 * GIB} == many.allocator._table.taken_by_node()
    many.clock.advance(CAP)
    many.make_looks_cost(0)
    (due,) = many.allocator.due()
    many.allocator.expire(due)
    assert {"n1": 20 * GIB} == many.allocator._table.taken_by_node()


# Plans


def test_a_plan_that_nothing_binds_ends_after_ten_minutes_and_a_live_read(cluster: TestCluster) -> None:
    cluster.select_node("a", "n1")
    cluster.allocator.drain_records()
    cluster.clock.advance(BIND_SECONDS - 1)
    assert () == cluster.allocator.due()
    cluster.clock.advance(1)
    (due,) = cluster.allocator.due()
    assert Due(PLAN, "pvc-uid-a", HOLD_READS, is_capped=False) == due

    cluster.allocator.expire(due)

    assert {} == cluster.pending()
    assert (("node_reservation", BIND_SECONDS, False),) == cluster.allocator.drain_records()
    cluster.select_node("a", "n1")  # the same again, as a watch may deliver it
    assert {} == cluster.pending()
    assert cluster.offered("a", "n1")  # it is asked about again


@pytest.mark.parametrize("what", ["bound", "gone", "moved"])
def test_one_of_a_pod_that_was_bound_or_is_gone_or_was_chosen_for_another_node_does_not(
    cluster: TestCluster, what: str
) -> None:
    cluster.add_node("n2", free_gib=100)
    cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    cluster.clock.advance(BIND_SECONDS)
    (due,) = cluster.allocator.due()
    if what == "bound":
        cluster.bind("a", "n1")
    elif what == "gone":
        cluster.attach("pvc-uid-a", "n1")
        cluster.drop_pod("a")
    else:
        cluster.bind("a", "n2")
    assert () == cluster.allocator.due()
    cluster.allocator.expire(due)
    assert {"n2" if what == "moved" else "n1": 100} == cluster.pending()


# What is kept for single pods


def test_what_is_kept_for_a_pod_ends_at_its_time_by_itself(cluster: TestCluster) -> None:
    table = cluster.allocator._table
    held = table.hold("pod-a")
    assert held is not None
    for source in (Source.NOMINATION, Source.KEPT_ROOM, Source.WAKE_PLAN):
        table.put_hold(replace(held, source=source, until=cluster.clock.now() + 7, keeps_out=KeepsOut(0)))
    for seconds, left in ((6.9, 3), (0.1, 0)):
        cluster.clock.advance(seconds)
        version = cluster.allocator.version
        cluster.allocator.sweep()
        assert (left, left == 0) == (len(table.limited()), version != cluster.allocator.version)
    assert {"n1": 100} == cluster.pending()
    assert 1 == cluster.allocator.snapshot().counters["ended_nomination"]
