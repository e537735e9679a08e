"""Reviews from random choices, and what must hold for every answer of the webhook."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import jsonpatch
from hypothesis import strategies as st

from controller.kube import resources
from tests.fuzz.requests import NOISE, body_of, changed, rarely
from tests.unit.webhook.stage import NAMESPACE, Raw, WebhookStage

# What may be answered. Never a 5xx: the API server would count it as a failure of ours.
MEANT: Final = {200, 400, 413}
FAILURES: Final = "longhorn_scheduler_webhook_failures_total"
_MOST_CHANGES: Final = 3
_RESOURCES: Final = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}


def _volume(name: str, claim: str) -> Raw:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": False}}


def _pod(*volumes: Raw, **spec: Any) -> Raw:
    meta = {"generateName": "p-", "namespace": "ns", "labels": {"app": "a"}, "annotations": {"b": "c"}}
    containers = [{"name": "main", "image": "x"}, {"name": "second", "resources": _RESOURCES}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": containers, "initContainers": [{"name": "i"}], "volumes": list(volumes), **spec},
    }


def _launcher() -> Raw:
    pod = _pod(_volume("disk", "shared"))
    pod["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    return pod


def _share_manager() -> Raw:
    pod = _pod()
    pod["metadata"] = {
        "name": "share-manager-pvc-1",
        "labels": {"longhorn.io/component": "share-manager", "longhorn.io/share-manager": "pvc-1"},
    }
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n9"]}]}
    preferred = [{"weight": 100, "preference": term}]
    pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return pod


def claim(size: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "ours", "namespace": "ns", "uid": "u-ours"},
        "spec": {"storageClassName": "lh", "volumeName": "pvc-1", "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }


def volume(size: str) -> Raw:
    return {
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Volume",
        "metadata": {"name": "pvc-1", "namespace": NAMESPACE, "uid": "u-pvc-1"},
        "spec": {"size": size, "numberOfReplicas": 1},
    }


def review(plural: str, kind: str, operation: str, namespace: str, new: Raw | None, old: Raw | None) -> Raw:
    """A whole AdmissionReview, with the fields that the API server sends."""
    group, version = ("longhorn.io", "v1beta2") if kind == "Volume" else ("", "v1")
    resource = {"group": group, "version": version, "resource": plural}
    request = {
        "uid": "9f4f3b0e-6f0a-4f1e-8f5b-0a6c6f9f5c11",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": resource,
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": resource,
        "name": "",
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


EPHEMERAL: Final = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "lh"}}}
SEEDS: Final[dict[str, tuple[Callable[[], Raw], ...]]] = {
    "mutate-pods": (
        lambda: review("pods", "Pod", "CREATE", "ns", _pod(_volume("v", "ours")), None),
        lambda: review("pods", "Pod", "CREATE", "ns", _pod(_volume("v", "theirs"), _volume("w", "missing")), None),
        lambda: review("pods", "Pod", "CREATE", "ns", _pod({"name": "e", "ephemeral": EPHEMERAL}), None),
        lambda: review("pods", "Pod", "CREATE", "ns", _launcher(), None),
        lambda: review("pods", "Pod", "CREATE", "ns", _pod(), None),
        lambda: review("pods", "Pod", "CREATE", "ns", None, None),
    ),
    "mutate-share-managers": (lambda: review("pods", "Pod", "CREATE", NAMESPACE, _share_manager(), None),),
    "validate-pvcs": (
        lambda: review("persistentvolumeclaims", "PersistentVolumeClaim", "UPDATE", "ns", claim("2Gi"), claim("1Gi")),
        lambda: review("persistentvolumeclaims", "PersistentVolumeClaim", "UPDATE", "ns", None, None),
    ),
    "check-growth": (lambda: review("pods", "Pod", "CREATE", "ns", _pod(), None),),
    "validate-volumes": (
        lambda: review("volumes", "Volume", "UPDATE", NAMESPACE, volume("2147483648"), volume("1073741824")),
        lambda: review("volumes", "Volume", "UPDATE", NAMESPACE, None, None),
    ),
}


class ReviewTarget:
    """The webhook's whole graph over stores that are filled by hand; nothing of it runs."""

    def __init__(self) -> None:
        self.stage = WebhookStage()
        spec: Raw = {"attachmentTickets": {"csi": {"type": "csi-attacher", "nodeID": "n1"}}}
        attachment = {"metadata": {"name": "pvc-1"}, "spec": spec}
        self.stage.api.create(resources.LONGHORN_ATTACHMENTS, NAMESPACE, attachment)
        stores = self.stage.webhook.following.stores
        stores.classes.replace(self.stage.api.list_page(resources.STORAGE_CLASSES).items)
        stores.namespaces.replace(self.stage.api.list_page(resources.NAMESPACES).items)
        other: Raw = {"metadata": {"name": "theirs", "namespace": "ns"}, "spec": {"storageClassName": "nfs"}}
        shared: Raw = {"metadata": {"name": "shared", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}}
        shared["spec"]["storageClassName"] = "lh"
        stores.claims.replace([claim("1Gi"), other, shared])
        csi = {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1"}
        stores.pvs.replace([{"metadata": {"name": "pvc-1"}, "spec": {"csi": csi, "capacity": {"storage": "1Gi"}}}])
        self.routes = tuple(name for name in SEEDS if self.stage.client.get(f"/{name}").status_code == 405)

    def internal_failures(self) -> float:
        registry = self.stage.webhook.metrics.registry.restricted_registry([FAILURES])
        samples = [sample for metric in registry.collect() for sample in metric.samples]
        return sum(one.value for one in samples if one.name == FAILURES and one.labels["kind"] == "internal")

    def throw(self, route: str, body: bytes) -> int:
        """Send it and judge the answer; its status. AssertionError: something does not hold."""
        before = self.internal_failures()
        reply = self.stage.client.post(f"/{route}", data=body, content_type="application/json")
        assert reply.status_code in MEANT, f"{reply.status_code} {reply.text}"
        assert before == self.internal_failures(), "a fault of ours"
        if reply.status_code == 200:
            self._judge(route, body, reply.data)
        return reply.status_code

    def _judge(self, route: str, body: bytes, answer: bytes) -> None:
        """A whole AdmissionReview that echoes the uid; its patch applies, and is not asked for twice."""
        asked, told = json.loads(body)["request"], json.loads(answer)
        assert ("admission.k8s.io/v1", "AdmissionReview") == (told["apiVersion"], told["kind"])
        response = told["response"]
        assert asked["uid"] == response["uid"]
        assert isinstance(response["allowed"], bool)
        assert ("patch" in response) == ("patchType" in response)
        if "patch" not in response:
            return
        assert route.startswith("mutate")
        operations = json.loads(base64.b64decode(response["patch"]))
        patched = jsonpatch.apply_patch(json.loads(body)["request"]["object"], operations, in_place=True)
        again = json.dumps({**json.loads(body), "request": {**asked, "object": patched}}).encode()
        reply = self.stage.client.post(f"/{route}", data=again, content_type="application/json")
        assert "patch" not in json.loads(reply.data)["response"]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A route, and what is thrown at it."""
    route = draw(st.sampled_from(sorted(SEEDS)))
    if draw(rarely(15)):
        return route, draw(NOISE)
    document: Any = draw(st.sampled_from(SEEDS[route]))()
    for _ in range(draw(st.integers(0, _MOST_CHANGES))):
        document = changed(draw, document)
    return route, body_of(draw, document)
