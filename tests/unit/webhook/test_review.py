"""AdmissionReview in and out."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError
from webhook.review import MOST_VALUES, Operation, decode_review, encode_allowed, plan_value

REQUEST: dict[str, Any] = {
    "uid": "u1",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "operation": "CREATE",
    "namespace": "ns",
    "object": {"kind": "Pod", "metadata": {"generateName": "p-"}},
    "oldObject": None,
    "dryRun": True,
    "userInfo": {"username": "somebody"},
}


def body(request: Any = REQUEST, **changes: Any) -> bytes:
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request, **changes}
    ).encode()


def test_a_request_is_read() -> None:
    review = decode_review(body())
    assert ("u1", "Pod", "pods", "", "CREATE", "ns", "", True) == (
        review.uid,
        review.kind,
        review.resource,
        review.sub_resource,
        review.operation,
        review.namespace,
        review.name,
        review.is_dry_run,
    )
    assert REQUEST["object"] == review.object
    assert {} == review.old_object


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b'"x"', "body"),
        (b"\xff\xfe", "body"),
        (b'"\x80"', "body"),
        (b"{}", "apiVersion"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
        (body()[:-20], "body"),
        (body(apiVersion="admission.k8s.io/v1beta1"), "apiVersion"),
        (body(apiVersion=None), "apiVersion"),
        (body(kind="Pod"), "kind"),
        (body(request=None), "request"),
        (body(request=[]), "request"),
        (body({}), "request.uid"),
        (body({**REQUEST, "uid": ""}), "request.uid"),
        (body({**REQUEST, "uid": 5}), "request.uid"),
        (body({**REQUEST, "object": "text"}), "request.object"),
        (body({**REQUEST, "oldObject": "text"}), "request.oldObject"),
        (body({**REQUEST, "dryRun": "yes"}), "request.dryRun"),
        (body({**REQUEST, "kind": "Pod"}), "request.kind"),
        (body({**REQUEST, "object": {"spec": {"volumes": [{}] * MOST_VALUES}}}), "request.object"),
        (body({**REQUEST, "oldObject": {f"k{number}": 1 for number in range(MOST_VALUES)}}), "request.oldObject"),
    ],
)
def test_what_is_no_review_is_refused_with_the_field(sent: bytes, field: str) -> None:
    with pytest.raises(MalformedRequestError) as refused:
        decode_review(sent)
    assert field == refused.value.field


def test_texts_may_be_long_and_what_nobody_reads_may_be_anything() -> None:
    text = '{"a": [1, 2], "b": "\\\\"}, ' * 2 * MOST_VALUES
    review = decode_review(body({**REQUEST, "object": {"a": text}, "userInfo": [{}] * 2 * MOST_VALUES}))
    assert {"a": text} == review.object


def answer(encoded: bytes) -> dict[str, Any]:
    raw = json.loads(encoded)
    assert ("admission.k8s.io/v1", "AdmissionReview") == (raw["apiVersion"], raw["kind"])
    response: dict[str, Any] = raw["response"]
    return response


def test_allowed() -> None:
    assert {"uid": "u1", "allowed": True} == answer(encode_allowed("u1"))
    response = answer(encode_allowed("u1", [Operation("/a", {"b": 1})], ["x" * 300]))
    assert "JSONPatch" == response["patchType"]
    assert [{"op": "add", "path": "/a", "value": {"b": 1}}] == json.loads(base64.b64decode(response["patch"]))
    assert ["x" * 256] == response["warnings"]


# Patches, applied by an independent implementation of RFC 6902


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
    (operation,) = plan_value({"list": [{"a": 1}, {"b": {}}]}, ("list", 1, "b", "c/d~"), 5)
    assert ("/list/1/b/c~1d~0", 5) == (operation.path, operation.value)


def test_what_is_no_object_is_named() -> None:
    with pytest.raises(MalformedRequestError, match=r"a\.b"):
        plan_value({"a": {"b": "text"}}, ("a", "b", "c"), 1)
