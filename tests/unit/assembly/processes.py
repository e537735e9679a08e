"""A whole controller on an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from controller.assembly.assemble import Controller
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer

LOOPBACK: Final = "127.0.0.1"


def settings_of(**chosen: Any) -> ProcessSettings:
    """Without certificates, on ports that are free, unless something else is chosen."""
    addresses = dict.fromkeys(("pod_ip", "metrics_address", "grpc_address"), LOOPBACK)
    ports = dict.fromkeys(("metrics_port", "status_port", "status_tls_port", "grpc_port"), 0)
    return ProcessSettings(**{"pod_name": "p", "tls_mode": "off", **addresses, **ports, **chosen})


@contextmanager
def running(server: FakeApiServer) -> Iterator[Controller]:
    made = Controller(settings_of(), "identity", server)
    made.start()
    try:
        yield made
    finally:
        made.stop()
