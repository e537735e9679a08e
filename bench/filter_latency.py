"""How long a filter call takes, as a multiple of an echo in the same server (`python -m bench.filter_latency`).

Filter and echo calls alternate over one kept-alive connection, so that whatever else the machine does hits both alike.
The allocator is the real one over made-up facts: NODES Longhorn nodes with room, one pod with one volume. Printed as
one JSON object a case, with medians, quartiles and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from bench.made_up import ExtenderProcess, add_class, add_node, add_pod, make_allocator, node_name, pod_document
from bench.served import alternate, quartiles, serving
from controller.serving.server import ServerOptions, serve
from controller.settings import LiveSettings

CLAIMS = {"c": 100}  # GiB


def process(nodes: int, max_offers: int, full_every: int, disks: int = 1, roaming: int = 0) -> ExtenderProcess:
    """Over `nodes` made-up nodes, of which every `full_every`-th is full (0: none), while so many volumes of three
    copies are pending that may lie anywhere."""
    allocator = make_allocator(LiveSettings(enabled=True, max_offers=max_offers))
    add_class(allocator, copies=3)
    for index in range(nodes):
        size = 50 if full_every and index % full_every == 0 else 400
        add_node(allocator, index, {f"d{disk}": size for disk in range(disks)})
    names = [node_name(index) for index in range(nodes)]
    for number in range(roaming):
        add_pod(allocator, {f"r{number}": 0.2}, name=f"r{number}")
        assert allocator.hold_pod(f"uid-r{number}", names).passed
    add_class(allocator, copies=1)
    add_pod(allocator, CLAIMS)
    return ExtenderProcess(allocator)


def measure(
    nodes: int, max_offers: int, full_every: int, calls: int, disks: int = 1, roaming: int = 0
) -> dict[str, Any]:
    """Alternating calls; seconds by route, summed up."""
    names = [node_name(index) for index in range(nodes)]
    body = json.dumps({"Pod": pod_document(CLAIMS), "Nodes": None, "NodeNames": names}).encode()
    passed: list[int] = []

    def look(path: str, answer: bytes) -> None:
        if path == "/filter" and not passed:
            passed.append(len(json.loads(answer)["NodeNames"]))

    case: tuple[str, ...] = ("--nodes", str(nodes), "--max-offers", str(max_offers), "--full-every", str(full_every))
    case = (*case, "--disks", str(disks), "--roaming", str(roaming))
    with serving("bench.filter_latency", *case) as server:
        times = alternate(server.connect(), ("/echo", "/filter"), body, calls, look)
    return {**_summary(nodes, max_offers, full_every, passed[0], times), "disks": disks, "roaming": roaming}


def _summary(
    nodes: int, max_offers: int, full_every: int, passed: int, times: dict[str, list[float]]
) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": nodes, "max_offers": max_offers, "full_every": full_every, "passed": passed}
    for path, seen in times.items():
        result[path.strip("/")] = quartiles(seen)
    result["ratio"] = round(statistics.median(times["/filter"]) / statistics.median(times["/echo"]), 3)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--max-offers", type=int, default=None, help="one case only; default: 100 and 0 (all)")
    parser.add_argument("--full-every", type=int, default=0, help="every so many nodes is full")
    parser.add_argument("--disks", type=int, default=1, help="of each node")
    parser.add_argument("--roaming", type=int, default=0, help="so many pending volumes may lie on any node")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        case = (options.nodes, options.max_offers, options.full_every, options.disks, options.roaming)
        serve(ServerOptions("127.0.0.1", options.serve), lambda: process(*case))
        return
    for max_offers in (100, 0) if options.max_offers is None else (options.max_offers,):
        print(
            json.dumps(
                measure(options.nodes, max_offers, options.full_every, options.calls, options.disks, options.roaming)
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
