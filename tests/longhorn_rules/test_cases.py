"""The product and the stand-in answer every case as Longhorn does, and agree beyond what the cases say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controller.plan import command
from controller.plan.complaints import InputError, Notes
from tests.longhorn_rules import cases
from tests.longhorn_rules.objects import Raw, node, replica, volume
from tests.oracle.compare import ask_product, ask_reference, differences, reason_of
from tests.oracle.worlds import NOW

ROWS = list(cases.rows())
SOUND = [row for row in ROWS if "error" not in row[2]]
WRONG = [(kind, path, value) for kind, entries in cases.wrong_fields().items() for path, value in entries]


@pytest.mark.parametrize(("question", "expected"), [row[1:] for row in ROWS], ids=[name for name, _, _ in ROWS])
def test_the_product_does_as_longhorn(question: Raw, expected: Raw) -> None:
    check(cases.said(ask_product(question), reason_of), expected)


@pytest.mark.parametrize(("question", "expected"), [row[1:] for row in SOUND], ids=[name for name, _, _ in SOUND])
def test_the_stand_in_does_as_longhorn(question: Raw, expected: Raw) -> None:
    check(cases.said(ask_reference(question), str), expected)


def check(found: Raw, expected: Raw) -> None:
    assert [] == [
        f"{name}: {value} is not met by {found.get(name, found)}"
        for name, value in expected.items()
        if not cases.is_met(name, value, found)
    ]


@pytest.mark.parametrize("question", [row[1] for row in SOUND], ids=[name for name, _, _ in SOUND])
def test_the_two_agree(question: Raw) -> None:
    assert [] == differences(question)


@pytest.mark.parametrize(("kind", "path", "value"), WRONG)
def test_a_wrong_field_is_named_with_its_object(kind: str, path: str, value: Any) -> None:
    objects = {"Node": node("n"), "Volume": volume(), "Replica": replica("r")}
    *keys, last = path.split(".")
    raw = objects[kind]
    for key in keys:
        raw = raw[key]
    raw[last] = value
    question, notes, complaint = {"schedule": {"volume": "v", "replicas": ["r"]}}, Notes(), ""
    try:
        command.answer({"objects": list(objects.values()), "question": question}, NOW, notes)
    except InputError as error:  # the question needs the object
        complaint = str(error)
    said = [complaint, *notes.lines()]
    name = objects[kind]["metadata"]["name"]
    assert [line for line in said if re.match(rf"{kind} (.*/)?{name}: {re.escape(path)}", line)], said


def test_every_expectation_can_fail() -> None:
    expected: Raw = {"candidates": [], "pick": None, "picks": [], "refused": {"a": "b"}, "says": ["b"]}
    expected |= {"admitted": True, "verdict": "now", "largest": 1, "growths": {}, "error": ["word"]}
    assert cases.EXPECTED == expected.keys()
    answer: Raw = {"candidates": ["a"], "pick": "a", "picks": ["a"], "refused": [("a", "c")], "says": ["c"]}
    answer |= {"admitted": False, "verdict": "never", "largest": 2, "growths": {"a": 1}, "error": "nothing"}
    empty: Raw = {}
    for found in (answer, empty):
        assert not any(cases.is_met(name, value, found) for name, value in expected.items())
