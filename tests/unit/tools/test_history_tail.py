"""Reading a history while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.history_tail import HistoryTail


def line(rv: int) -> str:
    return json.dumps({"rv": rv}) + "\n"


def test_lines_come_once_and_in_the_order_of_their_revisions(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(line(3) + line(1))
    tail = HistoryTail(file)
    assert [{"rv": 1}, {"rv": 3}] == tail.read()
    assert [] == tail.read()
    with file.open("a") as end:
        end.write(line(4))
    assert [{"rv": 4}] == tail.read()


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(line(1) + line(2)[:4])
    tail = HistoryTail(file)
    assert [{"rv": 1}] == tail.read()
    with file.open("a") as end:
        end.write(line(2)[4:])
    assert [{"rv": 2}] == tail.read()


def test_lines_after_the_revision_asked_for_wait_for_older_ones_of_other_kinds(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(line(2) + line(5))
    tail = HistoryTail(file)
    assert [{"rv": 2}] == tail.read(upto=3)
    with file.open("a") as end:
        end.write(line(4) + line(9))
    assert [{"rv": 4}, {"rv": 5}] == tail.read(upto=5)
    assert [{"rv": 9}] == tail.read()
