"""Keeps the leader's plans and holds in ConfigMaps, from which the next leader goes on.

They are memory, not a decision: one counts from the moment at which the allocator made it, and is written within 0.1 s
after that. What cannot be written stays in memory, is told, and is tried again.

A plan that a choice makes of a hold is written together with what is left of the hold: it goes to the same ConfigMap.
Whoever loads finds the places in one of the two, whenever the leader ends.

A former leader's write may arrive late. Each write stands on a resourceVersion, and the load at the beginning of a term
writes all sixteen ConfigMaps, or makes those that are missing. What arrives before that is loaded; what arrives later,
change or creation, is refused as a conflict, and its sender asks whether its term holds before it tries again. The
order is kept by that alone: the term that stands in an annotation is for people.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from controller.allocator.plans.plan import Hold, Plan
from controller.clock import Clock
from controller.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    UnavailableError,
)
from controller.kube.api import KubeApi, find
from controller.kube.resources import CONFIG_MAPS
from controller.placement.plan_entries import (
    SHARDS,
    Content,
    Entry,
    body,
    encode,
    hold_key,
    is_less,
    key_of,
    read,
    several,
    shard_name,
)
from controller.placement.plan_shard import Goal, PlanShard
from controller.process.worker import Part, Worker, waiting

GATHER_SECONDS: Final = 0.05  # from a decision to its write, for others that come meanwhile
REMOVE_SECONDS: Final = 10.0  # what has ended may stand a while: whoever loads it sees that it has ended
LOOK_SECONDS: Final = 5.0  # between looks at a ConfigMap that nothing is written to
CHECK_SECONDS: Final = 1.0  # between questions whether the term holds, while it does not
CALL_SECONDS: Final = 5.0
MOST_TRIES: Final = 5
CALLS: Final = 8  # at a time

_log = logging.getLogger(__name__)
Raw = dict[str, Any]
Of = TypeVar("Of")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What stood there at the beginning of the term."""

    plans: tuple[Plan, ...] = ()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """For metrics and the status page. `shards`: ConfigMaps that are known to stand there. `unwritten`: plans and holds
    that are in memory alone, as yet or for good. `overwritten`: those that others damaged, changed or removed.
    `last_problem` stays until there is another one."""

    plans: int = 0
    holds: int = 0
    shards: int = 0
    size_bytes: int = 0
    fullest_bytes: int = 0
    unwritten: int = 0
    commits: int = 0
    failures: int = 0
    overwritten: int = 0
    last_commit_seconds: float = 0.0
    last_problem: str = ""


class PlanObjects(Part):
    """Writes what `put` and `remove` say, as few times as that takes; `check` is asked right before each write of a
    term, and raises NotReadyError when this process may not write in that one.

    Threads: any. Blocks: `load` and `flush`, for the API server; the rest never. I/O: outside the lock.
    """

    def __init__(self, api: KubeApi, namespace: str, clock: Clock, check: Callable[[int], None]) -> None:
        self._api, self._namespace, self._clock, self._check = api, namespace, clock, check
        self._writing = threading.Lock()  # held for all calls; guards what the shards know of the cluster
        self._term, self._mark = 0, ""  # those that were loaded last; "": nothing is written
        self._lock = threading.Lock()  # guards what the shards want, and the fields below
        self._shards = tuple(PlanShard(index) for index in range(SHARDS))
        self._commits = self._failures = self._overwritten = 0
        self._last_commit_seconds, self._last_problem = 0.0, ""
        self.worker = Worker("plan-objects", self.run_once)

    def put(self, *entries: Entry) -> None:
        """Have these written together, each in place of what stands there for its volume or pod. Never blocks, never
        raises."""
        lines = [(key_of(entry), entry, encode(entry)) for entry in entries]
        with self._lock:
            for key, entry, line in lines:
                shard = self._shard_of(key, entry)
                waits = is_less(entry, line, shard.wanted.get(key))
                self._want(shard, key, line, REMOVE_SECONDS if waits else GATHER_SECONDS)

    def remove(self, *keys: str) -> None:
        """Have what stands there for these removed. Never blocks, never raises."""
        with self._lock:
            for key in keys:
                self._want(self._shard_of(key), key, None, REMOVE_SECONDS)

    def _shard_of(self, key: str, entry: Entry | None = None) -> PlanShard:
        """The one that has it, or had it until a moment ago; for a new plan, one with a hold of its pods; for any other
        new entry, one in which it has company."""
        has = [shard for shard in self._shards if key in shard.wanted]
        has = has or [shard for shard in self._shards if key in shard.dirty]
        if not has and isinstance(entry, Plan):
            holds = set(map(hold_key, entry.pods))
            has = [shard for shard in self._shards if shard.is_open and shard.has_any(holds)]
        return min(has or self._shards, key=lambda shard: shard.busy)

    def _want(self, shard: PlanShard, key: str, line: str | None, seconds: float) -> None:
        if shard.want(key, line, self._clock.now() + seconds):
            self.worker.wake()

    def load(self, term: int) -> Loaded:
        """All plans and holds, after which no late write of a former leader arrives. From here on they are what is
        known: call it at the beginning of each term, before the first `put`. What cannot be read or written is told,
        and tried again later. Raises UnavailableError or NotReadyError, and then nothing is written before the next
        load."""
        with self._writing:
            self._term, self._mark = term, ""
            mark = f"{term}-{secrets.token_hex(4)}"  # the same term twice is a change, too
            found = _at_once(lambda index: self._fenced(index, mark), range(SHARDS))
            with self._lock:
                self._mark, self._shards = mark, tuple(shard for shard, _ in found)
                twice = self._end_twice()
                self._overwritten += len(twice) + sum(content.damaged for _, content in found)
            entries = list[Entry]()
            for shard, content in found:
                if content.version:
                    entries += (entry for key, entry in content.entries.items() if key not in twice)
                    self._tell(shard, "content", *content.problems, *several(twice.intersection(content.entries)))
        self.worker.wake()
        return Loaded(
            tuple(entry for entry in entries if isinstance(entry, Plan)),
            tuple(entry for entry in entries if isinstance(entry, Hold)),
        )

    def _end_twice(self) -> set[str]:
        """The keys of entries in several ConfigMaps. There are none from now on: nobody knows which of them is true."""
        count = Counter(key for shard in self._shards for key in shard.wanted)
        twice = {key for key, entries in count.items() if entries > 1}
        for shard in self._shards:
            for key in twice.intersection(shard.wanted):
                shard.want(key, None, self._clock.now())
        return twice

    def _fenced(self, index: int, mark: str) -> tuple[PlanShard, Content]:
        """What stood there, and the same under the mark, as far as that is possible."""
        shard, content = PlanShard(index), read(None)
        problem = "others write it all the time"
        for _ in range(MOST_TRIES):
            try:
                content = read(self._find(index))
                shard = PlanShard(index, content.lines)
                shard.learn(content, self._clock.now())
                self._check(self._term)
                self._send(shard, shard.goal(), mark, CALL_SECONDS)
            except (NotFoundError, ConflictError):
                continue
            except UnavailableError:
                raise
            except ClusterError as error:
                problem = str(error)
                break
            return shard, content
        shard.fail(self._clock.now())
        self._tell(shard, "write", f"cannot be read or made: {problem}")
        return shard, content

    def flush(self, seconds: float) -> bool:
        """Write all that waits, as far as `seconds` allow; whether everything is written."""
        deadline = self._clock.now() + seconds
        if not self._writing.acquire(timeout=seconds):
            return False
        try:
            with self._lock:
                waiting = [shard for shard in self._shards if shard.dirty]
            if self._mark:
                self._commit(waiting, deadline)
            with self._lock:
                return not any(shard.dirty for shard in self._shards)
        except NotReadyError:
            return False
        finally:
            self._writing.release()

    def figures(self) -> PlanFigures:
        with self._lock:
            sizes = [shard.size_bytes for shard in self._shards]
            holds = sum(shard.holds for shard in self._shards)
            return PlanFigures(
                plans=sum(len(shard.wanted) for shard in self._shards) - holds,
                holds=holds,
                shards=sum(bool(shard.version) for shard in self._shards),
                size_bytes=sum(sizes),
                fullest_bytes=max(sizes),
                unwritten=sum(shard.unwritten for shard in self._shards),
                commits=self._commits,
                failures=self._failures,
                overwritten=self._overwritten,
                last_commit_seconds=self._last_commit_seconds,
                last_problem=self._last_problem,
            )

    # The thread

    def run_once(self) -> float | None:
        """Write what is due, else look at one that was not seen for a while; seconds until the next round."""
        with self._writing:
            if not self._mark:
                return None
            now = self._clock.now()
            with self._lock:
                due = [shard for shard in self._shards if shard.due_at <= now]
            oldest = min(self._shards, key=lambda shard: shard.seen_at)
            try:
                if due:
                    self._commit(due, math.inf)
                elif oldest.seen_at + LOOK_SECONDS <= now:
                    self._check(self._term)
                    self._look(oldest)
            except NotReadyError:
                return CHECK_SECONDS
            except ClusterError as error:
                self._tell(oldest, "content", f"cannot be read: {error}")
                with self._lock:
                    oldest.seen_at = now  # the next look follows after the same pause
            with self._lock:
                next_at = min(min(shard.due_at, shard.seen_at + LOOK_SECONDS) for shard in self._shards)
        return max(0.0, next_at - self._clock.now())

    def _commit(self, shards: Sequence[PlanShard], deadline: float) -> None:
        """Write these, as far as possible. Raises NotReadyError, and then what is not written waits."""
        started, before = self._clock.now(), self._commits
        _at_once(lambda shard: self._try(shard, deadline), shards)
        if self._commits > before:
            self._last_commit_seconds = self._clock.now() - started

    def _try(self, shard: PlanShard, deadline: float) -> None:
        try:
            self._write(shard, deadline)
        except ClusterError as error:
            with self._lock:
                self._failures += 1
                shard.fail(self._clock.now())
            self._tell(shard, "write", f"cannot be written: {error}")

    def _write(self, shard: PlanShard, deadline: float) -> None:
        """What waits stands there, or is told to have no room. Raises ClusterError or NotReadyError."""
        last: ClusterError | None = None
        for _ in range(MOST_TRIES):
            with self._lock:
                goal = shard.goal()
            self._tell(shard, "room", goal.problem)
            if goal.is_needed:
                self._check(self._term)
                try:
                    self._send(shard, goal, self._mark, min(CALL_SECONDS, deadline - self._clock.now()))
                except (NotFoundError, ConflictError) as error:
                    last = error
                    self._look(shard)
                    continue
            with self._lock:
                if goal.is_needed:
                    self._commits += 1
                else:
                    shard.stands(goal)
            self._tell(shard, "write")
            return
        raise ClusterError(f"others write it all the time: {last}")

    def _send(self, shard: PlanShard, goal: Goal, mark: str, timeout: float) -> None:
        """Have it stand there. Raises ClusterError."""
        if timeout <= 0:
            raise UnavailableError("there is no time left")
        name, raw = shard_name(shard.index), body(shard.index, mark, goal.text, shard.others)
        if shard.version and not shard.is_immutable:
            raw["metadata"]["resourceVersion"] = shard.version
            found = self._api.replace(CONFIG_MAPS, self._namespace, name, raw, timeout=timeout)
        else:
            if shard.version:
                self._api.delete(
                    CONFIG_MAPS, self._namespace, name, uid=shard.uid, version=shard.version, timeout=timeout
                )
            found = self._api.create(CONFIG_MAPS, self._namespace, raw, timeout=timeout)
        meta = found["metadata"]
        with self._lock:
            shard.wrote(goal, str(meta.get("uid", "")), meta["resourceVersion"], self._clock.now())

    def _find(self, index: int) -> Raw | None:
        return find(self._api, CONFIG_MAPS, self._namespace, shard_name(index), timeout=CALL_SECONDS)

    def _look(self, shard: PlanShard) -> None:
        """Learn what others have made of it, which is told, and written anew. Raises ClusterError."""
        raw = self._find(shard.index)
        if raw is not None and raw["metadata"]["resourceVersion"] == shard.version:
            with self._lock:
                shard.seen_at = self._clock.now()
            self._tell(shard, "content")
            return
        content = read(raw)
        with self._lock:
            changed = shard.learn(content, self._clock.now())
            self._overwritten += changed
        anew = f"{changed} entries are not what the leader wrote, and are written anew" if changed else ""
        self._tell(shard, "content", *content.problems, anew)

    def _tell(self, shard: PlanShard, about: str, *problems: str) -> None:
        """Log those that are new; "" is none. There are no others about that any more."""
        name = shard_name(shard.index)
        with self._lock:
            new = [problem for problem in problems if problem and problem not in shard.told.get(about, ())]
            shard.told[about] = problems
            if new:
                self._last_problem = f"{name}: {new[-1]}"
        for problem in new:
            _log.warning("plans in ConfigMap %s: %s", name, problem)


def _at_once(do: Callable[[Of], Found], of: Iterable[Of]) -> list[Found]:
    """What it finds for each, in their order; the first error, once all have ended."""
    with waiting(), ThreadPoolExecutor(CALLS, "plan-objects") as pool:
        return list(pool.map(do, of))
