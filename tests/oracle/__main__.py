"""`python -m tests.oracle --worlds 100000 --seed 1 --jobs 2`: the product against the tests' own rules for Longhorn.

Prints progress, and every kind of disagreement with a smallest world that shows it. Exit code 1 when the two disagree.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

from tests.oracle.run import ComparedWorlds, run

CHUNK: Final = 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="index of the first world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    total, started, said = ComparedWorlds(), time.monotonic(), time.monotonic()
    end = given.first + given.worlds
    chunks = [range(start, min(start + CHUNK, end)) for start in range(given.first, end, CHUNK)]
    with ProcessPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(run, given.seed, chunk) for chunk in chunks]):
            total.add(done.result())
            if time.monotonic() - said > 15:
                said = time.monotonic()
                rate = total.worlds / (said - started)
                print(f"{total.worlds} worlds, {total.disagreeing} disagreements, {rate:.0f} a second", flush=True)
    for kind, found in sorted(total.disagreements.items()):
        print(f"\n--- {kind}\n{found}")
    seconds = time.monotonic() - started
    print(f"\n{total.worlds} worlds compared in {seconds:.0f} s, {total.disagreeing} disagreements")
    return 1 if total.disagreeing else 0


if __name__ == "__main__":
    sys.exit(main())
