"""A bench's own server, and calls of it: the bench starts itself once more, with `--serve PORT`.

And figures of what took how long.
"""

from __future__ import annotations

import http.client
import signal
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.components import LOOPBACK
from tests.ports import free_port

START_SECONDS = 60.0
WARM_UP = 5  # calls that do not count


@dataclass(frozen=True, slots=True)
class ServedProgram:
    """A process that listens on the port, or will."""

    port: int
    process: subprocess.Popen[bytes]

    def connection(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """One that its first call opens."""
        if tls is None:
            return http.client.HTTPConnection(LOOPBACK, self.port, timeout=30)
        return http.client.HTTPSConnection(LOOPBACK, self.port, timeout=30, context=tls)

    def connect(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A connection that has been answered; SystemExit when none was in time."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            connection = self.connection(tls)
            try:
                connection.request("GET", "/healthz")
                if connection.getresponse().read():
                    return connection
            except OSError:
                connection.close()
                time.sleep(0.05)
        raise SystemExit("the server did not start")


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[ServedProgram]:
    """`python -m MODULE --serve PORT ARGUMENTS`, which ends with the block."""
    port = free_port()
    command = [sys.executable, "-m", module, "--serve", str(port), *arguments]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True)
    try:
        yield ServedProgram(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def alternate(
    connection: http.client.HTTPConnection,
    bodies: Mapping[str, bytes],
    calls: int,
    look: Callable[[str, bytes], None],
) -> dict[str, list[float]]:
    """Seconds by path of so many calls of each with its body, by turns. `look` is shown every answer, the first ones
    too."""
    times: dict[str, list[float]] = {path: [] for path in bodies}
    for number in range(WARM_UP + calls):
        for path, seen in times.items():
            began = time.perf_counter()
            connection.request("POST", path, bodies[path])
            answer = connection.getresponse().read()
            elapsed = time.perf_counter() - began
            if number >= WARM_UP:
                seen.append(elapsed)
            look(path, answer)
    return times


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def quartiles(seconds: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles in milliseconds."""
    low, median, high = (round(value * 1000, 3) for value in statistics.quantiles(seconds, n=4))
    return {"median_ms": median, "quartiles_ms": [low, high]}
