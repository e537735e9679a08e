"""Whatever stands in whichever field: an answer or a complaint that names the field, never a crash."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.plan.complaints import InputError
from tests.fakes import saved
from tests.fakes.plan_documents import QUESTIONS, document

ODD: list[Any] = [
    None, True, False, "", " ", "x", "True", "v2", "enabled", "best-effort", "strict-local", "-1", "0x10", "1e3",
    0, -1, 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400, 0.5, 1e300, float("inf"), float("nan"),
    [], [None], [""], ["x", "x"], [[]], {}, {"": None}, {"a": 1}, {"v1": "3"}, "٣", "\ud800", "a" * 10_000,
]  # fmt: skip


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value below `raw`."""
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


PLACES = list(places({**document(), "question": {key: value for entry in QUESTIONS for key, value in entry.items()}}))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), max_size=2), st.sampled_from(QUESTIONS))
def test_an_odd_value_is_answered_or_named(changes: list[tuple[tuple[Any, ...], Any]], question: Any) -> None:
    asked = {**document(), "question": copy.deepcopy(question)}
    for path, value in changes:
        _put(asked, path, value)
    complaint = None
    try:
        more = {name: value for name, value in asked.items() if name not in ("objects", "question")}
        found = saved.ask(asked["objects"], asked["question"], **more)
    except InputError as error:
        found, complaint = {}, error
    assert found == json.loads(json.dumps(found))
    assert complaint is None or (complaint.problem and (complaint.field_name or complaint.object_name))


def _put(raw: Any, path: tuple[Any, ...], value: Any) -> None:
    *way, last = path
    for key in way:
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            return  # another question, or changed before
    if isinstance(raw, dict) or (isinstance(raw, list) and isinstance(last, int) and last < len(raw)):
        raw[last] = copy.deepcopy(value)
