"""gRPC's own services beside ours, by the library's code: health, which tells who leads, and reflection, by which tools
learn our calls without the .proto file.

Sources: gRPC's documents `health-checking.md` and `server-reflection.md`. Any client whose certificate the server takes
may call them: they tell nothing of the cluster.
"""

from __future__ import annotations

from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from controller.rpc.wire import SERVICE

_NAMES: Final = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)


class StandardServices:
    """The server as a whole is SERVING while it runs; DiskScheduler, while this process leads.

    Threads: any. Blocks: never; whoever watches keeps no thread. I/O: none but the answers.
    """

    def __init__(self) -> None:
        # Else a watch would keep one of the server's threads for as long as it lasts.
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._is_leading = True
        self.tell_leading(False)

    def add_to(self, server: grpc.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(_NAMES, server)

    def tell_leading(self, is_leading: bool) -> None:
        """Whoever watches is told where that is a change. Call it from one thread."""
        if is_leading != self._is_leading:
            self._is_leading, states = is_leading, health_pb2.HealthCheckResponse
            self._health.set(SERVICE, states.SERVING if is_leading else states.NOT_SERVING)

    def end(self) -> None:
        """Nothing is served any more, whatever is told later."""
        self._health.enter_graceful_shutdown()
