"""The product that marks a copy without room as held after one second, and leaves it to Longhorn sooner if it is told.

`python -m tests.e2e.impatient run --held SECONDS ...` takes the arguments of `tests.e2e.paced` and of the product.
"""

from __future__ import annotations

import argparse
import sys

from controller.allocator.verbs import place
from tests.e2e import paced

HELD_AFTER_SECONDS = 1.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--held", type=float, default=place.HOLD_SECONDS)
    options, rest = parser.parse_known_args()
    vars(place).update(HOLD_AFTER_SECONDS=HELD_AFTER_SECONDS, HOLD_SECONDS=options.held)
    sys.argv[1:] = [*rest, "--paced", "controller"]
    return paced.main()


if __name__ == "__main__":
    sys.exit(main())
