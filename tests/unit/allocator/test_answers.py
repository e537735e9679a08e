"""Which pods were given a yes, how long their choices take, and when what they hold may end by time."""

from __future__ import annotations

import pytest

from controller.allocator.plans.answers import (
    LAG_SECONDS,
    MOST_UNCHOSEN,
    QUIET_SECONDS,
    UNCHOSEN_SECONDS,
    YOUNG_SECONDS,
    Answers,
)
from tests.fakes.builders import TestCluster

TIMEOUT, CAP = 5.0, 120.0


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
        assert not answers.come_to_nothing("ns", number) or number >= MOST_UNCHOSEN
        answers.ended(pod, number)
    assert answers.come_to_nothing("ns", 3)
    assert not answers.come_to_nothing("theirs", 3)
    assert [True, False] == [answers.come_to_nothing("ns", UNCHOSEN_SECONDS + more) for more in (-0.1, 0)]


def test_an_answer_that_was_acted_on_is_none_of_those() -> None:
    answers = answered(a=0, b=0, c=0)
    answers.ended("a", 1)
    answers.ended("b", 1)
    answers.chosen("c", 1)
    assert not answers.come_to_nothing("ns", 1)


# When they may end


def test_an_answer_is_due_after_its_time_once_no_choice_has_come_for_long() -> None:
    answers = answered(a=0)
    assert [[], [("a", False)]] == [due(answers, now) for now in (TIMEOUT - 0.1, TIMEOUT)]


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
    assert (0, False, []) == (len(answers), answers.come_to_nothing("ns", 2), due(answers, 500))


# Through the allocator


@pytest.fixture
def cluster() -> TestCluster:
    """One node of 100 GiB, and a pod `a` that asks for as much."""
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    return cluster


def test_a_filter_call_that_replaces_an_answer_ends_the_wait_for_its_choice_unfulfilled(cluster: TestCluster) -> None:
    cluster.filter("a", "n1")
    cluster.clock.advance(3)
    cluster.filter("a", "n1")

    assert cluster.allocator.drain_records() == (("pod_scheduling_wait", 3.0, False),)
    assert cluster.allocator.snapshot().counters["holds_ended_filtered_again"] == 1


def test_durations_are_recorded_once_and_only_for_answers_of_ours(cluster: TestCluster) -> None:
    cluster.filter("a", "n1")
    cluster.run("a", "a", "n1")
    assert (("pod_scheduling_wait", 0.0, True), ("node_reservation", 0.0, True)) == cluster.allocator.drain_records()

    cluster.add_node("n2", free_gib=100)
    cluster.add_pod("b")
    cluster.filter("b", "n2")
    cluster.change_leader()
    cluster.clock.advance(5)
    assert {"n2": 100} == cluster.pending()
    cluster.let_doubts_pass()
    assert {} == cluster.pending()
    assert () == cluster.allocator.drain_records()


def test_an_answer_that_never_reached_the_scheduler_ends_and_a_later_one_stays(cluster: TestCluster) -> None:
    lost = cluster.filter("a", "n1")
    again = cluster.filter("a", "n1")
    cluster.allocator.end_holds("pod-a", lost.serial)
    assert {"n1": 100} == cluster.pending()
    for _ in range(2):
        cluster.allocator.end_holds("pod-a", again.serial)
        assert {} == cluster.pending()
