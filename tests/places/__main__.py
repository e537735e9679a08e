"""Run random worlds, and print a line for each finding that nothing explains: python -m tests.places --worlds 400"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence

from tests.places.judge import guilty
from tests.places.mutants import BUILDS, PRODUCT
from tests.places.world import random_world


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.places", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1, help="of the first world; each further one has the next")
    parser.add_argument("--build", choices=BUILDS, default=PRODUCT, help="the product, or one with a fault put in")
    parser.add_argument("--all", action="store_true", help="show all that is explained, too")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    counts, guilty_worlds = Counter[str](), 0
    for seed in range(options.seed, options.seed + options.worlds):
        world = random_world(seed, BUILDS[options.build])
        findings = world.run().findings
        guilt = guilty(findings)
        guilty_worlds += bool(guilt)
        counts.update(f"{one.fault} ({one.explained or 'GUILTY'})" for one in findings)
        counts["copies placed"] += sum(1 for one in world.api.all("replica") if one.node)
        for one in findings if options.all else guilt:
            print(f"seed {seed}: {one}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    print(f"{guilty_worlds} of {options.worlds} worlds are guilty")
    return 1 if guilty_worlds else 0


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:  # the order of a set of names is part of what a seed repeats
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.places", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
