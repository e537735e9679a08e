"""What people and the cluster itself do to workloads and nodes: pods come and go, volumes grow, things break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from controller.model.longhorn import Disk
from controller.model.workload import Claim, Pod, PodVolume
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.race.counts import check_admitted
from tests.race.shapes import PodShape, VolumeShape
from tests.race.world import Action, Grant, RaceWorld, SchedulingRound

MOST_PODS: Final = 6
IN_VAIN_SECONDS: Final = 600.0  # that a growth is remembered that was held and never stored


class Users:
    """All that may happen to pods and claims, and to the machines."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world

    # Pods

    def create(self, shape: PodShape) -> None:
        world = self._world
        world.serial += 1
        name = f"p{world.serial}"
        volumes = tuple(self._entry(name, index, entry) for index, entry in enumerate(shape.volumes))
        self._make_pod(name, volumes, shape)

    def _entry(self, pod: str, index: int, shape: VolumeShape) -> PodVolume:
        if shape.kind == "shared":
            name = f"shared-{shape.class_name}"
        else:
            name = f"{pod}-{index}"
        if shape.kind == "ephemeral":
            return PodVolume(str(index), name, is_ephemeral=True)
        if f"ns/{name}" not in self._world.claims:
            self._make_claim(name, shape)
        return PodVolume(str(index), name)

    def _make_claim(self, name: str, shape: VolumeShape, owner: str = "") -> None:
        self._world.serial += 1
        uid, is_shared = f"c{self._world.serial}-{name}", shape.kind == "shared"
        made = builders.claim(name, shape.gib, shape.class_name, uid=uid, is_shared=is_shared, owner_pod_uid=owner)
        self._world.write("claim", made.key, made)

    def _make_pod(self, name: str, volumes: tuple[PodVolume, ...], shape: PodShape) -> None:
        world = self._world
        world.pass_time(0.6)
        pod = builders.pod(
            name,
            uid=f"u{world.serial}-{name}",
            created_utc=world.now_utc(),
            is_opted_in=shape.is_opted_in,
            volumes=volumes,
            scheduler_name="second" if shape.is_second else "",
        )
        world.rounds[pod.key] = SchedulingRound(pod.key, pod.uid, is_gated=shape.is_gated)
        for entry, volume in zip(shape.volumes, volumes, strict=True):
            if volume.is_ephemeral:
                self._make_claim(volume.claim, entry, pod.uid)
        world.write("pod", pod.key, replace(pod, is_gated=shape.is_gated))
        marks = (" gated" if shape.is_gated else "") + ("" if shape.is_opted_in else " not opted in")
        volumes_text = ", ".join(f"{entry.kind} {entry.class_name} {entry.gib} GiB" for entry in shape.volumes)
        world.log.append(f"  {pod.key}{marks}: {volumes_text}")

    def actions(self) -> list[Action]:
        found: list[Action] = []
        for pod in list(self._world.pods.values()):
            found += self._of_pod(pod)
        for current in list(self._world.rounds.values()):
            if current.key not in self._world.pods:
                found.append((f"the claims of {current.key} are deleted", partial(self._clean_up, current)))
        names = sorted(self._world.nodes)
        for index, claim in enumerate(self._world.claims.values()):
            name = names[(self._world.serial + index) % len(names)]
            if not claim.volume_name and claim.class_name != "immediate" and claim.selected_node != name:
                found.append((f"its owner writes that {claim.key} goes to {name}", partial(self._select, claim, name)))
        return found

    def _select(self, claim: Claim, node: str) -> None:
        """By hand; what a scheduler is about to write of its pods meets another version of the claim, and fails."""
        for pod in self._world.users_of(claim):
            current = self._world.rounds[pod.key]
            if not pod.node_name and (current.picked or current.offered):
                current.forget()
                if pod.nominated_node:
                    self._put(replace(pod, nominated_node=""))
        self._world.write("claim", claim.key, replace(claim, selected_node=node))

    def _of_pod(self, pod: Pod) -> Iterator[Action]:
        current = self._world.rounds[pod.key]
        yield f"{pod.key} is deleted", partial(self.delete, pod)
        yield f"{pod.key} is made again", partial(self._recreate, pod)
        if pod.node_name and not pod.is_deleting:
            yield f"{pod.key} is about to go", partial(self._put, replace(pod, is_deleting=True))
            yield f"{pod.key} has finished", partial(self._finish, pod)
        if current.is_gated:
            yield f"{pod.key} is let go", partial(self._ungate, current, pod)
        if pod.is_pending and not (current.picked or current.is_gated):
            name = sorted(self._world.nodes)[self._world.serial % len(self._world.nodes)]
            yield f"{pod.key} is bound to {name} by hand", partial(self._bind, current, pod, name)

    def _put(self, pod: Pod) -> None:
        self._world.write("pod", pod.key, pod)

    def _finish(self, pod: Pod) -> None:
        self._leave(pod)
        self._put(replace(pod, is_finished=True))

    def _bind(self, current: SchedulingRound, pod: Pod, node: str) -> None:
        current.give_up()
        self._put(replace(pod, node_name=node, nominated_node=""))

    def _ungate(self, current: SchedulingRound, pod: Pod) -> None:
        current.is_gated = False
        self._put(replace(pod, is_gated=False))

    def _leave(self, pod: Pod) -> None:
        current = self._world.rounds[pod.key]
        self._world.rounds[pod.key] = SchedulingRound(pod.key, current.uid)

    def delete(self, pod: Pod) -> None:
        self._leave(pod)
        self._world.write("pod", pod.key, None)
        for claim in self._world.claims_of(pod):
            if claim.owner_pod_uid == pod.uid:
                self._world.write("claim", claim.key, None)

    def _recreate(self, pod: Pod) -> None:
        """As a StatefulSet does: another pod of the same name, with the same claims."""
        world = self._world
        ephemeral = {claim.name: claim for claim in world.claims_of(pod) if claim.owner_pod_uid}
        self.delete(pod)
        world.serial += 1
        world.pass_time(0.6)
        uid = f"u{world.serial}-{pod.name}"
        new = replace(pod, uid=uid, created_utc=world.now_utc(), node_name="", nominated_node="")
        world.rounds[pod.key] = SchedulingRound(pod.key, uid)
        for claim in ephemeral.values():
            shape = VolumeShape(claim.class_name or "", claim.requested_bytes // GIB)
            self._make_claim(claim.name, shape, uid)
        self._put(replace(new, is_finished=False, is_deleting=False, is_gated=False))

    def _clean_up(self, current: SchedulingRound) -> None:
        """Claims that no pod uses any more."""
        prefix = f"{current.key}-"
        for claim in [claim for key, claim in self._world.claims.items() if key.startswith(prefix)]:
            if not self._world.users_of(claim):
                self._world.write("claim", claim.key, None)
        del self._world.rounds[current.key]

    # Growth

    def growths(self) -> list[Action]:
        world, found = self._world, list[Action]()
        for claim in list(world.claims.values()):
            if not claim.volume_name or claim.volume_name not in world.volumes:
                continue
            for gib in sorted({1, 4, max(1, self._left_gib(claim))}):
                text = f"{claim.key} asks for {gib} GiB more"
                found.append((text, partial(self._ask_growth, claim, gib * GIB)))
        for grant in world.grants:
            kept = world.claims.get(grant.claim_key)
            if kept is not None and world.may_be_stored(grant):
                text = f"{kept.key} is stored with {grant.size_bytes // GIB} GiB"
                found.append((text, partial(self._store, kept, grant.size_bytes)))
        return found

    def neighbours(self) -> list[tuple[Claim, Claim]]:
        """Pairs of claims whose volumes share a disk, the first of which could grow there."""
        world = self._world
        claims = [claim for claim in world.claims.values() if claim.volume_name in world.volumes]
        disks = {
            claim.uid: {entry.disk_uuid for entry in world.replicas_of(claim.volume_name)} - {""} for claim in claims
        }
        return [
            (one, other)
            for one in claims
            for other in claims
            if one is not other and disks[one.uid] & disks[other.uid] and self._left_gib(one) > 0
        ]

    def ask_all_that_is_left(self, claim: Claim) -> None:
        self._world.log.append(f"{claim.key} asks for all that is left")
        self._ask_growth(claim, self._left_gib(claim) * GIB)

    def _left_gib(self, claim: Claim) -> int:
        """What is free on every disk of the claim's volume, as the replicas lie."""
        left = self._world.free_bytes()
        disks = {entry.disk_uuid for entry in self._world.replicas_of(claim.volume_name) if entry.disk_uuid}
        return min((left[uuid] for uuid in disks), default=0) // GIB

    def _ask_growth(self, claim: Claim, by_bytes: int) -> None:
        if by_bytes <= 0:
            return
        world = self._world
        size = claim.requested_bytes + by_bytes
        is_admitted = world.driver.hold_growth(claim.volume_name, claim.key, size, world.read)
        world.log.append(f"  {'admitted' if is_admitted else 'refused'}")
        if is_admitted:
            is_held, step = not self._asks_in_vain(claim), world.told.step
            grant = Grant(claim.key, claim.volume_name, size, world.now, world.term, step, is_held)
            if not any(_is_held_by(grant, other) for other in world.grants):  # what is held is admitted again
                check_admitted(world, grant)
            world.grants.append(grant)

    def _asks_in_vain(self, claim: Claim) -> bool:
        """Whether a growth of the volume was held not long ago and never stored."""
        world = self._world
        if world.now - world.named_over_at.get(claim.volume_name, -inf) < IN_VAIN_SECONDS:
            return True
        return any(
            one.volume == claim.volume_name
            and one.term == world.term
            and one.is_held
            and one.over_at is not None
            and (one.size_bytes > claim.requested_bytes or "claim" in world.waiting())  # by what the leader knows
            and world.now - one.over_at < IN_VAIN_SECONDS
            for one in world.grants
        )

    def _store(self, claim: Claim, size_bytes: int) -> None:
        self._world.write("claim", claim.key, replace(claim, requested_bytes=size_bytes))
        if not self._world.grants_of(claim.volume_name, size_bytes):
            self._world.told.disturb()

    # Machines

    def troubles(self) -> list[Action]:
        found: list[Action] = []
        world = self._world
        for node in world.nodes.values():
            for disk in node.disks:
                text = f"{disk.uuid} is {'full of other files' if disk.schedulable else 'well again'}"
                new = replace(disk, schedulable=not disk.schedulable, is_under_pressure=disk.schedulable)
                found.append((text, partial(self._put_disk, node.name, new)))
                new = replace(disk, reserved_bytes=disk.reserved_bytes + GIB)
                if world.record is None:
                    found.append((f"1 GiB more is reserved on {disk.uuid}", partial(self._put_disk, node.name, new)))
        for manager in world.managers.values():
            text = f"{manager.name} {'stops' if manager.is_running else 'runs again'}"
            state = "stopped" if manager.is_running else "running"
            changed = replace(manager, state=state)
            found.append((text, partial(world.write, "instance_manager", changed.name, changed)))
        for replica in world.replicas.values():
            if replica.healthy_at and not replica.failed_at:
                found.append((f"{replica.name} fails", partial(self._fail, replica.name)))
                leaving = replace(replica, eviction_requested=not replica.eviction_requested)
                text = f"{replica.name} {'has to leave its disk' if leaving.eviction_requested else 'may stay'}"
                found.append((text, partial(world.write, "replica", replica.name, leaving)))
        return found

    def _put_disk(self, node: str, new: Disk) -> None:
        facts = self._world.nodes[node]
        disks = tuple(new if disk.name == new.name else disk for disk in facts.disks)
        self._world.write("node", node, replace(facts, disks=disks))

    def _fail(self, name: str) -> None:
        world = self._world
        facts = replace(world.replicas[name], failed_at=world.now_utc())
        world.write("replica", name, facts)
        volume = world.volumes.get(facts.volume)
        if volume is not None:
            world.write("volume", volume.name, replace(volume, robustness="degraded", last_degraded_at=world.now_utc()))


def _is_held_by(grant: Grant, other: Grant) -> bool:
    """Whether the present leader holds it already: perhaps since before it saw where the replicas lie."""
    is_same = other.is_held and other.volume == grant.volume and other.size_bytes >= grant.size_bytes
    return is_same and other.term == grant.term and not other.is_over
