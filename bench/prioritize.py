"""How long a prioritize call takes, beside filter and an echo in the same server (`python -m bench.prioritize`).

The three calls alternate over one kept-alive connection, so that whatever else the machine does hits all alike. The
allocator is the real one over made-up facts: nodes with two disks each and room, and a pod with new best-effort volumes
of three copies, each of another size, so that every node passes and is scored. One JSON object a case: medians,
quartiles, and the ratios of the medians to the echo's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench.echo import create_echo_blueprint
from bench.filter_latency import GIB, NoBinding, NoReads, OpenGate, Silent, connect, node_name
from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings
from controller.model.workload import Claim, KubeNode, Pod, PodVolume, StorageClass
from controller.serving.server import ServerOptions, serve
from controller.settings import LiveSettings
from extender.app import Verbs, create_app
from extender.contention import WaitBudget
from extender.preconditions import Preconditions
from extender.priorities import PriorityService
from extender.service import ExtenderService
from tests.fakes.served import OnlyApplication

EPOCH: Final = "2026-01-01T00:00:00Z"
CASES: Final = ((1000, 1), (1000, 4), (5000, 1), (5000, 4))
PATHS: Final = ("/echo", "/filter", "/prioritize")
WARM_UP: Final = 5


class Process(OnlyApplication):
    """The product's application, filter and prioritize, over `nodes` made-up nodes and one pod."""

    def __init__(self, nodes: int, volumes: int) -> None:
        clock, silent = SystemClock(), Silent()
        allocator = Allocator(clock)
        allocator.configure(LiveSettings(enabled=True), LonghornSettings())
        allocator.set_mode(Mode.ACTIVE)
        _fill(allocator, nodes, volumes)
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
        verbs = Verbs(service, PriorityService(allocator, preconditions), NoPreemption(), NoBinding())
        app = create_app(verbs, silent, clock, max_body_bytes=64 * 1024**2)
        app.register_blueprint(create_echo_blueprint())
        super().__init__(app.wsgi_app)


class NoPreemption:
    def preempt(self, args: object) -> bytes:
        raise AssertionError(f"nobody asks for it: {args}")


def _fill(allocator: Allocator, nodes: int, volumes: int) -> None:
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": "3"}
    allocator.observe(
        "class", "longhorn", StorageClass("longhorn", "driver.longhorn.io", parameters, True, True, EPOCH)
    )
    for index in range(nodes):
        name = node_name(index)
        disks = tuple(
            Disk(
                disk,
                f"{disk}-{index}",
                "filesystem",
                "ext4",
                True,
                False,
                True,
                True,
                frozenset(),
                size,
                size,
                0,
                0,
                {},
            )
            for disk, size in (("a", 400 * GIB), ("b", 300 * GIB))
        )
        allocator.observe("kube_node", name, KubeNode(name, unschedulable=False))
        allocator.observe("node", name, LonghornNode(name, "", "", frozenset(), True, True, True, False, disks))
    for number in range(volumes):
        claim = Claim(
            f"uid-c{number}", "ns", f"c{number}", "longhorn", "", (20 + number) * GIB, "", False, False, "", ""
        )
        allocator.observe("claim", claim.key, claim)
    used = tuple(PodVolume(f"v{number}", f"c{number}") for number in range(volumes))
    pod = Pod("uid-p", "ns", "p", EPOCH, 0, True, "", "", False, False, used)
    allocator.observe("pod", pod.key, pod)


def body_of(nodes: int, volumes: int) -> bytes:
    used = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in range(volumes)]
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"volumes": used, "containers": [{"name": "c"}]},
    }
    names = [node_name(index) for index in range(nodes)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


def measure(nodes: int, volumes: int, calls: int) -> dict[str, Any]:
    """Alternating calls; seconds by route, summed up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.prioritize", "--serve", str(port)]
    command += ["--nodes", str(nodes), "--volumes", str(volumes)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True)
    try:
        connection = connect(port, process)
        body = body_of(nodes, volumes)
        times: dict[str, list[float]] = {path: [] for path in PATHS}
        points: list[int] = []
        for number in range(WARM_UP + calls):
            for path, seen in times.items():
                begin = time.perf_counter()
                connection.request("POST", path, body)
                answer = connection.getresponse().read()
                elapsed = time.perf_counter() - begin
                if number >= WARM_UP:
                    seen.append(elapsed)
                if path == "/prioritize":
                    points += {entry["Score"] for entry in json.loads(answer)}
        return _summary(nodes, volumes, sorted(set(points)), times)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)


def _summary(nodes: int, volumes: int, points: list[int], times: dict[str, list[float]]) -> dict[str, Any]:
    """`points` are all that any node got: more than one kind, on these equal nodes, when a call's budget was spent."""
    result: dict[str, Any] = {"nodes": nodes, "volumes": volumes, "points": points}
    for path, seen in times.items():
        low, median, high = statistics.quantiles(seen, n=4)
        result[path.strip("/")] = {
            "median_ms": round(median * 1000, 3),
            "quartiles_ms": [round(low * 1000, 3), round(high * 1000, 3)],
        }
        if path != "/echo":
            result[f"{path.strip('/')}_of_echo"] = round(median / statistics.median(times["/echo"]), 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--nodes", type=int, default=0, help="one case only; default: 1000 and 5000 with 1 and 4 volumes"
    )
    parser.add_argument("--volumes", type=int, default=1, help="of that case")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(ServerOptions("127.0.0.1", options.serve), lambda: Process(options.nodes, options.volumes))
        return
    for nodes, volumes in ((options.nodes, options.volumes),) if options.nodes else CASES:
        print(json.dumps(measure(nodes, volumes, options.calls)), flush=True)


if __name__ == "__main__":
    main()
