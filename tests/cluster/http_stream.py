"""A streamed HTTP/1.1 answer whose reader can be told to stop while it waits for bytes.

`http.client` cannot: its buffered reader is unusable after a timeout. A watch needs a short timeout to look at a stop
flag and must then go on reading, so this file reads the socket itself.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_POLL_SECONDS = 0.25
HEADER_LIMIT_BYTES = 64 * 1024
RECEIVE_BYTES = 256 * 1024


class Stream:
    """One answer on one connection, read by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._buffer = sock, bytearray()
        self.status, self._headers = self._read_head()

    def lines(self, stopped: Callable[[], bool] | None = None) -> Iterator[bytes]:
        """Complete lines without their newline, until the answer ends or `stopped` returns true."""
        if stopped is not None:
            self._sock.settimeout(STOP_POLL_SECONDS)
        rest = bytearray()
        for piece in self._pieces(stopped):
            rest += piece
            end = rest.rfind(b"\n")
            if end < 0:
                continue
            whole = bytes(rest[:end])
            del rest[: end + 1]
            for line in whole.split(b"\n"):
                if line:
                    yield line

    def read_all(self) -> bytes:
        return b"".join(self._pieces(None))

    def _pieces(self, stopped: Callable[[], bool] | None) -> Iterator[bytes]:
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks(stopped)
        return self._plain(stopped, self._headers.get("content-length"))

    def _chunks(self, stopped: Callable[[], bool] | None) -> Iterator[bytes]:
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                if not self._receive(stopped):
                    return
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            while len(self._buffer) < end + 2 + size + 2:
                if not self._receive(stopped):
                    return
            piece = bytes(self._buffer[end + 2 : end + 2 + size])
            del self._buffer[: end + 2 + size + 2]
            if size == 0:
                return
            yield piece

    def _plain(self, stopped: Callable[[], bool] | None, length: str | None) -> Iterator[bytes]:
        left = int(length) if length is not None else None
        while left is None or left > 0:
            if not self._buffer and not self._receive(stopped, end_is_fine=left is None):
                return
            piece = bytes(self._buffer)
            self._buffer.clear()
            left = None if left is None else left - len(piece)
            yield piece

    def _receive(self, stopped: Callable[[], bool] | None, *, end_is_fine: bool = False) -> bool:
        """Append what arrives. False: told to stop, or a fine end. Raises ConnectionError for an end too early."""
        while stopped is None or not stopped():
            try:
                data = self._sock.recv(RECEIVE_BYTES)
            except TimeoutError:
                if stopped is None:
                    raise
                continue
            if not data:
                if end_is_fine:
                    return False
                raise ConnectionError("the connection ended in the middle of an answer")
            self._buffer += data
            return True
        return False

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > HEADER_LIMIT_BYTES:
                raise ConnectionError("the answer has no end of its headers")
            self._receive(None)
        first, *rest = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return int(first.split(" ")[1]), headers


@contextmanager
def open_stream(
    host: str, port: int, tls: ssl.SSLContext | None, target: str, headers: dict[str, str], timeout: float
) -> Iterator[Stream]:
    """GET `target` and hand out its answer once the headers are there; closes the connection at the end."""
    with socket.create_connection((host, port), timeout=timeout) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock = tls.wrap_socket(raw, server_hostname=host) if tls is not None else raw
        with sock:
            fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            sock.sendall(
                f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\n{fields}Connection: close\r\n\r\n".encode("latin-1")
            )
            yield Stream(sock)
