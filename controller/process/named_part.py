"""What a part of the process besides the extender looks like to the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.process.worker import ProcessPart


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part besides the extender, and its section of `/status`, which is quick, takes only its own lock, and fits
    JSON."""

    name: str
    part: ProcessPart
    status: Callable[[], Any]
