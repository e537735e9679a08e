"""`check`: tries an installation out."""

from __future__ import annotations

import click

from controller.clock import SystemClock
from controller.errors import ConfigError
from controller.model.names import DEFAULT_SCHEDULER
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.process.flags import PORT, access, config_map, namespace
from controller.settings import ProcessSettings, is_port

_DEFAULTS = ProcessSettings()


@click.command("check")
@access
@namespace
@config_map
@click.option("--wait-seconds", type=int, metavar="N", default=60, show_default=True, help="how long to wait at most")
@click.option("--test-namespace", default="default", show_default=True, help="namespace of the test pod")
@click.option("--scheduler-name", default=DEFAULT_SCHEDULER, show_default=True, help="scheduler of the test pod")
@click.option("--service", default=_DEFAULTS.service, show_default=True, help="the extender's Service")
@click.option(
    "--service-port", type=PORT, default=_DEFAULTS.extender_port, show_default=True, help="port of the Service"
)
@click.option("--extender-address", help="HOST:PORT of the extender, instead of --service and --service-port")
@click.option(
    "--client-secret",
    default=_DEFAULTS.tls_client_secret,
    show_default=True,
    help="Secret with kube-scheduler's client certificate",
)
@click.option("--insecure-plain-http", is_flag=True, help="the extender serves plain HTTP")
def command(
    kubeconfig: str,
    context: str,
    namespace: str,
    config_map: str,
    wait_seconds: int,
    test_namespace: str,
    scheduler_name: str,
    service: str,
    service_port: int,
    extender_address: str | None,
    client_secret: str,
    *,
    insecure_plain_http: bool,
) -> int:
    """Find out what is wrong with an installation.

    Tries the webhook and its way to the leader (by dry runs), the extender, and the gate.
    """
    from controller.installation.check import CheckTarget, check_installation
    from controller.kube.api import ClientKubeApi

    server_name = f"{service}.{namespace}.svc"
    address = extender_address or f"{server_name}:{service_port}"
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and is_port(int(port))):
        raise ConfigError(f"--extender-address: is not HOST:PORT: {address!r}")
    target = CheckTarget(
        namespace,
        test_namespace,
        scheduler_name,
        address,
        server_name,
        "" if insecure_plain_http else client_secret,
        config_map,
    )
    are_well = True
    api = ClientKubeApi.load(kubeconfig, context)
    for found in check_installation(api, SystemClock(), target, wait_seconds=wait_seconds):
        click.echo(found.line)
        are_well &= found.is_well
    return EXIT_WELL if are_well else EXIT_FINDING
