"""The machine for each invariant, with few examples; `python -m tests.race` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.race.invariants import INVARIANTS
from tests.race.run import run

SEED = 20261122
EXAMPLES = 250


@pytest.mark.parametrize("name", INVARIANTS)
def test_holds_in_a_wide_world(name: str) -> None:
    outcome = run(name, EXAMPLES, SEED, shrinks=False)
    assert not outcome.failure, f"{outcome.line()}\n{outcome.failure}"
