"""The product with one rule broken on purpose: what is planned is forgotten five seconds after the choice.

`python -m tests.e2e.expiring_mutant run ...` takes the product's own arguments. A test shows that the checker of
histories turns red on it.
"""

from __future__ import annotations

import sys

from controller.allocator.plans import ends
from controller.cli import main

PLANNED_SECONDS = 5.0  # as if a pod that is not bound by then was never bound

if __name__ == "__main__":
    vars(ends)["BIND_SECONDS"] = PLANNED_SECONDS
    sys.exit(main())
