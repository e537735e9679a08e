"""Events for people: what `kubectl describe` shows below an object.

They are a courtesy, never a record: a note costs its caller nothing, notes with the same words become one Event with a
count, of a noisy object only the last word of each reason is heard, namespaces take turns, and what cannot be written
is counted and forgotten. An Event has the time of what it tells, so that one that was written late does not look like
the newest. Core `v1` Events, as kube-scheduler's and the kubelet's are, because `kubectl` shows their counts.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from controller.clock import Clock
from controller.errors import ClusterError, NotFoundError, UnavailableError
from controller.kube.api import KubeApi
from controller.kube.resources import EVENTS
from controller.log_line import say
from controller.model.times import rfc3339
from controller.process.fair_queue import FairQueue
from controller.process.worker import Part, Worker

QUEUE_LIMIT: Final = 2_000
NAMESPACE_LIMIT: Final = 1_000
REMEMBERED: Final = 4_096  # Events and objects that are known at a time
REPEAT_SECONDS: Final = 10.0  # between two writes of one Event
SERIES_SECONDS: Final = 600.0  # a repetition after longer is an Event of its own
WRITE_EVERY_SECONDS: Final = 0.1
OBJECT_BURST: Final = 25  # notes about one object at once, then one per OBJECT_REFILL_SECONDS
OBJECT_REFILL_SECONDS: Final = 60.0
TRIES: Final = 3
CALL_SECONDS: Final = 3.0
STOP_SECONDS: Final = 3.0
MESSAGE_LIMIT: Final = 1_000  # characters; the API takes 1,024 bytes in its newer form
CLUSTER_NAMESPACE: Final = "default"  # where Events of objects without a namespace must stand

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """The object that an Event is about; `namespace` "" for objects of the whole cluster."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class Note:
    """What is told: a reason in one CamelCase word, and a sentence."""

    target: Target
    reason: str
    message: str
    is_warning: bool = False


@dataclass(slots=True)
class _Waiting:
    told: Note
    told_utc: str  # the last time
    count: int = 1
    tries: int = 0


@dataclass(frozen=True, slots=True)
class _Written:
    """An Event that exists, as far as we know."""

    name: str
    count: int
    first_utc: str
    at: float


@dataclass(slots=True)
class _Allowance:
    """How many notes about an object are `left`, after refills up to `filled_at`."""

    filled_at: float
    left: int = OBJECT_BURST


class Recorder(Part):
    """Takes notes from anywhere and writes them in its own time.

    Threads: `note` from any; the rest is `worker`'s. Blocks: only `stop`. I/O: one call for each Event, outside the
    lock.
    """

    def __init__(self, api: KubeApi, clock: Clock, *, component: str, instance: str) -> None:
        self._api, self._clock = api, clock
        self._component, self._instance = component, instance
        self._lock = threading.Lock()  # guards the fields below
        # By note; by object and reason the last note that is over the object's allowance.
        self._waiting: FairQueue[Note | tuple[Target, str], _Waiting] = FairQueue(QUEUE_LIMIT, NAMESPACE_LIMIT)
        self._allowances: OrderedDict[Target, _Allowance] = OrderedDict()
        self._dropped = 0
        self._written: OrderedDict[Note, _Written] = OrderedDict()  # the writing thread's own
        self.worker = Worker("recorder", self._round, at_end=self._drain)

    @property
    def dropped(self) -> int:
        """Notes that were never written, because there were too many or because the API server did not take them."""
        with self._lock:
            return self._dropped

    def note(self, target: Target, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Has an Event written at some later time. Never blocks, never raises."""
        told, now_utc = Note(target, reason, message[:MESSAGE_LIMIT], is_warning), rfc3339(self._clock.now_utc())
        with self._lock:
            waiting = self._waiting.get(target.namespace, told)
            if waiting is not None:
                waiting.count, waiting.told_utc = waiting.count + 1, now_utc
            elif self._allows_locked(target):
                self._put_locked(told, _Waiting(told, now_utc), self._clock.now())
            else:
                earlier = self._waiting.get(target.namespace, (target, reason))
                self._dropped += earlier.count if earlier is not None else 0
                self._put_locked((target, reason), _Waiting(told, now_utc), self._refilled_at_locked(target))
        self.worker.wake()

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Write what is due, as far as `timeout` seconds allow, and end the thread."""
        self.worker.stop(timeout)

    def run_once(self) -> float | None:
        """Writes one Event if one is due; returns the seconds until the next may be, None when none waits."""
        with self._lock:
            now = self._clock.now()
            taken = self._waiting.take(now)
            if taken is None:
                return self._waiting.due_at() - now if len(self._waiting) else None
            key, waiting = taken
            told = waiting.told
            if key != told and not self._allows_locked(told.target):
                self._put_locked(key, waiting, self._refilled_at_locked(told.target))
                return 0.0
        known = self._written.get(told)
        if known is not None and not waiting.tries and self._clock.now() < known.at + REPEAT_SECONDS:
            self._put_back(waiting, known.at + REPEAT_SECONDS)
            return 0.0
        try:
            self._write(waiting, known)
        except UnavailableError as error:
            waiting.tries += 1
            if waiting.tries < TRIES:
                self._put_back(waiting, self._clock.now() + waiting.tries)
            else:
                self._give_up(told, waiting.count, error)
        except ClusterError as error:
            self._give_up(told, waiting.count, error)
        return WRITE_EVERY_SECONDS

    def _put_back(self, waiting: _Waiting, due_at: float) -> None:
        with self._lock:
            newer = self._waiting.get(waiting.told.target.namespace, waiting.told)
            if newer is not None:
                waiting.count, waiting.told_utc = waiting.count + newer.count, newer.told_utc
            self._put_locked(waiting.told, waiting, due_at)

    def _put_locked(self, key: Note | tuple[Target, str], waiting: _Waiting, due_at: float) -> None:
        dropped = self._waiting.put(waiting.told.target.namespace, key, waiting, due_at)
        self._dropped += dropped[1].count if dropped is not None else 0

    def _give_up(self, told: Note, count: int, error: ClusterError) -> None:
        with self._lock:
            self._dropped += count
        what = {"kind": told.target.kind, "namespace": told.target.namespace, "name": told.target.name}
        say(_log, "event not written", **what, reason=told.reason, error=error)

    def _write(self, waiting: _Waiting, known: _Written | None) -> None:
        told, count, told_utc, now = waiting.told, waiting.count, waiting.told_utc, self._clock.now()
        namespace = told.target.namespace or CLUSTER_NAMESPACE
        if known is not None and now - known.at < SERIES_SECONDS:
            total = known.count + count
            change = {"count": total, "lastTimestamp": told_utc}
            try:
                self._api.patch(EVENTS, namespace, known.name, change, timeout=CALL_SECONDS)
            except NotFoundError:
                pass  # the API server forgets Events after an hour
            else:
                self._remember(told, _Written(known.name, total, known.first_utc, now))
                return
        name = f"{told.target.name[:200]}.{secrets.token_hex(8)}"
        body = self._body(told, name, namespace, count, told_utc)
        self._api.create(EVENTS, namespace, body, timeout=CALL_SECONDS)
        self._remember(told, _Written(name, count, told_utc, now))

    def _body(self, told: Note, name: str, namespace: str, count: int, told_utc: str) -> dict[str, Any]:
        target = told.target
        about = {"apiVersion": target.api_version, "kind": target.kind, "name": target.name}
        about |= {key: value for key, value in (("namespace", target.namespace), ("uid", target.uid)) if value}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "type": "Warning" if told.is_warning else "Normal",
            "reason": told.reason,
            "message": told.message,
            "count": count,
            "firstTimestamp": told_utc,
            "lastTimestamp": told_utc,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }

    def _remember(self, told: Note, written: _Written) -> None:
        self._written[told] = written
        self._written.move_to_end(told)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    def _allows_locked(self, target: Target) -> bool:
        now = self._clock.now()
        allowance = self._allowances.setdefault(target, _Allowance(now))
        self._allowances.move_to_end(target)
        if len(self._allowances) > REMEMBERED:
            self._allowances.popitem(last=False)
        refills = int((now - allowance.filled_at) // OBJECT_REFILL_SECONDS)
        allowance.left = min(OBJECT_BURST, allowance.left + refills)
        allowance.filled_at += refills * OBJECT_REFILL_SECONDS
        if not allowance.left:
            return False
        allowance.left -= 1
        return True

    def _refilled_at_locked(self, target: Target) -> float:
        allowance = self._allowances.get(target)
        return (self._clock.now() if allowance is None else allowance.filled_at) + OBJECT_REFILL_SECONDS

    def _round(self) -> float | None:
        pause = self.run_once()
        if pause == WRITE_EVERY_SECONDS:  # no more often than that, whatever comes
            self.worker.wait(pause)
            return 0.0
        return pause

    def _drain(self) -> None:
        """Writes what is due at the end; repetitions and second tries are not worth a slow end."""
        while (pause := self.run_once()) is not None and pause <= WRITE_EVERY_SECONDS:
            pass
