"""Read a history while it is being written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class HistoryTail:
    """The lines that came since the last look, in the order of their revisions. Threads: one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._waiting: list[dict[str, Any]] = []

    def read(self, upto: int | None = None) -> list[dict[str, Any]]:
        """All lines up to revision `upto`, which the recorder must have reached for every kind; later ones wait.

        Without `upto` all there are, which is good for showing what goes on and for nothing else: a line of one kind
        may be written after a later one of another kind.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        entries = self._waiting + [msgspec.json.decode(line) for line in whole.splitlines()]
        entries.sort(key=lambda entry: int(entry["rv"]))
        ready = len(entries)
        while upto is not None and ready and int(entries[ready - 1]["rv"]) > upto:
            ready -= 1
        self._waiting = entries[ready:]
        return entries[:ready]
