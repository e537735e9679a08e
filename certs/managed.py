"""One chain for the command line, which shows, checks and renews it from outside the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from certs import layout
from certs.authority import CertificateFacts
from certs.evidence import PublishedBundles
from certs.keeper import CertificateMode, named_facts
from certs.layout import Data, foreign_findings, read_chain
from certs.rotation import Action, Chain, Evidence, Leaf, RotationPolicy, Step, bring_up_to_date, carry_out, next_step
from certs.secret import SecretNames, SecretStore, data_of
from controller.errors import ConfigError

# The leader waits until a step has reached everybody: it is late with it only after so long.
PATIENCE: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """What one chain should be. `prefix` distinguishes its authorities' names from those of another chain.

    `servers` and `clients` are names of leaves. Where programs hand the bundle on, `published` is about the first
    server.
    """

    name: str
    mode: CertificateMode
    names: SecretNames
    leaves: Callable[[], Mapping[str, Leaf]]
    policy: RotationPolicy
    subject: str
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    prefix: str = ""
    published: PublishedBundles | None = None


@dataclass(frozen=True, slots=True)
class WantedSecret:
    """What is asked for beyond what is due."""

    servers: bool = False
    clients: bool = False
    next_ca: bool = False
    promote: bool = False

    @property
    def is_something(self) -> bool:
        return self.servers or self.clients or self.next_ca or self.promote


@dataclass(frozen=True, slots=True)
class _Secrets:
    raws: Mapping[str, dict[str, Any] | None]
    datas: Mapping[str, Data | None]
    chain: Chain
    problems: Sequence[str]


class ManagedChain:
    """One chain in its Secrets, as they are when this object is made.

    Threads: one. I/O: the API server. Errors: ClusterError when it cannot be asked.
    """

    def __init__(self, store: SecretStore, plan: ChainPlan) -> None:
        self._store, self.plan = store, plan
        self._found = self._read()

    @property
    def problems(self) -> Sequence[str]:
        return self._found.problems

    def facts(self) -> Mapping[str, CertificateFacts]:
        return named_facts(self._found.chain, self.plan.prefix)

    def findings(self, now: datetime, warn: timedelta) -> list[str]:
        """What is wrong, overdue, or ends sooner than `warn`."""
        plan, chain, leaves = self.plan, self._found.chain, self.plan.leaves()
        findings = [*self.problems]
        for name, facts in self.facts().items():
            if not facts.is_valid(now):
                findings.append(f"{name}: is not valid now; it is from {facts.not_before_utc} to {facts.not_after_utc}")
            elif facts.remaining(now) < warn:
                findings.append(f"{name}: ends in {span(facts.remaining(now))}")
        for server in plan.servers:
            pair = chain.leaves.get(server)
            if pair is not None and (missing := set(leaves[server].spec.names) - pair.facts.names):
                findings.append(f"{server}: lacks the names {', '.join(sorted(missing))}")
        if plan.mode is CertificateMode.SELF:
            findings += self._findings_of_ours(leaves, now)
        return findings

    def _findings_of_ours(self, leaves: Mapping[str, Leaf], now: datetime) -> list[str]:
        plan, chain, findings = self.plan, self._found.chain, list[str]()
        step = next_step(chain, leaves, plan.policy, now)
        if step is not None and self._is_overdue(step, leaves, now):
            findings.append(f"overdue, and not yet done by the leader: {step}")
        for leaf, secret in plan.names.leaves.items():
            data = self._found.datas[secret]
            if leaf in chain.leaves and data is not None and data.get(layout.BUNDLE) != chain.bundle:
                findings.append(f"{leaf}: its {layout.BUNDLE} is not the bundle of the authorities")
        if plan.published is not None:
            lacking = [pair for pair in chain.authorities if not plan.published.all_have(pair)]
            findings += [f"caBundle: lacks {pair.facts.subject} ({pair.facts.fingerprint[:16]})" for pair in lacking]
            if plan.published.problem:
                findings.append(plan.published.problem)
        return findings

    def _is_overdue(self, step: Step, leaves: Mapping[str, Leaf], now: datetime) -> bool:
        if self.plan.published is None or step.action not in (Action.PROMOTE, Action.RETIRE):
            return True
        before = next_step(self._found.chain, leaves, self.plan.policy, now - PATIENCE)
        return before is not None and before.action is step.action

    def renew(self, wanted: WantedSecret, now: datetime) -> Sequence[Step]:
        """Does what is due and what is wanted, writes it, and returns what was done."""
        plan, found, leaves = self.plan, self._found, self.plan.leaves()
        if plan.mode is not CertificateMode.SELF:
            raise ConfigError(f"mode {plan.mode}: its certificates are renewed elsewhere")
        # Only the leader sees what has reached everybody.
        evidence = Evidence() if plan.published is not None else None
        chain, due = bring_up_to_date(found.chain, leaves, plan.policy, now, plan.subject, evidence)
        steps = [*due]
        for step in self._wanted(chain, wanted):
            chain = carry_out(chain, step, leaves, plan.policy, now, plan.subject)
            steps.append(step)
        chain, rest = bring_up_to_date(chain, leaves, plan.policy, now, plan.subject, evidence)
        data = {plan.names.ca: layout.authority_data(chain)}
        data |= {secret: layout.leaf_data(chain, leaf) for leaf, secret in plan.names.leaves.items()}
        for secret, wanted_data in data.items():
            if found.datas[secret] != wanted_data:
                self._store.write(secret, found.raws[secret], wanted_data)
        return [*steps, *rest]

    def _wanted(self, chain: Chain, wanted: WantedSecret) -> Sequence[Step]:
        why, steps = "asked for", list[Step]()
        if wanted.next_ca:
            if chain.coming is not None:
                raise ConfigError("--next-ca: there already is a next authority; use --promote to let it sign")
            steps.append(Step(Action.PREPARE, why))
        if wanted.promote:
            if chain.coming is None and not wanted.next_ca:
                raise ConfigError("--promote: there is no next authority; make one with --next-ca first")
            steps.append(Step(Action.PROMOTE, why))
        leaves: Iterable[str] = (
            *(self.plan.servers if wanted.servers else ()),
            *(self.plan.clients if wanted.clients else ()),
        )
        return [*steps, *(Step(Action.SIGN, why, name) for name in leaves)]

    def _read(self) -> _Secrets:
        names = self.plan.names
        raws = {name: self._store.read(name) for name in (names.ca, *names.leaves.values())}
        datas = {name: data_of(raw) for name, raw in raws.items()}
        reading = read_chain(datas[names.ca], {leaf: datas[name] for leaf, name in names.leaves.items()})
        problems: Sequence[str] = reading.problems
        if self.plan.mode is not CertificateMode.SELF:
            problems = [
                finding
                for leaf, name in names.leaves.items()
                if leaf in self.plan.servers or datas[name] is not None
                for finding in foreign_findings(datas[name], f"Secret {name}")
            ]
        return _Secrets(raws, datas, reading.chain, problems)


def span(duration: timedelta) -> str:
    """Days, or hours below two days."""
    seconds = duration.total_seconds()
    if seconds < 0:
        return "ended"
    return f"{seconds / 86_400:.0f} d" if seconds >= 2 * 86_400 else f"{seconds / 3_600:.1f} h"
