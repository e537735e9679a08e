"""Facts with only the fields that matter, and a small cluster that hands them to an allocator as the feed would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Due, FilterOutcome, Mode, Wakeup
from controller.allocator.plans.ends import GROWTH
from controller.allocator.verbs.observe import Events
from controller.clock import Clock
from controller.follow.kinds import KINDS
from controller.model.longhorn import Disk, DiskNeeds, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, PodVolume, StorageClass
from controller.settings import LiveSettings
from tests.fakes.clock import TickingClock, VirtualClock

GIB = 1024**3
EPOCH = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:05Z"
LATEST = "2026-01-01T00:00:10Z"
DRIVER = "driver.longhorn.io"
ONE_LOCAL = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
_KINDS = {kind.name: kind for kind in KINDS}


def disk(name: str = "d1", free_gib: float = 400, *, node: str = "n1", tags: tuple[str, ...] = ()) -> Disk:
    size = int(free_gib * GIB)
    return Disk(
        name=name,
        uuid=f"{node}-{name}",
        type="filesystem",
        filesystem="ext4",
        allow_scheduling=True,
        eviction_requested=False,
        ready=True,
        schedulable=True,
        tags=frozenset(tags),
        maximum_bytes=size,
        available_bytes=size,
        reserved_bytes=0,
        scheduled_bytes=0,
        scheduled_replicas={},
        path=f"/disks/{name}",
    )


def node(name: str = "n1", *disks: Disk, free_gib: float = 400, zone: str = "") -> LonghornNode:
    return LonghornNode(
        name=name,
        zone=zone,
        region="",
        tags=frozenset(),
        allow_scheduling=True,
        ready=True,
        schedulable=True,
        deleting=False,
        disks=tuple(replace(entry, uuid=f"{name}-{entry.name}") for entry in disks)
        or (disk(free_gib=free_gib, node=name),),
    )


def volume(
    name: str, gib: float = 100, *, attached_to: str = "", locality: str = "best-effort", **other: Any
) -> Volume:
    facts = Volume(
        name=name,
        size_bytes=int(gib * GIB),
        actual_size_bytes=0,
        replica_count=1,
        data_locality=locality,
        access_mode="rwo",
        migratable=False,
        node_id=attached_to,
        state="attached" if attached_to else "detached",
        robustness="",
        scheduled=None,
        needs=DiskNeeds(),
        soft_anti_affinity="ignored",
        deleting=False,
    )
    return replace(facts, **other)


def replica(name: str, of: str, gib: float = 100, *, on: str = "", disk_name: str = "d1", **other: Any) -> Replica:
    facts = Replica(
        name=name,
        volume=of,
        size_bytes=int(gib * GIB),
        node=on,
        disk_uuid=f"{on}-{disk_name}" if on else "",
        hard_node_affinity="",
        active=True,
        healthy_at="",
        failed_at="",
        eviction_requested=False,
        rebuild_retry_count=0,
        deleting=False,
    )
    return replace(facts, **other)


def storage_class(
    name: str,
    parameters: Mapping[str, str],
    *,
    provisioner: str = DRIVER,
    is_default: bool = False,
    created: str = EPOCH,
) -> StorageClass:
    return StorageClass(name, provisioner, parameters, is_default, created_utc=created)


def claim(name: str, gib: float = 1, class_name: str | None = "longhorn", **other: Any) -> Claim:
    """Not bound; its uid is `uid-<name>`."""
    facts = Claim(
        uid=f"uid-{name}",
        namespace="ns",
        name=name,
        class_name=class_name,
        volume_name="",
        requested_bytes=int(gib * GIB),
        selected_node="",
        is_shared=False,
        is_deleting=False,
        owner_pod_uid="",
        data_source="",
    )
    return replace(facts, **other)


def pod(name: str, *claims: str, **other: Any) -> Pod:
    """Pending and opted in, with these claims; its uid is `pod-<name>`."""
    facts = Pod(
        uid=f"pod-{name}",
        namespace="ns",
        name=name,
        created_utc=EPOCH,
        priority=0,
        is_opted_in=True,
        node_name="",
        nominated_node="",
        is_finished=False,
        is_deleting=False,
        volumes=tuple(PodVolume(f"v{index}", claim) for index, claim in enumerate(claims)),
    )
    return replace(facts, **other)


def observe(events: Events, kind: str, key: str, facts: object | None, gone: object | None = None) -> None:
    """An event of that kind, where a test goes through several kinds."""
    _KINDS[kind].observe(events, key, facts, gone)


class TestCluster:
    """Facts of a made-up cluster and an allocator that follows them."""

    __test__ = False

    def __init__(
        self,
        *,
        live: LiveSettings | None = None,
        settings: LonghornSettings | None = None,
        make_allocator: Callable[[Clock], Allocator] = Allocator,
    ) -> None:
        self.clock = VirtualClock()
        self.adds_up = False  # anybody may ask
        self.allocator = make_allocator(self.clock)
        self.live = live or LiveSettings(enabled=True)
        self.allocator.configure(self.live, settings or LonghornSettings())
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, Claim] = {}
        local = storage_class("longhorn", ONE_LOCAL, is_default=True)
        self.allocator.observe_class(local.name, local)
        self.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
        self.add_class("strict", dataLocality="strict-local", numberOfReplicas="1")
        self.allocator.set_mode(Mode.ACTIVE)
        self.allocator.begin_term(has_predecessor=False)

    def add_class(self, name: str, **parameters: str) -> None:
        self.allocator.observe_class(name, storage_class(name, parameters))

    def add_node(self, name: str, *disks: Disk, free_gib: float = 400) -> None:
        self.allocator.observe_kube_node(name, KubeNode(name, unschedulable=False))
        self.allocator.observe_node(name, node(name, *disks, free_gib=free_gib))

    def add_nodes(self, **free_gib: float | Sequence[float]) -> Self:
        """Nodes of one empty disk each, or of disks d0, d1, ..."""
        for name, sizes in free_gib.items():
            if isinstance(sizes, Sequence):
                self.add_node(name, *(disk(f"d{index}", gib, node=name) for index, gib in enumerate(sizes)))
            else:
                self.add_node(name, free_gib=sizes)
        return self

    def put_node(self, facts: LonghornNode) -> None:
        self.allocator.observe_node(facts.name, facts)

    def add_claim(
        self, name: str, gib: float = 100, *, class_name: str | None = "longhorn", uid: str = "", shared: bool = False
    ) -> Claim:
        return self.set_claim(claim(name, gib, class_name, uid=uid or f"uid-{name}", is_shared=shared))

    def set_claim(self, claim: Claim) -> Claim:
        self.claims[claim.name] = claim
        self.allocator.observe_claim(claim.key, claim)
        return claim

    def drop_claim(self, name: str) -> None:
        self.allocator.observe_claim(self.claims.pop(name).key, None)

    def add_pod(
        self,
        name: str,
        *claims: str | tuple[str, float] | tuple[str, float, str],
        gib: float = 100,
        uid: str = "",
        created: str = EPOCH,
        priority: int = 0,
    ) -> Pod:
        """A pending opted-in pod; claims that do not exist yet are made, one called after the pod without any named.

        A claim's name may come with its GiB and its class.
        """
        wanted = [(claim, gib) if isinstance(claim, str) else claim for claim in claims or (name,)]
        for claim, size, *classes in wanted:
            if claim not in self.claims:
                self.add_claim(claim, size, class_name=classes[0] if classes else "longhorn")
        names = [claim for claim, *_ in wanted]
        return self.set_pod(pod(name, *names, uid=uid or f"pod-{name}", created_utc=created, priority=priority))

    def set_pod(self, pod: Pod) -> Pod:
        self.pods[pod.name] = pod
        self.allocator.observe_pod(pod.key, pod)
        return pod

    def change_pod(self, name: str, **fields: Any) -> Pod:
        return self.set_pod(replace(self.pods[name], **fields))

    def drop_pod(self, name: str) -> None:
        self.allocator.observe_pod(self.pods.pop(name).key, None)

    def filter(self, pod: str, *nodes: str) -> FilterOutcome:
        return self.allocator.hold_pod(self.pods[pod].uid, list(nodes), adds_up=self.adds_up)

    def offered(self, pod: str, *nodes: str) -> set[str]:
        return set(self.filter(pod, *nodes).passed)

    def ask(self, pod: str, gib: float, *nodes: str, class_name: str = "longhorn", priority: int = 0) -> set[str]:
        """What a new pod with one volume is offered."""
        self.add_pod(pod, (pod, gib, class_name), priority=priority)
        return self.offered(pod, *nodes)

    def plan_wakeups(self) -> list[Wakeup]:
        """The pods that a whole round of the wake-up would wake."""
        return [wakeup for wakeups in self.allocator.wake_slices() for wakeup in wakeups]

    def woken(self) -> list[str]:
        """Their names."""
        return [wakeup.name for wakeup in self.plan_wakeups()]

    def make_looks_cost(self, seconds: float) -> None:
        """From now on every look at the clock takes so long."""
        clock = TickingClock(seconds)
        clock.advance(self.clock.now() - clock.start)
        self.allocator._clock = clock

    def select_node(self, claim: str, name: str) -> Claim:
        return self.set_claim(replace(self.claims[claim], selected_node=name))

    def provision(
        self, claim: str, *, created: str = LATER, version: int = 0, copies: int = 1, **volume_facts: Any
    ) -> str:
        """The claim gets a PV (of that version) and a Longhorn Volume with unplaced replicas; the volume's name."""
        facts = self.claims[claim]
        name, gib = f"pvc-{facts.uid}", facts.requested_bytes / GIB
        self.allocator.observe_volume(name, volume(name, gib, **{"replica_count": copies, **volume_facts}))
        for number in range(1, copies + 1):
            self.allocator.observe_replica(f"{name}-r-{number}", replica(f"{name}-r-{number}", name, gib))
        size = facts.requested_bytes
        pv = PersistentVolume(name, DRIVER, name, facts.uid, facts.key, size, created, version)
        self.allocator.observe_pv(name, pv)
        self.set_claim(replace(facts, volume_name=name))
        return name

    def bind(self, pod: str, to: str) -> None:
        self.change_pod(pod, node_name=to, nominated_node="")

    def attach(self, name: str, to: str, gib: float = 100, **other: Any) -> None:
        self.allocator.observe_volume(name, volume(name, gib, attached_to=to, **other))

    def place(self, name: str, on: str, gib: float = 100, disk_name: str = "d1", *, number: int = 1) -> None:
        made = replica(f"{name}-r-{number}", name, gib, on=on, disk_name=disk_name)
        self.allocator.observe_replica(made.name, made)

    def add_volume(self, claim: str, gib: float = 100, *, on: str = "n1") -> str:
        """A claim and its placed volume, whose name this is."""
        self.add_claim(claim, gib)
        name = self.provision(claim)
        self.place(name, on, gib)
        return name

    def run(self, pod: str, claim: str, on: str, gib: float = 100) -> str:
        """From the scheduler's choice to a placed replica."""
        self.select_node(claim, on)
        name = self.provision(claim)
        self.bind(pod, on)
        self.attach(name, on, gib)
        self.place(name, on, gib)
        return name

    def let_figures_follow(self) -> None:
        """The nodes show all replicas."""
        self._show_figures(lambda _disk, _name: True)

    def _show_figures(self, is_shown: Callable[[Disk, str], bool]) -> None:
        world = self.allocator._world
        for facts in list(world.nodes.values()):
            disks = []
            for one in facts.disks:
                here = world.replicas_on(one.uuid)
                listed = {entry.name: entry.size_bytes for entry in here if is_shown(one, entry.name)}
                shown = one.scheduled_bytes - sum(one.scheduled_replicas.values()) + sum(listed.values())
                disks.append(replace(one, scheduled_replicas=listed, scheduled_bytes=shown))
            if tuple(disks) != facts.disks:
                self.put_node(replace(facts, disks=tuple(disks)))

    def let_doubts_pass(self) -> None:
        """Two quiet seconds, after which the sweeper's live read shows no choice."""
        self.clock.advance(2)
        for due in self.allocator.due():
            self.allocator.expire(due)

    def pass_time(self, seconds: int) -> None:
        """Second by second, with the sweeper's work; its live reads show what the stores have."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.allocator.sweep()
            for due in self.allocator.due():
                self.allocator.expire(due)

    def delete_volume(self, pod: str) -> None:
        """The pod of that name, its claim, and all that Longhorn had for it."""
        name = f"pvc-{self.claims[pod].uid}"
        self.drop_pod(pod)
        self.drop_claim(pod)
        self.allocator.observe_pv(name, None)
        self.allocator.observe_volume(name, None)
        self.allocator.observe_replica(f"{name}-r-1", None)
        self._show_figures(lambda disk, name: name in disk.scheduled_replicas)  # what has gone is seen at once

    def due_growths(self) -> list[str]:
        """Volumes whose admitted growth has not been seen for so long that it is to be looked at."""
        return [due.volume for due in self.allocator.due() if due.claimant == GROWTH]

    def expire_growth(self, volume: str) -> None:
        """As the sweeper does after a live read that showed nothing."""
        self.allocator.expire(Due(GROWTH, volume, (), is_capped=False))

    def claimants(self) -> set[str]:
        """All that claim any room."""
        return {claimant for promise in self.allocator.snapshot().promises for claimant in promise.claimants}

    def promised(self) -> list[tuple[str, str]]:
        """Claim and node of all that is held or planned."""
        return [(row.claim, row.node) for row in self.allocator.snapshot().promises]

    def change_leader(self, *, loses: bool = False) -> None:
        """Another leader takes over, with what this one has stored; with nothing if it `loses` that."""
        table = self.allocator._table
        plans, holds = ([], []) if loses else (table.plans(), table.holds())
        on_record = self.allocator.record.of_nodes(self.allocator._world.nodes)
        self.allocator.end_term()
        self.allocator.begin_term(plans=plans, holds=holds, record=[one for of in on_record.values() for one in of])

    def pending(self) -> dict[str, int]:
        """GiB held or planned on a node, each volume once."""
        sums: dict[str, int] = {}
        for promise in self.allocator.snapshot().promises:
            sums[promise.node] = sums.get(promise.node, 0) + promise.size_bytes // GIB
        return sums
