"""Random, bent and odd documents for the planner, as JSON, YAML and lines: an answer or one line that says why not."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from controller.plan import command
from tests.fakes.plan_documents import QUESTIONS, document
from tests.fuzz.__main__ import PRODUCT
from tests.fuzz.plans import FuzzedPlan, PlanForm, PlanTarget, plans
from tests.fuzz.requests import throw_random


@pytest.fixture(scope="module")
def target() -> PlanTarget:
    return PlanTarget()


@pytest.mark.parametrize("examples", [80, pytest.param(200, marks=pytest.mark.slow)], ids=["a few", "many"])
def test_random_documents(target: PlanTarget, examples: int) -> None:
    throw_random(target.throw, plans(), examples)


@pytest.mark.parametrize("target_name", PRODUCT)
def test_a_guided_run_finds_its_target(target_name: str) -> None:
    module, kind, _ = PRODUCT[target_name]
    assert {kind, "THROWS"} <= vars(importlib.import_module(module)).keys()


def whole() -> Iterator[FuzzedPlan]:
    for question in QUESTIONS:
        raw = {**document(), "question": question}
        line = json.dumps(raw).encode()
        yield FuzzedPlan(PlanForm.LINES, line + b"\n\n" + line, False)
        yield FuzzedPlan(PlanForm.LINES, line, False, (raw,))


def test_what_is_not_bent_is_answered_in_every_form(target: PlanTarget) -> None:
    codes = Counter(target.throw(plan) for plan in whole())
    assert {0: 2 * len(QUESTIONS)} == codes


FAULT = json.dumps({"line": 1, "error": command.FAULT})


@pytest.mark.parametrize("said", ["x", '{"line": 1}\n', '{"line": 2, "error": "x"}\n', FAULT, "\x1b\n"])
def test_an_answer_that_breaks_a_promise_is_seen(
    target: PlanTarget, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(**_: object) -> int:
        print(said, end="")
        return 0

    monkeypatch.setattr(command.command, "callback", answer)
    with pytest.raises((AssertionError, ValueError)):
        target.throw(FuzzedPlan(PlanForm.LINES, b"{}", False))


def test_memory_that_is_not_bounded_is_seen(target: PlanTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(**_: object) -> int:
        print('{"line": 1, "error": "x"}')
        return len(bytearray(b"x") * 200_000_000) * 0

    monkeypatch.setattr(command.command, "callback", answer)
    with pytest.raises(AssertionError, match="bytes of memory"):
        target.throw(FuzzedPlan(PlanForm.LINES, b"{}", False))
