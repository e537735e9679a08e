"""What the process follows: an informer and a store for each kind of objects, and views over all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from controller.allocator.verbs.observe import Events
from controller.clock import Clock
from controller.errors import NotFoundError
from controller.follow.kinds import FOLLOWED, KINDS
from controller.follow.live import LiveKind
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.informer import STALE_SECONDS, Informer
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.log_line import say
from controller.model.reader import Raw
from controller.model.workload import config_map_named
from controller.process.common_metrics import StoreState

log = logging.getLogger(__name__)


class Followed(Informer):
    """An informer with its store, as the lifecycle and live reads see it."""

    def catch_up(self, timeout: float) -> bool:
        caught_up = super().catch_up(timeout)
        if not caught_up:
            say(log, "store has not caught up", logging.WARNING, kind=self.store.kind)
        return caught_up

    def get(self, key: str) -> Any:
        return self.store.get(key)


class Stores:
    """Everything that the process follows, by the name of its kind. Builds; starts nothing.

    Threads: any. I/O: none of its own.
    """

    def __init__(self, api: KubeApi, clock: Clock, namespace: str, config_map: str) -> None:
        self._api, self._clock, self._namespace = api, clock, namespace
        self.followed: dict[str, Followed] = {}
        self.by_kind: dict[str, Store[Any]] = {}
        for kind in FOLLOWED:
            followed = namespace if kind.in_longhorn else None
            self._follow(kind.name, kind.resource, kind.parse, followed, sharing=kind.sharing)
        our_settings = config_map_named(config_map)
        self.config_maps = self._follow("config_map", resources.CONFIG_MAPS, our_settings, namespace, config_map)
        self.longhorn_settings = self.by_kind["setting"]

    def _follow(
        self,
        name: str,
        resource: Resource,
        facts: Callable[[Raw], Any],
        namespace: str | None,
        only: str | None = None,
        sharing: Callable[[Any, Any], Any] | None = None,
    ) -> Store[Any]:
        store: Store[Any] = Store(name, facts, sharing)
        self.by_kind[name] = store
        self.followed[name] = Followed(self._api, resource, store, self._clock, namespace=namespace, name=only)
        return store

    def feed(self, events: Events) -> None:
        """Passes every change of a kind that the allocator knows on to it."""
        for kind in FOLLOWED:
            kind.feed(self.by_kind[kind.name], events)

    def live_kinds(self) -> dict[str, LiveKind]:
        """How each kind is read live. A kind that we may not `get`, because hardly anything asks for it, is read by a
        list of one name."""
        kinds = {}
        for kind in KINDS:
            namespace = self._namespace if kind.in_longhorn else ""
            read = partial(_read if kind.is_live else _read_by_list, self._api, kind.resource)
            kinds[kind.name] = LiveKind(kind, read, self.followed.get(kind.name), namespace)
        return kinds

    def is_synced(self) -> bool:
        """Whether every store follows the cluster; true on followers too."""
        return all(store.synced.is_set() for store in self.by_kind.values())

    def stale_kind(self) -> str | None:
        """The first kind whose store is too old to decide on; None if there is none."""
        for name, followed in self.followed.items():
            if followed.age() > STALE_SECONDS:
                return name
        return None

    def states(self) -> Sequence[StoreState]:
        return [followed.state() for followed in self.followed.values()]


def _read(api: KubeApi, resource: Resource, namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
    return api.get(resource, namespace or None, name, timeout=timeout_seconds)


def _read_by_list(
    api: KubeApi, resource: Resource, namespace: str, name: str, timeout_seconds: float
) -> Mapping[str, Any]:
    selector = f"metadata.name={name}"
    page = api.list_page(resource, namespace or None, timeout=timeout_seconds, fieldSelector=selector)
    if not page.items:
        raise NotFoundError(f"there is no {resource.kind} {name}")
    return page.items[0]
