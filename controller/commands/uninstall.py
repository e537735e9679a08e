"""`remove-webhooks` and `prepare-uninstall`: what comes before the product's objects are deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from controller.clock import SystemClock
from controller.errors import ClusterError
from controller.process.command_line import EXIT_FINDING, EXIT_UNREACHABLE, EXIT_WELL, failed
from controller.process.flags import access, config_map, namespace
from controller.settings import PLAIN_HTTP, ProcessSettings

WAIT_SECONDS = 60
_MODES = ("self", "cert-manager", "provided")
_SAME = "as the controller runs with"


@click.command("remove-webhooks")
@access
@namespace
@config_map
def remove_webhooks(kubeconfig: str, context: str, namespace: str, config_map: str) -> int:
    """Let Longhorn place alone, with no webhooks.

    Switches the extender off, and empties the webhook configurations.
    """
    from controller.installation import uninstall
    from controller.kube.api import ClientKubeApi

    try:
        api = ClientKubeApi.load(kubeconfig, context)
        done = uninstall.remove_webhooks(api, SystemClock(), namespace, config_map)
    except ClusterError as error:
        return failed(f"the webhook configurations were not emptied: the API server: {error}", EXIT_UNREACHABLE)
    for line in done:
        click.echo(line)
    return EXIT_WELL


@click.command("prepare-uninstall")
@access
@namespace
@config_map
@click.option("--wait-seconds", type=int, metavar="N", default=WAIT_SECONDS, show_default=True, help="At most.")
@click.option("--tls-mode", type=click.Choice((*_MODES, PLAIN_HTTP)), default="self", show_default=True, help=_SAME)
@click.option("--webhook-tls-mode", type=click.Choice((*_MODES, "off")), default="self", show_default=True, help=_SAME)
@click.option("--scheduler-names", default=ProcessSettings().scheduler_names, show_default=True, help=_SAME)
@click.option("--force", is_flag=True, help="continue even if such pods are still pending")
@click.option("--purge", is_flag=True, help="delete the certificate authorities' Secrets too")
def prepare_uninstall(
    kubeconfig: str, context: str, wait_seconds: int, *, force: bool, purge: bool, **options: Any
) -> int:
    """Prepare an uninstallation.

    As remove-webhooks, and it waits for pods that request the extender's resource. Objects that the leader made are
    then deleted with its ServiceAccount.
    """
    from controller.installation import uninstall
    from controller.kube.api import ClientKubeApi

    settings = replace(ProcessSettings(), **options)
    api = ClientKubeApi.load(kubeconfig, context)
    done = uninstall.prepare_uninstall(
        api, SystemClock(), settings, wait_seconds=wait_seconds, is_forced=force, purges=purge
    )
    try:
        for line in done:
            click.echo(line)
    except uninstall.PodsWaitError as error:
        return failed(f"not ready for an uninstallation: {error}", EXIT_FINDING)
    except ClusterError as error:
        return failed(f"not ready for an uninstallation: the API server: {error}", EXIT_UNREACHABLE)
    return EXIT_WELL
