"""Longhorn's own validating webhook for claims, in the way of every update and fail-closed.

It sees every claim of the cluster and every update, kube-scheduler's `selected-node` included: while it is away nothing
of that gets through.
"""

from __future__ import annotations

import base64
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.client import ApiClient, Object, ignored_when_gone
from tests.e2e.local_webhook import LocalWebhook
from tests.e2e.webhooks import VALIDATING
from tests.longhorn import paths
from tests.longhorn.admission import claim_problem
from tests.longhorn.state import State

NAME = "longhorn-webhook-validator"


class ClaimWebhook:
    """In the way from its start to its end. Threads: its own answer; the switch may be turned by any."""

    def __init__(self, api: ApiClient, folder: Path, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.is_away = False  # True: no answer comes, as if no pod of it ran
        self.seen: list[Object] = []  # the claims as they were to be, answered or not
        self._served = LocalWebhook(folder, NAME, self._answer)
        self._configure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        with ignored_when_gone():
            self._api.delete(f"{VALIDATING}/{NAME}")
        self._served.stop()

    def _configure(self) -> None:
        bundle = base64.b64encode(self._served.authority).decode()
        rule = {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"]}
        entry = {
            "name": "validator.longhorn.io",
            "clientConfig": {"url": self._served.url, "caBundle": bundle},
            "rules": [{**rule, "resources": ["persistentvolumeclaims"]}],
            "failurePolicy": "Fail",
            "matchPolicy": "Exact",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        self._api.create(
            VALIDATING,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": NAME},
                "webhooks": [entry],
            },
        )

    def _answer(self, request: Object) -> Object | None:
        self.seen.append(request["object"])
        if self.is_away:
            return None
        problem = claim_problem(request["oldObject"], request["object"], self._pv, self._volume, self._state)
        if not problem:
            return {"allowed": True}
        return {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": problem}}

    def _pv(self, name: str) -> Object | None:
        return self._api.get_or_none(f"{paths.PVS}/{name}") if name else None

    def _volume(self, name: str) -> Object | None:
        return self._api.get_or_none(paths.longhorn("volumes", self._namespace, name))

    def _state(self, volume: str) -> State:
        settings = self._list("settings")
        return State(
            nodes={raw["metadata"]["name"]: raw for raw in self._list("nodes")},
            replicas=self._list("replicas", f"longhornvolume={volume}"),
            settings={raw["metadata"]["name"]: str(raw.get("value", "")) for raw in settings},
        )

    def _list(self, plural: str, selector: str | None = None) -> list[Object]:
        found: list[Object] = self._api.list(paths.longhorn(plural, self._namespace), selector)["items"]
        return found
