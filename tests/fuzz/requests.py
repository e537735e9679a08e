"""Requests from random choices: valid calls of every verb, bent a little or a lot, and plain noise.

Hypothesis makes the choices, from chance or from a coverage-guided fuzzer's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.extender_go.worlds import NAMESPACE, PodSpec, kube_node, kube_pod

VERBS = ("filter", "prioritize", "preempt", "bind")
METHODS = ("POST",) * 40 + ("GET", "PUT", "DELETE", "HEAD", "OPTIONS")
PREFIXES = ("/",) * 20 + ("/api/scheduler/", "/a/b/c/", "/filter/") * 2 + ("//", "/%2e%2e/")
STRANGERS = ("node-without-longhorn", "", "n1", "\u00e4\u2028", "x" * 300)
_MOST_CHANGES = 3
_TEXT = st.text(max_size=20)
NOISE = st.binary(max_size=200)
_NUMBERS = st.integers(-(2**61), 2**61) | st.sampled_from((0.5, 1e308, -0.0, 10**400, float("nan")))
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=10,
)


def throw_random(throw: Callable[[Any], object], drawn: st.SearchStrategy[Any], examples: int) -> None:
    """So many of what is drawn, thrown one after the other."""

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(drawn)
    def throw_one(one: Any) -> None:
        throw(one)

    throw_one()


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    method: str
    path: str
    body: bytes


def rarely(of: int) -> st.SearchStrategy[bool]:
    """True once in `of` times. A failing example shrinks to False, which is the usual."""
    return st.integers(1, of).map(lambda number: number == of)


@st.composite
def requests(draw: st.DrawFn, pods: Sequence[PodSpec], nodes: Sequence[str]) -> FuzzedRequest:
    verb = draw(st.sampled_from(VERBS))
    path = "/" + draw(_TEXT) if draw(rarely(30)) else draw(st.sampled_from(PREFIXES)) + verb
    method = draw(st.sampled_from(METHODS))
    if draw(rarely(10)):
        return FuzzedRequest(method, path, draw(NOISE))
    document = _call(draw, verb, draw(st.sampled_from(pods)), nodes)
    for _ in range(max(0, draw(st.integers(-_MOST_CHANGES, _MOST_CHANGES)))):
        document = changed(draw, document)
    return FuzzedRequest(method, path, body_of(draw, document))


def _call(draw: st.DrawFn, verb: str, pod: PodSpec, nodes: Sequence[str]) -> dict[str, Any]:
    if verb == "bind":
        node = draw(st.sampled_from((*nodes, *STRANGERS)))
        return {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node}
    chosen = [name for name in nodes if not draw(rarely(4))]
    if draw(rarely(6)):
        chosen.append(draw(st.sampled_from(STRANGERS)))
    if verb == "preempt":
        return {"Pod": kube_pod(pod), **_victims(draw, chosen)}
    form = draw(st.integers(0, 9))  # mostly one form alone; else both, neither, or one of them null
    by_name, whole = form < 5 or form == 8, 4 < form < 9
    call: dict[str, Any] = {"Pod": kube_pod(pod)}
    call["NodeNames"] = chosen if by_name else None
    call["Nodes"] = {"metadata": {}, "items": [kube_node(name) for name in chosen]} if whole else None
    return call


def _victims(draw: st.DrawFn, nodes: Sequence[str]) -> dict[str, Any]:
    by_uid, violations = draw(st.booleans()), draw(st.integers(0, 1))
    victims = {}
    for node in nodes:
        uids = [f"{node}-{number}" for number in range(draw(st.integers(0, 2)))]
        pods = [{"UID": uid} if by_uid else {"metadata": {"name": uid, "uid": uid}} for uid in uids]
        victims[node] = {"Pods": pods, "NumPDBViolations": violations}
    return {"NodeNameToMetaVictims" if by_uid else "NodeNameToVictims": victims}


def changed(draw: st.DrawFn, document: Any) -> Any:
    """The document with one thing in it different."""
    goes_inside = draw(st.integers(0, 3)) > 0
    if isinstance(document, dict) and document and goes_inside:
        key = draw(st.sampled_from(sorted(document)))
        match draw(st.integers(0, 4)):
            case 0:
                return {name: value for name, value in document.items() if name != key}
            case 1:
                spelling = draw(st.sampled_from((key.lower(), key.upper(), key.swapcase())) | _TEXT)
                return {**document, spelling: document[key]}
            case 2:
                return {name.lower(): value for name, value in document.items()}
            case _:
                return {**document, key: changed(draw, document[key])}
    if isinstance(document, list) and document and goes_inside:
        index = draw(st.integers(0, len(document) - 1))
        match draw(st.integers(0, 2)):
            case 0:
                return [*document, document[index]]
            case 1:
                return document[:index] + document[index + 1 :]
            case _:
                return [*document[:index], changed(draw, document[index]), *document[index + 1 :]]
    return draw(ANYTHING)


def body_of(draw: st.DrawFn, document: Any) -> bytes:
    """The document as JSON; rarely cut off, with some bytes different, or nested deeply."""
    body = json.dumps(document, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    if not draw(rarely(10)):
        return body
    at = draw(st.integers(0, len(body)))
    deep = draw(st.sampled_from((b"[", b'{"a":', b'"'))) * draw(st.sampled_from((1, 1_000, 100_000)))
    inserted = draw(st.sampled_from((b"", deep)) | NOISE)
    return body[:at] + inserted + draw(st.sampled_from((b"", body[at:], body[at + 8 :])))
