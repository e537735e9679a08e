"""What the webhook knows of claims, volumes, classes and namespaces, and one live read where it knows nothing yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controller.clock import Clock
from controller.errors import ClusterError, MalformedRequestError, NotFoundError, TooManyReadsError
from controller.kube import resources
from controller.kube.bounded_reads import BoundedReads, ReadLimits
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.model import parse
from controller.model.workload import Claim, Namespace, PersistentVolume, StorageClass, default_class

LEAST_SECONDS: Final = 0.05  # a shorter read is not worth starting
MOST_READS: Final = 16  # for one review
TURN_SECONDS: Final = 0.8  # that a read may wait for others to end
SHARED_SECONDS: Final = 1.0  # that what was found is told to other reviews

log = logging.getLogger(__name__)
Read = Callable[[Resource, str, str, float], Mapping[str, Any]]  # resource, namespace, name, timeout in seconds


@dataclass(frozen=True, slots=True)
class WebhookStores:
    """One store for each kind, each kept in step by an informer of its own. Threads: any."""

    claims: Store[Claim]
    pvs: Store[PersistentVolume]
    classes: Store[StorageClass]
    namespaces: Store[Namespace]

    @classmethod
    def empty(cls) -> WebhookStores:
        return cls(
            Store("claim", parse.claim_facts),
            Store("pv", parse.pv_facts),
            Store("class", parse.class_facts),
            Store("namespace", parse.namespace_facts),
        )


class ReadObserver(Protocol):
    def read_live(self, kind: str, outcome: str) -> None:
        """`outcome`: found, absent, failed, shared (another review had it read) or refused."""
        ...


class BoundedReader:
    """The one way in which reviews read the API server: see controller.kube.bounded_reads.

    Threads: any. Blocks: for the seconds that are given. I/O: the reads.
    """

    def __init__(self, read: Read, clock: Clock, limits: ReadLimits, observer: ReadObserver) -> None:
        self._read, self._observer = read, observer
        self._bounded: BoundedReads[Mapping[str, Any]] = BoundedReads(clock, limits)

    def read(self, resource: Resource, namespace: str, name: str, seconds: float) -> Mapping[str, Any]:
        """NotFoundError; TooManyReadsError at once; another ClusterError where it cannot be read."""
        return self._get(resource, namespace, name, seconds, patience_seconds=0.0)

    def read_patiently(self, resource: Resource, namespace: str, name: str, seconds: float) -> Mapping[str, Any]:
        """The same, but it waits for its turn for TURN_SECONDS, before those seconds."""
        return self._get(resource, namespace, name, seconds, patience_seconds=TURN_SECONDS)

    def _get(
        self, resource: Resource, namespace: str, name: str, seconds: float, *, patience_seconds: float
    ) -> Mapping[str, Any]:
        outcome = "failed"
        try:
            found, is_shared = self._bounded.get(
                (resource.plural, namespace, name),
                lambda: self._read(resource, namespace, name, seconds),
                seconds,
                patience_seconds=patience_seconds,
            )
            outcome = "shared" if is_shared else "found"
            return found
        except NotFoundError:
            outcome = "absent"
            raise
        except TooManyReadsError:
            outcome = "refused"
            raise
        finally:
            self._observer.read_live(resource.plural, outcome)


class RequestLookup:
    """The stores for one request. What they lack is read live: at most MOST_READS objects, within `seconds` for all
    together; what is not read is not there.

    Threads: one. Blocks: for `seconds` in all. I/O: a GET for each object that the stores lack.
    """

    def __init__(self, stores: WebhookStores, read: Read, clock: Clock, seconds: float) -> None:
        self._stores, self._read, self._clock = stores, read, clock
        self._until = clock.now() + seconds
        self.reads = 0
        self.was_refused = False  # whether something was not read since too much is being read

    def claim(self, namespace: str, name: str) -> Claim | None:
        found = self._stores.claims.get(f"{namespace}/{name}")
        return found or self._live(resources.CLAIMS, namespace, name, parse.claim_facts)

    def known_claim(self, namespace: str, name: str) -> Claim | None:
        """The same, without a look at the cluster where the store has none."""
        return self._stores.claims.get(f"{namespace}/{name}")

    def pv(self, name: str) -> PersistentVolume | None:
        return self._stores.pvs.get(name) or self._live(resources.VOLUMES, "", name, parse.pv_facts)

    def storage_class(self, name: str | None) -> StorageClass | None:
        """`name` None: the default class."""
        if name is None:
            return default_class(self._stores.classes.values())
        return self._stores.classes.get(name) or self._live(resources.STORAGE_CLASSES, "", name, parse.class_facts)

    def namespace_mark(self, name: str) -> str:
        found = self._stores.namespaces.get(name) or self._live(resources.NAMESPACES, "", name, parse.namespace_facts)
        return found.opt_in_mark if found else ""

    def _live(self, resource: Resource, namespace: str, name: str, parsed: Callable[[Mapping[str, Any]], Any]) -> Any:
        left = self._until - self._clock.now()
        if left < LEAST_SECONDS or not name or self.reads >= MOST_READS:
            return None
        self.reads += 1
        try:
            return parsed(self._read(resource, namespace, name, left))
        except NotFoundError:
            pass
        except TooManyReadsError:
            self.was_refused = True
        except (ClusterError, MalformedRequestError) as error:
            log.warning("live read kind=%s key=%s/%s error=%s", resource.kind, namespace, name, error)
        return None
