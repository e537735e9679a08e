"""One object in, one out, over a Unix socket: how a cluster's helper processes are spoken to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

BACKLOG = 128
Handler = Callable[[dict[str, Any]], dict[str, Any]]


class ControlError(Exception):
    """The helper process could not be asked, or it refused."""


class ControlServer:
    """Answers on `path` with what `handler` returns; an exception of its becomes an `error` in the answer.

    Threads: `handler` runs in one thread a caller.
    """

    def __init__(self, path: Path, handler: Handler) -> None:
        self._handler = handler
        path.unlink(missing_ok=True)
        self._listener = Listener(str(path), "AF_UNIX", BACKLOG)
        path.chmod(0o600)
        self.close = self._listener.close

    def start(self) -> None:
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept(),), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with suppress(OSError, EOFError), connection:  # the caller is gone
            request = connection.recv()
            try:
                answer = self._handler(request)
            except Exception as error:  # top of a thread; the caller gets the reason
                logger.exception("control request failed")
                answer = {"error": f"{type(error).__name__}: {error}"}
            connection.send(answer)


def call(path: Path, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """One request and its answer. Raises ControlError when nobody answers in time or the answer is an error."""
    try:
        with Client(str(path), "AF_UNIX") as connection:
            connection.send(request)
            answer: dict[str, Any] = connection.recv() if connection.poll(timeout) else {"error": "no answer in time"}
    except (OSError, EOFError) as error:
        raise ControlError(f"{path.name}: {request.get('op')}: {type(error).__name__} {error}") from error
    if "error" in answer:
        raise ControlError(f"{path.name}: {request.get('op')}: {answer['error']}")
    return answer
