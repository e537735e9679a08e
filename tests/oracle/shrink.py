"""A smaller world that still shows the same: parts are taken away, one after the other, as long as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.oracle.worlds import Document

MAX_QUESTIONS: Final = 3000
Path = tuple[str | int, ...]
# Without these there is no question.
KEPT: Final = frozenset(
    {"apiVersion", "kind", "metadata", "name", "question", "objects", "now", "volume", "replicas", "diskUUID"}
)


def shrink(document: Document, still_shows: Callable[[Document], bool], *, questions: int = MAX_QUESTIONS) -> Document:
    """Greedy: whole objects first, then fields and entries of lists, until nothing can go or `questions` are asked.

    `document` has to show it; it is left as it is.
    """
    current, left, is_smaller = document, questions, True
    while is_smaller and left > 0:
        is_smaller = False
        for path in list(_paths(current)):
            if left <= 0:
                break
            smaller = _without(current, path)
            if smaller is None:
                continue
            left -= 1
            if still_shows(smaller):
                current, is_smaller = smaller, True
    return current


def _paths(raw: Any, prefix: Path = ()) -> Iterator[Path]:
    """Everything that may be taken away; what contains it comes first, and the ends of lists do."""
    if isinstance(raw, dict):
        for key in list(raw):
            if key not in KEPT:
                yield (*prefix, key)
            yield from _paths(raw[key], (*prefix, key))
    elif isinstance(raw, list):
        for index in reversed(range(len(raw))):
            yield (*prefix, index)
        for index in reversed(range(len(raw))):
            yield from _paths(raw[index], (*prefix, index))


def _without(raw: Any, path: Path) -> Any:
    """A copy without what lies at the path; None when there is nothing by now."""
    key, rest = path[0], path[1:]
    if isinstance(raw, list):
        if not isinstance(key, int) or key >= len(raw):
            return None
    elif not isinstance(raw, dict) or key not in raw:
        return None
    inner = _without(raw[key], rest) if rest else None
    if rest and inner is None:
        return None
    if isinstance(raw, dict):
        kept = {name: value for name, value in raw.items() if name != key or rest}
        return {**kept, key: inner} if rest else kept
    return [inner if index == key else value for index, value in enumerate(raw) if index != key or rest]
