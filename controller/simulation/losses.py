"""What a drain and a lost node mean (docs/simulate.md has it for operators)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from controller.model.longhorn import Volume
from controller.model.reader import mapping_at
from controller.simulation.documents import Placeless, PodOutcome, RebuildOutcome
from controller.simulation.queue import (
    MOVES,
    QueuedPod,
    again,
    controller_of,
    owner_text,
    queued,
    stays_on_node,
)
from controller.simulation.state import State

POLICY: Final = "node-drain-policy"
_DEFAULT_POLICY: Final = "block-if-contains-last-replica"
_EVICTS, _EVICTS_LAST = "block-for-eviction", "block-for-eviction-if-contains-last-replica"
_IF_STOPPED, _ALWAYS = "allow-if-replica-is-stopped", "always-allow"


@dataclass(slots=True)
class Losses:
    """What became of nodes that were drained or lost. `moved`: pods that need another node; `ended`: those that nothing
    makes again; `short`: volumes that lost copies."""

    drained: list[str] = field(default_factory=list)
    moved: list[QueuedPod] = field(default_factory=list)
    ended: list[PodOutcome] = field(default_factory=list)
    short: list[str] = field(default_factory=list)

    def drain(self, state: State, node: str) -> None:
        """Closes the node and moves its pods off; its copies stay."""
        self.drained.append(node)
        state.cluster.cordon(node)
        state.places.cordon(node)
        self._move_pods(state, node, is_lost=False)

    def fail(self, state: State, node: str) -> None:
        """Takes the node away for ever, with its disks."""
        self._move_pods(state, node, is_lost=True)
        self.short += state.cluster.lose(node)
        state.places.remove(node)
        world = state.cluster.world
        for name in self.short:
            if not any(one.is_usable for one in world.replicas_of(name).values()) and name not in state.lost:
                state.lost[name] = node

    def _move_pods(self, state: State, node: str, *, is_lost: bool) -> None:
        for key, raw in list(state.pods.items()):
            if mapping_at(raw, "", "spec").get("nodeName") != node:
                continue
            is_longhorns = raw["metadata"].get("namespace") in state.longhorn_namespaces
            stays = stays_on_node(raw) or is_longhorns
            if not stays or is_lost:
                self._move(state, key, raw, is_again=not stays)

    def _move(self, state: State, key: str, raw: dict[str, Any], *, is_again: bool) -> None:
        world, leader = state.cluster.world, state.cluster.leader
        facts = world.pod_by_key(key)
        del state.pods[key]
        state.places.unbind(key)
        volumes = list(state.volumes_of(facts)) if facts is not None else []
        leader.observe_pod(key, None)
        for claim, name in volumes:
            if facts is not None and claim.owner_pod_uid == facts.uid:
                state.cluster.remove_volume(claim)
            elif not any(other.node_name and not other.is_over for other in world.pods_of_claim(claim.key)):
                state.cluster.attach(name, "")
        if not is_again:
            return
        if controller_of(raw) is not None:
            made = again(raw, state.cluster.clock.stamp())
            self.moved.append(queued(made, MOVES, owner=owner_text(raw)))
        else:
            namespace, _, name = key.partition("/")
            text = "nothing controls it, so that it is not made again"
            self.ended.append(PodOutcome(namespace, name, "", MOVES, "ends", "", "", text, "", ()))

    # Afterwards

    def rebuild(self, state: State) -> Iterator[RebuildOutcome]:
        """What becomes of the volumes that lost copies, once pods have found their nodes."""
        cluster = state.cluster
        for name in dict.fromkeys(self.short):
            volume = cluster.world.volumes.get(name)
            if volume is None or volume.deleting:
                continue
            if name in state.lost:
                text = f"its only copies were on {state.lost[name]}"
                yield _outcome(state, volume, "lost", (), volume.replica_count, text)
                continue
            if not volume.node_id:
                missing = cluster.missing_copies(name)
                if missing:
                    text = "it is attached nowhere: Longhorn rebuilds it once it is"
                    yield _outcome(state, volume, "waits", (), missing, text)
                continue
            cluster.make_missing(name)
            new = [*cluster.place_copies(name), *cluster.follow_engine(name)]
            missing = cluster.missing_copies(name)
            text = cluster.why_missing(name) if missing else ""
            if new or missing:
                yield _outcome(state, volume, "degraded" if missing else "rebuilt", tuple(new), missing, text)

    def after_drain(self, state: State) -> Iterator[RebuildOutcome | Placeless]:
        """What Longhorn's policy for drains makes of the copies on drained nodes."""
        policy = state.document.objects.settings.get(POLICY) or _DEFAULT_POLICY
        for name, volume in list(state.cluster.world.volumes.items()):
            there = [one for one in state.cluster.world.replicas_of(name).values() if one.is_usable]
            here = [one for one in there if one.node in self.drained]
            is_last = len(here) == len(there)
            if not here or policy == _ALWAYS or volume.deleting:
                continue
            if policy == _EVICTS or (policy == _EVICTS_LAST and is_last):
                yield from self._evict(state, volume, [one.name for one in here])
            elif is_last and (policy != _IF_STOPPED or volume.node_id):
                text = f"its only copy lies on {here[0].node}: Longhorn blocks the drain ({POLICY} is {policy})"
                yield Placeless("volume", _claim(state, name) or name, "LastReplica", text)

    def _evict(self, state: State, volume: Volume, replicas: list[str]) -> Iterator[RebuildOutcome]:
        cluster, placed, missing = state.cluster, [], 0
        for name in replicas:
            new = cluster.add_copy(volume.name)
            placed += new
            if new:
                cluster.remove_replica(name)
            else:
                missing += 1
        text = "a copy on the drained node finds no other disk, so that the drain waits" if missing else ""
        yield _outcome(state, volume, "degraded" if missing else "rebuilt", tuple(placed), missing, text)


def _claim(state: State, volume: str) -> str:
    claim = state.cluster.world.claim_of_volume(volume)
    return claim.key if claim is not None else ""


def _outcome(state: State, volume: Volume, kind: str, new: Any, missing: int, text: str) -> RebuildOutcome:
    return RebuildOutcome(_claim(state, volume.name), volume.name, volume.size_bytes, kind, new, missing, text)
