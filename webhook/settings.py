"""What the webhook's process is started with, and the live settings, which it shares with the controller."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Final

from controller.kube.store import Store
from controller.log_line import say
from controller.model.longhorn_settings import by_name
from controller.model.names import SCHEDULER_NAMES
from controller.model.workload import ConfigMapFacts, data_of
from controller.process.flags import split_names
from controller.settings import (
    CERTIFICATE_MODES,
    MEBIBYTE,
    NOT_SET,
    TLS_OFF,
    live_settings,
    require,
    require_port,
    setting_notes,
)

LEADER_SERVICE: Final = "longhorn-replica-scheduler"
LEADER_PORT: Final = 9504

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Flags and environment. Durations in seconds, sizes in bytes; docs/settings.md says what each is for."""

    namespace: str = "longhorn-system"
    kubeconfig: str = ""
    context: str = ""
    address: str = "0.0.0.0"
    port: int = 9443
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 9506
    status_port: int = 9507  # on loopback
    config_map: str = "longhorn-scheduler-extender"
    threads: int = 16
    live_reads_per_second: int = 50
    body_limit_bytes: int = 8 * MEBIBYTE  # an object is at most 1.5 MiB in etcd; a review may carry it twice
    drain_seconds: int = 5
    tls_mode: str = "self"
    tls_cert_dir: str = ""
    tls_client_cert_dir: str = ""
    tls_secret: str = "longhorn-scheduler-webhook-tls"
    tls_client_secret: str = "longhorn-scheduler-webhook-client-tls"
    client_ca_file: str = ""  # "": any client that reaches the port may ask
    leader_address: str = ""  # "": the Service of the leader's gRPC server, in `namespace`
    tls_handshake_seconds: int = 5
    tls_handshakes: int = 256
    scheduler_names: str = SCHEDULER_NAMES  # with commas
    excluded_namespaces: str = "kube-system"  # with commas, beside `namespace`
    log_level: str = "info"
    log_format: str = "text"

    @property
    def schedulers(self) -> frozenset[str]:
        return frozenset(split_names(self.scheduler_names))

    @property
    def leader(self) -> str:
        """Host and port of the leader's gRPC server."""
        return self.leader_address or f"{LEADER_SERVICE}.{self.namespace}.svc:{LEADER_PORT}"

    @property
    def leader_name(self) -> str:
        """The name that the leader's certificate has to carry: its host, or, for an address, its Service."""
        host = self.leader.rpartition(":")[0]
        is_address = host.startswith("[") or host.replace(".", "").isdigit()
        return f"{LEADER_SERVICE}.{self.namespace}.svc" if is_address else host

    @property
    def left_alone(self) -> frozenset[str]:
        """The namespaces whose pods are never opted in."""
        return frozenset((*split_names(self.excluded_namespaces), self.namespace))

    def checked(self) -> WebhookSettings:
        """Itself; ConfigError names the first setting that cannot work."""
        require(bool(self.namespace), "namespace", "is empty")
        for name in ("port", "metrics_port", "status_port"):
            require_port(getattr(self, name), name)
        require(1 <= self.threads <= 256, "threads", "is not between 1 and 256")
        require(1 <= self.live_reads_per_second <= 1000, "live_reads_per_second", "is not between 1 and 1000")
        require(self.body_limit_bytes >= MEBIBYTE, "body_limit_bytes", "is below 1 MiB")
        require(0 <= self.drain_seconds <= 60, "drain_seconds", "is not between 0 and 60")
        modes = (*CERTIFICATE_MODES, TLS_OFF)
        require(self.tls_mode in modes, "tls_mode", f"is not one of {', '.join(modes)}")
        require(
            not self.tls_cert_dir or self.tls_mode in ("cert-manager", "provided"),
            "tls_cert_dir",
            f"is only for --tls-mode cert-manager and provided, not {self.tls_mode}",
        )
        require(
            bool(self.tls_cert_dir) or not self.tls_client_cert_dir,
            "tls_client_cert_dir",
            "needs --tls-cert-dir, too",
        )
        require(
            bool(self.tls_secret) and bool(self.tls_client_secret) and self.tls_secret != self.tls_client_secret,
            "tls_secret",
            "needs another name than --tls-client-secret",
        )
        require(
            not self.client_ca_file or self.tls_mode != TLS_OFF, "client_ca_file", f"needs TLS, not the mode {TLS_OFF}"
        )
        require(1 <= self.tls_handshake_seconds <= 60, "tls_handshake_seconds", "is not between 1 and 60")
        require(1 <= self.tls_handshakes <= 900, "tls_handshakes", "is not between 1 and 900")
        require(bool(self.schedulers), "scheduler_names", "names no scheduler")
        require(
            self.log_level in ("debug", "info", "warning", "error"),
            "log_level",
            "is not one of debug, info, warning, error",
        )
        require(self.log_format in ("text", "json"), "log_format", "is neither text nor json")
        return self


class LiveSettingsReader:
    """The live settings, read again whenever the ConfigMap or Longhorn's Setting objects change.

    Threads: any; those of the informers write. Blocks: never. I/O: none.
    """

    def __init__(self, config_maps: Store[ConfigMapFacts], longhorn: Store[str]) -> None:
        self._config_maps, self._longhorn = config_maps, longhorn
        self._lock = threading.Lock()  # guards the fields below, and the order of readings
        self.current, self.problems = live_settings(None, {})
        self.notes = setting_notes(None)
        for store in (config_maps, longhorn):
            store.subscribe(lambda _changes: self.read())

    def read(self) -> None:
        with self._lock:  # what is read later is written later
            data, longhorn = data_of(self._config_maps.values()), by_name(self._longhorn.items())
            before, noted = self.problems, self.notes
            self.current, self.problems = live_settings(data, longhorn, self.current)
            self.notes = setting_notes(data)
            news = [problem for problem in self.problems if problem not in before]
            notes = [note for note in self.notes if note not in noted]
        for problem in news:
            level = logging.INFO if problem.text.startswith(NOT_SET) else logging.ERROR
            say(log, "setting not used", level, setting=problem.name, problem=problem.text)
        for note in notes:
            say(log, "setting without effect", logging.WARNING, setting=note.name, problem=note.text)
