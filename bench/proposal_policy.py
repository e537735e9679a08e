"""Longhorn's enhancement text on a scheduler extender, as a small server to compare with. Never part of the product.

Its policy against the race, in its own terms: after an answer a *write lock* is held until the pod has `spec.nodeName`,
5 s at most; then the whole node is *reserved* (excluded) until the pod's replicas stand in `scheduledReplica` of the
Longhorn Node, again 5 s at most. Space is read from the Longhorn Node's figures.

    python -m bench.proposal_policy --kubeconfig FILE --port 9504
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from tests.cluster.client import ApiClient, Object
from tests.cluster.watch import Reflector
from tests.e2e import history_facts as facts

PATHS = {
    "pods": "/api/v1/pods",
    "claims": "/api/v1/persistentvolumeclaims",
    "pvs": "/api/v1/persistentvolumes",
    "classes": "/apis/storage.k8s.io/v1/storageclasses",
    "nodes": "/apis/longhorn.io/v1beta2/nodes",
    "replicas": "/apis/longhorn.io/v1beta2/replicas",
    "settings": "/apis/longhorn.io/v1beta2/settings",
}
OVER_PROVISIONING, MINIMAL_AVAILABLE = "storage-over-provisioning-percentage", "storage-minimal-available-percentage"
DEFAULTS = {OVER_PROVISIONING: "100", MINIMAL_AVAILABLE: "25"}

log = logging.getLogger("proposal-policy")


@dataclass(frozen=True, slots=True)
class PodVolume:
    name: str  # of the Longhorn Volume; provisioned ones are named after their claim's uid
    size_bytes: int


class PolicyView:
    """The cluster as its watches show it. Threads: any."""

    def __init__(self, api: ApiClient) -> None:
        self.changed = threading.Condition()
        self._watches = {name: Reflector(api, path, self._on_event) for name, path in PATHS.items()}
        for watch in self._watches.values():
            watch.wait_synced()

    def _on_event(self, _: str, __: Object) -> None:
        with self.changed:
            self.changed.notify_all()

    def get(self, kind: str, key: str) -> Object | None:
        return self._watches[kind].get(key)

    def all(self, kind: str) -> Iterable[Object]:
        return self._watches[kind].snapshot().values()

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    def setting(self, name: str) -> int:
        for setting in self.all("settings"):
            if setting["metadata"]["name"] == name:
                return int(setting["value"])
        return int(DEFAULTS[name])

    def longhorn_node(self, name: str) -> Object | None:
        return next((node for node in self.all("nodes") if node["metadata"]["name"] == name), None)

    def volumes_of(self, pod: facts.PodFacts) -> list[PodVolume]:
        """Step 1 of the text: bound claims by their volume, unbound ones by class and request."""
        found = []
        for key in pod.claims:
            raw = self.get("claims", key)
            if raw is None:
                continue
            claim = facts.claim_facts(raw)
            pv = self.get("pvs", claim.volume_name) if claim.volume_name else None
            if pv is not None:
                name = facts.pv_facts(pv).volume
                if name:
                    found.append(PodVolume(name, claim.size_bytes))
                continue
            storage = self.get("classes", claim.class_name)
            if storage is not None and facts.class_facts(storage).is_longhorn:
                found.append(PodVolume(f"pvc-{claim.uid}", claim.size_bytes))
        return found

    def nodes_with_replica(self, volume: str) -> set[str]:
        replicas = map(facts.replica_facts, self.all("replicas"))
        return {replica.node for replica in replicas if replica.volume == volume and replica.node}


def is_true(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in conditions or ())


def free_bytes(node: Object, over_pct: int, minimal_pct: int) -> list[int]:
    """What each schedulable disk has left by the Node's own figures; a disk under pressure has nothing."""
    free = []
    for name, status in (node["status"].get("diskStatus") or {}).items():
        spec = (node["spec"].get("disks") or {}).get(name)
        if spec is None or not spec.get("allowScheduling") or spec.get("evictionRequested"):
            continue
        if not is_true(status.get("conditions"), "Schedulable"):
            continue
        maximum, available = int(status.get("storageMaximum") or 0), int(status.get("storageAvailable") or 0)
        if available <= maximum * minimal_pct // 100:
            continue
        limit = int(float(maximum - int(spec.get("storageReserved") or 0)) * over_pct / 100)
        free.append(limit - int(status.get("storageScheduled") or 0))
    return free


def packs(sizes: Sequence[int], free: list[int]) -> bool:
    """Backtracking: is there a disk for every size?"""
    if not sizes:
        return True
    for index, room in enumerate(free):
        if room >= sizes[0] and packs(sizes[1:], [*free[:index], room - sizes[0], *free[index + 1 :]]):
            return True
    return False


class Policy:
    """The text's steps 1 to 5. Threads: any; `filter` blocks while an earlier pod's write lock is held."""

    def __init__(self, view: PolicyView, pod_scheduling_timeout: float, node_reservation_timeout: float) -> None:
        self._view = view
        self._pod_timeout, self._node_timeout = pod_scheduling_timeout, node_reservation_timeout
        self._write_lock = threading.Lock()  # taken by a filter, released by the thread that watches its pod
        self._reserved_lock = threading.Lock()  # guards _reserved
        self._reserved: dict[str, int] = {}

    def filter(self, raw_pod: facts.Raw, candidates: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The nodes that pass, and why the others don't."""
        self._write_lock.acquire()
        is_waiting = False
        try:
            pod = facts.pod_facts(raw_pod)
            volumes = self._view.volumes_of(pod)
            if not volumes:
                return list(candidates), {}
            holders = set(candidates).intersection(*(self._view.nodes_with_replica(v.name) for v in volumes))
            if holders:
                return sorted(holders), {}
            passed, failed = self._try_nodes(volumes, candidates)
            if passed and self._pod_timeout > 0:
                is_waiting = True
                threading.Thread(target=self._await_pod, args=(pod, volumes), daemon=True).start()
            return passed, failed
        finally:
            if not is_waiting:
                self._write_lock.release()

    def _try_nodes(self, volumes: Sequence[PodVolume], candidates: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        over, minimal = self._view.setting(OVER_PROVISIONING), self._view.setting(MINIMAL_AVAILABLE)
        with self._reserved_lock:
            reserved = set(self._reserved)
        passed, failed = [], {}
        for name in candidates:
            node = self._view.longhorn_node(name)
            if name in reserved:
                failed[name] = "node is reserved by an earlier pod"
            elif node is None or not self._takes_replicas(node):
                failed[name] = "Longhorn node does not take replicas"
            elif not packs(self._sizes_to_place(volumes, name), free_bytes(node, over, minimal)):
                failed[name] = "volumes do not fit"
            else:
                passed.append(name)
        return passed, failed

    def _takes_replicas(self, node: Object) -> bool:
        conditions = node["status"].get("conditions")
        return (
            bool(node["spec"].get("allowScheduling"))
            and not node["spec"].get("evictionRequested")
            and is_true(conditions, "Ready")
            and is_true(conditions, "Schedulable")
        )

    def _sizes_to_place(self, volumes: Sequence[PodVolume], node: str) -> list[int]:
        missing = (v.size_bytes for v in volumes if node not in self._view.nodes_with_replica(v.name))
        return sorted(missing, reverse=True)

    def _await_pod(self, pod: facts.PodFacts, volumes: Sequence[PodVolume]) -> None:
        """Step 5: hold the lock until the pod is bound, then reserve its node until the replicas show."""
        node = ""

        def is_over() -> bool:
            nonlocal node
            raw = self._view.get("pods", pod.key)
            node = facts.pod_facts(raw).node if raw is not None else ""
            return bool(node) or raw is None or facts.uid_of(raw) != pod.uid

        try:
            self._view.wait_until(is_over, self._pod_timeout)
            if node and self._node_timeout > 0:
                with self._reserved_lock:
                    self._reserved[node] = self._reserved.get(node, 0) + 1
                threading.Thread(target=self._await_replicas, args=(node, volumes), daemon=True).start()
        finally:
            log.info("pod %s on %s", pod.key, node or "no node in time")
            self._write_lock.release()

    def _await_replicas(self, node: str, volumes: Sequence[PodVolume]) -> None:
        wanted = {volume.name for volume in volumes}
        self._view.wait_until(lambda: wanted <= set(self._shown_volumes(node)), self._node_timeout)
        with self._reserved_lock:
            self._reserved[node] -= 1
            if not self._reserved[node]:
                del self._reserved[node]

    def _shown_volumes(self, name: str) -> Iterator[str]:
        node = self._view.longhorn_node(name)
        for status in ((node or {}).get("status", {}).get("diskStatus") or {}).values():
            for replica in status.get("scheduledReplica") or {}:
                yield replica.rpartition("-r-")[0]


def handler(policy: Policy) -> type[BaseHTTPRequestHandler]:
    class PolicyHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body leave in one write; two cost a delayed acknowledgement, 40 ms a call
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer({"status": "ok"})

        def do_POST(self) -> None:
            args = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
            started = time.monotonic()
            nodes = (args.get("Nodes") or {}).get("items")
            names = args.get("NodeNames") if nodes is None else [node["metadata"]["name"] for node in nodes]
            passed, failed = policy.filter(args["Pod"], names or [])
            log.info("filter %s: %d of %d in %.3f s", args["Pod"]["metadata"]["name"], len(passed), len(names or []),
                     time.monotonic() - started)  # fmt: skip
            result: dict[str, Any] = {"FailedNodes": failed, "Error": ""}
            if nodes is None:
                result["NodeNames"] = passed
            else:
                result["Nodes"] = {"items": [node for node in nodes if node["metadata"]["name"] in passed]}
            self._answer(result)

        def _answer(self, document: Mapping[str, Any]) -> None:
            body = msgspec.json.encode(document)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
            return

    return PolicyHandler


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proposal_policy", description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--pod-scheduling-timeout", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--node-reservation-timeout", type=float, default=5.0, metavar="SECONDS")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    view = PolicyView(ApiClient.from_kubeconfig(args.kubeconfig, user_agent="proposal-policy"))
    policy = Policy(view, args.pod_scheduling_timeout, args.node_reservation_timeout)
    server = ThreadingHTTPServer(("127.0.0.1", args.port), handler(policy))
    server.daemon_threads = True
    log.info("serving on port %d", server.server_port)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
