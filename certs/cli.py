"""`python -m certs`: show, check and renew certificates, those of the extender and those of the webhook.

Exit codes are decided here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from certs import webhook
from certs.authority import CertificateError, CertificateFacts
from certs.evidence import PublishedBundles
from certs.keeper import CLIENT, SERVER, SUBJECT, CertificateMode, ServiceNames, extender_names
from certs.managed import ChainPlan, ManagedChain, WantedSecret, span
from certs.rotation import PINNED, ROTATING
from certs.secret import SecretStore
from controller.clock import Clock, SystemClock
from controller.errors import ClusterError, ConfigError
from controller.kube.api import ClientKubeApi, KubeApi
from controller.process.flags import add_version

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


def main(
    arguments: Sequence[str] | None = None,
    *,
    connect: Callable[[str | None], KubeApi] = ClientKubeApi.load,
    clock: Clock | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Run the command; the process's exit code."""
    options = _parser().parse_args(arguments)
    write = say or _print
    try:
        command = _Command(options, connect(options.kubeconfig or None), clock or SystemClock(), write)
        match options.command:
            case "show":
                return command.show()
            case "check":
                return command.check()
            case _:
                return command.renew()
    except (ConfigError, CertificateError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_MISUSE
    except ClusterError as error:
        sys.stderr.write(f"the API server: {error}\n")
        return EXIT_CLUSTER


class _Command:
    """One invocation. I/O: the API server, and what `say` does."""

    def __init__(self, options: argparse.Namespace, api: KubeApi, clock: Clock, say: Callable[[str], None]) -> None:
        self._options, self._clock, self._say = options, clock, say
        store = SecretStore(api, options.namespace)
        self._chains = [ManagedChain(store, plan) for plan in _plans(options, api, store)]

    def show(self) -> int:
        now = self._clock.now_utc()
        self._say(f"{'NAME':<26} {'ENDS IN':>9}  {'ENDS':<20} {'FINGERPRINT':<16} SUBJECT, NAMES")
        for chain in self._chains:
            for name, facts in chain.facts().items():
                self._say(_line(name, facts, now))
            for problem in chain.problems:
                self._say(f"problem: {problem}")
        return EXIT_WELL

    def check(self) -> int:
        now, warn = self._clock.now_utc(), timedelta(days=self._options.warn_days)
        findings = [finding for chain in self._chains for finding in chain.findings(now, warn)]
        for finding in findings:
            self._say(finding)
        if not findings:
            self._say("all certificates are in order")
        return EXIT_FINDINGS if findings else EXIT_WELL

    def renew(self) -> int:
        options = self._options
        wanted = WantedSecret(options.server, options.client, options.next_ca, options.promote)
        if wanted.is_something and len(self._chains) > 1:
            raise ConfigError("--chain: name the chain to renew, extender or webhook")
        steps = [step for chain in self._chains for step in chain.renew(wanted, self._clock.now_utc())]
        for step in steps:
            self._say(str(step))
        if not steps:
            self._say("nothing is due")
        return EXIT_WELL


def _plans(options: argparse.Namespace, api: KubeApi, store: SecretStore) -> list[ChainPlan]:
    plans = []
    if options.chain in (EXTENDER, ALL) and options.mode != OFF:
        leaves = ServiceNames(
            store, options.service, options.namespace, domain=options.cluster_domain, more=_listed(options)
        )
        names = extender_names(options.tls_secret, options.tls_client_secret, options.tls_ca_secret)
        plans.append(
            ChainPlan(EXTENDER, CertificateMode(options.mode), names, leaves, PINNED, SUBJECT, (SERVER,), (CLIENT,))
        )
    if options.chain in (WEBHOOK, ALL) and options.webhook_mode != OFF:
        names = webhook.webhook_names(
            options.webhook_ca_secret,
            options.webhook_tls_secret,
            options.webhook_client_tls_secret,
            options.replica_scheduler_tls_secret,
        )
        signed = webhook.webhook_leaves(
            options.namespace,
            service=options.webhook_service,
            leader_service=options.replica_scheduler_service,
            domain=options.cluster_domain,
        )
        plans.append(
            ChainPlan(
                WEBHOOK,
                CertificateMode(options.webhook_mode),
                names,
                lambda: signed,
                ROTATING,
                webhook.SUBJECT,
                (webhook.SERVER, webhook.LEADER),
                (webhook.CLIENT,),
                webhook.PREFIX,
                PublishedBundles(api),
            )
        )
    return plans


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _line(name: str, facts: CertificateFacts, now: datetime) -> str:
    names = ", ".join(sorted(facts.names))
    left, end = span(facts.remaining(now)), f"{facts.not_after_utc:%Y-%m-%d %H:%M:%S}"
    return f"{name:<26} {left:>9}  {end:<20} {facts.fingerprint[:16]} {facts.subject}" + (f"; {names}" if names else "")


def _listed(options: argparse.Namespace) -> list[str]:
    return [name for name in options.tls_extra_names.split(",") if name]


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
        command.add_argument(
            "--kubeconfig", default="", help="kubeconfig for the API server (default: the pod's service account)"
        )
        command.add_argument(
            "--chain", default=ALL, choices=[EXTENDER, WEBHOOK, ALL], help="the chain of certificates (default: all)"
        )
        command.add_argument("--service", default=NAME)
        command.add_argument(
            "--mode",
            default=CertificateMode.SELF.value,
            choices=modes,
            help="--tls-mode of the controller (default: self)",
        )
        command.add_argument("--tls-secret", default=f"{NAME}-tls")
        command.add_argument("--tls-client-secret", default=f"{NAME}-client")
        command.add_argument("--tls-ca-secret", default=f"{NAME}-ca")
        command.add_argument(
            "--tls-extra-names", default="", help="additional names of the extender's server, separated by commas"
        )
        command.add_argument(
            "--webhook-mode",
            default=CertificateMode.SELF.value,
            choices=modes,
            help="--webhook-tls-mode of the controller (default: self)",
        )
        command.add_argument("--webhook-service", default=WEBHOOK_NAME)
        command.add_argument("--webhook-tls-secret", default=f"{WEBHOOK_NAME}-tls")
        command.add_argument("--webhook-client-tls-secret", default=f"{WEBHOOK_NAME}-client-tls")
        command.add_argument("--webhook-ca-secret", default=f"{WEBHOOK_NAME}-ca")
        command.add_argument("--replica-scheduler-service", default=REPLICA_SCHEDULER)
        command.add_argument("--replica-scheduler-tls-secret", default=f"{REPLICA_SCHEDULER}-tls")
        command.add_argument("--cluster-domain", default="cluster.local")
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
