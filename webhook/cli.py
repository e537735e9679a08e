"""The command of the webhook's process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from controller.process.command_line import run_command, version_flag
from controller.process.flags import ACCESS, CONTEXT, chosen_settings, flags
from controller.process.logs import configure_logging
from controller.settings import TLS_OFF
from webhook.settings import WebhookSettings

ENVIRONMENT: Final = {"namespace": "POD_NAMESPACE"}
_HELP: Final = {
    "namespace": "namespace of Longhorn, the ConfigMap and the Secrets; its pods never opt in (environment: "
    "POD_NAMESPACE)",
    "kubeconfig": ACCESS,
    "context": CONTEXT,
    "address": "address on which the webhook listens for the API server",
    "port": "port on which the webhook listens for the API server",
    "metrics_address": "address on which metrics and health probes are served",
    "metrics_port": "port on which metrics and health probes are served",
    "status_port": "port on loopback on which the status document is served",
    "config_map": "ConfigMap with the live settings",
    "threads": "number of reviews that are answered at the same time",
    "live_reads_per_second": "most objects per second that are read from the API server for reviews",
    "body_limit_bytes": "largest request body, in bytes",
    "drain_seconds": "seconds for which the webhook still answers once it is told to end",
    "tls_mode": "who makes the certificates: self, cert-manager or provided",
    "tls_cert_dir": "directory with tls.crt and tls.key, instead of --tls-secret",
    "tls_client_cert_dir": "directory with tls.crt, tls.key and ca.crt for calls to the leader, instead of "
    "--tls-client-secret",
    "tls_secret": "Secret with the server's certificate",
    "tls_client_secret": "Secret with the client certificate for calls to the leader",
    "client_ca_file": "PEM file with the authorities of the API server's client certificate (default: none is "
    "required)",
    "leader_address": "HOST:PORT of the leader's gRPC server (default: its Service)",
    "tls_handshake_seconds": "seconds after which an unfinished TLS handshake is closed",
    "tls_handshakes": "largest number of TLS handshakes at the same time",
    "scheduler_names": "names of the schedulers whose pods are opted in, separated by commas",
    "excluded_namespaces": "namespaces, besides Longhorn's, whose pods never opt in, separated by commas",
    "log_level": "debug, info, warning or error",
    "log_format": "text or json",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the process's exit code."""
    return run_command(program, arguments)


def webhook_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> WebhookSettings:
    """Flags first, then the environment, then the defaults; checked together, ConfigError names what cannot work."""
    return chosen_settings(WebhookSettings, options, environment, ENVIRONMENT).checked()


def _run(**options: Any) -> int:
    # First, so that the log has what is wrong with the other flags.
    configure_logging(options["log_level"] or "info", options["log_format"] or "text")
    settings = webhook_settings(options, os.environ)
    # After the line above.
    from controller.kube.api import ClientKubeApi
    from controller.serving.server import ServerOptions, serve
    from controller.serving.tls import ServerTls
    from webhook.assemble import Webhook

    ClientKubeApi.load(settings.kubeconfig, settings.context)  # what is wrong with it is said here, not in the worker
    tls = ServerTls(lets_anybody_in=not settings.client_ca_file) if settings.tls_mode != TLS_OFF else None
    server = ServerOptions(
        settings.address,
        settings.port,
        threads=settings.threads,
        body_limit_bytes=settings.body_limit_bytes,
        tls=tls,
        handshake_seconds=settings.tls_handshake_seconds,
        handshakes=settings.tls_handshakes,
        name="longhorn-scheduler-webhook",
        drain_seconds=settings.drain_seconds,
    )
    parts = partial(Webhook, tls=tls, serving=server.deadlines.workers, crowded=server.held.refused)
    serve(server, lambda: parts(settings, ClientKubeApi.load(settings.kubeconfig, settings.context)))
    return 0


run = click.Command(
    "run",
    params=flags(WebhookSettings(), _HELP),
    callback=_run,
    help="Run the webhook, which answers the API server.",
)
program = click.Group(
    "longhorn-scheduler-webhook",
    commands=[run],
    params=[version_flag()],
    help="Opts pods with Longhorn volumes in to the scheduler extender, and checks expansions of such volumes.",
)
