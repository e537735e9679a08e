"""The fourth invariant: no disk exceeds its limit by what was promised, and nobody who was promised room goes without.

Every yes is remembered with the step at which it was given. When a replica lands, or finds no disk, and the yes is in
force, that has to be explained by something that came after the yes: bytes on the disk that nobody was promised (pods
that were not asked about, Longhorn's own copies, promises that time had ended), or a change of reach (bytes that became
free, a disk, a node or a replica that failed or came back).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.model.longhorn import InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, Pod
from tests.fakes.builders import GIB, replica
from tests.longhorn.placement import Candidate
from tests.race.driver import EVERYWHERE, RaceAnswer
from tests.race.promises import is_local, lacks, required
from tests.race.world import Grant, RaceWorld

GROWTH: Final = "growth"


class Limits:
    """Watches all that is answered and written."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world
        self._step = 0
        self._yes: dict[tuple[str, str], int] = {}  # by the claim's uid and node, EVERYWHERE or GROWTH
        self._due: dict[str, int] = {}  # copies that had a disk when the volume that roams was promised room
        self._disturbed: Counter[str] = Counter()  # by disk UUID, the last step that explains an excess
        self._all_disturbed = 0
        self._unpromised: set[str] = set()  # replicas that landed without a yes
        self._suits_owner: set[str] = set()  # uids of claims that were granted growth
        self._at_discretion: dict[str, str] = {}  # claim uid -> the pod whose volumes may be over-committed together
        # Of nodes and managers, as the product knows them.
        self._states: dict[str, object] = {name: _state(facts) for name, facts in world.nodes.items()}
        self._states.update((name, _state(facts)) for name, facts in world.managers.items())

    # What is promised

    def answered(self, pod: Pod, answer: RaceAnswer) -> None:
        """A yes, with all that it promises."""
        self._step += 1
        for claim in self._world.claims_of(pod) if answer.is_held else ():
            if answer.is_at_discretion:
                self._at_discretion[claim.uid] = pod.uid
            elif not answer.is_chosen:
                self._at_discretion.pop(claim.uid, None)
            facts = self._world.volume_of(claim)
            roams = not is_local(facts)
            for node in (EVERYWHERE,) if roams else answer.passed:
                if self._is_new(claim, node, answer):
                    self._yes[claim.uid, node] = self._step
                    if roams:
                        self._due[claim.uid] = self._copies_with_a_disk(claim, facts)

    def _is_new(self, claim: Claim, node: str, answer: RaceAnswer) -> bool:
        """Whether the answer promises that anew."""
        return not answer.is_chosen or (claim.uid, node) not in self._yes

    def granted(self, grant: Grant) -> None:
        """What is admitted before the product has seen where the replicas lie is no promise."""
        claim = self._world.claims.get(grant.claim_key)
        if claim is None:
            return
        self._step += 1
        facts = self._world.volume_of(claim)
        reach = self._world.rules().reach(facts, self._world.replicas_of(facts.name), has_limits=False)
        self._suits_owner.discard(claim.uid)
        if any(one.node == facts.owner_id for one in reach):
            self._suits_owner.add(claim.uid)
        if self._world.waiting():
            self._yes.pop((claim.uid, GROWTH), None)
        else:
            self._yes[claim.uid, GROWTH] = self._step

    def _copies_with_a_disk(self, claim: Claim, facts: Volume) -> int:
        """How many of the missing copies find a disk if nothing is promised; all where Longhorn wants them all."""
        world = self._world
        placed = [entry for entry in world.lying_of(facts.name) if entry.is_placed]
        found = sum(
            1 for entry in placed if not entry.failed_at
        )  # a failed one keeps others from its node all the same
        if not world.settings.degraded_availability:
            return facts.replica_count
        # One copy at least has to have a disk; of a volume that has data, failed or not, none need find another one.
        least = 0 if placed else 1
        rules, left = world.rules(), world.free_bytes()
        for number in range(facts.replica_count - found):
            disks = [one for one in rules.reach(facts, placed) if left[one.uuid] >= facts.size_bytes]
            if not disks:
                break
            left[disks[0].uuid] -= facts.size_bytes
            made = replica(f"made-up-{number}", facts.name, facts.size_bytes / GIB, on=disks[0].node)
            placed.append(replace(made, disk_uuid=disks[0].uuid))
            found += 1
        return max(least, found)

    def bound_by_hand(self, pod: Pod, node: str) -> None:
        """What lands of it was not promised."""

    def ended(self, pod: Pod) -> None:
        """Time has ended what was promised to the pod."""
        for claim in self._world.claims_of(pod):
            for place in [place for place in self._yes if place[0] == claim.uid]:
                del self._yes[place]

    # What happens

    def delivered(self, kind: str, facts: object | None, gone: object | None) -> None:
        """The product knows it now; what happened before may have been unknown when a yes was given after it."""
        known = facts if facts is not None else gone
        self._step += 1
        if self._is_news(kind, facts, gone):
            self._all_disturbed = self._step
        if isinstance(known, (LonghornNode, InstanceManager)):
            self._states[known.name] = _state(facts)

    def _is_news(self, kind: str, facts: object | None, gone: object | None) -> bool:
        """Whether the event tells of something that explains an excess."""
        known = facts if facts is not None else gone
        if isinstance(known, (LonghornNode, InstanceManager)):
            return self._states.get(known.name) != _state(facts)
        if isinstance(known, Replica) and known.disk_uuid:
            return facts is None or bool(known.failed_at) or known.name in self._unpromised
        return False

    def written(self, kind: str, facts: object | None, old: object | None) -> None:
        """Before it is stored."""
        if kind in ("node", "instance_manager"):
            if _state(facts) != _state(old):
                self._step += 1
                self._all_disturbed = self._step
        elif kind == "replica":
            self._replica(facts, old)

    def _replica(self, facts: object | None, old: object | None) -> None:
        self._step += 1
        before = old if isinstance(old, Replica) else None
        after = facts if isinstance(facts, Replica) else None
        if before is not None and before.disk_uuid and (after is None or after.disk_uuid != before.disk_uuid):
            self._disturbed[before.disk_uuid] = self._step
        if before is not None and (after is None or bool(after.failed_at) != bool(before.failed_at)):
            self._all_disturbed = self._step if before.disk_uuid else self._all_disturbed
        if after is None or not after.disk_uuid:
            return
        more = after.size_bytes - (before.size_bytes if before is not None and before.disk_uuid else 0)
        if more > 0:
            self._landed(after, more, is_growth=before is not None and bool(before.disk_uuid))

    def _landed(self, facts: Replica, more: int, *, is_growth: bool) -> None:
        yes = self._yes_for(facts, is_growth=is_growth)
        if yes is None:
            self._disturbed[facts.disk_uuid] = self._step
            self._unpromised.add(facts.name)
            return
        used = more + sum(one.size_bytes for one in self._world.replicas.values() if one.disk_uuid == facts.disk_uuid)
        limit = self._world.rules().limits()[facts.disk_uuid]
        owner = self._world.volumes.get(facts.volume)
        if owner is not None and not is_local(owner) and not is_growth:
            limit += limit * self._world.shape.excess_pct // 100
        if used - self._at_discretion_beside(facts) > limit and not self._is_explained(yes, facts.disk_uuid):
            text = f"{used / 1024**3:g} of {limit / 1024**3:g} GiB are on {facts.disk_uuid}"
            self._world.check(False, f"{facts.name} puts its disk over the limit: {text}")

    def _at_discretion_beside(self, facts: Replica) -> int:
        """Bytes on the disk of the same pod's other volumes, where it was told that they may be too many there."""
        pod = self._at_discretion.get(facts.volume.removeprefix("pvc-"), "-")
        return sum(
            one.size_bytes
            for one in self._world.replicas.values()
            if one.disk_uuid == facts.disk_uuid
            and one.volume != facts.volume
            and self._at_discretion.get(one.volume.removeprefix("pvc-")) == pod
        )

    def _yes_for(self, facts: Replica, *, is_growth: bool = False) -> int | None:
        """The step at which these bytes were promised on that node; None: they are not."""
        claim = self._world.claim_by_uid(facts.volume.removeprefix("pvc-"))
        if claim is None:
            return None
        if is_growth:
            return self._yes.get((claim.uid, GROWTH))
        return self._yes_on(claim, facts.node)

    def _yes_on(self, claim: Claim, node: str) -> int | None:
        places = {need.node for need in required(self._world) if need.volume == claim.uid} & {node, EVERYWHERE}
        steps = [self._yes[claim.uid, place] for place in places if (claim.uid, place) in self._yes]
        facts = self._world.volume_of(claim)
        grows_there = node == facts.owner_id and claim.uid in self._suits_owner  # where it does not go, nothing is said
        grows_there = grows_there and (claim.requested_bytes > facts.size_bytes or facts.expansion_required)
        if grows_there and (claim.uid, GROWTH) in self._yes:
            steps.append(self._yes[claim.uid, GROWTH])  # it is attached there to grow
        return max(steps, default=None)

    def _is_explained(self, yes: int, *disks: str) -> bool:
        if max(self._all_disturbed, *(self._disturbed[disk] for disk in disks)) > yes:
            return True
        return any(self._is_news(*event) for event in self._world.undelivered())

    # Who goes without

    def check_all_find_disks(self, decided: Mapping[str, Replica]) -> None:
        """Every replica that Longhorn may place now, and that was promised room, has a disk to go to. `decided` are
        replicas as Longhorn is about to write them."""
        for facts in self._world.volumes.values():
            if facts.data_locality == "disabled" or facts.node_id:
                replicas = [decided.get(one.name, one) for one in self._world.replicas_of(facts.name)]
                waiting = [one for one in replicas if not (one.node or one.failed_at)]
                if waiting:
                    self._check_volume(facts, replicas, waiting[0])

    def _check_volume(self, facts: Volume, replicas: Sequence[Replica], waiting: Replica) -> None:
        claim = self._world.claim_by_uid(facts.name.removeprefix("pvc-"))
        if claim is None or waiting.hard_node_affinity:
            return
        found = self._world.rules().candidates(facts, replicas, waiting)
        if is_local(facts):
            self._check_local(claim, facts, found)
            return
        placed = sum(1 for one in replicas if one.node and not one.failed_at)
        if found or placed >= self._due.get(claim.uid, 0):
            return
        yes = self._yes_on(claim, EVERYWHERE)
        if yes is not None and not self._is_explained(yes, *self._world.rules().limits()):
            self._world.check(False, f"{waiting.name} finds no disk, though {self._due[claim.uid]} copies had one")

    def _check_local(self, claim: Claim, facts: Volume, found: Sequence[Candidate]) -> None:
        node = facts.node_id
        if any(one.node == node for one in found) or not lacks(self._world, claim, node):
            return
        if found and claim.uid in self._at_discretion:
            return  # it goes to another node, as was told
        yes = self._yes_on(claim, node)
        disks = [disk.uuid for disk in self._world.nodes[node].disks] if node in self._world.nodes else []
        if yes is not None and not self._is_explained(yes, *disks):
            self._world.check(False, f"{facts.name} finds no disk on {node}, which it was promised")


def _state(facts: object | None) -> object:
    """All but the figures that follow the replicas."""
    if not isinstance(facts, LonghornNode):
        return facts
    disks = tuple(replace(disk, scheduled_bytes=0, scheduled_replicas={}) for disk in facts.disks)
    return replace(facts, disks=disks)
