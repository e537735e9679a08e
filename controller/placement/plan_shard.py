"""One of the ConfigMaps with plans and holds: what it should contain, what it contains, and what has to be written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from controller.placement.plan_entries import MAX_LINE_BYTES, Content, is_hold, utf8_bytes
from controller.process.worker import backoff_seconds

MAX_SHARD_BYTES: Final = 900 * 1024  # keys and values, those of others too; the API server takes 1 MiB
COMPANY_BYTES: Final = 64 * 1024  # of new entries that are written together
BACKOFF_SECONDS: Final = (0.5, 10.0)  # after a write that failed: the first, and the longest


@dataclass(frozen=True, slots=True)
class Goal:
    """What the ConfigMap should contain next: `text`, with the `lines` by key. `left`: lines for which there is no
    room, and `problem`: why. `is_needed`: whether anything has to be written for that."""

    text: str
    lines: Mapping[str, str]
    left: Mapping[str, str]
    is_needed: bool
    problem: str


class PlanShard:
    """`wanted` has the line of each plan and hold by its key. `dirty` has the keys whose lines the ConfigMap does not
    have like that, with the time at which to write them.

    Threads: the caller's lock. I/O: none.
    """

    def __init__(self, index: int, lines: Mapping[str, str] | None = None) -> None:
        """`lines`: initially wanted, by key."""
        self.index = index
        self.wanted = dict(lines or {})  # the oldest first
        self.wanted_bytes = sum(map(_bytes_of, self.wanted.values()))
        self.dirty: dict[str, float] = {}
        self.due_at = math.inf
        self.uid = self.version = ""  # of the ConfigMap; "" while it does not exist
        self.others: Mapping[str, Mapping[str, Any]] = {}
        self.is_immutable = False
        self.seen_at = -math.inf  # when it was last known to be like this
        self.told: dict[str, tuple[str, ...]] = {}  # problems that were logged, by what they are about
        self._text: str | None = None  # its value under our key; None if damaged or unknown
        self._text_bytes = self._others_bytes = 0
        self._failures, self._retry_at = 0, -math.inf

    @property
    def size_bytes(self) -> int:
        return self._text_bytes + self._others_bytes

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Its rank for a new entry; the smallest is the best: one whose writes succeed, then the emptier one, in steps
        of COMPANY_BYTES, then the one that is written soonest."""
        return self._failures > 0, (self.wanted_bytes + self._others_bytes) // COMPANY_BYTES, self.due_at

    @property
    def unwritten(self) -> int:
        """The number of entries that the ConfigMap lacks or has otherwise."""
        return sum(key in self.wanted for key in self.dirty)

    @property
    def holds(self) -> int:
        return sum(map(is_hold, self.wanted))

    @property
    def is_open(self) -> bool:
        """Whether there is room for one more entry of any size, as far as is known."""
        return not self._failures and self.wanted_bytes + self._others_bytes + MAX_LINE_BYTES <= MAX_SHARD_BYTES

    def has_any(self, keys: Set[str]) -> bool:
        """Whether it has an entry with one of these keys, or has one that is yet to be removed."""
        return not (self.wanted.keys().isdisjoint(keys) and self.dirty.keys().isdisjoint(keys))

    def want(self, key: str, line: str | None, due_at: float) -> bool:
        """Replace that key's wanted line; None removes it. Returns whether the next write is due earlier."""
        if self.wanted.get(key) == line:
            return False
        self.wanted_bytes += _bytes_of(line) - _bytes_of(self.wanted.get(key))
        if line is None:
            del self.wanted[key]
        else:
            self.wanted[key] = line
        self.dirty[key] = min(due_at, self.dirty.get(key, math.inf))
        former, self.due_at = self.due_at, min(self.due_at, max(due_at, self._retry_at))
        return self.due_at < former

    def learn(self, content: Content, now: float) -> int:
        """Take over what the ConfigMap was found to contain. What differs from `wanted` is due at once. Returns how
        many entries somebody else has damaged, changed or removed."""
        lines = content.lines
        differ = [key for key in {**self.wanted, **lines} if self.wanted.get(key) != lines.get(key)]
        changed = sum(key not in self.dirty for key in differ)
        self.dirty, self.seen_at = dict.fromkeys(differ, now), now
        self.uid, self.version, self.is_immutable = content.uid, content.version, content.is_immutable
        self.others, self._others_bytes = content.others, content.others_bytes
        self._text, self._text_bytes = None if content.damaged else content.text, utf8_bytes(content.text or "")
        self._set_due()
        return max(changed, content.damaged)

    def goal(self) -> Goal:
        """What to write next: all that is wanted, whether it is due or not, as far as there is room."""
        lines, left, problem = dict[str, str](), dict[str, str](), ""
        size = self._others_bytes
        for key, line in self.wanted.items():
            more = _bytes_of(line)
            if more <= MAX_LINE_BYTES and size + more <= MAX_SHARD_BYTES:
                lines[key], size = line, size + more
                continue
            left[key] = line
            if not problem and more > MAX_LINE_BYTES:
                problem = f"{key} has {more} bytes, more than {MAX_LINE_BYTES}"
            elif not problem:
                problem = f"it is full: {size} bytes, {self._others_bytes} of them not ours"
        text = "".join(f"{line}\n" for line in lines.values())
        return Goal(text, lines, left, text != self._text or not self.version, problem)

    def wrote(self, goal: Goal, uid: str, version: str, now: float) -> None:
        """The API server has stored that goal for us."""
        self.uid, self.version, self.seen_at, self.is_immutable = uid, version, now, False
        self._text, self._text_bytes = goal.text, utf8_bytes(goal.text)
        self.stands(goal)

    def stands(self, goal: Goal) -> None:
        """The ConfigMap is as that goal says, whoever wrote it. What the goal left out waits until there is room."""
        self._failures, self._retry_at = 0, -math.inf
        wanted, lines = self.wanted, goal.lines
        self.dirty = {key: due for key, due in self.dirty.items() if wanted.get(key) != lines.get(key)}
        self.dirty |= {key: math.inf for key, line in goal.left.items() if wanted.get(key) == line}
        self._set_due()

    def fail(self, now: float) -> None:
        """Put off the next write, for twice as long after each failure in a row."""
        self._failures += 1
        self._retry_at = now + backoff_seconds(self._failures, BACKOFF_SECONDS)
        self._set_due()

    def _set_due(self) -> None:
        is_as_ours = self.version and self._text is not None
        first = min(self.dirty.values(), default=math.inf) if is_as_ours else -math.inf
        self.due_at = max(first, self._retry_at)


def _bytes_of(line: str | None) -> int:
    return utf8_bytes(line) + 1 if line is not None else 0
