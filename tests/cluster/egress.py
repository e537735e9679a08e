"""How kube-apiserver reaches Services: it asks a proxy on a Unix socket for `CONNECT <ClusterIP>:<port>`.

That is its egress selector with the protocol HTTPConnect, which it uses for webhooks and aggregated APIs that name a
Service. It resolves the Service to its ClusterIP itself; what the address leads to is the Service proxy's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.forwarder import BACKLOG, Listener, Pipe

logger = logging.getLogger(__name__)

SOCKET = "egress.sock"
HEAD_LIMIT_BYTES = 8192
HEAD_SECONDS = 10.0
END_OF_HEAD = b"\r\n\r\n"


def configuration(folder: Path) -> dict[str, Any]:
    """The file that `--egress-selector-config-file` names. All else than the way into the cluster goes directly."""
    # A proxy on TCP without TLS settings is no way out: kube-apiserver 1.36.3 panics at start when it reads that.
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(folder / SOCKET)}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


class Egress:
    """Takes CONNECT requests and ties each to a ready endpoint of the Service with that address.

    `service_at` gives the listener of an address and port, None where no Service has it. Threads: the event loop's.
    """

    def __init__(self, path: Path, service_at: Callable[[str, int], Listener | None]) -> None:
        self._service_at = service_at
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        path.unlink(missing_ok=True)
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.setblocking(False)
        self._sock.bind(str(path))
        path.chmod(0o600)
        self._sock.listen(BACKLOG)
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while True:
                front, _ = self._sock.accept()
                front.setblocking(False)
                task = self._loop.create_task(self._serve(front))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, front: socket.socket) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                host, port = address_of(await self._read_head(front))
        except ValueError as error:
            await self._refuse(front, 400, str(error))
            return
        except OSError as error:  # gone, or too slow
            logger.info("egress: %s", error)
            front.close()
            return
        listener = self._service_at(host, port)
        if listener is None or not listener.targets:
            what = "no such Service" if listener is None else "no ready endpoint"
            await self._refuse(front, 503, f"{host}:{port}: {what}")
            return
        try:
            back = await listener.connect(listener.next_target())
        except OSError as error:
            await self._refuse(front, 502, f"{host}:{port}: {error}")
            return
        with contextlib.suppress(OSError):  # the caller is gone: the pipe finds out as well
            await self._loop.sock_sendall(front, b"HTTP/1.1 200 Connection Established\r\n\r\n")
        listener.pipes.update(await Pipe.join(self._loop, front, back))

    async def _read_head(self, front: socket.socket) -> bytes:
        head = b""
        while not head.endswith(END_OF_HEAD):
            if len(head) > HEAD_LIMIT_BYTES or END_OF_HEAD in head:
                raise ValueError("the request does not end with its headers")
            piece = await self._loop.sock_recv(front, HEAD_LIMIT_BYTES)
            if not piece:
                raise ConnectionResetError("the request has no end")
            head += piece
        return head

    async def _refuse(self, front: socket.socket, code: int, why: str) -> None:
        logger.info("egress: %d %s", code, why)
        reason = why.replace("\r", " ").replace("\n", " ")
        answer = f"HTTP/1.1 {code} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with contextlib.suppress(OSError):
            await self._loop.sock_sendall(front, answer.encode("latin-1", "replace"))
        front.close()


def address_of(head: bytes) -> tuple[str, int]:
    """Host and port of `CONNECT host:port HTTP/1.1`. Raises ValueError for every other request."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not host or not port.isdecimal():
        raise ValueError(f"not a CONNECT request: {head[:80]!r}")
    return host.strip("[]"), int(port)
