"""A process of its own that serves the extender's real application and server over a scripted service.

`python -m tests.unit.extender.http_process PORT EVENTS REQUEST_SECONDS DRAIN_SECONDS`: what happens is appended
to the file EVENTS, one line each. The name of the pod in a filter call says what the service does with it.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flask import request

from controller.clock import SystemClock
from controller.errors import BugError, NotLeaderError
from controller.serving.pauses import Pauses
from controller.serving.server import ServerOptions, serve
from extender import binding, preemption, priorities, wire
from extender.app import Verbs, create_app
from extender.preconditions import PodFailedError
from extender.service import ClientGoneError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

BODY_LIMIT = 1_000_000


class ScriptedProcess:
    """The service of every verb, what observes the routes, and the process around them."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._say("built")
        verbs = Verbs(self, self.prioritize, self.preempt, self.bind)
        self.app: WSGIApplication = create_app(verbs, self, SystemClock(), max_body_bytes=BODY_LIMIT).wsgi_app

    def _say(self, line: str) -> None:
        with self._events.open("a") as file:
            file.write(f"{os.getpid()} {line}\n")

    def start(self) -> None:
        self._say("started")

    def begin_stop(self) -> None:
        self._say("asked to stop")

    def stop(self) -> None:
        self._say("stopped")

    def filter_answered(self, seconds: float) -> None:
        self._say("answered" if seconds >= 0 else "answered before it was asked")

    def failed(self, kind: str) -> None:
        self._say(f"failed {kind}")

    def check_ready(self) -> None:
        pass

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        _check_there(args.pod.name)
        match args.pod.name:
            case "not-leading":
                raise NotLeaderError("not leading")
            case "bug":
                raise BugError("secret detail")
            case "crash":
                os._exit(7)
            case "patient":
                self._wait_for_the_client_to_leave(is_client_gone)
                raise ClientGoneError("gone")
            case "nodelay":
                return wire.encode_error(f"nodelay {_nodelay()}")
            case "pauses":
                installed = sum(isinstance(callback, Pauses) for callback in gc.callbacks)
                return wire.encode_error(f"pauses {installed}")
        return wire.encode_filter_result(args, args.candidates, {})

    def prioritize(self, args: wire.FilterArgs) -> bytes:
        _check_there(args.pod.name)
        return priorities.encode_priorities(dict.fromkeys(args.candidates, 7))

    def preempt(self, args: preemption.PreemptionArgs) -> bytes:
        _check_there(args.pod.name)
        return preemption.encode_preemption_result(args.candidates, {"n1"})

    def bind(self, args: binding.BindingArgs) -> str:
        _check_there(args.pod.name)
        return "" if args.node == "n1" else "no such node"

    def _wait_for_the_client_to_leave(self, is_client_gone: Callable[[], bool]) -> None:
        self._say(f"waiting gone={is_client_gone()}")
        connection = request.environ["gunicorn.socket"]
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLRDHUP)
        poll.poll(20_000)
        self._say(f"left gone={is_client_gone()}")


def _check_there(pod: str) -> None:
    if pod == "gone":
        raise PodFailedError("Longhorn: the pod does not exist")


def _nodelay() -> bool:
    connection: socket.socket = request.environ["gunicorn.socket"]
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def main() -> None:
    port, events, seconds, drain = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    options = ServerOptions("127.0.0.1", port, threads=3, request_seconds=seconds, drain_seconds=drain)
    serve(options, lambda: ScriptedProcess(events))


if __name__ == "__main__":
    main()
