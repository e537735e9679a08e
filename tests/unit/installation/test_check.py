"""What `helm test` tries, against an API server in memory and an extender that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from controller.errors import ForbiddenError
from controller.installation.check import CheckResult, CheckTarget, check_installation
from controller.kube.resources import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from controller.model.times import rfc3339
from controller.placement.gate import NO_TIME
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.ports import free_port

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

NAME, GATE = "longhorn-scheduler-extender", "longhorn-scheduler-extender-gate"
ON = {"scheduler-extender-enabled": "true"}
KEYS = ("ca.crt", "tls.crt", "tls.key")
CONFIGURATION = "zz-longhorn-scheduler-extender"


class SilentHandler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


class Extender:
    """Answers as it is told, over plain HTTP. Threads: its own."""

    def __init__(self) -> None:
        self.status, self.answer = 200, {"NodeNames": ["longhorn-scheduler-extender-check"], "Error": ""}
        self.asked: list[Any] = []
        self._server = make_server("127.0.0.1", 0, self._respond, handler_class=SilentHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def _respond(self, environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        self.asked.append(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start_response(f"{self.status} as it is told", [])
        return [json.dumps(self.answer).encode()]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def extender() -> Iterator[Extender]:
    made = Extender()
    yield made
    made.stop()


def configured(server: FakeApiServer, *entries: str) -> None:
    body = {"metadata": {"name": CONFIGURATION}, "webhooks": [{"name": name} for name in entries]}
    server.put(MUTATING_WEBHOOKS, None, body)


def check(
    server: FakeApiServer, extender: Extender, *, secret: str = "", seconds: float = 0.0
) -> dict[str, CheckResult]:
    clock, names = VirtualClock(), ("longhorn-system", "default", "default-scheduler")
    target = CheckTarget(*names, extender.address, "extender.test", secret, NAME)
    found = check_installation(server, clock, target, wait_seconds=seconds, pause=clock.advance)
    return {one.what: one for one in found}


def test_both_are_tried(extender: Extender) -> None:
    server = FakeApiServer()
    configured(server, "pods.scheduling.longhorn.io")
    found = check(server, extender)
    assert ("ok", True) == (found["extender"].outcome, found["extender"].is_well)
    assert [["longhorn-scheduler-extender-check"]] == [args["NodeNames"] for args in extender.asked]
    # Nobody changed the pod: in memory there is no admission.
    assert "failed: webhook: a pod with a claim in default does not get" in found["webhook"].line
    assert not [key for key in server.objects if "pods" in key[0]]  # a dry run


@pytest.mark.parametrize("entries", [None, (), ("share-managers.scheduling.longhorn.io",)])
def test_a_webhook_that_nobody_asks_yet_is_no_failure(extender: Extender, entries: tuple[str, ...] | None) -> None:
    server = FakeApiServer()
    if entries is not None:
        configured(server, *entries)
    assert "skipped" == check(server, extender)["webhook"].outcome


@pytest.mark.parametrize(
    ("denial", "outcome", "text"),
    [
        ("the leader answers the webhook", "ok", "the leader answers"),
        ("the leader does not answer the webhook; its log says why", "failed", "port 9505"),
        ("no pods today", "failed", "no pods today"),
        ("", "failed", "does not reach the webhook"),
    ],
)
def test_the_way_of_a_growth_to_the_leader_is_tried(extender: Extender, denial: str, outcome: str, text: str) -> None:
    server = FakeApiServer()
    assert "skipped" == check(server, extender)["growth"].outcome
    entries = [{"name": "growth-check.scheduling.longhorn.io"}]
    server.put(VALIDATING_WEBHOOKS, None, {"metadata": {"name": NAME}, "webhooks": entries})

    def deny(verb: str, resource: Resource) -> None:
        if denial and (verb, resource) == ("create", PODS):
            raise ForbiddenError(f"403: {denial}")

    server.fail = deny
    found = check(server, extender)["growth"]
    assert (outcome, True) == (found.outcome, text in found.text)


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [
        (503, {"x": "not leading"}, "answers 503"),
        (200, {"Error": "no"}, "refuses a pod without volumes: no"),
        (200, {"NodeNames": []}, "refuses a pod without volumes"),
    ],
)
def test_an_extender_that_does_not_answer_fails(
    extender: Extender, status: int, answer: dict[str, Any], text: str
) -> None:
    extender.status, extender.answer = status, answer
    found = check(FakeApiServer(), extender, seconds=5.0)["extender"]
    assert (False, True) == (found.is_well, text in found.text)
    assert 6 == len(extender.asked)  # again and again, until the time is over


def test_what_cannot_be_tried_is_told(extender: Extender) -> None:
    server = FakeApiServer()
    assert "404" in check(server, extender, secret="client")["extender"].text
    server.put(SECRETS, "longhorn-system", {"metadata": {"name": "client"}, "data": {"ca.crt": "eA=="}})
    found = check(server, extender, secret="client")["extender"]
    assert "the Secret longhorn-system/client has no tls.crt" in found.text
    server.put(SECRETS, "longhorn-system", {"metadata": {"name": "client"}, "data": dict.fromkeys(KEYS, "eA==")})
    assert "failed" == check(server, extender, secret="client")["extender"].outcome


def test_a_closed_port_is_told(extender: Extender) -> None:
    extender.address = f"127.0.0.1:{free_port()}"
    assert "Connection refused" in check(FakeApiServer(), extender)["extender"].text


# The gate


class GuardedSite:
    """All that the gate is made of, as the leader renewed it at the API server's time."""

    def __init__(self, **settings: str) -> None:
        self.server, self.clock = FakeApiServer(), VirtualClock()
        self.server.date = self.clock.now_utc
        self.set(**settings)
        self.server.put(POLICIES, None, {"metadata": {"name": GATE}})
        self.bind("Deny")
        self.renew({"scheduling.longhorn.io/renewed": rfc3339(self.clock.now_utc())})

    def bind(self, action: str) -> None:
        body = {"metadata": {"name": GATE}, "spec": {"validationActions": [action]}}
        self.server.put(POLICY_BINDINGS, None, body)

    def renew(self, annotations: dict[str, str]) -> None:
        body = {"metadata": {"name": GATE, "annotations": annotations}}
        self.server.put(SERVICE_ACCOUNTS, "longhorn-system", body)

    def lose(self, resource: Resource) -> None:
        self.server.delete(resource, "longhorn-system" if resource == SERVICE_ACCOUNTS else None, GATE)

    def tell_no_time(self) -> None:
        self.server.date = lambda: None

    def set(self, **settings: str) -> None:
        data = {**ON, **{f"scheduler-extender-{name.replace('_', '-')}": text for name, text in settings.items()}}
        self.server.put(CONFIG_MAPS, "longhorn-system", {"metadata": {"name": NAME}, "data": data})

    def line(self, extender: Extender) -> str:
        return check(self.server, extender)["gate"].line


PARTS = (POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS)
LACKS = f"failed: gate: there is no {{}} {GATE}, so Longhorn places as well"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda site: site.clock.advance(45), "ok: gate: renewed 45 s ago; what others place is refused"),
        (lambda site: site.clock.advance(46), "failed: gate: no leader has renewed it for 46 s, so Longhorn places"),
        (lambda site: site.renew({}), "failed: gate: no leader has renewed it yet"),
        (lambda site: site.bind("Audit"), "ok: gate: renewed 0 s ago; what others place is noted"),
        (lambda site: site.tell_no_time(), f"failed: gate: {NO_TIME}"),
        *((partial(GuardedSite.lose, resource=one), LACKS.format(one.kind)) for one in PARTS),
    ],
)
def test_the_gate_stands_while_a_leader_renews_it_and_no_part_is_missing(
    extender: Extender, change: Callable[[GuardedSite], object], line: str
) -> None:
    site = GuardedSite(placement="audit" if "noted" in line else "leader")
    change(site)
    assert line == site.line(extender)


@pytest.mark.parametrize(
    "settings",
    [{"enabled": "false"}, {"bypass": "true"}, {"placement": "longhorn"}, {"allocation_authority": "disk-scheduler"}],
)
def test_where_there_is_to_be_none_it_is_skipped(extender: Extender, settings: dict[str, str]) -> None:
    site = GuardedSite(**settings)
    for resource in (POLICY_BINDINGS, SERVICE_ACCOUNTS):
        site.lose(resource)
    assert site.line(extender).startswith("skipped: gate: ")
    site.server.delete(CONFIG_MAPS, "longhorn-system", NAME)
    assert site.line(extender).startswith(f"skipped: gate: there is no ConfigMap longhorn-system/{NAME}, which says")


def test_a_setting_that_does_nothing_any_more_is_noted_beside(extender: Extender) -> None:
    found = check(GuardedSite(allow_stranding="true").server, extender)
    assert found["settings"].line.startswith("noted: settings: scheduler-extender-allow-stranding: 'true' has no")
    assert found["settings"].is_well
    assert "settings" not in check(GuardedSite().server, extender)
