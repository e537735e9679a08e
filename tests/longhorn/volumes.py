"""Longhorn's volume controller, as far as placement goes: volumes, replicas, and placement without any lock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from tests.longhorn import copies, locality, owners, paths, placement, reports
from tests.longhorn.asked import AskedScheduler
from tests.longhorn.install import ensure
from tests.longhorn.replicas import Replicas
from tests.longhorn.reuse import find_reusable
from tests.longhorn.state import Candidate, SearchState, has_reusable_data
from tests.longhorn.world import Busy, LonghornWorld, Raw, let_go, put, utc_now


@dataclass
class Decision:
    """What a turn decided about replicas, in memory. `failed`: what found no place: "", "any", or a node. `is_early`: a
    failed replica may come back yet."""

    volume: Raw
    replicas: list[Raw]  # all that stay, as they are to be
    changed: list[Raw] = field(default_factory=list)
    failed: str = ""
    is_early: bool = False


class Volumes:
    """Creates volumes and replicas and places them from whatever the informers show at that moment.

    Volumes are handled side by side and no lock is held between them: two may take the same space, while the figures
    are old or while a decision is not written yet. That is the race. A volume's own replicas are read live. What is
    stored counts, whoever wrote it: a decision that comes back is dropped. Threads: reflectors' and the pool's; one at
    a time for one volume, and what happens to it meanwhile gives it another turn.
    """

    def __init__(self, world: LonghornWorld) -> None:
        self._world, self._replicas = world, Replicas(world)
        self._lock = threading.Lock()
        self._turns: dict[str, Literal["waiting", "running", "again"]] = {}
        self._retrying: set[str] = set()
        self._busy = Busy()  # replicas that are rebuilt
        self._relocating: dict[str, tuple[str, bool]] = {}  # volume -> where to, and is it time
        world.listen("volumes", self._on_volume)
        world.listen_by_replica(self._on_volume, _counts)
        world.listen("nodes", self._on_node)
        world.listen("pvs", self._on_pv)

    # What the CSI controller asks for

    def create(self, name: str, spec: Raw) -> None:
        """The Volume, all of its Replica objects at once, and its first condition."""
        with self._lock:
            self._turns[name] = "running"
        is_done = False
        try:
            meta = {"labels": {"longhornvolume": name}, "finalizers": [paths.FINALIZER]}
            body = paths.longhorn_object("Volume", name, self._world.options.namespace, meta, spec=spec)
            is_new = ensure(self._world.api, self._world.longhorn("volumes"), body)
            if is_new:
                owner = owners.pick(self._world.nodes(), self._world.dice.choice)
                volume, there = self.set_state(name, "creating", ownerID=owner, **_to_be_filled(spec)), []
            else:  # begun by a stand-in that ended in the middle of it
                volume, there = self._world.api.get_or_none(self._world.longhorn("volumes", name)), self._staying(name)
            if volume is not None:
                replicas = self._make_replicas(volume, there)
                is_done = bool(replicas) and not locality.may_place(volume)
                if is_done:
                    reports.tell_scheduled(self._world, volume, "", len(replicas))
        finally:
            self._end_turn(name, is_done=True)
            if not is_done:
                self.consider(name)

    def set_state(self, name: str, state: str, **more: object) -> Raw | None:
        def edit(raw: Raw) -> bool:
            status = raw.setdefault("status", {})
            if status.get("state") in (state, "attached"):
                return False
            status.update(state=state, robustness="unknown", **more)
            return True

        return self._world.change(self._world.longhorn("volumes", name), edit, status=True)

    def delete(self, name: str) -> None:
        """Ask for its end: it lasts until its replicas are gone."""
        self._world.delete(self._world.longhorn("volumes", name))

    def _end(self, name: str) -> None:
        """One step of a deleted volume's end."""
        self.set_state(name, "deleting")
        replicas = self._replicas.live(name)
        self._replicas.delete(*replicas)
        if not replicas:
            path = self._world.longhorn("volumes", name)
            self._world.change(path, lambda raw: locality.is_deleting(raw) and let_go(raw, paths.FINALIZER))

    def _sweep(self, name: str) -> None:
        """Delete what a turn that overlapped with the volume's end may have left of it."""
        with self._lock:
            is_busy = name in self._turns
        if is_busy:
            self._world.timers.after(0.2, self._sweep, name)
            return
        if self._world.volume(name) is None:
            self._replicas.delete(*self._replicas.live(name))

    # Turns

    def _on_volume(self, verb: str, volume: Raw) -> None:
        name = str(volume["metadata"]["name"])
        if verb == "DELETED":
            with self._lock:
                self._retrying.discard(name)
            self._world.refusals.lift(name)
            self._world.after("delete", self._sweep, name)
        elif locality.is_deleting(volume):
            self._world.timers.now(self._end, name)
        elif self._needs_turn(name, volume):
            self.consider(name)

    def _needs_turn(self, name: str, volume: Raw) -> bool:
        """Whether there may be something to do about it, by what the informers show."""
        replicas = self._world.replicas_of(name)
        twins = [raw for raw in self._world.replicas_of(name, with_twins=True) if not locality.is_deleting(raw)]
        return (
            self._world.refusals.of(name) > 0
            or bool(copies.lacks_twin(volume, twins))
            or copies.has_twins_left(volume, twins)
            or bool(self._given_up(volume, replicas))
            or bool(copies.abandoned(volume, replicas))
            or copies.lacks_copy(volume, replicas)
            or reports.lacks_node_affinity(self._world, volume)
            or locality.needs_turn(volume, replicas)
        )

    def _on_pv(self, verb: str, pv: Raw) -> None:
        volume = self._world.volume(str(pv["metadata"]["name"]))
        if verb == "ADDED" and volume is not None:
            self._on_volume("MODIFIED", volume)

    def _on_node(self, _verb: str, _raw: Raw) -> None:
        """Every event of a Longhorn node has replicas without a place tried again: `enqueueNodeChange`."""
        for name in self._world.volumes_with_unplaced():
            volume = self._world.volume(name)
            if volume is not None and locality.may_place(volume):
                self.consider(name)

    def consider(self, name: str) -> None:
        with self._lock:
            if name in self._turns:
                if self._turns[name] == "running":
                    self._turns[name] = "again"
                return
            self._turns[name] = "waiting"
        self._world.after("placement", self._turn, name)

    def _turn(self, name: str) -> None:
        """Decide now; a decision is written some time later, and the volume's turn lasts until then."""
        with self._lock:
            self._turns[name] = "running"
        decision, is_done = None, False
        try:
            decision = self._handle(name)
            if decision is None:
                is_done = True
            elif not decision.changed:
                is_done = self._settle(decision)
        finally:
            if decision is None or not decision.changed:
                self._end_turn(name, is_done=is_done)
            else:
                is_local = locality.is_kept_local(decision.volume)
                self._world.after("write" if is_local else "write_roaming", self._write, name, decision)

    def _write(self, name: str, decision: Decision) -> None:
        is_done = is_again = False
        try:
            written = [self._replicas.write(replica) for replica in decision.changed]
            if "refused" in written:
                is_done = self._world.refusals.note(name)
                if is_done:
                    self._world.after("refused", self.consider, name)
            elif "lost" in written:  # something else was written meanwhile, so it is decided once more
                is_done = is_again = True
            else:
                is_done = self._settle(decision)
        finally:
            self._end_turn(name, is_done=is_done)
            if is_again:
                self.consider(name)

    def _end_turn(self, name: str, *, is_done: bool) -> None:
        with self._lock:
            is_due = self._turns.pop(name) == "again"
            is_retry = not is_done and name not in self._retrying
            if is_retry:
                self._retrying.add(name)
        if is_retry:
            self._world.timers.after(self._world.options.retry_seconds, self._retry, name)
        if is_due:
            self.consider(name)

    def _retry(self, name: str) -> None:
        with self._lock:
            self._retrying.discard(name)
        self.consider(name)

    def _staying(self, name: str) -> list[Raw]:
        return [replica for replica in self._replicas.live(name) if not locality.is_deleting(replica)]

    def _handle(self, name: str) -> Decision | None:
        """Make and delete what the volume needs now, and decide where replicas go. None: it is gone."""
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is None or locality.is_deleting(volume):
            return None
        there = self._replicas.live(name)
        replicas = self._settle_twins(volume, [replica for replica in there if not locality.is_deleting(replica)])
        for replica in self._given_up(volume, replicas):
            self._replicas.delete(replica)
            replicas.remove(replica)
        if not replicas:
            replicas = self._make_replicas(volume, replicas)
        decision = Decision(volume, replicas)
        abandoned = copies.abandoned(volume, replicas)
        if not replicas:
            decision.failed = "any"
        elif abandoned:
            for replica in abandoned:
                replica["spec"].update(failedAt=utc_now(), rebuildRetryCount=copies.MOST_RETRIES)
            decision.changed += abandoned
        elif locality.may_place(volume):
            self._add_copy(name, decision)
            self._place_all(decision, [replica for replica in there if replica not in replicas])
        return decision

    def _settle_twins(self, volume: Raw, replicas: list[Raw]) -> list[Raw]:
        """Make the twins that a migration needs, or end it: those of one engine stay. The answer is whom it runs on."""
        for replica in copies.lacks_twin(volume, replicas):
            self._replicas.make_twin(replica, copies.engine_for(volume, volume["spec"]["migrationNodeID"]))
        active = list(filter(copies.is_active, replicas))
        if not copies.has_twins_left(volume, replicas):
            return active
        twins = [replica for replica in replicas if replica not in active]
        engine = copies.engine_for(volume, str(volume["spec"].get("nodeID") or ""))
        if any(twin["spec"].get("engineName") != engine for twin in twins):
            self._replicas.delete(*twins)
            return active
        for twin in twins:
            twin["spec"]["active"] = True
            self._replicas.write(twin)
        self._replicas.delete(*active)
        return twins

    def _given_up(self, volume: Raw, replicas: list[Raw]) -> list[Raw]:
        """The replicas that are to be deleted now, each once."""
        found = locality.obsolete(volume, replicas) + locality.evicted(volume, replicas)
        found += list(filter(copies.is_spent, replicas))
        if copies.is_linked(volume):
            found += copies.astray(volume, replicas, self._sources_of(volume))
        return list({str(replica["metadata"]["name"]): replica for replica in found}.values())

    def _add_copy(self, name: str, decision: Decision) -> None:
        """Give the volume the copy that it lacks, near its node, in place of an evicted one, or after a failure."""
        volume, replicas = decision.volume, decision.replicas
        node = locality.wants_local(volume, replicas)
        if self._is_time_to_move(name, node):
            replicas.append(self._make_rebuild(volume, hardNodeAffinity=node))
        if locality.wants_spare(volume, replicas):
            replicas.append(self._make_rebuild(volume))
        elif copies.lacks_copy(volume, replicas):
            self._replenish(decision)

    def _replenish(self, decision: Decision) -> None:
        """Bring back a failed copy where it lies, else make one, unless it is too early for that or has no room."""
        volume, replicas = decision.volume, decision.replicas
        state = self._state(volume, replicas)
        name = find_reusable(state, volume)
        if name is not None:
            (found,) = (replica for replica in replicas if replica["metadata"]["name"] == name)
            tries = int(found["spec"].get("rebuildRetryCount") or 0) + 1
            found["spec"].update(failedAt="", healthyAt="", rebuildRetryCount=tries)
            decision.changed.append(found)
        elif any(map(has_reusable_data, replicas)) and not placement.replacement_is_due(state, volume):
            decision.is_early = True
        elif self._world.asked is None and not self._would_place(volume, replicas):
            decision.failed = "any"
        else:
            replicas.append(self._make_rebuild(volume))

    def _make_rebuild(self, volume: Raw, **more: object) -> Raw:
        return self._replicas.make(volume, rebuildRetryCount=copies.MOST_RETRIES, **more)

    def _settle(self, decision: Decision) -> bool:
        """What follows once the decision is written; whether nothing is left to try again."""
        volume, replicas, world = decision.volume, decision.replicas, self._world
        name = str(volume["metadata"]["name"])
        world.refusals.lift(name)
        reports.tell_scheduled(world, volume, decision.failed, len(replicas))
        if reports.lacks_node_affinity(world, volume):
            reports.tell_node_affinity(world, volume)
        if locality.attached_node(volume):
            self._rebuild(volume, replicas)
            with self._lock:
                is_moving = name in self._relocating
            if not is_moving:  # the sync that finds out how it is makes the local copy, too
                reports.tell_robustness(world, volume, sum(map(locality.is_healthy, replicas)))
            gone = locality.surplus(volume, replicas)
            if gone is not None:
                self._replicas.delete(gone)
        return not decision.failed and not decision.is_early

    def _is_time_to_move(self, name: str, node: str) -> bool:
        """Whether the delay is over since the volume was first seen at `node`, away from its data ("": it is not)."""
        with self._lock:
            where, is_time = self._relocating.pop(name, ("", False))
            is_time = is_time and where == node
            if node and not is_time:
                self._relocating[name] = (node, False)
        if node and where != node:
            self._world.after("relocate", self._move, name, node)
        return bool(node) and is_time

    def _move(self, name: str, node: str) -> None:
        with self._lock:
            if self._relocating.get(name) != (node, False):
                return
            self._relocating[name] = (node, True)
        self.consider(name)

    # Placement

    def has_candidate(self, volume: Raw) -> bool:
        """Whether some disk would take one more replica of the volume."""
        return self._would_place(volume, list(filter(copies.is_active, self._staying(volume["metadata"]["name"]))))

    def _would_place(self, volume: Raw, replicas: list[Raw]) -> bool:
        new: Raw = {"metadata": {"name": ""}, "spec": {"volumeSize": volume["spec"]["size"]}}
        return bool(placement.find_candidates(self._state(volume, replicas), volume, new).candidates)

    def _make_replicas(self, volume: Raw, replicas: list[Raw]) -> list[Raw]:
        """The replicas of a new volume, unless no disk at all would take one: then there is none to be placed."""
        if self._world.asked is None and not self._would_place(volume, replicas):
            reports.tell_scheduled(self._world, volume, "any", len(replicas))
            return replicas
        missing = copies.first_count(volume) - len(replicas)
        return replicas + [self._replicas.make(volume, rebuildRetryCount=0) for _ in range(missing)]

    def _place_all(self, decision: Decision, deleting: list[Raw]) -> None:
        """Place what has no node yet, one after the other, each aware of those before."""
        is_strict = decision.volume["spec"].get("dataLocality") == "strict-local"
        for replica in decision.replicas:
            if replica["spec"].get("nodeID") or copies.is_failed(replica):
                continue
            node = decision.volume["spec"].get("nodeID") or ""
            is_changed = is_strict and replica["spec"].get("hardNodeAffinity") != node
            if is_strict:
                replica["spec"]["hardNodeAffinity"] = node
            if self._place(decision.volume, replica, decision.replicas + deleting):
                is_changed = True
            else:
                decision.failed = replica["spec"].get("hardNodeAffinity") or decision.failed or "any"
            if is_changed:
                decision.changed.append(replica)

    def _state(self, volume: Raw, replicas: list[Raw]) -> SearchState:
        return SearchState(
            nodes=self._world.nodes(),
            replicas=replicas,
            settings=self._world.settings(),
            backing_images=self._world.images(),
            source_replicas=self._source_replicas(volume),
            now=datetime.now(UTC),
        )

    def _source_replicas(self, volume: Raw) -> list[Raw]:
        return self._world.replicas_of(str(volume["spec"].get("dataSource") or "").removeprefix("vol://"))

    def _sources_of(self, volume: Raw) -> set[tuple[str, str]]:
        """Where a linked clone may lie: node and disk UUID."""
        healthy = filter(locality.is_healthy, self._source_replicas(volume))
        return {(replica["spec"]["nodeID"], replica["spec"]["diskID"]) for replica in healthy}

    def _place(self, volume: Raw, replica: Raw, replicas: list[Raw]) -> bool:
        """Choose a disk and put it into `replica`, which nobody else sees yet."""
        state = self._state(volume, replicas)
        if self._world.asked is not None:
            chosen = self._ask(self._world.asked, volume, replica)
        else:
            answer = placement.find_candidates(state, volume, replica)
            chosen = placement.choose(state, volume, answer.candidates, self._world.dice.choice)
        if chosen is None:
            return False
        replica["spec"].update(nodeID=chosen.node, diskID=chosen.uuid, diskPath=chosen.path)
        replica["spec"]["dataDirectoryName"] = f"{volume['metadata']['name']}-{self._world.dice.hexadecimal()}"
        labels = replica["metadata"].setdefault("labels", {})
        labels.update(longhornnode=chosen.node, longhorndiskuuid=chosen.uuid)
        return True

    def _ask(self, asked: AskedScheduler, volume: Raw, replica: Raw) -> Candidate | None:
        """Where the disk scheduler has it, which finds the replica by its name in the API server."""
        name = str(replica["metadata"]["name"])
        affinity = replica["spec"].get("hardNodeAffinity") or ""
        path = self._world.longhorn("replicas", name)
        self._world.change(path, lambda raw: put(raw["spec"], hardNodeAffinity=affinity))
        place = asked.schedule_replica(str(volume["metadata"]["name"]), name)
        if place is None:
            return None
        current = self._world.api.get_or_none(path)
        if current is not None:
            replica["metadata"] = current["metadata"]
        disks = self._world.nodes()[place.node]["status"]["diskStatus"]
        disk, path = next((one, entry["diskPath"]) for one, entry in disks.items() if entry["diskUUID"] == place.uuid)
        return Candidate(place.node, disk, place.uuid, path)

    # Rebuilding

    def _rebuild(self, volume: Raw, replicas: list[Raw]) -> None:
        """Copy data to the replicas that joined an attached volume."""
        for replica in replicas:
            name = str(replica["metadata"]["name"])
            if locality.is_usable(replica) and not locality.is_healthy(replica):
                if self._busy.begin("rebuild", name):
                    self._world.after("rebuild", self._rebuilt, volume["metadata"]["name"], name)

    def _rebuilt(self, volume_name: str, name: str) -> None:
        self._busy.end("rebuild", name)
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", volume_name))
        if volume is None or not locality.attached_node(volume):
            return
        self._world.change(self._world.longhorn("replicas", name), mark_healthy)
        self.consider(volume_name)

    def first_use(self, name: str) -> None:
        """The volume is about to be attached: at its very first use every placed replica becomes healthy."""
        replicas = list(filter(copies.is_active, self._replicas.live(name)))
        if any(map(locality.is_healthy, replicas)):
            return
        for replica in filter(locality.is_usable, replicas):
            self._world.change(self._world.longhorn("replicas", replica["metadata"]["name"]), mark_healthy)


def _counts(verb: str, replica: Raw) -> bool:
    """Whether an event of a replica may mean work on its volume."""
    return verb == "DELETED" or locality.is_placed(replica) or copies.is_failed(replica)


def _to_be_filled(spec: Raw) -> Raw:
    """What the status of a new volume says when its data is to come from elsewhere."""
    source = str(spec.get("dataSource") or "")
    clone = {"cloneStatus": {"sourceVolume": source.removeprefix("vol://"), "state": "initiated"}} if source else {}
    return {**clone, **({"restoreRequired": True} if spec.get("fromBackup") else {})}


def close(world: LonghornWorld, name: str) -> None:
    """Show that the volume is detached, as soon as a sync of it goes through."""
    if not world.refusals.postpone(name, "close", close, world, name):
        world.change(world.longhorn("volumes", name), settle_detached, status=True)


def settle_detached(volume: Raw) -> bool:
    """The status of a volume that has no node any more; whether it has none."""
    if volume["spec"].get("nodeID"):
        return False
    volume.setdefault("status", {}).update(state="detached", currentNodeID="", robustness="unknown")
    return True


def mark_healthy(replica: Raw) -> bool:
    if not locality.is_usable(replica) or locality.is_healthy(replica):
        return False
    replica["spec"].update(healthyAt=utc_now(), lastHealthyAt=utc_now())
    return True
