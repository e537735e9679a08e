"""The order in which a cluster comes up."""

from __future__ import annotations

import functools
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import components, egress, history, service_proxy
from tests.cluster.build import Binaries
from tests.cluster.cache import AUDIT_VARIABLE
from tests.cluster.client import ApiClient, Endpoint
from tests.cluster.control import call
from tests.cluster.kubeconfig import write_kubeconfig
from tests.cluster.pki import Authority, KeyPair, key_pem, new_key, public_pem
from tests.cluster.state import update_state
from tests.cluster.supervisor import Progress, Supervisor

ADMIN = "admin"
# User name of each kubeconfig, and its groups. RBAC's built-in roles know the two system users.
USERS: dict[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: (ADMIN, ("system:masters",)),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "history": ("history", ("system:masters",)),
    "service-proxy": ("service-proxy", ("system:masters",)),
}
SERVER_NAMES = (
    components.LOOPBACK,
    components.API_SERVICE_ADDRESS,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What kind of cluster to start. The defaults are a whole one with a stock scheduler."""

    name: str = ""  # empty: a name made from our pid
    release: str = ""  # a minor version such as 1.34; empty: that in $CLUSTER_RELEASE, else the newest
    state_dir: Path | None = None  # None: a folder below the state root
    scheduler_config: dict[str, Any] | None = None
    start_scheduler: bool = True
    log_level: int = 2
    record_history: bool = True
    api_server_flags: Mapping[str, str] = field(default_factory=dict)  # beside those that it always has


class Launcher:
    """Brings up one cluster in the supervisor's folder, step by step. Raises ClusterError, with a log's end."""

    def __init__(self, supervisor: Supervisor, programs: Binaries, log_level: int) -> None:
        self._supervisor, self._programs, self._log_level = supervisor, programs, log_level
        self._layout = supervisor.layout

    def bring_up(self, options: ClusterOptions, progress: Progress) -> None:
        started = time.monotonic()
        folder = self._layout.folder
        self._write_pki()
        progress(f"starting etcd and kube-apiserver; logs are in {folder}")
        self._supervisor.spawn("etcd", self._programs.command("etcd") + components.etcd(self._layout))
        self._start_api_server(options.api_server_flags)
        self._write_kubeconfigs()
        progress("kube-apiserver is ready; starting the rest")
        helpers = self._start_helpers(options)
        waits = [self._start_controller_manager()]
        if options.start_scheduler:
            # The scheduler is told where DNS is, so the proxy comes first.
            helpers.pop(0)()
            dns = call(folder / service_proxy.SOCKET, {"op": "info"})["dns"]
            waits.append(self.start_scheduler("kube-scheduler", options.scheduler_config, dns, {}))
        for wait in [*helpers, *waits]:
            wait()
        self._write_kubectl_script()
        progress(f"the cluster is ready after {time.monotonic() - started:.1f} s")

    def start_scheduler(
        self,
        name: str,
        config: Mapping[str, Any] | str | None,
        dns: str | None,
        env: Mapping[str, str],
        flags: Mapping[str, str] | None = None,
    ) -> Callable[[], None]:
        """Start a scheduler under its own configuration file; the returned function waits until it schedules.

        A `config` that is text is the file, byte for byte.
        """
        file = self._layout.folder / f"{name}.yaml"
        if not isinstance(config, str):
            whole = components.scheduler_config(config, self._layout.kubeconfig("kube-scheduler"))
            config = yaml.safe_dump(whole, sort_keys=False)
        file.write_text(config)
        words = self._programs.command("kube-scheduler")
        # Readiness of a scheduler includes that its informers and event handlers have seen everything listed.
        return self._supervisor.start_serving(
            name,
            lambda port: words + components.scheduler(self._layout, file, port, self._log_level, flags or {}),
            lambda port: self.page(port, "/readyz") == "ok",
            {**({"CLUSTER_DNS": dns} if dns else {}), **env},
        )

    def page(self, port: int, path: str) -> str:
        """What a component answers on its own port to somebody without credentials."""
        return ApiClient(Endpoint(f"https://{components.LOOPBACK}:{port}", self._tls), timeout=10.0).text(path)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._layout.pki / "ca.crt"))

    def write_kubeconfig(self, path: Path, user: str, pair: KeyPair) -> Path:
        authority = (self._layout.pki / "ca.crt").read_bytes()
        return write_kubeconfig(path, self._supervisor.state().api_url, authority, user=user, pair=pair)

    def _write_pki(self) -> None:
        folder = self._layout.pki
        folder.mkdir(mode=0o700)
        authority = Authority.new(f"test-cluster-{self._supervisor.state().name}")
        authority.pair.write(folder, "ca")
        authority.server("test-cluster", SERVER_NAMES).write(folder, "server")
        key = new_key()
        KeyPair(public_pem(key), key_pem(key)).write(folder, "service-account")
        (folder / "service-account.crt").rename(folder / "service-account.pub")

    def _start_api_server(self, flags: Mapping[str, str]) -> None:
        words = self._programs.command("kube-apiserver")
        configuration = egress.configuration(self._layout.folder)
        self._layout.egress.write_text(yaml.safe_dump(configuration, sort_keys=False))
        flags = {**self._audit_flags(), **flags}
        wait = self._supervisor.start_serving(
            "kube-apiserver",
            lambda port: words + components.api_server(self._layout, port, self._log_level, flags),
            lambda port: self.page(port, "/readyz") == "ok",
        )
        wait()
        port = self._supervisor.state().ports["kube-apiserver"]
        url = f"https://{components.LOOPBACK}:{port}"
        update_state(self._layout.folder, lambda state: replace(state, api_url=url))

    def _audit_flags(self) -> dict[str, str]:
        """A file for each cluster, with a line for each request of a service account beside the control plane's."""
        if not (folder := os.environ.get(AUDIT_VARIABLE)):
            return {}
        policy = self._layout.folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY, sort_keys=False))
        Path(folder).mkdir(parents=True, exist_ok=True)
        log = Path(folder).absolute() / f"{self._supervisor.state().name}-{os.getpid()}.jsonl"
        return {"audit-policy-file": str(policy), "audit-log-path": str(log), "audit-log-mode": "batch"}

    def _write_kubeconfigs(self) -> None:
        authority = Authority.load(self._layout.pki, "ca")
        for name, (user, groups) in USERS.items():
            self.write_kubeconfig(self._layout.kubeconfig(name), user, authority.client(user, groups))

    def _start_controller_manager(self) -> Callable[[], None]:
        words = self._programs.command("kube-controller-manager")
        api = ApiClient.from_kubeconfig(self._layout.kubeconfig(ADMIN))

        def is_ready(port: int) -> bool:
            return self.page(port, "/healthz") == "ok" and api.get_or_none(DEFAULT_ACCOUNT) is not None

        return self._supervisor.start_serving(
            "kube-controller-manager",
            lambda port: words + components.controller_manager(self._layout, port, self._log_level),
            is_ready,
        )

    def _start_helpers(self, options: ClusterOptions) -> list[Callable[[], None]]:
        """The Service proxy first, then the recorder when it is wanted; the functions wait until each is of use."""
        folder = self._layout.folder

        def start(name: str, module: str, socket: str, request: str) -> Callable[[], None]:
            record = self._supervisor.spawn_module(name, module, str(folder), str(self._layout.kubeconfig(name)))
            return lambda: self._supervisor.wait_ready(
                record, lambda: bool(call(folder / socket, {"op": request})["ready"])
            )

        waits = [start("service-proxy", service_proxy.__name__, service_proxy.SOCKET, "info")]
        if options.record_history:
            waits.append(start("history", history.__name__, history.SOCKET, "status"))
        return waits

    def _write_kubectl_script(self) -> None:
        script = self._layout.folder / "kubectl"
        words = " ".join(f"'{word}'" for word in self._programs.command("kubectl"))
        cache = self._layout.folder / "kubectl-cache"
        script.write_text(
            f"#!/bin/sh\nexport KUBECONFIG='{self._layout.kubeconfig(ADMIN)}'\nexport KUBECACHEDIR='{cache}'\n"
            f'exec {words} "$@"\n'
        )
        script.chmod(0o700)
