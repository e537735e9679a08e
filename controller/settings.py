"""Settings: those of the process, from flags and environment, and those that are read live from the cluster.

The live ones keep the names that Longhorn's enhancement text on the scheduler extender gave them. They stand in one
ConfigMap; a Longhorn Setting object of the same name wins where a Longhorn knows it (today's refuse unknown names).
Longhorn's own settings are read in controller/model/longhorn_settings.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.errors import ConfigError
from controller.model.longhorn_settings import SettingProblem, parse_flag, parse_integer
from controller.model.names import SCHEDULER_NAMES

PREFIX: Final = "scheduler-extender-"
ENABLED: Final = f"{PREFIX}enabled"
AUTHORITY: Final = f"{PREFIX}allocation-authority"
PLACEMENT: Final = f"{PREFIX}placement"
MEBIBYTE: Final = 1024**2
LONGEST_LEASE_SECONDS: Final = 600  # a Lease whose holder is gone is free after that, whatever it says
_DAY: Final = 86_400
CERTIFICATE_MODES: Final = ("self", "cert-manager", "provided")
TLS_OFF: Final = "off"  # there is no webhook
MOST_PORT: Final = 65_535
PLAIN_HTTP: Final = "insecure-plain-http"  # whoever reaches the extender's port is taken for kube-scheduler
_SECRETS: Final = (
    "tls_secret",
    "tls_client_secret",
    "tls_ca_secret",
    "webhook_tls_secret",
    "webhook_client_tls_secret",
    "webhook_ca_secret",
    "replica_scheduler_tls_secret",
)
STRATEGIES: Final = ("spread", "pack", "off")
OPT_IN_MODES: Final = ("auto", "always", "off")
EXPANSION_POLICIES: Final = ("allow", "deny", "off")
LONGHORN, DISK_SCHEDULER = AUTHORITIES = ("longhorn", "disk-scheduler")  # who says where replicas go
LEADER, AUDIT, _ = PLACERS = ("leader", "audit", LONGHORN)  # who gives Replicas their disks, and whether others may
REQUIRED, PREFERRED = STRICTNESSES = ("required", "preferred")  # how pods follow their shared volumes
WEBHOOK_CLIENT: Final = "longhorn-scheduler-webhook"  # in the certificate that mode `self` makes for it


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings that are read live. Units stand in the names; docs/settings.md says what each is for."""

    enabled: bool | None = False  # None: not known, and every call is answered by an error
    bypass: bool = False
    pod_scheduling_timeout_seconds: int = 5
    node_reservation_timeout_seconds: int = 5
    max_offers: int = 100
    strategy: str = "spread"
    contention_wait_milliseconds: int = 300
    filter_budget_milliseconds: int = 50
    remote_fallback_after_seconds: int = 60
    starvation_after_seconds: int = 300
    wake_with_annotation: bool = False
    hold_cap_seconds: int = 120
    wiring_check_every_seconds: int = 300
    opt_in: str = "auto"
    only_marked: bool = False
    share_managers: bool = True
    expansion_policy: str = "allow"
    allocation_authority: str = LONGHORN
    co_schedule_strictness: str = REQUIRED
    co_schedule_fallback_after_seconds: int = 0
    allocation_record: bool = True
    placement: str = LEADER


UNREAD: Final = LiveSettings(
    enabled=None,
    remote_fallback_after_seconds=0,
    expansion_policy="deny",
    placement=LONGHORN,
)
"""In force until readable settings were seen: each setting has the value that lets nothing through. Only `placement` is
left to Longhorn, as the cluster may have asked for that."""


def places_replicas(live: LiveSettings) -> bool:
    """Whether the leader gives Replicas their disks under these settings."""
    return live.placement != LONGHORN and live.allocation_authority == LONGHORN


@dataclass(frozen=True, slots=True)
class _Key:
    """The field of a live setting, the largest value of an integer, and the choices of a word."""

    field: str
    most: int = 0
    choices: tuple[str, ...] = ()


_LIVE: Final[dict[str, _Key]] = {
    ENABLED: _Key("enabled"),
    f"{PREFIX}bypass": _Key("bypass"),
    f"{PREFIX}pod-scheduling-timeout": _Key("pod_scheduling_timeout_seconds", 3_600),
    f"{PREFIX}node-reservation-timeout": _Key("node_reservation_timeout_seconds", 3_600),
    f"{PREFIX}max-offers": _Key("max_offers", 1_000_000),
    f"{PREFIX}strategy": _Key("strategy", choices=STRATEGIES),
    f"{PREFIX}contention-wait-milliseconds": _Key("contention_wait_milliseconds", 2_000),
    f"{PREFIX}filter-budget-milliseconds": _Key("filter_budget_milliseconds", 2_000),
    f"{PREFIX}remote-fallback-after": _Key("remote_fallback_after_seconds", _DAY),
    f"{PREFIX}starvation-after": _Key("starvation_after_seconds", _DAY),
    f"{PREFIX}wake-with-annotation": _Key("wake_with_annotation"),
    f"{PREFIX}hold-cap": _Key("hold_cap_seconds", 3_600),
    f"{PREFIX}wiring-check-every": _Key("wiring_check_every_seconds", _DAY),
    f"{PREFIX}opt-in": _Key("opt_in", choices=OPT_IN_MODES),
    f"{PREFIX}opt-in-only-marked": _Key("only_marked"),
    f"{PREFIX}share-managers": _Key("share_managers"),
    f"{PREFIX}expansion-policy": _Key("expansion_policy", choices=EXPANSION_POLICIES),
    f"{PREFIX}co-schedule-strictness": _Key("co_schedule_strictness", choices=STRICTNESSES),
    f"{PREFIX}co-schedule-fallback-after": _Key("co_schedule_fallback_after_seconds", _DAY),
    AUTHORITY: _Key("allocation_authority", choices=AUTHORITIES),
    f"{PREFIX}allocation-record": _Key("allocation_record"),
    PLACEMENT: _Key("placement", choices=PLACERS),
}
NOT_SET: Final = "is not set"  # how the problem of a setting begins that nobody has set
FORMER: Final = (f"{PREFIX}replica-placement",)  # settings of earlier releases
WITHOUT_EFFECT: Final = f"has no effect while {AUTHORITY} is {DISK_SCHEDULER}"
# What is told of the former name, by the authority that is in force.
FORMER_TEXTS: Final = {
    LONGHORN: f"has no effect: {PLACEMENT} says it now",
    DISK_SCHEDULER: f"has no effect: set {AUTHORITY} to {LONGHORN}; {PLACEMENT} then says who places",
}
# Settings that are still accepted, for this release alone, and do nothing. They are noted, and are no problem.
GONE: Final = {
    f"{PREFIX}allow-stranding": "has no effect any more: a yes names the disk of each volume",
    f"{PREFIX}roaming-overcommit-percent": "has no effect any more: a yes names the disk of each volume",
    f"{PREFIX}allocation-grace": "has no effect any more: a place that was given stays as long as its object waits",
    f"{PREFIX}namespace-cap-percent": "has no effect any more: what only the owner of a claim says takes no room",
}
LIVE_FIELDS: Final = {name: key.field for name, key in _LIVE.items()}  # name -> field of LiveSettings


def changed_settings(old: LiveSettings, new: LiveSettings) -> Mapping[str, tuple[str, str]]:
    """The settings that differ, by name, each with both values as a ConfigMap has them. Pure."""
    differing = (one for one in LIVE_FIELDS.items() if getattr(old, one[1]) != getattr(new, one[1]))
    return {name: (_written(getattr(old, field)), _written(getattr(new, field))) for name, field in differing}


def _written(value: object) -> str:
    return "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def live_settings(
    config_map: Mapping[str, str] | None, longhorn: Mapping[str, str], last: LiveSettings = UNREAD
) -> tuple[LiveSettings, tuple[SettingProblem, ...]]:
    """The live settings of a ConfigMap's data, each overridden by Longhorn's Setting of the same name. Pure.

    A mistake opens nothing. `last` stays, and a problem tells of it: for a value that does not parse, is negative or
    beyond all sense; for `enabled` where nobody says it; and for all that is not said while there is no ConfigMap
    (None). What else is not said has its default. Names that were meant to be settings are problems too, everything
    else in the ConfigMap is ignored.
    """
    given = {**(config_map or {}), **{name: longhorn[name] for name in _LIVE if name in longhorn}}
    keeps_all = config_map is None and ENABLED not in given
    defaults = LiveSettings()
    values: dict[str, Any] = {}
    problems = []
    for name, key in _LIVE.items():
        stays, default = getattr(last, key.field), getattr(defaults, key.field)
        if name not in given:
            values[key.field] = stays if keeps_all or name == ENABLED else default
            continue
        try:
            values[key.field] = _parse(given[name], key, default)
        except ValueError as error:
            values[key.field] = stays
            problems.append(SettingProblem(name, given[name][:80], f"{error}; {_in_force(stays)}"))
    if ENABLED not in given:
        where = " because there is no ConfigMap" if config_map is None else ""
        problems.append(SettingProblem(ENABLED, None, f"{NOT_SET}{where}; {_in_force(last.enabled)}"))
    live = LiveSettings(**values)
    if PLACEMENT in given and live.allocation_authority == DISK_SCHEDULER:
        problems.append(SettingProblem(PLACEMENT, given[PLACEMENT][:80], WITHOUT_EFFECT))
    return live, (*problems, *_misnamed(config_map or {}, live))


def setting_notes(config_map: Mapping[str, str] | None) -> tuple[SettingProblem, ...]:
    """The lines of a ConfigMap's data that may be taken out, since the setting does nothing any more. Pure."""
    given = config_map or {}
    return tuple(SettingProblem(name, given[name][:80], text) for name, text in GONE.items() if name in given)


def _in_force(value: object) -> str:
    if value is None:
        return "until it is, every call is answered by an error"
    return f"{_written(value)} stays in force"


def _misnamed(config_map: Mapping[str, str], live: LiveSettings) -> list[SettingProblem]:
    """Names under our prefix that are no settings, or none any more, and those that are misspelt."""
    problems = []
    for name in sorted(config_map.keys() - _LIVE.keys() - GONE.keys()):
        if name in FORMER:
            problems.append(SettingProblem(name, config_map[name][:80], FORMER_TEXTS[live.allocation_authority]))
            continue
        meant = PREFIX + name.lower().replace("_", "-").replace(".", "-").removeprefix(PREFIX)
        if meant in _LIVE:
            problems.append(
                SettingProblem(name, config_map[name][:80], f"is ignored: the name of the setting is {meant}")
            )
        elif name.startswith(PREFIX):
            problems.append(SettingProblem(name, config_map[name][:80], "is not a setting of this version"))
    return problems


def _parse(text: str, key: _Key, default: object) -> bool | int | str:
    if key.choices:
        if text not in key.choices:
            raise ValueError(f"is not one of {', '.join(key.choices)}")
        return text
    return parse_flag(text) if isinstance(default, bool) else parse_integer(text, 0, key.most)


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What the process is started with. Ports and addresses are ours; durations in seconds, sizes in bytes."""

    namespace: str = "longhorn-system"
    pod_name: str = ""
    pod_ip: str = ""
    node_name: str = ""
    kubeconfig: str = ""
    context: str = ""
    extender_address: str = "0.0.0.0"
    extender_port: int = 9504
    endpoint_port: int = 0  # the port that the EndpointSlice names; 0: the extender's own
    grpc_address: str = "0.0.0.0"
    grpc_port: int = 9505
    grpc_endpoint_port: int = 0  # the port that the gRPC Service's EndpointSlice names; 0: the server's own
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 9506
    status_port: int = 9507  # on loopback
    status_tls_port: int = 9508  # on `metrics_address`, for those who may; 0: nowhere
    status_tls_cert_dir: str = ""  # "": the extender's own certificate
    service: str = "longhorn-scheduler-extender"
    config_map: str = "longhorn-scheduler-extender"
    lease: str = "longhorn-manager-disk-scheduler-lock"
    lease_duration_seconds: int = 15
    renew_deadline_seconds: int = 10
    retry_period_seconds: int = 2
    threads: int = 16
    body_limit_bytes: int = 64 * MEBIBYTE
    tls_mode: str = ""  # has to be said: an upgrade must not change what kube-scheduler's file speaks
    tls_cert_dir: str = ""
    tls_secret: str = "longhorn-scheduler-extender-tls"
    tls_client_secret: str = "longhorn-scheduler-extender-client"
    tls_ca_secret: str = "longhorn-scheduler-extender-ca"
    tls_extra_names: str = ""  # with commas
    tls_handshake_seconds: int = 5
    tls_handshakes: int = 256
    webhook_tls_mode: str = "self"
    webhook_service: str = "longhorn-scheduler-webhook"
    webhook_tls_secret: str = "longhorn-scheduler-webhook-tls"
    webhook_client_tls_secret: str = "longhorn-scheduler-webhook-client-tls"
    webhook_ca_secret: str = "longhorn-scheduler-webhook-ca"
    webhook_client_name: str = WEBHOOK_CLIENT  # in the certificate of who may call the leader; empty: any of the chain
    disk_scheduler_clients: str = ""  # with commas: in certificates of those who may ask about disks and allocate
    replica_scheduler_service: str = "longhorn-replica-scheduler"
    replica_scheduler_tls_secret: str = "longhorn-replica-scheduler-tls"
    cluster_domain: str = "cluster.local"
    scheduler_names: str = SCHEDULER_NAMES  # with commas
    excluded_namespaces: str = "kube-system"  # with commas, beside `namespace`
    log_level: str = "info"
    log_format: str = "text"

    def checked(self) -> ProcessSettings:
        """Itself; ConfigError names the first setting that cannot work."""
        require(bool(self.namespace), "namespace", "is empty")
        require(
            bool(self.pod_name), "--pod-name or POD_NAME", "is not set: it is this process's identity in the election"
        )
        require(_is_address(self.pod_ip), "--pod-ip or POD_IP", f"is not an IP address: {self.pod_ip!r}")
        for name in ("extender_port", "grpc_port", "metrics_port", "status_port"):
            require_port(getattr(self, name), name)
        for name in ("endpoint_port", "grpc_endpoint_port", "status_tls_port"):
            if getattr(self, name):
                require_port(getattr(self, name), name)
        require(
            bool(self.status_tls_port) or not self.status_tls_cert_dir,
            "status_tls_cert_dir",
            "is for --status-tls-port, which is 0",
        )
        require(0 < self.retry_period_seconds, "retry_period_seconds", "is not positive")
        require(
            self.retry_period_seconds < self.renew_deadline_seconds,
            "retry_period_seconds",
            f"is not below --renew-deadline-seconds ({self.renew_deadline_seconds})",
        )
        require(
            self.renew_deadline_seconds < self.lease_duration_seconds,
            "renew_deadline_seconds",
            f"is not below --lease-duration-seconds ({self.lease_duration_seconds})",
        )
        require(
            self.lease_duration_seconds <= LONGEST_LEASE_SECONDS,
            "lease_duration_seconds",
            f"is more than {LONGEST_LEASE_SECONDS}",
        )
        require(1 <= self.threads <= 256, "threads", "is not between 1 and 256")
        require(self.body_limit_bytes >= MEBIBYTE, "body_limit_bytes", "is below 1 MiB")
        self._check_tls()
        for name in ("webhook_service", "replica_scheduler_service"):
            require(0 < len(getattr(self, name)) < 64, name, "is not a Service's name")
        require(bool(self.scheduler_names.strip(", ")), "scheduler_names", "names no scheduler")
        require(
            self.log_level in ("debug", "info", "warning", "error"),
            "log_level",
            "is not one of debug, info, warning, error",
        )
        require(self.log_format in ("text", "json"), "log_format", "is neither text nor json")
        return self

    def _check_tls(self) -> None:
        modes = (*CERTIFICATE_MODES, PLAIN_HTTP)
        require(
            bool(self.tls_mode),
            "tls_mode",
            f"is not set: give {', '.join(CERTIFICATE_MODES)} or {PLAIN_HTTP}, the default of earlier releases",
        )
        require(self.tls_mode in modes, "tls_mode", f"is not one of {', '.join(modes)}: {self.tls_mode!r}")
        require(
            not self.tls_cert_dir or self.tls_mode in ("cert-manager", "provided"),
            "tls_cert_dir",
            f"is only for --tls-mode cert-manager and provided, not {self.tls_mode}",
        )
        modes = (*CERTIFICATE_MODES, TLS_OFF)
        require(self.webhook_tls_mode in modes, "webhook_tls_mode", f"is not one of {', '.join(modes)}")
        require(
            self.webhook_tls_mode != "self" or self.webhook_client_name in ("", WEBHOOK_CLIENT),
            "webhook_client_name",
            f"has to be {WEBHOOK_CLIENT} in mode self",
        )
        require(
            self.webhook_client_name not in [name.strip() for name in self.disk_scheduler_clients.split(",") if name],
            "disk_scheduler_clients",
            f"names {self.webhook_client_name}, the webhook's name, which may only ask about expansions",
        )
        secrets = [getattr(self, name) for name in _SECRETS]
        require(
            all(secrets) and len(set(secrets)) == len(secrets),
            "tls_secret",
            "needs a name that no other Secret has",
        )
        require(1 <= self.tls_handshake_seconds <= 60, "tls_handshake_seconds", "is not between 1 and 60")
        require(1 <= self.tls_handshakes <= 900, "tls_handshakes", "is not between 1 and 900")


def require(is_right: bool, name: str, problem: str) -> None:
    """ConfigError unless `is_right`; it names the flag of that field, or what `name` says by itself."""
    if not is_right:
        raise ConfigError(f"{name if name.startswith('--') else flag_of(name)}: {problem}")


def is_port(number: int) -> bool:
    return 0 < number <= MOST_PORT


def require_port(number: int, name: str) -> None:
    """ConfigError, as by `require`, unless one can listen on it."""
    require(is_port(number), name, f"is not a port: {number}")


def flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
