"""Read a history while it is being written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class HistoryTail:
    """The lines that came since the last look, in the order of their revisions.

    Good for showing what goes on: a line of one kind may be written after a later one of another kind, and two looks
    may fall between them. Verdicts are made from the whole file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        entries = [msgspec.json.decode(line) for line in whole.splitlines()]
        return sorted(entries, key=lambda entry: int(entry["rv"]))
