"""What happened a short while ago."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

Noted = TypeVar("Noted")


class Lately(OrderedDict[Noted, float]):
    """When each was noted last, the oldest first."""

    def note(self, one: Noted, now: float) -> None:
        self[one] = now
        self.move_to_end(one)

    def forget(self, now: float, seconds: float) -> None:
        """Those of so long ago."""
        while self and now - next(iter(self.values())) >= seconds:
            self.popitem(last=False)
