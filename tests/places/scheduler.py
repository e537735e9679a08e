"""A small kube-scheduler: filter, a choice that comes late, claims that get their node, the binding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from controller.model.workload import Claim, Pod
from tests.places.apiserver import WorldApi
from tests.places.longhorn import WorldLonghorn, is_usable, takes_copies
from tests.places.process import WorldProcess
from tests.places.timeline import Timeline


class WorldScheduler:
    """`leader` has the process that answers now, if any does. `lag`: until a claim with a node is provisioned, at
    most."""

    def __init__(
        self,
        timeline: Timeline,
        api: WorldApi,
        longhorn: WorldLonghorn,
        leader: Callable[[], WorldProcess | None],
        *,
        lag: float,
    ) -> None:
        self._timeline, self._api, self._longhorn, self._leader, self._lag = timeline, api, longhorn, leader, lag
        self._chosen: dict[str, str] = {}  # node by pod; the pod itself shows it once it is bound

    def submit(self, pod: Pod, claims: list[Claim]) -> None:
        for claim in claims:
            self._api.write("claim", claim.key, claim)
        self._api.write("pod", pod.key, pod)
        self._timeline.between(0.01, 0.5, lambda: self._try(pod.key))

    def claims_of(self, key: str) -> list[Claim]:
        pod: Pod | None = self._api.get("pod", key)
        names = [volume.claim for volume in pod.volumes] if pod is not None else []
        found = [self._api.get("claim", f"ns/{name}") for name in names]
        return [one for one in found if one is not None]

    def _try(self, key: str) -> None:
        pod: Pod | None = self._api.get("pod", key)
        if pod is None or pod.node_name or key in self._chosen:
            return
        nodes = [one.name for one in self._api.all("node") if takes_copies(one)]
        if pod.is_opted_in:
            leader = self._leader()
            nodes = list(leader.filter(pod, nodes)) if leader is not None and nodes else []
        if not nodes:
            self._timeline.between(1.0, 5.0, lambda: self._try(key))
            return
        self._chosen[key] = self._timeline.random.choice(nodes)
        self._timeline.between(0.01, 1.5, lambda: self._choose(key))

    def _choose(self, key: str) -> None:
        """The choice becomes visible: claims get their node."""
        if self._api.get("pod", key) is None:
            return
        for claim in self.claims_of(key):
            if not claim.volume_name:
                self._api.write("claim", claim.key, replace(claim, selected_node=self._chosen[key]), "scheduler")
                self._timeline.between(0.05, self._lag, partial(self._longhorn.provision, claim.key))
        self._timeline.after(0.5, lambda: self._bind(key))

    def _bind(self, key: str) -> None:
        pod: Pod | None = self._api.get("pod", key)
        if pod is None or pod.node_name:
            return
        if not all(claim.volume_name for claim in self.claims_of(key)):
            self._timeline.after(0.3, lambda: self._bind(key))
            return
        node = self._chosen[key]
        self._api.write("pod", key, replace(pod, node_name=node), "scheduler")
        for claim in self.claims_of(key):
            self._timeline.between(0.1, 2.0, partial(self._longhorn.attach, claim.volume_name, node))

    def is_ready(self, key: str) -> bool:
        volumes = [claim.volume_name for claim in self.claims_of(key)]
        return all(any(map(is_usable, self._api.replicas_of(volume))) for volume in volumes)

    def delete(self, key: str) -> None:
        """The pod, its claims, and their volumes, whatever they have come to."""
        claims = self.claims_of(key)
        self._api.write("pod", key, None)
        for claim in claims:
            self._api.write("claim", claim.key, None)
            self._longhorn.delete(claim.volume_name or f"pvc-{claim.uid}")
