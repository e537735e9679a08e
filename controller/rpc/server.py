"""Runs the gRPC server, and points its Service's EndpointSlice at the leader.

The server also runs on followers, and answers UNAVAILABLE there, so that a caller whose connection has outlived a term
notices at its next call. Only the leader points the Service at itself. standard.py has gRPC's own services.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc

from controller.clock import Clock
from controller.errors import NotReadyError
from controller.kube.endpoint_slice import Endpoint, clear_at_end
from controller.process.repeated import QUIET_SECONDS, Repeated
from controller.process.worker import Part, Worker
from controller.rpc.credentials import Current, server_credentials
from controller.rpc.standard import StandardServices
from controller.rpc.wire import MAX_MESSAGE_BYTES

THREADS: Final = 32  # beside those of HoldExpansion
MOST_CALLS: Final = 256  # at a time, including those that wait for a thread; further ones are refused
# In a handshake or open. gRPC accepts a further connection and closes it at once, so that the process does not run out
# of descriptors, and open connections stay. There are few callers: a connection of each webhook, and another one while
# certificates change. The rest is for handshakes: it takes as many silent clients as on our other ports to keep a new
# caller waiting, and each makes room when the time for its handshake is over.
MOST_CONNECTIONS: Final = 256
HANDSHAKE_SECONDS: Final = 5.0  # gRPC's default is two minutes
LOOK_EVERY_SECONDS: Final = 0.5
REASSERT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 2.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a port in use is an error; gRPC would share its calls
)

log = logging.getLogger(__name__)


class RpcServer(Part):
    """Serves as soon as there is a certificate, and points the Service here while this process leads.

    Threads: those of `workers`, and gRPC's. Blocks: `stop`, for calls under way. I/O: yes.
    """

    def __init__(
        self,
        address: str,
        handler: grpc.GenericRpcHandler,
        current: Current,
        endpoint: Endpoint,
        clock: Clock,
        *,
        is_leading: Callable[[], bool],
        connections: int = MOST_CONNECTIONS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._address, self._handler, self._current, self._clock = address, handler, current, clock
        self._endpoint, self._is_leading = endpoint, is_leading
        self._options = (
            *_OPTIONS,
            ("grpc.max_allowed_incoming_connections", connections),
            ("grpc.server_handshake_timeout_ms", int(handshake_seconds * 1000)),
        )
        self._server: grpc.Server | None = None
        self._standard = StandardServices()
        self._points_here = False
        self._next_endpoint_at = 0.0
        self._steps = Repeated(
            self.step,
            lambda _: LOOK_EVERY_SECONDS,
            partial(log.warning, "gRPC: %s"),
            thread="rpc",
            quiet_seconds=QUIET_SECONDS,  # its certificate may be in the making
            now=clock.now,
        )
        self.worker = self._steps.worker
        self.port = 0  # that it listens on; 0 while it does not

    @property
    def workers(self) -> Sequence[Worker]:
        return (self.worker, self._standard.worker)

    def stop(self) -> None:
        self.worker.stop()
        self._standard.end()
        clear_at_end(self._endpoint)  # if it is still ours
        if self._server is not None:
            self._server.stop(GRACE_SECONDS).wait(GRACE_SECONDS + 1.0)
        self._standard.stop()

    def status(self) -> dict[str, Any]:
        problem = "; ".join(self._steps.problems)
        return {"is_serving": self._server is not None, "points_here": self._points_here, "problem": problem}

    def step(self) -> None:
        """Start the server once there is a certificate, and point the Service here while this process leads."""
        if self._server is None:
            self._serve()
        is_leading = self._is_leading()
        self._standard.tell_leading(is_leading)
        if not is_leading:
            self._points_here = False
            self._next_endpoint_at = 0.0
        elif self._server is not None and self._clock.now() >= self._next_endpoint_at:
            self._next_endpoint_at = self._clock.now() + RETRY_SECONDS
            self._endpoint.point_here()
            self._next_endpoint_at = self._clock.now() + REASSERT_SECONDS
            self._points_here = True
        self._steps.note(())

    def _serve(self) -> None:
        credentials = server_credentials(self._current)
        server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="rpc"),
            handlers=[self._handler],
            options=self._options,
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        try:
            self.port = server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise NotReadyError(f"cannot listen on {self._address}: {error}") from error
        self._standard.add_to(server)
        server.start()
        self._server = server
        log.info("gRPC is served on %s", self._address)
