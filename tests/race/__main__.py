"""`python -m tests.race`: long runs of the machine, and the proof that each invariant can fail.

`--examples N --invariant NAME --seed S` runs so many examples; without a name all invariants, one after the other. Many
go in parts, each with the next seed, so that Hypothesis need not remember all and a find is soon made again.
`--mutants` runs the machine on a product with one small fault after the other. Exit code 1: something is violated, or a
mutant survives.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from secrets import randbelow

from tests.race import mutants
from tests.race.invariants import INVARIANTS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--invariant", choices=INVARIANTS, help=f"without it {', '.join(INVARIANTS)}")
    parser.add_argument("--seed", type=int, help="a random one without it; it is printed")
    parser.add_argument("--no-shrink", action="store_true", help="show the first failing example as it is")
    parser.add_argument("--mutants", action="store_true", help="whether the machine finds known faults")
    options = parser.parse_args(arguments)
    seed = randbelow(2**32) if options.seed is None else options.seed
    if options.mutants:
        return mutants.judge(options.examples, seed)
    from tests.race.run import holds  # imports the product

    names = (options.invariant,) if options.invariant else INVARIANTS
    held = [holds(name, options.examples, seed, shrinks=not options.no_shrink) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
