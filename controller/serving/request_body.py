"""The body of the present request, as gunicorn and werkzeug hand it to an application."""

from __future__ import annotations

from flask import request
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import RequestEntityTooLarge

from controller.errors import MalformedRequestError


def read_body() -> bytes:
    """The whole body. MalformedRequestError for malformed chunks; RequestEntityTooLarge beyond MAX_CONTENT_LENGTH, also
    for a chunked body, which werkzeug silently cuts there."""
    try:
        body = request.get_data(cache=False)
    except (OSError, ParseException) as error:
        raise MalformedRequestError("body", f"cannot be read: {error}") from error
    limit = request.max_content_length
    if request.content_length is None and limit is not None and len(body) >= limit:
        raise RequestEntityTooLarge
    return body
