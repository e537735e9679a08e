"""What must hold, by name. Nothing of the product is imported here, so that a fault can be put in before it is."""

from __future__ import annotations

from typing import Final

COUNTS: Final = "counts"  # what was told is taken, once, on the disks that were named, and on bytes that are there
REASONS: Final = "reasons"  # nothing stays taken without a reason
STARVATION: Final = "starvation"  # a pod that fits is offered a node
LIMITS: Final = "limits"  # no place exceeds its disk or breaks its volume's rules, and nobody let through goes without
ALLOCATIONS: Final = "allocations"  # what is given away by name counts once, is kept, and exceeds no disk
INVARIANTS: Final = (COUNTS, REASONS, STARVATION, LIMITS, ALLOCATIONS)
