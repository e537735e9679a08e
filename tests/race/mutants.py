"""Small faults of the product, by its text, and whether the machine finds them.

Each runs in a process of its own, with that module's text replaced at import. The list is `mutants.txt`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.run import Replaced

SURVIVED: Final = 10  # exit codes that nothing else uses
KILLED: Final = 11
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RaceMutant:
    """`old` must stand exactly once in the module's text. `invariant`: the one that must fail."""

    name: str
    invariant: str
    module: str
    old: str
    new: str

    def source(self) -> str:
        """The module's text with the fault; ValueError when the product has changed under it."""
        text = ROOT.joinpath(*self.module.split(".")).with_suffix(".py").read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.module} has {self.old!r} {text.count(self.old)} times")
        return text.replace(self.old, self.new)


def _mutants() -> Iterator[RaceMutant]:
    for paragraph in Path(__file__).with_suffix(".txt").read_text().split("\n\n")[1:]:
        head, module, *patch = paragraph.strip("\n").split("\n")
        invariant, _, name = head.partition(": ")
        old, new = ("\n".join(line[1:] for line in patch if line[0] == sign) for sign in "-+")
        yield RaceMutant(name, invariant, module, old, new)


MUTANTS: Final = tuple(_mutants())


def become(name: str) -> RaceMutant:
    """Put that fault into this process, which must not have imported the product yet."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} is imported already")
    sys.meta_path.insert(0, Replaced(mutant.module, mutant.source()))
    return mutant


def is_killed(mutant: RaceMutant, examples: int, seed: int) -> bool:
    """Whether the invariant fails on the faulty product, within so many examples."""
    mutant.source()
    command = [sys.executable, "-B", "-m", "tests.race", "--as-mutant", mutant.name]
    numbers = ["--examples", str(examples), "--seed", str(seed)]
    done = subprocess.run([*command, *numbers], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (SURVIVED, KILLED):
        raise RuntimeError(f"{mutant.name}: the run ended with {done.returncode}: {done.stderr}")
    return done.returncode == KILLED


def judge(examples: int, seed: int) -> int:
    """Every mutant against its invariant; 1 if one survives, or if the product itself fails, which proves nothing."""
    alive = 0
    for invariant in dict.fromkeys(mutant.invariant for mutant in MUTANTS):
        command = [sys.executable, "-B", "-m", "tests.race", "--no-shrink", "--invariant", invariant]
        done = subprocess.run([*command, "--examples", str(examples), "--seed", str(seed)], cwd=ROOT, check=False)
        if done.returncode:
            print(f"{invariant}: the product fails without any fault put in, so that no mutant proves anything")
            return 1
    for mutant in MUTANTS:
        is_dead = is_killed(mutant, examples, seed)
        alive += not is_dead
        print(f"{'killed' if is_dead else 'SURVIVED'}: {mutant.invariant}: {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - alive} of {len(MUTANTS)} mutants killed; seed {seed}, at most {examples} examples each")
    return 1 if alive else 0
