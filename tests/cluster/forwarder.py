"""Forward TCP connections between a loopback listener and one of several targets, in an asyncio loop."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import struct
import weakref
from collections.abc import Callable

from tests.cluster.endpoints import Target

logger = logging.getLogger(__name__)

BACKLOG = 1024
CONNECT_SECONDS = 3.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, no time: close() sends RST
MEANS_RESET = (ConnectionResetError, BrokenPipeError, TimeoutError)

Route = Callable[[Target], int | None]  # a target's port on 127.0.0.1, None when nothing is there


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
        self._targets: list[Target] = []
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()  # both sides of every connection that is open

    @property
    def targets(self) -> list[Target]:
        return self._targets

    def set_targets(self, targets: list[Target]) -> None:
        self._targets = targets
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
        while True:
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.ECONNABORTED, errno.EPROTO):
                    continue
                logger.warning("accept on %s: %s", self.address, error)
                return
            sock.setblocking(False)
            task = self._loop.create_task(self._forward(sock, self.next_target()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def next_target(self) -> Target:
        """Whose turn it is, of the targets, of which there must be one."""
        return self._targets[next(self._turn) % len(self._targets)]

    async def connect(self, target: Target) -> socket.socket:
        """A connection to where the target really listens. Raises OSError."""
        port = self._route(target)
        if port is None:
            raise ConnectionRefusedError(f"nothing is known to listen for {target.ip}:{target.port}")
        back = socket.socket()
        back.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.sock_connect(back, ("127.0.0.1", port))
        except BaseException:
            back.close()
            raise
        return back

    async def _forward(self, front: socket.socket, target: Target) -> None:
        try:
            back = await self.connect(target)
        except OSError as error:
            logger.info("%s to %s: %s", self.address, target, error)
            _reset(front)
            return
        self.pipes.update(await Pipe.join(self._loop, front, back))


class Pipe(asyncio.Protocol):
    """One side of a forwarded connection: what it reads its peer writes; ends, resets and back-pressure pass on."""

    peer: Pipe

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = False
        # What came before the other side was there: asyncio before 3.12 starts to read although it was told to pause.
        self._early: list[bytes] = []
        self._is_joined = False

    @classmethod
    async def join(
        cls, loop: asyncio.AbstractEventLoop, front: socket.socket, back: socket.socket
    ) -> tuple[Pipe, Pipe]:
        """Tie two open connections together."""
        for sock in (front, back):
            # asyncio does so only for sockets that were made with the protocol's number; without it a large request
            # now and then waits 40 ms for a delayed acknowledgement.
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near, far = cls(), cls()
        near.peer, far.peer = far, near
        await loop.connect_accepted_socket(lambda: near, front)
        await loop.connect_accepted_socket(lambda: far, back)
        for side in (near, far):
            side.begin()
        return near, far

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()  # until both sides are there

    def begin(self) -> None:
        """Both sides are there."""
        self._is_joined = True
        if self._early:
            self.data_received(b"".join(self._early))
            self._early = []
        if self.ended:
            self.eof_received()
        self.start()

    def start(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if not self._is_joined:
            self._early.append(data)
        elif self.peer.transport is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if not self._is_joined:
            return True
        other = self.peer.transport
        if other is not None and not other.is_closing():
            if self.peer.ended:
                other.close()
                return False
            other.write_eof()
        return not self.peer.ended  # true keeps our own writing side open

    def pause_writing(self) -> None:
        if self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.peer.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        other = self.peer.transport
        if other is None or other.is_closing():
            return
        if isinstance(exc, MEANS_RESET):
            other.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            other.abort()
        else:
            other.close()


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    sock.close()
