"""The pods that wait for the copies of a volume, and the node that is chosen for each."""

from __future__ import annotations

from collections.abc import Collection, Container

from controller.allocator.plans.choice import choice_of
from controller.allocator.plans.given import Given
from controller.allocator.plans.plan import NO_PLACES, Hold, Source
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.planning import Claimant
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.workload import Claim, Pod
from controller.rules.demand import VolumeDemand


class Claimants:
    """Finds the claimants of volumes. Threads: none of its own; the allocator's lock guards it."""

    def __init__(
        self, world: World, table: Table, clock: Clock, shared: SharedClaims, given: Given, lost: set[str]
    ) -> None:
        """`lost`: volumes with fewer places than were planned."""
        self._world, self._table, self._clock, self._shared = world, table, clock, shared
        self._given, self.lost = given, lost
        self.former: dict[str, float] = {}  # uids of pods that the leader before may have answered, until when

    def choice(self, pod: Pod) -> str:
        """The node that is chosen for the pod now; "" for none. Costs: for a pod that was answered, a look at its
        claims."""
        answer = self._table.hold(pod.uid) or self.lost_answer(pod.uid)
        return choice_of(
            pod,
            self._world.claims_of(pod) if answer is not None and not pod.node_name else (),
            answer,
            self._world.pv,
            is_used_by_others=lambda claim: self._shared.is_used_by_others(claim.key, pod),
        )

    def lost_answer(self, pod_uid: str) -> Hold | None:
        """The answer, for any node, that the leader before may have given in its last moments and did not store."""
        now = self._clock.now()
        if now >= self.former.get(pod_uid, now):
            return None
        return Hold(pod_uid, Source.FILTER, None, NO_PLACES, now, self._clock.now_utc())

    def of(self, volume: str) -> list[Claimant]:
        """The pods that wait for copies of the volume, the one whose node decides first: bound pods, pods whose node is
        chosen, and, where the volume goes anywhere and exists or is requested, all that were told a place for it."""
        found, plan = dict[str, Claimant](), self._table.plan(volume)
        told = frozenset(plan.pods) if plan is not None else frozenset[str]()
        for claim in self._world.claims_of_volume(volume):
            demand = self._world.demand_of(claim.uid)
            if demand is not None and demand.volume != volume:
                continue
            open_nodes: Collection[str] | None = None  # found once, if at all: there may be very many pods
            for pod in self._world.pods_of_claim(claim.key):
                one = self._claimant(pod, claim, demand, volume, told)
                if one is not None and not one.is_told and demand is not None and demand.is_local:
                    open_nodes = self._shared.open_nodes(claim, volume) if open_nodes is None else open_nodes
                    one = one if one.node in open_nodes else None
                if one is not None:
                    found[pod.uid] = one
        return sorted(found.values(), key=lambda one: self._rank(one, told))

    def _rank(self, one: Claimant, told: Container[str]) -> tuple[bool, bool, bool, str, str]:
        """Sorts first the pod whose node decides: one that stays, that was told a place, that is the oldest."""
        pod = self._world.pods[one.pod]
        is_told = self._table.hold(one.pod) is not None or one.pod in told
        return not one.node, pod.is_deleting, not is_told, pod.created_utc, pod.uid

    def _claimant(
        self, pod: Pod, claim: Claim, demand: VolumeDemand | None, volume: str, told: Container[str]
    ) -> Claimant | None:
        hold = self._table.hold(pod.uid)
        if pod.is_over:
            return None
        if pod.node_name:
            return self._bound_claimant(pod, hold, demand, volume, told)
        if hold is None:
            return None
        if hold.chosen:
            return Claimant(pod.uid, hold.chosen, hold.at(hold.chosen).get(volume, ()))
        is_asked_for = bool(claim.selected_node) or volume in self._world.volumes
        offered = hold.anywhere.get(volume, ())
        return Claimant(pod.uid, "", offered) if offered and is_asked_for else None

    def _bound_claimant(
        self, pod: Pod, hold: Hold | None, demand: VolumeDemand | None, volume: str, told: Container[str]
    ) -> Claimant | None:
        is_told = hold is not None or pod.uid in told or volume in self.lost
        if self._given.is_authority and not is_told:
            return None  # who asks by name waits for nobody that never asked us
        if not self._world.has_node(pod.node_name):
            return None
        if not is_told and demand is not None and not demand.exists:
            return None  # anybody may bind a pod whose claims ask for whatever they like
        offered = hold.at(pod.node_name).get(volume, ()) if hold is not None else ()
        return Claimant(pod.uid, pod.node_name, offered, is_told=is_told, is_leaving=pod.is_deleting)
