"""Copies of the product's webhook as processes, which kube-apiserver reaches through their Service alone."""

from __future__ import annotations

import itertools
import signal
import ssl
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import LeafSpec, make_authority, server_names, sign
from controller.admission import configurations as rules
from tests.cluster.client import ApiClient, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.cluster.components import LOOPBACK
from tests.e2e import workloads
from tests.e2e.programs import OwnProgram
from tests.e2e.scheduling import NAMESPACE
from tests.ports import free_port
from tests.waiting import wait_until

WEBHOOK_SERVICE, CONTAINER_PORT = "longhorn-scheduler-webhook", 9443
CONFIGURATION, VALIDATING_CONFIGURATION = "zz-longhorn-scheduler-extender", "longhorn-scheduler-extender"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = MUTATING.replace("mutating", "validating")
OURS = (f"{MUTATING}/{CONFIGURATION}", f"{VALIDATING}/{VALIDATING_CONFIGURATION}")
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
START_SECONDS = 60.0
SCRIPT = "import sys, webhook.cli; sys.exit(webhook.cli.main())"  # as the package installs it
_numbers = itertools.count(1)


class Webhook(OwnProgram):
    """`longhorn-scheduler-webhook run`, as its Deployment would start one copy of it.

    Its EndpointSlice is written here, once it is ready: without a kubelet no pod is, so that no controller writes one.
    """

    def __init__(self, cluster: Cluster, flags: Sequence[str] = (), *, module: str = "") -> None:
        """`module`: what runs in its place."""
        number = next(_numbers)
        name = f"webhook-{number}"
        self.ip = f"10.246.{number // 250}.{number % 250 + 1}"
        self.port, self.metrics_port, self.status_port = (free_port() for _ in range(3))
        self._api = cluster.api()
        kubeconfig = cluster.service_account_kubeconfig(
            NAMESPACE, WEBHOOK_SERVICE, cluster.state_dir / f"{name}.kubeconfig"
        )
        command = [
            *(sys.executable, *(("-m", module) if module else ("-c", SCRIPT))),
            *("run", "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE),
            *("--address", LOOPBACK, "--port", str(self.port)),
            *("--metrics-address", LOOPBACK, "--metrics-port", str(self.metrics_port)),
            *("--status-port", str(self.status_port)),
            *flags,
        ]
        super().__init__(cluster, name, command, {"POD_NAMESPACE": NAMESPACE})
        cluster.services.map_pod(self.ip, CONTAINER_PORT, self.port)
        self._serves = False

    def stop(self, *, kill: bool = False) -> None:
        """End it as a rolling update does: it is told to end, is no longer ready, and then leaves its Service."""
        if not kill and self.is_running:
            self.signal(signal.SIGTERM)
            wait_until(
                lambda: not (self.is_running and self.answers_ready()), f"{self.name} that is not ready", START_SECONDS
            )
        self.leave_service()
        super().stop(kill=kill)

    def join_service(self) -> None:
        if not self._serves:
            piece = workloads.endpoint_slice(self.name, WEBHOOK_SERVICE, self.ip, CONTAINER_PORT, "https")
            self._api.create(SLICES, piece)
            self._serves = True

    def leave_service(self) -> None:
        with ignored_when_gone():
            self._cluster.api().delete(f"{SLICES}/{self.name}")
        self._serves = False

    def is_ready(self) -> bool:
        if not self.is_running:
            raise self.fail("ended while it was starting")
        return self.answers_ready()

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Until it is ready and its Service sends calls to it."""
        wait_until(self.is_ready, f"{self.name} that is ready", timeout)
        self.join_service()

    def counted(self, sample: str) -> float:
        """The sum of its samples whose name, without the common prefix, and labels begin so."""
        wanted = f"longhorn_scheduler_webhook_{sample}"
        lines = [line for line in self.page("/metrics").splitlines() if line.startswith(wanted)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def write_certificates(folder: Path, *more_names: str) -> bytes:
    """A leaf for the Service and its key, as a mounted Secret would hold them; the authority that signed it."""
    now, life = datetime.now(UTC), timedelta(days=1)
    authority = make_authority("test", 2 * life, now)
    leaf = sign(authority, LeafSpec("server", life, (*server_names(WEBHOOK_SERVICE, NAMESPACE), *more_names)), now)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    return authority.certificate


def server_context(folder: Path) -> ssl.SSLContext:
    """For a server that shows the leaf of `write_certificates`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def write_configuration(api: ApiClient, bundle: bytes, *, url: str = "") -> None:
    """The configuration that the leader would write, without a leader. `url`: where to call, past the Service."""
    wanted = rules.WantedEntries(schedulers=("default-scheduler",), share_managers=True)
    entries = rules.mutating(wanted, rules.WebhookPlace(NAMESPACE, WEBHOOK_SERVICE))
    complete = rules.with_authorities(entries, bundle, ())
    if url:
        for entry in complete:
            path = entry["clientConfig"].pop("service")["path"]
            entry["clientConfig"]["url"] = url + path
    drop_configuration(api)
    api.create(MUTATING, {"metadata": {"name": CONFIGURATION}, "webhooks": complete})


def drop_configuration(api: ApiClient) -> None:
    with ignored_when_gone():
        api.delete(f"{MUTATING}/{CONFIGURATION}")
