"""`python -m tests.oracle --worlds 100000 --seed 1 --jobs 2`: the product against the tests' own rules for Longhorn.

Prints progress, every kind of disagreement with a smallest world that shows it, and what decided how many worlds. Exit
code 1 when the two disagree, or when something decided fewer worlds than it should.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

from tests.oracle.coverage import names, table
from tests.oracle.run import ComparedWorlds, run

CHUNK: Final = 1000
WANTED: Final = 0.0025  # of all worlds, for everything that has to decide some
WANTED_NEAR: Final = 0.3  # within a byte of a limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="index of the first world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    total, started, said = ComparedWorlds(), time.monotonic(), time.monotonic()
    for part in _parts(given.seed, range(given.first, given.first + given.worlds), given.jobs):
        total.add(part)
        if time.monotonic() - said > 15:
            said = time.monotonic()
            rate = total.worlds / (said - started)
            print(f"{total.worlds} worlds, {total.disagreeing} disagreements, {rate:.0f} a second", flush=True)
    print(table(total.counts, total.worlds, WANTED))
    for kind, found in sorted(total.disagreements.items()):
        print(f"\n--- {kind}\n{found}")
    rare = [name for name in names() if total.counts[name] < WANTED * total.worlds]
    near = total.counts["worlds", "within a byte of a limit"] / max(1, total.worlds)
    seconds = time.monotonic() - started
    print(f"\n{total.worlds} worlds compared in {seconds:.0f} s, {total.disagreeing} disagreements")
    if near < WANTED_NEAR:
        print(f"only {near:.1%} of the worlds lie within a byte of a limit")
    if rare:
        print(f"decided too few worlds: {', '.join(name for _, name in rare)}")
    return 1 if total.disagreeing or rare or near < WANTED_NEAR else 0


def _parts(seed: int, indices: range, jobs: int) -> Iterator[ComparedWorlds]:
    chunks = [indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK)]
    if jobs < 2:
        yield from (run(seed, chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(run, seed, chunk) for chunk in chunks]):
            yield done.result()


if __name__ == "__main__":
    sys.exit(main())
