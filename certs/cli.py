"""`certs`: show, check and renew certificates, those of the extender and those of the webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import click

from certs.authority import CertificateFacts
from certs.evidence import PublishedBundles
from certs.keeper import CertificateMode, extender_plan
from certs.managed import ManagedChain, span
from certs.secret import SecretStore
from certs.webhook import webhook_plan
from controller.clock import Clock, SystemClock
from controller.errors import ConfigError, ForbiddenError
from controller.kube.api import ClientKubeApi, KubeApi, find
from controller.kube.resources import NAMESPACES
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.process.flags import access, namespace

NAME: Final = "longhorn-scheduler-extender"
WEBHOOK_NAME: Final = "longhorn-scheduler-webhook"
REPLICA_SCHEDULER: Final = "longhorn-replica-scheduler"
EXTENDER, WEBHOOK, ALL = "extender", "webhook", "all"
OFF: Final = "off"
_EPILOG: Final = "Flags without a text are those of the controller of the same name."
_AS_THE_CONTROLLERS: Final = {
    "--service": NAME,
    "--tls-secret": f"{NAME}-tls",
    "--tls-client-secret": f"{NAME}-client",
    "--tls-ca-secret": f"{NAME}-ca",
    "--webhook-service": WEBHOOK_NAME,
    "--webhook-tls-secret": f"{WEBHOOK_NAME}-tls",
    "--webhook-client-tls-secret": f"{WEBHOOK_NAME}-client-tls",
    "--webhook-ca-secret": f"{WEBHOOK_NAME}-ca",
    "--replica-scheduler-service": REPLICA_SCHEDULER,
    "--replica-scheduler-tls-secret": f"{REPLICA_SCHEDULER}-tls",
    "--cluster-domain": "cluster.local",
}


@dataclass(frozen=True, slots=True)
class Tools:
    """What the command works with: the way to the API server, the clock and its output."""

    connect: Callable[[str, str], KubeApi] = ClientKubeApi.load
    clock: Clock = field(default_factory=SystemClock)
    say: Callable[[str], None] = click.echo

    def now(self) -> datetime:
        return self.clock.now_utc()

    def chains(self, kubeconfig: str, context: str, options: Mapping[str, Any]) -> list[ManagedChain]:
        api = self.connect(kubeconfig, context)
        _check_namespace(api, options["namespace"])
        return _chains(SimpleNamespace(**options), api)


def _tools(context: click.Context) -> Tools:
    return context.obj or Tools()


def _show(chains: Sequence[ManagedChain], now: datetime, say: Callable[[str], None]) -> int:
    say(f"{'NAME':<26} {'ENDS IN':>9}  {'ENDS':<20} {'FINGERPRINT':<16} SUBJECT, NAMES")
    for chain in chains:
        for name, facts in chain.facts().items():
            say(_line(name, facts, now))
        for problem in chain.problems:
            say(f"problem: {problem}")
    return EXIT_WELL


def _check(chains: Sequence[ManagedChain], now: datetime, warn: timedelta, say: Callable[[str], None]) -> int:
    findings = [finding for chain in chains for finding in chain.findings(now, warn)]
    for line in findings or ["all certificates are in order"]:
        say(line)
    return EXIT_FINDING if findings else EXIT_WELL


def _renew(
    chains: Sequence[ManagedChain], asked_for: Mapping[str, bool], now: datetime, say: Callable[[str], None]
) -> int:
    if any(asked_for.values()) and len(chains) > 1:
        raise ConfigError("--chain: name the chain to renew, extender or webhook")
    steps = [str(step) for chain in chains for step in chain.renew(now, **asked_for)]
    for line in steps or ["nothing is due"]:
        say(line)
    return EXIT_WELL


def _check_namespace(api: KubeApi, namespace: str) -> None:
    """ConfigError where there is no such namespace, as far as that may be asked."""
    with suppress(ForbiddenError):
        if find(api, NAMESPACES, None, namespace) is None:
            raise ConfigError(f"--namespace: there is no namespace {namespace}")


def _chains(options: Any, api: KubeApi) -> list[ManagedChain]:
    """The chains that are asked about. `options`: the parsed flags, which are named as the controller's."""
    store, chains = SecretStore(api, options.namespace), []
    if options.chain in (EXTENDER, ALL) and options.mode != OFF:
        chains.append(ManagedChain(store, extender_plan(store, options), CertificateMode(options.mode)))
    if options.chain in (WEBHOOK, ALL) and options.webhook_mode != OFF:
        mode, published = CertificateMode(options.webhook_mode), PublishedBundles(api)
        chains.append(ManagedChain(store, webhook_plan(options), mode, published))
    return chains


def _line(name: str, facts: CertificateFacts, now: datetime) -> str:
    names = ", ".join(sorted(facts.names))
    left, end = span(facts.remaining(now)), f"{facts.not_after_utc:%Y-%m-%d %H:%M:%S}"
    return f"{name:<26} {left:>9}  {end:<20} {facts.fingerprint[:16]} {facts.subject}" + (f"; {names}" if names else "")


def _about_chains(command: Any) -> Any:
    """The flags that say which certificates are meant."""
    modes = click.Choice([*(mode.value for mode in CertificateMode), OFF])
    for flag, default in reversed(_AS_THE_CONTROLLERS.items()):
        command = click.option(flag, default=default, show_default=True)(command)
    names = "additional names of the extender's server, separated by commas"
    command = click.option("--tls-extra-names", default="", help=names)(command)
    for kind in ("webhook-", ""):
        text = f"--{kind}tls-mode of the controller"
        option = click.option(
            f"--{kind}mode", type=modes, default=CertificateMode.SELF.value, show_default=True, help=text
        )
        command = option(command)
    of_chain = click.Choice([EXTENDER, WEBHOOK, ALL])
    command = click.option("--chain", type=of_chain, default=ALL, show_default=True, help="the chain of certificates")(
        command
    )
    return access(namespace(command))


@click.group("certs")
def command() -> None:
    """Show, check and renew the certificates."""


@command.command("show", epilog=_EPILOG)
@_about_chains
@click.pass_context
def show_command(caller: click.Context, /, kubeconfig: str, context: str, **options: Any) -> int:
    """List the certificates and when they end."""
    tools = _tools(caller)
    return _show(tools.chains(kubeconfig, context, options), tools.now(), tools.say)


@command.command("check", epilog=_EPILOG)
@_about_chains
@click.option(
    "--warn-days",
    type=float,
    default=14.0,
    show_default=True,
    help="report certificates that end within so many days",
)
@click.pass_context
def check_command(caller: click.Context, /, kubeconfig: str, context: str, warn_days: float, **options: Any) -> int:
    """Exit with 1 if a certificate is wrong, overdue for renewal or about to end."""
    tools = _tools(caller)
    return _check(tools.chains(kubeconfig, context, options), tools.now(), timedelta(days=warn_days), tools.say)


@command.command("renew", epilog=_EPILOG)
@_about_chains
@click.option("--server", "servers", is_flag=True, help="renew the servers' certificates of --chain")
@click.option("--client", "clients", is_flag=True, help="renew the client's certificate of --chain")
@click.option("--next-ca", is_flag=True, help="make the next authority, which is trusted but does not sign yet")
@click.option("--promote", is_flag=True, help="let the next authority sign from now on")
@click.pass_context
def renew_command(caller: click.Context, /, kubeconfig: str, context: str, **options: Any) -> int:
    """Renew what is due, as the leader does by itself, and what the flags name."""
    tools = _tools(caller)
    asked_for = {name: options.pop(name) for name in ("servers", "clients", "next_ca", "promote")}
    return _renew(tools.chains(kubeconfig, context, options), asked_for, tools.now(), tools.say)
