"""Room for pods that preemption makes place for, while their victims end.

What the preempt verb let through is not promised: kube-scheduler chooses one node, evicts there, and filters the pod
again once the victims are gone, half a minute later by default. If another pod took the Longhorn room meanwhile, the
victims would have died for nothing. So from the moment that the pod's nomination shows one of the nodes that were
approved, what the pod needs there counts as promised for pods of lower and, if they were not approved earlier, of equal
priority. kube-scheduler does the same with CPU and memory.

Nothing of this outlives the process or its term. A leader that knows nothing of it reserves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.judge.pending import promise_of_demand
from controller.allocator.promises.ledger import ANYWHERE, Ledger, Promise
from controller.model.demand import VolumeDemand
from controller.model.workload import Pod

# Longer than the grace periods in common use (30 s by default, one to three minutes for databases), and the time after
# which kube-scheduler looks at a sleeping pod by itself. A victim that takes longer holds its place without our help.
MOST_SECONDS: Final = 300.0
MOST_PODS: Final = 1_000  # approved at a time; the oldest is forgotten first
_NOTHING: Final[Mapping[str, Sequence[Promise]]] = {}


@dataclass(frozen=True, slots=True)
class _Approval:
    """One answer of the preempt verb. `node` is what the pod's nomination shows of `nodes`, "" before it does."""

    priority: int
    nodes: frozenset[str]
    demands: tuple[VolumeDemand, ...]  # of that moment: nobody places the pod's volumes while it waits
    until: float
    node: str = ""


class Nominations:
    """What preempting pods need. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._approved: dict[str, _Approval] = {}  # by pod uid, the earliest first

    def __len__(self) -> int:
        return len(self._approved)

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._approved

    def approve(self, pod: Pod, nodes: Collection[str], demands: Sequence[VolumeDemand], now: float) -> None:
        """Pods may be evicted for this one on any of `nodes`; what was approved for it before ends."""
        if self._approved:
            self._approved = {uid: entry for uid, entry in self._approved.items() if now < entry.until}
        if not nodes:
            self._approved.pop(pod.uid, None)
            return
        if pod.uid not in self._approved and len(self._approved) >= MOST_PODS:
            del self._approved[next(iter(self._approved))]
        wanted = tuple(demand for demand in demands if demand.is_local or demand.is_roaming)
        entry = _Approval(pod.priority, frozenset(nodes), wanted, now + MOST_SECONDS)
        self._approved[pod.uid] = entry  # a pod that is there already keeps its turn
        self.see(pod)

    def see(self, pod: Pod) -> None:
        """The pod as it is now: nominated, not yet, or no more."""
        entry = self._approved.get(pod.uid)
        if entry is None:
            return
        if pod.nominated_node in entry.nodes:
            self._approved[pod.uid] = replace(entry, node=pod.nominated_node)
        elif entry.node:
            del self._approved[pod.uid]

    def filtered(self, pod_uid: str, candidates: Collection[str]) -> bool:
        """Filter has refused the pod on these nodes; whether that ends a reservation. While victims are there,
        kube-scheduler asks about other nodes only."""
        entry = self._approved.get(pod_uid)
        return entry is not None and entry.node in candidates and self.release(pod_uid)

    def release(self, pod_uid: str) -> bool:
        """The pod was offered room, or is gone; whether that ends a reservation."""
        entry = self._approved.pop(pod_uid, None)
        return entry is not None and bool(entry.node)

    def clear(self) -> None:
        self._approved.clear()

    def ends(self) -> Iterator[float]:
        """When reservations end by time."""
        return (entry.until for entry in self._approved.values() if entry.node)

    def reserved_against(self, pod: Pod, ledger: Ledger, now: float) -> Mapping[str, Sequence[Promise]]:
        """By node, what `pod` may not take now, as far as the ledger does not promise it anyway."""
        if not self._approved:
            return _NOTHING
        found: dict[str, list[Promise]] = {}
        has_passed = False  # the pod's own approval, which goes before those after it
        for uid, entry in self._approved.items():
            if uid == pod.uid:
                has_passed = True
            elif entry.node and now < entry.until and entry.priority >= pod.priority + has_passed:
                for demand in entry.demands:
                    _reserve(found, demand, entry.node, ledger, now)
        return found


def _reserve(found: dict[str, list[Promise]], demand: VolumeDemand, node: str, ledger: Ledger, now: float) -> None:
    if demand.is_local and node in demand.home_nodes:
        return
    place = node if demand.is_local else ANYWHERE
    if not ledger.at(demand.key, place) and all(other.volume != demand.key for other in found.get(place, ())):
        found.setdefault(place, []).append(promise_of_demand(demand, now))
