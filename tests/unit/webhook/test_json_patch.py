"""Patches, applied by an independent implementation of RFC 6902."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError
from controller.kube.json_pointer import pointer
from webhook.json_patch import plan_value


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        ({}, 1),
        ({"a": None}, 1),
        ({"a": {}}, 1),
        ({"a": {"b/c~d": None}}, 1),
        ({"a": {"b/c~d": {"other": 1}}}, 1),
        ({"a": {"b/c~d": {"x": "2"}}}, 1),
        ({"a": {"b/c~d": {"x": "1"}}}, 0),
    ],
)
def test_a_value_is_put_where_it_lacks_and_nothing_else_changes(raw: dict[str, Any], count: int) -> None:
    operations = plan_value(raw, ("a", "b/c~d", "x"), "1")
    assert count == len(operations)
    patched = jsonpatch.apply_patch(raw, [operation.raw() for operation in operations])
    assert "1" == patched["a"]["b/c~d"]["x"]
    kept = (raw.get("a") or {}).get("b/c~d") or {}
    assert {**kept, "x": "1"} == patched["a"]["b/c~d"]


def test_a_step_may_be_an_index() -> None:
    (operation,) = plan_value({"list": [{"a": 1}, {"b": {}}]}, ("list", 1, "b", "c"), 5)
    assert ("/list/1/b/c", 5) == (operation.path, operation.value)


def test_keys_are_escaped() -> None:
    assert "/a~1b/~0/0" == pointer("a/b", "~", 0)


def test_what_is_no_object_is_named() -> None:
    with pytest.raises(MalformedRequestError, match=r"a\.b"):
        plan_value({"a": {"b": "text"}}, ("a", "b", "c"), 1)
