"""Longhorn's own validating webhook for claims, in the way of every update and fail-closed.

It sees every claim of the cluster and every update, kube-scheduler's `selected-node` included: while it is away nothing
of that gets through.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.client import ApiClient, Object
from tests.e2e.neighbours import ForeignWebhook
from tests.e2e.webhooks import VALIDATING
from tests.longhorn import paths
from tests.longhorn.admission import claim_problem
from tests.longhorn.state import SearchState

NAME = "longhorn-webhook-validator"


class ClaimWebhook(ForeignWebhook):
    """Threads: as its base; the switch may be turned by any."""

    def __init__(self, api: ApiClient, folder: Path, namespace: str) -> None:
        self._namespace = namespace
        self.is_away = False  # True: no answer comes, as if no pod of it ran
        self.seen: list[Object] = []  # the claims as they were to be, answered or not
        super().__init__(
            api,
            folder,
            NAME,
            self._answer,
            collection=VALIDATING,
            operation="UPDATE",
            resource="persistentvolumeclaims",
            matchPolicy="Exact",
        )

    def _answer(self, _: str, request: Object) -> Object | None:
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

    def _state(self, volume: str) -> SearchState:
        settings = self._list("settings")
        return SearchState(
            nodes={raw["metadata"]["name"]: raw for raw in self._list("nodes")},
            replicas=self._list("replicas", f"longhornvolume={volume}"),
            settings={raw["metadata"]["name"]: str(raw.get("value", "")) for raw in settings},
        )

    def _list(self, plural: str, selector: str | None = None) -> list[Object]:
        found: list[Object] = self._api.list(paths.longhorn(plural, self._namespace), selector)["items"]
        return found
