"""Longhorn's part: volumes are made, attached, rebuilt, moved, evicted and grown, and the figures of its nodes follow
late. It places a replica only where the gate is open, or as it was told by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from controller.model.longhorn import Disk, Replica, Volume
from controller.model.workload import Claim, PersistentVolume
from tests.fakes.builders import GIB, replica
from tests.longhorn import locality
from tests.race.longhorn_rules import replica_raw, volume_raw
from tests.race.shapes import IMMEDIATE, volume_of
from tests.race.world import Action, RaceWorld

LONGHORN: Final = "longhorn"
TOLD: Final = "told"  # by name


class Asks(Protocol):
    """Asks where replicas go, in place of Longhorn's own search, and whether they may grow."""

    def placing(self, facts: Volume, entry: Replica) -> Iterator[Action]: ...
    def takes_growth(self, entry: Replica, size_bytes: int) -> bool: ...
    def asks_to_grow(self, facts: Volume) -> Iterator[Action]: ...


class RaceLonghorn:
    """All that Longhorn, its provisioner and kubelet may do next. `is_open`: whether the gate lets it place that
    Replica."""

    def __init__(self, world: RaceWorld, is_open: Callable[[Replica], bool]) -> None:
        self._world, self._is_open = world, is_open
        self.asks: Asks | None = None

    def actions(self) -> list[Action]:
        found = [*self._provisioning(), *self.figures()]
        for facts in list(self._world.volumes.values()):
            found += self.of_volume(facts)
        return found

    # The provisioner

    def _provisioning(self) -> Iterator[Action]:
        for claim in list(self._world.claims.values()):
            if claim.volume_name or not (claim.selected_node or claim.class_name == IMMEDIATE):
                continue
            is_made = f"pvc-{claim.uid}" in self._world.volumes
            yield f"{claim.key} is provisioned", partial(self.provision, claim)
            if not is_made:
                yield f"the volume of {claim.key} is made", partial(self._make, claim)
                yield f"{claim.key} is given back", partial(self._give_back, claim)

    def _make(self, claim: Claim) -> None:
        facts = replace(volume_of(claim), owner_id=min(self._world.nodes))
        self._world.write("volume", facts.name, facts)
        for _ in range(facts.replica_count):
            self._add_replica(facts)

    def _add_replica(self, facts: Volume, hard_affinity: str = "") -> None:
        self._world.serial += 1
        name = f"{facts.name}-r{self._world.serial}"
        made = replica(name, facts.name, facts.size_bytes / GIB, hard_node_affinity=hard_affinity, uid=f"uid-{name}")
        self._world.write("replica", name, made)

    def provision(self, claim: Claim) -> None:
        world, name = self._world, f"pvc-{claim.uid}"
        if name not in world.volumes:
            self._make(claim)
        world.pass_time(0.6)
        size = claim.requested_bytes
        pv = PersistentVolume(name, "driver.longhorn.io", name, claim.uid, claim.key, size, world.now_utc())
        world.write("pv", name, pv)
        world.write("claim", claim.key, replace(claim, volume_name=name))

    def _give_back(self, claim: Claim) -> None:
        """The provisioner failed, and a binding that waits for it fails with it."""
        world = self._world
        for pod in world.users_of(claim):
            current = world.rounds[pod.key]
            if claim.selected_node and claim.selected_node == current.picked:
                current.forget()
        world.write("claim", claim.key, replace(claim, selected_node=""))

    # Figures

    def figures(self) -> Iterator[Action]:
        listed: dict[str, dict[str, int]] = {}
        for facts in self._world.replicas.values():
            listed.setdefault(facts.disk_uuid, {})[facts.name] = facts.size_bytes
        copies: dict[str, dict[str, int]] = {}
        for image in self._world.images.values():
            for uuid in image.disk_uuids:
                copies.setdefault(uuid, {})[image.name] = image.real_size_bytes
        for node in self._world.nodes.values():
            disks = tuple(
                _with_figures(disk, listed.get(disk.uuid, {}), copies.get(disk.uuid, {})) for disk in node.disks
            )
            if disks != node.disks:
                new = replace(node, disks=disks)
                yield f"the figures of {node.name} follow", partial(self._world.write, "node", new.name, new)

    # Volumes

    def of_volume(self, facts: Volume) -> Iterator[Action]:
        claim = self._world.claim_of(facts.name)
        if claim is None:
            yield f"{facts.name} is deleted", partial(self._delete, facts)
            return
        replicas = self._world.replicas_of(facts.name)
        if claim.volume_name:
            yield from self._attachment(facts, claim, replicas)
            yield from self._growth(facts, claim, replicas)
        if facts.data_locality == "disabled" or facts.node_id:
            for entry in replicas:
                if not entry.node and not entry.failed_at:
                    yield from self._placing(facts, replicas, entry)
        if facts.state == "attached":
            yield from self._rebuilding(facts, replicas)

    def _delete(self, facts: Volume) -> None:
        for entry in self._world.replicas_of(facts.name):
            self._world.write("replica", entry.name, None)
        self._world.write("volume", facts.name, None)
        self._world.write("pv", facts.name, None)

    def _change(self, name: str, **fields: object) -> None:
        facts = self._world.volumes.get(name)
        if facts is not None:
            self._world.write("volume", name, replace(facts, **fields))  # type: ignore[arg-type]

    def _attachment(self, facts: Volume, claim: Claim, replicas: list[Replica]) -> Iterator[Action]:
        places = {entry.node for entry in replicas if entry.is_placed}
        wanted = [pod.node_name for pod in self._world.users_of(claim) if pod.node_name]
        if not facts.node_id:
            at = sorted(self._world.nodes) if wanted and claim.is_shared else sorted(set(wanted))
            for node in at:
                if facts.data_locality != "strict-local" or not places or node in places:
                    yield (
                        f"{facts.name} is attached to {node}",
                        partial(self._change, facts.name, node_id=node, state="attaching"),
                    )
        elif not wanted or (not claim.is_shared and facts.node_id not in wanted):
            yield f"{facts.name} is detached", partial(self._detach, facts, replicas)
        if facts.state == "attaching" and any(entry.is_usable for entry in replicas):
            yield f"{facts.name} is up", partial(self._be_up, facts, replicas)

    def _detach(self, facts: Volume, replicas: list[Replica]) -> None:
        for entry in replicas:
            if facts.data_locality == "best-effort" and entry.hard_node_affinity and not entry.healthy_at:
                self._world.write("replica", entry.name, None)
        self._change(facts.name, node_id="", state="detached")

    def _be_up(self, facts: Volume, replicas: list[Replica]) -> None:
        for entry in replicas:
            if entry.is_usable and not entry.healthy_at:
                self._world.write("replica", entry.name, replace(entry, healthy_at=self._world.now_utc()))
        self._change(facts.name, state="attached")
        self._judge_health(facts.name)

    def _judge_health(self, name: str) -> None:
        facts = self._world.volumes[name]
        healthy = sum(1 for entry in self._world.replicas_of(name) if entry.healthy_at and not entry.failed_at)
        if healthy >= facts.replica_count:
            self._change(name, robustness="healthy", last_degraded_at="")
        elif facts.robustness != "degraded":
            self._change(name, robustness="degraded", last_degraded_at=self._world.now_utc())

    # Placing

    def _placing(self, facts: Volume, replicas: list[Replica], entry: Replica) -> Iterator[Action]:
        if self.asks is not None:
            yield from self.asks.placing(facts, entry)
            return
        found = self._world.rules().candidates(facts, replicas, entry) if self._is_open(entry) else []
        for candidate in found:
            text = f"{entry.name} is placed on {candidate.uuid}"
            yield text, partial(self.place, facts, entry, candidate.node, candidate.uuid, by=LONGHORN)

    def finds_no_disk(self, name: str) -> None:
        self._change(name, scheduled=False)

    def place(
        self, facts: Volume, entry: Replica, node: str, disk_uuid: str, size_bytes: int = 0, by: str = ""
    ) -> None:
        """Give the replica that disk. `size_bytes` 0: it is as large as its volume."""
        hard = node if facts.data_locality == "strict-local" else entry.hard_node_affinity
        size = size_bytes or facts.size_bytes
        placed = replace(entry, node=node, disk_uuid=disk_uuid, hard_node_affinity=hard, size_bytes=size, held="")
        self._world.write_place(placed, by)

    # Rebuilding and moving

    def _rebuilding(self, facts: Volume, replicas: list[Replica]) -> Iterator[Action]:
        raw = [replica_raw(entry) for entry in replicas]
        volume = volume_raw(facts)
        for entry in replicas:
            if entry.is_usable and not entry.healthy_at:
                yield f"{entry.name} is rebuilt", partial(self._heal, entry)
            elif entry.failed_at:
                yield f"{entry.name} comes back", partial(self._heal, entry)
                yield f"{entry.name} is given up", partial(self._drop, entry)
        node = locality.wants_local(volume, raw)
        if node:
            yield f"{facts.name} gets a copy on {node}", partial(self._add_replica, facts, node)
        surplus = locality.surplus(volume, raw)
        if surplus is not None:
            name = str(surplus["metadata"]["name"])
            yield f"{name} is one too many", partial(self._world.write, "replica", name, None)
        staying = [entry for entry in replicas if not entry.failed_at]
        is_missing = len(staying) < facts.replica_count and any(entry.healthy_at for entry in staying)
        if is_missing or locality.wants_spare(volume, raw):
            yield f"{facts.name} gets a new copy", partial(self._add_replica, facts)
        for leaving in locality.evicted(volume, raw):
            name = str(leaving["metadata"]["name"])
            yield f"{name} has left its disk", partial(self._world.write, "replica", name, None)

    def _heal(self, entry: Replica) -> None:
        self._world.write("replica", entry.name, replace(entry, failed_at="", healthy_at=self._world.now_utc()))
        self._judge_health(entry.volume)

    def _drop(self, entry: Replica) -> None:
        self._world.write("replica", entry.name, None)
        self._judge_health(entry.volume)

    # Growth

    def _growth(self, facts: Volume, claim: Claim, replicas: list[Replica]) -> Iterator[Action]:
        if claim.requested_bytes > facts.size_bytes:
            yield f"{facts.name} grows", partial(self._grow, facts, claim)
        if self.asks is not None:
            yield from self.asks.asks_to_grow(facts)
        is_placed = any(entry.is_placed for entry in replicas)
        for entry in replicas:
            if entry.size_bytes < facts.size_bytes and self._takes_growth(entry, facts.size_bytes):
                yield (
                    f"{entry.name} grows",
                    partial(self._world.write, "replica", entry.name, replace(entry, size_bytes=facts.size_bytes)),
                )
        if is_placed and facts.expansion_required:
            yield f"{facts.name} has grown", partial(self._change, facts.name, expansion_required=False)
        is_resized = all(entry.size_bytes >= facts.size_bytes for entry in replicas)
        if facts.expansion_required and is_resized and not (is_placed or facts.node_id):
            owner = facts.owner_id
            yield (
                f"{facts.name} is attached to its owner {owner} to grow",
                partial(self._change, facts.name, node_id=owner, state="attaching"),
            )

    def _takes_growth(self, entry: Replica, size_bytes: int) -> bool:
        """Whether Longhorn's own check admits it, by the figures of the moment."""
        if self.asks is not None:
            return self.asks.takes_growth(entry, size_bytes)
        more_bytes = size_bytes - entry.size_bytes
        for node in self._world.nodes.values():
            for disk in node.disks:
                if entry.is_placed and disk.uuid == entry.disk_uuid:
                    return more_bytes <= self._world.rules().limits()[disk.uuid] - disk.scheduled_bytes
        return True

    def _grow(self, facts: Volume, claim: Claim) -> None:
        is_unplaced = not any(entry.is_placed for entry in self._world.replicas_of(facts.name))
        self._change(facts.name, size_bytes=claim.requested_bytes, expansion_required=is_unplaced)
        pv = self._world.pvs.get(facts.name)
        if pv is not None:
            self._world.write("pv", pv.name, replace(pv, capacity_bytes=claim.requested_bytes))


def _with_figures(disk: Disk, listed: dict[str, int], copies: dict[str, int]) -> Disk:
    total = sum(listed.values()) + sum(copies.values())
    return replace(disk, scheduled_replicas=listed, scheduled_images=copies, scheduled_bytes=total)
