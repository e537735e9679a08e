"""Every thread of both processes: one fault ends none of them, and each tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from controller.assembly.assemble import Controller
from controller.clock import SystemClock
from controller.process.worker import Part, Worker, health_problem
from controller.serving.connection import RequestDeadlines
from tests.fakes.apiserver import FakeApiServer
from tests.unit.assembly.processes import LOOPBACK, settings_of
from tests.waiting import wait_until
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

Process = Controller | Webhook


def controller(api: FakeApiServer, serving: Part) -> tuple[Process, CollectorRegistry, str]:
    made = Controller(settings_of(), "identity", api, serving=serving.workers)
    return made, made.metrics.registry, "longhorn_scheduler_extender"


def webhook(api: FakeApiServer, serving: Part) -> tuple[Process, CollectorRegistry, str]:
    settings = WebhookSettings(tls_mode="off", metrics_address=LOOPBACK, metrics_port=0, status_port=0)
    made = Webhook(settings, api, serving=serving.workers)
    return made, made.metrics.registry, "longhorn_scheduler_webhook"


def fail_once(worker: Worker) -> threading.Event:
    """Set when the round after the fault begins."""
    run, failures, again = worker._run, [ValueError("odd")], threading.Event()

    def failing() -> float | None:
        if failures:
            raise failures.pop()
        again.set()
        return run()

    worker._run = failing
    worker._retry_seconds = (0.01, 0.01)
    return again


@pytest.mark.parametrize("make", [controller, webhook])
def test_a_fault_in_every_worker_ends_none_and_each_tells_of_its_own(
    make: Callable[[FakeApiServer, Part], tuple[Process, CollectorRegistry, str]],
) -> None:
    serving = RequestDeadlines(SystemClock(), 10.0)
    process, registry, prefix = make(FakeApiServer(), serving)
    before = set(threading.enumerate())
    rounds_after = [fail_once(worker) for worker in process.workers]
    process.start()
    serving.start()  # as the server does
    try:
        wait_until(lambda: all(again.is_set() for again in rounds_after), "second round of each", 30)
        assert {1} == {worker.state().failures for worker in process.workers}
        assert "" == health_problem(process.workers)
        entries = process.status()["workers"]
        names = {worker.name for worker in process.workers}
        assert names == set(entries) and len(names) == len(process.workers)
        assert {"ValueError: odd"} == {entry["last_failure"] for entry in entries.values()}
        for name in names:
            assert 1 == registry.get_sample_value(f"{prefix}_worker_failures_total", {"worker": name})
        ours = {thread.name for thread in set(threading.enumerate()) - before if thread.name != "MainThread"}
        helpers = {name for name in ours if name.startswith(("catch-up", "ThreadPool", "Thread-", "rpc_"))}
        assert names == ours - helpers
    finally:
        serving.stop()
        process.stop()
    assert not [thread for thread in threading.enumerate() if thread.name in names]
