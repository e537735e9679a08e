"""Run random worlds, and print a line for each finding that nothing explains: python -m tests.places --worlds 400"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.places.apiserver import LEADER
from tests.places.judge import CREATED, WorldFault, WorldJudge, guilty
from tests.places.mutants import BUILDS, PRODUCT
from tests.places.world import random_world

_COLUMNS: Final = (
    "build",
    "placed by the leader",
    "by others",
    "over a limit",
    "pairs",
    "GiB of planned bytes taken",
    "stuck",
    "longest freeze, s",
    "worlds with guilt",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.places", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1, help="of the first world; each further one has the next")
    parser.add_argument("--build", choices=BUILDS, default=PRODUCT, help="the product, or one with a fault put in")
    parser.add_argument("--compare", choices=BUILDS, nargs="+", help="instead: a table of what happens with each build")
    parser.add_argument("--all", action="store_true", help="show all that is explained, too")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    seeds = range(options.seed, options.seed + options.worlds)
    if options.compare:
        compare(seeds, options.compare)
        return 0
    return 1 if search(seeds, options.build, shows_all=options.all) else 0


def search(seeds: Sequence[int], build: str, *, shows_all: bool) -> int:
    """How many of those worlds are guilty, once all is printed."""
    counts, guilty_worlds = Counter[str](), 0
    for seed in seeds:
        world = random_world(seed, BUILDS[build])
        findings = world.run().findings
        guilt = guilty(findings)
        guilty_worlds += bool(guilt)
        counts.update(f"{one.fault} ({one.explained or 'GUILTY'})" for one in findings)
        counts["copies placed"] += sum(1 for one in world.api.all("replica") if one.node)
        for one in findings if shows_all else guilt:
            print(f"seed {seed}: {one}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    print(f"{guilty_worlds} of {len(seeds)} worlds are guilty")
    return guilty_worlds


def compare(seeds: Sequence[int], builds: Iterable[str]) -> None:
    """Print what happens in the same worlds with each build, explained or not."""
    print(f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|", sep="\n")
    for build in builds:
        judges = [random_world(seed, BUILDS[build]).run() for seed in seeds]
        print(f"| {build} | {' | '.join(map(str, _figures(judges)))} |", flush=True)


def _figures(judges: Sequence[WorldJudge]) -> tuple[int, ...]:
    """As the columns after the first one."""
    findings = [one for judge in judges for one in judge.findings if one.explained != CREATED]
    counts = Counter(one.fault for one in findings)
    return (
        sum(by.startswith(LEADER) for judge in judges for _, by in judge.past.placed.values()),
        counts[WorldFault.FOREIGN],
        counts[WorldFault.OVER],
        counts[WorldFault.PAIR],
        round(sum(one.gib for one in findings if one.fault is WorldFault.PLANNED)),
        counts[WorldFault.STUCK] + counts[WorldFault.IDLE],
        round(max(judge.longest_freeze for judge in judges)),
        sum(1 for judge in judges if guilty(judge.findings)),
    )


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:  # the order of a set of names is part of what a seed repeats
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.places", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
