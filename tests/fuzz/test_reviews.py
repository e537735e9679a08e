"""Random, bent, huge and deep reviews at every route of the webhook: a whole AdmissionReview or a 4xx, never a 5xx."""

from __future__ import annotations

import json

import pytest

from controller.settings import MEBIBYTE
from tests.fuzz.requests import throw_random
from tests.fuzz.reviews import SEEDS, ReviewTarget, requests, review
from webhook.assemble import ROUTES


@pytest.fixture(scope="module")
def target() -> ReviewTarget:
    return ReviewTarget()


def test_every_route_is_there(target: ReviewTarget) -> None:
    assert {*ROUTES} == {*target.routes} == {*SEEDS}
    for route in target.routes:
        assert 200 == target.throw(route, json.dumps(SEEDS[route][0]()).encode())


@pytest.mark.parametrize("examples", [50, pytest.param(150, marks=pytest.mark.slow)], ids=["a few", "many"])
def test_random_reviews(target: ReviewTarget, examples: int) -> None:
    throw_random(lambda request: target.throw(*request), requests(), examples)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [500, 200_000])
def test_deep_nesting_harms_nobody(target: ReviewTarget, opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    nested = opening * depth + "1" + closing * depth
    for route in target.routes:
        whole = json.dumps(SEEDS[route][0]()).replace('"object": {', '"object": {"deep": ' + nested + ", ", 1)
        assert target.throw(route, whole.encode()) in ((413,) if len(whole) > MEBIBYTE else (200, 400))


def test_huge_reviews_are_refused_and_large_ones_are_not(target: ReviewTarget) -> None:
    for route in target.routes:
        raw = SEEDS[route][0]()
        for size, status in ((MEBIBYTE // 2, 200), (MEBIBYTE, 413)):
            raw["request"]["object"]["metadata"]["annotations"] = {"large": "x" * size}
            assert status == target.throw(route, json.dumps(raw).encode())


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT", ""])
@pytest.mark.parametrize(
    ("plural", "kind"), [("deployments", "Deployment"), ("pods", "Pod"), ("volumes", "Volume"), ("", "")]
)
def test_reviews_of_other_kinds_or_without_objects_are_answered_or_refused(
    target: ReviewTarget, plural: str, kind: str, operation: str
) -> None:
    for route in target.routes:
        for resource in (plural, SEEDS[route][0]()["request"]["resource"]["resource"]):
            for new in (None, {"metadata": {"name": "x"}, "spec": {}}):
                raw = review(resource, kind, operation, "ns", new, None)
                assert target.throw(route, json.dumps(raw).encode()) in (200, 400)
