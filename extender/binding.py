"""The bind verb: the binding is ours to make, and its promise ours to keep or to take back.

Complete, and off unless a scheduler's configuration names it: kube-scheduler binds as well by itself, and what it chose
shows in the pod's claims earlier than a binding does.

Source: kube-scheduler's `extender/v1` types (ExtenderBindingArgs, ExtenderBindingResult).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from controller.allocator.outcome import Mode
from controller.errors import ClusterError, MalformedRequestError, NotFoundError, UnavailableError
from controller.follow.live import LiveReads
from extender import wire
from extender.preconditions import LIVE_READ_SECONDS, PodFailedError, Preconditions

_KEYS: Final = {"podname": "PodName", "podnamespace": "PodNamespace", "poduid": "PodUID", "node": "Node"}

log = logging.getLogger(__name__)


class _Result(msgspec.Struct, rename={"error": "Error"}):
    error: str


_ENCODER: Final = msgspec.json.Encoder()


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
    return _ENCODER.encode(_Result(error))


class Allocator(Protocol):
    def begin_binding(self, pod_uid: str, node: str) -> None: ...
    def end_binding(self, pod_uid: str) -> None: ...


class Binder(Protocol):
    """Posts a Binding that names the pod's uid. Raises ClusterError with the API server's words."""

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None: ...


class BindingService:
    """Answers the bind verb.

    Threads: any. Blocks: as Preconditions does, and for the API server. I/O: the binding, and live reads.
    """

    def __init__(self, allocator: Allocator, preconditions: Preconditions, binder: Binder, live: LiveReads) -> None:
        self._allocator, self._preconditions, self._binder, self._live = allocator, preconditions, binder, live

    def bind(self, args: BindingArgs) -> str:
        """ "" when the pod is bound, else why not. Raises NotReadyError, PodFailedError as the other verbs do."""
        checks, pod = self._preconditions, args.pod
        term = checks.begin()
        if checks.mode is not Mode.BYPASS:
            checks.check_fresh()
            checks.know_pod(pod.uid, pod.namespace, pod.name)
        try:
            self._allocator.begin_binding(pod.uid, args.node)
        except NotFoundError as error:
            if checks.mode is not Mode.BYPASS:
                raise PodFailedError("Longhorn: the pod does not exist") from error
        error_text = "the call ended early"
        try:
            checks.check_term(term)  # the fence: nothing is written outside a term
            error_text = self._post(args)
        finally:
            if error_text:
                self._allocator.end_binding(pod.uid)
        log.info("bind pod=%s uid=%s node=%s error=%s", pod.key, pod.uid, args.node, error_text or "-")
        return error_text

    def _post(self, args: BindingArgs) -> str:
        pod = args.pod
        try:
            self._binder.bind(pod.namespace, pod.name, pod.uid, args.node)
        except UnavailableError as error:
            self._look_again(pod)
            return str(error)
        except ClusterError as error:
            return str(error)
        return ""

    def _look_again(self, pod: wire.PodRef) -> None:
        """The answer was lost, the binding perhaps not: see what the pod shows before its promise is taken back."""
        try:
            self._live.refresh("pod", pod.namespace, pod.name, LIVE_READ_SECONDS)
        except ClusterError as error:
            log.warning("pod not read after a lost binding pod=%s error=%s", pod.key, error)
