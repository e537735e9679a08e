"""What the gate costs the API server (`python -m bench.gate_cost`).

On the embedded control plane, with the policies that the manifest brings and nobody who leads. By turns, WRITES
Replicas get their place, each by one PATCH: from the leader's account, which the fence and the guard look at; and from
somebody else, as Longhorn does where the gate lets it, which the gate evaluates to the end. Each with the three
bindings and without any. Told is the processor time of the API server's process for each write, and what the bindings
add to it: medians over the rounds. Printed as one JSON object; the verdict goes to standard error as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.verdicts import Verdict, add_report_only, report
from controller.kube.resources import POLICY_BINDINGS, SERVICE_ACCOUNTS
from controller.model.names import (
    FENCE,
    GATE,
    GUARD,
    HELD_ANNOTATION,
    LEFT_ANNOTATION,
    MANAGER_PREFIX,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)
from controller.placement.gate_policy import expected_bindings
from tests.cluster.client import ApiClient, ApiError, Object, ignored_when_gone
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.harness import install_product
from tests.e2e.manager_writes import unplaced_replica
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.longhorn import paths
from tests.longhorn.install import install
from tests.longhorn.options import GIB
from tests.waiting import wait_until

WRITES, ROUNDS, WARM_UP = 100, 5, 20
MAKERS: Final = 8
LEADER, OTHERS = "leader", "others"
WRITERS: Final = (LEADER, OTHERS)
TERM: Final = "bench"
ASKED_MS: Final = 2.0
REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)
PROBE: Final = "probe-r"


class BoundGate:
    """Replicas without a place, and the policies' bindings."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api()
        install(self._api, NAMESPACE, {}, capacity_tracking=False)
        install_product(cluster)
        path = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, cluster.state_dir / "extender.kubeconfig")
        self._writers = {LEADER: ApiClient.from_kubeconfig(path), OTHERS: self._api}
        self._pid = cluster.pids()["kube-apiserver"]
        self._made = 0
        self._make(PROBE, **{HELD_ANNOTATION: "bench"})

    def _make(self, name: str, **annotations: str) -> None:
        made = unplaced_replica(name, "v", GIB)
        made["metadata"]["annotations"] = annotations
        self._api.create(REPLICAS, made)

    def bind(self, *, is_bound: bool) -> None:
        """Bind the policies, or not, and wait until the API server goes by that."""
        for name, spec in expected_bindings(NAMESPACE).items():
            with ignored_when_gone():
                self._api.delete(POLICY_BINDINGS.path(None, name))
            if is_bound:
                kind = {"apiVersion": POLICY_BINDINGS.api_version, "kind": POLICY_BINDINGS.kind}
                self._api.create(POLICY_BINDINGS.path(None), {**kind, "metadata": {"name": name}, "spec": spec})
        wait_until(lambda: self._refused() == ({FENCE, GATE, GUARD} if is_bound else set()), "the bindings", 60)

    def _refused(self) -> set[str]:
        """The policies that refuse what they have to."""
        self._renew()
        node = {"spec": {"nodeID": "n1"}}
        tries = [
            (GATE, OTHERS, node, ""),
            (FENCE, LEADER, node, f"{MANAGER_PREFIX}former"),
            (GUARD, LEADER, {"spec": {"volumeName": str(time.monotonic_ns())}}, f"{MANAGER_PREFIX}{TERM}"),
        ]
        found = set()
        for policy, writer, patch, manager in tries:
            # A dry run is no write that the guard looks at.
            params = {"fieldManager": manager} | ({} if policy == GUARD else {"dryRun": "All"})
            try:
                self._writers[writer].patch(f"{REPLICAS}/{PROBE}", patch, **params)
            except ApiError as error:
                if not error.forbidden and error.status != 422:
                    raise
                found.add(policy)
        return found

    def _renew(self) -> None:
        """Renew the gate's account, as a living leader does."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        stamps = {TERM_ANNOTATION: TERM, SINCE_ANNOTATION: now, RENEWED_ANNOTATION: now}
        self._api.patch(SERVICE_ACCOUNTS.path(NAMESPACE, GATE), {"metadata": {"annotations": stamps}})

    def milliseconds(self, writer: str, writes: int) -> float:
        """Of the API server's processor, for each place that this writer gives."""
        names = [f"r-{self._made + number}" for number in range(writes)]
        self._made += writes
        marks = {LEFT_ANNOTATION: "bench"} if writer == OTHERS else {}
        with ThreadPoolExecutor(MAKERS) as pool:
            list(pool.map(lambda name: self._make(name, **marks), names))
        self._renew()
        api, manager = self._writers[writer], f"{MANAGER_PREFIX}{TERM}" if writer == LEADER else "longhorn-manager"
        before = _processor_ms(self._pid)
        for name in names:
            api.patch(f"{REPLICAS}/{name}", _place(name), type="json", fieldManager=manager)
        return (_processor_ms(self._pid) - before) / writes


def _place(name: str) -> list[Object]:
    spec = {"nodeID": "n1", "diskID": "d", "diskPath": "/d", "dataDirectoryName": f"{name}-1"}
    labels = {"longhornnode": "n1", "longhorndiskuuid": "d"}
    added = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in spec.items()]
    added += [{"op": "add", "path": f"/metadata/labels/{key}", "value": value} for key, value in labels.items()]
    return [{"op": "test", "path": "/spec/nodeID", "value": ""}, *added]


def _processor_ms(pid: int) -> float:
    """That the process and all its threads have had, by its clock of Linux (`clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2) * 1000


def measure(rounds: int, writes: int) -> dict[str, Any]:
    took, added = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    options = ClusterOptions(name=f"bench-gate-{os.getpid()}", start_scheduler=False, record_history=False)
    with Cluster.start(options) as cluster:
        site = BoundGate(cluster)
        for number in range(rounds + 1):
            figures: dict[tuple[str, bool], float] = {}
            for is_bound in (True, False) if number % 2 else (False, True):
                site.bind(is_bound=is_bound)
                for writer in WRITERS:  # the API server reads what has changed
                    site.milliseconds(writer, WARM_UP)
                for writer in WRITERS if number // 2 % 2 else reversed(WRITERS):
                    figures[writer, is_bound] = site.milliseconds(writer, writes)
            for writer in WRITERS if number else ():  # the first round warms up
                took[f"{writer}_with"].append(figures[writer, True])
                took[f"{writer}_without"].append(figures[writer, False])
                added[writer].append(figures[writer, True] - figures[writer, False])
    return {
        **{name: _spread(values) for name, values in took.items()},
        "added": {writer: _spread(values) for writer, values in added.items()},
    }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "median_ms": round(statistics.median(values), 2),
        "least_and_most_ms": [round(min(values), 2), round(max(values), 2)],
    }


def judged(found: dict[str, Any]) -> list[Verdict]:
    verdicts = []
    for writer, cost in found["added"].items():
        without = found[f"{writer}_without"]["median_ms"]
        ratio = found[f"{writer}_with"]["median_ms"] / without if without else float("nan")
        text = f"a place by {writer}: {cost['median_ms']:.2f} ms of processor more, {ratio:.2f} times a write without"
        verdicts.append(Verdict(text, cost["median_ms"] <= ASKED_MS, f"{ASKED_MS:.0f} ms"))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gate_cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--writes", type=int, default=WRITES)
    add_report_only(parser)
    options = parser.parse_args()
    found = measure(options.rounds, options.writes)
    return report(found, judged(found), is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
