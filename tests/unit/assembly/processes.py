"""A whole controller on an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from controller.allocator.allocator import Allocator
from controller.assembly.assemble import Controller
from controller.clock import Clock
from controller.process.common_metrics import PREFIX
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import TestCluster

LOOPBACK: Final = "127.0.0.1"


def settings_of(**chosen: Any) -> ProcessSettings:
    """Without certificates, on ports that are free, unless something else is chosen."""
    addresses = dict.fromkeys(("pod_ip", "metrics_address", "grpc_address"), LOOPBACK)
    ports = dict.fromkeys(("metrics_port", "status_port", "status_tls_port", "grpc_port"), 0)
    return ProcessSettings(**{"pod_name": "p", "tls_mode": "off", **addresses, **ports, **chosen})


@contextmanager
def running(server: FakeApiServer, identity: str = "identity") -> Iterator[Controller]:
    made = Controller(settings_of(), identity, server)
    made.start()
    try:
        yield made
    finally:
        made.stop()


class Page:
    """The metrics of a process that leads, on an allocator with an empty node."""

    def __init__(self) -> None:
        self.cluster = TestCluster(make_allocator=self._allocator_of_a_process)
        self.cluster.add_node("n1")
        self.gate = self.controller.gate
        self.gate.renewed(self.cluster.clock.now(), self.cluster.clock.now_utc().timestamp(), float("inf"))
        self.gate.open()

    def _allocator_of_a_process(self, clock: Clock) -> Allocator:
        self.api = FakeApiServer()
        self.controller = Controller(settings_of(node_name="worker-1"), "identity", self.api, clock)
        self.registry, self.metrics = self.controller.metrics.registry, self.controller.metrics
        return self.controller.allocator

    def text(self) -> str:
        return (generate_latest(self.registry) + self.controller.gauges.page()).decode()

    def families(self) -> dict[str, Metric]:
        """As Prometheus reads the page."""
        return {family.name: family for family in text_string_to_metric_families(self.text())}

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"{PREFIX}_{name}", labels)
        assert value is not None, f"no sample {name} {labels}"
        return value
