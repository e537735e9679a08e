"""Requests from random choices: valid calls of every verb, bent a little or a lot, and plain noise.

The choices come from a Chooser, so that hypothesis and a coverage-guided fuzzer make the same requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tests.extender_go.worlds import NAMESPACE, PodSpec, kube_node, kube_pod

VERBS = ("filter", "prioritize", "preempt", "bind")
METHODS = ("POST",) * 40 + ("GET", "PUT", "DELETE", "HEAD", "OPTIONS")
PREFIXES = ("/",) * 20 + ("/api/scheduler/", "/a/b/c/", "/filter/") * 2 + ("//", "/%2e%2e/")
STRANGERS = ("node-without-longhorn", "", "n1", "\u00e4\u2028", "x" * 300)
OPENINGS: tuple[bytes, ...] = (b"[", b'{"a":', b'"')
_MOST_CHANGES = 3
_Picked = TypeVar("_Picked")


class Chooser(Protocol):
    """Where choices come from."""

    def number(self, most: int) -> int:
        """0 to `most`, both included."""
        ...

    def text(self) -> str: ...
    def raw(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes


def pick(chooser: Chooser, choices: Sequence[_Picked]) -> _Picked:
    return choices[chooser.number(len(choices) - 1)]


def is_rare(chooser: Chooser, of: int) -> bool:
    """True once in `of` times. A chooser that has nothing left to choose from says 0, which is the usual."""
    return chooser.number(of - 1) == of - 1


def make_request(chooser: Chooser, pods: Sequence[PodSpec], nodes: Sequence[str]) -> Request:
    verb = pick(chooser, VERBS)
    path = pick(chooser, PREFIXES) + verb
    if is_rare(chooser, 30):
        path = "/" + chooser.text()
    method = pick(chooser, METHODS)
    if is_rare(chooser, 10):
        return Request(method, path, chooser.raw())
    document = _call(chooser, verb, pick(chooser, pods), nodes)
    for _ in range(max(0, chooser.number(2 * _MOST_CHANGES) - _MOST_CHANGES)):
        document = changed(chooser, document)
    body = json.dumps(document, ensure_ascii=chooser.number(1) == 1).encode(errors="surrogatepass")
    return Request(method, path, bent(chooser, body) if is_rare(chooser, 10) else body)


def _call(chooser: Chooser, verb: str, pod: PodSpec, nodes: Sequence[str]) -> dict[str, Any]:
    if verb == "bind":
        node = pick(chooser, (*nodes, *STRANGERS))
        return {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node}
    chosen = [name for name in nodes if not is_rare(chooser, 4)]
    if is_rare(chooser, 6):
        chosen.append(pick(chooser, STRANGERS))
    if verb == "preempt":
        return {"Pod": kube_pod(pod), **_victims(chooser, chosen)}
    form = chooser.number(9)  # mostly one form alone; else both, neither, or one of them null
    by_name, whole = form < 5 or form == 8, 4 < form < 9
    call: dict[str, Any] = {"Pod": kube_pod(pod)}
    call["NodeNames"] = chosen if by_name else None
    call["Nodes"] = {"metadata": {}, "items": [kube_node(name) for name in chosen]} if whole else None
    return call


def _victims(chooser: Chooser, nodes: Sequence[str]) -> dict[str, Any]:
    uids = {node: [f"{node}-{number}" for number in range(chooser.number(2))] for node in nodes}
    if chooser.number(1):
        return {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in found], "NumPDBViolations": chooser.number(1)}
                for node, found in uids.items()
            }
        }
    return {
        "NodeNameToVictims": {
            node: {"Pods": [{"metadata": {"name": uid, "uid": uid}} for uid in found], "NumPDBViolations": 0}
            for node, found in uids.items()
        }
    }


def changed(chooser: Chooser, document: Any) -> Any:
    """The document with one thing in it different."""
    if isinstance(document, dict) and document and chooser.number(3):
        key = pick(chooser, sorted(document))
        match chooser.number(4):
            case 0:
                return {name: value for name, value in document.items() if name != key}
            case 1:
                spelling = pick(chooser, (key.lower(), key.upper(), key.swapcase(), chooser.text()))
                return {**document, spelling: document[key]}
            case 2:
                return {name.lower(): value for name, value in document.items()}
            case _:
                return {**document, key: changed(chooser, document[key])}
    if isinstance(document, list) and document and chooser.number(3):
        index = chooser.number(len(document) - 1)
        match chooser.number(2):
            case 0:
                return [*document, document[index]]
            case 1:
                return document[:index] + document[index + 1 :]
            case _:
                return [*document[:index], changed(chooser, document[index]), *document[index + 1 :]]
    return _anything(chooser, 3)


def _anything(chooser: Chooser, depth: int) -> Any:
    match chooser.number(8 if depth else 6):
        case 0:
            return None
        case 1:
            return bool(chooser.number(1))
        case 2:
            return chooser.number(2**62) - 2**61
        case 3:
            return pick(chooser, (0.5, 1e308, -0.0, 10**400, float("nan")))
        case 4 | 5 | 6:
            return chooser.text()
        case 7:
            return [_anything(chooser, depth - 1) for _ in range(chooser.number(3))]
        case _:
            return {chooser.text(): _anything(chooser, depth - 1) for _ in range(chooser.number(3))}


def bent(chooser: Chooser, body: bytes) -> bytes:
    """The bytes cut off, or with some of them different."""
    at = chooser.number(len(body))
    match chooser.number(3):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + chooser.raw() + body[at:]
        case 2:
            return body[:at] + chooser.raw() + body[at + chooser.number(8) :]
        case _:
            deep: int = 10 ** chooser.number(5)
            return body[:at] + pick(chooser, OPENINGS) * deep + body[at:]
