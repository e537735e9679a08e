"""What co-scheduling adds to a filter call (`python -m bench.coschedule`).

One process serves the product's application twice over the same made-up facts: with the part that keeps virtual
machines beside the share-managers of their volumes, and without it. A pod with a shared volume that is served on one of
1,000 nodes asks both, once with the annotation and once without. The four calls alternate over one kept-alive
connection, so that whatever else the machine does hits all alike; then the same with `preferred`.

Printed as one JSON object for each strictness, with medians, quartiles, the sizes of the answers, and what the part
adds: the median over the rounds of four calls. Without it, the annotated pod is answered with all nodes; with it and
`required`, with one, and with a refusal of each other one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bench.made_up import ExtenderProcess, add_nodes, make_cluster, node_name, pod_document
from bench.served import alternate, quartiles, serving
from bench.verdicts import Verdict, add_report_only, conclude
from controller.clock import SystemClock
from controller.serving.server import ServerOptions, serve
from controller.settings import STRICTNESSES, LiveSettings
from extender.coschedule import CoScheduler
from tests.fakes.builders import TestCluster, pod
from tests.fakes.served import OnlyApplication

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LONGHORN: Final = "longhorn-system"
PLAIN, ANNOTATED = "plain", "annotated"
WITH, WITHOUT = "with", "without"
MOST_ADDED_PCT: Final = {PLAIN: 10.0, ANNOTATED: 20.0}


class BothWays(OnlyApplication):
    """The application with co-scheduling below /with, and without it below /without."""

    def __init__(self, nodes: int, strictness: str) -> None:
        live = LiveSettings(enabled=True, co_schedule_strictness=strictness)
        cluster = made_up(live, nodes)
        co_scheduler = CoScheduler(
            cluster.allocator.served,
            SystemClock(),
            lambda: live,
            namespace=LONGHORN,
            wake=lambda _pods: None,
            tell=lambda _pod, _reason, _text: None,
            is_leading=lambda: True,
        )
        self._with = ExtenderProcess(cluster.allocator, co_scheduler).app
        self._without = ExtenderProcess(cluster.allocator).app
        super().__init__(self.answer)

    def answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        chosen = self._with if environ["PATH_INFO"].startswith(f"/{WITH}/") else self._without
        return chosen(environ, start)


def made_up(live: LiveSettings, nodes: int) -> TestCluster:
    """So many nodes, of which one serves the volume of both pods."""
    cluster = make_cluster(live)
    names = add_nodes(cluster, nodes, lambda _: {"d": 400})
    there = names[nodes // 2]
    cluster.add_claim("disk", 10, shared=True)
    volume = cluster.provision("disk", access_mode="rwx", migratable=False)
    cluster.place(volume, there, 10, "d")
    for name in (PLAIN, ANNOTATED):
        cluster.set_pod(pod(name, "disk", uid=f"uid-{name}", follows_shares=name == ANNOTATED))
    manager = pod("sm", namespace=LONGHORN, is_opted_in=False, node_name=there, shares_volume=volume)
    cluster.allocator.observe_pod(manager.key, manager)
    return cluster


def measure(nodes: int, strictness: str, calls: int) -> dict[str, Any]:
    """Alternating calls; milliseconds by pod and way, and what co-scheduling adds."""
    names = [node_name(index) for index in range(nodes)]
    bodies = {
        f"/{way}/{name}/filter": json.dumps(
            {"Pod": pod_document(("disk",), name), "Nodes": None, "NodeNames": names}
        ).encode()
        for name in (PLAIN, ANNOTATED)
        for way in (WITHOUT, WITH)
    }
    answers: dict[str, bytes] = {}
    with serving("bench.coschedule", "--nodes", str(nodes), "--strictness", strictness) as server:
        times = alternate(server.connect(), bodies, calls, answers.__setitem__)
    return _summary(nodes, strictness, times, answers)


def _summary(
    nodes: int, strictness: str, times: Mapping[str, Sequence[float]], answers: Mapping[str, bytes]
) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": nodes, "strictness": strictness}
    for name in (PLAIN, ANNOTATED):
        paths = {way: f"/{way}/{name}/filter" for way in (WITHOUT, WITH)}
        for way, path in paths.items():
            passed = len(json.loads(answers[path])["NodeNames"])
            result[f"{name}_{way}"] = {
                **quartiles(times[path]), "passed": passed, "answer_bytes": len(answers[path])
            }  # fmt: skip
        rounds = zip(times[paths[WITHOUT]], times[paths[WITH]], strict=True)
        result[f"{name}_added_pct"] = round(
            100 * (statistics.median(after / before for before, after in rounds) - 1), 1
        )
    return result


def verdicts(results: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    found = []
    for result in results:
        for name, most in MOST_ADDED_PCT.items():
            added = result[f"{name}_added_pct"]
            figure = f"{result['nodes']} nodes, {result['strictness']}, {name} pod: {added:+.1f} %"
            found.append(Verdict(figure, added <= most, f"at most {most:.0f} % more"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--strictness", choices=STRICTNESSES, help="one case only; default: both")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        serve(ServerOptions("127.0.0.1", options.serve), lambda: BothWays(options.nodes, options.strictness))
        return 0
    results = []
    for strictness in (options.strictness,) if options.strictness else STRICTNESSES:
        results.append(measure(options.nodes, strictness, options.calls))
        print(json.dumps(results[-1]), flush=True)
    return conclude(verdicts(results), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
