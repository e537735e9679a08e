"""The Replica object as Longhorn writes it when it places a replica.

Each write is under the resourceVersion of a fresh read. What was read decides whether anything is written at all: a
replica that has a node is somebody's decision, and stays as it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from controller.errors import ConflictError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.resources import LONGHORN_REPLICAS
from controller.model.longhorn import Replica
from controller.model.parse import replica_facts

CALL_SECONDS: Final = 5.0
MOST_TRIES: Final = 5
NODE_LABEL: Final = "longhornnode"
DISK_LABEL: Final = "longhorndiskuuid"  # by which Longhorn sums up what lies on a disk

Raw = dict[str, Any]


class Written(StrEnum):
    """What became of a write."""

    DONE = "done"
    ALREADY = "already"  # it says so already
    ELSEWHERE = "elsewhere"  # somebody has placed it on another disk
    NOT_ANY_MORE = "not-any-more"  # it goes, has failed, or belongs on another node
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    volume: str
    node: str
    disk_uuid: str
    disk_path: str


class ReplicaObjects:
    """Threads: any. Blocks: for the API server. I/O: a read and a write each, again after a conflict."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def look(self, name: str) -> Replica | None:
        """As it is at this moment; None: it is gone. Raises ClusterError or MalformedRequestError."""
        try:
            return replica_facts(self._api.get(LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS))
        except NotFoundError:
            return None

    def place(self, name: str, place: ReplicaPlace, check: Callable[[], None]) -> Written:
        """Put the replica on that disk. `check` is asked right before each write, and raises where it must not be made.
        Raises ClusterError: ConflictError where others write it all the time."""

        def spec(found: Replica) -> Raw | Written:
            if found.hard_node_affinity not in ("", place.node) or found.volume != place.volume:
                return Written.NOT_ANY_MORE
            return {
                "nodeID": place.node,
                "diskID": place.disk_uuid,
                "diskPath": place.disk_path,
                "dataDirectoryName": f"{place.volume}-{secrets.token_hex(4)}",
            }

        return self._write(name, spec, check, place)

    def bind(self, name: str, node: str, check: Callable[[], None]) -> Written:
        """Have the unplaced replica lie on that node and no other. Raises as `place`."""

        def spec(found: Replica) -> Raw | Written:
            return Written.ALREADY if found.hard_node_affinity == node else {"hardNodeAffinity": node}

        return self._write(name, spec, check)

    def _write(
        self,
        name: str,
        spec: Callable[[Replica], Raw | Written],
        check: Callable[[], None],
        place: ReplicaPlace | None = None,
    ) -> Written:
        last: ConflictError | None = None
        for _ in range(MOST_TRIES):
            try:
                raw = self._api.get(LONGHORN_REPLICAS, self._namespace, name, timeout=CALL_SECONDS)
                found = replica_facts(raw)
                wanted = _not_to_be_written(found, place) or spec(found)
                if isinstance(wanted, Written):
                    return wanted
                meta: Raw = {"resourceVersion": raw["metadata"]["resourceVersion"]}
                if place is not None:
                    meta["labels"] = {NODE_LABEL: place.node, DISK_LABEL: place.disk_uuid}
                body = {"metadata": meta, "spec": wanted}
                check()
                self._api.patch(LONGHORN_REPLICAS, self._namespace, name, body, timeout=CALL_SECONDS)
                return Written.DONE
            except NotFoundError:
                return Written.GONE
            except ConflictError as error:
                last = error
        raise ConflictError(f"replica {name} is written by others all the time: {last}")


def _not_to_be_written(found: Replica, place: ReplicaPlace | None) -> Written | None:
    if found.node:
        is_there = place is not None and (found.node, found.disk_uuid) == (place.node, place.disk_uuid)
        return Written.ALREADY if is_there else Written.ELSEWHERE
    return Written.NOT_ANY_MORE if found.deleting or found.failed_at else None
