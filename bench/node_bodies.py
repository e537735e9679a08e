"""How long a filter call with whole nodes takes, in units of Go's time for the body (`python -m bench.node_bodies`).

kube-scheduler sends whole nodes to an extender that is not `nodeCacheCapable`. The yardstick is Go's encoding/json with
the types of k8s.io/api, one decode and one encode of the body in the process, without any network: the least that an
extender written in Go would pay beside its decision. Ours is the whole call over a kept-alive connection, as a client
sees it, body and answer included. The calls of both alternate, so that whatever else the machine does hits both alike.
One JSON object a case: all nodes pass and come back, or only the usual number of offers does. The verdicts go to
standard error as well.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.filter_latency import CLAIMS
from bench.made_up import node_name, pod_document
from bench.served import serving
from bench.verdicts import Verdict, add_report_only, conclude, lines_of
from tests.extender_go.build import build

NODE_BYTES = 7_000
WARM_UP = 2
LIMITED_NODES, GO_RATIO = 1000, 0.5  # asked of us


def node(index: int) -> dict[str, Any]:
    """A node with as many bytes as those of running clusters have, most of them images, fields and annotations."""
    name = node_name(index)
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": f"KubeletHas{kind}",
            "message": f"kubelet has looked at {kind} and found nothing that would keep pods away from this node",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    quantities = {"cpu": "15890m", "ephemeral-storage": "95551679124", "memory": "64886340Ki", "pods": "110"}
    images: list[dict[str, Any]] = []
    made = {
        "metadata": {
            "name": name,
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "resourceVersion": str(1_000_000 + index),
            "creationTimestamp": now,
            "labels": {f"topology.example.com/label-{number}": f"value-{index}-{number}" for number in range(12)},
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": json.dumps({"driver.longhorn.io": name}),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": f"10.{index // 256}.{index % 256}.0/24", "providerID": f"example://zone-a/{name}"},
        "status": {
            "capacity": quantities,
            "allocatable": quantities,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "images": images,
        },
    }
    while len(json.dumps(made, separators=(",", ":"))) < NODE_BYTES:
        number = len(images)
        digest = f"{index * 1000 + number:064x}"
        names = [f"registry.example.com/team/app-{number}@sha256:{digest}", f"registry.example.com/team/app-{number}:1"]
        images.append({"names": names, "sizeBytes": 12_345_678 + number})
    return made


class Recoder:
    """Go's yardstick as a process: one decode and encode of the body a call."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        original, copied = (Path(self._folder.name) / name for name in ("original", "copied"))
        original.write_text(json.dumps(arguments, separators=(",", ":")))
        self._process = subprocess.Popen(
            [str(build()), "recode", str(original), str(copied)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()
        self.body = copied.read_bytes()  # as Go spells it, and so as kube-scheduler sends it

    def seconds(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        taken = self._read()
        return float(taken["decodeSeconds"] + taken["encodeSeconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the Go program ended early")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        self._process.communicate(timeout=60)
        self._folder.cleanup()


def measure(nodes: int, max_offers: int, calls: int) -> dict[str, Any]:
    pod = pod_document(CLAIMS)
    recoder = Recoder({"Pod": pod, "Nodes": {"items": [node(index) for index in range(nodes)]}})
    case = ("--nodes", str(nodes), "--max-offers", str(max_offers))
    try:
        with serving("bench.filter_latency", *case) as server:
            return _compare(server.connect(), recoder, nodes, max_offers, calls)
    finally:
        recoder.stop()


def _compare(
    connection: http.client.HTTPConnection, recoder: Recoder, nodes: int, max_offers: int, calls: int
) -> dict[str, Any]:
    ours, go, passed = [], [], 0
    for number in range(calls + WARM_UP):
        go_seconds = recoder.seconds()
        our_seconds, answer = call(connection, recoder.body)
        if number == 0:
            passed = len(json.loads(answer)["Nodes"]["items"])
        if number >= WARM_UP:
            go.append(go_seconds)
            ours.append(our_seconds)
    return {
        "nodes": nodes,
        "megabytes": round(len(recoder.body) / 1e6, 1),
        "max_offers": max_offers,
        "passed": passed,
        "go_ms": spread(go),
        "ours_ms": spread(ours),
        "ratio": round(statistics.median(ours) / statistics.median(go), 3),
    }


def call(connection: http.client.HTTPConnection, body: bytes) -> tuple[float, bytes]:
    begin = time.perf_counter()
    connection.request("POST", "/filter", body)
    response = connection.getresponse()
    answer = response.read()
    elapsed = time.perf_counter() - begin
    if response.status != 200:
        raise SystemExit(f"{len(body)} bytes were answered with {response.status}: {answer[:300]!r}")
    return elapsed, answer


def spread(seconds: list[float]) -> dict[str, float]:
    low, median, high = (round(value * 1000, 1) for value in statistics.quantiles(seconds, n=4))
    return {"low": low, "median": median, "high": high}


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """What is asked of a case. With more nodes that is an answer alone, and without one the benchmark ends."""
    if result["nodes"] > LIMITED_NODES:
        return []
    text = f"{result['nodes']} nodes, {result['passed']} come back: {result['ratio']:.2f} of Go's time"
    return [Verdict(text, result["ratio"] <= GO_RATIO, f"at most {GO_RATIO}")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--max-offers", type=int, nargs="+", default=[0, 100], help="0: all nodes that fit come back")
    add_report_only(parser)
    options = parser.parse_args()
    checks: list[Verdict] = []
    for nodes in options.nodes:
        for max_offers in options.max_offers:
            result = measure(nodes, max_offers, options.calls)
            found = verdicts(result)
            checks += found
            print(json.dumps({**result, "verdicts": lines_of(found)}), flush=True)
    return conclude(checks, is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
