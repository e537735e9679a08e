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
from dataclasses import asdict, dataclass, replace
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


@dataclass(frozen=True, slots=True)
class FilterCase:
    """`nodes` made-up nodes with so many `disks` each, of which every `full_every`-th is full (0: none), while so many
    volumes of three copies are pending that may lie anywhere (`roaming`), and so many pods like ours hold what they
    were offered (`holds`). Each field is an argument of the program."""

    nodes: int
    max_offers: int
    full_every: int = 0
    disks: int = 1
    roaming: int = 0
    holds: int = 0

    @property
    def arguments(self) -> list[str]:
        return [text for name, value in asdict(self).items() for text in (f"--{name.replace('_', '-')}", str(value))]


def process(case: FilterCase) -> ExtenderProcess:
    cluster = make_cluster(LiveSettings(enabled=True, max_offers=case.max_offers))
    cluster.add_class("longhorn", dataLocality="best-effort", numberOfReplicas="3")

    def sizes(index: int) -> dict[str, int]:
        is_full = case.full_every and index % case.full_every == 0
        return {f"d{disk}": 50 if is_full else 400 for disk in range(case.disks)}

    names = add_nodes(cluster, case.nodes, sizes)
    for number in range(case.roaming):
        assert cluster.ask(f"r{number}", 0.2, *names)
    cluster.add_class("longhorn", **ONE_LOCAL)
    for number in range(case.holds):
        assert cluster.ask(f"h{number}", CLAIMS["c"], *names)
    add_pod(cluster, CLAIMS)
    return ExtenderProcess(cluster.allocator)


def measure(case: FilterCase, calls: int) -> dict[str, Any]:
    """Alternating calls, summed up by route, beside the case."""
    names = [node_name(index) for index in range(case.nodes)]
    body = json.dumps({"Pod": pod_document(CLAIMS), "Nodes": None, "NodeNames": names}).encode()
    passed: list[int] = []

    def look(path: str, answer: bytes) -> None:
        if path == "/filter" and not passed:
            passed.append(len(json.loads(answer)["NodeNames"]))

    with serving("bench.filter_latency", *case.arguments) as server:
        times = alternate(server.connect(), {"/echo": body, "/filter": body}, calls, look)
    result: dict[str, Any] = {**asdict(case), "passed": passed[0]}
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
    offers = 100 if options.max_offers is None else options.max_offers
    asked = FilterCase(options.nodes, offers, options.full_every, options.disks, options.roaming, options.holds)
    if options.serve:
        serve(ServerOptions("127.0.0.1", options.serve), lambda: process(asked))
        return 0
    usual = FilterCase(options.nodes, 100)
    cases = [usual, replace(usual, holds=64), replace(usual, max_offers=0)]
    cases += [FilterCase(1000, 100, disks=4, roaming=roaming) for roaming in (0, 1000)]
    if options.max_offers is not None or replace(asked, max_offers=100) != usual:
        cases = [asked]
    results = []
    for case in cases:
        results.append(measure(case, options.calls))
        print(json.dumps(results[-1]), flush=True)
    return conclude(verdicts(results), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
