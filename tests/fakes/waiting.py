"""Waiting for a condition with a deadline; tests never sleep for a time and hope."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    """Return as soon as `condition` is true; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        tick.wait(0.005)
