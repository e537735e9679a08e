"""What the judge reads of a recorder's file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.judge.reading import stored_places


def test_lines_come_in_the_order_of_their_revisions(tmp_path: Path) -> None:
    """Those of other kinds, later ones and one that is still being written are left out."""
    whole = {"type": "ADDED", "kind": "Replica", "group": "longhorn.io", "at": 1.0, "object": {"spec": {}}}
    lines = [{**whole, "rv": rv} for rv in (7, 3, 9)] + [{**whole, "rv": 1, "kind": "Engine"}]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"rv": 2, "ty')
    assert [{**whole, "rv": rv} for rv in (3, 7)] == list(stored_places(path, 8))
