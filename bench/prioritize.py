"""How long a prioritize call takes, beside filter and an echo in the same server (`python -m bench.prioritize`).

The three calls alternate over one kept-alive connection, so that whatever else the machine does hits all alike. The
allocator is the real one over made-up facts: nodes with two disks each and room, and a pod with new volumes of three
copies that may lie on any node, each of another size, so that every node passes and is scored. One JSON object a case:
medians, quartiles, and the ratios of the medians to the echo's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any, Final

from bench.made_up import ExtenderProcess, add_nodes, add_pod, make_cluster, node_name, pod_document
from bench.served import alternate, quartiles, serving
from bench.verdicts import Verdict, add_report_only, conclude
from controller.serving.server import ServerOptions, serve
from controller.settings import LiveSettings

CASES: Final = ((1000, 1), (1000, 4), (5000, 1), (5000, 4))
# What is asked: so many times the echo, and every node looked at within the budget of a call.
FILTER_RATIO, PRIORITIZE_RATIO = 3.0, 10.0
PATHS: Final = ("/echo", "/filter", "/prioritize")


def claims(volumes: int) -> dict[str, int]:
    """GiB of each claim by its name."""
    return {f"c{number}": 20 + number for number in range(volumes)}


def process(nodes: int, volumes: int) -> ExtenderProcess:
    """The extender's process over so many made-up nodes and one pod with so many volumes."""
    cluster = make_cluster(LiveSettings(enabled=True))
    cluster.add_class("longhorn", dataLocality="disabled", numberOfReplicas="3")
    add_nodes(cluster, nodes, lambda _: {"a": 400, "b": 300})
    add_pod(cluster, claims(volumes))
    return ExtenderProcess(cluster.allocator)


def measure(nodes: int, volumes: int, calls: int) -> dict[str, Any]:
    """What calls of the routes take, made by turns."""
    names = [node_name(index) for index in range(nodes)]
    body = json.dumps({"Pod": pod_document(claims(volumes)), "Nodes": None, "NodeNames": names}).encode()
    points: set[int] = set()

    def look(path: str, answer: bytes) -> None:
        if path == "/prioritize":
            points.update(entry["Score"] for entry in json.loads(answer))

    with serving("bench.prioritize", "--nodes", str(nodes), "--volumes", str(volumes)) as server:
        times = alternate(server.connect(), dict.fromkeys(PATHS, body), calls, look)
    return _summary(nodes, volumes, sorted(points), times)


def _summary(nodes: int, volumes: int, points: list[int], times: dict[str, list[float]]) -> dict[str, Any]:
    """`points` are all that any node got: more than one kind, on these equal nodes, when a call's budget was spent."""
    result: dict[str, Any] = {"nodes": nodes, "volumes": volumes, "points": points}
    for path, seen in times.items():
        result[path.strip("/")] = quartiles(seen)
        if path != "/echo":
            result[f"{path.strip('/')}_of_echo"] = round(statistics.median(seen) / statistics.median(times["/echo"]), 2)
    return result


def verdicts(results: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Each figure beside what is asked of it. Equal nodes that are all looked at get the same points."""
    found = []
    for result in results:
        case = f"{result['nodes']} nodes, {result['volumes']} volumes"
        for verb, most in (("filter", FILTER_RATIO), ("prioritize", PRIORITIZE_RATIO)):
            ratio = result[f"{verb}_of_echo"]
            found.append(Verdict(f"{case}: {verb} {ratio} x an echo", ratio <= most, f"at most {most}"))
        kinds = len(result["points"])
        found.append(Verdict(f"{case}: {kinds} kinds of points", kinds == 1, "all the same"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--nodes", type=int, default=0, help="one case only; default: 1000 and 5000 with 1 and 4 volumes"
    )
    parser.add_argument("--volumes", type=int, default=1, help="of that case")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        serve(ServerOptions("127.0.0.1", options.serve), lambda: process(options.nodes, options.volumes))
        return 0
    results = []
    for nodes, volumes in ((options.nodes, options.volumes),) if options.nodes else CASES:
        results.append(measure(nodes, volumes, options.calls))
        print(json.dumps(results[-1]), flush=True)
    return conclude(verdicts(results), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
