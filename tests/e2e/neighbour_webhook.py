"""Somebody else's mutating webhook, which changes pods beside the product's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

from tests.cluster.client import ApiClient, Object
from tests.e2e.local_webhook import LocalWebhook
from tests.e2e.webhooks import MUTATING, drop_configuration

Change = Callable[[Object], list[Object]]  # a pod to JSON patch operations


class NeighbourWebhook:
    """Serves on loopback and is configured under `name`: mutating webhooks run in the order of these names.

    It is asked about pods of one namespace, and about each once, whatever others change afterwards.
    Threads: its own answer; start and stop from one.
    """

    def __init__(self, api: ApiClient, folder: Path, name: str, namespace: str, change: Change) -> None:
        self._api, self.name, self._change = api, name, change
        self.seen: list[Object] = []
        self._served = LocalWebhook(folder, name, self._answer)
        self._configure(namespace)

    def _answer(self, request: Object) -> Object:
        pod = request["object"]
        self.seen.append(pod)
        patch = base64.b64encode(json.dumps(self._change(pod)).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    def _configure(self, namespace: str) -> None:
        entry = {
            "name": f"{self.name}.example.org",
            "clientConfig": {
                "url": self._served.url,
                "caBundle": base64.b64encode(self._served.authority).decode(),
            },
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        self._api.create(
            MUTATING,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": self.name},
                "webhooks": [entry],
            },
        )

    def stop(self) -> None:
        drop_configuration(self._api, self.name)
        self._served.stop()
