"""What an installation of Longhorn leaves in a cluster: definitions, namespace, CSI driver, Setting objects."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.client import ApiClient, ApiError
from tests.longhorn import crds, paths
from tests.waiting import wait_until

WANTED: Final = frozenset(entry["metadata"]["name"] for entry in crds.definitions())
DEFAULT_SETTINGS: Final = {
    "current-longhorn-version": "v1.12.1",
    "replica-soft-anti-affinity": "false",
    "replica-zone-soft-anti-affinity": "true",
    "replica-disk-soft-anti-affinity": "true",
    "replica-auto-balance": "disabled",
    "replica-auto-balance-disk-pressure-percentage": "90",
    "storage-over-provisioning-percentage": "100",
    "storage-minimal-available-percentage": "25",
    "allow-empty-node-selector-volume": "true",
    "allow-empty-disk-selector-volume": "true",
    "allow-volume-creation-with-degraded-availability": "true",
    "default-replica-count": '{"v1":"3","v2":"3"}',
    "default-data-locality": "disabled",
    "replica-replenishment-wait-interval": "600",
    "default-min-number-of-backing-image-copies": "3",
    "fast-replica-rebuild-enabled": '{"v1":"true","v2":"true"}',
    "offline-replica-rebuilding": "false",
    "node-drain-policy": "block-if-contains-last-replica",
    "v1-data-engine": "true",
    "v2-data-engine": "false",
    "csi-storage-capacity-tracking": "false",
    "csi-allowed-topology-keys": "",
}


def definitions() -> list[dict[str, Any]]:
    """The project's own definitions, or those of the file that LONGHORN_CRDS names."""
    named = os.environ.get("LONGHORN_CRDS")
    if not named:
        return crds.definitions()
    found = [entry for entry in yaml.safe_load_all(Path(named).read_text()) if entry]
    return [entry for entry in found if entry["metadata"]["name"] in WANTED]


def install(api: ApiClient, namespace: str, settings: dict[str, str], *, capacity_tracking: bool) -> None:
    """Idempotent; returns once every definition is served."""
    wanted = definitions()
    for entry in wanted:
        ensure(api, paths.CRDS, entry)
    ensure(api, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for entry in wanted:
        plural = str(entry["spec"]["names"]["plural"])
        wait_until(partial(_is_served, api, plural, namespace), f"served {plural}", 30.0)
    tracking = {"csi-storage-capacity-tracking": str(capacity_tracking).lower()}
    for name, value in {**DEFAULT_SETTINGS, **tracking, **settings}.items():
        set_setting(api, namespace, name, value)
    set_driver(api, capacity_tracking=capacity_tracking)


def set_driver(api: ApiClient, *, capacity_tracking: bool) -> None:
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": paths.DRIVER},
        "spec": {"attachRequired": True, "podInfoOnMount": True, "storageCapacity": capacity_tracking},
    }
    if not ensure(api, paths.CSI_DRIVERS, driver):
        api.patch(f"{paths.CSI_DRIVERS}/{paths.DRIVER}", {"spec": {"storageCapacity": capacity_tracking}})


def set_setting(api: ApiClient, namespace: str, name: str, value: str) -> None:
    body = paths.longhorn_object("Setting", name, namespace, value=value)
    if not ensure(api, paths.longhorn("settings", namespace), body):
        api.patch(paths.longhorn("settings", namespace, name), {"value": value})


def ensure(api: ApiClient, collection: str, body: dict[str, Any]) -> bool:
    """Create unless it exists; whether it was created."""
    try:
        api.create(collection, body)
    except ApiError as error:
        if not error.already_exists:
            raise
        return False
    return True


def _is_served(api: ApiClient, plural: str, namespace: str) -> bool:
    try:
        api.list(paths.longhorn(plural, namespace), limit=1)
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True
