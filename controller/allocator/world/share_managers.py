"""Longhorn's share-manager pods: each serves a volume that several nodes use.

Anybody may label their own pods, so a share-manager counts only in the right namespace, which the caller has to know.
"""

from __future__ import annotations

from controller.model.workload import Pod


class ShareManagers:
    """Share-manager pods by namespace and volume. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._by_key: dict[str, Pod] = {}
        self._of_volume: dict[tuple[str, str], dict[str, Pod]] = {}

    def put(self, key: str, pod: Pod | None) -> None:
        old = self._by_key.pop(key, None)
        if old is not None:
            members = self._of_volume[old.namespace, old.shares_volume]
            del members[key]
            if not members:
                del self._of_volume[old.namespace, old.shares_volume]
        if pod is not None and pod.shares_volume:
            self._by_key[key] = pod
            self._of_volume.setdefault((pod.namespace, pod.shares_volume), {})[key] = pod

    def node_of(self, namespace: str, volume: str) -> str:
        """The node of the volume's newest share-manager pod that has one, has not ended and is not being deleted; ""
        without such a pod: the volume is served nowhere."""
        live = [
            one
            for one in self._of_volume.get((namespace, volume), {}).values()
            if one.node_name and not one.is_finished and not one.is_deleting
        ]
        newest = max(live, key=lambda one: (one.created_utc, one.name), default=None)
        return newest.node_name if newest is not None else ""
