"""What can be asked of `render-scheduler-config`, checked; and what differs between the distributions."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from controller.errors import ConfigError
from controller.model.names import SCHEDULER_NAMES
from controller.settings import is_port

SERVICE: Final = "longhorn-scheduler-extender"
NAMESPACE: Final = "longhorn-system"
DEFAULT_PORT: Final = 9504
DEFAULT_QPS: Final = 500
DEFAULT_BURST: Final = 1000

LONGEST_TIMEOUT_MILLISECONDS: Final = 4_000
"""Lease duration less renew deadline: an answer that takes longer may come from a leader that has lost its Lease."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TIMEOUT: Final = re.compile(r"(?P<number>\d{1,9})(?P<unit>ms|s)?")


@dataclass(frozen=True, slots=True)
class Platform:
    """One way to run kube-scheduler."""

    name: str
    title: str
    kubeconfig: str  # kube-scheduler's own; empty: the service account of its pod
    config_path: str  # where kube-scheduler finds the configuration; empty: not ours to say
    on_host_network: bool = False  # its resolver knows no names of Services
    has_profiling_off: bool = False  # by a flag, which a configuration file puts out of force

    @property
    def is_talos(self) -> bool:
        return self.name.startswith("talos")


PLATFORMS: Final = {
    platform.name: platform
    for platform in (
        Platform(
            "kubeadm",
            "kubeadm",
            "/etc/kubernetes/scheduler.conf",
            "/etc/kubernetes/scheduler-extender.yaml",
            on_host_network=True,
        ),
        Platform(
            "k3s",
            "K3s",
            "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig",
            "/etc/rancher/k3s/scheduler-extender.yaml",
            on_host_network=True,
            has_profiling_off=True,
        ),
        Platform(
            "rke2",
            "RKE2",
            "/var/lib/rancher/rke2/server/cred/scheduler.kubeconfig",
            "/etc/rancher/rke2/scheduler-extender/config.yaml",
            on_host_network=True,
            has_profiling_off=True,
        ),
        # The kubeconfig is Talos's to say.
        *(
            Platform(name, "Talos", "", "", on_host_network=True, has_profiling_off=True)
            for name in ("talos", "talos-document")
        ),
        Platform("plain", "kube-scheduler", "/etc/kubernetes/scheduler.conf", ""),
    )
}


CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""The extender's authority, what kube-scheduler shows to the extender, and its key: in Secrets and in directories."""
FILES: Final = {"ca": CA, "cert": CERTIFICATE, "key": KEY}
"""By what options and fields are called after."""


@dataclass(frozen=True, slots=True)
class CertificateData:
    """PEM that goes into the file itself."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateDirectory:
    """A directory of kube-scheduler's machine that the file names, so that it holds no secret."""

    path: str


@dataclass(frozen=True, slots=True)
class Options:
    """One request. None: not said, so a default holds, and what a merged file says stays."""

    platform: Platform
    service_address: str = ""
    port: int = DEFAULT_PORT
    namespace: str = NAMESPACE
    certificates: CertificateData | CertificateDirectory | None = None  # None: plain HTTP, which somebody asked for
    timeout_milliseconds: int = LONGEST_TIMEOUT_MILLISECONDS
    allow_long_timeout: bool = False
    ignorable: bool | None = None
    large_cluster: bool = False
    qps: int | None = None
    burst: int | None = None
    scheduler_name: str = ""
    scheduler_names: str = SCHEDULER_NAMES  # of which the controller finds out whether they ask, separated by commas
    scheduler_kubeconfig: str = ""
    config_path: str = ""
    leader_elect: bool | None = None

    @property
    def server_name(self) -> str:
        """The Service's name: the extender's certificate is checked for it, whatever address is called."""
        return f"{SERVICE}.{self.namespace}.svc"

    @property
    def host(self) -> str:
        return self.service_address or self.server_name

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificates else 'http'}://{host}:{self.port}"

    @property
    def timeout(self) -> str:
        seconds, rest = divmod(self.timeout_milliseconds, 1000)
        return f"{self.timeout_milliseconds}ms" if rest else f"{seconds}s"

    @property
    def path(self) -> str:
        return self.config_path or self.platform.config_path

    def checked(self) -> Options:
        """Itself; ConfigError names the first option that cannot work."""
        self._check_address()
        self._check_numbers()
        self._check_names()
        self._check_platform()
        return self

    def _check_address(self) -> None:
        require(_is_name(self.namespace, subdomain=False), "--namespace", f"is not a namespace: {self.namespace!r}")
        require(
            not self.service_address or is_address(self.service_address) or _is_name(self.service_address),
            "--service-address",
            f"is neither an IP address nor a DNS name: {self.service_address!r}",
        )
        require(is_port(self.port), "--port", f"is not a port: {self.port}")

    def _check_numbers(self) -> None:
        require(
            self.timeout_milliseconds > 0, "--http-timeout", "is 0, which kube-scheduler takes as its default of 5 s"
        )
        require(
            self.allow_long_timeout or self.timeout_milliseconds <= LONGEST_TIMEOUT_MILLISECONDS,
            "--http-timeout",
            f"is more than {LONGEST_TIMEOUT_MILLISECONDS // 1000}s: kube-scheduler would use late answers of a "
            "leader that has lost its Lease. Add --allow-long-timeout to accept that",
        )
        for name, value in (("--qps", self.qps), ("--burst", self.burst)):
            require(value is None or 0 < value <= 1_000_000, name, f"is not between 1 and 1000000: {value}")
        qps, burst = self.qps or DEFAULT_QPS, self.burst or DEFAULT_BURST
        require(burst >= qps, "--burst", f"is below --qps: {burst} < {qps}")

    def _check_names(self) -> None:
        name = self.scheduler_name
        require(not name or _is_name(name), "--scheduler-name", f"is not a name of a scheduler: {name!r}")
        require(not name or _is_text(name), "--scheduler-name", f"is {name!r}, which YAML does not read as a text")
        named = {"--scheduler-kubeconfig": self.scheduler_kubeconfig, "--config-path": self.config_path}
        if isinstance(self.certificates, CertificateDirectory):
            named["--certificate-dir"] = self.certificates.path
        for option, path in named.items():
            require(not path or _is_path(path), option, f"is not an absolute path: {path!r}")

    def _check_platform(self) -> None:
        title = self.platform.title
        require(
            not (self.platform.is_talos and isinstance(self.certificates, CertificateDirectory)),
            "--certificate-dir",
            f"is not for {title}, whose configuration is inside a machine configuration",
        )
        named_twice = self.platform.is_talos and self.scheduler_kubeconfig
        require(not named_twice, "--scheduler-kubeconfig", f"is not for {title}, which sets it by itself")
        require(not self.config_path or bool(self.platform.config_path), "--config-path", f"is not for {title}")


def parse_timeout(text: str) -> int:
    """Milliseconds of `4s`, `3500ms` or `4`; ConfigError."""
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise ConfigError(f"--http-timeout: is not a duration such as 4s or 3500ms: {text!r}")
    return int(found["number"]) * (1 if found["unit"] == "ms" else 1000)


def require(is_right: bool, name: str, problem: str) -> None:
    """ConfigError unless `is_right`."""
    if not is_right:
        raise ConfigError(f"{name}: {problem}")


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_name(text: str, *, subdomain: bool = True) -> bool:
    labels = text.split(".") if subdomain else [text]
    if subdomain and labels[-1].isdigit():  # an address with a mistake in it
        return False
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def _is_text(text: str) -> bool:
    """Whether it is text without quotes too; kube-scheduler also takes y and n for truth values."""
    node = yaml.compose(text, yaml.SafeLoader)
    return node is not None and node.tag == "tag:yaml.org,2002:str" and text not in ("y", "n")


def _is_path(text: str) -> bool:
    # It goes into flags and into RKE2's source:destination pairs.
    return text.startswith("/") and not re.search(r"[\s:,\0]", text)
