"""The first invariant: every promise counts exactly once until it is shown or ends.

What has to be promised is worked out of the truth and of what was answered, by the tests' own rules: for each volume
the nodes where it may still land, or EVERYWHERE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from controller.model.longhorn import Replica, Volume
from controller.model.workload import Claim, Pod
from tests.race.driver import EVERYWHERE, GROWTH, HOLD_CAP_SECONDS, RESERVATION_TIMEOUT_SECONDS, PromiseRow
from tests.race.invariants import PROMISES
from tests.race.world import ROAMING_SECONDS, Grant, RaceWorld, SchedulingRound

ORPHAN_SECONDS: Final = 10.0  # for so long at least a claim without a pod counts while it is provisioned


@dataclass(frozen=True)
class Need:
    """A volume must count on that node, or EVERYWHERE, which serves for any node as well."""

    volume: str  # the claim's uid
    node: str
    least_bytes: int
    most_bytes: int
    why: str

    def __str__(self) -> str:
        return f"{self.volume} on {self.node}, {self.least_bytes / 1024**3:g} GiB, because {self.why}"


def is_local(facts: Volume) -> bool:
    """Whether a copy has to lie on the node of the pod."""
    if facts.access_mode == "rwx":
        return False
    return facts.data_locality == "strict-local" or (facts.data_locality == "best-effort" and facts.replica_count == 1)


def stays(replica: Replica) -> bool:
    """Whether the replica's data is on its disk, or is brought back there."""
    return replica.is_usable or (replica.is_potentially_reusable and replica.active and not replica.deleting)


def lacks(world: RaceWorld, claim: Claim, node: str) -> str:
    """Where the claim's volume has no copy yet if its pod runs on `node`: that node, EVERYWHERE, or "" for nowhere."""
    facts = world.volume_of(claim)
    replicas = world.lying_of(facts.name)
    if not is_local(facts):
        return EVERYWHERE if sum(map(stays, replicas)) < facts.replica_count else ""
    placed = any(replica.is_placed for replica in replicas)
    if (placed and facts.data_locality == "strict-local") or any(
        stays(entry) and entry.node == node for entry in replicas
    ):
        return ""
    return node


def needs_at(world: RaceWorld, claim: Claim, node: str) -> str:
    """As `lacks`, but for copies that have been Longhorn's to place for long."""
    name = world.volume_of(claim).name
    since = world.placeable_at.get(name, world.now)
    is_over = name in world.was_full or world.now - since >= ROAMING_SECONDS
    where = lacks(world, claim, node)
    return "" if where == EVERYWHERE and is_over else where


def required(world: RaceWorld) -> Iterator[Need]:
    """All that must be promised while every watch has delivered."""
    for current in world.rounds.values():
        pod = world.pods.get(current.key)
        if pod is None or pod.uid != current.uid or pod.is_finished or (pod.is_deleting and not pod.node_name):
            continue
        yield from _of_pod(world, current, pod)
    for claim in world.claims.values():
        yield from _of_claim(world, claim)


def _of_pod(world: RaceWorld, current: SchedulingRound, pod: Pod) -> Iterator[Need]:
    is_picked = bool(current.picked) and current.is_evident
    is_promised = current.is_live and not (_is_old(world, current) or _is_mistaken(world, current, pod))
    # A claim of several pods, and what is older than the last answer, show nobody where this pod goes.
    claims = world.claims_of(pod)
    told = {claim.uid for claim in claims if _is_told(world, current, pod, claim)}
    is_shown = current.is_nominated or not told <= current.older
    for claim in claims:
        promised = current.promised.get(claim.uid, frozenset()) if current.is_live else frozenset()
        if pod.node_name and not claim.volume_name:
            continue  # bound by hand: a scheduler has the claims bound first
        if pod.node_name:
            yield from _chosen(world, claim, pod.node_name, f"{pod.key} is bound to {pod.node_name}")
        elif is_picked and (_is_overruled(world, current, claims, told) or not world.is_proven(pod, current.picked)):
            continue  # what only an owner says counts for the claim, if at all
        elif is_picked and (claim.uid in told or promised & {current.picked, EVERYWHERE}):
            yield from _chosen(world, claim, current.picked, f"{pod.key} was given {current.picked}", is_shown=is_shown)
        elif is_promised and not is_picked and not _is_forestalled(world, current, claims):
            for node in sorted(promised):
                still = {needs_at(world, claim, name) for name in ((node,) if node != EVERYWHERE else world.nodes)}
                if still - {""}:
                    yield _need(world, claim, node, f"{pod.key} was offered {sorted(current.offered)}")


def _is_told(world: RaceWorld, current: SchedulingRound, pod: Pod, claim: Claim) -> bool:
    """Whether the claim itself says that its pod goes to the picked node. What may speak for another pod as well, and a
    nomination, only narrow what was answered."""
    if claim.selected_node != current.picked or claim.key not in current.selected or len(world.users_of(claim)) != 1:
        return False
    if not claim.volume_name:
        return True
    pv = world.pvs.get(claim.volume_name)
    if pv is None or claim.is_shared or pod.created_utc >= pv.created_utc:
        return False
    # A pod whose binding failed in between may have volumes that were made for several nodes: the last one tells.
    others = (other for other in world.claims_of(pod) if other.selected_node not in ("", current.picked))
    later = (world.pvs.get(other.volume_name) for other in others)
    return all(other is None or other.version < pv.version for other in later)


def _is_old(world: RaceWorld, current: SchedulingRound) -> bool:
    """Whether the answer was given so long ago that nobody acts on it any more."""
    return world.now - current.answered_at >= HOLD_CAP_SECONDS


def _is_mistaken(world: RaceWorld, current: SchedulingRound, pod: Pod) -> bool:
    """Whether a leader that did not give the answer may take a nomination of another time for the choice."""
    return current.term != world.term and pod.nominated_node not in ("", *current.offered)


def _is_forestalled(world: RaceWorld, current: SchedulingRound, claims: Collection[Claim]) -> bool:
    """Whether a claim's owner, or the round of a pod before, wrote one of the offered nodes before the question, and it
    was seen after the answer, so that it looks like the choice that follows it."""
    return any(_may_mislead(world, current, claim) and claim.selected_node in current.offered for claim in claims)


def _may_mislead(world: RaceWorld, current: SchedulingRound, claim: Claim) -> bool:
    return claim.uid in world.by_hand or claim.uid in current.unseen


def _is_overruled(world: RaceWorld, current: SchedulingRound, claims: Collection[Claim], told: Collection[str]) -> bool:
    """Whether nothing but a nomination tells where the pod goes, and a claim whose volume was made since names another
    node that the pod was let through to: that looks like a later choice."""
    others = (claim for claim in claims if _may_mislead(world, current, claim) and claim.volume_name and not told)
    return any(
        claim.selected_node != current.picked and world.driver.has_let_through(current.uid, claim.selected_node)
        for claim in others
    )


def _chosen(world: RaceWorld, claim: Claim, node: str, why: str, *, is_shown: bool = True) -> Iterator[Need]:
    """What a choice of that node needs. One that is not shown leaves a hold where it is."""
    need = needs_at(world, claim, node)
    facts = world.volume_of(claim)
    if not need or (need == node and _had_its_chance(world, facts.name, node)):
        return
    if is_shown and need == node and not takes(world, facts, node) and facts.data_locality == "best-effort":
        replicas = world.lying_of(facts.name)
        if any(replica.is_placed for replica in replicas):
            return  # a second copy beside the pod: it waits for that node, and nowhere else
        if replicas and all(replica.hard_node_affinity for replica in replicas):
            return  # the same, and the first copy is lost
        need, why = EVERYWHERE, f"{why}, and {node} takes it no more"
    yield _need(world, claim, need, why)


def takes(world: RaceWorld, facts: Volume, node: str) -> bool:
    """Whether Longhorn would put a copy on that node, whatever lies on its disks."""
    return bool(world.rules().reach(facts, world.lying_of(facts.name), node, has_limits=False))


def _had_its_chance(world: RaceWorld, volume: str, node: str) -> bool:
    since = world.chance_at.get((volume, node))
    return since is not None and world.now - since >= RESERVATION_TIMEOUT_SECONDS


def _of_claim(world: RaceWorld, claim: Claim) -> Iterator[Need]:
    """What Longhorn goes on with, whatever becomes of the pods."""
    facts = world.volume_of(claim)
    users = world.users_of(claim)
    is_alone = all(pod.is_over for pod in users)
    if claim.selected_node and not claim.volume_name:
        doubted_at = world.doubted_at.get(claim.uid, world.now)
        is_soon_placed = facts.data_locality == "disabled" and world.now - doubted_at < ORPHAN_SECONDS
        is_soon_placed = is_soon_placed and world.now - world.selected_at[claim.uid] < ROAMING_SECONDS
        if any(_goes_there(world, claim, pod) for pod in users) or (is_alone and is_soon_placed):
            yield from _chosen(world, claim, claim.selected_node, f"it is provisioned for {claim.selected_node}")
    elif claim.volume_name and facts.node_id and is_alone:
        _, since = world.own_since[facts.name]
        is_over = world.now - since >= ROAMING_SECONDS
        if not (is_over or any(replica.is_placed for replica in world.lying_of(facts.name))):
            yield from _chosen(world, claim, facts.node_id, f"it is attached to {facts.node_id}")
    elif claim.volume_name and is_alone and facts.data_locality == "disabled":
        yield from _chosen(world, claim, "", "Longhorn places it without a pod")


def _goes_there(world: RaceWorld, claim: Claim, pod: Pod) -> bool:
    """Whether a scheduler has written the claim's node for that pod, and still means it."""
    current, node = world.rounds[pod.key], claim.selected_node
    if current.picked != node or claim.key not in current.selected or pod.is_over:
        return False
    return world.is_proven(pod, node) or not world.is_owners_word_over(claim)


def _need(world: RaceWorld, claim: Claim, node: str, why: str) -> Need:
    least, most = world.granted_bytes(claim)
    facts = world.volume_of(claim)
    if not could_ever_grow(world, [replica for replica in world.lying_of(facts.name) if replica.is_placed], least):
        least = facts.size_bytes
    return Need(claim.uid, node, least, most, why)


# The check


def check_promises(world: RaceWorld, rows: list[PromiseRow]) -> None:
    """To be asked when every watch has delivered."""
    places = Counter((row.volume, row.node) for row in rows if row.kind != GROWTH)
    for place, count in places.items():
        world.check(count == 1, f"{place[0]} is promised {place[1]} {count} times")
    found = {(row.volume, row.node): row for row in rows if row.kind != GROWTH}
    for need in required(world):
        if not _can_exist(world, need) or f"pvc-{need.volume}" in world.in_doubt:
            continue
        row = found.get((need.volume, need.node)) or found.get((need.volume, EVERYWHERE))
        if row is None:
            world.check(False, f"not promised: {need}\npromised:\n{_listed(rows)}")
            continue
        is_right = need.least_bytes <= row.size_bytes <= need.most_bytes
        world.check(is_right, f"promised {row.size_bytes / 1024**3:g} GiB: {need}\npromised:\n{_listed(rows)}")
    for row in found.values():
        _check_not_shown(world, row)
    check_growth(world, rows)


def _can_exist(world: RaceWorld, need: Need) -> bool:
    """Whether a disk of that node, or of any, could take the volume if it were empty."""
    limits = world.rules().limits()
    names = world.nodes if need.node == EVERYWHERE else (need.node,)
    disks = [disk.uuid for name in names for disk in world.nodes[name].disks if disk.maximum_bytes > 0]
    return not disks or need.least_bytes <= max(limits.get(uuid, 0) for uuid in disks)


def _check_not_shown(world: RaceWorld, row: PromiseRow) -> None:
    """What a replica shows already must not count a second time."""
    claim = world.claim_by_uid(row.volume)
    if claim is None:
        return
    replicas = world.lying_of(world.volume_of(claim).name)
    is_here = any(replica.is_usable and replica.node == row.node for replica in replicas)
    # A failed replica may come back while Longhorn has another one to place beside the engine.
    is_coming = row.is_longhorns and any(not entry.node and entry.hard_node_affinity == row.node for entry in replicas)
    world.check(not is_here or is_coming, f"counts twice, since a replica lies there: {row}")
    if row.kind in ("first", "move") and not row.is_longhorns and any(replica.is_placed for replica in replicas):
        may_run_there = any(row.node in (pod.node_name or row.node, EVERYWHERE) for pod in world.users_of(claim))
        world.check(may_run_there, f"counts although its data lies elsewhere and no pod may run there: {row}")
    if row.kind == "roaming":
        is_waiting = row.is_longhorns and any(not (entry.node or entry.failed_at) for entry in replicas)
        is_full = sum(map(stays, replicas)) >= world.volume_of(claim).replica_count
        world.check(is_waiting or not is_full, f"counts twice, since all of its copies are placed: {row}")


def check_growth(world: RaceWorld, rows: list[PromiseRow]) -> None:
    """What replicas are still to grow by counts once on each of their nodes."""
    found = {(row.volume, row.node): row.size_bytes for row in rows if row.kind == GROWTH}
    for claim in world.claims.values():
        facts = world.volumes.get(f"pvc-{claim.uid}")
        if facts is None or claim.volume_name != facts.name:
            continue
        least_size, most_size = world.granted_bytes(claim)
        placed = [replica for replica in world.lying_of(facts.name) if replica.node]
        for node in {replica.node for replica in placed}:
            here = [replica for replica in placed if replica.node == node]
            least = sum(max(0, least_size - replica.size_bytes) for replica in here)
            most = sum(max(0, most_size - replica.size_bytes) for replica in here)
            size = found.get((claim.uid, node), 0)
            is_enough = size >= least or facts.name in world.in_doubt  # it may count as given away
            is_enough = is_enough or _is_forgotten(world, facts.name, placed, least_size)
            world.check(
                size <= most and (is_enough or not could_ever_grow(world, placed, least_size)),
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


def check_admitted(world: RaceWorld, grant: Grant) -> None:
    """After a growth was admitted: the disks that could take it alone must take it beside all that may still be stored,
    whoever admitted that."""
    if world.invariant != PROMISES or world.waiting():
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


def could_ever_grow(world: RaceWorld, replicas: list[Replica], size_bytes: int) -> bool:
    """Whether each disk could hold what lies there of the volume at that size, if it were otherwise empty."""
    limits = world.rules().limits()
    by_disk = Counter(replica.disk_uuid for replica in replicas)
    return all(count * size_bytes <= limits.get(uuid, 0) for uuid, count in by_disk.items())


def _listed(rows: list[PromiseRow]) -> str:
    return "\n".join(f"    {row}" for row in rows) or "    nothing"
