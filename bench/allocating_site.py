"""The real API server of `bench.allocating`: many Longhorn nodes with much on record, a leader, and who calls it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from typing import Any, Final, TypeVar

from tests.cluster.cache import REPOSITORY
from tests.cluster.components import LOOPBACK
from tests.e2e import workloads
from tests.e2e.connection import Connection
from tests.e2e.disk_callers import NAME
from tests.e2e.disk_site import RECORDS, Site, caller_certificate
from tests.e2e.forms import Form, encode
from tests.e2e.harness import CLASSES
from tests.e2e.manager_writes import make_replica, make_volume
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVER_NAME
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient, MountedMaterial
from tests.longhorn.longhorn import add_node, disk_uuid
from tests.longhorn.options import GIB, DiskOptions
from tests.waiting import wait_until

DISKS: Final = ("d1", "d2", "d3", "d4")
DISK_GIB: Final = 16_000
ELSEWHERE: Final = RECORDS.replace(NAMESPACE, "default")  # of which the leader keeps no record
ON: Final = 4  # nodes that the callers' replicas are bound to
CALLERS: Final = 32
TOGETHER: Final = 400  # calls of all callers in a round
POD: Final = "asking"
_MAKERS: Final = 8
EntryT = TypeVar("EntryT")


def each(make: Callable[[EntryT], object], entries: Iterable[EntryT]) -> None:
    """Several at once."""
    with ThreadPoolExecutor(_MAKERS) as pool:
        list(pool.map(make, entries))


class LoadedSite:
    """A site of `nodes` more nodes, with `entries` replicas that are on record. No pod waits before `make_pod`: the
    leader would look for its room beside all else.

    Calls go to the leader's own ports, but for those of a hand-over: the way through a Service is the kernel's in a
    cluster, and a program in Python here.
    """

    def __init__(self, site: Site, nodes: int, entries: int) -> None:
        self.site, self.api = site, site.api
        self.names = [f"big-{number}" for number in range(nodes)]
        self._made = 0
        each(self._make_node, self.names)
        each(lambda name: self._make_replicas(name, entries // nodes), self.names)
        self.leader = self._lead()
        wait_until(lambda: self.record()["entries"] >= entries // nodes * nodes, "all of them on record", 300)
        self._certificate = caller_certificate(self.api, site.folder)
        self._trust = site.trust
        self._body = b""

    def _lead(self) -> Controller:
        leader = self.site.start_leader()
        leader.wait_leading()
        return leader

    def _make_node(self, name: str) -> None:
        self.site.cluster.add_node(name)
        disk = DiskOptions(maximum_bytes=DISK_GIB * GIB)
        add_node(self.api, NAMESPACE, name, dict.fromkeys(DISKS, disk))

    def _make_replicas(self, name: str, count: int) -> None:
        """Replicas on record, whose volumes nobody needs here."""
        for number in range(count):
            place = {"nodeID": name, "diskID": disk_uuid(name, DISKS[number % len(DISKS)])}
            owner, size = f"pvc-{name}-{number:04d}-0000-000000000000", (10, 20, 50)[number % 3] * GIB
            make_replica(self.api, owner, 0, size, healthyAt="2026-01-01T00:00:00Z", **place)

    def put_bare(self, disks: dict[str, Any]) -> None:
        """An object of the record's kind that nobody but its writer looks at."""
        kind = {"apiVersion": "scheduling.longhorn.io/v1alpha1", "kind": "NodeDiskAllocation"}
        self.api.create(ELSEWHERE, {**kind, "metadata": {"name": "bare"}, "spec": {"diskAllocations": disks}})

    def make_pod(self) -> None:
        """A pod that waits for ever, to be asked about."""
        self.api.create(CLASSES, workloads.storage_class("waiting"))
        self.api.create("/api/v1/namespaces/default/persistentvolumeclaims", workloads.claim("waiting", "waiting", 10))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: self.api.get_or_none(account) is not None, "the default ServiceAccount", 30)
        pod = self.api.create("/api/v1/namespaces/default/pods", workloads.pod(POD, "waiting"))
        self._body = encode(Form.NAMES, pod, self.names, {})

    # What is asked for

    def replicas(self, count: int, nodes: Sequence[str] = ()) -> list[str]:
        """Requests for new replicas of 1 GiB, each bound to one of `nodes`, if there are any."""
        numbers = range(self._made, self._made + count)
        self._made += count

        def make(number: int) -> str:
            name = f"v{number}"
            make_volume(self.api, name, GIB, 0, copies=1)
            more = {"hardNodeAffinity": nodes[number % len(nodes)]} if nodes else {}
            return f"replica {name} {make_replica(self.api, name, 0, GIB, **more)}"

        with ThreadPoolExecutor(_MAKERS) as pool:
            found = list(pool.map(make, numbers))
        self._wait_seen(f"v{numbers[-1]}")
        return found

    def new(self, count: int) -> list[str]:
        """Requests for so many replicas that their callers make first."""
        numbers = range(self._made, self._made + count)
        self._made += count
        return [f"new v{number}" for number in numbers]

    def growing(self, count: int, nodes: Sequence[str]) -> list[str]:
        """Requests for the expansion of so many volumes, each with a replica on every one of `nodes`."""

        def make(number: int) -> str:
            name = f"grow{number}"
            make_volume(self.api, name, GIB, 0, copies=len(nodes))
            for copy, node in enumerate(nodes):
                place = {"nodeID": node, "diskID": disk_uuid(node, DISKS[0]), "healthyAt": "2026-01-01T00:00:00Z"}
                make_replica(self.api, name, copy, GIB, **place)
            return f"expand {name} {2 * GIB}"

        with ThreadPoolExecutor(_MAKERS) as pool:
            return list(pool.map(make, range(count)))

    def record(self) -> dict[str, Any]:
        """What the leader tells of its record."""
        found: dict[str, Any] = self.leader.status()["allocations"]
        return found

    def _wait_seen(self, volume: str) -> None:
        """Until the leader's store has it: else a live read would be a part of what is measured."""
        with self.client() as client:

            def is_seen() -> bool:
                try:
                    return bool(client.find_disk_candidates(volume).candidates)
                except CallFailedError:
                    return False

            wait_until(is_seen, f"{volume} in the leader's store", 60)

    @property
    def _address(self) -> str:
        return f"{LOOPBACK}:{self.leader.grpc_port}"

    def client(self, address: str = "") -> DiskSchedulerClient:
        return DiskSchedulerClient(address or self._address, NAME, MountedMaterial(self._certificate))

    def start_calls(self, requests: Sequence[str], callers: int = CALLERS) -> subprocess.Popen[str]:
        kubeconfig = self.site.cluster.layout.kubeconfig("admin")
        words = self._address, str(self._certificate), str(kubeconfig)
        command = [sys.executable, "-m", "bench.allocating_callers", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=REPOSITORY, **pipes)  # type: ignore[call-overload]
        assert process.stdin is not None
        process.stdin.write("\n".join((str(callers), *requests)))
        process.stdin.close()
        process.stdin = None
        return process  # type: ignore[no-any-return]

    @staticmethod
    def seconds_of(process: subprocess.Popen[str]) -> float:
        text, _ = process.communicate(timeout=300)
        return float(json.loads(text)["seconds"])

    # Filter calls

    def filter_connection(self, address: tuple[str, int] | None = None) -> Connection:
        there = address or (LOOPBACK, self.leader.port)
        return Connection(there, SERVER_NAME, self._trust, timeout=10, connected=lambda _: None)

    def filter(self, connection: Connection) -> float:
        """Seconds of one call about the waiting pod, with all nodes as candidates. Where the machine has much else to
        do, all may be refused for lack of time."""
        began = time.perf_counter()
        connection.request("POST", "/filter", self._body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200 or not (json.loads(text)["NodeNames"] or b"not evaluated in time" in text):
            raise RuntimeError(f"filter: {answer.status} {text[:200]!r}")
        return took

    # Another leader

    def hand_over(self, request: str) -> tuple[float, float]:
        """Seconds from the end of the leader until the next one's first good answer: to a filter call, and to a call
        for that replica."""
        follower = self.site.start_leader()
        wait_until(follower.answers_ready, "a follower that is ready", 60)
        _, volume, replica = request.split()
        began = time.perf_counter()
        with ThreadPoolExecutor(3) as pool:
            gone = pool.submit(self.leader.stop)
            filtered = pool.submit(self._first, began, self._filter_once)
            with self.client(self.site.address) as client:
                given = self._first(began, lambda: client.schedule_replica(volume, replica, seconds=2))
            gone.result()
            self.leader = follower
            follower.wait_leading()
            return filtered.result(), given

    @staticmethod
    def _first(began: float, ask: Callable[[], object]) -> float:
        while time.perf_counter() - began < 60:
            try:
                ask()
                return time.perf_counter() - began
            except (CallFailedError, OSError, RuntimeError, HTTPException):
                time.sleep(0.005)
        raise RuntimeError("no answer within a minute")

    def _filter_once(self) -> None:
        with closing(self.filter_connection(self.site.extender)) as connection:
            self.filter(connection)
