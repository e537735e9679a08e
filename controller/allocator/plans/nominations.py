"""The nodes on which pods may be evicted for another pod, so that nobody takes the room there meanwhile.

The preempt verb holds nothing. kube-scheduler nominates one of the nodes, evicts there, and filters the pod again once
the victims are gone, half a minute later by default. If another pod took the Longhorn room meanwhile, the victims would
have died for nothing. So from the moment that the nomination names an approved node, what the pod needs there is kept
from pods of lower priority, and from those of equal priority that were not approved earlier; as kube-scheduler does
with CPU and memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

# Longer than the grace periods in common use (30 s by default, one to three minutes for databases), and the time after
# which kube-scheduler looks at a sleeping pod by itself. A victim that takes longer holds its place without our help.
APPROVAL_SECONDS: Final = 300.0
MOST_APPROVALS: Final = 1_000  # at a time; the oldest is forgotten first


@dataclass(frozen=True, slots=True)
class Approval:
    """The nodes on which pods may be evicted for this one, `until` a monotonic time. `serial` orders approvals."""

    nodes: frozenset[str]
    until: float
    serial: int


class Approvals:
    """Approvals by the pods' UIDs, the earliest first. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._approvals: dict[str, Approval] = {}
        self._count = 0

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._approvals

    def approve(self, pod_uid: str, nodes: Collection[str], now: float, *, adds_up: bool = False) -> None:
        """Approve that pods are evicted for this one on any of `nodes`. That replaces what was approved for it before,
        or is added to it if it `adds_up`."""
        self._approvals = {uid: entry for uid, entry in self._approvals.items() if now < entry.until}
        old = self._approvals.get(pod_uid)
        if adds_up and old is not None:
            nodes = old.nodes.union(nodes)
        if not nodes:
            self._approvals.pop(pod_uid, None)
            return
        if old is None:
            if len(self._approvals) >= MOST_APPROVALS:
                del self._approvals[next(iter(self._approvals))]
            self._count += 1
        serial = old.serial if old is not None else self._count  # a pod that is there already keeps its turn
        self._approvals[pod_uid] = Approval(frozenset(nodes), now + APPROVAL_SECONDS, serial)

    def of(self, pod_uid: str, node: str, now: float) -> Approval | None:
        """Return the approval by which the pod may evict on that node now, or None."""
        found = self._approvals.get(pod_uid)
        return found if found is not None and node in found.nodes and now < found.until else None

    def serial_of(self, pod_uid: str) -> float:
        """Return the pod's place in the order of approvals; infinity without one."""
        found = self._approvals.get(pod_uid)
        return math.inf if found is None else found.serial

    def clear(self) -> None:
        self._approvals.clear()

    def forget(self, pod_uid: str) -> None:
        self._approvals.pop(pod_uid, None)
