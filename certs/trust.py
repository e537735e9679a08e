"""Which authorities to trust, and which leaf to show, while others change an authority unannounced. Pure.

Several Secrets of one chain change one after the other, minutes apart, in any order. Two rules keep everybody served
meanwhile. Trust begins early and ends late: an authority counts from the moment that one Secret names it until a
settling time after the last one did. A leaf is shown late: the previous one stays until the other side has had time to
learn the new one's authority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from certs.authority import Pair, bundle_of, is_rooted_in

# All of them are in every entry of a webhook configuration, and are searched in every handshake: somebody who writes
# another authority every minute must not fill either. A usual change has one.
MOST_FORMER: Final = 16


@dataclass(frozen=True, slots=True)
class _Known:
    """An authority, since when it has been known here, and when it was last named; monotonic times."""

    pair: Pair
    since: float
    named_at: float


class Trust:
    """The authorities that the sources name, and those that they named before.

    `sources` are those that count. A source that cannot be read, is damaged or names nothing any more counts with what
    it named last. Until each has been read once, its contents are unknown, and no authority settles.
    Threads: one at a time. I/O: none.
    """

    def __init__(self, sources: Iterable[str], settle_seconds: float) -> None:
        self._sources, self._settle_seconds = frozenset(sources), settle_seconds
        self._named: dict[str, tuple[Pair, ...]] = {}
        self._known: dict[str, _Known] = {}  # by fingerprint

    @property
    def named(self) -> tuple[Pair, ...]:
        """The authorities that the sources name, each once, in their order."""
        found = {pair.facts.fingerprint: pair for name in sorted(self._named) for pair in self._named[name]}
        return tuple(found.values())

    @property
    def bundle(self) -> bytes:
        """All trusted authorities in PEM: the same bytes in every process with the same knowledge."""
        named = {pair.facts.fingerprint for pair in self.named}
        former = sorted(self._known.keys() - named)
        return bundle_of((*self.named, *(self._known[fingerprint].pair for fingerprint in former)))

    def recall(self, authorities: Iterable[Pair], now: float) -> None:
        """Adds what was trusted before this process began."""
        for pair in authorities:
            self._known.setdefault(pair.facts.fingerprint, _Known(pair, now, now))

    def update(self, named: Mapping[str, Sequence[Pair]], now: float, now_utc: datetime) -> None:
        """Takes what the readable sources name now."""
        for name in self._sources & named.keys():
            self._named[name] = tuple(named[name]) or self._named.get(name, ())
        present = {pair.facts.fingerprint: pair for pair in self.named}
        for fingerprint, pair in present.items():
            known = self._known.get(fingerprint, _Known(pair, now, now))
            self._known[fingerprint] = replace(known, named_at=now)
        former = {fingerprint: known for fingerprint, known in self._known.items() if fingerprint not in present}
        if not self._named.keys() >= self._sources:
            former = {fingerprint: replace(known, named_at=now) for fingerprint, known in former.items()}
        staying = [
            (known.named_at, fingerprint)
            for fingerprint, known in former.items()
            if now_utc <= known.pair.facts.not_after_utc and now - known.named_at < self._settle_seconds
        ]
        kept = {fingerprint: former[fingerprint] for _, fingerprint in sorted(staying, reverse=True)[:MOST_FORMER]}
        self._known = {fingerprint: self._known[fingerprint] for fingerprint in present} | kept

    def has_known(self, leaf: Pair, since: float) -> bool:
        """Whether an authority of the leaf has been known from `since` on, or longer."""
        return is_rooted_in(leaf.certificate, [known.pair for known in self._known.values() if known.since <= since])


class Shown:
    """One leaf as it is shown: the previous one until the other side knows the next one's authority, but at most for
    `patience_seconds` and while it is valid, since that may never happen.

    Threads: one at a time. I/O: none.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._shown: Pair | None = None
        self._waits_since: float | None = None

    @property
    def is_waiting(self) -> bool:
        return self._waits_since is not None

    def choose(self, newest: Pair, is_known: bool, now: float, now_utc: datetime) -> Pair:
        """The leaf to show from now on, where `newest` is the one that stands in its Secret."""
        if self._waits_since is None:
            self._waits_since = now
        is_late = now - self._waits_since >= self._patience_seconds
        if self._shown is None or is_known or is_late or now_utc > self._shown.facts.not_after_utc:
            self._shown = newest
        if self._shown == newest:
            self._waits_since = None
        return self._shown

    def forget(self) -> None:
        """Nothing is shown: the next one is, at once."""
        self._shown = self._waits_since = None
