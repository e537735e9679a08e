"""Waiting for a condition with a deadline; tests never sleep for a time and hope."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.005, 0.03

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str = "sign of it", timeout: float = 10.0) -> T:
    """The first true value of `condition`, which is asked again and again, soon less often.

    Raises TimeoutError that names `what`.
    """
    deadline, pause = time.monotonic() + timeout, FIRST_LOOK_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} after {timeout:.0f} s")
        time.sleep(pause)
        pause = min(1.5 * pause, LOOK_SECONDS)
    return value
