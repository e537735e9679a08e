"""Questions to `controller.plan` with the answers that Longhorn's documents and our own rules lead to.

One JSON document a line in `cases.jsonl`: `case`, `because`, `kind`, `document` (the question as
docs/plan-format.md has it) and `expected`, of which every part must stand in the answer:

- fit: by node the verdict, or verdict, `robust`, `placement` and `reasons` that are among its refusals';
- schedule: by step `cand` (node/disk), `pick`, and `ref`, pairs of place and reason that are among its refusals;
- expand: parts of the answer, `disks` as [node, disk, growth, reason];
- bad: words of the error.

They were written from the rules, by hand, before the answers were seen.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controller.errors import SchedulerError
from controller.plan.command import answer

Raw = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]


def of_kind(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=case["case"]) for case in CASES if case["kind"] == kind]
    )


@of_kind("fit")
def test_fit(case: Raw) -> None:
    found = answer(case["document"], NOW)["nodes"]
    for name, given in case["expected"].items():
        expected = {"verdict": given} if isinstance(given, str) else dict(given)
        reasons = {refusal["reason"] for refusal in found[name]["refusals"]}
        assert reasons >= set(expected.pop("reasons", ())), case["because"]
        assert expected == {part: found[name][part] for part in expected}, case["because"]


@of_kind("schedule")
def test_schedule(case: Raw) -> None:
    steps = answer(case["document"], NOW)["steps"]
    for expected, step in zip(case["expected"], steps, strict=True):
        refused = [[f"{entry['node']}/{entry['disk']}", entry["reason"]] for entry in step["refusals"]]
        if "cand" in expected:
            assert expected["cand"] == [_place(entry) for entry in step["candidates"]], case["because"]
        if "pick" in expected:
            assert expected["pick"] == (step["scheduled"] and _place(step["scheduled"])), case["because"]
        for refusal in expected.get("ref", ()):
            assert refusal in refused, case["because"]


def _place(entry: Raw) -> str:
    return f"{entry['node']}/{entry['disk']}"


@of_kind("expand")
def test_expand(case: Raw) -> None:
    found = answer(case["document"], NOW)
    found["disks"] = [[entry[part] for part in ("node", "disk", "growth", "reason")] for entry in found["disks"]]
    assert case["expected"] == {part: found[part] for part in case["expected"]}, case["because"]


@of_kind("bad")
def test_bad_input_is_refused_with_the_fields_name(case: Raw) -> None:
    with pytest.raises(SchedulerError) as refused:
        answer(case["document"], NOW)
    for word in case["expected"]:
        assert word in str(refused.value), case["because"]
