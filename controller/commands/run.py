"""`run`: the controller, which answers kube-scheduler while it leads."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from controller.process.flags import ACCESS, CONTEXT, NAMESPACE_VARIABLE, chosen_settings, flags
from controller.process.logs import configure_logging
from controller.settings import PLAIN_HTTP, ProcessSettings

if TYPE_CHECKING:
    from controller.assembly.assemble import Controller

ENVIRONMENT: Final = {
    "pod_name": "POD_NAME",
    "pod_ip": "POD_IP",
    "node_name": "NODE_NAME",
    "namespace": NAMESPACE_VARIABLE,
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
    "status_tls_port": "port on the network on which the status port's documents are served over TLS, to callers whose "
    "token may get them; 0: nowhere",
    "status_tls_cert_dir": "directory with tls.crt and tls.key for --status-tls-port, and ca.crt for its callers "
    "(default: the extender's certificate; without TLS there, no such port)",
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


def process_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> ProcessSettings:
    """The settings by the flags, else the environment, else the defaults; ConfigError names what cannot work."""
    return chosen_settings(ProcessSettings, options, environment, ENVIRONMENT).checked()


def _run(**options: Any) -> int:
    # First, so that the log has what is wrong with the other flags.
    configure_logging(options["log_level"] or "info", options["log_format"] or "text")
    settings = process_settings(options, os.environ)
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
    server = ServerOptions(
        settings.extender_address,
        settings.extender_port,
        threads=settings.threads,
        body_limit_bytes=settings.body_limit_bytes,
        tls=tls,
        handshake_seconds=settings.tls_handshake_seconds,
        handshakes=settings.tls_handshakes,
    )
    serving, held = server.deadlines.workers, server.held
    # The process of the server itself, so that the kubelet sees its end: a worker alone would be replaced at once.
    end = partial(os.kill, os.getpid(), signal.SIGTERM)

    def build() -> Controller:
        api = ClientKubeApi.load(settings.kubeconfig, settings.context)
        return Controller(settings, identity, api, tls=tls, serving=serving, crowded=held.refused, end_process=end)

    serve(server, build)
    return 0


command = click.Command(
    "run",
    params=flags(ProcessSettings(), _HELP),
    callback=_run,
    help="Run the controller.\n\nIt answers kube-scheduler while it leads.",
)
