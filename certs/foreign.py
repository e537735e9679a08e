"""A chain whose Secrets others write: it is read, checked, and carried through a change of its authority."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from certs import layout
from certs.authority import CertificateError, Pair, read_authorities, read_pair
from certs.evidence import PublishedBundles
from certs.rotation import DAY
from certs.secret import ChainPlan, SecretStore
from certs.trust import Shown, Trust
from controller.clock import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignFollowing:
    """How changes by others are followed.

    `named_by`: the leaves whose Secrets name in `ca.crt` the authorities to trust. `callers`: the leaves whose Secrets
    name them for the programs to which our leaves are shown. A leaf waits until its authority has been named there for
    `spread_seconds`, but at most for `patience_seconds`; without callers no leaf waits. `published`: where to find the
    authorities of earlier processes.
    """

    named_by: tuple[str, ...]
    callers: tuple[str, ...] = ()
    settle_seconds: float = DAY.total_seconds()
    spread_seconds: float = 0.0
    patience_seconds: float = 0.0
    published: PublishedBundles | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look has found. `bundle` is empty while it is not known whom callers should trust."""

    problems: tuple[str, ...]
    ends: Mapping[str, datetime]
    shown: Mapping[str, tuple[bytes, bytes, bytes]]  # certificate, key, whom to trust
    authority_end: datetime | None
    bundle: bytes


class ForeignChain:
    """Follows the chain, and chooses what to show of `used`, the leaves that this process shows. The Secrets of these
    and of the first server must exist; clients may have theirs from elsewhere.

    Threads: one at a time. Blocks: for its calls' timeouts. I/O: reads from the API server.
    """

    def __init__(
        self,
        store: SecretStore,
        plan: ChainPlan,
        clock: Clock,
        used: Iterable[str],
        following: ForeignFollowing,
    ) -> None:
        self._store, self._plan, self._clock, self._following = store, plan, clock, following
        self._needed = frozenset((*used, plan.servers[0]))
        self._trust = Trust(following.named_by, following.settle_seconds)
        self._callers = Trust(following.callers, 0.0)
        self._shown = {leaf: Shown(following.patience_seconds) for leaf in used}
        self._newest: dict[str, Pair] = {}  # by leaf: as it was last found well
        self._is_recalled = following.published is None

    def look(self) -> Seen:
        """Raises ClusterError when the API server cannot be asked."""
        now, now_utc = self._clock.now(), self._clock.now_utc()
        problems, ends, named = list[str](), dict[str, datetime](), dict[str, tuple[Pair, ...]]()
        for leaf, secret in self._plan.secrets.items():
            data = self._store.data(secret)
            if data is None and leaf not in self._needed:
                named[leaf] = ()
                continue
            with suppress(CertificateError):
                named[leaf] = read_authorities((data or {}).get(layout.BUNDLE, b""), what=secret)
            findings = layout.foreign_findings(data, f"Secret {secret}")
            problems += findings
            if data is not None and not findings:
                self._newest[leaf] = read_pair(data[layout.CERTIFICATE], data[layout.KEY], what=secret)
                ends[leaf] = self._newest[leaf].facts.not_after_utc
        problems += self._recall(now)
        self._trust.update(named, now, now_utc)
        self._callers.update(named, now, now_utc)
        shown = {leaf: self._show(leaf, now, now_utc) for leaf in self._shown if leaf in self._newest}
        bundle = self._trust.bundle
        return Seen(
            tuple(problems),
            ends,
            {leaf: (pair.certificate, pair.key, bundle) for leaf, pair in shown.items()},
            min((pair.facts.not_after_utc for pair in self._trust.named), default=None),
            bundle if self._is_recalled and self._plan.servers[0] in self._newest else b"",
        )

    def _recall(self, now: float) -> list[str]:
        """Takes over the authorities that an earlier process trusted; until they are known, nothing new is
        published."""
        published = self._following.published
        if self._is_recalled or published is None:
            return []
        found = published.authorities()
        if found is None:
            return [published.problem]
        self._trust.recall(found, now)
        self._is_recalled = True
        return []

    def _show(self, leaf: str, now: float, now_utc: datetime) -> Pair:
        newest, shown = self._newest[leaf], self._shown[leaf]
        known_since = now - self._following.spread_seconds
        is_known = not self._following.callers or self._callers.has_known(newest, known_since)
        was_waiting = shown.is_waiting
        chosen = shown.choose(newest, is_known, now, now_utc)
        if shown.is_waiting and not was_waiting:
            log.info("certificates: a new %s waits until its clients trust its authority", leaf)
        return chosen
