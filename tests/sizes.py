"""How large the house is: lines, folders, words, and the walk of one filter call (`make size`).

The figures that may only fall stand here and in tests/source_rules.py; whoever makes a part smaller lowers them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests import source_rules as rules
from tests.fakes.builders import TestCluster

TESTS: Final = Path(__file__).parent
ROOT: Final = TESTS.parent
DOCS_WORDS: Final = 39_020
RULES_WORDS: Final = 6_634  # of docs/rules
TESTS_LINES: Final = 94_819
WALK_FUNCTIONS, WALK_FILES, WALK_MOVES = 113, 34, 83


@dataclass(slots=True)
class Walk:
    """What a reader has to open to follow one call: the functions of the controller that it enters, their files, and
    how often it goes from one file to another, each way once."""

    functions: set[tuple[str, str]] = field(default_factory=set)
    moves: set[tuple[str, str]] = field(default_factory=set)

    def on_event(self, frame: FrameType, event: str, _: Any) -> None:
        """As `sys.setprofile` calls it."""
        where = _place(frame)
        if event != "call" or where is None:
            return
        self.functions.add(where)
        caller = _place(frame.f_back) if frame.f_back is not None else None
        if caller is not None and caller[0] != where[0]:
            self.moves.add((":".join(caller), ":".join(where)))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}


def _place(frame: FrameType) -> tuple[str, str] | None:
    code = frame.f_code
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or not path.is_relative_to(ROOT / "controller"):
        return None
    return str(path.relative_to(ROOT)), code.co_qualname


def filter_walk() -> Walk:
    """The second filter call that an allocator answers, for a pod with one new volume on three nodes with room."""
    names, cluster, walk = ("n1", "n2", "n3"), TestCluster().add_nodes(n1=100, n2=100, n3=100), Walk()
    assert cluster.ask("first", 10, *names)
    cluster.add_pod("second", ("second", 10))
    uid, before = cluster.pods["second"].uid, sys.getprofile()
    sys.setprofile(walk.on_event)
    try:
        cluster.allocator.hold_pod(uid, names)
    finally:
        sys.setprofile(before)
    return walk


def words_below(folder: str) -> int:
    """Of its pages."""
    return sum(len(path.read_text().split()) for path in (ROOT / folder).rglob("*.md"))


def figures() -> Iterable[tuple[str, int, int]]:
    """What, how much, and at most how much of it there may be."""
    modules = rules.read_tree(ROOT, rules.PRODUCT)
    for package, most in rules.PACKAGE_LINES.items():
        yield f"lines of {package}", rules.lines_within(modules, package), most
    yield "lines of tests", sum(len(path.read_text().splitlines()) for path in TESTS.rglob("*.py")), TESTS_LINES
    folder, files = rules.files_by_folder(modules).most_common(1)[0]
    yield f"files of the fullest folder, {folder}", files, rules.FOLDER_FILES
    yield "words of docs", words_below("docs"), DOCS_WORDS
    yield "words of docs/rules", words_below("docs/rules"), RULES_WORDS
    walk = filter_walk()
    yield "functions of a filter call", len(walk.functions), WALK_FUNCTIONS
    yield "files of a filter call", len(walk.files), WALK_FILES
    yield "moves between files of a filter call", len(walk.moves), WALK_MOVES


def main() -> None:
    for what, found, most in figures():
        print(f"{found:>8,} {what} (at most {most:,})")


if __name__ == "__main__":
    main()
