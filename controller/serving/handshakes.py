"""Connections that have no thread: those in a TLS handshake, and those that are being closed.

Both wait in the server's own loop, on sockets that do not block, each until a deadline of its own, and no more of them
than a fixed number: past it the oldest one goes. A client that stops in the middle therefore costs one file descriptor
for some seconds. It never takes a thread, and never the place of a client that goes on.

The loop calls the `data` of a key with its socket, when that is ready.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from controller.clock import Clock
from controller.log_line import say
from controller.serving.tls import ServerTls

DONE: Final = "done"
FAILED: Final = "failed"
LATE: Final = "late"
CROWDED: Final = "crowded"
NO_CERTIFICATE: Final = "no-certificate"
OUTCOMES: Final = (DONE, FAILED, LATE, CROWDED, NO_CERTIFICATE)
SAY_EVERY_SECONDS: Final = 10.0
_DRAIN_BYTES: Final = 65_536

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    sock: socket.socket
    deadline: float
    then: Callable[[socket.socket | None], None]


class Handshakes:
    """TLS handshakes under way.

    Threads: the server's loop. Blocks: never. I/O: only what sockets take and give at once.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        tls: ServerTls,
        clock: Clock,
        close: Callable[[socket.socket], None],
        *,
        seconds: float,
        most: int,
    ) -> None:
        self._poller, self._tls, self._clock, self._close = poller, tls, clock, close
        self._seconds, self._most = seconds, most
        self._waiting: dict[int, _Waiting] = {}  # in the order of their deadlines
        self._said_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, sock: socket.socket, then: Callable[[socket.socket | None], None]) -> None:
        """Begins a handshake on a new connection; `then` gets the encrypted one, or None when it was closed."""
        context = self._tls.context
        if context is None:
            sock.close()
            self._tls.count(NO_CERTIFICATE)
            then(None)
            return
        while len(self._waiting) >= self._most:
            self._end(next(iter(self._waiting.values())), CROWDED, "too many handshakes wait")
        sock.setblocking(False)
        try:
            encrypted = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            self._fail(sock, FAILED, error, then)
            return
        waiting = _Waiting(encrypted, self._clock.now() + self._seconds, then)
        self._waiting[id(encrypted)] = waiting
        self._poller.register(encrypted, selectors.EVENT_READ, self._ready)

    def _ready(self, sock: socket.socket) -> None:
        waiting = self._waiting.get(id(sock))
        if waiting is None or not isinstance(sock, ssl.SSLSocket):
            return  # ended since the loop learned that it is ready
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.modify(sock, selectors.EVENT_READ, self._ready)
        except ssl.SSLWantWriteError:
            self._poller.modify(sock, selectors.EVENT_WRITE, self._ready)
        except (OSError, ValueError) as error:
            self._end(waiting, FAILED, error)
        else:
            self._forget(waiting)
            self._tls.count(DONE)
            waiting.then(sock)

    def end_overdue(self) -> None:
        now = self._clock.now()
        for waiting in list(self._waiting.values()):
            if waiting.deadline > now:
                return
            self._end(waiting, LATE, f"not done within {self._seconds:g} s")

    def end_all(self) -> None:
        for waiting in list(self._waiting.values()):
            self._end(waiting, LATE, "the server is shutting down")

    def _forget(self, waiting: _Waiting) -> None:
        del self._waiting[id(waiting.sock)]
        with suppress(OSError, KeyError, ValueError):
            self._poller.unregister(waiting.sock)

    def _end(self, waiting: _Waiting, outcome: str, why: object) -> None:
        self._forget(waiting)
        self._fail(waiting.sock, outcome, why, waiting.then)

    def _fail(
        self, sock: socket.socket, outcome: str, why: object, then: Callable[[socket.socket | None], None]
    ) -> None:
        self._tls.count(outcome)
        now = self._clock.now()
        if now >= self._said_at + SAY_EVERY_SECONDS:
            self._said_at = now
            say(log, f"TLS handshake {outcome}", logging.WARNING, peer=_peer(sock), error=why)
        if outcome == FAILED:
            self._close(sock)  # so that the client reads why
        else:
            sock.close()
        then(None)


def _peer(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except (OSError, IndexError):
        return "unknown"


class ClosingSockets:
    """Connections whose answer is sent: the rest of what the client sends is read away, or it might lose the answer.

    Threads: the server's loop. Blocks: never. I/O: only what sockets take and give at once.
    """

    def __init__(self, poller: selectors.BaseSelector, clock: Clock, *, seconds: float = 2.0, most: int = 64) -> None:
        self._poller, self._clock = poller, clock
        self._seconds, self._most = seconds, most
        self._waiting: dict[int, tuple[socket.socket, float]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, sock: socket.socket) -> None:
        """Tells the client that nothing more comes, and closes once the client has closed, or after a while."""
        try:
            sock.setblocking(False)
            if isinstance(sock, ssl.SSLSocket):
                with suppress(OSError, ValueError):
                    sock.unwrap()  # sends our closing message; the client's is not awaited
            socket.socket.shutdown(sock, socket.SHUT_WR)
            while len(self._waiting) >= self._most:
                self._end(next(iter(self._waiting.values()))[0])
            self._poller.register(sock, selectors.EVENT_READ, self._ready)
        except (OSError, ValueError, KeyError):
            sock.close()  # gone already, or the peer no longer waits
            return
        self._waiting[id(sock)] = (sock, self._clock.now() + self._seconds)

    def _ready(self, sock: socket.socket) -> None:
        if id(sock) not in self._waiting:
            return  # ended since the loop learned that it is ready
        try:
            # Past the encryption, where there was one: what comes now is thrown away.
            if socket.socket.recv(sock, _DRAIN_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end(sock)

    def end_overdue(self) -> None:
        now = self._clock.now()
        for sock, deadline in list(self._waiting.values()):
            if deadline > now:
                return
            self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        del self._waiting[id(sock)]
        with suppress(OSError, KeyError, ValueError):
            self._poller.unregister(sock)
        sock.close()
