"""When the machine stood still, as a process saw it that does nothing but sleep: what no program on it could help.

On a machine that shares its processors with others everything stops now and then for 10 to 50 ms; at 200 calls a second
one such moment in two seconds is more than a hundredth of all calls. `python -m bench.stalls` prints each as a line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SLEEP_SECONDS, LATE_SECONDS = 0.001, 0.005


@dataclass(slots=True)
class Stalls:
    """Begin and end of each, in the machine's monotonic seconds; complete when the block of `watched` has ended."""

    times: list[tuple[float, float]] = field(default_factory=list)

    def touch(self, began: float, ended: float) -> bool:
        return any(first < ended and began < last for first, last in self.times)


@contextmanager
def watched() -> Iterator[Stalls]:
    """What happens while the block runs."""
    command = [sys.executable, "-m", "bench.stalls"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = Stalls()
    process.stdout.readline()  # it has begun
    try:
        yield found
    finally:
        process.terminate()
        lines: Sequence[str] = process.stdout.read().splitlines()
        process.wait(10)
        found.times.extend((float(first), float(last)) for first, last in (line.split() for line in lines))


def main() -> None:
    print("0 0", flush=True)
    while True:
        began = time.monotonic()
        time.sleep(SLEEP_SECONDS)
        ended = time.monotonic()
        if ended - began > LATE_SECONDS:
            print(f"{began:.6f} {ended:.6f}", flush=True)


if __name__ == "__main__":
    main()
