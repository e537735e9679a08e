"""How long a filter call takes, as a multiple of an echo in the same server (`python -m bench.filter_latency`).

Filter and echo calls alternate over one kept-alive connection, so that whatever else the machine does hits both alike.
The allocator is the real one over made-up facts: NODES Longhorn nodes with room, one pod with one volume, alone and
beside 64 pods that were offered nodes. Then the same on 1,000 nodes with four disks each, without and with 1,000
volumes pending that may lie on any node. Printed as one JSON object for each case, with medians, quartiles and the
ratio of the medians.
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
from tests.fakes.builders import ONE_LOCAL

CLAIMS: Final = {"c": 100}  # GiB
# What is asked: so many times the echo, where the usual offers and where all nodes are held; beside pending volumes so
# many times a call without them.
ECHO_RATIO, ALL_RATIO, ROAMING_RATIO = 2.0, 3.0, 2.0


def process(
    nodes: int, max_offers: int, full_every: int, disks: int = 1, roaming: int = 0, holds: int = 0
) -> ExtenderProcess:
    """Over `nodes` made-up nodes, of which every `full_every`-th is full (0: none), while so many volumes of three
    copies are pending that may lie anywhere, and so many pods like ours hold what they were offered."""
    cluster = make_cluster(LiveSettings(enabled=True, max_offers=max_offers))
    cluster.add_class("longhorn", dataLocality="best-effort", numberOfReplicas="3")

    def sizes(index: int) -> dict[str, int]:
        return {f"d{disk}": 50 if full_every and index % full_every == 0 else 400 for disk in range(disks)}

    names = add_nodes(cluster, nodes, sizes)
    for number in range(roaming):
        assert cluster.ask(f"r{number}", 0.2, *names)
    cluster.add_class("longhorn", **ONE_LOCAL)
    for number in range(holds):
        assert cluster.ask(f"h{number}", CLAIMS["c"], *names)
    add_pod(cluster, CLAIMS)
    return ExtenderProcess(cluster.allocator)


def measure(
    nodes: int, max_offers: int, full_every: int, calls: int, disks: int = 1, roaming: int = 0, holds: int = 0
) -> dict[str, Any]:
    """Alternating calls; seconds by route, summed up."""
    names = [node_name(index) for index in range(nodes)]
    body = json.dumps({"Pod": pod_document(CLAIMS), "Nodes": None, "NodeNames": names}).encode()
    passed: list[int] = []

    def look(path: str, answer: bytes) -> None:
        if path == "/filter" and not passed:
            passed.append(len(json.loads(answer)["NodeNames"]))

    case: tuple[str, ...] = ("--nodes", str(nodes), "--max-offers", str(max_offers), "--full-every", str(full_every))
    case = (*case, "--disks", str(disks), "--roaming", str(roaming), "--holds", str(holds))
    with serving("bench.filter_latency", *case) as server:
        times = alternate(server.connect(), {"/echo": body, "/filter": body}, calls, look)
    return {
        **_summary(nodes, max_offers, full_every, passed[0], times),
        "disks": disks,
        "roaming": roaming,
        "holds": holds,
    }


def _summary(
    nodes: int, max_offers: int, full_every: int, passed: int, times: dict[str, list[float]]
) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": nodes, "max_offers": max_offers, "full_every": full_every, "passed": passed}
    for path, seen in times.items():
        result[path.strip("/")] = quartiles(seen)
    result["ratio"] = round(statistics.median(times["/filter"]) / statistics.median(times["/echo"]), 3)
    return result


def verdicts(results: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    alone = (result for result in results if not (result["roaming"] or result["holds"]))
    quiet = {_case(result): result["filter"]["median_ms"] for result in alone}
    found = []
    for result in results:
        if not result["roaming"]:
            most = ECHO_RATIO if result["max_offers"] else ALL_RATIO
            text = f"{result['nodes']} nodes, {result['passed']} offered, beside {result['holds']} holds"
            text = f"{text}: {result['ratio']:.2f} x an echo"
            found.append(Verdict(text, result["ratio"] <= most, f"at most {most}"))
        elif _case(result) in quiet:
            ratio = result["filter"]["median_ms"] / quiet[_case(result)]
            text = f"beside {result['roaming']} pending volumes: {ratio:.2f} x a call without them"
            found.append(Verdict(text, ratio <= ROAMING_RATIO, f"at most {ROAMING_RATIO}"))
    return found


def _case(result: dict[str, Any]) -> tuple[int, ...]:
    return result["nodes"], result["max_offers"], result["full_every"], result["disks"]


def main() -> int:
    epilog = "With --max-offers, --full-every, --disks, --roaming or --holds: that case only."
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--max-offers", type=int, default=None, help="default: 100 and 0 (all)")
    parser.add_argument("--full-every", type=int, default=0, help="every so many nodes is full")
    parser.add_argument("--disks", type=int, default=1, help="of each node")
    parser.add_argument("--roaming", type=int, default=0, help="so many pending volumes may lie on any node")
    parser.add_argument("--holds", type=int, default=0, help="so many pods hold what they were offered")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        case = (options.nodes, options.max_offers, options.full_every, options.disks, options.roaming, options.holds)
        serve(ServerOptions("127.0.0.1", options.serve), lambda: process(*case))
        return 0
    cases: list[tuple[int, ...]] = [(options.nodes, 100, 0), (options.nodes, 100, 0, 1, 0, 64), (options.nodes, 0, 0)]
    cases += [(1000, 100, 0, 4, roaming) for roaming in (0, 1000)]
    if options.max_offers is not None or options.full_every or options.disks > 1 or options.roaming or options.holds:
        offers = 100 if options.max_offers is None else options.max_offers
        cases = [(options.nodes, offers, options.full_every, options.disks, options.roaming, options.holds)]
    results = []
    for nodes, max_offers, full_every, *rest in cases:
        results.append(measure(nodes, max_offers, full_every, options.calls, *rest))
        print(json.dumps(results[-1]), flush=True)
    return conclude(verdicts(results), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
