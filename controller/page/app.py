"""The page and its files. All that it shows it fetches from the same port, so nothing here knows the cluster."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# Names come from the whole cluster: whatever one of them contains, the browser runs and loads only what lies here.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_page(version: str) -> WSGIApplication:
    """The WSGI application for `/` and `/page/*` of the status port: HTML, scripts, styles and pictures, read only.

    The page asks for `overview`, `decisions`, `capacity` and `explain/...` relative to its own address, so it may lie
    behind a prefix that ends in a slash. It is made here once: a template that cannot be filled ends the start.
    """
    app = Flask(__name__, static_url_path="/page")
    html = app.jinja_env.get_template("page.html").render(version=version)

    @app.get("/")
    def page() -> ResponseReturnValue:
        return Response(html, headers={"Cache-Control": "no-store"}, mimetype="text/html")

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> ResponseReturnValue:
        return Response(f"{error.name.lower()}\n", error.code or 500, mimetype="text/plain")

    @app.after_request
    def with_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        # Files are asked for again each time and answered by a 304: another version may soon be behind this address.
        response.headers.setdefault("Cache-Control", "no-cache")
        return _compressed(response)

    return app


def _compressed(response: Response) -> Response:
    """The answer as the browser prefers it: the files are a third of their size then."""
    response.vary.add("Accept-Encoding")
    if response.status_code == 200 and request.accept_encodings["gzip"] > 0:
        response.direct_passthrough = False  # files would be streamed as they are
        response.set_data(gzip.compress(response.get_data(), mtime=0))
        response.content_encoding = "gzip"
    return response
