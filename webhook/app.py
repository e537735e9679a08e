"""The routes: read the body within its limit, decode, ask, answer. Failures become answers here alone."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from flask import Flask, Response, g, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, UnsupportedMediaType

from controller.clock import Clock
from controller.errors import MalformedRequestError
from webhook import review as reviews
from webhook.review import Review
from webhook.service import BLIND_WARNING

MAX_BODY_BYTES: Final = 8 * 1024**2  # an object is at most 1.5 MiB in etcd; a review may carry it twice, with escapes
_JSON: Final = "application/json"

log = logging.getLogger(__name__)


class Pods(Protocol):
    def review(self, review: Review) -> bytes: ...
    def is_ready(self) -> bool: ...


class RequestObserver(Protocol):
    def answered(self, route: str, seconds: float) -> None: ...
    def failed(self, route: str, kind: str) -> None: ...


def create_app(pods: Pods, observer: RequestObserver, clock: Clock, *, max_body_bytes: int = MAX_BODY_BYTES) -> Flask:
    """The WSGI application of the webhook; no state of its own.

    A request that is no review gets a 4xx. A review that fails on our side is allowed, with a warning: admission must
    not suffer from our being there.
    """
    app = Flask("webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes

    @app.post("/mutate-pods")
    def mutate_pods() -> ResponseReturnValue:
        started = clock.now()
        g.review = review = _review()
        answer = pods.review(review)
        response = Response(answer, mimetype=_JSON)
        response.call_on_close(lambda: observer.answered("mutate-pods", clock.now() - started))
        return response

    @app.get("/healthz")
    def healthz() -> ResponseReturnValue:
        return "ok\n", 200

    @app.get("/readyz")
    def readyz() -> ResponseReturnValue:
        return ("ok\n", 200) if pods.is_ready() else ("stores are not in sync\n", 503)

    @app.errorhandler(MalformedRequestError)
    def malformed(error: MalformedRequestError) -> ResponseReturnValue:
        observer.failed(_route(), "malformed")
        log.warning("malformed request path=%s problem=%s", request.path, error)
        return Response(f"{error}\n", status=400, mimetype="text/plain")

    @app.errorhandler(Exception)
    def failed(error: Exception) -> ResponseReturnValue:
        observer.failed(_route(), "internal")
        review: Review | None = g.get("review")
        if review is None:
            log.error("request failed path=%s", request.path, exc_info=error)
            return Response("the webhook failed; its log has the reason\n", status=500, mimetype="text/plain")
        log.error("review failed uid=%s namespace=%s", review.uid, review.namespace, exc_info=error)
        return Response(reviews.encode_allowed(review.uid, warnings=[BLIND_WARNING]), mimetype=_JSON)

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> ResponseReturnValue:
        observer.failed(_route(), "too-large" if error.code == 413 else "http")
        return Response(f"{error.description or error.name}\n", status=error.code or 500, mimetype="text/plain")

    return app


def _route() -> str:
    """The route for metrics; what is none of ours shares one name, so that nobody can make names up."""
    return request.url_rule.rule.strip("/") if request.url_rule is not None else "other"


def _review() -> Review:
    if request.mimetype != _JSON:
        raise UnsupportedMediaType("the body must be application/json")
    body = request.get_data(cache=False)
    limit = request.max_content_length
    if request.content_length is None and limit is not None and len(body) >= limit:
        raise RequestEntityTooLarge  # of a chunked body werkzeug returns what the limit lets through, without a word
    return reviews.decode_review(body)
