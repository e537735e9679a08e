"""What the webhook follows: an informer and a store for each kind of objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.clock import Clock
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.informer import Informer
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.model.configured import ConfigMapFacts, config_map_named, setting_value
from controller.process.common_metrics import StoreState
from controller.process.worker import Group
from webhook.stores import WebhookStores


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
