"""Promises without a choice: offered by a yes, perhaps offered by the previous leader, or kept for a pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.own import first_places, roaming_places
from controller.allocator.promises.promise import (
    NOWHERE,
    Against,
    Kind,
    OneOf,
    Places,
    Promise,
    Source,
    State,
    Verb,
    either,
)
from controller.allocator.world.world import World
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand, demands_of_pod

# Claimants beside the pod itself, each with the pod's uid behind it.
_OF_POD: Final = {Source.NOMINATION: "nominated:", Source.KEPT_ROOM: "kept:", Source.WAKE_PLAN: "planned:"}
MOST_PLACES: Final = 5_000  # volumes times nodes; one answer's holds take milliseconds


def places_of(volumes: int) -> int:
    """On how many nodes each of so many volumes of a pod may be held by name."""
    return max(1, MOST_PLACES // max(1, volumes))


def kind_of(demand: VolumeDemand) -> Kind:
    if not demand.is_local:
        return Kind.ROAMING
    return Kind.MOVE if demand.placed_nodes else Kind.FIRST


def promise_of(
    demand: VolumeDemand, claimant: str, source: Source, kind: Kind, places: Places, since: float
) -> Promise:
    """That demand as a promise that is held."""
    return Promise(
        volume=demand.key,
        claimant=claimant,
        source=source,
        state=State.HELD,
        kind=kind,
        size_bytes=demand.size_bytes,
        required_bytes=demand.required_bytes,
        needs=demand.needs,
        places=places,
        since=since,
    )


def kept_for(ledger: Ledger, pod_uid: str, source: Source = Source.KEPT_ROOM) -> list[Promise]:
    """What is kept for the pod without being offered to it."""
    return ledger.of_claimant(_OF_POD[source] + pod_uid)


class Holds:
    """Makes promises of that sort. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, ledger: Ledger, memory: Memory) -> None:
        self._world, self._ledger, self._memory = world, ledger, memory

    def offer(
        self,
        pod: Pod,
        demand: VolumeDemand,
        nodes: Collection[str],
        now: float,
        *,
        falls_back: bool = False,
        adds_up: bool = False,
    ) -> int:
        """Promise the volume on each offered node where it needs room; the bytes promised. What had ended by time
        before may stand again. `falls_back`: it may find no disk there beside the pod's other ones. `adds_up`: the pod
        keeps what it was promised before."""
        self._memory.forget_spent(demand.key, pod.uid)
        lapsing = self._world.allocated.lapsing(demand.volume)
        places: Places | None = None
        asked: Places | None = None
        if demand.is_local:
            wanted = frozenset(nodes) - demand.home_nodes
            if wanted and falls_back and not demand.placed_nodes:  # one node is offered then
                places = first_places(self._world, demand, min(wanted), falls_back=True)
            if wanted and places is None:
                places = OneOf(wanted)
            if lapsing:
                asked = OneOf(frozenset(nodes))
            held_bytes = len(nodes if lapsing else wanted) * demand.size_bytes
        else:
            if demand.is_roaming:
                places = roaming_places(self._world, demand, demand.copies)
            if lapsing:
                asked = replace(roaming_places(self._world, demand, demand.copies + lapsing), excluded=frozenset())
            held_bytes = demand.size_bytes
        if places is None and asked is None:
            return 0
        self._offer(demand, pod, places or NOWHERE, now, asked, adds_up=adds_up)
        return held_bytes

    def _offer(
        self, demand: VolumeDemand, pod: Pod, places: Places, now: float, asked: Places | None, *, adds_up: bool
    ) -> None:
        source, kind = Source.FILTER, kind_of(demand)
        old = self._ledger.get(demand.key, pod.uid) if adds_up else None
        if old is not None and (old.kind is Kind.ROAMING) is (kind is Kind.ROAMING):
            places = either(old.places, places)
            asked = asked and either(old.as_asked.places, asked)
            if isinstance(places, OneOf) and places.nodes and len(places.nodes) > places_of(len(pod.volumes)):
                places = OneOf(None, demand.home_nodes)
            source = Source.FORMER if old.source is Source.FORMER else source
        self._put(demand, pod.uid, source, places, now, asked=asked)

    def nodes_of(self, pod_uid: str) -> frozenset[str]:
        """Where the pod's local volumes are held by name."""
        return next((one.nodes for one in self._ledger.of_claimant(pod_uid) if one.nodes), frozenset())

    def hold_everywhere(self, pod: Pod, now: float) -> None:
        """The leader before us may have offered the pod any node, so it counts as held wherever it could go. No
        scheduler can have asked about a gated one."""
        if pod.is_gated:
            return
        for demand in demands_of_pod(pod, self._world, self._world.settings)[0]:
            places: Places
            if demand.never or not self._world.limits.can_hold(demand.size_bytes):
                continue
            if demand.is_local:
                places = OneOf(None, demand.home_nodes)
            elif demand.is_roaming:
                places = roaming_places(self._world, demand, demand.copies)
            else:
                continue
            self._put(demand, pod.uid, Source.FORMER, places, now)
            self._memory.answers.answered(pod.uid, pod.namespace, now, is_ours=False)

    def keep(
        self,
        pod_uid: str,
        source: Source,
        demand: VolumeDemand,
        node: str,
        now: float,
        *,
        until: float | None,
        against: Against,
    ) -> None:
        """Room on that node, or anywhere for what roams, for a pod that none is offered to."""
        places: Places
        if demand.is_local and node not in demand.home_nodes:
            places = OneOf(frozenset((node,)))
        elif demand.is_roaming:
            places = roaming_places(self._world, demand, demand.copies)
        else:
            return
        self._put(demand, _OF_POD[source] + pod_uid, source, places, now, until, against)

    def _put(
        self,
        demand: VolumeDemand,
        claimant: str,
        source: Source,
        places: Places,
        now: float,
        until: float | None = None,
        against: Against | None = None,
        asked: Places | None = None,
    ) -> None:
        promise = promise_of(demand, claimant, source, kind_of(demand), places, now)
        if until is not None or against is not None or asked is not None:
            promise = replace(promise, until=until, against=against, asked=asked)
        self._ledger.put(Verb.HOLD, promise)

    def kept(self, pod_uid: str, source: Source) -> list[Promise]:
        """What is kept for the pod by that source."""
        return kept_for(self._ledger, pod_uid, source)

    def release(self, pod_uid: str, *sources: Source) -> bool:
        """What is kept for the pod by these sources, by all without any, ends; whether there was anything."""
        found = [promise for source in sources or _OF_POD for promise in self.kept(pod_uid, source)]
        for promise in found:
            self._ledger.drop(Verb.FORGET, promise.volume, promise.claimant)
        return bool(found)

    # Preemption: what the preempt verb let through is not promised. kube-scheduler chooses one node, evicts there, and
    # filters the pod again once the victims are gone, half a minute later by default. If another pod took the Longhorn
    # room meanwhile, the victims would have died for nothing. kube-scheduler does the same with CPU and memory.

    def settle_nomination(self, pod: Pod, demands: Iterable[VolumeDemand], now: float) -> None:
        """From the moment that the nomination names a node that was approved, what the pod needs there counts for pods
        of lower priority, and for those of equal priority that were not approved earlier."""
        approval = self._memory.approvals.get(pod.uid)
        if approval is None:
            return
        if pod.nominated_node in approval.nodes and now < approval.until:
            self._memory.approvals[pod.uid] = replace(approval, is_nominated=True)
            self.release(pod.uid, Source.NOMINATION)
            against = Against(pod.priority, approval.serial)
            for demand in demands:
                self.keep(
                    pod.uid, Source.NOMINATION, demand, pod.nominated_node, now, until=approval.until, against=against
                )
        elif approval.is_nominated:
            self.end_nomination(pod.uid)

    def end_nomination(self, pod_uid: str) -> bool:
        """The pod was offered room, refused on the nominated node, or is gone; whether that frees any."""
        self._memory.approvals.pop(pod_uid, None)
        return self.release(pod_uid, Source.NOMINATION)
