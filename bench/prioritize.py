"""How long a prioritize call takes, beside filter and an echo in the same server (`python -m bench.prioritize`).

The three calls alternate over one kept-alive connection, so that whatever else the machine does hits all alike. The
allocator is the real one over made-up facts: nodes with two disks each and room, and a pod with new best-effort volumes
of three copies, each of another size, so that every node passes and is scored. One JSON object a case: medians,
quartiles, and the ratios of the medians to the echo's.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any, Final

from bench.made_up import ExtenderProcess, add_class, add_node, add_pod, make_allocator, node_name, pod_document
from bench.served import alternate, quartiles, serving
from controller.serving.server import ServerOptions, serve
from controller.settings import LiveSettings

CASES: Final = ((1000, 1), (1000, 4), (5000, 1), (5000, 4))
PATHS: Final = ("/echo", "/filter", "/prioritize")


def claims(volumes: int) -> dict[str, int]:
    """GiB by name."""
    return {f"c{number}": 20 + number for number in range(volumes)}


def process(nodes: int, volumes: int) -> ExtenderProcess:
    """Over `nodes` made-up nodes and one pod."""
    allocator = make_allocator(LiveSettings(enabled=True))
    add_class(allocator, copies=3)
    for index in range(nodes):
        add_node(allocator, index, {"a": 400, "b": 300})
    add_pod(allocator, claims(volumes))
    return ExtenderProcess(allocator)


def measure(nodes: int, volumes: int, calls: int) -> dict[str, Any]:
    """Alternating calls; seconds by route, summed up."""
    names = [node_name(index) for index in range(nodes)]
    body = json.dumps({"Pod": pod_document(claims(volumes)), "Nodes": None, "NodeNames": names}).encode()
    points: set[int] = set()

    def look(path: str, answer: bytes) -> None:
        if path == "/prioritize":
            points.update(entry["Score"] for entry in json.loads(answer))

    with serving("bench.prioritize", "--nodes", str(nodes), "--volumes", str(volumes)) as server:
        times = alternate(server.connect(), PATHS, body, calls, look)
    return _summary(nodes, volumes, sorted(points), times)


def _summary(nodes: int, volumes: int, points: list[int], times: dict[str, list[float]]) -> dict[str, Any]:
    """`points` are all that any node got: more than one kind, on these equal nodes, when a call's budget was spent."""
    result: dict[str, Any] = {"nodes": nodes, "volumes": volumes, "points": points}
    for path, seen in times.items():
        result[path.strip("/")] = quartiles(seen)
        if path != "/echo":
            result[f"{path.strip('/')}_of_echo"] = round(statistics.median(seen) / statistics.median(times["/echo"]), 2)
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
        serve(ServerOptions("127.0.0.1", options.serve), lambda: process(options.nodes, options.volumes))
        return
    for nodes, volumes in ((options.nodes, options.volumes),) if options.nodes else CASES:
        print(json.dumps(measure(nodes, volumes, options.calls)), flush=True)


if __name__ == "__main__":
    main()
