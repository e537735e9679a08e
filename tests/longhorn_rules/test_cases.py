"""The product and the stand-in answer every case as Longhorn does, and agree beyond what the cases say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.longhorn_rules import cases
from tests.longhorn_rules.objects import Raw, node, replica, volume
from tests.oracle.compare import ask_product, ask_reference, differences, reason_of

ROWS = list(cases.rows())
WRONG = [(kind, path, value) for kind, entries in cases.wrong_fields().items() for path, value in entries]
both = pytest.mark.parametrize(
    ("ask", "reason"), [(ask_product, reason_of), (ask_reference, str)], ids=["product", "stand-in"]
)


@both
@pytest.mark.parametrize(("question", "expected"), [row[1:] for row in ROWS], ids=[name for name, _, _ in ROWS])
def test_as_longhorn_does(
    question: Raw, expected: Raw, ask: Callable[[Raw], Raw], reason: Callable[[str], str | None]
) -> None:
    found = cases.said(ask(question), reason)
    assert [] == [
        f"{name}: {value} is not met by {found.get(name, found)}"
        for name, value in expected.items()
        if not cases.is_met(name, value, found)
    ]


@pytest.mark.parametrize("question", [row[1] for row in ROWS], ids=[name for name, _, _ in ROWS])
def test_the_two_agree(question: Raw) -> None:
    assert [] == differences(question)


@both
@pytest.mark.parametrize(("kind", "path", "value"), WRONG)
def test_a_wrong_field_is_named_with_its_object(
    kind: str, path: str, value: Any, ask: Callable[[Raw], Raw], reason: object
) -> None:
    objects = {"Node": node("n"), "Volume": volume(), "Replica": replica("r")}
    *keys, last = path.split(".")
    raw = objects[kind]
    for key in keys:
        raw = raw[key]
    raw[last] = value
    question = {"schedule": {"volume": "v", "replicas": ["r"]}}
    complaint = ask({"objects": list(objects.values()), "question": question})["error"]
    assert complaint.split(":")[0].split("/")[-1].split()[-1] == objects[kind]["metadata"]["name"]
    assert complaint.startswith(kind)
    assert complaint.split(": ")[1].startswith(path)


def test_every_expectation_can_fail() -> None:
    expected: Raw = {"candidates": [], "pick": None, "picks": [], "refused": {"a": "b"}, "says": ["b"]}
    expected |= {"admitted": True, "verdict": "now", "largest": 1, "growths": {}, "error": ["word"]}
    assert cases.EXPECTED == expected.keys()
    answer: Raw = {"candidates": ["a"], "pick": "a", "picks": ["a"], "refused": [("a", "c")], "says": ["c"]}
    answer |= {"admitted": False, "verdict": "never", "largest": 2, "growths": {"a": 1}, "error": "nothing"}
    empty: Raw = {}
    for found in (answer, empty):
        assert not any(cases.is_met(name, value, found) for name, value in expected.items())
