"""Which term the record's writes carry."""

from __future__ import annotations

import pytest

from controller.allocations.terms import RecordTerm
from controller.errors import NotLeaderError


@pytest.mark.parametrize(
    ("lease", "latest", "expected"),
    [(5, 0, 5), (5, 4, 5), (5, 5, 6), (0, 7, 8)],
    ids=["first", "next", "same", "Lease made anew"],
)
def test_the_term_is_beyond_any_on_record(lease: int, latest: int, expected: int) -> None:
    assert expected == RecordTerm(lambda: lease, lambda: 1, lambda: latest)()


def test_a_successors_term_is_not_overtaken_within_an_opening() -> None:
    latest = [3]
    term = RecordTerm(lambda: 3, lambda: 1, lambda: latest[0])
    assert 4 == term()
    latest[0] = 5
    assert 4 == term()


def test_there_is_none_while_another_process_leads() -> None:
    def nobody() -> int:
        raise NotLeaderError("this process does not lead")

    with pytest.raises(NotLeaderError):
        RecordTerm(nobody, lambda: 1, lambda: 9)()
