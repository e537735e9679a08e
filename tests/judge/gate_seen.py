"""The gate as it stood at each moment, and whether it let Longhorn place a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.judge.facts import OURS, CopyFacts, Raw, seconds_of

SILENT_SECONDS: Final = 45
YOUNG_SECONDS: Final = 30
MOST_SECONDS: Final = 120
AHEAD_SECONDS: Final = 5
# An API server goes by what its own watches have shown it.
LAG_SECONDS: Final = 2.0

OPEN: Final = "the gate was open"
LEFT: Final = "it was marked as left"
AGED: Final = "the leader had it for 30 s"
AGED_IN_ALL: Final = "it was 120 s old"


@dataclass(frozen=True, slots=True)
class GateMoment:
    """What the account, the policy and its binding said."""

    term: str = ""
    renewed: object = None
    since: object = None
    has_policy: bool = False
    is_bound: bool = False

    def is_open(self, now: float) -> bool:
        renewed = self._renewed(now)
        return not (self.has_policy and self.is_bound) or renewed is None or now - renewed > SILENT_SECONDS

    def why_open(self, copy: CopyFacts, now: float) -> str:
        """What let anybody give this copy its first place in a write of that time; empty where nothing did."""
        renewed = self._renewed(now)
        if renewed is None or self.is_open(now):
            return OPEN
        if copy.is_left:
            return LEFT
        if copy.is_held:
            return ""
        if renewed - max(copy.created, seconds_of(self.since) or 0.0) >= YOUNG_SECONDS:
            return AGED
        return AGED_IN_ALL if now - copy.created > MOST_SECONDS else ""

    def _renewed(self, now: float) -> float | None:
        """A stamp that cannot be read, or lies ahead, is none."""
        renewed = seconds_of(self.renewed)
        return None if renewed is None or renewed > now + AHEAD_SECONDS else renewed


class GateHistory:
    """All that the gate was. Threads: one."""

    def __init__(self) -> None:
        self._now = GateMoment()
        self._former: list[tuple[float, GateMoment]] = []  # until when each stood, the oldest first

    def account(self, at: float, raw: Raw | None) -> None:
        marks = ((raw or {}).get("metadata") or {}).get("annotations") or {}
        term, since, renewed = (marks.get(f"{OURS}{name}") for name in ("term", "since", "renewed"))
        self._become(at, replace(self._now, term=str(term or ""), since=since, renewed=renewed))

    def policy(self, at: float, raw: Raw | None) -> None:
        self._become(at, replace(self._now, has_policy=raw is not None))

    def binding(self, at: float, raw: Raw | None) -> None:
        actions = ((raw or {}).get("spec") or {}).get("validationActions") or ()
        self._become(at, replace(self._now, is_bound="Deny" in actions))

    def is_open(self, now: float, at: float) -> bool:
        return any(moment.is_open(now) for moment in self._lately(at))

    def why_open(self, copy: CopyFacts, now: float, at: float) -> str:
        """By whatever the API server may still have gone by."""
        return next(filter(None, (moment.why_open(copy, now) for moment in self._lately(at))), "")

    def had_term(self, term: str, at: float) -> bool:
        return any(moment.term == term for moment in self._lately(at))

    def _become(self, at: float, moment: GateMoment) -> None:
        if moment != self._now:
            self._former.append((at, self._now))
            self._now = moment

    def _lately(self, at: float) -> Iterator[GateMoment]:
        yield self._now
        for until, moment in reversed(self._former):
            if until < at - LAG_SECONDS:
                return
            yield moment
