"""YAML of one document: what its scalars are, aliases and merges, and what is refused with line and column."""

from __future__ import annotations

from typing import Any

import pytest

from controller.plan.complaints import InputError
from controller.plan.yaml_reader import ALIAS_ALLOWANCE, MAX_DEPTH, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("---\n", None),
        ("[~, null, '', true, No, on, 'yes']", [None, None, "", True, False, True, "yes"]),
        ("[1, -1, +1_000, 0x1f, 0o17, 017, 0b11]", [1, -1, 1000, 31, 15, 15, 3]),
        ("[" + "9" * 100 + "]", [10**100 - 1]),
        ("[1.5, .5, 1e3, 08]", [1.5, 0.5, 1000.0, 8.0]),
        ("[12:30:45, 2026-01-01, 20Gi, 1_x]", ["12:30:45", "2026-01-01", "20Gi", "1_x"]),
        ("[!!str 5, !!int '5', !!float 5, !!bool yes, !!null ~, ! 5, !!timestamp 2026-01-01]",
         ["5", 5, 5.0, True, None, "5", "2026-01-01"]),
        ("{a: &x {b: 1}, c: *x, d: [*x, *x]}", {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}] * 2}),
        ("{a: &x {b: 1, c: 2}, d: {<<: *x, c: 3}}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("{a: &x {b: 1}, d: {<<: [{b: 2, e: 3}, *x]}}", {"a": {"b": 1}, "d": {"b": 2, "e": 3}}),
        ("[&x 1, *x, &x 2, *x]", [1, 1, 2, 2]),
        ("{&x a: *x}", {"a": "a"}),
        ("[&x [&x 1], *x]", [[1], 1]),
        ("!!map {a: !!seq [1]}", {"a": [1]}),
        ("- |\n  a: *b\n", ["a: *b\n"]),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    assert value == load_yaml(text)


def nested_by_aliases(levels: int) -> str:
    return "- &a0 [x]\n" + "".join(f"- &a{index} [*a{index - 1}]\n" for index in range(1, levels))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [*x]", "'x' contains itself, line 1, column 8"),
        ("a: &x {b: [1, {c: *x}]}", "'x' contains itself"),
        ("a: *x", "nothing is called 'x'"),
        ("a: 1\nb: 2\na: 3", "'a' stands there twice, line 3, column 1"),
        ("{<<: {a: 1}, <<: {b: 1}}", "'<<' stands there twice"),
        ("<<: 5", "'<<' takes in what is no mapping"),
        ("? [a]\n: b", "a key is no string"),
        ("- &x [1]\n- {*x : 1}", "a key is no string"),
        ("yes: 1", "the key True is no string"),
        ("a: .nan", ".nan is no number"),
        ("a: -.inf", "-.inf is no number"),
        ("a: !!int x", "'x' is no int"),
        ("a: !!bool 5", "'5' is no bool"),
        ("a: !!binary aGk=", "is not read"),
        ("a: !!set {b}", "is not read"),
        ("a: !!python/object:os.system x", "is not read"),
        ("1: 2", "the key 1 is no string"),
        ("a: 1\n---\na: 1\n", "but found another document, line 2"),
        ("a: " + "9" * 101, "a number of too many digits, line 1, column 4"),
        ("a: 0x" + "f" * 5000, "a number of too many digits"),
        ("[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
        (nested_by_aliases(MAX_DEPTH), f"nested deeper than {MAX_DEPTH} levels"),
        ("a\nb: [", "line"),
        ("a: \x01", "control characters are not allowed"),
    ],
)
def test_what_is_no_yaml_for_us(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(text)
    assert problem in str(caught.value) and str(caught.value).startswith("is not YAML: ")


def test_as_deep_as_it_may_be() -> None:
    assert load_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert load_yaml(nested_by_aliases(MAX_DEPTH - 1))


def test_aliases_stand_for_little_more_than_the_text() -> None:
    large = "x" * 1000
    within, beyond = (ALIAS_ALLOWANCE // 1001, ALIAS_ALLOWANCE // 990 + 20)
    assert within + 1 == len(load_yaml(f"[&x {large}{', *x' * within}]"))  # type: ignore[arg-type]
    nine = "- &a0 [x]\n" + "".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    merged = "- &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\n" + "- {<<: *a}\n" * 1000
    for bomb in (f"[&x {large}{', *x' * beyond}]", nine, merged):
        with pytest.raises(InputError, match="aliases stand for more than"):
            load_yaml(bomb)
