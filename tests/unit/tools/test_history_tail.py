"""Reading a history while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.history_tail import HistoryTail


def text_of(*rvs: int) -> str:
    return "".join(json.dumps({"rv": rv}) + "\n" for rv in rvs)


def test_whole_lines_come_once_and_in_the_order_of_their_revisions(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(text_of(3, 1) + text_of(4)[:4])
    tail = HistoryTail(file)
    assert [[{"rv": 1}, {"rv": 3}], []] == [tail.read(), tail.read()]
    with file.open("a") as end:
        end.write(text_of(4)[4:])
    assert [{"rv": 4}] == tail.read()


def test_lines_after_the_revision_asked_for_wait_for_older_ones_of_other_kinds(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(text_of(2, 5))
    tail = HistoryTail(file)
    assert [{"rv": 2}] == tail.read(upto=3)
    with file.open("a") as end:
        end.write(text_of(4, 9))
    assert [[{"rv": 4}, {"rv": 5}], [{"rv": 9}]] == [tail.read(upto=5), tail.read()]
