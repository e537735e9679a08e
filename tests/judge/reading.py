"""Read what the test cluster's recorder wrote (`tests/cluster/history.py`), no more of it than the judge needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.judge.judge import KINDS


class _Line(msgspec.Struct):
    rv: int
    type: str
    kind: str
    group: str
    at: float
    object: msgspec.Raw  # most of a history is of other kinds, and never decoded


def stored_places(path: Path, upto: int) -> Iterator[dict[str, Any]]:
    """The lines up to this revision, which the recorder must have reached for every kind, in the API server's order."""
    decode = msgspec.json.Decoder(_Line).decode
    with path.open("rb") as file:
        every = (decode(line) for line in file if line.endswith(b"\n"))
        lines = [line for line in every if (line.group, line.kind) in KINDS and line.rv <= upto]
    lines.sort(key=lambda line: line.rv)
    for line in lines:
        yield {**msgspec.structs.asdict(line), "object": msgspec.json.decode(line.object)}
