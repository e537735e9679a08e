"""What one question may cost, by the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from controller.clock import Clock

_CLOCK_EVERY: Final = 8


@dataclass(slots=True)
class Budget:
    """Says when a call's time is up; it looks at the clock at every eighth question only. Without a clock: never.

    `is_spent` stays true once it was: whoever stopped early must not go on later.
    """

    clock: Clock | None = None
    end: float = math.inf
    is_over: bool = False
    _asked: int = 0

    @classmethod
    def of(cls, clock: Clock, milliseconds: float) -> Budget:
        return cls(clock, clock.now() + milliseconds / 1000)

    def is_spent(self) -> bool:
        if not self.is_over and self.clock is not None:
            self._asked += 1
            if self._asked % _CLOCK_EVERY == 0:
                self.is_over = self.clock.now() > self.end
        return self.is_over

    def is_spent_now(self) -> bool:
        """As `is_spent`, by the clock at this moment: for the few questions before costly steps."""
        if not self.is_over and self.clock is not None:
            self.is_over = self.clock.now() > self.end
        return self.is_over
