"""The bind verb: the extender makes the binding. The call begins and ends no promise: that follows from what the pod
shows afterwards, as when kube-scheduler binds. Nothing needs to be known of the pod, which may have no claims; the API
server refuses a pod that is gone, another one of its name, and one that is bound.

Complete, and off unless a scheduler's configuration names it: kube-scheduler can bind by itself, and its choice shows
in the pod's claims earlier than a binding does.

Source: kube-scheduler's `extender/v1` types (ExtenderBindingArgs, ExtenderBindingResult).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from controller.errors import ClusterError, MalformedRequestError
from controller.log_line import say
from extender import wire
from extender.preconditions import Preconditions

MOST_BYTES: Final = 65_536  # of a request: four names
_KEYS: Final = {"podname": "PodName", "podnamespace": "PodNamespace", "poduid": "PodUID", "node": "Node"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BindingArgs:
    pod: wire.PodRef
    node: str


def decode_binding_args(body: bytes) -> BindingArgs:
    """The request in `body`; MalformedRequestError names the field that is missing or no text."""
    fields = wire.decode_fields(body, _KEYS)
    texts = {}
    for name in _KEYS.values():
        text = wire.decode_as(str | None, fields[name], name) if name in fields else None
        if not text:
            raise MalformedRequestError(name, "is missing or empty")
        texts[name] = text
    return BindingArgs(wire.PodRef(texts["PodUID"], texts["PodNamespace"], texts["PodName"]), texts["Node"])


def encode_binding_result(error: str) -> bytes:
    """`error` "" says that the pod is bound."""
    return msgspec.json.encode({"Error": error})


class Binder(Protocol):
    """Posts a Binding that names the pod's uid. Raises ClusterError with the API server's message."""

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None: ...


class BindingService:
    """Answers the bind verb.

    Threads: any. Blocks: for the API server. I/O: the binding.
    """

    def __init__(self, preconditions: Preconditions, binder: Binder) -> None:
        self._preconditions, self._binder = preconditions, binder

    def bind(self, args: BindingArgs) -> str:
        """ "" when the pod is bound, else why not. Raises NotReadyError as the other verbs do."""
        self._preconditions.begin()  # the fence: nothing is written outside a term
        pod, failure = args.pod, ""
        try:
            self._binder.bind(pod.namespace, pod.name, pod.uid, args.node)
        except ClusterError as error:
            failure = str(error)
        what = {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid, "node": args.node}
        say(log, "bind", **what, decision="failed" if failure else "bound", error=failure)
        return failure
