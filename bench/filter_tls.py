"""What mutual TLS costs a filter call, as a multiple of the same call over plain HTTP (`python -m bench.filter_tls`).

Two processes of the product's server over equal made-up clusters, one with TLS and client certificates demanded, one
without. Calls go to both by turns: over connections that are kept, as kube-scheduler keeps them, and over a new
connection each. Printed as one JSON object for each case, with medians, quartiles, and the ratios of the medians.
"""

from __future__ import annotations

import argparse
import json
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.certificates import DAY, write_certificates
from bench.filter_latency import CLAIMS, FilterCase, process
from bench.made_up import node_name, pod_document
from bench.served import WARM_UP, ServedProgram, quartiles, serving
from bench.verdicts import Verdict, add_report_only, conclude
from certs.authority import LeafSpec
from controller.serving.server import ServerOptions, serve
from controller.serving.tls import ServerTls, read_directory
from tests.cluster.components import LOOPBACK

LEAVES: Final = {
    "server": LeafSpec("server", DAY, (LOOPBACK,)),
    "client": LeafSpec("client", DAY, is_client=True),
}
MAX_OFFERS: Final = 100
NODES: Final = (100, 1000, 5000)
KEPT_RATIO: Final = 1.25  # asked of us: so many times the call over plain HTTP, connections kept


def client_context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "client" / "ca.crt"))
    context.load_cert_chain(folder / "client" / "tls.crt", folder / "client" / "tls.key")
    return context


def call(server: ServedProgram, tls: ssl.SSLContext | None, body: bytes, kept: Any = None) -> float:
    """Seconds of one filter call; over a connection of its own when none is given."""
    began = time.perf_counter()
    connection = kept or server.connection(tls)
    connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    elapsed = time.perf_counter() - began
    if not kept:
        connection.close()
    if len(json.loads(answer)["NodeNames"] or ()) != MAX_OFFERS:
        raise SystemExit(f"another answer than was meant: {answer[:200]!r}")
    return elapsed


def measure(nodes: int, calls: int, folder: Path) -> dict[str, Any]:
    """Seconds by form, summed up, with the ratios."""
    names = [node_name(index) for index in range(nodes)]
    body = json.dumps({"Pod": pod_document(CLAIMS), "Nodes": None, "NodeNames": names}).encode()
    context = client_context(folder)
    times: dict[str, list[float]] = {}
    case = ("--nodes", str(nodes))
    with (
        serving("bench.filter_tls", *case) as plain,
        serving("bench.filter_tls", *case, "--folder", str(folder)) as secured,
    ):
        ways = {"plain": (plain, None), "tls": (secured, context)}
        kept = {way: server.connect(tls) for way, (server, tls) in ways.items()}
        for number in range(WARM_UP + calls):
            for way, (server, tls) in ways.items():
                for form, connection in {"kept": kept[way], "new": None}.items():
                    seconds = call(server, tls, body, connection)
                    if number >= WARM_UP:
                        times.setdefault(f"{way}_{form}", []).append(seconds)
    result: dict[str, Any] = {"nodes": nodes, **{form: quartiles(seen) for form, seen in times.items()}}
    for form in ("kept", "new"):
        ratio = statistics.median(times[f"tls_{form}"]) / statistics.median(times[f"plain_{form}"])
        result[f"ratio_{form}"] = round(ratio, 3)
    return result


def verdicts(results: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    return [
        Verdict(
            f"{result['nodes']} nodes, over TLS: {result['ratio_kept']:.2f} x plain HTTP, "
            f"{result['ratio_new']:.2f} x on new connections",
            result["ratio_kept"] <= KEPT_RATIO,
            f"at most {KEPT_RATIO} on connections that are kept",
        )
        for result in results
    ]


def run(port: int, nodes: int, folder: Path | None) -> None:
    """Serve, with TLS when there are certificates."""
    tls = None
    if folder:
        tls, shown = ServerTls(), read_directory(folder / "server")
        tls.use(shown.certificate, shown.key, shown.client_ca)
    serve(ServerOptions(LOOPBACK, port, tls=tls), lambda: process(FilterCase(nodes, MAX_OFFERS)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=0, help="that case only")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=None, help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        run(options.serve, options.nodes, options.folder)
        return 0
    results = []
    with tempfile.TemporaryDirectory() as made:
        write_certificates(Path(made), LEAVES)
        for nodes in [options.nodes] if options.nodes else NODES:
            results.append(measure(nodes, options.calls, Path(made)))
            print(json.dumps(results[-1]), flush=True)
    return conclude(verdicts(results), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
