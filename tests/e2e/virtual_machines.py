"""Pods of the shape that KubeVirt's virt-controller gives them, and the little of its API that they refer to.

KubeVirt itself does not run: whoever uses this plays virt-controller.
"""

from __future__ import annotations

from typing import Final

from tests.cluster.client import ApiClient, Object
from tests.e2e import workloads
from tests.longhorn.install import ensure
from tests.waiting import wait_until

GROUP: Final = "kubevirt.io"
VERSION: Final = "v1"
KIND: Final = "VirtualMachineInstance"
INSTANCES: Final = "virtualmachineinstances"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APP_LABEL: Final = "kubevirt.io"
CREATED_BY: Final = "kubevirt.io/created-by"
MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"
HOSTNAME: Final = "kubernetes.io/hostname"
WAIT_SECONDS: Final = 30.0


def install(api: ApiClient) -> None:
    """A definition with the kind's names, whose objects may say anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": anything},
    }
    names = {"plural": INSTANCES, "singular": KIND.lower(), "kind": KIND, "listKind": f"{KIND}List"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{INSTANCES}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    ensure(api, CRDS, definition)
    wait_until(
        lambda: api.get_or_none(f"/apis/{GROUP}/{VERSION}/{INSTANCES}") is not None, "served machines", WAIT_SECONDS
    )


def instance(name: str, *claims: str) -> Object:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"domain": {"devices": {}}, "volumes": volumes},
    }


def create_instance(api: ApiClient, namespace: str, name: str, *claims: str) -> Object:
    return api.create(f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{INSTANCES}", instance(name, *claims))


def launcher(machine: Object, suffix: str, *, selector: dict[str, str], job: str = "") -> Object:
    """The virt-launcher pod of a VirtualMachineInstance that the API server has. `job`: of a live migration, whose
    target it is."""
    meta = machine["metadata"]
    claims = [entry["persistentVolumeClaim"]["claimName"] for entry in machine["spec"]["volumes"]]
    pod = workloads.pod(f"virt-launcher-{meta['name']}-{suffix}", *claims, opted_in=False, selector=selector)
    (container,) = pod["spec"]["containers"]
    container["name"] = "compute"
    pod["metadata"] |= {
        "labels": {APP_LABEL: "virt-launcher", CREATED_BY: meta["uid"], "vm.kubevirt.io/name": meta["name"]},
        "annotations": {
            "kubevirt.io/domain": meta["name"],
            "kubectl.kubernetes.io/default-container": "compute",
            "kubevirt.io/migrationTransportUnix": "true",
        },
        "ownerReferences": [controlled_by(machine)],
    }
    pod["spec"] |= {"restartPolicy": "Never", "automountServiceAccountToken": False, "hostname": meta["name"]}
    if job:
        pod["metadata"]["labels"][MIGRATION_JOB] = job
        pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = f"migration-{meta['name']}"
        away = {"labelSelector": {"matchLabels": {CREATED_BY: meta["uid"]}}, "topologyKey": HOSTNAME}
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    return pod


def hotplug(owner: Object, claim: str) -> Object:
    """The attachment pod through which a running machine gets one more volume, on the node of its launcher pod."""
    pod = workloads.pod(f"hp-volume-{claim}", claim, opted_in=False)
    pod["metadata"] |= {"labels": {APP_LABEL: "hotplug-disk"}, "ownerReferences": [controlled_by(owner, "v1", "Pod")]}
    pod["spec"]["containers"][0]["name"] = "hotplug-disk"
    here = {"key": HOSTNAME, "operator": "In", "values": [owner["spec"]["nodeName"]]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod


def controlled_by(owner: Object, api_version: str = f"{GROUP}/{VERSION}", kind: str = KIND) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
