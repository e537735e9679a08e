"""The first invariant: what was told is taken, once, on the disks that were named, and on bytes that are there.

All of this is asked while every watch has delivered and no place is being written. What has to be taken is worked out
of the truth and of what was answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.model.longhorn import Replica
from controller.model.workload import Pod
from tests.race.driver import TakenRow
from tests.race.invariants import COUNTS
from tests.race.told import EVERYWHERE, Yes, is_local, lacks, stays

if TYPE_CHECKING:
    from tests.race.world import Grant, RaceWorld


class CountsInvariant:
    def __init__(self, world: RaceWorld) -> None:
        self._world = world
        self._free: dict[str, int] = {}  # as of the last look, by disk UUID
        self._looked_at = 0

    def check(self) -> None:
        world, rows = self._world, self._world.driver.rows()
        check_sums(world, rows)
        check_hard(world)
        check_plans(world, rows)
        self._check_free()
        for uid, yes in world.told.yes.items():
            pod = next((one for one in world.pods.values() if one.uid == uid), None)
            if pod is not None:
                check_told(world, pod, yes, rows)
        check_rows(world, rows)
        check_growth(world)

    def _check_free(self) -> None:
        """No byte is promised twice, unless bytes came from elsewhere since the last look."""
        world, taken = self._world, self._world.driver.taken_bytes()
        free = {uuid: hard - taken.get(uuid, 0) for uuid, hard in world.driver.free_bytes().items()}
        if max(world.told.all_at, world.told.lost_at) <= self._looked_at:
            for uuid, left in free.items():
                least = min(0, self._free.get(uuid, 0))
                text = (
                    f"{-left / 1024**3:g} GiB more than there are are taken on {uuid}:\n{_listed(world.driver.rows())}"
                )
                world.check(left >= least, text)
        self._free, self._looked_at = free, world.told.step


def check_sums(world: RaceWorld, rows: Iterable[TakenRow]) -> None:
    """Each volume counts once on a disk, at the most that any of its holders has there."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        found[row.place.disk_uuid][row.volume][row.holder] += row.place.size_bytes
    sums = {uuid: sum(max(one.values()) for one in volumes.values()) for uuid, volumes in found.items()}
    world.check(sums == world.driver.taken_bytes(), f"{sums} should be taken, and {world.driver.taken_bytes()} are")


def check_hard(world: RaceWorld) -> None:
    """The product counts neither less nor more than objects, the record, and growth that it shows."""
    growing: Counter[str] = Counter()
    for (_, node), size in world.driver.growing_bytes().items():
        growing[node] += size
    left, least = world.free_bytes(by_figures=True), world.free_bytes(by_figures=True, at_least=True)
    nodes = {disk.uuid: node.name for node in world.nodes.values() for disk in node.disks}
    for uuid, free in world.driver.free_bytes().items():
        text = f"{free / 1024**3:g} GiB are free on {uuid}, not {left[uuid] / 1024**3:g}"
        world.check(free <= left[uuid], f"less is counted than there is: {text}")
        is_enough = free >= least[uuid] - growing[nodes[uuid]] or bool(world.in_doubt)
        world.check(is_enough, f"more is counted than there is: {text}")


def check_plans(world: RaceWorld, rows: Iterable[TakenRow]) -> None:
    """Plans lie on disks that take them, within what is left there: who has to leave does so in the same step. Holds
    are looked at when a node is chosen."""
    planned: Counter[str] = Counter()
    for row in rows:
        if not row.holder:
            planned[row.place.disk_uuid] += row.place.size_bytes
    hard = world.driver.free_bytes()
    for uuid, size in planned.items():
        left = hard.get(uuid, 0)
        text = f"{size / 1024**3:g} GiB are planned on {uuid}, where {left / 1024**3:g} are left"
        world.check(size <= left, f"{text}:\n{_listed(rows)}")


def check_told(world: RaceWorld, pod: Pod, yes: Yes, rows: Iterable[TakenRow]) -> None:
    """What the pod was told has its places: each of its volumes on each node that may still be chosen. kube-scheduler
    takes no other node than the one that is selected for an unbound claim, whichever pod that was for."""
    selected = {claim.selected_node for claim in world.claims_of(pod) if claim.selected_node and not claim.volume_name}
    for claim in world.claims_of(pod):
        facts, users = world.volume_of(claim), world.users_of(claim)
        if world.told.is_explained(yes, facts.name) or world.is_doubtful(facts.name):
            continue
        if is_local(facts) and len(users) > 1:
            continue  # it goes where one of them goes
        there = [row for row in rows if row.volume == facts.name]
        for node in yes.nodes_of(claim.uid):
            if node != EVERYWHERE and selected - {node}:
                continue
            where, least = lacks(world, claim, "" if node == EVERYWHERE else node), 1
            if where == EVERYWHERE:
                least = yes.due[claim.uid] - sum(map(stays, world.lying_of(facts.name)))
            held = Counter(row.holder for row in there if where in (EVERYWHERE, row.place.node))
            text = f"{pod.key} was offered {sorted(yes.nodes)}, and {facts.name} has no place on {node}"
            world.check(not where or max(held.values(), default=0) >= least, f"{text}:\n{_listed(rows)}")


def check_rows(world: RaceWorld, rows: Iterable[TakenRow]) -> None:
    """What is taken is as large as the volume, and no more than is missing is planned."""
    planned: Counter[str] = Counter()
    for row in rows:
        claim = world.claim_of(row.volume)
        if claim is None:
            continue  # the second invariant's
        least, most = world.volume_of(claim).size_bytes, world.granted_bytes(claim)[1]
        world.check(least <= row.place.size_bytes <= most, f"it is {least} to {most}: {row}")
        if not row.holder:
            planned[row.volume] += 1
            here = [one.name for one in world.lying_of(row.volume) if one.disk_uuid == row.place.disk_uuid]
            is_one_too_many = bool(here) and not world.settings.disk_soft_anti_affinity
            world.check(not is_one_too_many, f"counts twice, since {here} lies there: {row}")
    for volume, count in planned.items():
        claim = world.claim_of(volume)
        if claim is not None:
            facts = world.volume_of(claim)
            most = 1 if is_local(facts) else facts.replica_count - sum(map(stays, world.lying_of(volume)))
            world.check(count <= most, f"{count} copies of {volume} are planned, and {most} are missing")


def check_growth(world: RaceWorld) -> None:
    """What replicas are still to grow by counts once on each of their nodes."""
    found = world.driver.growing_bytes()
    for claim in world.claims.values():
        facts = world.volumes.get(f"pvc-{claim.uid}")
        if facts is None or claim.volume_name != facts.name:
            continue
        least_size, most_size = world.granted_bytes(claim)
        placed = [replica for replica in world.lying_of(facts.name) if replica.node]
        for node in {replica.node for replica in placed}:
            here = [replica for replica in placed if replica.node == node]
            least = sum(max(0, least_size - replica.size_bytes) for replica in here)
            # What a replica that waits for a disk was given for its volume's growth counts as growth.
            most = sum(max(0, most_size - world.replicas[replica.name].size_bytes) for replica in here)
            size = found.get((facts.name, node), 0)
            is_enough = size >= least or world.is_doubtful(facts.name)  # it may count as given away
            is_enough = is_enough or _is_forgotten(world, facts.name, placed, least_size)
            world.check(
                size <= most and (is_enough or not _could_ever_grow(world, placed, least_size)),
                f"growth of {claim.key} on {node} counts {size / 1024**3:g} GiB, not {least / 1024**3:g}",
            )


def _is_forgotten(world: RaceWorld, volume: str, placed: list[Replica], size_bytes: int) -> bool:
    """Whether no leader of now has admitted that growth, and its room was given to others before it was stored."""
    if any(one.volume == volume and one.term == world.term and one.size_bytes >= size_bytes for one in world.grants):
        return False
    limits, sums = world.rules().limits(), Counter[str]()
    for replica in world.replicas.values():
        grown = size_bytes if replica in placed else 0
        sums[replica.disk_uuid] += max(replica.size_bytes, grown)
    return any(sums[replica.disk_uuid] > limits.get(replica.disk_uuid, 0) for replica in placed)


def _could_ever_grow(world: RaceWorld, replicas: list[Replica], size_bytes: int) -> bool:
    """Whether each disk could hold what lies there of the volume at that size, if it were otherwise empty."""
    limits = world.rules().limits()
    by_disk = Counter(replica.disk_uuid for replica in replicas)
    return all(count * size_bytes <= limits.get(uuid, 0) for uuid, count in by_disk.items())


def check_admitted(world: RaceWorld, grant: Grant) -> None:
    """After a growth was admitted: the disks that could take it alone must take it beside all that may still be stored,
    whoever admitted that."""
    if world.invariant != COUNTS or world.waiting():
        return
    asked = {f"pvc-{claim.uid}": claim.requested_bytes for claim in world.claims.values()}
    alone = {**asked, grant.volume: max(asked.get(grant.volume, 0), grant.size_bytes)}
    together = dict(alone)
    for other in filter(world.may_be_stored, world.grants):
        if other.volume != grant.volume and other.is_held:
            together[other.volume] = max(together.get(other.volume, 0), other.size_bytes)
    limits = world.rules().limits()
    for uuid in {replica.disk_uuid for replica in world.lying_of(grant.volume) if replica.disk_uuid}:
        here = [replica for replica in world.replicas.values() if replica.disk_uuid == uuid]
        sums = [
            sum(max(replica.size_bytes, sizes.get(replica.volume, 0)) for replica in here)
            for sizes in (alone, together)
        ]
        text = f"growth is admitted twice: {sums[1] / 1024**3:g} of {limits[uuid] / 1024**3:g} GiB on {uuid}"
        world.check(sums[0] > limits[uuid] or sums[1] <= limits[uuid], text)


def _listed(rows: Iterable[TakenRow]) -> str:
    return "\n".join(f"    {row}" for row in rows) or "    nothing"
