"""One of the ConfigMaps with plans and holds: what is wanted there, what stands there, and what is to be written for
that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from controller.placement.plan_entries import MAX_LINE_BYTES, Content, is_hold, size_of
from controller.process.worker import backoff_seconds

MAX_SHARD_BYTES: Final = 900 * 1024  # keys and values, those of others too; the API server takes 1 MiB
COMPANY_BYTES: Final = 64 * 1024  # of new entries that are written together
BACKOFF_SECONDS: Final = (0.5, 10.0)  # after a write that failed: the first, and the longest


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to stand there. `lines`: by key, those that `text` has. `left`: those that it has not, and `problem`:
    why."""

    text: str
    lines: Mapping[str, str]
    left: Mapping[str, str]
    is_needed: bool
    problem: str


class PlanShard:
    """`wanted` has a line for each plan and hold, by its key. What does not stand there like that is in `dirty`, with
    the time at which it is to be written.

    Threads: the caller's lock. I/O: none.
    """

    def __init__(self, index: int, lines: Mapping[str, str] | None = None) -> None:
        """`lines`: what is wanted from the start."""
        self.index = index
        self.wanted = dict(lines or {})  # the oldest first
        self.wanted_bytes = sum(map(_bytes_of, self.wanted.values()))
        self.dirty: dict[str, float] = {}
        self.due_at = math.inf
        self.uid = self.version = ""  # "": it is not there
        self.others: Mapping[str, Mapping[str, Any]] = {}
        self.is_immutable = False
        self.seen_at = -math.inf  # when we last knew that it stands there like this
        self.told: dict[str, tuple[str, ...]] = {}  # problems, by what they are about
        self._text: str | None = None  # None: not as we would write it, whatever that is
        self._text_bytes = self._others_bytes = 0
        self._failures, self._retry_at = 0, -math.inf

    @property
    def size_bytes(self) -> int:
        return self._text_bytes + self._others_bytes

    @property
    def busy(self) -> tuple[bool, int, float]:
        """The less, the better is it for one more entry: one that is written anyway, and of those of like size. A write
        of a hundred plans takes as long as one of a single plan."""
        return self._failures > 0, (self.wanted_bytes + self._others_bytes) // COMPANY_BYTES, self.due_at

    @property
    def unwritten(self) -> int:
        """Entries that do not stand there."""
        return sum(key in self.wanted for key in self.dirty)

    @property
    def holds(self) -> int:
        return sum(map(is_hold, self.wanted))

    @property
    def is_open(self) -> bool:
        """Whether one more entry may be stored there, as far as is known."""
        return not self._failures and self.wanted_bytes + self._others_bytes + MAX_LINE_BYTES <= MAX_SHARD_BYTES

    def has_any(self, keys: Set[str]) -> bool:
        """Whether one of these is wanted there, or was until a moment ago."""
        return not (self.wanted.keys().isdisjoint(keys) and self.dirty.keys().isdisjoint(keys))

    def want(self, key: str, line: str | None, due_at: float) -> bool:
        """Whether something is due earlier than before: `line` is wanted for that key, None for no entry."""
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
        """How many entries somebody else has damaged, changed or removed: this stands there now. They are written anew
        at once."""
        lines = content.lines
        differ = [key for key in {**self.wanted, **lines} if self.wanted.get(key) != lines.get(key)]
        changed = sum(key not in self.dirty for key in differ)
        self.dirty, self.seen_at = dict.fromkeys(differ, now), now
        self.uid, self.version, self.is_immutable = content.uid, content.version, content.is_immutable
        self.others, self._others_bytes = content.others, content.others_bytes
        self._text, self._text_bytes = None if content.damaged else content.text, size_of(content.text or "")
        self._settle()
        return max(changed, content.damaged)

    def goal(self) -> Goal:
        """With all that waits, whether it is due or not."""
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
        """We have put it there."""
        self.uid, self.version, self.seen_at, self.is_immutable = uid, version, now, False
        self._text, self._text_bytes = goal.text, size_of(goal.text)
        self.stands(goal)

    def stands(self, goal: Goal) -> None:
        """It stands there, whoever wrote it. What it left out waits until something else goes."""
        self._failures, self._retry_at = 0, -math.inf
        wanted, lines = self.wanted, goal.lines
        self.dirty = {key: due for key, due in self.dirty.items() if wanted.get(key) != lines.get(key)}
        self.dirty |= {key: math.inf for key, line in goal.left.items() if wanted.get(key) == line}
        self._settle()

    def fail(self, now: float) -> None:
        """Not to be tried again for a while, which doubles with each failure in a row."""
        self._failures += 1
        self._retry_at = now + backoff_seconds(self._failures, BACKOFF_SECONDS)
        self._settle()

    def _settle(self) -> None:
        is_as_ours = self.version and self._text is not None
        first = min(self.dirty.values(), default=math.inf) if is_as_ours else -math.inf
        self.due_at = max(first, self._retry_at)


def _bytes_of(line: str | None) -> int:
    return size_of(line) + 1 if line is not None else 0
