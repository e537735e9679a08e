"""`python -m tests.race`: long runs of the machine, and the proof that each invariant can fail.

`--examples N --invariant NAME --seed S` runs so many examples; without a name all invariants, one after the other. Many
go in parts, each with the next seed, so that Hypothesis need not remember all and a find is soon made again.
`--mutants` runs the machine on a product with one small fault after the other. Exit code 1: something is violated, or a
mutant survives.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from secrets import randbelow
from typing import Final

from tests.race import mutants
from tests.race.invariants import INVARIANTS

PART: Final = 2500  # examples


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--invariant", choices=INVARIANTS, help=f"without it {', '.join(INVARIANTS)}")
    parser.add_argument("--seed", type=int, help="a random one without it; it is printed")
    parser.add_argument("--no-shrink", action="store_true", help="show the first failing example as it is")
    parser.add_argument("--mutants", action="store_true", help="whether the machine finds known faults")
    parser.add_argument("--as-mutant", metavar="NAME", help="run with that fault put in")
    options = parser.parse_args(arguments)
    seed = randbelow(2**32) if options.seed is None else options.seed
    if options.mutants:
        return mutants.judge(options.examples, seed)
    if options.as_mutant:
        mutant = mutants.become(options.as_mutant)
        is_dead = not _holds(mutant.invariant, options.examples, seed, shrinks=False)
        return mutants.KILLED if is_dead else mutants.SURVIVED
    names = (options.invariant,) if options.invariant else INVARIANTS
    held = [_holds(name, options.examples, seed, shrinks=not options.no_shrink) for name in names]
    return 0 if all(held) else 1


def _holds(name: str, examples: int, seed: int, *, shrinks: bool) -> bool:
    from tests.race.run import run  # imports the product

    print(f"{name}: seeds from {seed} on", flush=True)
    gc.freeze()  # the product and Hypothesis stay; the collector is a tenth of the time otherwise
    gc.set_threshold(50_000, 20, 100)
    for part, first in enumerate(range(0, examples, PART)):
        outcome = run(name, min(PART, examples - first), seed + part, shrinks=shrinks)
        print(outcome.line(), flush=True)
        if outcome.failure:
            print(outcome.failure, flush=True)
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
