"""What one question may cost, by the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.clock import Clock


@dataclass(slots=True)
class Budget:
    """Says when a call's time is up. Without a clock: never.

    `is_spent` stays true once it is: a search that stopped early must not go on later.
    """

    clock: Clock | None = None
    end: float = math.inf
    is_over: bool = False

    @classmethod
    def of(cls, clock: Clock, milliseconds: float) -> Budget:
        return cls(clock, clock.now() + milliseconds / 1000)

    def is_spent(self) -> bool:
        if not self.is_over and self.clock is not None:
            self.is_over = self.clock.now() > self.end
        return self.is_over
