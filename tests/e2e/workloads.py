"""Kubernetes objects that the end-to-end tests create."""

from __future__ import annotations

from typing import Any

from tests.cluster.client import Object
from tests.e2e.scheduling import RESOURCE

DRIVER = "driver.longhorn.io"
GIB = 2**30
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def storage_class(
    name: str,
    *,
    locality: str = "best-effort",
    replicas: int = 1,
    node_selector: str = "",
    reclaim: str = "Delete",
    binding: str = "WaitForFirstConsumer",
    parameters: dict[str, str] | None = None,
) -> Object:
    parameters = {"numberOfReplicas": str(replicas), "dataLocality": locality, **(parameters or {})}
    if node_selector:
        parameters["nodeSelector"] = node_selector
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "parameters": parameters,
        "reclaimPolicy": reclaim,
        "volumeBindingMode": binding,
        "allowVolumeExpansion": True,
    }


def claim(name: str, class_name: str, gib: int = 100) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": f"{gib}Gi"}},
        },
    }


def container(*mounts: str, opted_in: bool = True) -> Object:
    resources = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}} if opted_in else {}
    return {
        "name": "main",
        "image": "example.org/nothing",
        "resources": resources,
        "volumeMounts": [{"name": mount, "mountPath": f"/{mount}"} for mount in mounts],
    }


def pod_spec(
    claims: tuple[str, ...] = (), *, opted_in: bool = True, selector: dict[str, str] | None = None, **spec: Any
) -> Object:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in enumerate(claims)]
    return {
        "containers": [container(*(f"v{n}" for n, _ in enumerate(claims)), opted_in=opted_in)],
        "volumes": volumes,
        "nodeSelector": selector or {},
        "terminationGracePeriodSeconds": 0,
        **spec,
    }


def pod(name: str, *claims: str, labels: dict[str, str] | None = None, **options: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": pod_spec(claims, **options),
    }


def stateful_set(
    name: str,
    class_name: str,
    *,
    replicas: int = 16,
    gib: int = 100,
    opted_in: bool = True,
    selector: dict[str, str] | None = None,
    scheduler: str = "default-scheduler",
) -> Object:
    """The workload of the enhancement text's test plan: all pods at once, one claim each."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container("data", opted_in=opted_in)],
            "nodeSelector": selector or {},
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
            "volumeClaimTemplates": [claim("data", class_name, gib)],
        },
    }


def filler(name: str, node: str, *, cpu: str, memory: str) -> Object:
    """A pod that takes part of a node, so that kube-scheduler prefers the others. It is placed past the scheduler."""
    requests = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.org/nothing", "resources": {"requests": requests}}],
        },
    }


def endpoint_slice(name: str, service: str, ip: str, port: int, port_name: str = "http") -> Object:
    """One ready address behind a Service."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}}],
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
    }
