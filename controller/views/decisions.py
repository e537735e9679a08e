"""The last decisions of the process, for `/decisions` and for the page: a bounded ring that all parts feed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Protocol, TypedDict, Unpack

from controller.clock import Clock
from controller.log_line import MILLISECONDS, NAMESPACE, say
from controller.rules.reasons import Reason
from controller.views.documents import DecisionEntry

KEPT: Final = 2_000
MOST_CHARACTERS: Final = 2_048  # of an object or a text: callers write them
Reasons = Mapping[str, int] | Mapping[Reason, int]
_NO_REASONS: Final[Mapping[str, int]] = {}
# As facts of the log, by the kind of the object; others by their kind in small letters.
_NAMES: Final = {"PersistentVolumeClaim": "claim"}
_log = logging.getLogger("decisions")


class DecisionDetails(TypedDict, total=False):
    """What may be told of a decision besides what it is: fields of `DecisionEntry`; and of its line in the log `facts`,
    which it has in place of the text, and the level."""

    reasons: Reasons
    text: str
    milliseconds: float | None
    facts: Mapping[str, object]
    level: int


class NoteDecision(Protocol):
    """Takes one decision, as `DecisionLog.note`. Must not block, and is called outside of every lock."""

    def __call__(self, kind: str, about: str, decision: str, **told: Unpack[DecisionDetails]) -> None: ...


def log_decision(kind: str, about: str, decision: str, **told: Unpack[DecisionDetails]) -> None:
    """Log the decision: one line for each, with its object, its reasons and its milliseconds."""
    level = told.get("level", logging.INFO)
    if not _log.isEnabledFor(level):
        return
    fields: dict[str, object] = {}
    if about:
        what, _, key = about.partition(" ")
        namespace, _, name = key.rpartition("/")
        if namespace:
            fields[NAMESPACE] = namespace
        fields[_NAMES.get(what, what.lower())] = name
    fields["decision"] = decision
    if told.get("reasons"):
        fields["reasons"] = told["reasons"]
    fields |= told.get("facts") or ({"text": told["text"]} if told.get("text") else {})
    if told.get("milliseconds") is not None:
        fields[MILLISECONDS] = told["milliseconds"]
    say(_log, kind, level, **fields)


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

    Threads: any. Blocks: never; the lock is held for an append, or for the copy of what is kept. I/O: the log's.
    """

    def __init__(self, clock: Clock, kept: int = KEPT) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the fields below
        self._last = 0
        self._entries = deque[_Noted](maxlen=kept)

    def note(self, kind: str, about: str, decision: str, **told: Unpack[DecisionDetails]) -> None:
        """Keep one decision, and log it. `reasons` must not change afterwards."""
        log_decision(kind, about, decision, **told)
        now_utc, about, text = self._clock.now_utc(), about[:MOST_CHARACTERS], told.get("text", "")[:MOST_CHARACTERS]
        reasons, milliseconds = told.get("reasons", _NO_REASONS), told.get("milliseconds") or 0.0
        with self._lock:
            self._last += 1
            self._entries.append(_Noted(self._last, now_utc, kind, about, decision, reasons, text, milliseconds))

    def after(self, serial: int = 0, last: int = 0) -> Sequence[DecisionEntry]:
        """What came after that serial, oldest first, as far as it is kept; of these the newest `last`, or 0: all. If
        the process has not come so far, the serial is another process's, and counts as 0."""
        with self._lock:
            known = serial if 0 <= serial <= self._last else 0
            new = min(self._last - known, len(self._entries), last or KEPT)
            entries = list(islice(self._entries, len(self._entries) - new, None))
        return [_entry(one) for one in entries]


def _entry(one: _Noted) -> DecisionEntry:
    time = one.at_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    reasons = {str(reason): count for reason, count in sorted(one.reasons.items())}
    milliseconds = round(one.milliseconds, 1)
    return DecisionEntry(one.serial, time, one.kind, one.about, one.decision, reasons, one.text, milliseconds)
