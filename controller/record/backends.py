"""The places for the record: the Longhorn Node if its CRD has the field, otherwise an object of our own.

Each write is one merge patch under the object's resourceVersion with only what changes: the rest of the object stays. A
record of which something cannot be parsed is replaced as a whole.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from controller.errors import ConflictError, NotFoundError
from controller.kube.api import CALL_SECONDS, KubeApi, listed
from controller.kube.resources import CRDS, LONGHORN_NODES, NODE_DISK_ALLOCATIONS, Resource
from controller.model.allocations import Allocation, NodeRecord
from controller.model.names import LONGHORN_VERSION, WRITTEN_OVER_ANNOTATION
from controller.model.reader import mapping_at
from controller.model.records import FIELD, OURS, changes_between, encode_allocations, node_record, own_record

Raw = dict[str, Any]
NODE_CRD: Final = "nodes.longhorn.io"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A node's record, and the object that carries it as it was read; `raw` is None if that is not at hand. A record
    without a version means that the object does not exist."""

    record: NodeRecord
    raw: Raw | None = None


class RecordBackend:
    """Records in objects of one kind, each with the name of its Longhorn node. All methods raise ClusterError.

    Threads: any. Blocks: for the API server. I/O: one call each; `records`, one for each page.
    """

    name = ""
    _kind: Resource
    _prefix = ""  # of the keys that are ours

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def check(self) -> None:
        """Raise NotFoundError if the cluster has no such kind of object."""
        try:
            self._api.list_page(self._kind, self._namespace, limit=1)
        except NotFoundError as error:
            kind = self._kind
            text = f"the cluster has no {kind.plural}.{kind.group}: install the CustomResourceDefinition"
            raise NotFoundError(text) from error

    def records(self) -> list[StoredRecord]:
        return [self._stored(raw) for raw in listed(self._api, self._kind, self._namespace)]

    def read(self, node: str, timeout: float = CALL_SECONDS) -> StoredRecord:
        return self._stored(self._api.get(self._kind, self._namespace, node, timeout=timeout))

    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], timeout: float = CALL_SECONDS
    ) -> StoredRecord:
        """Replace the record by these allocations, under a new resourceVersion even if nothing changes. ConflictError
        if the object is not as `stored` any more. A record with a problem needs its `raw`."""
        record, body = stored.record, copy.deepcopy(stored.raw)
        if record.problem and body is not None:
            there = body.get("spec", {}).get(FIELD)
            others = [key for key in there if not key.startswith(self._prefix)] if isinstance(there, Mapping) else ()
            field = {**{key: there[key] for key in others}, **encode_allocations(allocations, self._prefix)}
            body["spec"] = {**body.get("spec", {}), FIELD: field}
            return self._stored(self._api.replace(self._kind, self._namespace, record.node, body, timeout=timeout))
        changes = changes_between(record.allocations, allocations, self._prefix)
        metadata: Raw = {"resourceVersion": record.version}
        if not changes:  # else the API server keeps the version
            metadata["annotations"] = {WRITTEN_OVER_ANNOTATION: record.version}
        patch = {"metadata": metadata, "spec": {FIELD: changes}}
        return self._stored(self._api.patch(self._kind, self._namespace, record.node, patch, timeout=timeout))

    def _stored(self, raw: Raw) -> StoredRecord:
        raise NotImplementedError


class LonghornNodeBackend(RecordBackend):
    """Records in `spec.diskAllocations` of Longhorn's Nodes. What is there under keys that are not ours stays."""

    name = "longhorn-node"
    _kind = LONGHORN_NODES
    _prefix = OURS

    def _stored(self, raw: Raw) -> StoredRecord:
        name, version = str(raw["metadata"]["name"]), str(raw["metadata"].get("resourceVersion", ""))
        return StoredRecord(node_record(raw) or NodeRecord(name, version=version), raw)


class NodeDiskAllocationBackend(RecordBackend):
    """Records in NodeDiskAllocations, our own kind of object."""

    name = "node-disk-allocation"
    _kind = NODE_DISK_ALLOCATIONS

    def read(self, node: str, timeout: float = CALL_SECONDS) -> StoredRecord:
        try:
            return super().read(node, timeout)
        except NotFoundError:
            return StoredRecord(NodeRecord(node))

    def write(
        self, stored: StoredRecord, allocations: Sequence[Allocation], timeout: float = CALL_SECONDS
    ) -> StoredRecord:
        node, kind = stored.record.node, NODE_DISK_ALLOCATIONS
        if not stored.record.version:
            body: Raw = {"apiVersion": kind.api_version, "kind": kind.kind}
            body["metadata"] = {"name": node, "namespace": self._namespace}
            body["spec"] = {FIELD: encode_allocations(allocations)}
            return self._stored(self._api.create(kind, self._namespace, body, timeout=timeout))
        try:
            return super().write(stored, allocations, timeout)
        except NotFoundError as error:
            raise ConflictError(f"NodeDiskAllocation {node} was deleted meanwhile") from error

    def forget(self, stored: StoredRecord) -> None:
        """Delete the object, if it exists. ConflictError if it is not as `stored` any more."""
        record = stored.record
        if record.version:
            with suppress(NotFoundError):
                self._api.delete(self._kind, self._namespace, record.node, version=record.version)

    def _stored(self, raw: Raw) -> StoredRecord:
        return StoredRecord(own_record(raw), raw)


def found_backend(api: KubeApi, namespace: str) -> RecordBackend:
    """The backend for this cluster, by the CRD of Longhorn's Node, which prunes fields that it lacks."""
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
