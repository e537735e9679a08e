"""Random, bent, huge and deep reviews at every route of the webhook: a whole AdmissionReview or a 4xx, never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.reviews import BODY_LIMIT, SEEDS, Target, review, throw_one
from tests.fuzz.test_requests import UNHURRIED, DataChooser


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


def test_every_route_is_there(target: Target) -> None:
    assert {"mutate-pods", "mutate-share-managers"} <= set(target.routes)
    for route in target.routes:
        assert 200 == target.throw(route, json.dumps(SEEDS[route][0]()).encode())


@settings(max_examples=50, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_some_random_reviews(target: Target, data: st.DataObject) -> None:
    throw_one(target, DataChooser(data))


@pytest.mark.slow
@settings(max_examples=1500, suppress_health_check=UNHURRIED)
@given(data=st.data())
def test_many_random_reviews(target: Target, data: st.DataObject) -> None:
    throw_one(target, DataChooser(data))


def test_a_review_that_is_cut_off_anywhere_is_refused(target: Target) -> None:
    for route in target.routes:
        body = json.dumps(SEEDS[route][0]()).encode()
        for end in range(0, len(body), 23):
            assert 400 == target.throw(route, body[:end])


@pytest.mark.parametrize(
    "changes",
    [
        {"apiVersion": "admission.k8s.io/v1beta1"},
        {"apiVersion": None},
        {"kind": "ConversionReview"},
        {"request": None},
        {"request": []},
        {"request": {}},
        {"request": {"uid": ""}},
        {"request": {"uid": 5}},
        {"request": {"uid": "u", "object": 5}},
        {"request": {"uid": "u", "oldObject": "text"}},
        {"request": {"uid": "u", "dryRun": "yes"}},
    ],
    ids=json.dumps,
)
def test_what_is_no_review_of_ours_is_refused(target: Target, changes: dict[str, Any]) -> None:
    for route in target.routes:
        assert 400 == target.throw(route, json.dumps({**SEEDS[route][0](), **changes}).encode())


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"5", b"\xff\xfe", b'"\x80"', b"{}", b'{"request":'], ids=repr
)
def test_what_is_no_object_is_refused(target: Target, body: bytes) -> None:
    for route in target.routes:
        assert 400 == target.throw(route, body)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [500, 200_000])
def test_deep_nesting_harms_nobody(target: Target, opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    nested = opening * depth + "1" + closing * depth
    for route in target.routes:
        whole = json.dumps(SEEDS[route][0]()).replace('"object": {', '"object": {"deep": ' + nested + ", ", 1)
        if len(whole) > BODY_LIMIT:
            assert 413 == target.throw(route, whole.encode())
        else:
            assert target.throw(route, whole.encode()) in (200, 400)


def test_huge_reviews_are_refused_and_large_ones_are_not(target: Target) -> None:
    for route in target.routes:
        raw = SEEDS[route][0]()
        raw["request"]["object"]["metadata"]["annotations"] = {"large": "x" * (BODY_LIMIT // 2)}
        assert 200 == target.throw(route, json.dumps(raw).encode())
        raw["request"]["object"]["metadata"]["annotations"] = {"large": "x" * BODY_LIMIT}
        assert 413 == target.throw(route, json.dumps(raw).encode())


def test_a_review_without_objects_is_answered_or_refused_and_nothing_else(target: Target) -> None:
    for route in target.routes:
        for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT", ""):
            whole = SEEDS[route][0]()["request"]["resource"]["resource"]
            raw = review(whole, "Anything", operation, "ns", None, None)
            assert target.throw(route, json.dumps(raw).encode()) in (200, 400)


def test_reviews_of_other_kinds_are_allowed_or_refused(target: Target) -> None:
    for route in target.routes:
        for plural, kind in (("deployments", "Deployment"), ("pods", "Pod"), ("volumes", "Volume"), ("", "")):
            raw = review(plural, kind, "CREATE", "ns", {"metadata": {"name": "x"}, "spec": {}}, None)
            assert target.throw(route, json.dumps(raw).encode()) in (200, 400)


def test_other_methods_and_forms_are_refused(target: Target) -> None:
    for route in target.routes:
        body = json.dumps(SEEDS[route][0]()).encode()
        assert 415 == target.throw(route, body, content_type="application/yaml")
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            assert 405 == target.throw(route, body, method=method)
