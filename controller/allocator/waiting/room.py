"""Room for one pod: questions beside what others have, as that pod sees it, and holds of what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PlacesByVolume, PodFit
from controller.allocator.plans.beside import Beside, Newcomer
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import NO_PLACES, Hold, KeepsOut, Source
from controller.allocator.plans.table import Table
from controller.allocator.waiting.kept_room import leaving_bytes
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.places import Place
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand


class PodRoom:
    """Asks what a pod finds, and holds it. Threads: none of its own; the allocator's lock guards what it is made of,
    unless that is a copy."""

    def __init__(self, world: World, table: Table, chooser: Chooser, clock: Clock, approvals: Approvals) -> None:
        self.world, self.table, self.chooser = world, table, chooser
        self._clock, self._approvals = clock, approvals

    def newcomer(self, pod: Pod, *, is_planning: bool = False) -> Newcomer:
        return Newcomer(pod.uid, pod.priority, self._approvals.serial_of(pod.uid), is_planning)

    def fit(
        self,
        pod: Pod,
        demands: Sequence[VolumeDemand],
        budget: Budget | None = None,
        *,
        is_planning: bool = False,
        adds_to: PlacesByVolume = NO_PLACES,
    ) -> PodFit:
        """A question about these volumes of the pod. `adds_to`: places of an answer that stands, of its volumes that
        are bound to no node."""
        known, is_local = self._known(pod, demands, adds_to), any(demand.is_local for demand in demands)
        own = {demand.volume for demand in demands} - known.keys()
        asks = self.newcomer(pod, is_planning=is_planning)
        taken = Beside(self.table, own, asks, is_local=is_local, leaving=self._leaving)
        bare = Beside(self.table, own, asks, is_local=is_local, keeps_room=False) if taken.keeps_room else None
        return PodFit(
            self.world,
            self.chooser,
            demands,
            taken,
            without_kept=bare,
            known=known,
            planned=[volume for volume in known if self.table.plan(volume) is not None],
            budget=budget,
            now_utc=self._clock.now_utc(),
            is_attached=bool(demands) or self.world.uses_longhorn(pod),
        )

    def taken_by_node(self, *, is_planning: bool = False) -> Mapping[str, int]:
        """Bytes taken by node, for nodes with any; to be read at once, before anything changes."""
        taken = self.table.taken_by_node()
        planned = [one for one in self.table.limited() if one.source is Source.WAKE_PLAN] if is_planning else ()
        if not planned:
            return taken
        found = Counter(taken)
        for hold in planned:
            for _, place in hold.places():
                found[place.node] += place.size_bytes
        return found

    def _leaving(self, disk_uuid: str) -> int:
        return leaving_bytes(self.world, disk_uuid)

    def _known(self, pod: Pod, demands: Collection[VolumeDemand], adds_to: PlacesByVolume) -> PlacesByVolume:
        """Places of the pod's volumes that are planned, or held for others that claim them as well."""
        found = dict[str, tuple[Place, ...]]()
        for demand in demands:
            plan = self.table.plan(demand.volume)
            others = (one for one in self.table.holding(demand.volume) if one.pod != pod.uid)
            held = next((one.places_of(demand.volume) for one in others), ())
            places = plan.places if plan is not None else adds_to.get(demand.volume, held)
            if places:
                found[demand.volume] = places
        return found

    def find_on(
        self, pod: Pod, demands: Sequence[VolumeDemand], node: str
    ) -> tuple[Mapping[str, Place], PlacesByVolume] | None:
        """Places for all of the pod's volumes if it goes to that node, or None."""
        fit = self.fit(pod, demands)
        passed, _ = fit.open_among((node,))
        judgement = fit.judge(node) if passed else None
        return (judgement.places, fit.anywhere) if judgement is not None and judgement.is_sure else None

    def settle_nomination(self, pod: Pod) -> None:
        """Hold what the pod needs on its nominated node, if that was approved, against others from now on."""
        node, now = pod.nominated_node, self._clock.now()
        approval = self._approvals.of(pod.uid, node, now) if node else None
        held = self.table.hold(pod.uid, Source.NOMINATION)
        if approval is None or pod.node_name:
            if held is not None and not held.includes(node):
                self.end_nomination(pod.uid)
            return
        if held is not None and held.includes(node):
            return
        self.table.end_hold(pod.uid, Source.NOMINATION)
        demands, _ = self.world.demands_of(pod)
        found = self.find_on(pod, demands, node)
        if found is not None:
            keeps_out = KeepsOut(pod.priority, approval.serial)
            places, anywhere = found
            self.hold(pod.uid, Source.NOMINATION, {node: places}, anywhere, until=approval.until, keeps_out=keeps_out)

    def end_nomination(self, pod_uid: str) -> bool:
        """End a nomination: the pod was offered room, refused on that node, or is gone; whether that frees any room."""
        self._approvals.forget(pod_uid)
        return self.table.end_hold(pod_uid, Source.NOMINATION) is not None

    def hold(
        self,
        pod_uid: str,
        source: Source,
        nodes: Mapping[str, Mapping[str, Place]] | None,
        anywhere: PlacesByVolume,
        *,
        named_before: frozenset[tuple[str, str]] = frozenset(),
        chosen: str = "",
        is_bare: bool = False,
        until: float | None = None,
        keeps_out: KeepsOut | None = None,
    ) -> Hold | None:
        """Make the pod hold these; None if there is nothing to hold. `is_bare`: the hold has no places, and only tells
        which nodes were offered."""
        found = Hold(
            pod_uid,
            source,
            nodes,
            anywhere,
            self._clock.now(),
            self._clock.now_utc().replace(microsecond=0),
            named_before,
            chosen,
            until=until,
            keeps_out=keeps_out,
        )
        if not (found.size_bytes or is_bare or chosen):
            return None
        self.table.put_hold(found)
        return found
