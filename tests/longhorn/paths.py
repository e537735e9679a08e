"""API paths and names that the stand-in uses, and the form of Longhorn's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DRIVER: Final = "driver.longhorn.io"
GROUP: Final = "longhorn.io"
VERSION: Final = "v1beta2"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
OLD_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
SCHEDULING_ERROR: Final = "longhorn.io/volume-scheduling-error"
LATE: Final = "tests.longhorn/late"  # of a claim: its volume is not made as long as this is there
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PV_FINALIZER: Final = "external-provisioner.volume.kubernetes.io/finalizer"
FINALIZER: Final = "longhorn.io"
ATTACH_FINALIZER: Final = "external-attacher/driver-longhorn-io"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
PVS: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
CSI_DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def longhorn(plural: str, namespace: str, name: str = "") -> str:
    root = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"
    return f"{root}/{name}" if name else root


def longhorn_object(kind: str, name: str, namespace: str, meta: Mapping[str, Any] | None = None, **parts: Any) -> Any:
    """A body to create it with. `meta`: metadata beside its name."""
    metadata = {"name": name, "namespace": namespace, **(meta or {})}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, **parts}


def pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def claim(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def capacities(namespace: str, name: str = "") -> str:
    root = f"/apis/storage.k8s.io/v1/namespaces/{namespace}/csistoragecapacities"
    return f"{root}/{name}" if name else root
