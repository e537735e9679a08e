"""How many pods a second the API server creates with the webhook and without (`python -m bench.admission_rate`).

On the embedded control plane, without a scheduler: rounds without a webhook, with ours, and with the least that a
webhook can be (bench/bare_webhook.py) alternate in one cluster, for pods with a claim, and for pods without, which
never leave the API server. One copy serves. Two rates are offered: as many as the machine can take, and OFFERED a
second, which is several times what kube-controller-manager's client sends by default (20 requests a second). In the
first case API server, etcd, webhook and clients share saturated cores, so that the rate is one over the processor time
of a pod, of all of them together; the bare one tells what the API server itself spends on calling any webhook. Printed
as one JSON object: pods a second and milliseconds a call, medians over the rounds, and ratios to the rounds without;
and the verdicts, which go to standard error as well.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.verdicts import Verdict, add_report_only, report
from tests.cluster.client import ApiClient, Object
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.cluster.components import LOOPBACK
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, install_product
from tests.e2e.programs import Program
from tests.e2e.scheduling import RESOURCE
from tests.e2e.webhooks import Webhook, drop_configuration, write_certificates, write_configuration
from tests.ports import free_port
from tests.waiting import wait_until

NAMESPACE = "rate"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
WAIT_SECONDS = 60.0
MAKERS = 8
OFFERED = 100.0  # pods a second
FULL_SPEED = 0.0
RATE_RATIO = 0.9  # asked of us, for pods with claims; for the others that nothing changes
NONE, OURS, BARE = "without", "ours", "bare"
ORDERS = ((NONE, OURS, BARE), (BARE, OURS, NONE))
CASES = tuple(itertools.product((True, False), (FULL_SPEED, OFFERED)))  # with claims, offered


class AdmissionBench:
    """One cluster, one webhook, and rounds of pods."""

    def __init__(self, cluster: Cluster, folder: Path, pods: int) -> None:
        self.cluster, self.api, self.pods = cluster, cluster.api(), pods
        install_product(cluster)
        cluster.create_namespace(NAMESPACE)
        self.api.create(CLASSES, workloads.storage_class("lh"))
        for number in range(pods):
            self.api.create(CLAIMS, workloads.claim(f"c{number}", "lh", 1))
        self.bundle = write_certificates(folder, LOOPBACK)
        flags = ("--tls-mode", "provided", "--tls-cert-dir", str(folder))
        self.webhook = Webhook(cluster, flags)
        self.webhook.wait_ready()
        self.ports = {OURS: self.webhook.port, BARE: free_port()}
        command = [sys.executable, "-m", "bench.bare_webhook", str(self.ports[BARE]), str(folder)]
        self.bare = Program(cluster, "bare-webhook", command, {})
        self._clients = [cluster.api() for _ in range(MAKERS)]

    def configure(self, wanted: str) -> None:
        """Have the API server ask that webhook, or none, and wait until it goes by that."""
        drop_configuration(self.api)
        self._probe(asks=False)
        if wanted == NONE:
            return
        write_configuration(self.api, self.bundle, url=f"https://{LOOPBACK}:{self.ports[wanted]}")
        self._probe(asks=True)

    def _probe(self, *, asks: bool) -> None:
        probe = pod("probe", "c0")
        wait_until(lambda: _asks(self.api.create(PODS, probe, dryRun="All")) == asks, "configuration", WAIT_SECONDS)

    def round(self, with_claims: bool, offered: float) -> tuple[float, float]:
        """Create all pods, `offered` a second; how many a second there were, and the median of a call's milliseconds.

        They are gone afterwards.
        """
        numbers, calls = itertools.count(), list[float]()

        def make(client: ApiClient) -> None:
            while (number := next(numbers)) < self.pods:
                if offered:
                    time.sleep(max(0.0, began + number / offered - time.perf_counter()))
                asked = time.perf_counter()
                client.create(PODS, pod(f"p{number}", f"c{number}" if with_claims else ""))
                calls.append(1000 * (time.perf_counter() - asked))

        makers = [threading.Thread(target=make, args=(client,)) for client in self._clients]
        began = time.perf_counter()
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        elapsed = time.perf_counter() - began
        self.api.delete(PODS, gracePeriodSeconds=0)
        wait_until(lambda: not self.api.list(PODS, limit=1)["items"], "end of the pods", WAIT_SECONDS)
        return self.pods / elapsed, statistics.median(calls)


def pod(name: str, claim: str) -> Object:
    raw = workloads.pod(name, *((claim,) if claim else ()), opted_in=False)
    raw["spec"]["terminationGracePeriodSeconds"] = 0
    return raw


def _asks(raw: Object) -> bool:
    resources = raw["spec"]["containers"][0].get("resources") or {}
    return RESOURCE in (resources.get("limits") or {})


Case = tuple[str, bool, float]  # whose webhook, with claims, offered


def measure(pods: int, rounds: int) -> dict[str, Any]:
    found: dict[Case, list[tuple[float, float]]] = {}
    options = ClusterOptions(start_scheduler=False, record_history=False)
    with tempfile.TemporaryDirectory() as folder, Cluster.start(options) as cluster:
        bench = AdmissionBench(cluster, Path(folder), pods)
        for number in range(rounds + 1):
            for asked in ORDERS[number % len(ORDERS)]:
                bench.configure(asked)
                for with_claims, offered in CASES:
                    result = bench.round(with_claims, offered)
                    if number:  # the first round warms up
                        found.setdefault((asked, with_claims, offered), []).append(result)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        reviewed = bench.webhook.counted("pod_reviews_total")
        bench.bare.stop()
        bench.webhook.stop()
    summary = {_name(*case): _summary(found, *case) for case in CASES}
    return {"pods": pods, "rounds": rounds, "reviewed": reviewed, **summary}


def _name(with_claims: bool, offered: float) -> str:
    speed = f"offered {offered:g} a second" if offered else "full speed"
    return f"{'with' if with_claims else 'without'} claims, {speed}"


def _summary(found: dict[Case, list[tuple[float, float]]], with_claims: bool, offered: float) -> dict[str, Any]:
    rates = {asked: [rate for rate, _ in found[asked, with_claims, offered]] for asked in ORDERS[0]}
    calls = {asked: [call for _, call in found[asked, with_claims, offered]] for asked in ORDERS[0]}
    return {
        asked: {
            "a_second": round(statistics.median(rates[asked]), 1),
            "range": [round(min(rates[asked]), 1), round(max(rates[asked]), 1)],
            "ratio": round(statistics.median(rates[asked]) / statistics.median(rates[NONE]), 3),
            "call_ms": round(statistics.median(calls[asked]), 2),
        }
        for asked in ORDERS[0]
    }


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """Each figure beside what is asked of it. Nothing has changed where our median lies among the rounds without."""
    found: list[Verdict] = []
    for with_claims, offered in CASES:
        name = _name(with_claims, offered)
        ours, none = result[name][OURS], result[name][NONE]
        text = f"pods {name}: {ours['ratio']:.2f} x without a webhook"
        if with_claims:
            found.append(Verdict(text, ours["ratio"] >= RATE_RATIO, f"at least {RATE_RATIO}"))
        else:
            least = none["range"][0]
            text += f", {ours['a_second']:g} a second"
            found.append(Verdict(text, ours["a_second"] >= least, f"no change; rounds without had {least:g} or more"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=6)
    add_report_only(parser)
    options = parser.parse_args()
    result = measure(options.pods, options.rounds)
    return report(result, verdicts(result), is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
