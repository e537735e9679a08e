"""How long a filter call takes, as a multiple of an echo in the same server (`python -m bench.filter_latency`).

Filter and echo calls alternate over one kept-alive connection, so that whatever else the machine does hits both alike.
The allocator is the real one over made-up facts: NODES Longhorn nodes with room, one pod with one volume. Printed as
one JSON object a case, with medians, quartiles and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.echo import create_echo_blueprint
from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings
from controller.model.workload import Claim, KubeNode, Pod, PodVolume, StorageClass
from controller.serving.server import ServerOptions, serve
from controller.settings import LiveSettings
from extender.app import Verbs, create_app
from extender.binding import BindingArgs
from extender.contention import WaitBudget
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService
from tests.fakes.served import OnlyApplication

GIB = 1024**3
POD = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
    "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], "containers": [{"name": "c"}]},
}
START_SECONDS = 60.0


class OpenGate:
    term = 1

    def check(self) -> None:
        return


class NoReads:
    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        raise AssertionError(f"{kind} {namespace}/{name} is not in the store ({timeout_seconds} s)")


class Silent:
    def decided(self, *_: object) -> None:
        return

    contention_waited = filter_answered = failed = preempted = refused = let_through = decided


class NoBinding:
    def bind(self, args: BindingArgs) -> str:
        return f"{args.node}: not here"


class Process(OnlyApplication):
    """The product's application over `nodes` made-up nodes, of which every `full_every`-th is full (0: none)."""

    def __init__(self, nodes: int, max_offers: int, full_every: int) -> None:
        clock = SystemClock()
        allocator = Allocator(clock)
        allocator.configure(LiveSettings(enabled=True, max_offers=max_offers), LonghornSettings())
        allocator.set_mode(Mode.ACTIVE)
        _fill(allocator, nodes, full_every)
        silent = Silent()
        preconditions = Preconditions(
            allocator, OpenGate(), NoReads(), clock, mode=lambda: Mode.ACTIVE, stale_kind=lambda: None
        )
        service = ExtenderService(
            allocator,
            preconditions,
            clock,
            silent,
            silent,
            contention_wait_seconds=lambda: 0.0,
            budget=WaitBudget(),
        )
        preempting = PreemptionService(allocator, preconditions, silent, silent)
        verbs = Verbs(service, PriorityService(allocator, preconditions), preempting, NoBinding())
        app = create_app(verbs, silent, clock, max_body_bytes=64 * 1024**2)
        app.register_blueprint(create_echo_blueprint())
        super().__init__(app.wsgi_app)


def _fill(allocator: Allocator, nodes: int, full_every: int) -> None:
    epoch = "2026-01-01T00:00:00Z"
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
    allocator.observe(
        "class", "longhorn", StorageClass("longhorn", "driver.longhorn.io", parameters, True, True, epoch)
    )
    for index in range(nodes):
        name = node_name(index)
        size = 50 * GIB if full_every and index % full_every == 0 else 400 * GIB
        disk = Disk(
            "d", f"disk-{index}", "filesystem", "ext4", True, False, True, True, frozenset(), size, size, 0, 0, {}
        )
        allocator.observe("kube_node", name, KubeNode(name, unschedulable=False))
        allocator.observe("node", name, LonghornNode(name, "", "", frozenset(), True, True, True, False, (disk,)))
    claim = Claim("uid-c", "ns", "c", "longhorn", "", 100 * GIB, "", False, False, "", "")
    allocator.observe("claim", claim.key, claim)
    pod = Pod("uid-p", "ns", "p", epoch, 0, True, "", "", False, False, (PodVolume("v", "c"),))
    allocator.observe("pod", pod.key, pod)


def node_name(index: int) -> str:
    return f"worker-{index:05d}.cluster.example"


def measure(nodes: int, max_offers: int, full_every: int, calls: int) -> dict[str, Any]:
    """Alternating calls; seconds by route, summed up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.filter_latency", "--serve", str(port)]
    command += ["--nodes", str(nodes), "--max-offers", str(max_offers), "--full-every", str(full_every)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True)
    try:
        connection = connect(port, process)
        body = json.dumps(
            {"Pod": POD, "Nodes": None, "NodeNames": [node_name(index) for index in range(nodes)]}
        ).encode()
        times: dict[str, list[float]] = {"/echo": [], "/filter": []}
        passed = 0
        for number in range(calls + 5):
            for path, seen in times.items():
                begin = time.perf_counter()
                connection.request("POST", path, body)
                answer = connection.getresponse().read()
                elapsed = time.perf_counter() - begin
                if number >= 5:  # the first calls warm up
                    seen.append(elapsed)
                if path == "/filter" and number == 0:
                    passed = len(json.loads(answer)["NodeNames"])
        return _summary(nodes, max_offers, full_every, passed, times)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)


def connect(port: int, process: subprocess.Popen[bytes]) -> http.client.HTTPConnection:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().read():
                return connection
        except OSError:
            connection.close()
            time.sleep(0.05)
    raise SystemExit("the server did not start")


def _summary(
    nodes: int, max_offers: int, full_every: int, passed: int, times: dict[str, list[float]]
) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": nodes, "max_offers": max_offers, "full_every": full_every, "passed": passed}
    for path, seen in times.items():
        low, median, high = statistics.quantiles(seen, n=4)
        result[path.strip("/")] = {
            "median_ms": round(median * 1000, 3),
            "quartiles_ms": [round(low * 1000, 3), round(high * 1000, 3)],
        }
    result["ratio"] = round(statistics.median(times["/filter"]) / statistics.median(times["/echo"]), 3)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--max-offers", type=int, default=None, help="one case only; default: 100 and 0 (all)")
    parser.add_argument("--full-every", type=int, default=0, help="every so many nodes is full")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        build = lambda: Process(options.nodes, options.max_offers, options.full_every)  # noqa: E731
        serve(ServerOptions("127.0.0.1", options.serve), build)
        return
    for max_offers in (100, 0) if options.max_offers is None else (options.max_offers,):
        print(json.dumps(measure(options.nodes, max_offers, options.full_every, options.calls)), flush=True)


if __name__ == "__main__":
    main()
