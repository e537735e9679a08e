"""`python -m certs`: show, check and renew the certificates of the extender. Exit codes are decided here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from certs import layout
from certs.authority import CertificateError, Facts
from certs.keeper import (
    CLIENT,
    SERVER,
    SUBJECT,
    Mode,
    ServiceNames,
    extender_names,
    named_facts,
)
from certs.layout import Data, foreign_findings, read_chain
from certs.rotation import PINNED, Action, Chain, Leaf, Step, bring_up_to_date, carry_out, next_step
from certs.secret import SecretNames, SecretStore, data_of
from controller.clock import Clock, SystemClock
from controller.errors import ClusterError, ConfigError
from controller.kube.api import ClientKubeApi, KubeApi

EXIT_WELL: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_MISUSE: Final = 2
EXIT_CLUSTER: Final = 3
NAME: Final = "longhorn-scheduler-extender"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The Secrets as they stand, and the chain in them."""

    raws: Mapping[str, dict[str, Any] | None]
    datas: Mapping[str, Data | None]
    chain: Chain
    problems: Sequence[str]


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
        self._store = SecretStore(api, options.namespace)
        self._mode = Mode(options.mode)
        self._names: SecretNames = extender_names(options.tls_secret, options.tls_client_secret, options.tls_ca_secret)
        self._leafs = ServiceNames(
            self._store, options.service, options.namespace, domain=options.cluster_domain, more=_listed(options)
        )

    def show(self) -> int:
        found = self._read()
        now = self._clock.now_utc()
        self._say(f"{'NAME':<14} {'ENDS IN':>9}  {'ENDS':<20} {'FINGERPRINT':<16} SUBJECT, NAMES")
        for name, facts in named_facts(found.chain).items():
            self._say(_line(name, facts, now))
        for problem in found.problems:
            self._say(f"problem: {problem}")
        return EXIT_WELL

    def check(self) -> int:
        found = self._read()
        now = self._clock.now_utc()
        findings = list(found.problems) + self._findings(found, self._leafs(), now)
        for finding in findings:
            self._say(finding)
        if not findings:
            self._say("all certificates are well")
        return EXIT_FINDINGS if findings else EXIT_WELL

    def _findings(self, found: Secrets, leafs: Mapping[str, Leaf], now: datetime) -> list[str]:
        findings = []
        for name, facts in named_facts(found.chain).items():
            if not facts.is_valid(now):
                findings.append(f"{name}: is not valid now; it is from {facts.not_before_utc} to {facts.not_after_utc}")
            elif facts.remaining(now) < timedelta(days=self._options.warn_days):
                findings.append(f"{name}: ends in {_span(facts.remaining(now))}")
        server = found.chain.leafs.get(SERVER)
        if server is not None and (missing := set(leafs[SERVER].spec.names) - server.facts.names):
            findings.append(f"{SERVER}: lacks the names {', '.join(sorted(missing))}")
        if self._mode is Mode.SELF:
            if (step := next_step(found.chain, leafs, PINNED, now)) is not None:
                findings.append(f"due, and not done by the leader: {step}")
            wanted = layout.leaf_data(found.chain, SERVER).get(layout.BUNDLE) if server is not None else None
            bundle = (found.datas[self._names.leafs[SERVER]] or {}).get(layout.BUNDLE)
            if wanted != bundle:
                findings.append(f"{SERVER}: its {layout.BUNDLE} is not the bundle of the authorities")
        return findings

    def renew(self) -> int:
        if self._mode is not Mode.SELF:
            raise ConfigError(f"mode {self._mode}: its certificates are not ours to renew")
        found = self._read()
        now, leafs = self._clock.now_utc(), self._leafs()
        chain, steps = bring_up_to_date(found.chain, leafs, PINNED, now, SUBJECT)
        for step in self._wanted(chain):
            chain = carry_out(chain, step, leafs, PINNED, now, SUBJECT)
            steps = [*steps, step]
        chain, rest = bring_up_to_date(chain, leafs, PINNED, now, SUBJECT)
        wanted = {self._names.ca: layout.authority_data(chain)}
        wanted |= {secret: layout.leaf_data(chain, leaf) for leaf, secret in self._names.leafs.items()}
        for secret, data in wanted.items():
            if found.datas[secret] != data:
                self._store.write(secret, found.raws[secret], data)
        for step in (*steps, *rest):
            self._say(str(step))
        if not steps and not rest:
            self._say("nothing to do")
        return EXIT_WELL

    def _wanted(self, chain: Chain) -> Sequence[Step]:
        """What was asked for beyond what is due."""
        options, why = self._options, "asked for"
        steps = []
        if options.next_ca:
            if chain.coming is not None:
                raise ConfigError("--next-ca: there is a next authority already")
            steps.append(Step(Action.PREPARE, why))
        if options.promote:
            if chain.coming is None and not options.next_ca:
                raise ConfigError("--promote: there is no next authority; make one with --next-ca first")
            steps.append(Step(Action.PROMOTE, why))
        steps += [Step(Action.SIGN, why, name) for name in (SERVER, CLIENT) if getattr(options, name)]
        return steps

    def _read(self) -> Secrets:
        raws = {name: self._store.read(name) for name in (self._names.ca, *self._names.leafs.values())}
        datas = {name: data_of(raw) for name, raw in raws.items()}
        reading = read_chain(datas[self._names.ca], {leaf: datas[name] for leaf, name in self._names.leafs.items()})
        problems: Sequence[str] = reading.problems
        if self._mode is not Mode.SELF:
            problems = [
                finding
                for leaf, name in self._names.leafs.items()
                if leaf == SERVER or datas[name] is not None
                for finding in foreign_findings(datas[name], f"Secret {name}")
            ]
        return Secrets(raws, datas, reading.chain, problems)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _line(name: str, facts: Facts, now: datetime) -> str:
    names = ", ".join(sorted(facts.names))
    left, end = _span(facts.remaining(now)), f"{facts.not_after_utc:%Y-%m-%d %H:%M:%S}"
    return f"{name:<14} {left:>9}  {end:<20} {facts.fingerprint[:16]} {facts.subject}" + (f"; {names}" if names else "")


def _span(span: timedelta) -> str:
    """Days, or hours below two days."""
    seconds = span.total_seconds()
    if seconds < 0:
        return "ended"
    return f"{seconds / 86_400:.0f} d" if seconds >= 2 * 86_400 else f"{seconds / 3_600:.1f} h"


def _listed(options: argparse.Namespace) -> list[str]:
    return [name for name in options.tls_extra_names.split(",") if name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m certs", description="The extender's certificates.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("show", "what there is, and until when"),
        ("check", "exit 1 when something is wrong, overdue or about to end"),
        ("renew", "do what is due, and what is asked for; the leader does the first by itself"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--namespace", default="longhorn-system")
        command.add_argument("--kubeconfig", default="", help="default: the pod's service account")
        command.add_argument("--service", default=NAME)
        command.add_argument("--mode", default=Mode.SELF.value, choices=[mode.value for mode in Mode])
        command.add_argument("--tls-secret", default=f"{NAME}-tls")
        command.add_argument("--tls-client-secret", default=f"{NAME}-client")
        command.add_argument("--tls-ca-secret", default=f"{NAME}-ca")
        command.add_argument("--tls-extra-names", default="", help="further names of the server, with commas")
        command.add_argument("--cluster-domain", default="cluster.local")
        if name == "check":
            command.add_argument("--warn-days", type=float, default=14.0, help="a finding when fewer are left")
        if name == "renew":
            command.add_argument("--server", action="store_true", help="a new certificate of the server")
            command.add_argument("--client", action="store_true", help="a new certificate for kube-scheduler")
            command.add_argument("--next-ca", action="store_true", help="a next authority, trusted but not signing")
            command.add_argument("--promote", action="store_true", help="let the next authority sign from now on")
    return parser
