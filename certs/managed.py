"""One chain for the command line, which shows, checks and renews it from outside the leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from certs import layout
from certs.authority import CertificateFacts
from certs.evidence import PublishedBundles
from certs.keeper import CertificateMode, named_facts
from certs.rotation import Action, Chain, Evidence, Leaves, Step, bring_up_to_date, carry_out, next_step
from certs.secret import ChainPlan, SecretStore
from controller.errors import ConfigError

# The leader waits until a step has reached everybody: it is late with it only after so long.
PATIENCE: Final = timedelta(minutes=15)
ASKED_FOR: Final = "asked for"


class ManagedChain:
    """One chain in its Secrets, as they are when this object is made. `published`: where programs hand its bundle on.

    Threads: one. I/O: the API server. Errors: ClusterError when it cannot be asked.
    """

    def __init__(
        self, store: SecretStore, plan: ChainPlan, mode: CertificateMode, published: PublishedBundles | None = None
    ) -> None:
        self._store, self._plan, self._mode, self._published = store, plan, mode, published
        self._stored = store.read_chain(plan)
        self._chain = self._stored.reading.chain
        self.problems: Sequence[str] = self._stored.reading.problems
        if mode is not CertificateMode.SELF:
            self.problems = [
                finding
                for leaf, name in plan.secrets.items()
                if leaf in plan.servers or self._stored.datas[name] is not None
                for finding in layout.foreign_findings(self._stored.datas[name], f"Secret {name}")
            ]

    def facts(self) -> Mapping[str, CertificateFacts]:
        return named_facts(self._chain, self._plan.prefix)

    def findings(self, now: datetime, warn: timedelta) -> list[str]:
        """What is wrong, overdue, or ends sooner than `warn`."""
        plan, chain, leaves = self._plan, self._chain, self._plan.leaves()
        findings = [*self.problems]
        for name, facts in self.facts().items():
            if not facts.is_valid(now):
                findings.append(f"{name}: is not valid now; it is from {facts.not_before_utc} to {facts.not_after_utc}")
            elif facts.remaining(now) < warn:
                findings.append(f"{name}: ends in {span(facts.remaining(now))}")
        for server in plan.servers:
            pair = chain.leaves.get(server)
            if pair is not None and (missing := set(leaves[server].names) - pair.facts.names):
                findings.append(f"{server}: lacks the names {', '.join(sorted(missing))}")
        if self._mode is CertificateMode.SELF:
            findings += self._findings_of_ours(leaves, now)
        return findings

    def _findings_of_ours(self, leaves: Leaves, now: datetime) -> list[str]:
        plan, chain, findings = self._plan, self._chain, list[str]()
        step = next_step(chain, leaves, plan.policy, now)
        if step is not None and self._is_overdue(step, leaves, now):
            findings.append(f"overdue, and not yet done by the leader: {step}")
        for leaf, secret in plan.secrets.items():
            data = self._stored.datas[secret]
            if leaf in chain.leaves and data is not None and data.get(layout.BUNDLE) != chain.bundle:
                findings.append(f"{leaf}: its {layout.BUNDLE} is not the bundle of the authorities")
        if self._published is not None:
            lacking = [pair for pair in chain.authorities if not self._published.all_have(pair)]
            findings += [f"caBundle: lacks {pair.facts.subject} ({pair.facts.fingerprint[:16]})" for pair in lacking]
            if self._published.problem:
                findings.append(self._published.problem)
        return findings

    def _is_overdue(self, step: Step, leaves: Leaves, now: datetime) -> bool:
        if self._published is None or step.action not in (Action.PROMOTE, Action.RETIRE):
            return True
        before = next_step(self._chain, leaves, self._plan.policy, now - PATIENCE)
        return before is not None and before.action is step.action

    def renew(
        self,
        now: datetime,
        *,
        servers: bool = False,
        clients: bool = False,
        next_ca: bool = False,
        promote: bool = False,
    ) -> Sequence[Step]:
        """Does what is due and what is asked for, writes the chain, and returns the steps. ConfigError when one cannot
        be done."""
        plan, leaves = self._plan, self._plan.leaves()
        if self._mode is not CertificateMode.SELF:
            raise ConfigError(f"mode {self._mode}: its certificates are renewed elsewhere")
        # Only the leader sees what has reached everybody.
        evidence = Evidence() if self._published is not None else None
        chain, due = bring_up_to_date(self._chain, leaves, plan.policy, now, plan.subject, evidence)
        steps = [*due]
        asked_for = _authority_steps(chain, next_ca=next_ca, promote=promote)
        signed = (*(plan.servers if servers else ()), *(plan.clients if clients else ()))
        asked_for += [Step(Action.SIGN, ASKED_FOR, name) for name in signed]
        for step in asked_for:
            chain = carry_out(chain, step, leaves, plan.policy, now, plan.subject)
            steps.append(step)
        chain, rest = bring_up_to_date(chain, leaves, plan.policy, now, plan.subject, evidence)
        self._store.write_chain(plan, self._stored, chain, lambda: True)
        return [*steps, *rest]


def _authority_steps(chain: Chain, *, next_ca: bool, promote: bool) -> list[Step]:
    """What is asked for of the authorities; ConfigError when it cannot be done."""
    steps = []
    if next_ca:
        if chain.coming is not None:
            raise ConfigError("--next-ca: there already is a next authority; use --promote to let it sign")
        steps.append(Step(Action.PREPARE, ASKED_FOR))
    if promote:
        if chain.coming is None and not next_ca:
            raise ConfigError("--promote: there is no next authority; make one with --next-ca first")
        steps.append(Step(Action.PROMOTE, ASKED_FOR))
    return steps


def span(duration: timedelta) -> str:
    """The duration for a person: in days, in hours below two days, or "ended"."""
    seconds = duration.total_seconds()
    if seconds < 0:
        return "ended"
    return f"{seconds / 86_400:.0f} d" if seconds >= 2 * 86_400 else f"{seconds / 3_600:.1f} h"
