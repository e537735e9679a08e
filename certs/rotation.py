"""When to renew what, so that nobody is refused who still trusts what was true a while ago. Pure; `now` is an argument.

A *chain* is an authority with the leaves it signs. Its *bundle* is what the other side trusts: the authority that
signs, the one that will sign next, and those that signed before. A new authority is in the bundle for `overlap` before
it signs anything, so that every client knows it by then. The old one stays there for `settle` after its last leaf was
replaced, so that a server that has not seen its new leaf is still trusted. All of this is derived from the certificates
themselves. Nothing else is remembered, and a step that was interrupted is found undone and is done again.

Where programs spread a chain, there has to be `Evidence` of that as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from certs.authority import LeafSpec, Pair, bundle_of, is_issued_by, make_authority, sign
from controller.errors import ConfigError

Leaves = Mapping[str, LeafSpec]  # those that a chain must have, by name

DAY: Final = timedelta(days=1)
YEAR: Final = timedelta(days=365)
MOST_STEPS: Final = 50  # in one go; more would be a mistake of ours


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """How long an authority lives, and the distances of its renewal. `settle` None: an old one stays to its end."""

    ca_life: timedelta
    ca_renew_before: timedelta
    overlap: timedelta
    settle: timedelta | None

    def checked(self, leaves: Iterable[LeafSpec] = ()) -> RotationPolicy:
        """Returns itself; raises ConfigError if the distances leave a moment without trust."""
        if self.overlap + (self.settle or timedelta(0)) >= self.ca_renew_before:
            raise ConfigError("ca_renew_before: is not above the sum of overlap and settle")
        if self.ca_renew_before >= self.ca_life:
            raise ConfigError("ca_life: is not above ca_renew_before")
        for leaf in leaves:
            if leaf.renew_before >= leaf.life:
                raise ConfigError(f"{leaf.subject}: its life is not above its renew_before")
            if self.settle is not None and leaf.life - leaf.renew_before <= self.settle:
                raise ConfigError(f"{leaf.subject}: is renewed more often than settle allows")
        return self


# Pinned in files of kube-scheduler, which people change by hand: two years to do so.
PINNED: Final = RotationPolicy(20 * YEAR, 4 * YEAR, 2 * YEAR, None)
# Spread by programs, within seconds; a program that was not reached for half of these days stops serving.
ROTATING: Final = RotationPolicy(YEAR, 90 * DAY, DAY, DAY)


@dataclass(frozen=True, slots=True)
class Chain:
    """An authority, its neighbours in time, and its leaves by name. An authority without a key can only be trusted."""

    signer: Pair | None = None
    coming: Pair | None = None
    previous: tuple[Pair, ...] = ()
    leaves: Mapping[str, Pair] = field(default_factory=dict)

    @property
    def authorities(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in (self.signer, self.coming, *self.previous) if pair is not None)

    @property
    def bundle(self) -> bytes:
        """What the other side has to trust, in PEM."""
        return bundle_of(self.authorities)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known to have reached everybody, by fingerprint: authorities that all clients trust, and leaves that all
    servers and clients use. The time must have passed as well."""

    trusted: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


class Action(StrEnum):
    MAKE = "make the authority"
    PREPARE = "make the next authority"
    PROMOTE = "sign with the next authority"
    DROP = "drop the next authority"
    RETIRE = "stop trusting an old authority"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a chain, and why. `name` is a leaf's, or an authority's fingerprint."""

    action: Action
    why: str
    name: str = ""

    def __str__(self) -> str:
        leaf = f" {self.name}" if self.action is Action.SIGN else ""
        return f"{self.action}{leaf}: {self.why}"


def next_step(
    chain: Chain, leaves: Leaves, policy: RotationPolicy, now_utc: datetime, evidence: Evidence | None = None
) -> Step | None:
    """The first thing to do now; None if nothing is due. Without evidence, only time decides.

    An authority that ends, or whose key is lost when a leaf is needed, is replaced without evidence, too: otherwise
    nobody could be served.
    """
    return (
        _authority_step(chain, policy, now_utc)
        or _promotion(chain, leaves, policy, now_utc, evidence)
        or _leaf_step(chain, leaves, now_utc)
        or _retirement(chain, leaves, policy, now_utc, evidence)
    )


def _authority_step(chain: Chain, policy: RotationPolicy, now_utc: datetime) -> Step | None:
    signer, coming = chain.signer, chain.coming
    if coming is not None and (not coming.has_key or now_utc > coming.facts.not_after_utc):
        return Step(Action.DROP, "its key is lost" if not coming.has_key else "it has expired")
    if signer is None or now_utc > signer.facts.not_after_utc:
        why = "there is none" if signer is None else "it has expired"
        if coming is not None and coming.facts.is_valid(now_utc):
            return Step(Action.PROMOTE, "there is no current one" if signer is None else "the current one has expired")
        return Step(Action.MAKE, why)
    if coming is None and not signer.has_key:
        return Step(Action.PREPARE, "the key of the current one is lost")
    if coming is None and signer.facts.remaining(now_utc) <= policy.ca_renew_before:
        return Step(Action.PREPARE, f"the current one ends at {signer.facts.not_after_utc.isoformat()}")
    return None


def _promotion(
    chain: Chain, leaves: Leaves, policy: RotationPolicy, now_utc: datetime, evidence: Evidence | None
) -> Step | None:
    signer, coming = chain.signer, chain.coming
    if coming is None or signer is None or not coming.facts.is_valid(now_utc):
        return None
    is_trusted = evidence is None or coming.facts.fingerprint in evidence.trusted
    if is_trusted and now_utc >= coming.facts.made_utc + policy.overlap:
        return Step(Action.PROMOTE, f"it has been in the bundle since {coming.facts.made_utc.isoformat()}")
    if not signer.has_key:
        for name, leaf in leaves.items():
            if why := _why_sign(chain, name, leaf, now_utc):
                return Step(Action.PROMOTE, f"the key of the current one is lost, and {name} {why}")
    return None


def _leaf_step(chain: Chain, leaves: Leaves, now_utc: datetime) -> Step | None:
    if chain.signer is None or not chain.signer.has_key or not chain.signer.facts.is_valid(now_utc):
        return None
    for name, leaf in leaves.items():
        if why := _why_sign(chain, name, leaf, now_utc):
            return Step(Action.SIGN, f"it {why}", name)
    return None


def _why_sign(chain: Chain, name: str, leaf: LeafSpec, now_utc: datetime) -> str:
    """Why the leaf cannot stay; "" when it can."""
    pair, signer = chain.leaves.get(name), chain.signer
    if pair is None:
        return "is missing"
    facts = pair.facts
    if now_utc > facts.not_after_utc:
        return "has expired"
    if now_utc < facts.not_before_utc:
        return f"is not valid before {facts.not_before_utc.isoformat()}"
    if signer is None or not is_issued_by(pair, signer):
        return "is signed by another authority"
    if not set(leaf.names) <= facts.names:
        missing = sorted(set(leaf.names) - facts.names)
        return f"lacks the names {', '.join(missing)}"
    if facts.remaining(now_utc) <= leaf.renew_before and facts.not_after_utc < signer.facts.not_after_utc:
        return f"ends at {facts.not_after_utc.isoformat()}"
    return ""


def _retirement(
    chain: Chain, leaves: Leaves, policy: RotationPolicy, now_utc: datetime, evidence: Evidence | None
) -> Step | None:
    for old in chain.previous:
        if now_utc > old.facts.not_after_utc:
            return Step(Action.RETIRE, "it has expired", old.facts.fingerprint)
    if policy.settle is None or not leaves or not leaves.keys() <= chain.leaves.keys():
        return None
    if evidence is not None and not evidence.used >= {chain.leaves[name].facts.fingerprint for name in leaves}:
        return None
    newest = max(chain.leaves[name].facts.made_utc for name in leaves)
    if chain.previous and now_utc >= newest + policy.settle:
        old = chain.previous[-1]
        return Step(Action.RETIRE, "every leaf is signed by the current one", old.facts.fingerprint)
    return None


def carry_out(
    chain: Chain, step: Step, leaves: Leaves, policy: RotationPolicy, now_utc: datetime, subject: str
) -> Chain:
    """The chain after the step. It makes keys, so two calls differ."""
    match step.action:
        case Action.MAKE:
            # What was trusted stays trusted: it does no harm, and what it signed may still be on its way.
            previous = tuple(pair for pair in chain.authorities if pair is not chain.coming)
            return replace(chain, signer=make_authority(subject, policy.ca_life, now_utc), previous=previous)
        case Action.PREPARE:
            return replace(chain, coming=make_authority(subject, policy.ca_life, now_utc))
        case Action.PROMOTE:
            old = () if chain.signer is None else (chain.signer,)
            return replace(chain, signer=chain.coming, coming=None, previous=(*old, *chain.previous))
        case Action.DROP:
            return replace(chain, coming=None)
        case Action.RETIRE:
            rest = tuple(pair for pair in chain.previous if pair.facts.fingerprint != step.name)
            return replace(chain, previous=rest)
        case Action.SIGN:
            assert chain.signer is not None
            leaf = sign(chain.signer, leaves[step.name], now_utc)
            return replace(chain, leaves={**chain.leaves, step.name: leaf})


def bring_up_to_date(
    chain: Chain,
    leaves: Leaves,
    policy: RotationPolicy,
    now_utc: datetime,
    subject: str,
    evidence: Evidence | None = None,
) -> tuple[Chain, Sequence[Step]]:
    """The chain after all that is due now, and the steps; the same chain and no steps if nothing is due."""
    done: list[Step] = []
    while (step := next_step(chain, leaves, policy, now_utc, evidence)) is not None:
        if len(done) > MOST_STEPS:
            raise ConfigError(f"{subject}: its renewal does not come to an end: {step}")
        chain = carry_out(chain, step, leaves, policy, now_utc, subject)
        done.append(step)
    return chain, done
