"""The product with one rule broken on purpose: what was promised is forgotten five seconds after the choice.

`python -m tests.e2e.expiring_mutant run ...` takes the product's own arguments. A test shows that the checker of
histories turns red on it.
"""

from __future__ import annotations

import math
import sys

from controller.allocator.promises import ends
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Promise, State
from controller.cli import main

PROMISED_SECONDS = 5.0


def ends_soon(promise: Promise, reservation_seconds: float) -> float:
    """As if Longhorn had had its chance the moment the node was chosen."""
    del reservation_seconds
    if promise.state is State.ASSUMED:
        return promise.since + PROMISED_SECONDS
    return math.inf if promise.until is None else promise.until


if __name__ == "__main__":
    vars(ends)["ends_at"] = ends_soon
    Ledger.timed = lambda self: list(self.promises())  # type: ignore[method-assign]
    sys.exit(main())
