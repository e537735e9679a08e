"""The writes of Replica objects: a place as Longhorn writes it, and the two marks.

A place is one JSON patch that tests that the Replica is the same one and has no node; a precondition on its
resourceVersion would fail whenever anybody writes anything of it. A replica that has a node by now is somebody's
decision, and stays as it is. All writes carry the field manager of the present term, which the API server compares with
the term that it knows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from controller.allocator.outcome import PlaceWrite
from controller.errors import ConflictError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.json_pointer import pointer
from controller.kube.resources import LONGHORN_REPLICAS
from controller.model.longhorn import Replica
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION, MANAGER_PREFIX
from controller.model.parse import replica_facts

CALL_SECONDS: Final = 5.0
NODE_LABEL: Final = "longhornnode"
DISK_LABEL: Final = "longhorndiskuuid"  # by which Longhorn sums up what lies on a disk

Raw = dict[str, Any]


class ReplicaObjects:
    """Threads: any. Blocks: for the API server. I/O: one call a method, or three where a Replica has another shape."""

    def __init__(self, api: KubeApi, namespace: str, term: Callable[[], str]) -> None:
        """`term`: the name of the present one."""
        self._api, self._namespace, self._term = api, namespace, term

    def look(self, name: str) -> Replica | None:
        """As it is at this moment; None: it is gone. Raises ClusterError or MalformedRequestError."""
        try:
            return replica_facts(self._api.get(LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS))
        except NotFoundError:
            return None

    def place(self, write: PlaceWrite, check: Callable[[], None]) -> Replica:
        """The Replica with its place. `check` is asked right before the write, and raises where it must not be made.
        ConflictError: it has a node by now, or is another one; NotFoundError: it is gone."""
        where = write.place
        spec = {
            "nodeID": where.node,
            "diskID": where.disk_uuid,
            "diskPath": write.disk_path,
            "dataDirectoryName": f"{write.volume}-{secrets.token_hex(4)}",
        }
        if write.hard_node_affinity:
            spec["hardNodeAffinity"] = write.hard_node_affinity
        changes: list[Raw] = [_add(value, "spec", key) for key, value in spec.items()]
        changes += [_add(where.node, "metadata", "labels", NODE_LABEL)]
        changes += [_add(where.disk_uuid, "metadata", "labels", DISK_LABEL)]
        if write.is_held:
            changes.append({"op": "remove", "path": pointer("metadata", "annotations", HELD_ANNOTATION)})
        return self._patch(write.replica, write.uid, changes, check)

    def hold(self, name: str, uid: str, since: str, check: Callable[[], None]) -> Replica:
        """Mark it as held since then, and return it. Raises as `place`."""
        return self._mark(name, uid, HELD_ANNOTATION, since, check)

    def release(self, name: str, uid: str, check: Callable[[], None]) -> Replica:
        """Take that mark off. Raises as `place`."""
        change = {"op": "remove", "path": pointer("metadata", "annotations", HELD_ANNOTATION)}
        return self._patch(name, uid, [change], check)

    def leave(self, name: str, uid: str, why: str, check: Callable[[], None]) -> Replica:
        """Mark it as Longhorn's to place. Raises as `place`."""
        return self._mark(name, uid, LEFT_ANNOTATION, why, check)

    def _mark(self, name: str, uid: str, annotation: str, value: str, check: Callable[[], None]) -> Replica:
        return self._patch(name, uid, [_add(value, "metadata", "annotations", annotation)], check)

    def _patch(self, name: str, uid: str, changes: list[Raw], check: Callable[[], None]) -> Replica:
        tests = [_test("/metadata/uid", uid), _test("/spec/nodeID", "")]
        try:
            return self._send(name, [*tests, *changes], check)
        except ConflictError as error:
            return self._send_by_shape(name, uid, changes, check, error)

    def _send_by_shape(
        self, name: str, uid: str, changes: list[Raw], check: Callable[[], None], error: ConflictError
    ) -> Replica:
        """A patch cannot add to a mapping that is not there, nor remove or test what is not, and such a one is refused
        as a conflict is. So it is looked at, and written under its resourceVersion."""
        raw = self._api.get(LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS)
        meta, spec = raw["metadata"], raw["spec"]
        if meta.get("uid") != uid or spec.get("nodeID"):
            raise error
        annotations = meta.get("annotations") or {}
        kept = [one for one in changes if one["op"] != "remove" or HELD_ANNOTATION in annotations]
        if not kept:
            return replica_facts(raw)
        parents = [part for part in ("labels", "annotations") if not meta.get(part) and _is_in(part, kept)]
        if not parents and kept == changes and "nodeID" in spec:
            raise error
        made = [{"op": "add", "path": f"/metadata/{part}", "value": {}} for part in parents]
        return self._send(name, [_test("/metadata/resourceVersion", meta["resourceVersion"]), *made, *kept], check)

    def _send(self, name: str, operations: list[Raw], check: Callable[[], None]) -> Replica:
        check()
        manager = MANAGER_PREFIX + self._term()
        return replica_facts(
            self._api.patch(
                LONGHORN_REPLICAS,
                self._namespace,
                name,
                operations,
                kind="json",
                field_manager=manager,
                timeout=CALL_SECONDS,
            )
        )


def _is_in(part: str, changes: list[Raw]) -> bool:
    return any(one["path"].startswith(f"/metadata/{part}/") for one in changes)


def _add(value: str, *steps: str) -> Raw:
    return {"op": "add", "path": pointer(*steps), "value": value}


def _test(path: str, value: str) -> Raw:
    return {"op": "test", "path": path, "value": value}
