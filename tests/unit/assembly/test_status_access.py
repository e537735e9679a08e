"""Who may read what over the network: what the API server says of the caller's token and rights decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controller.assembly.status_access import (
    MOST_NAMESPACES,
    MOST_REVIEWS,
    SEES_SECONDS,
    ExplainedPath,
    StatusCallers,
    explained,
)
from controller.errors import NotFoundError, UnavailableError
from controller.kube.api import Raw
from controller.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from controller.process.status_app import StatusRefusedError
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

USER = {"username": "reader", "uid": "u", "groups": ["g"], "extra": {"e": ["v"]}}
LONGHORN = "longhorn-system"
POD = {"verb": "get", "resource": "pods", "namespace": "team", "name": "app"}
CLAIM = {"verb": "get", "resource": "persistentvolumeclaims", "namespace": "team", "name": "data"}
VOLUME = {"verb": "get", "group": "longhorn.io", "resource": "volumes", "namespace": LONGHORN, "name": "pvc-1"}


def pods_of(namespace: str) -> Mapping[str, str]:
    return {"verb": "list", "resource": "pods", **({"namespace": namespace} if namespace else {})}


class Reviewing(FakeApiServer):
    """Knows one token. Its user may do what `allows` has: paths, and attributes of objects."""

    def __init__(self, *allows: str | Mapping[str, str]) -> None:
        super().__init__()
        self.allows, self.asked, self.clock = list(allows), list[object](), VirtualClock()
        self.seconds = 0.0  # that a review takes

    def create(self, resource: Resource, namespace: str | None, body: Raw, **_: object) -> Raw:
        self.clock.advance(self.seconds)
        self.fail("create", resource)
        spec: dict[str, Any] = body["spec"]
        if resource == TOKEN_REVIEWS:
            return {"status": {"authenticated": True, "user": USER}} if spec["token"] == "known" else {"status": {}}
        assert resource == ACCESS_REVIEWS
        assert ("reader", "u", ["g"], {"e": ["v"]}) == (spec["user"], spec["uid"], spec["groups"], spec["extra"])
        wanted = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        if "path" in wanted:
            assert "get" == wanted["verb"]
            wanted = wanted["path"]
        self.asked.append(wanted)
        return {"status": {"allowed": wanted in self.allows}}

    def callers(self) -> StatusCallers:
        return StatusCallers(self, self.clock, LONGHORN)


def refusal(server: Reviewing, authorization: str, path: str) -> str:
    with pytest.raises(StatusRefusedError) as caught:
        server.callers().admit(authorization, path)
    return caught.value.status[:3]


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("", "401"), ("Bearer ", "401"), ("Basic known", "401"), ("Bearer stranger", "401"), ("Bearer known", "403")],
)
@pytest.mark.parametrize("path", ["/overview", "/", "/page/main.js", "/explain/pods/team/app"])
def test_who_is_not_known_or_may_not_is_refused(authorization: str, status: str, path: str) -> None:
    assert status == refusal(Reviewing("/status", CLAIM, pods_of("")), authorization, path)


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/status", "/status"),
        ("/decisions", "/decisions"),
        ("/", "/"),
        ("/page/main.js", "/page/main.js"),
        ("/explain/pods/team/app", POD),
        ("/explain/claims/team/data", CLAIM),
        ("/explain/volumes/pvc-1", VOLUME),
    ],
)
def test_a_right_opens_its_path_and_what_is_explained_needs_the_object_s(
    path: str, right: str | Mapping[str, str]
) -> None:
    server = Reviewing(right)
    server.callers().admit("bearer known", path)
    assert [right] == server.asked


def test_nobody_is_let_in_while_the_api_server_says_nothing() -> None:
    server = Reviewing("/status")
    callers = server.callers()
    server.fail_with(UnavailableError("503: away"), "create")
    for _ in range(2 * MOST_REVIEWS):  # a place that is not given back would show
        with pytest.raises(UnavailableError):
            callers.admit("Bearer known", "/status")
    server.work()
    callers.admit("Bearer known", "/status")


def test_names_of_a_namespace_are_for_those_who_may_list_its_pods() -> None:
    server = Reviewing(POD, pods_of("team"))
    sees = server.callers().admit("Bearer known", "/explain/pods/team/app")
    assert [True, False, True, False] == [sees(name) for name in ("team", "other", "team", "other")]
    assert [POD, pods_of(""), pods_of("team"), pods_of("other")] == server.asked  # each once


def test_who_may_list_all_pods_is_asked_about_none() -> None:
    server = Reviewing(POD, pods_of(""))
    sees = server.callers().admit("Bearer known", "/explain/pods/team/app")
    assert all(sees(f"ns-{number}") for number in range(2 * MOST_NAMESPACES))
    assert [POD, pods_of("")] == server.asked


def test_so_many_namespaces_are_asked_about_and_the_others_count_as_hidden() -> None:
    names = [f"ns-{number}" for number in range(MOST_NAMESPACES + 5)]
    server = Reviewing(POD, *map(pods_of, names))
    sees = server.callers().admit("Bearer known", "/explain/pods/team/app")
    assert [True] * MOST_NAMESPACES + [False] * 5 == [sees(name) for name in names]
    assert 2 + MOST_NAMESPACES == len(server.asked)


def test_reviews_that_fail_or_take_too_long_hide_nothing_in_silence() -> None:
    server = Reviewing(POD, *(pods_of(f"ns-{number}") for number in range(9)))
    sees = server.callers().admit("Bearer known", "/explain/pods/team/app")
    server.seconds = SEES_SECONDS / 2
    assert sees("ns-1")
    with pytest.raises(UnavailableError, match="too long"):
        sees("ns-2")
    sees = server.callers().admit("Bearer known", "/explain/pods/team/app")
    server.fail_with(UnavailableError("503: away"), "create")
    with pytest.raises(UnavailableError, match="away"):
        sees("team")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/explain/pods/team/app-0", ExplainedPath("pods", "team", "app-0")),
        ("/explain/claims/team/data.x", ExplainedPath("claims", "team", "data.x")),
        ("/explain/volumes/pvc-1", ExplainedPath("volumes", "", "pvc-1")),
        ("/explain/pods/team", None),
        ("/explain/pods/team/", None),
        ("/explain/pods/team/app/log", None),
        ("/explain/pods/../app", None),
        ("/explain/pods/Team/app", None),
        ("/explain/pods/team/a%2fb", None),
        ("/explain/pods/team/app\n", None),
        ("/explain/volumes/team/pvc-1", None),
        ("/explain/secrets/team/key", None),
        (f"/explain/volumes/{'x' * 254}", None),
    ],
)
def test_only_what_can_be_a_name_is_explained(path: str, found: ExplainedPath | None) -> None:
    if found is not None:
        assert found == explained(path)
        return
    with pytest.raises(NotFoundError):
        explained(path)
    with pytest.raises(NotFoundError):  # the API server is not asked whether one may get it
        Reviewing().callers().admit("Bearer known", path)
