"""`python -m certs`: show, check and renew certificates, those of the extender and those of the webhook.

Exit codes are decided here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from certs.authority import CertificateFacts
from certs.evidence import PublishedBundles
from certs.keeper import CertificateMode, extender_plan
from certs.managed import ManagedChain, span
from certs.secret import SecretStore
from certs.webhook import webhook_plan
from controller.clock import Clock, SystemClock
from controller.errors import ClusterError, ConfigError, ForbiddenError
from controller.kube.api import ClientKubeApi, KubeApi, find
from controller.kube.resources import NAMESPACES
from controller.process.flags import add_access, add_version

EXIT_WELL: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_MISUSE: Final = 2
EXIT_CLUSTER: Final = 3
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


def main(
    arguments: Sequence[str] | None = None,
    *,
    connect: Callable[[str, str], KubeApi] = ClientKubeApi.load,
    clock: Clock | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Run the command; the process's exit code."""
    options = _parser().parse_args(arguments)
    now = (clock or SystemClock()).now_utc()
    try:
        api = connect(options.kubeconfig, options.context)
        _check_namespace(api, options.namespace)
        chains = _chains(options, api)
        match options.command:
            case "show":
                return _show(chains, now, say)
            case "check":
                return _check(chains, now, timedelta(days=options.warn_days), say)
            case _:
                return _renew(chains, options, now, say)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_MISUSE
    except ClusterError as error:
        sys.stderr.write(f"the API server: {error}\n")
        return EXIT_CLUSTER


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
    return EXIT_FINDINGS if findings else EXIT_WELL


def _renew(
    chains: Sequence[ManagedChain], options: argparse.Namespace, now: datetime, say: Callable[[str], None]
) -> int:
    asked_for = {
        "servers": options.server,
        "clients": options.client,
        "next_ca": options.next_ca,
        "promote": options.promote,
    }
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m certs", description="Shows, checks and renews the certificates.")
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    modes = [*(mode.value for mode in CertificateMode), OFF]
    for name, text in (
        ("show", "list the certificates and when they end"),
        ("check", "exit with 1 if a certificate is wrong, overdue for renewal or about to end"),
        ("renew", "renew what is due, as the leader does by itself, and what the flags name"),
    ):
        command = commands.add_parser(name, help=text, epilog=_EPILOG)
        command.add_argument("--namespace", default="longhorn-system", help="Longhorn's namespace")
        add_access(command)
        command.add_argument(
            "--chain", default=ALL, choices=[EXTENDER, WEBHOOK, ALL], help="the chain of certificates (default: all)"
        )
        for kind in ("", "webhook-"):
            command.add_argument(
                f"--{kind}mode",
                default=CertificateMode.SELF.value,
                choices=modes,
                help=f"--{kind}tls-mode of the controller (default: self)",
            )
        command.add_argument(
            "--tls-extra-names", default="", help="additional names of the extender's server, separated by commas"
        )
        for flag, default in _AS_THE_CONTROLLERS.items():
            command.add_argument(flag, default=default)
        if name == "check":
            command.add_argument(
                "--warn-days",
                type=float,
                default=14.0,
                help="report certificates that end within so many days (default: 14)",
            )
        if name == "renew":
            command.add_argument("--server", action="store_true", help="renew the servers' certificates of --chain")
            command.add_argument("--client", action="store_true", help="renew the client's certificate of --chain")
            command.add_argument(
                "--next-ca", action="store_true", help="make the next authority, which is trusted but does not sign yet"
            )
            command.add_argument("--promote", action="store_true", help="let the next authority sign from now on")
    return parser
