"""What a part of the process besides the extender looks like to the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.process.worker import Runs


@dataclass(frozen=True, slots=True)
class Addition:
    """A part besides the extender, and its section of `/status`, which is quick, takes only its own lock, and fits
    JSON."""

    name: str
    part: Runs
    status: Callable[[], Any]
