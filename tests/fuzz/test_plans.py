"""Random, bent and odd documents for the planner, as JSON, YAML and lines: an answer or one line that says why not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from controller.plan import command
from tests.fakes.plan_documents import QUESTIONS, document
from tests.fuzz.plans import Form, FuzzedPlan, Target, plans
from tests.fuzz.requests import UNHURRIED


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


@settings(max_examples=60, suppress_health_check=UNHURRIED)
@given(plan=plans())
def test_some_random_documents(target: Target, plan: FuzzedPlan) -> None:
    target.throw(plan)


@pytest.mark.slow
@settings(max_examples=600, suppress_health_check=UNHURRIED)
@given(plan=plans())
def test_many_random_documents(target: Target, plan: FuzzedPlan) -> None:
    target.throw(plan)


def whole() -> Iterator[FuzzedPlan]:
    for question in QUESTIONS:
        raw = {**document(), "question": question}
        line = json.dumps(raw).encode()
        yield FuzzedPlan(Form.LINES, line + b"\n\n" + line, False)
        yield FuzzedPlan(Form.LINES, line, False, (raw,))


def test_what_is_not_bent_is_answered_in_every_form(target: Target) -> None:
    codes = Counter(target.throw(plan) for plan in whole())
    assert {0: 2 * len(QUESTIONS)} == codes


FAULT = json.dumps({"line": 1, "error": command.FAULT})


@pytest.mark.parametrize("said", ["x", '{"line": 1}\n', '{"line": 2, "error": "x"}\n', FAULT, "\x1b\n"])
def test_an_answer_that_breaks_a_promise_is_seen(target: Target, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_arguments: list[str]) -> int:
        print(said, end="")
        return 0

    monkeypatch.setattr(command, "main", answer)
    with pytest.raises((AssertionError, ValueError)):
        target.throw(FuzzedPlan(Form.LINES, b"{}", False))


def test_memory_that_is_not_bounded_is_seen(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_arguments: list[str]) -> int:
        print('{"line": 1, "error": "x"}')
        return len(bytearray(b"x") * 200_000_000) * 0

    monkeypatch.setattr(command, "main", answer)
    with pytest.raises(AssertionError, match="bytes of memory"):
        target.throw(FuzzedPlan(Form.LINES, b"{}", False))
