"""Longhorn's own validating webhook for claims, in the way of every update and fail-closed.

It sees every claim of the cluster and every update, kube-scheduler's `selected-node` included: while it is away nothing
of that gets through.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from tests.cluster.client import ApiClient, Object
from tests.e2e.neighbours import ForeignWebhook
from tests.e2e.webhooks import VALIDATING
from tests.longhorn import paths
from tests.longhorn.admission import claim_problem
from tests.longhorn.state import SearchState

NAME = "longhorn-webhook-validator"
LONGEST_SECONDS: Final = 8.0  # below the 10 s that the API server waits


class ClaimWebhook(ForeignWebhook):
    """Threads: as its base; the switches may be turned by any."""

    def __init__(self, api: ApiClient, folder: Path, namespace: str) -> None:
        self._namespace = namespace
        self.is_away = False  # True: no answer comes, as if no pod of it ran
        self.refusal = ""  # what it says to any growth, whatever room there is
        self._answers = threading.Event()  # cleared: it thinks
        self._answers.set()
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

    def think(self) -> None:
        """From now on it answers nothing until it is told to go on."""
        self._answers.clear()

    def go_on(self) -> None:
        self._answers.set()

    def _answer(self, _: str, request: Object) -> Object | None:
        self.seen.append(request["object"])
        self._answers.wait(LONGEST_SECONDS)
        if self.is_away:
            return None
        problem = claim_problem(request["oldObject"], request["object"], self._pv, self._volume, self._state)
        if self.refusal and request["object"]["spec"]["resources"] != request["oldObject"]["spec"]["resources"]:
            problem = self.refusal
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
