"""The kinds of objects that the product reads and writes, and their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from controller.model.names import (
    ALLOCATION_GROUP,
    ALLOCATION_VERSION,
    FORMER_MUTATING_CONFIGURATIONS,
    LONGHORN_GROUP,
    LONGHORN_VERSION,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
)


def version_number(version: object) -> int:
    """A resourceVersion: of one kind they are ordered numbers. One that is missing or odd is older than all."""
    return int(version) if isinstance(version, str) and version.isascii() and version.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects; `group` is "" for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of a collection or an object; without a namespace, the collection of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.is_namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", is_namespaced=False)
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SELF_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", is_namespaced=False
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", is_namespaced=False
)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    is_namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    is_namespaced=False,
)
POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    is_namespaced=False,
)
POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    is_namespaced=False,
)
OUR_CONFIGURATIONS: Final[Mapping[Resource, str]] = {
    MUTATING_WEBHOOKS: MUTATING_CONFIGURATION,
    VALIDATING_WEBHOOKS: VALIDATING_CONFIGURATION,
}
"""The two kinds of webhook configurations, and what ours of that kind is called."""
FORMER_CONFIGURATIONS: Final[Mapping[Resource, tuple[str, ...]]] = {
    MUTATING_WEBHOOKS: FORMER_MUTATING_CONFIGURATIONS,
    VALIDATING_WEBHOOKS: (),
}
"""What earlier releases called them, and made themselves; those are deleted."""
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LONGHORN_NODES: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "nodes", "Node")
LONGHORN_VOLUMES: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "volumes", "Volume")
LONGHORN_REPLICAS: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "replicas", "Replica")
LONGHORN_ATTACHMENTS: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "volumeattachments", "VolumeAttachment")
LONGHORN_SETTINGS: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "settings", "Setting")
LONGHORN_BACKING_IMAGES: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "backingimages", "BackingImage")
LONGHORN_BACKUPS: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "backups", "Backup")
LONGHORN_ENGINE_IMAGES: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "engineimages", "EngineImage")
LONGHORN_INSTANCE_MANAGERS: Final = Resource(LONGHORN_GROUP, LONGHORN_VERSION, "instancemanagers", "InstanceManager")
NODE_DISK_ALLOCATIONS: Final = Resource(
    ALLOCATION_GROUP, ALLOCATION_VERSION, "nodediskallocations", "NodeDiskAllocation"
)
