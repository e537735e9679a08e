"""Work that the stand-in does later, where the API server has no answer at first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.client import ApiError
from tests.longhorn import timers
from tests.longhorn.timers import TRIES, Timers
from tests.waiting import wait_until

SECONDS = 10.0


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Timers]:
    monkeypatch.setattr(timers, "RETRY_SECONDS", 0.0)
    found = Timers(2)
    yield found
    found.stop()


@pytest.mark.parametrize(
    ("error", "calls"), [(ApiError(0, "", "gone"), TRIES), (ApiError(404, "", ""), 1), (KeyError(), 1)]
)
def test_what_fails_for_good_is_a_failure(running: Timers, error: Exception, calls: int) -> None:
    tries = []

    def work() -> None:
        tries.append(error)
        raise error

    running.now(work)
    wait_until(lambda: bool(running.failures), "failure", SECONDS)
    assert calls == len(tries)
    assert 1 == len(running.failures)
