"""Which disks Longhorn would take for one replica: its search of `scheduler/replica_scheduler.go` on frozen facts.

Nodes are filtered first. Only replicas on the remaining nodes use nodes and zones. Then groups of nodes are tried one
after the other, from an unused zone to a used node; the first group with a disk that passes every check ends the
search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime

from controller.model.longhorn import (
    BackingImage,
    Disk,
    DiskNeeds,
    LonghornNode,
    LonghornSettings,
    Replica,
    Volume,
    repeated_disk_uuids,
)
from controller.model.versions import Behaviour
from controller.model.workload import KubeNode
from controller.rules.affinity import Affinity, Try, Usage, clone_sources, disks_with_replicas, groups_of_nodes
from controller.rules.eligibility import (
    NO_ENGINES,
    Engines,
    check_disk_for,
    check_disk_open,
    check_node_for,
    node_tags_rejection,
    unlisted_bytes,
    wrapped,
)
from controller.rules.reasons import Reason, Refusal, Rejection


@dataclass(frozen=True, slots=True)
class PlacementView:
    """What Longhorn's informers show its scheduler. None instead of objects: their rule is not applied."""

    nodes: Mapping[str, LonghornNode]
    replicas: tuple[Replica, ...] = ()  # all of the volume, also those to be placed
    settings: LonghornSettings = field(default_factory=LonghornSettings)
    backing_image: BackingImage | None = None  # of that name in the volume; None where there is none
    engines: Engines = NO_ENGINES
    kube_nodes: Mapping[str, KubeNode] | None = None
    source_replicas: tuple[Replica, ...] = ()  # of the volume that a linked clone is made of
    now_utc: datetime | None = None  # None: no failed replica is due to be replaced

    @property
    def behaviour(self) -> Behaviour:
        return self.settings.behaviour


@dataclass(frozen=True, slots=True)
class Candidate:
    """A disk that Longhorn would take, by names and by its UUID."""

    node: str
    disk: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """The disks that Longhorn chooses from, sorted by node and disk; why the others are refused; the try that
    decided."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    tried: Try | None = None


def needs_of(volume: Volume, replica: Replica | None, image: BackingImage | None) -> DiskNeeds:
    """Return what a replica of the volume needs of a node and its disks besides room. The replica's engine image wins
    over the volume's."""
    image_needs = image.needs if volume.backing_image and image is not None else None
    engine_image = (replica.image if replica is not None else "") or volume.image
    return replace(volume.needs, image=image_needs, engine_image=engine_image)


def check_search(volume: Volume, replica: Replica, image: BackingImage | None) -> Rejection | None:
    """Return why Longhorn does not even look for a disk for that replica of the volume, or None."""
    if replica.node:
        return Rejection(Reason.ALREADY_SCHEDULED, f"{replica.name}: it is on node {replica.node}")
    if replica.failed_at and not replica.healthy_at:
        text = f"{replica.name}: it failed at {replica.failed_at} and was never healthy"
        return Rejection(Reason.UNUSED_FAILED_REPLICA, text)
    if volume.backing_image and image is None:
        text = f"{volume.name}: there is no backing image {volume.backing_image!r}"
        return Rejection(Reason.BACKING_IMAGE_NOT_FOUND, text)
    if volume.robustness == "degraded" and not volume.last_degraded_at:
        text = f"{volume.name}: it is degraded, but status.lastDegradedAt is not set"
        return Rejection(Reason.DEGRADED_SINCE_UNKNOWN, text)
    return None


def find_candidates(
    view: PlacementView, volume: Volume, replica: Replica, among: Collection[str] | None = None
) -> Candidates:
    """Return every disk from which Longhorn would choose for the unplaced `replica`, and why the others are refused.

    Each disk that is no candidate has one refusal: its own, or its node's. `among`: the nodes that are looked at, those
    with replicas of the volume among them; None: all.
    """
    rejection = check_search(volume, replica, view.backing_image)
    if rejection is not None:
        return Candidates((), (Refusal("", "", rejection),))
    return _search_for(view, volume, replica, among).run()


def reached_nodes(view: PlacementView, volume: Volume, replica: Replica) -> Set[str]:
    """Return the nodes that `find_candidates` asks for room while none has any. The others are refused by a rule."""
    if check_search(volume, replica, view.backing_image) is not None:
        return frozenset()
    groups = _search_for(view, volume, replica).groups()
    return frozenset[str]().union(*(members for _, members in groups))


def _search_for(
    view: PlacementView, volume: Volume, replica: Replica, among: Collection[str] | None = None
) -> CandidateSearch:
    """The search over the nodes that may hold the replica, tags and disks aside."""
    needs, sources = needs_of(volume, replica, view.backing_image), sources_of(view, volume, replica)
    source_nodes = None if sources is None else {source.node for source in sources}
    nodes, refused = dict[str, LonghornNode](), dict[tuple[str, str], Rejection]()
    for name in sorted(view.nodes if among is None else among):
        node = view.nodes[name]
        rejection = check_node_for(
            node,
            needs,
            view.settings.space,
            engines=view.engines,
            kube_nodes=view.kube_nodes,
            source_nodes=source_nodes,
            hard_node_affinity=replica.hard_node_affinity,
            with_tags=False,
        )
        if rejection is None:
            nodes[name] = node
        else:
            refused[name, ""] = rejection
    clones = None if sources is None else frozenset(source.disk_uuid for source in sources)
    search = CandidateSearch(view, volume, needs, nodes, clones=clones)
    search.refusals.update(refused)
    return search


def sources_of(view: PlacementView, volume: Volume, replica: Replica) -> list[Replica] | None:
    """Return the source replicas next to which a linked clone's replica may lie; None for any other volume."""
    return clone_sources(volume, view.source_replicas, view.behaviour, replica.linked_clone_source)


def reopened_nodes(
    usage: Usage, nodes: Mapping[str, LonghornNode], affinity: Affinity, settings: LonghornSettings
) -> frozenset[str]:
    """Return the used nodes that count as unused, because auto-balance may move a replica within them."""
    if not affinity.balances:
        return frozenset()
    if settings.behaviour.balance_opens_used_nodes:
        return usage.nodes
    percentage = settings.disk_pressure_pct
    return frozenset(
        name for name in usage.nodes if any(_is_under_pressure(disk, percentage) for disk in nodes[name].disks)
    )


def _is_under_pressure(disk: Disk, percentage: int) -> bool:
    """Whether best-effort auto-balance wants replicas off the disk: less than 100 - `percentage` percent of it are
    free. Never for a percentage of 0 or below."""
    if percentage <= 0:
        return False
    free_pct = max(0, disk.spare_bytes * 100 // disk.maximum_bytes) if disk.maximum_bytes > 0 else 0
    return free_pct < 100 - percentage


class CandidateSearch:
    """One search over some nodes. Each node or disk has one refusal, the latest.

    `reusable`: the disks of failed replicas, if one of those is to come back; then only these disks do, whatever their
    room and whatever other replicas failed. `clones`: the disks of a linked clone's sources.
    """

    def __init__(
        self,
        view: PlacementView,
        volume: Volume,
        needs: DiskNeeds,
        nodes: Mapping[str, LonghornNode],
        *,
        clones: frozenset[str] | None = None,
        reusable: frozenset[str] | None = None,
    ) -> None:
        self._view, self._volume, self._needs, self._nodes = view, volume, needs, nodes
        self._clones, self._reusable = clones, reusable
        self._space = view.settings.space
        self._affinity = Affinity.of(volume, view.settings)
        is_back = reusable is not None
        self._holding = disks_with_replicas(view.replicas, ignore_failed=is_back)
        self._usage = Usage.of(volume, view.replicas, nodes, view.settings, view.now_utc, ignore_failed=is_back)
        self.refusals: dict[tuple[str, str], Rejection] = {}

    def run(self) -> Candidates:
        """Try group after group; return the candidates of the first that has any."""
        for attempt, nodes in self.groups():
            found = self._disks_of(nodes.values())
            if found:
                return self._answer(found, attempt)
        return self._answer((), None)

    def groups(self) -> Iterator[tuple[Try, Mapping[str, LonghornNode]]]:
        """Return the tries in their order, each with its nodes."""
        tagged = {}
        for name, node in self._nodes.items():
            rejection = node_tags_rejection(node, self._needs, self._space)
            if rejection is None:
                tagged[name] = node
            else:
                self.refusals[name, ""] = rejection
        reopened = reopened_nodes(self._usage, self._nodes, self._affinity, self._view.settings)
        return groups_of_nodes(self._nodes, tagged, self._usage, self._affinity, reopened)

    def _disks_of(self, nodes: Iterable[LonghornNode]) -> list[Candidate]:
        """The disks of `nodes` that take the replica, by all checks and by disk anti-affinity."""
        found: list[Candidate] = []
        for node in nodes:
            self.refusals.pop((node.name, ""), None)  # reached after all
            if not node.disks:
                self.refusals[node.name, ""] = Rejection(Reason.DISK_NOT_FOUND, f"{node.name}: has no disk")
            repeated = repeated_disk_uuids(node)
            for disk in node.disks:
                rejection = self._check_disk(node, disk, is_repeated=disk.uuid in repeated)
                if rejection is None:
                    found.append(Candidate(node.name, disk.name, disk.uuid))
                else:
                    self.refusals[node.name, disk.name] = rejection
        free = [entry for entry in found if entry.uuid not in self._holding]
        if not free and self._affinity.disk_soft:
            return found
        for entry in found:
            if entry.uuid in self._holding:
                self.refusals[entry.node, entry.disk] = Rejection(
                    Reason.DISK_ANTI_AFFINITY, f"{entry.disk}: already has a replica of {self._volume.name}"
                )
        return free

    def _check_disk(self, node: LonghornNode, disk: Disk, *, is_repeated: bool) -> Rejection | None:
        rejection = check_disk_open(disk, is_repeated=is_repeated, sources=self._clones)
        if rejection is not None:
            return rejection
        if self._reusable is not None:
            if disk.uuid in self._reusable:
                return None
            return Rejection(Reason.NOT_REUSABLE, f"{disk.name}: has no failed replica that can be brought back")
        view, volume = self._view, self._volume
        per_node = view.behaviour.counts_fresh_per_node
        own = (one for one in view.replicas if one.node == node.name and (per_node or one.disk_uuid == disk.uuid))
        scheduled = wrapped(disk.scheduled_bytes + unlisted_bytes(disk, own))
        return check_disk_for(disk, self._needs, volume.size_bytes, volume.actual_size_bytes, scheduled, self._space)

    def _refuse_the_rest(self) -> None:
        """Refuse the nodes that no try reached."""
        seen = {node for node, _ in self.refusals}
        for name, node in self._nodes.items():
            if name in seen:
                continue
            if name in self._usage.nodes:
                text = f"{name}: already has a replica of {self._volume.name}"
                self.refusals[name, ""] = Rejection(Reason.NODE_ANTI_AFFINITY, text)
            elif node.zone in self._usage.zones:
                text = f"{name}: its zone {node.zone!r} already has a replica of {self._volume.name}"
                self.refusals[name, ""] = Rejection(Reason.ZONE_ANTI_AFFINITY, text)

    def _answer(self, found: Iterable[Candidate], attempt: Try | None) -> Candidates:
        chosen = sorted(found, key=lambda entry: (entry.node, entry.disk))
        self._refuse_the_rest()
        for entry in chosen:
            self.refusals.pop((entry.node, ""), None)
            self.refusals.pop((entry.node, entry.disk), None)
        refusals = tuple(Refusal(node, disk, entry) for (node, disk), entry in sorted(self.refusals.items()))
        return Candidates(tuple(chosen), refusals, attempt)
