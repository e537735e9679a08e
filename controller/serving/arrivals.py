"""Requests whose bytes are still arriving: they wait in the server's loop, and take a thread once they are whole.

A client that sends half a header or half a body, or one byte a second, therefore costs one file descriptor and some
memory until its deadline; never a thread, and never the place of a client that goes on. Only a request whose end cannot
be told from its header (chunked, or one that waits for "100 Continue") is read by a thread, and few of them at a time.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from controller.clock import Clock
from controller.serving.handshakes import SAY_EVERY_SECONDS

HEAD_BYTES: Final = 65_536  # gunicorn refuses a longer one
READ_BYTES: Final = 262_144
_HEAD_END: Final = b"\r\n\r\n"
# Headers after which the end of the request is not to be told from its length.
_UNTOLD: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})

UNKNOWN: Final = -1  # a length: gunicorn's own parser decides

log = logging.getLogger(__name__)


def length_of(data: bytes | bytearray, begin: int = 0) -> int | None:
    """How long the first request in `data` is, in bytes; None while its header is not whole; UNKNOWN if its end cannot
    be told from its header.

    `begin`: up to where it was looked for the header's end before.
    """
    end = data.find(_HEAD_END, max(0, begin - len(_HEAD_END)))
    if end < 0:
        return None if len(data) < HEAD_BYTES else UNKNOWN
    found: int | None = None
    for line in bytes(data[:end]).split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name in _UNTOLD or line[:1].isspace():
            return UNKNOWN
        if name == b"content-length":
            value = value.strip()
            if found is not None or not value.isdigit() or len(value) > 18:
                return UNKNOWN
            found = int(value)
    return end + len(_HEAD_END) + (found or 0)


class Received:
    """A socket, as a parser reads it: first what has arrived already, then whatever the socket gives."""

    def __init__(self, sock: socket.socket, data: bytes) -> None:
        self._sock, self._rest = sock, memoryview(data)

    def recv(self, size: int) -> bytes:
        if not self._rest:
            return self._sock.recv(size)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Arriving(Protocol):
    """What of a connection is used here."""

    sock: socket.socket
    beyond: bytes  # what has been read past the end of the last request


@dataclass(slots=True)
class _Request:
    connection: Arriving
    deadline: float
    data: bytearray = field(default_factory=bytearray)
    length: int | None = None


class Arrivals:
    """Requests under way.

    `take` gets a connection and the bytes of its request, and whether that is all of it; `drop` one that has ended.
    Threads: the server's loop. Blocks: never. I/O: only what sockets take and give at once.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        clock: Clock,
        take: Callable[[Any, bytes, bool], None],
        drop: Callable[[Any], None],
        *,
        seconds: float,
        most: int,
        largest: int,
    ) -> None:
        """`largest`: bytes of the largest body that is waited for. Together they may take twice that."""
        self._poller, self._clock, self._take, self._drop = poller, clock, take, drop
        self._seconds, self._most, self._largest = seconds, most, largest
        self._most_bytes = 2 * (largest + HEAD_BYTES)
        self._waiting: dict[int, _Request] = {}  # in the order of their deadlines
        self._bytes = 0
        self._said_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, connection: Arriving) -> None:
        """Waits for a request on a connection that is not registered anywhere, and has something to say."""
        while len(self._waiting) >= self._most:
            self._end(next(iter(self._waiting.values())), "too many requests wait to be received")
        sock = connection.sock
        request = _Request(connection, self._clock.now() + self._seconds)
        request.data += connection.beyond
        connection.beyond = b""
        self._waiting[id(sock)] = request
        self._bytes += len(request.data)
        sock.setblocking(False)
        self._poller.register(sock, selectors.EVENT_READ, self._ready)
        if not self._is_whole(request, 0):
            self._ready(sock)

    def _ready(self, sock: socket.socket) -> None:
        request = self._waiting.get(id(sock))
        if request is None:
            return  # ended since the loop learned that it is ready
        try:
            # Until it would block: what TLS has decrypted already, a poller does not tell of.
            while data := sock.recv(READ_BYTES):
                before = len(request.data)
                request.data += data
                self._bytes += len(data)
                if self._is_whole(request, before):
                    return
                self._make_room(request)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._poller.modify(sock, selectors.EVENT_READ, self._ready)
            return
        except ssl.SSLWantWriteError:
            self._poller.modify(sock, selectors.EVENT_WRITE, self._ready)
            return
        except (OSError, ValueError):
            pass
        self._end(request, "")

    def _is_whole(self, request: _Request, before: int) -> bool:
        """Whether the request has been passed to `take`: all of it, or a part whose end only a parser can find."""
        if request.length is None:
            request.length = length_of(request.data, before)
        length = request.length
        if length is None:
            return False
        if length > self._largest + HEAD_BYTES:
            length = UNKNOWN  # is refused for its size without being read
        if len(request.data) < length:
            return False
        self._forget(request)
        if length != UNKNOWN:
            request.connection.beyond = bytes(request.data[length:])
            del request.data[length:]
        self._take(request.connection, bytes(request.data), length != UNKNOWN)
        return True

    def _make_room(self, present: _Request) -> None:
        while self._bytes > self._most_bytes:
            oldest = next((request for request in self._waiting.values() if request is not present), present)
            self._end(oldest, "requests being received take too much memory")

    def end_overdue(self, within: float | None = None) -> None:
        """Drops the requests that are late. `within`: none may take longer than so many seconds from now."""
        now = self._clock.now()
        for request in list(self._waiting.values()):
            if within is not None:
                request.deadline = min(request.deadline, now + within)
            elif request.deadline > now:
                return  # those of the others are later
            if request.deadline <= now:
                self._end(request, f"not received within {self._seconds:g} s")

    def _forget(self, request: _Request) -> None:
        self._waiting.pop(id(request.connection.sock), None)
        self._bytes -= len(request.data)
        with suppress(OSError, KeyError, ValueError):
            self._poller.unregister(request.connection.sock)

    def _end(self, request: _Request, why: str) -> None:
        if id(request.connection.sock) not in self._waiting:
            return
        self._forget(request)
        now = self._clock.now()
        if why and now >= self._said_at + SAY_EVERY_SECONDS:
            self._said_at = now
            log.warning("request ended after %d bytes: %s", len(request.data), why)
        self._drop(request.connection)
