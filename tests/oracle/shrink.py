"""A smaller world that still shows the same: parts are taken away, one after the other, as long as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from jsonpatch import JsonPatchConflict, JsonPointer, JsonPointerException, apply_patch

from tests.oracle.worlds import Document

MAX_QUESTIONS: Final = 3000
# Without these there is no question.
KEPT: Final = frozenset(
    {"apiVersion", "kind", "metadata", "name", "question", "objects", "now", "volume", "replicas", "diskUUID"}
)


def shrink(document: Document, still_shows: Callable[[Document], bool], *, questions: int = MAX_QUESTIONS) -> Document:
    """Greedy: an object goes before its fields, until nothing can go or `questions` are asked.

    `document` has to show it; it is left as it is.
    """
    current, left, is_smaller = document, questions, True
    while is_smaller:
        is_smaller = False
        for path in list(_paths(current)):
            if left <= 0:
                return current
            try:
                smaller = apply_patch(current, [{"op": "remove", "path": JsonPointer.from_parts(path).path}])
            except (JsonPatchConflict, JsonPointerException):
                continue  # there is nothing by now
            left -= 1
            if still_shows(smaller):
                current, is_smaller = smaller, True
    return current


def _paths(raw: Any, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Everything that may be taken away; what contains it comes first, and the ends of lists do."""
    keys: Any = list(raw) if isinstance(raw, dict) else reversed(range(len(raw))) if isinstance(raw, list) else ()
    for key in keys:
        if key not in KEPT:
            yield (*prefix, key)
        yield from _paths(raw[key], (*prefix, key))
