"""The lines of a watch, each as soon as it has arrived whole, until the watch ends, breaks or is closed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import urllib3

from controller.errors import UnavailableError
from controller.process.worker import waiting

# An object has 1.5 MiB at most in etcd, and as JSON with what it was before a few times as many.
MOST_LINE_BYTES: Final = 32 * 1024**2


class LineStream:
    """The whole lines of a streamed response. Reading raises UnavailableError after `read_timeout` seconds of silence,
    when the stream breaks or ends in the middle of a line, and for a line of more than MOST_LINE_BYTES.

    Threads: one reads; any may call `close`, which ends a blocking read at once. Blocks: while it is read.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, read_timeout: float) -> None:
        self._response = response
        self._is_closed = False
        sock = _socket_of(response)
        if sock is not None:
            sock.settimeout(read_timeout)

    def __iter__(self) -> Iterator[bytes]:
        rest = bytearray()  # of the line that has not ended
        try:
            for chunk in self._chunks():
                *lines, last = chunk.split(b"\n")
                for line in lines:
                    rest += line
                    whole, rest = bytes(rest), bytearray()
                    if whole:
                        yield whole
                rest += last
                if len(rest) > MOST_LINE_BYTES:
                    raise UnavailableError(f"watch: a line has more than {MOST_LINE_BYTES} bytes")
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self._is_closed:
                raise UnavailableError(f"watch: {error}") from error
        except AttributeError:  # `close` takes the response's file away, and the next read finds none
            if not self._is_closed:
                raise
        if rest.strip() and not self._is_closed:
            raise UnavailableError("watch: ended in the middle of a line")

    def _chunks(self) -> Iterator[bytes]:
        chunks = self._response.stream(65_536, decode_content=True)
        while True:
            with waiting():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        self._is_closed = True
        sock = _socket_of(self._response)
        if sock is not None:
            with contextlib.suppress(OSError):  # gone already
                sock.shutdown(socket.SHUT_RDWR)
        self._response.close()


def _socket_of(response: urllib3.BaseHTTPResponse) -> socket.socket | None:
    """The socket that the response still reads from; None once it went back to the pool, for others to use."""
    sock = getattr(getattr(response, "_connection", None), "sock", None)
    return sock if isinstance(sock, socket.socket) else None
