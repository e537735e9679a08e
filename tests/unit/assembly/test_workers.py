"""Every thread of both processes: one fault ends none of them, and each tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest
from prometheus_client import CollectorRegistry

from controller.assembly.assemble import Controller
from controller.process.worker import Worker, health_problem
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.waiting import wait_until
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

OURS = "127.0.0.1"


class Process(Protocol):
    @property
    def workers(self) -> Sequence[Worker]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def status(self) -> Any: ...


def controller(api: FakeApiServer) -> tuple[Process, CollectorRegistry, str]:
    settings = ProcessSettings(
        pod_name="p", pod_ip=OURS, metrics_address=OURS, metrics_port=0, grpc_address=OURS, grpc_port=0, tls_mode="off"
    )
    made = Controller(settings, "identity", api)
    return made, made.metrics.registry, "longhorn_scheduler_extender"


def webhook(api: FakeApiServer) -> tuple[Process, CollectorRegistry, str]:
    settings = WebhookSettings(tls_mode="off", metrics_address=OURS, metrics_port=0)
    made = Webhook(settings, api)
    return made, made.metrics.registry, "longhorn_scheduler_webhook"


def fail_once(worker: Worker) -> None:
    run, failures = worker._run, [ValueError("odd")]

    def failing() -> float | None:
        if failures:
            raise failures.pop()
        return run()

    worker._run = failing
    worker._retry_seconds = (0.01, 0.01)


@pytest.mark.parametrize("make", [controller, webhook])
def test_a_fault_in_every_worker_ends_none_and_each_tells_of_its_own(
    make: Callable[[FakeApiServer], tuple[Process, CollectorRegistry, str]],
) -> None:
    process, registry, prefix = make(FakeApiServer())
    before = set(threading.enumerate())
    for worker in process.workers:
        fail_once(worker)
    process.start()
    try:
        wait_until(lambda: all(worker.state().failures == 1 for worker in process.workers), 30)
        # An informer's first good round lasts as long as its watch.
        wait_until(lambda: all(worker.state().rounds >= 1 for worker in process.workers))
        assert "" == health_problem(process.workers)
        entries = process.status()["workers"]
        names = {worker.name for worker in process.workers}
        assert names == set(entries) and len(names) == len(process.workers)
        assert {"ValueError: odd"} == {entry["last_failure"] for entry in entries.values()}
        for name in names:
            assert 1 == registry.get_sample_value(f"{prefix}_worker_failures_total", {"worker": name})
        ours = {thread.name for thread in set(threading.enumerate()) - before if thread.name != "MainThread"}
        helpers = {name for name in ours if name.startswith(("catch-up", "ThreadPool", "Thread-", "rpc_", "http"))}
        assert names == ours - helpers
    finally:
        process.stop()
    assert not [thread for thread in threading.enumerate() if thread.name in names]
