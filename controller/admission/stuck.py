"""Pods that wait in vain: they request the extender's resource, and their scheduler looks for it on the nodes.

The extender cannot free them, because a pod's resources are fixed. They are listed, and each gets an Event, so that
somebody configures the scheduler or recreates the pods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from controller.clock import Clock
from controller.kube.recorder import Target
from controller.kube.store import Change
from controller.model.names import EXTENDER_RESOURCE
from controller.model.workload import Pod

LISTED: Final = 100  # pods that the status page names
TELL_EVERY_SECONDS: Final = 30.0  # the summary, while the number changes
REASON: Final = "LonghornPodsStuck"
POD_REASON: Final = "LonghornSchedulerNotWired"
POD_TEXT: Final = (
    f"The pod requests {EXTENDER_RESOURCE}, but scheduler {{scheduler!r}} looks for that resource on the nodes: it is "
    "not configured to ask the Longhorn scheduler extender. The pod stays pending until it is, or recreate the pod "
    "without the request"
)


class EventNotes(Protocol):
    def note(self, target: Target, reason: str, message: str, *, is_warning: bool = ...) -> None: ...


class StuckPods:
    """The pods that are stuck now, as the pods' store shows them.

    Threads: any. Blocks: never. I/O: none; Events are the recorder's.
    """

    def __init__(self, clock: Clock, notes: EventNotes, tell: Callable[[str, str, bool], None]) -> None:
        """`tell` takes a reason, a text about all of them, and whether it is a warning."""
        self._clock, self._notes, self._tell = clock, notes, tell
        self._lock = threading.Lock()  # guards the fields below
        self._stuck: dict[str, Pod] = {}  # by uid
        self._untold: dict[str, Pod] = {}
        self._told_count = 0
        self._told_at = float("-inf")

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        for change in changes:
            old, new = change.old, change.new
            with self._lock:
                if old is not None and (new is None or new.uid != old.uid or not _is_stuck(new)):
                    self._stuck.pop(old.uid, None)
                    self._untold.pop(old.uid, None)
                if new is not None and _is_stuck(new):
                    if new.uid not in self._stuck:
                        self._untold[new.uid] = new
                    self._stuck[new.uid] = new

    def tell(self) -> None:
        """Writes Events about pods that were not reported yet, and one with the number of all; for the leader."""
        with self._lock:
            untold, self._untold = self._untold, {}
            now, count = self._clock.now(), len(self._stuck)
            is_due = count != self._told_count and (count == 0 or now >= self._told_at + TELL_EVERY_SECONDS)
            if is_due:
                self._told_count, self._told_at = count, now
        for pod in untold.values():
            target = Target("Pod", pod.namespace, pod.name, pod.uid)
            self._notes.note(target, POD_REASON, POD_TEXT.format(scheduler=pod.scheduler_name), is_warning=True)
        if is_due and count:
            pods = "1 pod waits" if count == 1 else f"{count} pods wait"
            self._tell(REASON, f"{pods} in vain for {EXTENDER_RESOURCE}; the status document lists them", True)

    def __len__(self) -> int:
        with self._lock:
            return len(self._stuck)

    def status(self) -> Mapping[str, Any]:
        with self._lock:
            keys = sorted(pod.key for pod in self._stuck.values())
        return {"count": len(keys), "pods": keys[:LISTED]}


def _is_stuck(pod: Pod) -> bool:
    return pod.lacks_extender and pod.is_pending
