"""The body of the present request, as gunicorn and werkzeug hand it to an application."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Final

from flask import request
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, TooManyRequests

from controller.errors import MalformedRequestError
from controller.serving.arrivals import TooManyBytesError

_PIECE_BYTES: Final = 1024**2


def headers_of(error: HTTPException) -> Mapping[str, str]:
    """The headers of its answer, beside the usual ones."""
    return {"Retry-After": "1"} if error.code == TooManyRequests.code else {}


def read_body() -> bytes:
    """The whole body. MalformedRequestError for malformed chunks, half a body, and one that is not UTF-8, also where
    nobody decodes it; RequestEntityTooLarge beyond MAX_CONTENT_LENGTH, also for a chunked body, which werkzeug silently
    cuts there; TooManyRequests."""
    length, limit = request.content_length, request.max_content_length
    if length is not None and limit is not None and length > limit:
        raise RequestEntityTooLarge
    try:
        # By its length it is copied once; werkzeug's own stream does so three times.
        body: bytes = request.get_data(cache=False) if length is None else request.environ["wsgi.input"].read(length)
    except TooManyBytesError as error:
        raise TooManyRequests(str(error)) from error
    except (OSError, ParseException) as error:
        raise MalformedRequestError("body", f"cannot be read: {error}") from error
    if length is None and limit is not None and len(body) >= limit:
        raise RequestEntityTooLarge
    if length is not None and len(body) < length:
        raise MalformedRequestError("body", f"ends after {len(body)} of {length} bytes")
    if not body.isascii():
        _check_text(body)
    return body


def _check_text(body: bytes) -> None:
    """In pieces: the whole text may take four times the memory of its bytes."""
    decoder, begin = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        for begin in range(0, len(body), _PIECE_BYTES):
            decoder.decode(body[begin : begin + _PIECE_BYTES], final=begin + _PIECE_BYTES >= len(body))
    except UnicodeDecodeError as error:
        raise MalformedRequestError("body", f"is not UTF-8: {error.reason} after byte {begin}") from error
