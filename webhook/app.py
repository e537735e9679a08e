"""The routes: read the body within its limit, decode, ask, answer. Failures become answers here alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, UnsupportedMediaType

from controller.clock import Clock
from controller.errors import MalformedRequestError
from controller.log_line import LogLine, say
from controller.serving.request_body import headers_of, read_body
from webhook.metrics import WebhookMetrics
from webhook.review import Review, decode_review

_JSON: Final = "application/json"

log = logging.getLogger(__name__)


class Reviewer(Protocol):
    """What answers the reviews of one route."""

    def review(self, review: Review) -> bytes: ...
    def failed(self, review: Review) -> bytes:
        """The answer if `review` failed without a fault of the request."""
        ...


def create_app(
    reviewers: Mapping[str, Reviewer],
    is_ready: Callable[[], bool],
    observer: WebhookMetrics,
    clock: Clock,
    *,
    max_body_bytes: int,
) -> Flask:
    """The WSGI application of the webhook, with a route for each reviewer's name; no state of its own.

    A request that is not a review gets a 4xx. A review that fails on our side is answered by its reviewer's `failed`.
    """
    app = Flask("webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    for name, reviewer in reviewers.items():
        app.add_url_rule(f"/{name}", name, _view(name, reviewer, observer, clock), methods=["POST"])

    @app.get("/healthz")
    def healthz() -> ResponseReturnValue:
        return "ok\n", 200

    @app.get("/readyz")
    def readyz() -> ResponseReturnValue:
        return ("ok\n", 200) if is_ready() else ("the stores are not in sync yet\n", 503)

    @app.errorhandler(MalformedRequestError)
    def malformed(error: MalformedRequestError) -> ResponseReturnValue:
        observer.failed(_route(), "malformed")
        say(log, "malformed request", logging.WARNING, path=request.path, problem=error)
        return Response(f"{error}\n", status=400, mimetype="text/plain")

    @app.errorhandler(Exception)
    def failed(error: Exception) -> ResponseReturnValue:
        observer.failed(_route(), "internal")
        log.error(LogLine("request failed", {"path": request.path}), exc_info=error)
        return Response("the webhook failed; see its log\n", status=500, mimetype="text/plain")

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> ResponseReturnValue:
        observer.failed(_route(), "too-large" if error.code == 413 else "http")
        text = f"{error.description or error.name}\n"
        return Response(text, error.code or 500, headers_of(error), mimetype="text/plain")

    return app


def _view(name: str, reviewer: Reviewer, observer: WebhookMetrics, clock: Clock) -> Callable[[], ResponseReturnValue]:
    def view() -> ResponseReturnValue:
        started = clock.now()
        review = _review()
        try:
            answer = reviewer.review(review)
        except MalformedRequestError:
            raise
        except Exception as error:  # thread top
            observer.failed(name, "internal")
            what = {"path": name, "namespace": review.namespace, "name": review.name, "uid": review.uid}
            log.error(LogLine("review failed", what), exc_info=error)
            answer = reviewer.failed(review)
        response = Response(answer, mimetype=_JSON)
        response.call_on_close(lambda: observer.answered(name, clock.now() - started))
        return response

    return view


def _route() -> str:
    """The route for metrics. Unknown routes share one name, so that callers cannot invent names."""
    return request.url_rule.rule.strip("/") if request.url_rule is not None else "other"


def _review() -> Review:
    if request.mimetype != _JSON:
        raise UnsupportedMediaType("the body must be application/json")
    return decode_review(read_body())
