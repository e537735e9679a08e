"""The routes: read the body within its limit, decode, ask, answer. Failures become status codes here alone."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from flask import Blueprint, Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from controller.clock import Clock
from controller.errors import MalformedRequestError, NotReadyError, SchedulerError
from controller.log_line import say
from controller.serving.request_body import headers_of, read_body
from extender import binding, preemption, priorities, wire
from extender.preconditions import PodFailedError
from extender.service import ClientGoneError, FilterAnswers

_JSON: Final = "application/json"
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

_Args = TypeVar("_Args")
_Size = Callable[[], wire.ClusterSize]  # of this moment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verbs:
    """What answers each verb of kube-scheduler's configuration. `bind` returns why not, "" when the pod is bound. All
    may raise what `FilterAnswers.filter_pod` does."""

    filter: FilterAnswers
    prioritize: Callable[[wire.FilterArgs], bytes]
    preempt: Callable[[preemption.PreemptionArgs], bytes]
    bind: Callable[[binding.BindingArgs], str]


class RequestObserver(Protocol):
    """In the product `LeaderMetrics` of controller.assembly, which must not be imported here."""

    def filter_answered(self, seconds: float) -> None: ...
    def failed(self, kind: str) -> None: ...


def create_app(
    verbs: Verbs,
    observer: RequestObserver,
    clock: Clock,
    *,
    max_body_bytes: int,
    cluster_size: _Size = lambda: wire.ANY_SIZE,
) -> Flask:
    """The WSGI application of the extender; no state of its own. What a request may hold follows the cluster's size, up
    to `max_body_bytes`."""
    app = Flask("extender", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.register_blueprint(create_blueprint(verbs, observer, clock, cluster_size))
    return app


def create_blueprint(verbs: Verbs, observer: RequestObserver, clock: Clock, size: _Size) -> Blueprint:
    routes = Blueprint("extender", __name__)
    answered = partial(_answered, observer)

    # kube-scheduler appends the verb to `urlPrefix`, which may carry a path of its own, such as /api/scheduler.
    @routes.post("/filter")
    @routes.post("/<path:prefix>/filter")
    def filter_nodes(prefix: str = "") -> ResponseReturnValue:  # noqa: ARG001
        started = clock.now()
        args = _read(wire.decode_filter_args, size())
        response = answered(
            "filter",
            args.pod,
            lambda: verbs.filter.filter_pod(args, is_client_gone),
            lambda text: wire.encode_error(text, args),
        )
        response.call_on_close(lambda: observer.filter_answered(clock.now() - started))
        return response

    @routes.post("/prioritize")
    @routes.post("/<path:prefix>/prioritize")
    def prioritize(prefix: str = "") -> ResponseReturnValue:  # noqa: ARG001
        args = _read(wire.decode_filter_args, size())
        return answered(
            "prioritize",
            args.pod,
            lambda: verbs.prioritize(args),
            # The answer has no place for an error. Equal scores say nothing.
            lambda _: priorities.encode_priorities(dict.fromkeys(args.candidates, 0)),
        )

    @routes.post("/preempt")
    @routes.post("/<path:prefix>/preempt")
    def preempt(prefix: str = "") -> ResponseReturnValue:  # noqa: ARG001
        args = _read(preemption.decode_preemption_args, size())
        return answered(
            "preempt",
            args.pod,
            lambda: verbs.preempt(args),
            # The answer has no place for an error, and a candidate too many may cost a pod its life for nothing.
            lambda _: preemption.encode_preemption_result(args.candidates, ()),
        )

    @routes.post("/bind")
    @routes.post("/<path:prefix>/bind")
    def bind(prefix: str = "") -> ResponseReturnValue:  # noqa: ARG001
        args = binding.decode_binding_args(_body(size(), binding.MOST_BYTES))
        encode = binding.encode_binding_result
        return answered("bind", args.pod, lambda: encode(verbs.bind(args)), encode)

    @routes.get("/healthz")
    def healthz() -> ResponseReturnValue:
        try:
            verbs.filter.check_ready()
        except NotReadyError as error:
            return f"{error}\n", 503
        return "ok\n", 200

    _add_error_handlers(routes, observer)
    return routes


def _answered(
    observer: RequestObserver,
    verb: str,
    pod: wire.PodRef,
    answer: Callable[[], bytes],
    apology: Callable[[str], bytes],
) -> Response:
    """The answer, or, about a pod that cannot be decided, what `apology` makes of the error's text."""
    try:
        reply = answer()
    except PodFailedError as error:
        observer.failed("pod")
        what = {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}
        say(log, f"{verb} failed", logging.WARNING, **what, error=error)
        reply = apology(str(error))
    return Response(reply, mimetype=_JSON)


def _read(decode: Callable[[bytes, wire.ClusterSize], _Args], size: wire.ClusterSize) -> _Args:
    return decode(_body(size), size)


def _body(size: wire.ClusterSize, most_bytes: int | None = None) -> bytes:
    """The body within its limit, or 413."""
    most = size.most_bytes if most_bytes is None else most_bytes
    if (request.content_length or 0) > most:
        raise RequestEntityTooLarge(f"larger than {most} bytes; {size.nodes} nodes are known")
    body = read_body()
    if len(body) > most:
        raise RequestEntityTooLarge(f"larger than {most} bytes; {size.nodes} nodes are known")
    return body


def _add_error_handlers(routes: Blueprint, observer: RequestObserver) -> None:
    @routes.errorhandler(MalformedRequestError)
    def malformed(error: MalformedRequestError) -> ResponseReturnValue:
        observer.failed("malformed")
        say(log, "malformed request", logging.WARNING, path=request.path, problem=error)
        return _error(str(error), 400)

    @routes.errorhandler(NotReadyError)
    def not_ready(error: NotReadyError) -> ResponseReturnValue:
        observer.failed("not-ready")
        return _error(str(error), 503)  # kube-scheduler tries again; a wrong answer is worse

    @routes.errorhandler(ClientGoneError)
    def client_gone(error: ClientGoneError) -> ResponseReturnValue:
        observer.failed("client-gone")
        return _error(str(error), 503)

    @routes.errorhandler(SchedulerError)
    def failed(error: SchedulerError) -> ResponseReturnValue:
        observer.failed("internal")
        log.error("filter failed: %s", error, exc_info=error)
        return _error("Longhorn: the scheduler extender failed; see its log", 500)

    @routes.app_errorhandler(HTTPException)
    def http_error(error: HTTPException) -> ResponseReturnValue:
        if error.code == 413:
            observer.failed("too-large")
        response = _error(error.description or error.name, error.code or 500)
        response.headers.update(headers_of(error))
        return response


def _error(message: str, status: int) -> Response:
    return Response(wire.encode_error(message), status=status, mimetype=_JSON)


def is_client_gone() -> bool:
    """Whether the peer of the current request has closed its side, and would not read the answer."""
    sock = request.environ.get("gunicorn.socket")
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _GONE)
    return any(event & (_GONE | select.POLLNVAL) for _, event in poll.poll(0))
