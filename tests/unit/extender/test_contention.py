"""The shared budget of waits, on virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.contention import Grant, WaitBudget


def seconds(grant: Grant | None) -> float | None:
    return None if grant is None else round(grant.seconds, 9)


def test_waits_are_granted_until_the_share_is_spent_and_again_a_window_later() -> None:
    budget = WaitBudget(share=0.05, window_seconds=10.0)
    assert [0.3, 0.2, None] == [seconds(budget.take(0.3, now=100.0)) for _ in range(3)]
    assert budget.take(0.3, now=110.1) is None  # the second ended at 100.2
    assert 0.2 == seconds(budget.take(0.3, now=110.25))  # the first still counts: it ended at 100.3


def test_what_a_wait_did_not_use_is_free_for_others() -> None:
    budget = WaitBudget(share=0.05, window_seconds=10.0)
    grant = budget.take(0.5, now=100.0)
    assert grant is not None
    assert budget.take(0.1, now=100.0) is None
    budget.settle(grant, 0.05, now=100.05)
    assert 0.45 == seconds(budget.take(0.5, now=100.05))


def test_nothing_is_granted_for_nothing() -> None:
    assert WaitBudget().take(0.0, now=1.0) is None
    assert WaitBudget().take(-1.0, now=1.0) is None
    assert WaitBudget(share=0.0).take(1.0, now=1.0) is None


steps = st.lists(
    st.tuples(
        st.floats(0, 3),  # time until the next call
        st.floats(0.01, 0.6),  # what it wants
        st.floats(0, 1),  # the part of its grant that it uses
    ),
    max_size=60,
)


@given(steps)
def test_no_stretch_of_the_windows_length_holds_more_than_the_share(calls: list[tuple[float, float, float]]) -> None:
    budget, now = WaitBudget(share=0.05, window_seconds=10.0), 0.0
    waits: list[tuple[float, float]] = []
    for pause, wanted, used in calls:
        now += pause
        grant = budget.take(wanted, now)
        if grant is not None:
            waited = grant.seconds * used
            waits.append((now, now + waited))
            budget.settle(grant, waited, now + waited)
    for begin in [start for start, _ in waits] + [end - 10.0 for _, end in waits]:
        inside = sum(max(0.0, min(end, begin + 10.0) - max(start, begin)) for start, end in waits)
        assert inside <= 0.5 + 1e-6
