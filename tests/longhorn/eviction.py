"""Which replicas have to leave their disks: Longhorn's requests for eviction, by an operator's hand or by a drain.

A drain shows as a cordoned Kubernetes node. What Longhorn then does is the setting `node-drain-policy`; by default
(`block-if-contains-last-replica`) nothing is evicted.
"""

from __future__ import annotations

from typing import Final

from tests.longhorn.volumes import Volumes
from tests.longhorn.world import LonghornWorld, Raw, put

POLICY: Final = "node-drain-policy"
ALL: Final = "block-for-eviction"


class Eviction:
    """Keeps `evictionRequested` of replicas and `autoEvicting` of nodes as they have to be.

    Threads: reflectors' and the pool's.
    """

    def __init__(self, world: LonghornWorld, volumes: Volumes) -> None:
        self._world, self._volumes = world, volumes
        world.listen("kube_nodes", lambda _, raw: self._review_later(str(raw["metadata"]["name"])))
        world.listen("nodes", self._on_node)
        world.listen("settings", self._on_setting)
        world.listen("replicas", self._on_replica)

    def _review_later(self, node: str) -> None:
        self._world.timers.now(self._review, node)

    def _on_node(self, _verb: str, raw: Raw) -> None:
        if _is_asked_by_hand(raw) or (raw.get("status") or {}).get("autoEvicting"):
            self._review_later(str(raw["metadata"]["name"]))

    def _on_setting(self, _verb: str, raw: Raw) -> None:
        if raw["metadata"]["name"] == POLICY:
            for node in self._world.nodes():
                self._review_later(node)

    def _on_replica(self, verb: str, raw: Raw) -> None:
        node = str(raw["spec"].get("nodeID") or "")
        if verb != "DELETED" and node and (self._is_cordoned(node) or self._is_by_hand(node)):
            self._review_later(node)

    def _is_cordoned(self, node: str) -> bool:
        kube = self._world.stores["kube_nodes"].get(node)
        return bool(kube is not None and kube["spec"].get("unschedulable"))

    def _is_by_hand(self, node: str) -> bool:
        raw = self._world.nodes().get(node)
        return raw is not None and _is_asked_by_hand(raw)

    def _review(self, name: str) -> None:
        node = self._world.nodes().get(name)
        if node is None:
            return
        is_drained = self._is_cordoned(name) and self._world.settings().get(POLICY) == ALL
        if bool((node.get("status") or {}).get("autoEvicting")) != is_drained:
            self._world.change(
                self._world.longhorn("nodes", name),
                lambda raw: put(raw.setdefault("status", {}), autoEvicting=is_drained),
                status=True,
            )
        for replica in list(self._world.stores["replicas"].snapshot().values()):
            if replica["spec"].get("nodeID") == name:
                wanted = _is_asked_of(node, replica) or is_drained
                self._request(replica, wanted=wanted)

    def _request(self, replica: Raw, *, wanted: bool) -> None:
        if bool(replica["spec"].get("evictionRequested", False)) != wanted:
            path = self._world.longhorn("replicas", replica["metadata"]["name"])
            self._world.change(path, lambda raw: put(raw["spec"], evictionRequested=wanted))
            self._volumes.consider(str(replica["spec"]["volumeName"]))


def _is_asked_by_hand(node: Raw) -> bool:
    disks = (node["spec"].get("disks") or {}).values()
    return bool(node["spec"].get("evictionRequested")) or any(disk.get("evictionRequested") for disk in disks)


def _is_asked_of(node: Raw, replica: Raw) -> bool:
    """Whether an operator asked for it, of the whole node or of the replica's disk."""
    if node["spec"].get("evictionRequested"):
        return True
    statuses = (node.get("status") or {}).get("diskStatus") or {}
    specs = node["spec"].get("disks") or {}
    return any(
        status.get("diskUUID") == replica["spec"].get("diskID") and (specs.get(name) or {}).get("evictionRequested")
        for name, status in statuses.items()
    )
