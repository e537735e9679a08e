"""The nodes that serve a pod's shared volumes, for callers that want it to run there."""

from __future__ import annotations

import threading
from collections import Counter

from controller.allocator.outcome import ServedPod
from controller.allocator.world.world import World
from controller.rules.demand import is_served


class ServedVolumes:
    """Tells which nodes serve a pod's shared volumes. Threads: any. Blocks: never. I/O: none."""

    def __init__(self, lock: threading.Condition, world: World) -> None:
        self._lock, self._world = lock, world

    def of_pod(self, pod_uid: str, namespace: str) -> ServedPod | None:
        """The pod, with how many of its volumes each node serves; None if it is not pending or follows no volume.
        `namespace`: Longhorn's. Costs: a look-up for each of its claims."""
        with self._lock:
            pod = self._world.pods.get(pod_uid)
            if pod is None or not pod.follows_shares or not pod.is_pending:
                return None
            found = Counter[str]()
            for claim in self._world.claims_of(pod):
                volume = self._world.volume(self._world.volume_of(claim.uid))
                if volume is not None and is_served(volume):
                    node = self._world.share_managers.node_of(namespace, volume.name)
                    if self._world.has_node(node) and self._world.nodes[node].ready:
                        found[node] += 1
            return ServedPod(pod.created_utc, found)
