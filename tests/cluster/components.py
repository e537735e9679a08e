"""Command lines of the control plane's processes. Nothing is started here."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
OPEN_PATHS = "/healthz,/livez,/readyz,/metrics"
UNIX_PATH_LIMIT = 107
# Without a kubelet no node ever reports, so the controller would mark every node as lost.
CONTROLLERS = "*,-node-lifecycle-controller"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one cluster lies."""

    folder: Path

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def etcd_socket(self) -> Path:
        return self.folder / "etcd.sock"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    @property
    def egress(self) -> Path:
        return self.folder / "egress.yaml"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def check(self) -> None:
        """Raises ValueError when a Unix socket would not fit; the kernel's own message names no path."""
        longest = len(str(self.folder / "services.sock"))
        if longest > UNIX_PATH_LIMIT:
            raise ValueError(f"{self.folder}: the path is {longest - UNIX_PATH_LIMIT} bytes too long for Unix sockets")


def etcd(layout: Layout) -> list[str]:
    """One member that listens on Unix sockets only; nobody dials the addresses that it has to advertise."""
    nobody = "http://127.0.0.1:1"
    return [
        "--name=member",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls=unix://{layout.etcd_socket}",
        f"--advertise-client-urls={nobody}",
        f"--listen-peer-urls=unix://{layout.folder / 'peer.sock'}",
        f"--initial-advertise-peer-urls={nobody}",
        f"--initial-cluster=member={nobody}",
        # The data need not outlive a power cut.
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=8589934592",
    ]


def api_server(layout: Layout, port: int, log_level: int, extra: Mapping[str, str]) -> list[str]:
    flags = {
        "etcd-servers": f"unix://{layout.etcd_socket}",
        "bind-address": LOOPBACK,
        "advertise-address": LOOPBACK,
        "secure-port": str(port),
        "tls-cert-file": str(layout.pki / "server.crt"),
        "tls-private-key-file": str(layout.pki / "server.key"),
        "client-ca-file": str(layout.pki / "ca.crt"),
        "authorization-mode": "Node,RBAC",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": str(layout.pki / "service-account.pub"),
        "service-account-signing-key-file": str(layout.pki / "service-account.key"),
        "service-cluster-ip-range": SERVICE_RANGE,
        # Endpoints on loopback are refused, and the API server has no other address here.
        "endpoint-reconciler-type": "none",
        "allow-privileged": "true",
        "egress-selector-config-file": str(layout.egress),
        "v": str(log_level),
        **extra,
    }
    return _words(flags)


def controller_manager(layout: Layout, port: int, log_level: int) -> list[str]:
    flags = {
        "kubeconfig": str(layout.kubeconfig("kube-controller-manager")),
        "controllers": CONTROLLERS,
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": str(layout.pki / "service-account.key"),
        "root-ca-file": str(layout.pki / "ca.crt"),
        # The defaults (20 and 30 requests a second) would hide what is measured behind their own queue.
        "kube-api-qps": "1000",
        "kube-api-burst": "2000",
        "pvclaimbinder-sync-period": "1s",
        **_serving(layout, port),
        "v": str(log_level),
    }
    return _words(flags)


def scheduler(layout: Layout, config: Path, port: int, log_level: int, extra: Mapping[str, str]) -> list[str]:
    flags = {"config": str(config), **_serving(layout, port), "v": str(log_level), **extra}
    return _words(flags)


def scheduler_config(given: Mapping[str, Any] | None, kubeconfig: Path) -> dict[str, Any]:
    """A full KubeSchedulerConfiguration; what the caller left out of the connection and the election is filled in.

    Election is off unless asked for, so that schedulers of several names never wait for each other's Lease.
    """
    config: dict[str, Any] = copy.deepcopy(dict(given or {}))
    config.setdefault("apiVersion", "kubescheduler.config.k8s.io/v1")
    config.setdefault("kind", "KubeSchedulerConfiguration")
    connection = config["clientConnection"] = dict(config.get("clientConnection") or {})
    connection.setdefault("kubeconfig", str(kubeconfig))
    election = config["leaderElection"] = dict(config.get("leaderElection") or {})
    election.setdefault("leaderElect", False)
    return config


def _serving(layout: Layout, port: int) -> dict[str, str]:
    return {
        "bind-address": LOOPBACK,
        "secure-port": str(port),
        "tls-cert-file": str(layout.pki / "server.crt"),
        "tls-private-key-file": str(layout.pki / "server.key"),
        "authorization-always-allow-paths": OPEN_PATHS,
    }


def _words(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
