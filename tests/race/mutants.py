"""Small faults of the product, by its text, and whether the machine finds them.

Each runs in a process of its own, with that module's text replaced at import. The list is `mutants.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.run import code_with

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


def holds_with(invariant: str, examples: int, seed: int, module: str = "", source: str = "") -> bool:
    """Whether the invariant holds in so many examples with that text in the module's place. This process must not have
    imported the product."""

    def holds() -> bool:
        from tests.race import run

        return run.holds(invariant, examples, seed, shrinks=False)

    code = code_with(module, source, holds)
    if code not in (0, 1):
        raise RuntimeError(f"{invariant}, {module}: the run ended with {code}")
    return code == 0


def judge(examples: int, seed: int) -> int:
    """Every mutant against its invariant; 1 if one survives, or if the product itself fails, which proves nothing."""
    for invariant in dict.fromkeys(mutant.invariant for mutant in MUTANTS):
        if not holds_with(invariant, examples, seed):
            print(f"{invariant}: the product fails without any fault put in, so that no mutant proves anything")
            return 1
    alive = 0
    for mutant in MUTANTS:
        is_alive = holds_with(mutant.invariant, examples, seed, mutant.module, mutant.source())
        alive += is_alive
        print(f"{'SURVIVED' if is_alive else 'killed'}: {mutant.invariant}: {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - alive} of {len(MUTANTS)} mutants killed; seed {seed}, at most {examples} examples each")
    return 1 if alive else 0
