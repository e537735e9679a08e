"""What every request is thrown at: the product's application over a small world, and what must hold afterwards."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st
from werkzeug.test import create_environ, run_wsgi_app

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import FilterOutcome, PodKnowledge
from controller.clock import Clock
from controller.errors import UnavailableError
from tests.extender_go.served import create_stage_app
from tests.extender_go.worlds import NAMESPACE, STATES, ExchangeableWorld, MadeUpWorld, PodSpec, VolumeSpec, WorldSpec
from tests.fuzz.requests import FuzzedRequest, requests

NODES = {"n1": (400,), "n2": (100, 60), "n3": (50,), "refuses-4": (400,)}
PODS = (
    PodSpec("plain"),
    PodSpec("small", (VolumeSpec("small", 40),)),
    PodSpec("double", (VolumeSpec("left", 60), VolumeSpec("right", 60))),
    PodSpec("copied", (VolumeSpec("copied", 50, "three"),)),
    PodSpec("strict", (VolumeSpec("strict", 100, "strict"),)),
    PodSpec("again", (VolumeSpec("again", 50, "local", "n2"),)),
    PodSpec("large", (VolumeSpec("large", 4_000),)),
    *(PodSpec(f"{state}-one", (VolumeSpec(f"{state}-one", 40),), state) for state in STATES if state != "pending"),
)
SPEC = WorldSpec(NODES, PODS)
# Statuses that may be answered; 503 only while a fault asks for it.
MEANT = {200, 308, 400, 404, 405, 413}
BODY_LIMIT = 100_000


class Fault(StrEnum):
    """What goes wrong around a request."""

    NONE = "none"
    NO_LEADER = "the term ends at one of the checks"
    CLIENT_GONE = "the client left before its call was looked at"
    CLIENT_LEAVES = "the client leaves while its call is decided"
    API_DOWN = "the API server does not answer"


MOST_CHECKS = 3  # that a term lasts
THROWS = st.lists(
    st.tuples(requests(PODS, tuple(NODES)), st.sampled_from(Fault), st.integers(0, MOST_CHECKS)),
    min_size=1,
    max_size=4,
)
Throws = list[tuple[FuzzedRequest, Fault, int]]


class WatchedAllocator(Allocator):
    """Tells when it has held, and does not wait for pods that the stores do not show: nothing would bring them."""

    on_hold: Callable[[], None] | None = None

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome:
        outcome = super().hold_pod(pod_uid, candidates, adds_up=adds_up)
        if self.on_hold is not None:
            self.on_hold()
        return outcome

    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge:
        return super().wait_for_pod(uid, key, 0.0)


def make_allocator(clock: Clock) -> Allocator:
    return WatchedAllocator(clock)


class VerbTarget:
    """One world and its application. Each request is judged by what it may do to the ledger, and by its answer."""

    def __init__(self) -> None:
        self.stage = ExchangeableWorld(SPEC)
        self.app = create_stage_app(self.stage, max_body_bytes=BODY_LIMIT)
        self.reset()

    def reset(self) -> None:
        self.stage.world = MadeUpWorld(SPEC, make_allocator)

    def throw_all(self, throws: Throws) -> None:
        """One after the other, at the world as it was made."""
        self.reset()
        for request, fault, checks in throws:
            self.throw(request, fault, checks)

    def throw(self, request: FuzzedRequest, fault: Fault = Fault.NONE, checks: int = 0) -> int:
        """Send it and judge; the status. AssertionError: something does not hold. `checks`: how many the term lasts."""
        before = self.promised()
        with self._faulty(fault, checks) as environ:
            status, mimetype, body = self._answer(request, environ)
        answer = json.loads(body) if mimetype == "application/json" and body else None
        meant = MEANT | ({503} if fault in (Fault.NO_LEADER, Fault.CLIENT_GONE, Fault.CLIENT_LEAVES) else set())
        assert status in meant, f"{status} {body[:300]!r}"
        verb = request.path.rpartition("/")[2]
        added = self.promised() - before
        owners = self._claims_of(request) if is_yes(verb, status, answer) else set()
        assert {claim for claim, _ in added} <= owners, f"held without a yes: {added}"
        if status == 200 and request.method == "POST":
            check_answer(verb, document_of(request), answer)
        elif status in (400, 413, 503):
            assert isinstance(answer, dict) and answer["Error"], "a failure that tells nobody why"
        return status

    def _answer(self, request: FuzzedRequest, extra: dict[str, Any]) -> tuple[int, str, bytes]:
        """Past every client, which would correct the path or refuse to send it."""
        environ = create_environ(method=request.method, data=request.body)
        environ |= {"PATH_INFO": request.path.encode(errors="replace").decode("latin-1"), **extra}
        body, status, headers = run_wsgi_app(self.app, environ)
        return int(status.split()[0]), headers.get("Content-Type", ""), b"".join(body)

    def promised(self) -> set[tuple[str, str]]:
        return {(claim, node) for claim, node, *_ in self.stage.world.ledger()["promises"]}

    def _claims_of(self, request: FuzzedRequest) -> set[str]:
        uid = any_case(document_of(request))["pod"]["metadata"]["uid"]
        return {f"{NAMESPACE}/{volume.claim}" for pod in PODS if pod.uid == uid for volume in pod.volumes}

    @contextmanager
    def _faulty(self, fault: Fault, checks: int) -> Iterator[dict[str, Any]]:
        world = self.stage.world
        allocator = world.allocator
        assert isinstance(allocator, WatchedAllocator)
        ours, theirs = socket.socketpair()
        if fault is Fault.CLIENT_GONE:
            theirs.close()
        allocator.on_hold = theirs.close if fault is Fault.CLIENT_LEAVES else None
        world.gate.checks_left = checks if fault is Fault.NO_LEADER else None
        if fault is Fault.API_DOWN:
            world.live.fails[""] = world.binder.failure = UnavailableError("no answer")
        with ours, theirs:
            yield {"gunicorn.socket": ours}
        allocator.on_hold = world.gate.checks_left = world.binder.failure = None
        world.live.fails.clear()


def document_of(request: FuzzedRequest) -> dict[str, Any]:
    """The body of a request that was understood. Bytes that are no text are read past where nobody needs them."""
    document: dict[str, Any] = json.loads(request.body.decode(errors="replace"), object_pairs_hook=last_of_each)
    return document


def last_of_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The object that stands there, with a key that stands there twice at its last place."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.pop(name, None)
        found[name] = value
    return found


def any_case(document: dict[str, Any]) -> dict[str, Any]:
    """The object's fields by their names in one letter case. The last one of a name counts, as for Go's decoder."""
    return {name.casefold(): value for name, value in document.items()}


def is_yes(verb: str, status: int, answer: Any) -> bool:
    """Whether the scheduler may count on the room: only then may anything be held."""
    if status != 200 or not isinstance(answer, dict) or answer.get("Error"):
        return False
    return verb == "filter" and bool(answer["NodeNames"] or (answer["Nodes"] or {}).get("items"))


def check_answer(verb: str, asked: dict[str, Any], answer: Any) -> None:
    fields = any_case(asked)
    match verb:
        case "filter":
            check_filter(fields, answer)
        case "prioritize":
            names = names_asked(fields)
            assert [entry["Host"] for entry in answer] == names
            assert all(0 <= entry["Score"] <= 10 for entry in answer)
        case "preempt":
            asked_nodes = {**(fields.get("nodenametovictims") or {}), **(fields.get("nodenametometavictims") or {})}
            kept = answer["NodeNameToMetaVictims"]
            assert kept.keys() <= asked_nodes.keys()
            assert all(entry["Pods"] for entry in kept.values()), "the scheduler takes an empty list for an error"
        case "bind":
            assert list(answer) == ["Error"]


def check_filter(fields: dict[str, Any], answer: dict[str, Any]) -> None:
    """The answer's form is the request's, and every candidate is in it once: passed, refused or in an error."""
    assert list(answer) == ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]
    names, refused = names_asked(fields), answer["FailedAndUnresolvableNodes"]
    assert (answer["NodeNames"] is not None) == (fields.get("nodenames") is not None)
    assert (answer["Nodes"] is not None) == (fields.get("nodes") is not None)
    passed = [item["metadata"]["name"] for item in (answer["Nodes"] or {}).get("items", ())]
    if answer["NodeNames"] is not None and answer["Nodes"] is not None:
        assert sorted(passed) == sorted(answer["NodeNames"])
    passed = answer["NodeNames"] if answer["NodeNames"] is not None else passed
    assert answer["FailedNodes"] == {}
    assert len(set(passed)) == len(passed)
    assert {*passed} <= {*names} and refused.keys() <= {*names}
    assert not ({*passed} & refused.keys())
    if answer["Error"]:
        assert not passed and not refused, "an error that also calls nodes unsuitable"


def names_asked(fields: dict[str, Any]) -> list[str]:
    if fields.get("nodenames") is not None:
        return list(fields["nodenames"])
    return [item["metadata"]["name"] for item in (fields["nodes"] or {}).get("items") or ()]
