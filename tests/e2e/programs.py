"""The extenders of the end-to-end tests as processes: the product, and what it is compared with.

Both listen on loopback and are reached through the Service alone, at made-up pod addresses.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.body_memory import status_kib
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiClient, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.cluster.components import LOOPBACK
from tests.cluster.process import Record, is_alive, send, wait_ended
from tests.cluster.supervisor import Supervisor, tail
from tests.e2e import workloads
from tests.e2e.scheduling import ASKING, LEADER_PORT, LEADER_SERVICE, NAMESPACE, SERVICE, SERVICE_PORT
from tests.ports import free_port
from tests.waiting import wait_equal, wait_until

IDLE_SECONDS = 11.0  # kube-scheduler's longest back-off is 10 s
START_SECONDS = 150.0  # a busy machine starts slowly; nothing waits longer than it has to
OWN_LEASE_SECONDS = 12.0  # less than the 15 after which a Lease that nobody renews is free
GRPC_PORT = 9505  # of the controller's pods
# Of a leader that a test kills, so that another one leads soon.
QUICK_LEASE = ("--lease-duration-seconds", "6", "--renew-deadline-seconds", "4", "--retry-period-seconds", "1")
_numbers = itertools.count(1)
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"


class Program:
    """One process in the cluster's care: it ends with the cluster at the latest.

    Threads: one at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        source: Path = REPOSITORY,
    ) -> None:
        """`source`: the folder of the code."""
        self._cluster, self.name = cluster, name
        self._supervisor = Supervisor(cluster.state_dir)
        path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
        self.record: Record = self._supervisor.spawn(name, command, {**env, "PYTHONPATH": path})

    @property
    def is_running(self) -> bool:
        return is_alive(self.record)

    @property
    def log(self) -> Path:
        return Path(self.record.log)

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to end; `kill` ends it and its workers without a word, as the kernel would."""
        if kill:
            self._kill_session()
        self._supervisor.end(self.record, kill=kill)

    def freeze(self) -> None:
        """It and its workers do nothing any more, as if the machine hung."""
        os.killpg(self.record.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It and its workers go on where they were frozen."""
        os.killpg(self.record.pid, signal.SIGCONT)

    def exit_code(self, timeout: float = 30.0) -> int:
        """Of a process that was told to end, once it has."""
        return self._supervisor.exit_code(self.record, timeout)

    def _kill_session(self) -> None:
        if self.is_running:
            # The process leads its own group, and its workers stay in it.
            os.killpg(self.record.pid, signal.SIGKILL)
        wait_ended(self.record, 10.0)

    def signal(self, number: signal.Signals) -> None:
        send(self.record, number)

    def fail(self, what: str) -> RuntimeError:
        return RuntimeError(f"{self.name}: {what}; the end of {self.log}:\n{tail(self.log)}")


class OwnProgram(Program):
    """One of the product's processes, as its ports for metrics and status show it."""

    metrics_port: int
    status_port: int

    def page(self, path: str, port: int = 0) -> str:
        """What its port for metrics, or another one, answers. Raises OSError while nobody listens there."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port or self.metrics_port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def answers_ready(self) -> bool:
        try:
            return self.page("/readyz") == "ok\n"
        except OSError:
            return False

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.page("/status", self.status_port))
        return document

    def worker(self) -> int:
        """The process that does the work; it is started again when it dies. 0 while there is none."""
        children = Path(f"/proc/{self.record.pid}/task/{self.record.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def peak_mib(self) -> int:
        """Of its worker's resident memory."""
        return status_kib(self.worker(), "VmHWM") // 1024


class Controller(OwnProgram):
    """The product: `python -m controller run`, as its Deployment would start one copy of it."""

    def __init__(
        self,
        cluster: Cluster,
        kubeconfig: Path,
        *,
        name: str = "",
        module: str = "controller",
        flags: Sequence[str] = (),
    ) -> None:
        number, self.program = next(_numbers), (module, *flags)
        name = name or f"extender-{number}"
        self.ip = f"10.244.{number // 250}.{number % 250 + 1}"
        self.port, self.metrics_port, self.status_port, self.grpc_port = (free_port() for _ in range(4))
        self.status_tls_port = free_port()
        command = [
            *(sys.executable, "-m", module, "run", "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE),
            *("--extender-address", LOOPBACK, "--extender-port", str(self.port)),
            *("--metrics-address", LOOPBACK, "--metrics-port", str(self.metrics_port)),
            *("--status-port", str(self.status_port), "--status-tls-port", str(self.status_tls_port)),
            *("--grpc-address", LOOPBACK, "--grpc-port", str(self.grpc_port)),
            *("--endpoint-port", str(SERVICE_PORT), "--grpc-endpoint-port", str(GRPC_PORT)),
            *("--scheduler-names", ASKING),
            *(() if "--tls-mode" in flags else ("--tls-mode", "self")),
            *flags,
        ]
        cluster.services.map_pod(self.ip, SERVICE_PORT, self.port)
        cluster.services.map_pod(self.ip, GRPC_PORT, self.grpc_port)
        env = {"POD_NAME": name, "POD_IP": self.ip, "NODE_NAME": f"node-of-{name}", "POD_NAMESPACE": NAMESPACE}
        super().__init__(cluster, name, command, env)
        self._worker = 0  # once it led for the first time

    def kill_worker(self) -> None:
        """As the kernel would, and wait until its successor leads."""
        former = self.worker()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: self.worker() not in (0, former), f"another worker of {self.name}", START_SECONDS)
        self.wait_leading(OWN_LEASE_SECONDS)
        self._worker = self.worker()

    def leads(self) -> bool:
        """Whether it runs, and says so."""
        try:
            return self.is_running and bool(self.status()["is_leading"])
        except OSError:
            return False

    def has_died(self) -> bool:
        """Whether it, or the worker that led first, ended although no test ended it."""
        return not self.is_running or (self._worker != 0 and self.worker() != self._worker)

    def wait_leading(self, timeout: float = START_SECONDS) -> None:
        """Return once it leads and the Service leads to it."""

        def is_in_charge() -> bool:
            if not self.is_running:
                raise self.fail("ended while it was starting")
            return self.leads() and self._is_endpoint()

        try:
            wait_until(is_in_charge, f"{self.name} that leads", timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the end of {self.log}:\n{tail(self.log)}") from None
        self._worker = self._worker or self.worker()

    def _is_endpoint(self) -> bool:
        found = self._cluster.services.endpoints(NAMESPACE, SERVICE, SERVICE_PORT)
        return [(self.ip, SERVICE_PORT)] == found

    def decisions(self, decision: str) -> int:
        """How many filter calls ended so."""
        return self.counted(f'decisions_total{{decision="{decision}"}}')

    def counted(self, sample: str) -> int:
        """The value of one of its counters, by name and labels; 0 while it is not there."""
        wanted = f"longhorn_scheduler_extender_{sample} "
        for line in self.page("/metrics").splitlines():
            if line.startswith(wanted):
                return int(float(line.removeprefix(wanted)))
        return 0

    def wait_decisions(self, decision: str, count: int, timeout: float = 60.0) -> None:
        wait_until(lambda: self.decisions(decision) >= count, f"{count} filter calls that ended {decision}", timeout)

    def wait_idle(self, timeout: float = 120.0) -> None:
        """Until no pod was refused for longer than kube-scheduler keeps one in its back-off: for every new claim or pod
        it looks at all refused pods again, so that a slow machine asks more often while they are made."""
        calls, since = -1, time.monotonic()

        def is_idle() -> bool:
            nonlocal calls, since
            refused = self.decisions("refused")
            if refused != calls:
                calls, since = refused, time.monotonic()
            return time.monotonic() - since > IDLE_SECONDS

        wait_until(is_idle, "an idle scheduler", timeout)

    def wait_ledger_empty(self, timeout: float = 30.0) -> None:
        wait_equal([], lambda: self.status()["promises"], timeout)


class ProposalPolicy(Program):
    """The enhancement text's own policy, for comparison."""

    def __init__(self, cluster: Cluster) -> None:
        number = next(_numbers)
        self.ip = f"10.245.{number // 250}.{number % 250 + 1}"
        self.port = free_port()
        command = [
            *(sys.executable, "-m", "bench.proposal_policy"),
            *("--kubeconfig", str(cluster.kubeconfig), "--port", str(self.port)),
        ]
        super().__init__(cluster, f"proposal-policy-{number}", command, {})
        cluster.services.map_pod(self.ip, SERVICE_PORT, self.port)
        point_service(cluster.api(), self.ip)

    def wait_serving(self, timeout: float = START_SECONDS) -> None:
        host, port = self._cluster.services.address(NAMESPACE, SERVICE, SERVICE_PORT)

        def answers() -> bool:
            if not self.is_running:
                raise self.fail("ended while it was starting")
            try:
                with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=5):
                    return True
            except OSError:
                return False

        wait_until(answers, f"{self.name} that answers", timeout)

    def stop(self, *, kill: bool = False) -> None:
        clear_service(self._cluster.api())
        super().stop(kill=kill)


def leader_address(cluster: Cluster) -> str:
    """HOST:PORT where the leader's gRPC server is reached through its Service."""
    host, port = cluster.services.address(NAMESPACE, LEADER_SERVICE, LEADER_PORT)
    return f"{host}:{port}"


def point_service(api: ApiClient, ip: str) -> None:
    """Lead the extender's Service to one address, as the product's leader does for itself."""
    clear_service(api)
    api.create(SLICES, workloads.endpoint_slice(SERVICE, SERVICE, ip, SERVICE_PORT))


def clear_service(api: ApiClient) -> None:
    with ignored_when_gone():
        api.delete(f"{SLICES}/{SERVICE}")
