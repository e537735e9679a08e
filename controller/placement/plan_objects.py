"""Stores the leader's plans and holds in ConfigMaps, from which the next leader continues.

The ConfigMaps are a backup: a plan or hold counts from the moment at which the allocator makes it, and is stored within
0.1 s. What cannot be stored stays in memory, is logged, and is tried again.

A plan that a choice makes of a hold is stored in one write with what is left of the hold, in the same ConfigMap. So
whenever the leader ends, the next one finds the places in one of the two.

A former leader's write may arrive late. Each write is conditional on a resourceVersion, and the load at the beginning
of a term writes all sixteen ConfigMaps, or creates those that are missing. What arrives before that is loaded. What
arrives later, an update or a creation, is refused as a conflict, and its sender checks its term before it tries again.
That alone keeps the order: the annotation with the term is for people.
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
    config_map,
    duplicates_problem,
    encode,
    hold_key,
    key_of,
    only_shrinks,
    read,
    shard_name,
)
from controller.placement.plan_shard import Goal, PlanShard
from controller.process.worker import Part, Worker, waiting

GATHER_SECONDS: Final = 0.05  # from a decision to its write, so that others share the write
REMOVE_SECONDS: Final = 10.0  # until what has ended is removed: whoever loads it sees that it has ended
LOOK_SECONDS: Final = 5.0  # between reads of a ConfigMap that nothing is written to
CHECK_SECONDS: Final = 1.0  # between checks of the term, while it does not hold
CALL_SECONDS: Final = 5.0
MOST_TRIES: Final = 5
CALLS: Final = 8  # of the API server, in parallel

_log = logging.getLogger(__name__)
Raw = dict[str, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The plans and holds that were stored when the term began."""

    plans: tuple[Plan, ...] = ()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """For metrics and the status page. `shards`: ConfigMaps that are known to exist. `unwritten`: plans and holds that
    are only in memory, for now or for good. `overwritten`: those that others damaged, changed or removed.
    `problem`: why some cannot be written now."""

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
    problem: str = ""


class PlanObjects(Part):
    """Stores what `put` and `remove` are given, in few writes. `check` is called right before each write with its term,
    and raises NotReadyError when this process may not write in that term.

    Threads: any. Blocks: `load` and `flush`, for the API server; the rest never. I/O: outside the lock.
    """

    def __init__(self, api: KubeApi, namespace: str, clock: Clock, check: Callable[[int], None]) -> None:
        self._api, self._namespace, self._clock, self._check = api, namespace, clock, check
        self._writing = threading.Lock()  # held during calls of the API server; guards what shards know of the cluster
        self._term, self._mark = 0, ""  # of the last load; without a mark nothing is written
        self._lock = threading.Lock()  # guards what is wanted of the shards, and the fields below
        self._shards = tuple(PlanShard(index) for index in range(SHARDS))
        self._commits = self._failures = self._overwritten = 0
        self._last_commit_seconds, self._last_problem = 0.0, ""
        self.worker = Worker("plan-objects", self.run_once)

    def put(self, *entries: Entry) -> None:
        """Have these stored together, each in place of its volume's or pod's stored one. Never blocks, never raises."""
        lines = [(key_of(entry), entry, encode(entry)) for entry in entries]
        with self._lock:
            for key, entry, line in lines:
                shard = self._shard_of(key, entry)
                waits = only_shrinks(entry, line, shard.wanted.get(key))
                self._want(shard, key, line, REMOVE_SECONDS if waits else GATHER_SECONDS)

    def remove(self, *keys: str) -> None:
        """Have the stored entries of these keys removed. Never blocks, never raises."""
        with self._lock:
            for key in keys:
                self._want(self._shard_of(key), key, None, REMOVE_SECONDS)

    def _shard_of(self, key: str, entry: Entry | None = None) -> PlanShard:
        """The shard that has the key, or has yet to remove it; for a new plan, a shard with a hold of one of its pods;
        for any other new entry, the best by `PlanShard.rank`."""
        has = [shard for shard in self._shards if key in shard.wanted]
        has = has or [shard for shard in self._shards if key in shard.dirty]
        if not has and isinstance(entry, Plan):
            holds = set(map(hold_key, entry.pods))
            has = [shard for shard in self._shards if shard.is_open and shard.has_any(holds)]
        return min(has or self._shards, key=lambda shard: shard.rank)

    def _want(self, shard: PlanShard, key: str, line: str | None, seconds: float) -> None:
        if shard.want(key, line, self._clock.now() + seconds):
            self.worker.wake()

    def load(self, term: int) -> Loaded:
        """All stored plans and holds, which replace those in memory. From its return on, no late write of a former
        leader is accepted. Call it at the beginning of each term, before the first `put`. What cannot be read or
        written is tried again. After UnavailableError or NotReadyError nothing is written until the next load."""
        with self._writing:
            self._term, self._mark = term, ""
            mark = f"{term}-{secrets.token_hex(4)}"  # the same term twice is a change, too
            found = _in_parallel(lambda index: self._fence(index, mark), range(SHARDS))
            with self._lock:
                self._mark, self._shards = mark, tuple(shard for shard, _ in found)
                twice = self._drop_duplicates()
                self._overwritten += len(twice) + sum(content.damaged for _, content in found)
            entries = list[Entry]()
            for shard, content in found:
                if content.version:
                    entries += (entry for key, entry in content.entries.items() if key not in twice)
                    self._tell(
                        shard, "content", *content.problems, *duplicates_problem(twice.intersection(content.entries))
                    )
        self.worker.wake()
        return Loaded(
            tuple(entry for entry in entries if isinstance(entry, Plan)),
            tuple(entry for entry in entries if isinstance(entry, Hold)),
        )

    def _drop_duplicates(self) -> set[str]:
        """Drop entries whose key is in several ConfigMaps: nobody knows which is true. Returns the keys."""
        count = Counter(key for shard in self._shards for key in shard.wanted)
        twice = {key for key, entries in count.items() if entries > 1}
        for shard in self._shards:
            for key in twice.intersection(shard.wanted):
                shard.want(key, None, self._clock.now())
        return twice

    def _fence(self, index: int, mark: str) -> tuple[PlanShard, Content]:
        """Read that ConfigMap and write it back with the mark, if that is possible: from then on a write that is based
        on an earlier resourceVersion is a conflict. Raises UnavailableError or NotReadyError."""
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
        """Write all that waits, for `seconds` at most. Returns whether everything is stored."""
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
                problem=next(filter(None, map(_problem_of, self._shards)), ""),
            )

    # The thread

    def run_once(self) -> float | None:
        """Write what is due, or read what was not read for longest. Returns the seconds until the next round."""
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
        """Write these, as far as possible. Raises NotReadyError; what is not written then waits."""
        started, before = self._clock.now(), self._commits
        _in_parallel(lambda shard: self._try(shard, deadline), shards)
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
        """Store what waits there; log what has no room. Raises ClusterError or NotReadyError."""
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
        """Write that goal, by an update, or a creation if it does not exist or is immutable. Raises ClusterError."""
        if timeout <= 0:
            raise UnavailableError("there is no time left")
        name, raw = shard_name(shard.index), config_map(shard.index, mark, goal.text, shard.others)
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
        """Read the ConfigMap again; others' changes are logged, and written over soon. Raises ClusterError."""
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
        """Log those of the problems that are new; "" is none. They replace the former ones of that subject."""
        name = shard_name(shard.index)
        with self._lock:
            new = [problem for problem in problems if problem and problem not in shard.told.get(about, ())]
            shard.told[about] = problems
            if new:
                self._last_problem = f"{name}: {new[-1]}"
        for problem in new:
            _log.warning("plans in ConfigMap %s: %s", name, problem)


def _problem_of(shard: PlanShard) -> str:
    told = (problem for about in ("write", "room") for problem in shard.told.get(about, ()) if problem)
    return next((f"{shard_name(shard.index)}: {problem}" for problem in told), "")


def _in_parallel(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results in the order of the items. Raises the first error, once all calls have ended."""
    with waiting(), ThreadPoolExecutor(CALLS, "plan-objects") as pool:
        return list(pool.map(do, items))
