"""The product's server in a process of its own, and how a client calls it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.ports import HOST, free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 30.0


class ServerProcess:
    """One gunicorn master with its worker, in a session of its own. Threads: any, each with connections of its own.

    `module`: the program, which takes the port, and the file of its events if it writes any.
    """

    def __init__(self, module: str, folder: Path, *arguments: object) -> None:
        self.folder, self.port = folder, free_port()
        self.events_file, self.log_file = folder / "events", folder / "log"
        self._log = self.log_file.open("wb")
        self._opened: list[socket.socket] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, (self.port, self.events_file, *arguments))],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.wait_for(lambda: self.process.poll() is not None or self.is_up(), "server that is up")
        assert self.process.poll() is None, "the server did not start"

    def is_up(self) -> bool:
        """Whether calls may begin: for a server without TLS, that it answers one."""
        with suppress(OSError):
            return self.call("GET", "/healthz")[0] == 200
        return False

    @staticmethod
    def wait_for(condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, DEADLINE_SECONDS)

    def events(self, ending: str = "") -> list[str]:
        lines = self.events_file.read_text().splitlines() if self.events_file.exists() else []
        return [line for line in lines if line.endswith(ending)]

    def wait_event(self, ending: str) -> None:
        self.wait_for(lambda: self.events(ending), ending)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self.port, timeout=DEADLINE_SECONDS)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        with closing(self.connection()) as connection:
            return exchange(connection, method, path, body, **headers)

    def is_well(self) -> bool:
        status, answer, _ = self.call("POST", "/filter", call_for("p", "n1"))
        return (status, answer["NodeNames"]) == (200, ["n1"])

    def refuses_of_many(self, connect: Callable[[], socket.socket], length: int, count: int) -> list[bytes]:
        """The first answers to so many requests of that length at once, of which all but the last byte has been sent;
        the other ones are then sent to their end, and answered."""
        head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length
        opened, told = [connect() for _ in range(count)], dict[socket.socket, bytes]()
        self._opened += opened
        for connection in opened:
            with suppress(OSError):  # it may be the one that is refused
                connection.sendall(head + b" " * (length - 1))
        self.wait_for(lambda: b"too many large requests" in self.log_file.read_bytes(), "request that is refused")
        assert self.is_well()
        for connection in opened:
            with suppress(OSError):
                connection.sendall(b" ")
            told[connection] = connection.recv(4096)
        return list(told.values())

    def raw(self, data: bytes) -> socket.socket:
        """A connection on which a client has said so much; it stays open until the server is stopped, at most."""
        connection = socket.create_connection((HOST, self.port), timeout=DEADLINE_SECONDS)
        self._opened.append(connection)
        connection.sendall(data)
        return connection

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(DEADLINE_SECONDS)
        self._log.close()
        for connection in self._opened:
            connection.close()
        return code


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    connection.request(method, path, body if isinstance(body, bytes) or body is None else json.dumps(body), headers)
    response = connection.getresponse()
    data = response.read()
    parsed = json.loads(data) if response.headers.get_content_type() == "application/json" else data
    return response.status, parsed, dict(response.headers)


def call_for(pod: str, *nodes: str) -> dict[str, Any]:
    return {"Pod": {"metadata": {"name": pod, "namespace": "n", "uid": "u"}}, "NodeNames": list(nodes)}
