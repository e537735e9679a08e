"""The machine for each invariant, with few examples; `python -m tests.race` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.race.invariants import INVARIANTS
from tests.race.mutants import MUTANTS, RaceMutant
from tests.race.run import run

SEED = 20261122
EXAMPLES = 25


@pytest.mark.parametrize("name", INVARIANTS)
def test_holds_in_a_wide_world(name: str) -> None:
    outcome = run(name, EXAMPLES, SEED, shrinks=False)
    assert not outcome.failure, f"{outcome.line()}\n{outcome.failure}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_that_is_put_in_still_finds_its_place(mutant: RaceMutant) -> None:
    assert mutant.source()
