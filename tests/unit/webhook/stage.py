"""The whole webhook on an API server in memory, and reviews for it."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
from werkzeug.test import Client

from controller.errors import UnavailableError
from controller.kube import resources
from controller.kube.resources import Resource
from controller.settings import MEBIBYTE
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.ports import free_port
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

Raw = dict[str, Any]
NAMESPACE, CONFIG_MAP = "longhorn-system", "longhorn-scheduler-extender"
ASKED = {"longhorn.io/scheduler-extender": "1"}


class SlowApi(FakeApiServer):
    """Notes what is read; each read takes `read_seconds`, or its timeout."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.read_seconds = 0.0
        self._clock = clock

    def get(self, resource: Resource, namespace: str | None, name: str, **options: Any) -> Raw:
        timeout = options.get("timeout", 10.0)
        self.reads.append(f"{resource.plural} {namespace or ''}/{name}")
        self._clock.advance(min(self.read_seconds, timeout))
        if self.read_seconds > timeout:
            raise UnavailableError("timed out")
        return super().get(resource, namespace, name)


class WebhookStage:
    """One webhook, which knows nothing until it is started, and the API server that it follows."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = SlowApi(self.clock)
        for name, provisioner in (("lh", "driver.longhorn.io"), ("nfs", "nfs.example")):
            self.api.create(resources.STORAGE_CLASSES, None, {"metadata": {"name": name}, "provisioner": provisioner})
        self.api.create(resources.NAMESPACES, None, {"metadata": {"name": "ns"}})
        for name, class_name in (("c", "lh"), ("other", "nfs")):
            raw = {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": {"storageClassName": class_name}}
            self.api.create(resources.CLAIMS, "ns", raw)
        settings = WebhookSettings(
            tls_mode="off",
            metrics_address="127.0.0.1",
            metrics_port=free_port(),
            status_port=free_port(),
            body_limit_bytes=MEBIBYTE,
        )
        self.webhook = Webhook(settings.checked(), self.api, self.clock)
        self.client = Client(self.webhook.app)

    def configure(self, **data: str) -> None:
        given = {"enabled": "true", **data}
        named = {f"scheduler-extender-{name.replace('_', '-')}": value for name, value in given.items()}
        self.api.create(resources.CONFIG_MAPS, NAMESPACE, {"metadata": {"name": CONFIG_MAP}, "data": named})

    def post(self, raw: Raw, *, to: str = "mutate-pods", **changes: Any) -> Raw:
        """The response part of the answer, which always allows."""
        reply = self.client.post(f"/{to}", data=review(raw, **changes), content_type="application/json")
        assert (200, "application/json") == (reply.status_code, reply.mimetype)
        response: Raw = json.loads(reply.data)["response"]
        assert ("u-1", True) == (response["uid"], response["allowed"])
        reply.close()
        return response

    def opts_in(self, raw: Raw) -> bool:
        """Whether the patch that is told makes its container ask for the resource, and nothing else."""
        response = self.post(raw)
        if "patch" not in response:
            return False
        assert "JSONPatch" == response["patchType"]
        patched = jsonpatch.apply_patch(raw, json.loads(base64.b64decode(response["patch"])))
        (container,) = patched["spec"]["containers"]
        return bool({"name": "main", "resources": {"limits": ASKED, "requests": ASKED}} == container)

    def sample(self, name: str, **labels: str) -> float:
        value = self.webhook.metrics.registry.get_sample_value(f"longhorn_scheduler_webhook_{name}", labels)
        assert value is not None, name
        return value

    def outcomes(self, outcome: str) -> float:
        return self.sample("pod_reviews_total", outcome=outcome)


def pod(*claims: str, meta: Raw | None = None, **volume: Any) -> Raw:
    volumes: list[Raw] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    volumes += [{"name": "e", **volume}] if volume else []
    return {"metadata": meta or {"name": "p"}, "spec": {"containers": [{"name": "main"}], "volumes": volumes}}


def review(raw: Raw, **changes: Any) -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"kind": "Pod"},
        "resource": {"resource": "pods"},
        "operation": "CREATE",
        "namespace": "ns",
        "object": raw,
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
