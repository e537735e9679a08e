"""What the webhook knows of the cluster: what it follows, and live reads of what its stores lack."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.clock import Clock
from controller.errors import ClusterError, MalformedRequestError, NotFoundError, TooManyReadsError
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.bounded_reads import BoundedReads, ReadLimits
from controller.kube.informer import Informer
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.log_line import say
from controller.model import workload
from controller.model.longhorn_settings import setting_value
from controller.model.workload import (
    Claim,
    ConfigMapFacts,
    Namespace,
    PersistentVolume,
    StorageClass,
    config_map_named,
    default_class,
)
from controller.process.common_metrics import StoreState
from controller.process.worker import Group
from webhook.metrics import WebhookMetrics

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
            Store("claim", workload.claim_facts),
            Store("pv", workload.pv_facts),
            Store("class", workload.class_facts),
            Store("namespace", workload.namespace_facts),
        )


class Following(Group):
    """Informers for claims, volumes, classes, namespaces, our ConfigMap and Longhorn's Setting objects.

    Threads: start and stop from one, everything else any. Blocks: `stop`, until the informers have ended.
    """

    def __init__(self, api: KubeApi, clock: Clock, namespace: str, config_map: str) -> None:
        self._api, self._clock = api, clock
        self._informers: dict[str, Informer] = {}
        self._was_ready = False
        self.stores = WebhookStores.empty()
        self.config_maps: Store[ConfigMapFacts] = Store("config_map", config_map_named(config_map))
        self.longhorn_settings: Store[str] = Store("setting", setting_value)
        self._follow(self.stores.claims, resources.CLAIMS)
        self._follow(self.stores.pvs, resources.VOLUMES)
        self._follow(self.stores.classes, resources.STORAGE_CLASSES)
        self._follow(self.stores.namespaces, resources.NAMESPACES)
        self._follow(self.config_maps, resources.CONFIG_MAPS, namespace, config_map)
        self._follow(self.longhorn_settings, resources.LONGHORN_SETTINGS, namespace)
        super().__init__(self._informers.values())

    def _follow(
        self, store: Store[Any], resource: Resource, namespace: str | None = None, only: str | None = None
    ) -> None:
        self._informers[store.kind] = Informer(self._api, resource, store, self._clock, namespace=namespace, name=only)

    @property
    def is_ready(self) -> bool:
        """Whether every store has been in step with the cluster at least once.

        What we know of claims hardly ever changes, and what we lack counts as possibly Longhorn's: old knowledge is
        better than no webhook while the API server is out of our reach.
        """
        if not self._was_ready:
            self._was_ready = all(informer.store.synced.is_set() for informer in self._informers.values())
        return self._was_ready

    def states(self) -> Iterator[StoreState]:
        for informer in self._informers.values():
            yield informer.state()

    def bad(self, kind: str) -> Mapping[str, str]:
        """The objects of that kind that cannot be read, and why."""
        return self._informers[kind].store.bad


class BoundedReader:
    """The one way in which reviews read the API server: see controller.kube.bounded_reads.

    Threads: any. Blocks: for the seconds that are given. I/O: the reads.
    """

    def __init__(self, read: Read, clock: Clock, limits: ReadLimits, observer: WebhookMetrics) -> None:
        self._read, self._observer = read, observer
        self._bounded: BoundedReads[Mapping[str, Any]] = BoundedReads(clock, limits)

    def read(
        self, resource: Resource, namespace: str, name: str, seconds: float, *, patience_seconds: float = 0.0
    ) -> Mapping[str, Any]:
        """NotFoundError; TooManyReadsError where no turn comes, at once unless there is patience to wait for one before
        those seconds; another ClusterError where it cannot be read."""
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
    """What one request may look up: in the stores, and live what they lack, at most MOST_READS objects, within
    `seconds` for all together. What is not read counts as absent.

    Threads: one. Blocks: for `seconds` in all. I/O: a GET for each object that the stores lack.
    """

    def __init__(self, stores: WebhookStores, read: Read, clock: Clock, seconds: float) -> None:
        self._stores, self._read, self._clock = stores, read, clock
        self._until = clock.now() + seconds
        self.reads = 0
        self.was_refused = False  # whether something was not read since too much is being read

    def claim(self, namespace: str, name: str) -> Claim | None:
        found = self._stores.claims.get(f"{namespace}/{name}")
        return found or self._live(resources.CLAIMS, namespace, name, workload.claim_facts)

    def known_claim(self, namespace: str, name: str) -> Claim | None:
        """The claim that the store has; nothing is read live."""
        return self._stores.claims.get(f"{namespace}/{name}")

    def pv(self, name: str) -> PersistentVolume | None:
        return self._stores.pvs.get(name) or self._live(resources.VOLUMES, "", name, workload.pv_facts)

    def storage_class(self, name: str | None) -> StorageClass | None:
        """`name` None: the default class."""
        if name is None:
            return default_class(self._stores.classes.values())
        return self._stores.classes.get(name) or self._live(resources.STORAGE_CLASSES, "", name, workload.class_facts)

    def namespace_mark(self, name: str) -> str:
        """The namespace's opt-in mark, "" without one."""
        found = self._stores.namespaces.get(name) or self._live(
            resources.NAMESPACES, "", name, workload.namespace_facts
        )
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
            what = {"kind": resource.kind, "namespace": namespace, "name": name}
            say(log, "live read failed", logging.WARNING, **what, error=error)
        return None
