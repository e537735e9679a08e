"""The Leases of the schedulers that are checked: which schedulers run, and what those left behind that do not.

A kube-scheduler that ends leaves its Lease as it is, with its holder. So only a renewal that we see counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from controller.canary.proof import WiringProof
from controller.clock import Clock
from controller.errors import ClusterError, ConflictError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.informer import Informer
from controller.kube.resources import LEASES
from controller.kube.store import Change, Store
from controller.model.names import DEFAULT_SCHEDULER
from controller.model.reader import Raw, integer_at, mapping_at, text_at
from controller.process.repeated import Said
from controller.process.worker import Group

LATE_SECONDS: Final = 5.0  # beyond a Lease's duration: nobody renews it
AGAIN_SECONDS: Final = 60.0  # after a deletion that failed

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerLease:
    """`holder`: "" when it was let go. `renewed` is only compared; `version` is its resourceVersion."""

    name: str
    holder: str
    renewed: str
    duration_seconds: int
    version: str


@dataclass(slots=True)
class _Seen:
    """What was seen of one Lease: as it is now, since when, and whether it was renewed meanwhile."""

    lease: SchedulerLease
    at: float
    is_renewed: bool = False


class LeaseWatch(Group):
    """Watches these Leases and no others, and tells `proof` which schedulers run. Deletes what is left behind.

    Without the right to read them, canaries are sent only by time. Threads: the informers', and the prover's for
    `clear`. Blocks: never. I/O: `clear` deletes.
    """

    def __init__(self, api: KubeApi, clock: Clock, proof: WiringProof, namespace: str) -> None:
        self._api, self._clock, self._proof, self._namespace = api, clock, proof, namespace
        self._schedulers = {lease_of(scheduler, namespace): scheduler for scheduler in proof.schedulers}
        self._lock = threading.Lock()  # guards the field below
        self._seen: dict[str, _Seen] = {}  # by scheduler
        self._delete_at = float("-inf")
        self._problem = Said(partial(_log.warning, "a Lease that nobody renews is not deleted: %s"))
        self._informers: dict[str, Informer] = {}  # by namespace
        for where in sorted({namespace, *(key.partition("/")[0] for key in self._schedulers)}):
            store: Store[SchedulerLease] = Store(f"lease-{where}", self._lease)
            store.subscribe(self._changed)
            self._informers[where] = Informer(api, LEASES, store, clock, namespace=where)
        super().__init__(self._informers.values())

    def _lease(self, raw: Raw) -> SchedulerLease | None:
        """None for Leases of others."""
        meta, spec = mapping_at(raw, "", "metadata"), mapping_at(raw, "", "spec")
        name, version = (text_at(meta, "metadata", field) for field in ("name", "resourceVersion"))
        holder, renewed = (text_at(spec, "spec", field) for field in ("holderIdentity", "renewTime"))
        seconds = integer_at(spec, "spec", "leaseDurationSeconds")
        is_wanted = f"{text_at(meta, 'metadata', 'namespace')}/{name}" in self._schedulers
        return SchedulerLease(name, holder, renewed, seconds, version) if is_wanted else None

    def _changed(self, changes: Iterable[Change[SchedulerLease]]) -> None:
        for change in changes:
            scheduler, new = self._schedulers[change.key], change.new
            held = new if new is not None and new.holder else None
            with self._lock:
                before = self._seen.pop(scheduler, None)
                was_renewed = before is not None and before.is_renewed
                is_renewal = before is not None and held is not None and before.lease.renewed != held.renewed
                is_same = before is not None and held is not None and before.lease.holder == held.holder
                if new is not None:
                    is_renewed = held is not None and (was_renewed or is_renewal)
                    self._seen[scheduler] = _Seen(new, self._clock.now(), is_renewed)
            if was_renewed and held is None:
                self._proof.stopped(scheduler)
            elif is_renewal and not (was_renewed and is_same):
                self._proof.runs(scheduler)

    def clear(self, may_write: Callable[[], bool]) -> None:
        """Tells of schedulers that have stopped, and deletes their Leases while it may."""
        known_until = self._clock.now() - self._informers[self._namespace].age()
        with self._lock:
            late = {
                scheduler: seen
                for scheduler, seen in self._seen.items()
                if scheduler != DEFAULT_SCHEDULER and known_until - seen.at > seen.lease.duration_seconds + LATE_SECONDS
            }
            stopped = [scheduler for scheduler, seen in late.items() if seen.is_renewed]
            for seen in late.values():
                seen.is_renewed = False
        for scheduler in stopped:
            self._proof.stopped(scheduler)
        for seen in late.values():
            if may_write() and self._clock.now() >= self._delete_at:
                self._delete_at = self._clock.now() + AGAIN_SECONDS
                self._delete(seen.lease)

    def _delete(self, lease: SchedulerLease) -> None:
        """Unless somebody has renewed it meanwhile."""
        try:
            self._api.delete(LEASES, self._namespace, lease.name, version=lease.version)
            _log.info("Lease %s is deleted: nobody renews it", lease.name)
        except ClusterError as error:
            self._problem.note("" if isinstance(error, ConflictError | NotFoundError) else error)


def lease_of(scheduler: str, namespace: str) -> str:
    """The key of the Lease that a scheduler's copies elect their leader on: the cluster's own one, or, of a second
    scheduler as `render-scheduler-config` makes it, one of its name beside us."""
    return "kube-system/kube-scheduler" if scheduler == DEFAULT_SCHEDULER else f"{namespace}/{scheduler}"
