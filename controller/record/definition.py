"""The CustomResourceDefinition of NodeDiskAllocation."""

from __future__ import annotations

from typing import Any, Final

from controller.kube.resources import NODE_DISK_ALLOCATIONS
from controller.model.records import FIELD, FIELD_OF, MAX_ENTRIES

MAX_DISKS: Final = 256
Schema = dict[str, Any]


def allocation_crd() -> Schema:
    """The CustomResourceDefinition as an object for `kubectl apply`."""
    kind = NODE_DISK_ALLOCATIONS
    columns = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    version: Schema = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": _spec(),
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": ["lhnda"],
            },
            "versions": [version],
        },
    }


def _spec() -> Schema:
    return {
        "type": "object",
        "properties": {
            FIELD: {
                "type": "object",
                "description": "By the disk's UUID, which stays when the disk gets another name or node.",
                "maxProperties": MAX_DISKS,
                # There is one writer: without this the API server would track the owner of each entry at every write.
                "x-kubernetes-map-type": "atomic",
                "additionalProperties": {
                    "type": "object",
                    "properties": {name: _sizes() for name in FIELD_OF.values()},
                },
            },
        },
    }


def _sizes() -> Schema:
    size = {"type": "integer", "format": "int64", "minimum": 0}
    return {"type": "object", "maxProperties": MAX_ENTRIES, "additionalProperties": size}
