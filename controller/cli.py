"""Commands: `run` serves, `status` asks a running process, `render-scheduler-config` prints files,
`check-installation` tries the installation out, `remove-webhooks` empties the webhook configurations,
`prepare-uninstall` comes before the objects are deleted.

Exit codes are decided here and nowhere else.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from controller.clock import SystemClock
from controller.errors import ClusterError, ConfigError
from controller.model.names import DEFAULT_SCHEDULER
from controller.process.flags import ACCESS, CONTEXT, add_access, add_flags, add_version, chosen_settings
from controller.process.logs import configure_logging
from controller.scheduler_config import command as scheduler_config
from controller.settings import PLAIN_HTTP, ProcessSettings, require

EXIT_CONFIG: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_PODS_WAIT: Final = 4
EXIT_CHECK_FAILED: Final = 5
REMOVE_WEBHOOKS: Final = "remove-webhooks"
PREPARE_UNINSTALL: Final = "prepare-uninstall"
CHECK_INSTALLATION: Final = "check-installation"
WAIT_SECONDS: Final = 60
ENVIRONMENT: Final = {
    "pod_name": "POD_NAME",
    "pod_ip": "POD_IP",
    "node_name": "NODE_NAME",
    "namespace": "POD_NAMESPACE",
}
_HELP: Final = {
    "namespace": "namespace of Longhorn, and of the Lease, the ConfigMap and the Services (environment: POD_NAMESPACE)",
    "pod_name": "name of this pod, its identity in the leader election (environment: POD_NAME; required)",
    "pod_ip": "IP address of this pod, for the EndpointSlices (environment: POD_IP; required)",
    "node_name": "node of this pod (environment: NODE_NAME)",
    "kubeconfig": ACCESS,
    "context": CONTEXT,
    "extender_address": "address on which the extender listens for kube-scheduler",
    "extender_port": "port on which the extender listens for kube-scheduler",
    "endpoint_port": "port in the extender's EndpointSlice (default: --extender-port)",
    "grpc_address": "address on which the gRPC server listens",
    "grpc_port": "port on which the gRPC server listens",
    "grpc_endpoint_port": "port in the gRPC server's EndpointSlice (default: --grpc-port)",
    "metrics_address": "address on which metrics and health probes are served",
    "metrics_port": "port on which metrics and health probes are served",
    "status_port": "port on loopback on which the status document is served",
    "status_tls_port": "port on the network on which the status document is served over TLS, to callers whose token "
    "may get it; needs --status-tls-cert-dir (default: no such port)",
    "status_tls_cert_dir": "directory with tls.crt and tls.key for --status-tls-port",
    "service": "the extender's Service, without a selector; the leader points it at itself",
    "config_map": "ConfigMap with the live settings",
    "lease": "Lease for the leader election",
    "lease_duration_seconds": "seconds without a renewal after which another copy may lead",
    "renew_deadline_seconds": "seconds without a renewal after which the leader stops answering",
    "retry_period_seconds": "seconds between two attempts to renew the Lease",
    "threads": "number of calls that are served at the same time",
    "body_limit_bytes": "largest request body, in bytes",
    "tls_mode": "who makes the certificates: self, cert-manager or provided; with insecure-plain-http there is no TLS, "
    "and whoever reaches the port is taken for kube-scheduler (required)",
    "tls_cert_dir": "directory with tls.crt, tls.key and ca.crt, instead of --tls-secret",
    "tls_secret": "Secret with the server's certificate",
    "tls_client_secret": "Secret with kube-scheduler's client certificate",
    "tls_ca_secret": "Secret with the certificate authority, for --tls-mode self",
    "tls_extra_names": "additional DNS names and IP addresses in the server's certificate, separated by commas, for "
    "--tls-mode self",
    "tls_handshake_seconds": "seconds after which an unfinished TLS handshake is closed",
    "tls_handshakes": "largest number of TLS handshakes at the same time",
    "webhook_tls_mode": "who makes the certificates of the webhook and the gRPC server: self, cert-manager or "
    "provided; off: there is no webhook",
    "webhook_service": "the webhook's Service, which its certificate names",
    "webhook_tls_secret": "Secret with the webhook's server certificate",
    "webhook_client_tls_secret": "Secret with the webhook's client certificate for calls to the leader",
    "webhook_ca_secret": "Secret with the webhook's certificate authority, for --webhook-tls-mode self",
    "webhook_client_name": "name in a client certificate that may ask about expansions; empty: every client "
    "certificate of the authority may",
    "disk_scheduler_clients": "names in client certificates that may ask which disks take a replica and allocate room "
    "on them, separated by commas",
    "replica_scheduler_service": "the gRPC server's Service, without a selector; the leader points it at itself",
    "replica_scheduler_tls_secret": "Secret with the gRPC server's certificate",
    "cluster_domain": "DNS domain of the cluster",
    "excluded_namespaces": "namespaces, besides Longhorn's, whose pods never opt in, separated by commas",
    "scheduler_names": "names of the schedulers that ask the extender, separated by commas; the leader checks that "
    "each of them does",
    "log_level": "debug, info, warning or error",
    "log_format": "text or json",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the process's exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(process_settings(vars(options), os.environ))
        if options.command == scheduler_config.NAME:
            return _render(options)
        if options.command == REMOVE_WEBHOOKS:
            return _remove_webhooks(options)
        if options.command == PREPARE_UNINSTALL:
            return _prepare_uninstall(options)
        if options.command == CHECK_INSTALLATION:
            return _check_installation(options)
        return _status(options.status_port)
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return EXIT_CONFIG


def process_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> ProcessSettings:
    """The settings by the flags, else the environment, else the defaults; ConfigError names what cannot work."""
    return chosen_settings(ProcessSettings, options, environment, ENVIRONMENT).checked()


def _run(settings: ProcessSettings) -> int:
    configure_logging(settings.log_level, settings.log_format)
    # Only this command needs the server and the client library; `status` starts without them. After the line above.
    from controller.assembly.assemble import Controller
    from controller.kube.api import ClientKubeApi
    from controller.serving.server import ServerOptions, serve
    from controller.serving.tls import ServerTls

    ClientKubeApi.load(settings.kubeconfig, settings.context)  # what is wrong with it is said here, not in a worker
    # One identity for the life of the pod's process: a worker that is started again takes its own Lease up at once. Two
    # workers never live at the same time (controller.serving.server).
    identity = f"{settings.pod_name}_{secrets.token_hex(4)}"
    tls = ServerTls() if settings.tls_mode != PLAIN_HTTP else None
    options = ServerOptions(
        settings.extender_address,
        settings.extender_port,
        threads=settings.threads,
        body_limit_bytes=settings.body_limit_bytes,
        tls=tls,
        handshake_seconds=settings.tls_handshake_seconds,
        handshakes=settings.tls_handshakes,
    )
    serving, held = options.deadlines.workers, options.held
    # The process of the server itself, so that the kubelet sees its end: a worker alone would be replaced at once.
    end = partial(os.kill, os.getpid(), signal.SIGTERM)

    def build() -> Controller:
        api = ClientKubeApi.load(settings.kubeconfig, settings.context)
        return Controller(settings, identity, api, tls=tls, serving=serving, crowded=held.refused, end_process=end)

    serve(options, build)
    return 0


def _status(port: int) -> int:
    require(0 < port < 65_536, "status_port", f"is not a port: {port}")
    url = f"http://127.0.0.1:{port}/status"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # a fixed scheme, to this machine
            document = json.load(response)
    except (urllib.error.URLError, OSError, ValueError) as error:
        problem = getattr(getattr(error, "reason", error), "strerror", None) or error
        print(f"{url}: {problem}. Run this in a pod of the suite, with its --status-port", file=sys.stderr)
        return EXIT_UNREACHABLE
    json.dump(document, sys.stdout, indent=2)
    print()
    return 0


def _render(options: argparse.Namespace) -> int:
    from certs.authority import check_client

    def tell(note: str) -> None:
        print(f"note: {note}", file=sys.stderr, flush=True)

    check = partial(check_client, now_utc=SystemClock().now_utc())
    rendered = scheduler_config.render(options, tell, check)
    for note in rendered.notes:
        tell(note)
    sys.stdout.write(scheduler_config.printed(rendered, options.output))
    return 0


def _remove_webhooks(options: argparse.Namespace) -> int:
    # Only `run` and this command need the client library.
    from controller.installation.uninstall import remove_webhooks
    from controller.kube.api import ClientKubeApi

    try:
        api = ClientKubeApi.load(options.kubeconfig, options.context)
        done = remove_webhooks(api, SystemClock(), _namespace(options), options.config_map)
    except ClusterError as error:
        print(f"the webhook configurations were not emptied: the API server: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    for line in done:
        print(line)
    return 0


def _prepare_uninstall(options: argparse.Namespace) -> int:
    from controller.installation.uninstall import PodsWaitError, prepare_uninstall
    from controller.kube.api import ClientKubeApi

    settings = replace(
        ProcessSettings(),
        namespace=_namespace(options),
        config_map=options.config_map,
        tls_mode=options.tls_mode,
        webhook_tls_mode=options.webhook_tls_mode,
        scheduler_names=options.scheduler_names,
    )
    done = prepare_uninstall(
        ClientKubeApi.load(options.kubeconfig, options.context),
        SystemClock(),
        settings,
        wait_seconds=options.wait_seconds,
        is_forced=options.force,
        purges=options.purge,
    )
    try:
        for line in done:
            print(line, flush=True)
    except PodsWaitError as error:
        print(f"not ready for an uninstallation: {error}", file=sys.stderr)
        return EXIT_PODS_WAIT
    except ClusterError as error:
        print(f"not ready for an uninstallation: the API server: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    return 0


def _check_installation(options: argparse.Namespace) -> int:
    from controller.installation.check import CheckTarget, check_installation
    from controller.kube.api import ClientKubeApi

    namespace = _namespace(options)
    require(0 < options.service_port < 65_536, "service_port", f"is not a port: {options.service_port}")
    server_name = f"{options.service}.{namespace}.svc"
    address = options.extender_address or f"{server_name}:{options.service_port}"
    host, _, port = address.rpartition(":")
    is_port = port.isdecimal() and 0 < int(port) < 65_536
    require(bool(host) and is_port, "extender_address", f"is not HOST:PORT: {address!r}")
    target = CheckTarget(
        namespace,
        options.test_namespace,
        options.scheduler_name,
        address,
        server_name,
        "" if options.insecure_plain_http else options.client_secret,
        options.config_map,
    )
    are_well = True
    api = ClientKubeApi.load(options.kubeconfig, options.context)
    for found in check_installation(api, SystemClock(), target, wait_seconds=options.wait_seconds):
        print(found.line, flush=True)
        are_well &= found.is_well
    return 0 if are_well else EXIT_CHECK_FAILED


def _namespace(options: argparse.Namespace) -> str:
    return options.namespace or os.environ.get(ENVIRONMENT["namespace"]) or ProcessSettings().namespace


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="longhorn-scheduler-extender",
        description="Keeps kube-scheduler from choosing nodes without room for a pod's Longhorn volumes.",
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the controller, which answers kube-scheduler while it leads")
    defaults = ProcessSettings()
    add_flags(run, defaults, _HELP)
    status = commands.add_parser("status", help="print the status document of the process in this pod")
    text = "its port on loopback (default: %(default)s)"
    status.add_argument("--status-port", type=int, metavar="N", default=defaults.status_port, help=text)
    remove = commands.add_parser(
        REMOVE_WEBHOOKS, help="switch the extender off, let Longhorn place, and empty the webhook configurations"
    )
    prepare = commands.add_parser(
        PREPARE_UNINSTALL,
        help="run before an uninstallation: like remove-webhooks, and wait for pods that request the extender's "
        "resource; objects that the leader made are then deleted with its ServiceAccount",
    )
    check = commands.add_parser(
        CHECK_INSTALLATION,
        help="test an installation: the webhook and its way to the leader (by dry runs), the extender, and the gate",
    )
    of_longhorn = f"Longhorn's namespace (environment: POD_NAMESPACE) (default: {defaults.namespace})"
    config_map = "ConfigMap with the live settings (default: %(default)s)"
    for command in (remove, prepare, check):
        add_access(command)
        command.add_argument("--namespace", metavar="NAME", help=of_longhorn)
        command.add_argument("--config-map", metavar="NAME", default=defaults.config_map, help=config_map)
    for command in (prepare, check):
        text = "how long to wait at most (default: %(default)s)"
        command.add_argument("--wait-seconds", type=int, metavar="N", default=WAIT_SECONDS, help=text)
    modes = ("self", "cert-manager", "provided")
    same = "as the controller runs with (default: %(default)s)"
    prepare.add_argument("--tls-mode", choices=(*modes, PLAIN_HTTP), default="self", help=same)
    prepare.add_argument("--webhook-tls-mode", choices=(*modes, "off"), default="self", help=same)
    prepare.add_argument("--scheduler-names", default=defaults.scheduler_names, help=same)
    prepare.add_argument("--force", action="store_true", help="continue even if such pods are still pending")
    prepare.add_argument("--purge", action="store_true", help="delete the certificate authorities' Secrets too")
    check.add_argument("--test-namespace", default="default", help="namespace of the test pod (default: %(default)s)")
    check.add_argument(
        "--scheduler-name", default=DEFAULT_SCHEDULER, help="scheduler of the test pod (default: %(default)s)"
    )
    check.add_argument("--service", default=defaults.service, help="the extender's Service (default: %(default)s)")
    check.add_argument(
        "--service-port", type=int, default=defaults.extender_port, help="port of the Service (default: %(default)s)"
    )
    check.add_argument("--extender-address", help="HOST:PORT of the extender, instead of --service and --service-port")
    check.add_argument(
        "--client-secret",
        default=defaults.tls_client_secret,
        help="Secret with kube-scheduler's client certificate (default: %(default)s)",
    )
    check.add_argument("--insecure-plain-http", action="store_true", help="the extender serves plain HTTP")
    scheduler_config.add_parser(commands)
    return parser
