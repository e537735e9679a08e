"""Forward TCP connections between a loopback listener and one of several targets, in an asyncio loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress

from tests.cluster.endpoints import EndpointTarget

logger = logging.getLogger(__name__)

BACKLOG = 1024
CONNECT_SECONDS = 3.0
PIECE_BYTES = 256 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, no time: close() sends RST

Route = Callable[[EndpointTarget], int | None]  # a target's port on 127.0.0.1, None when nothing is there
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_tasks: set[asyncio.Task[None]] = set()  # a loop keeps no task alive


class Listener:
    """One loopback address and port that leads to the targets in turn.

    Without targets the port is bound but not listening, so that a caller is refused at once and nobody else can take
    the port. Open connections never change their target, as with kube-proxy. Threads: the event loop's alone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int, route: Route) -> None:
        self._loop, self._route = loop, route
        self._sock = _bound(host, port)
        self.address: tuple[str, int] = self._sock.getsockname()
        self._listening = False
        self.targets: list[EndpointTarget] = []
        self._turn = itertools.count()

    def set_targets(self, targets: list[EndpointTarget]) -> None:
        self.targets = targets
        if targets and not self._listening:
            self._sock.listen(BACKLOG)
            self._loop.add_reader(self._sock, self._accept)
            self._listening = True
        elif not targets and self._listening:
            self.close()
            self._sock = _bound(*self.address)

    def close(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._sock)
            self._listening = False
        self._sock.close()

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            front, _ = self._sock.accept()
            front.setblocking(False)
            start(self._loop, self._forward(front))

    async def connect(self) -> Streams:
        """A connection to where the target whose turn it is really listens; there must be one. Raises OSError."""
        target = self.targets[next(self._turn) % len(self.targets)]
        port = self._route(target)
        if port is None:
            raise ConnectionRefusedError(f"nothing is known to listen for {target.ip}:{target.port}")
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection("127.0.0.1", port, limit=PIECE_BYTES)

    async def _forward(self, front: socket.socket) -> None:
        streams = await asyncio.open_connection(sock=front, limit=PIECE_BYTES)
        try:
            back = await self.connect()
        except OSError as error:
            logger.info("%s: %s", self.address, error)
            _reset(streams[1])
        else:
            await tie(streams, back)


def start(loop: asyncio.AbstractEventLoop, work: Coroutine[None, None, None]) -> None:
    task = loop.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def tie(front: Streams, back: Streams) -> None:
    """Carry bytes both ways until both ends are there; a reset of one side becomes a reset of the other."""
    try:
        await asyncio.gather(_copy(front[0], back[1]), _copy(back[0], front[1]))
    except OSError:
        _reset(front[1])
        _reset(back[1])
    else:
        front[1].close()
        back[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


def _bound(host: str, port: int) -> socket.socket:
    # With the protocol's number, without which asyncio does not set TCP_NODELAY on what is accepted, and a large
    # request now and then waits 40 ms for a delayed acknowledgement.
    sock = socket.socket(proto=socket.IPPROTO_TCP)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
