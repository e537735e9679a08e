"""Reviews from random choices, and what must hold for every answer of the webhook."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import jsonpatch
from werkzeug.test import Client

from controller.kube import resources
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fuzz.requests import Chooser, bent, changed, is_rare, pick
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

Raw = dict[str, Any]
NAMESPACE: Final = "longhorn-system"
BODY_LIMIT: Final = 1024**2
# What may be answered. Never a 5xx: the API server would count it as a failure of ours.
MEANT: Final = {200, 308, 400, 404, 405, 413, 415}
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
    "validate-volumes": (
        lambda: review("volumes", "Volume", "UPDATE", NAMESPACE, volume("2147483648"), volume("1073741824")),
        lambda: review("volumes", "Volume", "UPDATE", NAMESPACE, None, None),
    ),
}


class Target:
    """The webhook's whole graph over stores that are filled by hand; nothing of it runs."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        spec: Raw = {"attachmentTickets": {"csi": {"type": "csi-attacher", "nodeID": "n1"}}}
        attachment = {"metadata": {"name": "pvc-1"}, "spec": spec}
        self.api.create(resources.LONGHORN_ATTACHMENTS, NAMESPACE, attachment)
        settings = WebhookSettings(tls_mode="off", body_limit_bytes=BODY_LIMIT).checked()
        self.webhook = Webhook(settings, self.api, VirtualClock())
        self.client = Client(self.webhook.app)
        stores = self.webhook.following.stores
        stores.classes.replace(
            [
                {"metadata": {"name": "lh"}, "provisioner": "driver.longhorn.io"},
                {"metadata": {"name": "nfs"}, "provisioner": "nfs.example"},
            ]
        )
        stores.namespaces.replace([{"metadata": {"name": "ns"}}])
        other: Raw = {"metadata": {"name": "theirs", "namespace": "ns"}, "spec": {"storageClassName": "nfs"}}
        shared: Raw = {"metadata": {"name": "shared", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}}
        shared["spec"]["storageClassName"] = "lh"
        stores.claims.replace([claim("1Gi"), other, shared])
        csi = {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1"}
        stores.pvs.replace([{"metadata": {"name": "pvc-1"}, "spec": {"csi": csi, "capacity": {"storage": "1Gi"}}}])
        self.routes = tuple(name for name in SEEDS if self.client.get(f"/{name}").status_code == 405)

    def internal_failures(self) -> float:
        values = (
            self.webhook.metrics.registry.get_sample_value(
                "longhorn_scheduler_webhook_failures_total", {"route": route, "kind": "internal"}
            )
            for route in (*self.routes, "other")
        )
        return sum(value or 0.0 for value in values)

    def throw(self, route: str, body: bytes, *, content_type: str = "application/json", method: str = "POST") -> int:
        """Send it and judge the answer; its status. AssertionError: something does not hold."""
        before = self.internal_failures()
        reply = self.client.open(f"/{route}", method=method, data=body, content_type=content_type)
        assert reply.status_code in MEANT, f"{reply.status_code} {reply.text}"
        assert before == self.internal_failures(), "a fault of ours"
        if reply.status_code == 200 and method == "POST":
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
        reply = self.client.post(f"/{route}", data=again, content_type="application/json")
        assert "patch" not in json.loads(reply.data)["response"]


def throw_one(target: Target, chooser: Chooser) -> int:
    """One random request to one of the routes."""
    route = pick(chooser, target.routes)
    if is_rare(chooser, 15):
        return target.throw(route, chooser.raw())
    document: Any = pick(chooser, SEEDS[route])()
    for _ in range(chooser.number(_MOST_CHANGES)):
        document = changed(chooser, document)
    body = json.dumps(document, ensure_ascii=chooser.number(1) == 1).encode(errors="surrogatepass")
    return target.throw(route, bent(chooser, body) if is_rare(chooser, 10) else body)
