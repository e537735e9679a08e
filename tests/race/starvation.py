"""The third invariant: a pod that fits is offered a node.

Whether it fits is told by the tests' own packing of what is free: by the truth, less all that is taken for others.
Volumes that follow the pod are packed on its node's disks in every way. Of those that go anywhere nothing is left to
chance: each disk that they may reach has room for all of the pod's volumes together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from controller.model.workload import Claim, Pod
from tests.race.driver import RaceAnswer
from tests.race.told import is_local, lacks, stays
from tests.race.world import RaceWorld


class Starvation:
    """Judges answers that are given while all is known."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world

    def fitting(self, pod: Pod, candidates: Iterable[str]) -> list[str]:
        """Nodes on which the pod surely fits now; to be asked before the call."""
        world = self._world
        claims = world.claims_of(pod)
        if world.waiting() or world.writing or world.driver.keeps_room() or len(claims) < len(pod.volumes):
            return []
        local = [claim for claim in claims if is_local(world.volume_of(claim))]
        if any(len(world.users_of(claim)) > 1 for claim in local):
            return []  # where a shared one goes is not this pod's choice alone
        free = self._free(pod, claims)
        others = [claim for claim in claims if claim not in local and lacks(world, claim, "")]
        spare = sum(world.volume_of(one).replica_count * self._size(one) for one in others)
        if not all(self._goes_anywhere(one, free, spare + sum(map(self._size, local))) for one in others):
            return []
        return [node for node in candidates if self._takes(node, local, free, spare)]

    def check(self, pod: Pod, fitting: Sequence[str], answer: RaceAnswer | None) -> None:
        refused = answer is not None and answer.is_refused
        rows = "\n".join(f"    {row}" for row in self._world.driver.rows())
        self._world.check(not (fitting and refused), f"{pod.key} is refused, and fits on {fitting} beside\n{rows}")

    def _size(self, claim: Claim) -> int:
        return self._world.granted_bytes(claim)[1]

    def _free(self, pod: Pod, claims: Iterable[Claim]) -> Counter[str]:
        """By disk, what nobody else has or is to get."""
        world, own = self._world, {_name(claim) for claim in claims}
        free, taken = world.free_bytes(by_figures=True), dict[tuple[str, str], Counter[str]]()
        for row in world.driver.rows():
            if row.holder != pod.uid and (row.volume not in own or len(self._users(row.volume)) > 1):
                taken.setdefault((row.volume, row.place.disk_uuid), Counter())[row.holder] += row.place.size_bytes
        for (_, uuid), holders in taken.items():
            free[uuid] -= max(holders.values())
        for replica in world.replicas.values():
            owner = world.claim_of(replica.volume)
            if replica.disk_uuid and owner is not None:
                free[replica.disk_uuid] -= max(0, self._size(owner) - replica.size_bytes)
        return free

    def _users(self, volume: str) -> list[Pod]:
        claim = self._world.claim_of(volume)
        return self._world.users_of(claim) if claim is not None else []

    def _reach(self, claim: Claim, node: str = "") -> list[tuple[str, str]]:
        """Nodes and disks that would take one more copy, whatever is on them."""
        facts = self._world.volume_of(claim)
        replicas = self._world.replicas_of(facts.name)
        found = self._world.rules().reach(facts, replicas, node, has_limits=False)
        return [(entry.node, entry.uuid) for entry in found]

    def _goes_anywhere(self, claim: Claim, free: Mapping[str, int], total: int) -> bool:
        """Whether all copies that are missing find room for sure, on nodes of their own."""
        facts, reach = self._world.volume_of(claim), self._reach(claim)
        zones = {self._world.nodes[node].zone for node, _ in reach}
        missing = facts.replica_count - sum(map(stays, self._world.lying_of(facts.name)))
        return all(total <= free[uuid] for _, uuid in reach) and len(zones) >= missing

    def _takes(self, node: str, local: Sequence[Claim], free: Mapping[str, int], spare: int) -> bool:
        """Whether the volumes that follow the pod are packed there in some way, beside `spare` on each disk."""
        items = list[tuple[int, list[str]]]()
        for claim in local:
            facts = self._world.volume_of(claim)
            replicas = self._world.replicas_of(facts.name)
            if not lacks(self._world, claim, node):
                if facts.data_locality == "strict-local" and all(entry.node != node for entry in replicas):
                    return False
                continue
            items.append((self._size(claim), [uuid for _, uuid in self._reach(claim, node)]))
        return _packs(items, {uuid: left - spare for uuid, left in free.items()})


def _name(claim: Claim) -> str:
    return f"pvc-{claim.uid}"


def _packs(items: Sequence[tuple[int, list[str]]], free: dict[str, int]) -> bool:
    """Whether each item finds one of its disks."""
    if not items:
        return True
    size, disks = items[0]
    return any(_packs(items[1:], {**free, uuid: free[uuid] - size}) for uuid in disks if free[uuid] >= size)
