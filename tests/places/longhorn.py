"""A small Longhorn: it makes Volumes and Replicas for claims, places late and from figures that may be old, is refused
by the gate, rebuilds, and deletes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from controller.errors import ConflictError, ForbiddenError
from controller.model.longhorn import MAX_REBUILD_RETRIES, LonghornNode, Replica, Volume
from controller.model.workload import Claim, PersistentVolume, StorageClass
from tests.fakes import builders
from tests.places.apiserver import LONGHORN, Answer, WorldApi
from tests.places.timeline import Timeline

REPLENISHMENT_SECONDS: Final = 5
_AGAIN: Final = (0.2, 0.3, 0.4)  # tries after a refusal, before it waits
_LOCAL: Final = ("best-effort", "strict-local")


class WorldLonghorn:
    """Everything takes a while. `figures_lag`: until a Node shows what lies on its disks."""

    def __init__(self, timeline: Timeline, api: WorldApi, *, figures_lag: float) -> None:
        self._timeline, self._api, self._figures_lag = timeline, api, figures_lag
        self._made = 0

    # Claims

    def provision(self, claim_key: str) -> None:
        claim: Claim | None = self._api.get("claim", claim_key)
        if claim is None or claim.volume_name:
            return
        kind: StorageClass = self._api.get("class", claim.class_name or "")
        name, size = f"pvc-{claim.uid}", claim.requested_bytes
        copies, locality = int(kind.parameters["numberOfReplicas"]), kind.parameters["dataLocality"]
        self.make_volume(name, size / builders.GIB, copies, locality)
        made_utc = self._timeline.clock.stamp()
        pv = PersistentVolume(name, builders.DRIVER, name, claim.uid, claim.key, size, made_utc)
        self._timeline.between(0.01, 0.2, lambda: self._bind(claim_key, pv))

    def make_volume(self, name: str, gib: float, copies: int, locality: str) -> None:
        facts = builders.volume(name, gib, locality=locality, replica_count=copies, uid=f"uid-{name}")
        self._api.write("volume", name, facts, LONGHORN)
        for _ in range(copies):
            self._timeline.between(0.02, 0.3, lambda: self._make_copy(name, 0))

    def _bind(self, claim_key: str, pv: PersistentVolume) -> None:
        claim: Claim | None = self._api.get("claim", claim_key)
        if claim is None:
            self.delete(pv.name)
            return
        self._api.write("pv", pv.name, pv, LONGHORN)
        self._api.write("claim", claim_key, replace(claim, volume_name=pv.name), "provisioner")

    def _make_copy(self, volume: str, retries: int) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting:
            return
        self._made += 1
        name = f"{volume}-r-{self._made}"
        made = builders.replica(
            name,
            volume,
            facts.size_bytes / builders.GIB,
            uid=f"uid-{name}",
            rebuild_retry_count=retries,
        )
        self._api.write("replica", name, made, LONGHORN)
        least, most = (0.05, 1.0) if facts.data_locality == "disabled" else (2.1, 4.0)
        self._timeline.between(least, most, lambda: self._consider(name, 0))

    def volume(self, name: str) -> Volume | None:
        facts: Volume | None = self._api.get("volume", name)
        return facts

    def attach(self, volume: str, node: str) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting or facts.node_id:
            return
        self._api.write("volume", volume, replace(facts, node_id=node, state="attaching"), LONGHORN)
        for one in self._api.replicas_of(volume):
            self._timeline.between(2.1, 4.0, partial(self._consider, one.name, 0))
        self._timeline.between(2.0, 5.0, lambda: self._attached(volume))

    def _attached(self, volume: str) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting or facts.state == "attached":
            return
        if not any(map(is_usable, self._api.replicas_of(volume))):
            self._timeline.after(1.0, lambda: self._attached(volume))
            return
        self._api.write("volume", volume, replace(facts, state="attached"), LONGHORN)
        self.note_health(volume)

    def note_health(self, volume: str) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting or facts.state != "attached":
            return
        usable = sum(map(is_usable, self._api.replicas_of(volume)))
        now_utc = self._timeline.clock.stamp()
        robustness = "healthy" if usable >= facts.replica_count else "degraded" if usable else "faulted"
        if robustness != facts.robustness:
            since = now_utc if robustness == "degraded" else facts.last_degraded_at
            self._api.write("volume", volume, replace(facts, robustness=robustness, last_degraded_at=since), LONGHORN)

    # Its own placing

    def _consider(self, name: str, tries: int) -> None:
        """Look for a disk, as Longhorn does at each sync of the volume, and again after a while."""
        seen: Replica | None = self._api.get("replica", name)
        facts = self.volume(seen.volume) if seen is not None else None
        if seen is None or seen.node or seen.failed_at or seen.deleting or facts is None or facts.deleting:
            return
        if facts.data_locality in _LOCAL and not facts.node_id:
            return
        found = self._choose(facts, seen)
        if found is None:
            self._api.note_look(name, Answer.NO_DISK)
            self._timeline.between(3.0, 30.0, lambda: self._consider(name, 0))
        else:
            self._timeline.between(0.01, 0.1, lambda: self._write(seen, *found, tries))

    def _write(self, seen: Replica, node: str, disk_uuid: str, tries: int) -> None:
        try:
            self._api.place_as_longhorn(seen, node, disk_uuid)
        except ConflictError:
            self._timeline.after(0.1, lambda: self._consider(seen.name, tries))
        except ForbiddenError:
            pause = _AGAIN[tries] if tries < len(_AGAIN) else self._timeline.random.uniform(2.0, 30.0)
            self._timeline.after(pause, lambda: self._consider(seen.name, (tries + 1) % (len(_AGAIN) + 1)))

    def _choose(self, volume: Volume, replica: Replica) -> tuple[str, str] | None:
        """A random disk that the figures, as they are shown, leave room on."""
        siblings = [one for one in self._api.replicas_of(volume.name) if one.node and one.active and not one.failed_at]
        used = {one.node for one in siblings}
        found = [
            (node.name, disk.uuid)
            for node in self._api.all("node")
            if takes_copies(node) and node.name not in used
            for disk in node.disks
            if disk.allow_scheduling
            and disk.scheduled_bytes + volume.size_bytes <= disk.maximum_bytes - disk.reserved_bytes
        ]
        if volume.data_locality == "strict-local":
            found = [one for one in found if one[0] == volume.node_id]
        elif volume.data_locality == "best-effort" and volume.node_id not in used:
            found = [one for one in found if one[0] == volume.node_id] or found
        return self._timeline.random.choice(found) if found else None

    # Figures

    def watch(self, kind: str, before: Replica | None, after: Replica | None) -> None:
        """Has the figures of nodes follow a change of a Replica, and the health of its volume."""
        if kind != "replica":
            return
        for node in {one.node for one in (before, after) if one is not None and one.node}:
            self._timeline.between(0.05, self._figures_lag, partial(self._show_figures, node))
        placed = after is not None and after.node and (before is None or not before.node)
        if after is not None and (placed or after.failed_at):
            volume = after.volume
            self._timeline.between(1.0, 4.0, lambda: self.note_health(volume))

    def _show_figures(self, name: str) -> None:
        node: LonghornNode | None = self._api.get("node", name)
        if node is None:
            return
        disks = []
        for disk in node.disks:
            here = {one.name: one.size_bytes for one in self._api.all("replica") if one.disk_uuid == disk.uuid}
            disks.append(replace(disk, scheduled_replicas=here, scheduled_bytes=sum(here.values())))
        if tuple(disks) != node.disks:
            self._api.write("node", name, replace(node, disks=tuple(disks)), LONGHORN)

    # Life of copies

    def fail(self, name: str) -> None:
        """The copy fails; another one replaces it."""
        replica: Replica | None = self._api.get("replica", name)
        if replica is None or not is_usable(replica):
            return
        facts = self.volume(replica.volume)
        others = [one for one in self._api.replicas_of(replica.volume) if is_usable(one) and one.name != name]
        if facts is None or facts.deleting or facts.state != "attached" or not others:
            return
        now_utc = self._timeline.clock.stamp()
        failed = replace(replica, failed_at=now_utc, rebuild_retry_count=MAX_REBUILD_RETRIES)
        self._api.write("replica", name, failed, LONGHORN)
        self.note_health(replica.volume)
        self._timeline.between(0.5, 3.0, lambda: self._make_copy(replica.volume, MAX_REBUILD_RETRIES))
        self._timeline.after(10.0, lambda: self._clean_up(name))

    def evict(self, name: str) -> None:
        replica: Replica | None = self._api.get("replica", name)
        facts = self.volume(replica.volume) if replica is not None else None
        if replica is None or not is_usable(replica) or facts is None or facts.state != "attached":
            return
        self._api.write("replica", name, replace(replica, eviction_requested=True), "somebody")
        self._timeline.between(0.5, 2.0, lambda: self._make_copy(replica.volume, MAX_REBUILD_RETRIES))
        self._timeline.after(10.0, lambda: self._clean_up(name))

    def upgrade(self, name: str) -> None:
        """The copy gets a twin, which is created with its place and takes over."""
        replica: Replica | None = self._api.get("replica", name)
        if replica is None or not is_usable(replica) or replica.eviction_requested:
            return
        self._made += 1
        twin = replace(replica, name=f"{replica.volume}-r-{self._made}", uid=f"uid-twin-{self._made}", active=False)
        self._api.write("replica", twin.name, twin, LONGHORN)

        def take_over() -> None:
            former: Replica | None = self._api.get("replica", name)
            if former is None or not is_usable(former) or self._api.get("replica", twin.name) is None:
                self._api.write("replica", twin.name, None, LONGHORN)
                return
            self._api.write("replica", name, None, LONGHORN)
            self._api.write("replica", twin.name, replace(former, name=twin.name, uid=twin.uid), LONGHORN)

        self._timeline.between(1.0, 5.0, take_over)

    def _clean_up(self, name: str) -> None:
        """A failed or evicted copy goes once the volume has enough others."""
        replica: Replica | None = self._api.get("replica", name)
        facts = self.volume(replica.volume) if replica is not None else None
        if replica is None or facts is None:
            return
        others = [one for one in self._api.replicas_of(replica.volume) if is_usable(one) and one.name != name]
        if len([one for one in others if not one.eviction_requested]) >= facts.replica_count:
            self._api.write("replica", name, None, LONGHORN)
            self.note_health(replica.volume)
        else:
            self._timeline.after(5.0, lambda: self._clean_up(name))

    def grow(self, volume: str, size_bytes: int) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting or facts.size_bytes >= size_bytes:
            return
        self._api.write("volume", volume, replace(facts, size_bytes=size_bytes), LONGHORN)
        for one in self._api.replicas_of(volume):
            self._timeline.between(0.05, 0.5, partial(self._grow_copy, one.name, size_bytes))

    def _grow_copy(self, name: str, size_bytes: int) -> None:
        replica: Replica | None = self._api.get("replica", name)
        if replica is not None and replica.size_bytes < size_bytes:
            self._api.write("replica", name, replace(replica, size_bytes=size_bytes), LONGHORN)

    def delete(self, volume: str) -> None:
        facts = self.volume(volume)
        if facts is None or facts.deleting:
            return
        self._api.write("volume", volume, replace(facts, deleting=True), LONGHORN)
        for one in self._api.replicas_of(volume):
            self._timeline.between(0.1, 2.0, partial(self._api.write, "replica", one.name, None, LONGHORN))
        self._timeline.after(3.0, lambda: self._end(volume))

    def _end(self, volume: str) -> None:
        for one in self._api.replicas_of(volume):
            self._api.write("replica", one.name, None, LONGHORN)
        self._api.write("pv", volume, None, LONGHORN)
        self._api.write("volume", volume, None, LONGHORN)


def is_usable(replica: Replica) -> bool:
    return bool(replica.node) and replica.active and not replica.failed_at and not replica.deleting


def takes_copies(node: LonghornNode) -> bool:
    return node.ready and node.schedulable and node.allow_scheduling and not node.deleting
