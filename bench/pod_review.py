"""How long the review of a pod takes, beside a route that only decodes it and allows (`python -m bench.pod_review`).

Both routes are of the real server, over the real stores with CLAIMS claims. First calls to both alternate over one
kept-alive connection: the ratio of the medians. Then reviews come at a steady rate over several connections, whatever
the answers do, and each is timed from the moment at which it was due; by turns with as many calls of the other route.
A call during which the whole machine stood still (`bench.stalls`) says nothing about either route: the tail is given
with and without such calls, and judged without. Printed as one JSON object, with the verdicts, which go to standard
error as well.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from bench.served import quartiles, serving
from bench.stalls import watched
from bench.verdicts import Verdict, add_report_only, conclude, lines_of
from controller.clock import SystemClock
from controller.kube.resources import Resource
from controller.rules.opt_in import OptInPolicy
from controller.serving.server import ServerOptions, serve
from tests.fakes.served import OnlyApplication
from webhook.app import Reviewer, create_app
from webhook.metrics import WebhookMetrics
from webhook.pod_opt_in import PodService
from webhook.review import Review, encode_allowed
from webhook.settings import WebhookSettings
from webhook.stores import WebhookStores

CLAIMS = 10_000
HEADERS = {"Content-Type": "application/json"}
CONNECTIONS = 8
TURNS = 4
REVIEW_RATIO, TAIL_RATIO = 2.0, 3.0  # asked of us
Raw = dict[str, Any]
Call = tuple[float, float]  # when it was due, and when it was answered


class Allow:
    """What the review is compared with."""

    def review(self, review: Review) -> bytes:
        return encode_allowed(review.uid)

    failed = review


class ReviewProcess(OnlyApplication):
    """The webhook's application over made-up stores."""

    def __init__(self) -> None:
        clock = SystemClock()
        stores = WebhookStores.empty()
        stores.classes.replace([{"metadata": {"name": "longhorn"}, "provisioner": "driver.longhorn.io"}])
        stores.namespaces.replace([{"metadata": {"name": "ns"}}])
        stores.claims.replace(claim(number) for number in range(CLAIMS))
        metrics = WebhookMetrics(CollectorRegistry(), "bench", ("mutate-pods", "allow"))
        service = PodService(stores, no_read, clock, OptInPolicy, metrics)
        reviewers: dict[str, Reviewer] = {"mutate-pods": service, "allow": Allow()}
        most = WebhookSettings().body_limit_bytes
        app = create_app(reviewers, lambda: True, metrics, clock, max_body_bytes=most)
        super().__init__(app.wsgi_app)


def no_read(resource: Resource, namespace: str, name: str, timeout: float) -> Raw:
    raise AssertionError(f"{resource.plural} {namespace}/{name} is not in the store ({timeout} s)")


def claim(number: int) -> Raw:
    meta = {"name": f"data-web-{number}", "namespace": "ns", "uid": f"uid-{number}"}
    spec = {"storageClassName": "longhorn", "resources": {"requests": {"storage": "10Gi"}}}
    return {"metadata": meta, "spec": spec}


def pod_review(number: int) -> bytes:
    """As the API server asks about a pod of a StatefulSet: about 4 KiB."""
    mounts = [{"name": f"v{index}", "mountPath": f"/var/lib/part-{index}"} for index in range(6)]
    env = [{"name": f"SETTING_{index}", "value": "value of the setting"} for index in range(20)]
    image = "registry.example/team/database:1.2.3"
    containers = [{"name": name, "image": image, "env": env, "volumeMounts": mounts} for name in ("main", "exporter")]
    volumes: list[Raw] = [{"name": f"v{index}", "configMap": {"name": f"c{index}"}} for index in range(5)]
    volumes.append({"name": "v5", "persistentVolumeClaim": {"claimName": f"data-web-{number % CLAIMS}"}})
    labels = {f"example.org/label-{index}": "value" for index in range(8)}
    name = f"web-{number}"
    pod = {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"containers": containers, "volumes": volumes, "schedulerName": "default-scheduler"},
    }
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280816",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ns",
        "name": name,
        "userInfo": {"username": "system:serviceaccount:kube-system:statefulset-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(document).encode()


def exchange(connection: http.client.HTTPConnection, route: str, body: bytes) -> bytes:
    connection.request("POST", f"/{route}", body, HEADERS)
    return connection.getresponse().read()


def alternate(connection: http.client.HTTPConnection, calls: int) -> Raw:
    """Medians of both routes, and their ratio."""
    times: dict[str, list[float]] = {"allow": [], "mutate-pods": []}
    for number in range(calls + 20):
        body = pod_review(number)
        for route, seen in times.items():
            began = time.perf_counter()
            answer = exchange(connection, route, body)
            elapsed = time.perf_counter() - began
            if number >= 20:  # the first calls warm up
                seen.append(elapsed)
            assert (b'"patch"' in answer) == (route == "mutate-pods"), answer
    result: Raw = {}
    for route, seen in times.items():
        result[route] = quartiles(seen)
    result["ratio"] = round(statistics.median(times["mutate-pods"]) / statistics.median(times["allow"]), 3)
    return result


def steadily(port: int, rate: float, seconds: float) -> Raw:
    """Median and p99 of both routes, one after the other by turns, from when each review was due."""
    seen: dict[str, list[Call]] = {"mutate-pods": [], "allow": []}
    with watched() as stalls:
        for _ in range(TURNS):
            for route, calls in seen.items():
                calls.extend(one_turn(port, route, rate, seconds / TURNS))
    result: Raw = {"a_second": rate, "stalls_of_the_machine": len(stalls.times)}
    for route, calls in seen.items():
        apart = [call for call in calls if not stalls.touch(*call)]
        result[route] = tail(calls) | {"apart_from_stalls": {"calls": len(apart), **tail(apart)}}
    return result


def tail(calls: Sequence[Call]) -> Raw:
    times = [ended - due for due, ended in calls]
    median, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    return {"median_ms": _ms(median), "p99_ms": _ms(p99), "ratio": round(p99 / median, 2)}


def one_turn(port: int, route: str, rate: float, seconds: float) -> list[Call]:
    bodies = [pod_review(number) for number in range(500)]
    numbers, total, seen = itertools.count(), int(rate * seconds), list[Call]()
    began = time.monotonic() + 0.5

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.connect()
        while (number := next(numbers)) < total:
            due = began + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            exchange(connection, route, bodies[number % len(bodies)])
            seen.append((due, time.monotonic()))
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return seen


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def verdicts(result: Raw) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    ratio, steady = result["alternating"]["ratio"], result["steady"]
    raw, bare = steady["mutate-pods"], steady["allow"]
    ours, theirs = (route["apart_from_stalls"]["ratio"] for route in (raw, bare))
    return [
        Verdict(f"a review: {ratio:.2f} x the bare route", ratio <= REVIEW_RATIO, f"at most {REVIEW_RATIO:g}"),
        Verdict(
            f"{steady['a_second']:g} reviews a second: p99 {ours:.1f} x the median (bare route: {theirs:.1f} x); "
            f"{raw['ratio']:.1f} x ({bare['ratio']:.1f} x) with the machine's own stalls",
            ours <= TAIL_RATIO,
            f"at most {TAIL_RATIO:g}",
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each route")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        serve(ServerOptions("127.0.0.1", options.serve), ReviewProcess)
        return 0
    with serving("bench.pod_review") as server:
        result = {
            "body_bytes": len(pod_review(0)),
            "alternating": alternate(server.connect(), options.calls),
            "steady": steadily(server.port, options.rate, options.seconds),
            "load_average": round(os.getloadavg()[0], 2),
        }
    checks = verdicts(result)
    print(json.dumps({**result, "verdicts": lines_of(checks)}), flush=True)
    return conclude(checks, is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
