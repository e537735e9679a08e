"""Whether the review of a growth reaches the leader: from the API server over the webhook to the leader's gRPC server.

Nothing else shows that: the webhook is ready without it, and a growth about which it cannot ask is by default allowed.
So the leader, and `check`, create a pod by a dry run that the webhook denies, with what it heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.canary.pod import dry_run_pod
from controller.errors import ClusterError
from controller.kube.api import KubeApi
from controller.kube.resources import PODS
from controller.model.names import GROWTH_CHECK_LABEL, LEADER_ANSWERS, LEADER_IS_SILENT
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 10.0  # while it has not answered: a connection may go to the leader before
TELL_AFTER: Final = 3  # failures in a row
NAME: Final = "longhorn-scheduler-extender-growth-check"
SILENT_TEXT: Final = (
    f"{LEADER_IS_SILENT}, so the growth of volumes is not checked: let the webhook's pods in to port 9505 of the "
    "controller's pods (NetworkPolicies), and see the webhook's log"
)
UNCHECKED, CHECKED = "GrowthUnchecked", "GrowthChecked"


def reaches_leader(api: KubeApi, namespace: str) -> bool | None:
    """Whether the webhook reaches the leader; None if it was not asked. Raises ClusterError if somebody else denies the
    pod, which is to be in that namespace."""
    metadata = {"labels": {GROWTH_CHECK_LABEL: "true"}}
    try:
        api.create(PODS, namespace, dry_run_pod(NAME, namespace, metadata, {}), dry_run=True)
    except ClusterError as error:
        if LEADER_IS_SILENT in str(error):
            return False
        if LEADER_ANSWERS in str(error):
            return True
        raise
    return None


class GrowthPath(Part):
    """Tells when reviews of growth do not reach this leader, and when they do again.

    Threads: `worker`'s; `problem` from any. Blocks: for the API server. I/O: a dry run a minute.
    """

    def __init__(
        self, api: KubeApi, namespace: str, is_asked: Callable[[], bool], tell: Callable[[str, str, bool], None]
    ) -> None:
        """`is_asked`: whether this process leads and the API server asks the webhook. `tell` takes a reason, a text,
        and whether it is a warning."""
        self._api, self._namespace, self._is_asked, self._tell = api, namespace, is_asked, tell
        self._failures = 0  # in a row
        self.worker = Worker("growth-path", self.run_once)

    @property
    def problem(self) -> str:
        return SILENT_TEXT if self._failures >= TELL_AFTER else ""

    def run_once(self) -> float:
        """Asks once; returns the seconds until the next time. Where nobody says anything of it, nothing is known."""
        if not self._is_asked():
            self._failures = 0
            return AGAIN_SECONDS
        try:
            answers = reaches_leader(self._api, self._namespace)
        except ClusterError:
            answers = None
        before = self.problem
        self._failures = self._failures + 1 if answers is False else 0
        if self.problem and not before:
            self._tell(UNCHECKED, self.problem, True)
        elif before and answers:
            self._tell(CHECKED, LEADER_ANSWERS, False)
        return AGAIN_SECONDS if self._failures else EVERY_SECONDS
