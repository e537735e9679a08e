"""How long the review of an expansion takes, beside a bare call of the leader (`python -m bench.expansion_review`).

Three processes, as in a cluster: the leader's gRPC server with VOLUMES volumes, the webhook's HTTPS server, and
this one in the API server's place. Bare calls (mutual TLS, over the same server, which answers at once) alternate with
reviews over kept connections, so that whatever else the machine does hits both alike. Every review is of another
volume, and its growth is held. Printed as one JSON object: medians and quartiles; the ratio of the review inside the
webhook to the bare call; and that of the whole HTTPS request to a bare call and an HTTPS request that is allowed at
once, which is what the two hops cost by themselves. The verdict goes to standard error as well.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from prometheus_client import CollectorRegistry

from bench.certificates import DAY, write_certificates
from bench.pod_review import Allow, no_read
from bench.verdicts import Verdict, add_report_only, report
from certs.authority import LeafSpec
from controller.clock import SystemClock
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.build import disk_scheduler
from controller.rpc.credentials import ReloadingChannel
from controller.rpc.server import RpcServer
from controller.serving.server import ServerOptions, serve
from controller.serving.tls import Material, ServerTls, read_directory
from tests.fakes.builders import GIB, TestCluster, disk, replica, volume
from tests.fakes.edges import FakeReads
from tests.ports import free_port
from tests.unit.rpc.leaders import Calls, Checks, CountedEndpoint
from tests.waiting import wait_until
from webhook.app import Reviewer, create_app
from webhook.expansion import VOLUME, ExpansionService
from webhook.leader import LeaderClient
from webhook.metrics import WebhookMetrics
from webhook.review import decode_review
from webhook.settings import WebhookSettings
from webhook.stores import WebhookStores

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

NODES, VOLUMES, COPIES, DISK_GIB = 100, 5_000, 3, 10_000
HOST, NAME = "127.0.0.1", "leader.bench"
LEAVES = {
    "leader": LeafSpec("leader", DAY, (NAME,)),
    "webhook": LeafSpec("webhook", DAY, (HOST,)),
    "client": LeafSpec("client", DAY, is_client=True),
}
ECHO, ALLOW, VALIDATE_VOLUMES = "/Bench/Echo", "allow", "validate-volumes"
START_SECONDS = 120.0
WARM_UP = 50
REVIEW_RATIO = 3.0  # asked of us
Raw = dict[str, Any]


# The leader


def serve_leader(port: int, folder: Path) -> None:
    cluster = TestCluster()
    for number in range(NODES):
        cluster.add_node(f"n{number}", disk("d1", DISK_GIB))
    for number in range(VOLUMES):
        name = f"v{number}"
        cluster.allocator.observe_volume(name, volume(name, 10, locality="disabled", replica_count=COPIES))
        for copy in range(COPIES):
            facts = replica(f"{name}-r{copy}", name, 10, on=f"n{(number + copy) % NODES}")
            cluster.allocator.observe_replica(facts.name, facts)
    material, clock, checks = read_directory(folder / "leader"), SystemClock(), Checks()
    reads, endpoint = FakeReads(cluster.allocator), CountedEndpoint()
    product = disk_scheduler(
        cluster.allocator, lambda: checks, reads, clock, Calls().called, webhook="", disk_clients=()
    )
    handler = Both(product)
    server = RpcServer(f"{HOST}:{port}", handler, lambda: material, endpoint, clock, is_leading=lambda: True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server.start()
    stop.wait()
    server.stop()


class Both(grpc.GenericRpcHandler):
    """The product's calls, and one that answers at once."""

    def __init__(self, product: grpc.GenericRpcHandler) -> None:
        self._product = product
        reply = pb.HoldExpansionReply(verdict=pb.HoldExpansionReply.ADMITTED, volume_name="v1", size_bytes=GIB)
        self._echo = grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: reply,
            request_deserializer=pb.HoldExpansionRequest.FromString,
            response_serializer=pb.HoldExpansionReply.SerializeToString,
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == ECHO:
            return self._echo
        return self._product.service(handler_call_details)


# The webhook


def expansions(leader: LeaderClient, metrics: WebhookMetrics) -> ExpansionService:
    return ExpansionService(VOLUME, WebhookStores.empty(), no_read, SystemClock(), leader, lambda: "deny", metrics)


class ExpansionProcess:
    """Its application and nothing else."""

    def __init__(self, leader_port: int, folder: Path) -> None:
        clock = SystemClock()
        material = read_directory(folder / "client")
        self._leader = LeaderClient(f"{HOST}:{leader_port}", NAME, lambda: material, clock)
        metrics = WebhookMetrics(CollectorRegistry(), "bench", (VALIDATE_VOLUMES, ALLOW))
        reviewers: dict[str, Reviewer] = {VALIDATE_VOLUMES: expansions(self._leader, metrics), ALLOW: Allow()}
        most = WebhookSettings().body_limit_bytes
        app = create_app(reviewers, lambda: True, metrics, clock, max_body_bytes=most)
        self.app: WSGIApplication = app.wsgi_app

    def start(self) -> None:
        return

    def begin_stop(self) -> None:
        return

    def stop(self) -> None:
        self._leader.stop()


def serve_webhook(port: int, leader_port: int, folder: Path) -> None:
    tls = ServerTls(lets_anybody_in=True)
    material = read_directory(folder / "webhook")
    tls.use(material.certificate, material.key, b"")
    serve(ServerOptions(HOST, port, tls=tls), lambda: ExpansionProcess(leader_port, folder))


# The API server's place


def volume_review(number: int) -> bytes:
    def facts(gib: int) -> Raw:
        spec = {"size": str(gib * GIB), "numberOfReplicas": COPIES, "dataLocality": "disabled", "frontend": "blockdev"}
        return {"metadata": {"name": f"v{number}", "namespace": "longhorn-system"}, "spec": spec}

    request = {
        "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280816",
        "kind": {"group": "longhorn.io", "version": "v1beta2", "kind": "Volume"},
        "resource": {"group": "longhorn.io", "version": "v1beta2", "resource": "volumes"},
        "operation": "UPDATE",
        "namespace": "longhorn-system",
        "name": f"v{number}",
        "object": facts(11),
        "oldObject": facts(10),
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def measure(calls: int, leader_port: int, webhook_port: int, folder: Path) -> Raw:
    material = read_directory(folder / "client")
    bare = bare_call(leader_port, material)
    leader = LeaderClient(f"{HOST}:{leader_port}", NAME, lambda: material, SystemClock())
    reviewer = expansions(leader, WebhookMetrics(CollectorRegistry(), "bench", ()))
    https = https_connection(webhook_port, material)

    def inside(number: int) -> bytes:
        return reviewer.review(decode_review(volume_review(number)))

    def whole(number: int, route: str = VALIDATE_VOLUMES) -> bytes:
        https.request("POST", f"/{route}", volume_review(number), {"Content-Type": "application/json"})
        return https.getresponse().read()

    wait_until(lambda: is_allowed(inside, 0) and is_allowed(whole, 1), "admitted growth", START_SECONDS)
    times: dict[str, list[float]] = {"bare_call": [], "review": [], "https_allow": [], "https_request": []}
    steps: Sequence[tuple[str, Callable[[int], object]]] = (
        ("bare_call", lambda _: bare()),
        ("review", lambda number: inside(2 * number)),
        ("https_allow", lambda number: whole(number, ALLOW)),
        ("https_request", lambda number: whole(2 * number + 1)),
    )
    for number in range(1, calls + WARM_UP):
        for name, step in steps:
            began = time.perf_counter()
            step(number)
            if number >= WARM_UP:
                times[name].append(time.perf_counter() - began)
    leader.stop()
    found: Raw = {}
    for name, seen in times.items():
        low, median, high = (round(value * 1000, 3) for value in statistics.quantiles(seen, n=4))
        found[name] = {"median_ms": median, "quartiles_ms": [low, high]}
    medians = {name: statistics.median(seen) for name, seen in times.items()}
    hops = medians["bare_call"] + medians["https_allow"]
    return {
        **found,
        "review_ratio": round(medians["review"] / medians["bare_call"], 2),
        "https_ratio": round(medians["https_request"] / hops, 2),
    }


def bare_call(port: int, material: Material) -> Callable[[], object]:
    reloading = ReloadingChannel(f"{HOST}:{port}", NAME, lambda: material)
    request = pb.HoldExpansionRequest(volume_name="v1", size_bytes=GIB)

    def call() -> object:
        with reloading.channel() as channel:
            method = channel.unary_unary(
                ECHO,
                request_serializer=pb.HoldExpansionRequest.SerializeToString,
                response_deserializer=pb.HoldExpansionReply.FromString,
            )
            return method(request, timeout=10)

    return call


def https_connection(port: int, material: Material) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cadata=material.client_ca.decode())
    return http.client.HTTPSConnection(HOST, port, timeout=30, context=context)


def is_allowed(review: Callable[[int], bytes], number: int) -> bool:
    try:
        return b'"allowed":true' in review(number)
    except OSError:
        return False


def verdicts(result: Raw) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    ratio = result["review_ratio"]
    text = f"the review inside the webhook: {ratio:.2f} x a bare call of the leader"
    return [Verdict(text, ratio <= REVIEW_RATIO, f"at most {REVIEW_RATIO:g}")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--serve", choices=("leader", "webhook"), help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve == "leader":
        serve_leader(options.ports[0], options.folder)
        return 0
    if options.serve == "webhook":
        serve_webhook(options.ports[1], options.ports[0], options.folder)
        return 0
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_certificates(folder, LEAVES)
        common = ["--ports", *map(str, ports), "--folder", name]
        command = [sys.executable, "-m", "bench.expansion_review", *common, "--serve"]
        root = Path(__file__).parents[1]
        processes = [subprocess.Popen([*command, what], cwd=root) for what in ("leader", "webhook")]
        try:
            result = measure(min(options.calls, VOLUMES // 2 - WARM_UP - 1), ports[0], ports[1], folder)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
    return report(result, verdicts(result), is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
