"""Who may read the status document over the network: what the API server says of the caller's token decides."""

from __future__ import annotations

from typing import Any

import pytest

from controller.assembly.status_listeners import MOST_REVIEWS, StatusCallers
from controller.errors import UnavailableError
from controller.kube.api import Raw
from controller.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from tests.fakes.apiserver import FakeApiServer

USER = {"username": "reader", "uid": "u", "groups": ["g"], "extra": {"e": ["v"]}}


class Reviewing(FakeApiServer):
    """Knows one token, and lets its user get one path."""

    def create(self, resource: Resource, namespace: str | None, body: Raw, **_: object) -> Raw:
        self.fail("create", resource)
        spec: dict[str, Any] = body["spec"]
        if resource == TOKEN_REVIEWS:
            return {"status": {"authenticated": True, "user": USER}} if spec["token"] == "known" else {"status": {}}
        assert resource == ACCESS_REVIEWS
        assert {**USER, "user": USER["username"]}.items() >= {
            key: spec[key] for key in ("user", "uid", "groups")
        }.items()
        return {"status": {"allowed": spec["nonResourceAttributes"] == {"path": "/status", "verb": "get"}}}


@pytest.mark.parametrize(
    ("authorization", "path", "status"),
    [
        ("", "/status", "401"),
        ("Bearer ", "/status", "401"),
        ("Basic known", "/status", "401"),
        ("Bearer stranger", "/status", "401"),
        ("Bearer known", "/other", "403"),
    ],
)
def test_who_is_not_known_or_may_not_is_refused(authorization: str, path: str, status: str) -> None:
    refused = StatusCallers(Reviewing()).refusal(authorization, path)
    assert refused is not None
    assert status == refused[0][:3]


def test_who_may_reads_and_nobody_does_while_the_api_server_says_nothing() -> None:
    server = Reviewing()
    callers = StatusCallers(server)
    assert callers.refusal("Bearer known", "/status") is None
    server.fail_with(UnavailableError("503: away"), "create")
    for _ in range(2 * MOST_REVIEWS):  # a place that is not given back would show
        assert ("503 Service Unavailable", "the API server could not check who may read this") == callers.refusal(
            "Bearer known", "/status"
        )
    server.work()
    assert callers.refusal("bearer known", "/status") is None
