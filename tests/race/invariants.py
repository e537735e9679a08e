"""What must hold, by name. Nothing of the product is imported here, so that a fault can be put in before it is."""

from __future__ import annotations

from typing import Final

PROMISES: Final = "promises"  # every promise counts exactly once until it is shown or ends
REASONS: Final = "reasons"  # no promise outlives its reason
STARVATION: Final = "starvation"  # a pod that fits is offered a node
LIMITS: Final = "limits"  # no disk exceeds its limit by what was promised, and nobody promised goes without
ALLOCATIONS: Final = "allocations"  # what is given away by name counts once, is kept, and exceeds no disk
INVARIANTS: Final = (PROMISES, REASONS, STARVATION, LIMITS, ALLOCATIONS)
