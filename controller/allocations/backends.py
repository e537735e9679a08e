"""Where the record is kept: in the Longhorn Node if its CRD has the field, otherwise in an object of our own.

Each write is one merge patch under the object's resourceVersion: its other contents stay, and only what changes is
sent. A record that cannot be read is replaced as a whole.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controller.errors import ConflictError, NotFoundError
from controller.kube.api import CALL_SECONDS, KubeApi, listed
from controller.kube.resources import CRDS, LONGHORN_NODES, NODE_DISK_ALLOCATIONS, Resource
from controller.model.allocations import Allocation, NodeRecord
from controller.model.names import LONGHORN_VERSION, RECORDED_ANNOTATION
from controller.model.reader import mapping_at
from controller.model.records import FIELD, NODE_ITSELF, changes_between, encode_allocations, node_record, own_record

Raw = dict[str, Any]
NODE_CRD: Final = "nodes.longhorn.io"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A node's record, and the object that carries it, as it was read. Without `raw` there is none yet, unless the
    record has a version."""

    record: NodeRecord
    raw: Raw | None


class RecordBackend(Protocol):
    """Threads: any. Blocks: for the API server. I/O: one call each, `records` one for a page. Raises ClusterError."""

    name: str
    place: str  # beside others of the same node, while a record is moved

    def records(self) -> list[StoredRecord]: ...
    def read(self, node: str, timeout: float = CALL_SECONDS) -> StoredRecord: ...
    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], term: int, timeout: float = CALL_SECONDS
    ) -> StoredRecord:
        """This and nothing else is on record then; ConflictError when the object is not as `stored` any more."""
        ...

    def forget(self, stored: StoredRecord) -> None:
        """There is no record there any more; ConflictError as of `write`."""
        ...

    def check(self) -> None:
        """Raises NotFoundError where the cluster has no such kind of object."""
        ...


class _Listed:
    """What both have in common: objects of one kind in one namespace."""

    _kind: Resource

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def check(self) -> None:
        try:
            self._api.list_page(self._kind, self._namespace, limit=1)
        except NotFoundError as error:
            kind = self._kind
            text = f"the cluster has no {kind.plural}.{kind.group}: install the CustomResourceDefinition"
            raise NotFoundError(text) from error

    def records(self) -> list[StoredRecord]:
        return [self._stored(raw) for raw in listed(self._api, self._kind, self._namespace)]

    def _stored(self, raw: Raw) -> StoredRecord:
        raise NotImplementedError

    def _changed(
        self,
        stored: StoredRecord,
        allocations: Sequence[Allocation],
        timeout: float,
        metadata: Raw | None = None,
        spec: Raw | None = None,
    ) -> Raw:
        """The object with these allocations instead of its readable ones, and what else is given."""
        record = stored.record
        changes = changes_between(record.allocations, allocations)
        body = {
            "metadata": {**(metadata or {}), "resourceVersion": record.version},
            "spec": {FIELD: changes, **(spec or {})},
        }
        return self._api.patch(self._kind, self._namespace, record.node, body, timeout=timeout)


class LonghornNodeBackend(_Listed):
    """`spec.diskAllocations` of the Longhorn Node.

    A manager that writes whole Nodes with types that do not know the field drops it. The annotation survives that, so
    that such a record is known to be lost, and not taken for an empty one. One that knows the field may leave it out
    where it is empty, so an empty record has neither.
    """

    name: str = "longhorn-node"
    place: str = NODE_ITSELF

    _kind = LONGHORN_NODES

    def read(self, node: str, timeout: float = CALL_SECONDS) -> StoredRecord:
        return self._stored(self._api.get(LONGHORN_NODES, self._namespace, node, timeout=timeout))

    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], term: int, timeout: float = CALL_SECONDS
    ) -> StoredRecord:
        node = stored.record.node
        if stored.raw is None or not stored.record.problem:
            marks = {"annotations": {RECORDED_ANNOTATION: str(term) if allocations else None}}
            spec = {} if allocations else {FIELD: None}
            return self._stored(self._changed(stored, allocations, timeout, marks, spec))
        body, _ = _without_record(stored.raw)
        if allocations:
            body["metadata"].setdefault("annotations", {})[RECORDED_ANNOTATION] = str(term)
            body.setdefault("spec", {})[FIELD] = encode_allocations(allocations)
        return self._stored(self._api.replace(LONGHORN_NODES, self._namespace, node, body, timeout=timeout))

    def forget(self, stored: StoredRecord) -> None:
        body, had_one = _without_record(stored.raw or {})
        if had_one:
            self._api.replace(LONGHORN_NODES, self._namespace, stored.record.node, body)

    def _stored(self, raw: Raw) -> StoredRecord:
        name, version = str(raw["metadata"]["name"]), str(raw["metadata"].get("resourceVersion", ""))
        return StoredRecord(node_record(raw) or NodeRecord(name, version=version), raw)


class NodeDiskAllocationBackend(_Listed):
    """Our own object `NodeDiskAllocation`, one for each Longhorn node and of its name."""

    name: str = "node-disk-allocation"
    place: str = ""

    _kind = NODE_DISK_ALLOCATIONS

    def read(self, node: str, timeout: float = CALL_SECONDS) -> StoredRecord:
        try:
            return self._stored(self._api.get(NODE_DISK_ALLOCATIONS, self._namespace, node, timeout=timeout))
        except NotFoundError:
            return StoredRecord(NodeRecord(node), None)

    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], term: int, timeout: float = CALL_SECONDS
    ) -> StoredRecord:
        node, kind = stored.record.node, NODE_DISK_ALLOCATIONS
        if not stored.record.version:
            body: Raw = {"apiVersion": kind.api_version, "kind": kind.kind}
            body["metadata"] = {"name": node, "namespace": self._namespace}
            body["spec"] = {"term": term, FIELD: encode_allocations(allocations)}
            return self._stored(self._api.create(kind, self._namespace, body, timeout=timeout))
        try:
            if stored.raw is None or not stored.record.problem:
                return self._stored(self._changed(stored, allocations, timeout, spec={"term": term}))
            body = {**copy.deepcopy(stored.raw), "spec": {"term": term, FIELD: encode_allocations(allocations)}}
            return self._stored(self._api.replace(kind, self._namespace, node, body, timeout=timeout))
        except NotFoundError as error:
            raise ConflictError(f"NodeDiskAllocation {node} was deleted meanwhile") from error

    def forget(self, stored: StoredRecord) -> None:
        if stored.raw is not None:
            record, uid = stored.record, str(stored.raw["metadata"].get("uid", ""))
            with suppress(NotFoundError):
                self._api.delete(self._kind, self._namespace, record.node, uid=uid, version=record.version)

    def _stored(self, raw: Raw) -> StoredRecord:
        return StoredRecord(own_record(raw), raw)


def _without_record(node: Raw) -> tuple[Raw, bool]:
    """A copy of that Longhorn Node, and whether there was a record, or a mark of one, that it lacks."""
    body = copy.deepcopy(node)
    was_there = body.get("spec", {}).pop(FIELD, None) is not None
    was_marked = body.get("metadata", {}).get("annotations", {}).pop(RECORDED_ANNOTATION, None) is not None
    return body, was_there or was_marked


def found_backend(api: KubeApi, namespace: str) -> RecordBackend:
    """The one that this cluster's Longhorn Node CRD allows: a field that the schema does not have is pruned."""
    if keeps_field(api.get(CRDS, None, NODE_CRD)):
        return LonghornNodeBackend(api, namespace)
    return NodeDiskAllocationBackend(api, namespace)


def keeps_field(crd: Mapping[str, Any]) -> bool:
    """Whether the CRD of Longhorn's Node has `spec.diskAllocations`."""
    for version in mapping_at(crd, "", "spec").get("versions") or ():
        if version.get("name") == LONGHORN_VERSION:
            names = ("schema", "openAPIV3Schema", "properties", "spec", "properties")
            return FIELD in mapping_at(version, "spec.versions", *names)
    return False
