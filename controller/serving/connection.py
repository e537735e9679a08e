"""One connection as gunicorn's worker handles it, and the time that a thread may spend on its request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from gunicorn.workers.gthread import TConn

from controller.clock import Clock
from controller.process.worker import Part, Worker
from controller.serving.arrivals import TOO_MUCH, HeldBytes, Received
from controller.serving.handshakes import ClosingSockets

WATCH_EVERY_SECONDS: Final = 0.25


class RequestDeadlines(Part):
    """Ends connections whose request keeps a thread for too long: because it is read there, or its answer is not.

    Threads: any, and `worker`'s. Blocks: never. I/O: closes sockets.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._lock = threading.Lock()  # guards the field below
        self._deadlines: dict[int, tuple[float, TConn]] = {}
        self.worker = Worker("http-deadlines", self._round)

    @contextmanager
    def watching(self, connection: TConn) -> Iterator[None]:
        """Ends the connection if the block takes longer than a request may."""
        key = id(connection)
        with self._lock:
            self._deadlines[key] = (self._clock.now() + self._seconds, connection)
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[key]

    def _round(self) -> float:
        """Shut down every connection that is past its deadline."""
        now = self._clock.now()
        with self._lock:
            overdue = [connection for deadline, connection in self._deadlines.values() if deadline <= now]
        for connection in overdue:
            with suppress(OSError):
                # Below TLS: its own shutdown would first forget the encryption that another thread is using.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        return WATCH_EVERY_SECONDS


class Connection(TConn):
    """A connection that is closed without anybody waiting for its client."""

    closing: ClosingSockets
    held: HeldBytes
    beyond = b""  # what was read past the end of the last request
    received: bytes | bytearray = b""  # the request that is to be answered now, as far as it has arrived
    is_read_by_thread = False

    @property
    def host(self) -> str:
        """The client's address."""
        client: Any = self.client
        return str(client[0])

    def init(self) -> None:
        """Makes the parser, as gunicorn does, and has it read what has arrived before it reads the socket."""
        super().init()
        reader = self._reader()
        if reader is not None:
            reader.sock = Received(self.sock, self.received, partial(self.held.claim, self))
        self.received = b""

    def keep_rest(self) -> None:
        """Keeps what has arrived and was not used: it belongs to the next request."""
        reader = self._reader()
        if reader is not None:
            self.beyond = b"".join((reader.take_buffered(), reader.sock.take_rest(), self.beyond))

    def _reader(self) -> Any:
        """The reader of gunicorn's HTTP/1 parser; None for another protocol, which is not spoken here."""
        return getattr(self.parser, "unreader", None)

    def refuse(self) -> None:
        """Answers a request that is not read further with 429, and closes without waiting for the client."""
        with suppress(OSError, ValueError):  # a socket that takes no answer now gets none
            self.sock.send(TOO_MUCH)
        self.close(graceful=True)

    def close(self, graceful: bool = False) -> None:
        self.beyond = self.received = b""
        if isinstance(received := getattr(self._reader(), "sock", None), Received):
            # A request that nobody has read ends here: it refers to itself in a circle, which may stay for long.
            received.take_rest()
        if graceful:
            self.closing.begin(self.sock)
        else:
            super().close()
