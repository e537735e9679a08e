"""gRPC's own services: health, which tells who leads, and reflection, which describes our calls to tools.

Sources: gRPC's documents `health-checking.md` and `server-reflection.md`. Any client whose certificate the server
accepts may call them: they tell nothing about the cluster.

Health is our own code. The library's servicer sends under a lock that it also takes at the end of a watch, in the
thread that has to finish the sending: one client that left at that moment stopped the whole server
(`grpc_health/v1/health.py` of grpcio-health-checking 1.85).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from controller.process.worker import Worker
from controller.rpc.wire import SERVICE

MOST_REFLECTIONS: Final = 4  # at a time: each occupies one of the server's threads for as long as its client likes
MOST_WATCHES: Final = 64  # of health, at a time; they need no thread, but memory
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_NAMES: Final = (SERVICE, _HEALTH, reflection.SERVICE_NAME)
_States: Final = health_pb2.HealthCheckResponse


@dataclass(slots=True, eq=False)
class _Watch:
    service: str
    send: Callable[[Any], None]  # a response; None: no more
    sent: int | None = None  # the last state that was sent


class StandardServices(health_pb2_grpc.HealthServicer):
    """The server as a whole is SERVING while it runs, DiskScheduler while this process leads. A watch needs no thread;
    its client is sent the newest state, each state once at most.

    Threads: any. Only `worker` sends, and without the lock, which the end of a watch takes in the thread that finishes
    the sending. Blocks: `stop`, for what is being sent. I/O: only the answers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._is_leading = self._has_ended = False
        self._watches = set[_Watch]()
        self.worker = Worker("rpc-health", self._send_news)

    def add_to(self, server: grpc.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self, server)
        reflected = _Reflection(_NAMES)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflected, server)  # type: ignore[no-untyped-call]
        self.worker.start()

    def tell_leading(self, is_leading: bool) -> None:
        """Note whether this process leads; a change is sent to all watches."""
        with self._lock:
            is_news, self._is_leading = is_leading is not self._is_leading, is_leading
        if is_news:
            self.worker.wake()

    def end(self) -> None:
        """Report from now on that nothing is served, to watches during the server's grace period; then call `stop`."""
        with self._lock:
            self._has_ended = True
        self.worker.wake()

    def stop(self) -> None:
        self.worker.stop()

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802  # gRPC's name
        with self._lock:
            state = self._state_locked(request.service)
        if state == _States.SERVICE_UNKNOWN:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return _States()
        return _States(status=state)

    def Watch(  # noqa: N802  # gRPC's name
        self, request: Any, context: Any, send_response_callback: Callable[[Any], None] | None = None
    ) -> None:
        assert send_response_callback is not None  # gRPC passes it, because of the mark below
        watch = _Watch(request.service, send_response_callback)
        with self._lock:
            is_taken = len(self._watches) < MOST_WATCHES
            if is_taken:
                self._watches.add(watch)
        if not is_taken:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_WATCHES} clients watch already; try again")
        if not context.add_callback(lambda: self._end_of(watch)):
            self._end_of(watch)  # the call was over before
        self.worker.wake()

    # With this mark gRPC passes the callback to `Watch`, and reuses its thread when that returns.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _end_of(self, watch: _Watch) -> None:
        with self._lock:
            self._watches.discard(watch)
        watch.send(None)

    def _state_locked(self, service: str) -> Any:
        if service not in ("", SERVICE):
            return _States.SERVICE_UNKNOWN
        is_serving = not self._has_ended and (service == "" or self._is_leading)
        return _States.SERVING if is_serving else _States.NOT_SERVING

    def _send_news(self) -> None:
        with self._lock:
            news = [(one, state) for one in self._watches if (state := self._state_locked(one.service)) != one.sent]
        for watch, state in news:
            watch.sent = state
            watch.send(_States(status=state))


class _Reflection(reflection.ReflectionServicer):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self._places = threading.BoundedSemaphore(MOST_REFLECTIONS)

    def ServerReflectionInfo(  # noqa: N802  # gRPC's name
        self, request_iterator: Iterable[reflection_pb2.ServerReflectionRequest], context: Any
    ) -> Iterator[reflection_pb2.ServerReflectionResponse]:
        if not self._places.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_REFLECTIONS} clients ask already; try again")
        try:
            yield from super().ServerReflectionInfo(request_iterator, context)
        finally:
            self._places.release()
