"""What a part of the process that stands beside the extender looks like to the rest of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Worker(Protocol):
    """Something that runs from the start of the process to its end, on followers too."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Addition:
    """A part beside the extender, and its section of `/status`: quick, without locks but its own, sayable in JSON."""

    name: str
    worker: Worker
    status: Callable[[], Any]
