"""Reads and writes of Replica objects: a place as Longhorn writes it, and the two marks.

A write is one JSON patch with tests that the Replica has that uid and no node. (A precondition on the resourceVersion
would fail whenever anybody writes anything in it.) A Replica that has a node by now stays as it is. Each write has the
field manager of the present term, which the API server's policy compares with the term that it knows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

from controller.allocator.outcome import PlaceWrite
from controller.errors import ConflictError
from controller.kube.api import KubeApi, find
from controller.kube.resources import LONGHORN_REPLICAS, pointer
from controller.model.longhorn import Replica
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION, MANAGER_PREFIX
from controller.model.parse import replica_facts

CALL_SECONDS: Final = 5.0
NODE_LABEL: Final = "longhornnode"
DISK_LABEL: Final = "longhorndiskuuid"  # by which Longhorn sums up what lies on a disk

Raw = dict[str, Any]


class ReplicaObjects:
    """Replicas at the API server.

    Threads: any. Blocks: for the API server. I/O: one call in each method, three if a JSON patch does not fit.
    """

    def __init__(self, api: KubeApi, namespace: str, term: Callable[[], str]) -> None:
        """`term`: the name of the present term."""
        self._api, self._namespace, self._term = api, namespace, term

    def look(self, name: str) -> Replica | None:
        """The Replica as it is at this moment; None if it is gone. Raises ClusterError or MalformedRequestError."""
        raw = find(self._api, LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS)
        return None if raw is None else replica_facts(raw)

    def place(self, write: PlaceWrite, check: Callable[[], None]) -> Replica:
        """Write the place, and return the Replica with it. `check` is called right before the write, and raises if it
        must not be made. ConflictError: the Replica has a node by now, or another uid; NotFoundError: it is gone."""
        where = write.place
        spec = {
            "nodeID": where.node,
            "diskID": where.disk_uuid,
            "diskPath": write.disk_path,
            "dataDirectoryName": f"{write.volume}-{secrets.token_hex(4)}",
        }
        if write.hard_node_affinity:
            spec["hardNodeAffinity"] = write.hard_node_affinity
        meta: Raw = {"labels": {NODE_LABEL: where.node, DISK_LABEL: where.disk_uuid}}
        if write.is_held:
            meta["annotations"] = {HELD_ANNOTATION: None}
        return self._patch(write.replica, write.uid, {"spec": spec, "metadata": meta}, check)

    def hold(self, name: str, uid: str, since: str | None, check: Callable[[], None]) -> Replica:
        """Mark the Replica as held since that time, and return it; None removes the mark. Raises as `place` does."""
        return self._patch(name, uid, {"metadata": {"annotations": {HELD_ANNOTATION: since}}}, check)

    def leave(self, name: str, uid: str, why: str, check: Callable[[], None]) -> Replica:
        """Mark the Replica as Longhorn's to place, and return it. Raises as `place` does."""
        return self._patch(name, uid, {"metadata": {"annotations": {LEFT_ANNOTATION: why}}}, check)

    def _patch(self, name: str, uid: str, changes: Raw, check: Callable[[], None]) -> Replica:
        """`changes`: in the form of a merge patch, in which None removes a field."""
        try:
            return self._send(name, [_test("/metadata/uid", uid), _test("/spec/nodeID", ""), *_steps(changes)], check)
        except ConflictError as error:
            return self._merge(name, uid, changes, check, error)

    def _merge(self, name: str, uid: str, changes: Raw, check: Callable[[], None], error: ConflictError) -> Replica:
        """Write by a merge patch under the resourceVersion that is read. (A JSON patch fails like a conflict if it adds
        to a mapping that does not exist, or tests or removes a field that does not.)"""
        raw = self._api.get(LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS)
        meta, spec = raw["metadata"], raw["spec"]
        if meta.get("uid") != uid or spec.get("nodeID"):
            raise error
        under = {"metadata": {**changes["metadata"], "resourceVersion": meta["resourceVersion"]}}
        return self._send(name, {**changes, **under}, check)

    def _send(self, name: str, body: list[Raw] | Raw, check: Callable[[], None]) -> Replica:
        check()
        patched = self._api.patch(
            LONGHORN_REPLICAS,
            self._namespace,
            name,
            body,
            kind="json" if isinstance(body, list) else "merge",
            field_manager=MANAGER_PREFIX + self._term(),
            timeout=CALL_SECONDS,
        )
        return replica_facts(patched)


def _steps(changes: Raw, *way: str) -> Iterator[Raw]:
    """The changes of a merge patch as operations of a JSON patch."""
    for key, value in changes.items():
        path = (*way, key)
        if isinstance(value, dict):
            yield from _steps(value, *path)
        elif value is None:
            yield {"op": "remove", "path": pointer(*path)}
        else:
            yield {"op": "add", "path": pointer(*path), "value": value}


def _test(path: str, value: str) -> Raw:
    return {"op": "test", "path": path, "value": value}
