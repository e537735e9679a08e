"""The wake-up: makes kube-scheduler try again pods that were refused and that now have room.

kube-scheduler tries a pod that an extender refused only upon core events, none of which is about Longhorn's space, or
after five minutes. An update of the pod itself makes it try that pod alone (`scheduling_queue.go`, Update): a condition
of our own through `pods/status`, or, by setting, an annotation for a scheduler without queueing hints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from controller.allocator.outcome import Wakeup
from controller.clock import Clock
from controller.errors import ClusterError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.resources import PODS
from controller.log_line import say
from controller.model import names
from controller.model.times import rfc3339
from controller.process.worker import Part, Worker, waiting
from controller.settings import LiveSettings
from controller.views.decisions import NoteDecision, log_decision

_log = logging.getLogger(__name__)

CALL_SECONDS: Final = 5.0
COALESCE_SECONDS: Final = 0.2
SLICE_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.003  # between slices of a plan, so that filter calls get the allocator's lock
REST: Final = 4.0  # a round is followed by a rest of so many times the duration of its planning
MOST_REST_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0  # until a patch that failed is sent again
IDLE_SECONDS: Final = 30.0  # between rounds, if nothing changes and nothing falls due by time


class WakeSource(Protocol):
    """What the wake-up asks the allocator."""

    @property
    def version(self) -> int: ...
    def wait_for_change(self, version: int, timeout: float) -> bool: ...
    def wake_slices(self) -> Iterator[list[Wakeup]]: ...
    def next_wakeup_due(self) -> float | None: ...


def condition_patch(wakes: int, now_utc: str) -> dict[str, Any]:
    """The strategic merge patch of one condition into `status.conditions`; the count makes every patch a change."""
    return {
        "status": {
            "conditions": [
                {
                    "type": names.WAKE_CONDITION,
                    "status": "True",
                    "reason": "RoomMayBeAvailable",
                    "message": f"space on Longhorn's disks has changed; wake-up {wakes} since the last refusal",
                    "lastProbeTime": None,
                    "lastTransitionTime": now_utc,
                }
            ]
        }
    }


def annotation_patch(wakes: int, now_utc: str) -> dict[str, Any]:
    """The strategic merge patch of one annotation; the count makes every patch a change."""
    return {"metadata": {"annotations": {names.WAKE_ANNOTATION: f"{now_utc}/{wakes}"}}}


class Waker(Part):
    """Wakes refused pods while this process leads.

    Threads: `worker`'s; `wake` from any. Blocks: never. I/O: one patch for each pod, outside every lock.
    """

    def __init__(
        self,
        source: WakeSource,
        api: KubeApi,
        clock: Clock,
        *,
        live: Callable[[], LiveSettings],
        is_leading: Callable[[], bool],
        note: NoteDecision = log_decision,
    ) -> None:
        self._source, self._api, self._clock = source, api, clock
        self._live, self._is_leading, self._note = live, is_leading, note
        self._planned_on = -1  # the source's version, at the last round
        self._again: dict[str, Wakeup] = {}  # by pod uid: the API server did not take their patches
        self.woken = 0  # patches sent, read by the metrics
        self.failed = 0
        self.worker = Worker("waker", self.run_once)

    def run_once(self) -> float:
        """Wait for a change, let it settle, and wake pods that fit. Returns the seconds to rest."""
        self._wait()
        if self.worker.wait(COALESCE_SECONDS) or not self._is_leading():
            self._planned_on = self._source.version
            return 0.0
        planned_on = self._source.version
        planning = self._plan_and_wake()
        self._planned_on = planned_on
        return min(REST * planning, MOST_REST_SECONDS)

    def _plan_and_wake(self) -> float:
        """Wake pods whose last patch failed, and those that fit now. Returns the seconds that planning took."""
        again, self._again = self._again, {}
        self.wake(again.values())
        slices, planning = self._source.wake_slices(), 0.0
        while not self.worker.is_stopping and self._is_leading():
            began = self._clock.now()
            wakeups = next(slices, None)
            planning += self._clock.now() - began
            if wakeups is None:
                break
            self.wake(wakeups)
            self.worker.wait(PAUSE_SECONDS)
        return planning

    def _wait(self) -> None:
        """Wait until something changes, a back-off ends, or IDLE_SECONDS; in slices, so that `stop` is noticed."""
        due = self._source.next_wakeup_due()
        most = RETRY_SECONDS if self._again else IDLE_SECONDS
        end = self._clock.now() + (most if due is None else min(due, most))
        while not self.worker.is_stopping:
            left = end - self._clock.now()
            with waiting():
                if left <= 0 or self._source.wait_for_change(self._planned_on, min(left, SLICE_SECONDS)):
                    return

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        """Patch each pod. One that is gone is ignored; other failures are tried again in the next round."""
        for wakeup in wakeups:
            if self.worker.is_stopping or not self._is_leading():
                return
            try:
                self._patch(wakeup)
            except NotFoundError:
                continue
            except ClusterError as error:
                self.failed += 1
                self._again[wakeup.pod_uid] = wakeup
                say(
                    _log,
                    "wake-up failed",
                    logging.WARNING,
                    namespace=wakeup.namespace,
                    pod=wakeup.name,
                    uid=wakeup.pod_uid,
                    error=error,
                )
            else:
                self.woken += 1
                text = f"wake-up {wakeup.wakes} since its last refusal: its volumes may fit now"
                facts = {"uid": wakeup.pod_uid, "wakes": wakeup.wakes}
                self._note("wake", f"Pod {wakeup.namespace}/{wakeup.name}", "woken", text=text, facts=facts)

    def _patch(self, wakeup: Wakeup) -> None:
        now_utc = rfc3339(self._clock.now_utc())
        if self._live().wake_with_annotation:
            patch, subresource = annotation_patch(wakeup.wakes, now_utc), ""
        else:
            patch, subresource = condition_patch(wakeup.wakes, now_utc), "status"
        self._api.patch(
            PODS, wakeup.namespace, wakeup.name, patch, kind="strategic", subresource=subresource, timeout=CALL_SECONDS
        )
