"""The last decisions of the process, for `/decisions` and for the page: a bounded ring that all parts feed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Protocol

from controller.clock import Clock
from controller.rules.reasons import Reason
from controller.views.documents import DecisionEntry

KEPT: Final = 2_000
Reasons = Mapping[str, int] | Mapping[Reason, int]
_NO_REASONS: Final[Mapping[str, int]] = {}


class NoteDecision(Protocol):
    """Takes one decision, as `DecisionLog.note`. Must not block, and is called outside of every lock."""

    def __call__(
        self,
        kind: str,
        about: str,
        decision: str,
        reasons: Reasons = ...,
        text: str = ...,
        milliseconds: float = ...,
    ) -> None: ...


def unnoted(
    kind: str,
    about: str,
    decision: str,
    reasons: Reasons = _NO_REASONS,
    text: str = "",
    milliseconds: float = 0.0,
) -> None:
    """Takes the decisions of a part that stands alone, and forgets them."""


@dataclass(frozen=True, slots=True)
class _Noted:
    serial: int
    at_utc: datetime
    kind: str
    about: str
    decision: str
    reasons: Reasons
    text: str
    milliseconds: float


class DecisionLog:
    """The last KEPT decisions, each with a serial number, which counts from 1 in each process.

    Threads: any. Blocks: never; the lock is held for an append, or for the copy of what is kept. I/O: none.
    """

    def __init__(self, clock: Clock, kept: int = KEPT) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the fields below
        self._last = 0
        self._entries = deque[_Noted](maxlen=kept)

    def note(
        self,
        kind: str,
        about: str,
        decision: str,
        reasons: Reasons = _NO_REASONS,
        text: str = "",
        milliseconds: float = 0.0,
    ) -> None:
        """Keep one decision; the fields are those of `DecisionEntry`. `reasons` must not change afterwards."""
        now_utc = self._clock.now_utc()
        with self._lock:
            self._last += 1
            self._entries.append(_Noted(self._last, now_utc, kind, about, decision, reasons, text, milliseconds))

    def after(self, serial: int = 0) -> Sequence[DecisionEntry]:
        """What came after that serial, oldest first, as far as it is kept. All of it, if the process has not come so
        far: then the serial is another process's."""
        with self._lock:
            known = serial if 0 <= serial <= self._last else 0
            new = min(self._last - known, len(self._entries))
            entries = list(islice(self._entries, len(self._entries) - new, None))
        return [_entry(one) for one in entries]


def _entry(one: _Noted) -> DecisionEntry:
    time = one.at_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    reasons = {str(reason): count for reason, count in sorted(one.reasons.items())}
    milliseconds = round(one.milliseconds, 1)
    return DecisionEntry(one.serial, time, one.kind, one.about, one.decision, reasons, one.text, milliseconds)
