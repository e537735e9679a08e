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
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from controller.clock import Clock
from controller.log_line import say
from controller.serving.handshakes import SAY_EVERY_SECONDS

HEAD_BYTES: Final = 65_536  # gunicorn refuses a longer one
READ_BYTES: Final = 262_144
SMALL_BYTES: Final = 65_536  # a request up to this size is never refused for the memory that all take
_HEAD_END: Final = b"\r\n\r\n"
# Headers after which the end of the request is not to be told from its length.
_UNTOLD: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})

UNKNOWN: Final = -1  # a length: gunicorn's own parser decides
# A client that honours Retry-After, as the API server does, asks again.
_TOO_MUCH: Final = b"too many large requests at once\n"
TOO_MUCH: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_TOO_MUCH), _TOO_MUCH)
)

log = logging.getLogger(__name__)


class TooManyBytesError(OSError):
    """Requests that are read or not answered yet take too much memory together."""


class HeldBytes:
    """How many bytes of requests are in memory, by connection: from their arrival until they are answered.

    The largest one is not counted among `most`: alone, any request within the limit of one is served.
    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()  # guards the fields below
        self._held: dict[int, int] = {}
        self._sum = 0
        self._refused = 0

    def refused(self) -> int:
        """How many requests were answered with 429."""
        with self._lock:
            return self._refused

    def add(self, connection: object, count: int) -> None:
        with self._lock:
            self._held[id(connection)] = self._held.get(id(connection), 0) + count
            self._sum += count

    def drop(self, connection: object) -> None:
        with self._lock:
            self._sum -= self._held.pop(id(connection), 0)

    def is_too_much(self) -> bool:
        with self._lock:
            return self._sum > self.most and self._sum - max(self._held.values()) > self.most

    def is_spared(self, connection: object) -> bool:
        """Whether the request of that connection is small, or the largest."""
        with self._lock:
            mine = self._held.get(id(connection), 0)
            return mine <= SMALL_BYTES or mine >= max(self._held.values())

    def refuse(self) -> None:
        with self._lock:
            self._refused += 1

    def claim(self, connection: object, count: int) -> None:
        """`add`, for a thread that reads: TooManyBytesError if that request is one too many."""
        self.add(connection, count)
        if self.is_too_much() and not self.is_spared(connection):
            self.refuse()
            raise TooManyBytesError("too many large requests at once")


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
    """A socket, as a parser reads it: first what has arrived already, then whatever the socket gives, which is counted
    by `claim`."""

    def __init__(self, sock: socket.socket, data: bytes | bytearray, claim: Callable[[int], None]) -> None:
        self._sock, self._rest, self._claim = sock, memoryview(data), claim

    def recv(self, size: int) -> bytes:
        if not self._rest:
            data = self._sock.recv(size)
            self._claim(len(data))
            return data
        taken, rest = self._rest[:size], self._rest[size:]
        self._rest = rest or memoryview(b"")  # an empty part of the data would keep all of it in memory
        return bytes(taken)

    def take_rest(self) -> memoryview:
        """Removes and returns what has arrived and was not read."""
        rest, self._rest = self._rest, memoryview(b"")
        return rest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Arriving(Protocol):
    """What of a connection is used here."""

    sock: socket.socket
    beyond: bytes  # what has been read past the end of the last request

    @property
    def host(self) -> str: ...


@dataclass(slots=True)
class _Request:
    connection: Arriving
    deadline: float
    data: bytearray = field(default_factory=bytearray)
    length: int | None = None


class Arrivals:
    """Requests under way.

    `take` gets a connection and the bytes of its request, and whether that is all of it; `drop` one that has ended, and
    `refuse` one that is to be answered with 429 and closed. What `take` got stays among `held` until it is answered.
    Threads: the server's loop. Blocks: never. I/O: only what sockets take and give at once.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        clock: Clock,
        take: Callable[[Any, bytearray, bool], None],
        drop: Callable[[Any], None],
        refuse: Callable[[Any], None],
        *,
        held: HeldBytes,
        seconds: float,
        most: int,
        largest: int,
    ) -> None:
        """`largest`: bytes of the largest body that is waited for."""
        self._poller, self._clock, self._take, self._drop, self._refuse = poller, clock, take, drop, refuse
        self._held, self._seconds, self._most, self._largest = held, seconds, most, largest
        self._waiting: dict[int, _Request] = {}  # in the order of their deadlines
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
        self._held.add(connection, len(request.data))
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
                self._held.add(request.connection, len(data))
                is_whole = self._is_whole(request, before)
                self._make_room()
                if is_whole or id(sock) not in self._waiting:
                    return
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
        self._leave(request)
        if length != UNKNOWN:
            request.connection.beyond = bytes(request.data[length:])
            del request.data[length:]
        self._take(request.connection, request.data, length != UNKNOWN)
        return True

    def _make_room(self) -> None:
        """Refuses requests that are arriving while all that are held take too much memory: the largest one of the host
        whose requests take most, so that nobody keeps out others with many that are smaller than theirs."""
        while self._held.is_too_much():
            refusable = [one for one in self._waiting.values() if not self._held.is_spared(one.connection)]
            if not refusable:
                return
            of_host = Counter[str]()
            for one in self._waiting.values():
                of_host[one.connection.host] += len(one.data)
            self._held.refuse()
            victim = max(refusable, key=lambda one: (of_host[one.connection.host], len(one.data)))
            self._end(victim, "too many large requests at once", then=self._refuse)

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

    def _leave(self, request: _Request) -> None:
        self._waiting.pop(id(request.connection.sock), None)
        with suppress(OSError, KeyError, ValueError):
            self._poller.unregister(request.connection.sock)

    def _end(self, request: _Request, why: str, then: Callable[[Any], None] | None = None) -> None:
        if id(request.connection.sock) not in self._waiting:
            return
        self._leave(request)
        self._held.drop(request.connection)
        now = self._clock.now()
        if why and now >= self._said_at + SAY_EVERY_SECONDS:
            self._said_at = now
            say(log, "request ended", logging.WARNING, size_bytes=len(request.data), error=why)
        (then or self._drop)(request.connection)
