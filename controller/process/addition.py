"""What a part of the process that stands beside the extender looks like to the rest of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.process.worker import Runs


@dataclass(frozen=True, slots=True)
class Addition:
    """A part beside the extender, and its section of `/status`: quick, without locks but its own, sayable in JSON."""

    name: str
    part: Runs
    status: Callable[[], Any]
