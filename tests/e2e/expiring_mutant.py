"""The product with one rule broken on purpose: what was promised is forgotten five seconds after the choice.

`python -m tests.e2e.expiring_mutant run ...` takes the product's own arguments. A test shows that the checker of
histories turns red on it.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from controller.allocator.promises.ledger import State, Verb
from controller.allocator.promises.settle import Settler
from controller.cli import main

PROMISED_SECONDS = 5.0

_expire = Settler.expire_assumptions


def expire_all(self: Settler, now: float, timeout: float) -> bool:
    """As if Longhorn had had its turn the moment the node was chosen."""
    for key, entry in list(self._ledger.entries()):
        if entry.state is State.ASSUMED and entry.turn_at is None:
            self._ledger.put(Verb.ASSUME, key, replace(entry, turn_at=entry.since))
    return _expire(self, now, PROMISED_SECONDS)


if __name__ == "__main__":
    Settler.expire_assumptions = expire_all  # type: ignore[method-assign]
    sys.exit(main())
