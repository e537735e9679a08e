"""Binds pods to nodes, as kube-scheduler does, through `pods/binding`."""

from __future__ import annotations

from typing import Final

from controller.kube.api import KubeApi
from controller.kube.resources import PODS

BIND_SECONDS: Final = 3.0  # less than kube-scheduler waits for an extender


class PodBinder:
    """Threads: any. Blocks: for the API server, three seconds at most. I/O: one call."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind the pod of that uid; the API server refuses another one of the same name. Raises ClusterError."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._api.create(PODS, namespace, body, name=name, subresource="binding", timeout=BIND_SECONDS)
