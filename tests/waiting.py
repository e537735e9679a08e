"""Waiting for a condition with a deadline; tests never sleep for a time and hope."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LOOK_SECONDS = (0.005, 0.15)  # at least and at most
LATE_SHARE = 0.05  # of what was waited for already: a look costs something, on both sides

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str = "sign of it", timeout: float = 10.0) -> T:
    """The first true value of `condition`, which is asked again and again, the less often the longer it takes.

    Raises TimeoutError that names `what`.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"no {what} after {timeout:.0f} s")
        shortest, longest = LOOK_SECONDS
        time.sleep(min(longest, max(shortest, LATE_SHARE * waited)))
    return value


def wait_equal(expected: object, current: Callable[[], object], timeout: float = 10.0) -> None:
    """Wait until `current` returns what is expected; AssertionError tells what it returned last."""
    found: list[object] = []

    def is_equal() -> bool:
        found[:] = [current()]
        return found == [expected]

    try:
        wait_until(is_equal, timeout=timeout)
    except TimeoutError:
        raise AssertionError(f"expected {expected}, found {found[0]} after {timeout:.0f} s") from None
