"""The truth of the API server and Longhorn, and how it reaches the product: one watch queue for each kind of object,
in order within the kind and in any order between kinds; live reads; what leaders store; and changes of the leader."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from controller.errors import NotLeaderError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod
from tests.fakes.clock import VirtualClock
from tests.race.driver import SCHEDULING_TIMEOUT_SECONDS, Driver, Ended, StoredTable
from tests.race.invariants import ALLOCATIONS
from tests.race.longhorn_rules import Rules
from tests.race.record import LATE_SECONDS, RaceRecord
from tests.race.shapes import CLASSES, ClusterShape, longhorn_settings, node_facts, storage_class, volume_of
from tests.race.told import ToldPlaces

KINDS: Final = ("pod", "claim", "pv", "volume", "replica", "node", "instance_manager")
ALLOCATED_KINDS: Final = (*KINDS, "backing_image", "record")  # while the record decides where replicas go
GROWTH_SECONDS: Final = 60.0  # for so long an admitted growth counts that nobody stores
WATCH_LAG_SECONDS: Final = 2.0  # docs/compatibility.md
STORE_SECONDS: Final = 10.0  # within which the API server stores what a webhook admitted, or never
_UNVERSIONED: Final = ("node", "instance_manager", "record")
Key = tuple[str, str, str]  # purpose, name, and the disk's UUID; a replica that may move goes without
Action = tuple[str, Callable[[], None]]  # what it does, for the transcript


class BrokenPromise(AssertionError):
    """An invariant does not hold; the text has the transcript."""


@dataclass
class SchedulingRound:
    """What kube-scheduler has in mind about one pod. `offered`: the nodes that it may choose from. `picked`: the one
    that it has decided for; `is_evident`: the cluster shows something of that."""

    key: str
    uid: str
    is_gated: bool = False
    was_asked: bool = False
    offered: frozenset[str] = frozenset()
    is_refused: bool = False  # by the last answer
    picked: str = ""
    is_evident: bool = False

    def give_up(self) -> None:
        """Nobody acts on the answer any more."""
        self.offered = frozenset()

    def forget(self) -> None:
        """Nobody acts any more on the answer, nor on what was decided."""
        self.picked, self.is_evident = "", False
        self.give_up()


@dataclass
class Grant:
    """A growth that was admitted."""

    claim_key: str
    volume: str
    size_bytes: int
    at: float
    term: int
    step: int  # as `ToldPlaces` counts
    is_held: bool = True  # the next ones after one that was never stored are judged alone
    over_at: float | None = None  # when its time was up, as the product said

    @property
    def is_over(self) -> bool:
        return self.over_at is not None


@dataclass(frozen=True)
class HeldRoom:
    """What a caller was told. `at`: when he heard of it the last time. `most_bytes`: that he was ever told, and that
    may count until a replica shows its disk."""

    node: str
    disk_uuid: str
    size_bytes: int
    at: float
    most_bytes: int


class Doubt(NamedTuple):
    """A call about something of that volume or image has brought no answer; until when its decision may stand."""

    of: str
    until: float


def replica_key(name: str) -> Key:
    return str(Purpose.REPLICA), name, ""


def image_key(name: str, uuid: str) -> Key:
    return str(Purpose.BACKING_IMAGE), name, uuid


def _key_of(one: Allocation) -> Key:
    return replica_key(one.name) if one.purpose is Purpose.REPLICA else image_key(one.name, one.disk_uuid)


class _Event(NamedTuple):
    key: str
    facts: object | None
    gone: object | None
    at: float
    serial: int


class RaceWorld:
    """Keeps the truth and hands it over. `term` counts leaders; `now` is the virtual clock's."""

    def __init__(self, shape: ClusterShape, invariant: str) -> None:
        self.invariant = invariant
        self.clock = VirtualClock()
        self.shape, self.settings = shape, longhorn_settings(shape)
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, Claim] = {}
        self.pvs: dict[str, PersistentVolume] = {}
        self.volumes: dict[str, Volume] = {}
        self.replicas: dict[str, Replica] = {}
        self.nodes: dict[str, LonghornNode] = {}
        self.managers: dict[str, InstanceManager] = {}
        self.images: dict[str, BackingImage] = {}
        self.log: list[str] = []
        self.record: RaceRecord | None = None
        if invariant == ALLOCATIONS:
            self.record = RaceRecord(partial(self.write, "record"), self.clock.now, self.log)
        self.kinds = ALLOCATED_KINDS if self.record is not None else KINDS
        self._stores: Mapping[str, dict[str, Any]] = {
            "pod": self.pods,
            "claim": self.claims,
            "pv": self.pvs,
            "volume": self.volumes,
            "replica": self.replicas,
            "node": self.nodes,
            "instance_manager": self.managers,
            "backing_image": self.images,
            "record": {},
        }
        self._queues: dict[str, deque[_Event]] = {kind: deque() for kind in self.kinds}
        self.rounds: dict[str, SchedulingRound] = {}  # by the pod's key
        self.grants: list[Grant] = []
        self.made_at: dict[str, float] = {}  # when each replica was made
        self.writing: dict[str, str] = {}  # by replica, the volume of a place that the leader writes
        self.stored = StoredTable()
        self.term, self.term_at = 0, 0.0
        self.serial = 0
        self.given: dict[Key, HeldRoom] = {}  # what callers were told, as long as they may act on it
        self.inherited: dict[Key, Allocation] = {}  # what the present leader found on record
        self.named_over_at: dict[str, float] = {}  # volumes, when growth by name came to nothing under this leader
        self.in_doubt: dict[Key, Doubt] = {}  # what calls without an answer may have been given
        self.told = ToldPlaces(self)
        self.before_time: list[Callable[[float], None]] = []
        self.before_leader: list[Callable[[int], None]] = []
        self.after_events: list[Callable[[], None]] = []
        for index, entry in enumerate(shape.nodes, start=1):
            name = f"n{index}"
            self.nodes[name] = node_facts(name, entry)
            self.managers[f"im-{name}"] = InstanceManager(f"im-{name}", name, "v1", "", "running")
        self._rules: Rules | None = None  # of this moment, until a node or a manager changes
        self._rules_at = 0.0
        self.driver = self._new_leader(0)

    @property
    def now(self) -> float:
        return self.clock.now()

    def now_utc(self) -> str:
        return self.clock.stamp()

    # Writing and reading

    def write(self, kind: str, key: str, facts: Any, by: str = "") -> None:
        """Store the object, or take it away (None), and tell the watch. `by`: who places a replica."""
        store = self._stores[kind]
        self.serial += 1
        old = store.pop(key, None)
        if kind in ("node", "instance_manager"):
            self._rules = None
        if kind == "replica" and old is None:
            self.made_at[key] = self.now
        if facts is not None:
            store[key] = facts if kind in _UNVERSIONED else replace(facts, version=self.serial)
        if facts is not None or old is not None:
            gone = old if facts is None else None
            self._queues[kind].append(_Event(key, store.get(key), gone, self.now, self.serial))
        self.told.written(kind, store.get(key), old, by)
        if self.shape.is_prompt:
            self.deliver_all()

    def write_place(self, placed: Replica, by: str) -> None:
        """Store a replica with its disk; a volume counts as scheduled once all of its replicas have one."""
        self.write("replica", placed.name, placed, by)
        volume = self.volumes.get(placed.volume)
        if volume is not None and volume.scheduled is not True:
            if all(one.node for one in self.replicas_of(volume.name)):
                self.write("volume", volume.name, replace(volume, scheduled=True))

    def read(self, kind: str, key: str) -> object | None:
        """The object as the API server has it; None where there is none."""
        if kind == "class":
            return storage_class(key) if key in CLASSES else None
        return self._stores[kind].get(key)

    # Delivery

    def waiting(self) -> list[str]:
        """Kinds with something to deliver."""
        return [kind for kind in self.kinds if self._queues[kind]]

    def deliver(self, kind: str, count: int = 1) -> None:
        queue = self._queues[kind]
        for _ in range(min(count, len(queue))):
            key, facts, gone, _, _ = queue.popleft()
            self.driver.observe(kind, key, facts, gone)
            self.told.delivered(facts, gone)
        for act in self.after_events if self.shape.is_quick else ():
            act()

    def _deliver_overdue(self) -> None:
        """The product says for how long it copes with watches that lag behind each other."""
        for kind, queue in self._queues.items():
            while queue and self.now - queue[0].at > WATCH_LAG_SECONDS:
                self.deliver(kind)

    def undelivered(self) -> Iterator[tuple[str, object | None, object | None]]:
        """Kind, facts and what is gone, of each event that the product does not know of."""
        for kind, queue in self._queues.items():
            for event in queue:
                yield kind, event.facts, event.gone

    def seen_serial(self) -> int:
        """The serial of the last write that the product knows of, with all before it."""
        return min((queue[0].serial - 1 for queue in self._queues.values() if queue), default=self.serial)

    def deliver_all(self, *kinds: str) -> None:
        """Everything that waits, of these kinds or of all."""
        for kind in kinds or self.kinds:
            self.deliver(kind, len(self._queues[kind]))

    # Leaders

    def store(self) -> None:
        """The leader's plans and holds are stored, as they are at the moment."""
        self.driver.store(self.stored)
        self.told.stored()

    def change_leader(self, choice: int) -> None:
        """A new process that knows nothing but the stores, or the same one in a new term. What the former one has
        decided and not stored may be lost, and what it has sent arrives before the fence, or never."""
        for act in self.before_leader:
            act(choice)
        self.in_doubt.clear()
        self.named_over_at.clear()
        if choice // 3 % 3 == 0:  # a clean stop
            self.store()
        if choice % 3:
            for _, facts, gone in list(self.undelivered()):
                self.told.delivered(facts, gone)
            for queue in self._queues.values():
                queue.clear()
            self.driver = self._new_leader(choice)
        else:
            record = self._load(choice)
            self.deliver_all()
            self.driver.end_term()
            self.driver.begin_term(self.stored, record)
            self._count_term()

    def _new_leader(self, choice: int) -> Driver:
        record = self._load(choice)
        driver = Driver(self.clock, self.settings, adds_up=self.shape.has_strangers)
        if self.record is not None:
            driver.serve(self.record, lambda: self._term_of(driver), self.read)
        if choice % 2:  # a follower that has been there all the time, or one that starts now
            driver.start()
        for name in CLASSES:
            driver.observe("class", name, storage_class(name))
        for name in self.nodes:
            driver.observe("kube_node", name, KubeNode(name, unschedulable=False))
        for index in range(len(self.kinds)):
            kind = self.kinds[(index + choice) % len(self.kinds)]
            for key, facts in self._stores[kind].items():
                driver.observe(kind, key, facts)
        driver.start()
        driver.begin_term(self.stored, record, is_first=self.term == 0)
        self._count_term()
        return driver

    def _load(self, choice: int) -> list[Allocation]:
        """What is on record, for a leader that begins; right after that something may still arrive of the former
        one's."""
        found = list(self.recorded())
        self.inherited = {_key_of(one): one for one in found if self._is_inherited(one)}
        if self.record is not None and choice // 9 % 2:
            self.record.lose(choice // 18)
        return found

    def _is_inherited(self, one: Allocation) -> bool:
        """Whether it is still to come. What lies there shows at the disk, and what went before the record was written
        is to come."""
        if one.purpose is Purpose.BACKING_IMAGE:
            return one.name in self.images and one.disk_uuid not in self.images[one.name].disk_uuids
        return self.waits(one.name) and not self.is_elsewhere(self.replicas[one.name], one.node)

    def is_elsewhere(self, entry: Replica, node: str) -> bool:
        """Whether the replica has to be on another node."""
        facts = self.volumes.get(entry.volume)
        is_strict = facts is not None and facts.data_locality == "strict-local"
        wanted = facts.node_id if facts is not None and is_strict else entry.hard_node_affinity
        return wanted not in ("", node)

    def _count_term(self) -> None:
        self.term, self.term_at = self.term + 1, self.now
        self.told.leader_changed()

    def _term_of(self, driver: Driver) -> int:
        if self.driver is not driver:
            raise NotLeaderError("another process leads")
        return self.term

    # Time

    def pass_time(self, seconds: float) -> None:
        """Nobody looks at the clock meanwhile; but the leader stores what it has within 0.1 s."""
        self.store()
        self.clock.advance(seconds)

    def sweep(self, seconds: float) -> Ended:
        """Let time pass and do the sweeper's and the waker's work."""
        self.store()
        for act in self.before_time:
            act(seconds)
        if self.record is not None:
            self.record.lose(self.serial, LATE_SECONDS - seconds)
        self.clock.advance(seconds)
        self._deliver_overdue()
        ended = self.driver.sweep(self.read)
        self.in_doubt = {
            key: one
            for key, one in self.in_doubt.items()
            if self.now < one.until and not (key[0] == "replica" and self._is_settled(key[1]))
        }
        for uid in ended.pods:
            yes = self.told.yes.get(uid)
            if yes is not None:
                age = self.now - yes.at
                self.check(age >= SCHEDULING_TIMEOUT_SECONDS, f"the hold of {uid} ended after {age:g} s")
            self.told.ended(uid)
        for volume in ended.growths if self.record is not None else ():
            self.named_over_at[volume] = self.now
        for grant in self.grants:
            if grant.volume in ended.growths and not grant.is_over:
                grant.over_at = self.now
        self.driver.wake()
        if self.driver.service is not None:
            self.driver.service.keep()
        for turn in self.after_events:
            turn()
        return ended

    # Longhorn, as the objects tell

    def rules(self) -> Rules:
        """Longhorn's rules on the nodes as they are."""
        if self._rules is None or self._rules_at != self.now:
            self._rules = Rules(self.nodes, self.managers.values(), self.settings, self.clock.now_utc())
            self._rules_at = self.now
        return self._rules

    def free_bytes(self, *, by_figures: bool = False, at_least: bool = False) -> Counter[str]:
        """What is left on every disk, by UUID; what was given by name is taken. `by_figures`: also what a node lists
        that is gone. `at_least`: whatever else may count of what was given."""
        left, sizes = Counter(self.rules().limits()), self.occupied(at_most=at_least)
        for disk in (disk for node in self.nodes.values() for disk in node.disks) if by_figures else ():
            for purpose, listed in (("replica", disk.scheduled_replicas), ("backing-image", disk.scheduled_images)):
                for name, size in listed.items():
                    place = purpose, name, disk.uuid
                    sizes[place] = max(sizes.get(place, 0), size)
        for (_, _, uuid), size in sizes.items():
            left[uuid] -= size
        return left

    def occupied(self, *, at_most: bool = False) -> dict[Key, int]:
        """Bytes on each disk, by the objects or by what was given, whichever has more. `at_most`: that may count."""
        sizes = dict(self.lying())
        for (purpose, name, _), one in (self.inherited | self.given).items():
            place = (purpose, name, one.disk_uuid)
            if purpose == "backing-image" or self.waits(name):
                sizes[place] = max(sizes.get(place, 0), one.size_bytes)
        for (purpose, name, _), held in self.given.items():
            place = (purpose, name, held.disk_uuid)
            size = held.most_bytes if at_most and self.waits(name) else held.size_bytes
            sizes[place] = max(sizes.get(place, 0), size)
        return sizes

    def waits(self, replica: str) -> bool:
        """Whether the replica is there and has no disk yet."""
        entry = self.replicas.get(replica)
        return entry is not None and not (entry.node or entry.failed_at or entry.deleting)

    def lying(self) -> Iterator[tuple[Key, int]]:
        """Bytes on each disk by Longhorn's objects."""
        for entry in self.replicas.values():
            if entry.disk_uuid:
                yield ("replica", entry.name, entry.disk_uuid), entry.size_bytes
        for image in self.images.values():
            for uuid in image.disk_uuids:
                yield ("backing-image", image.name, uuid), image.real_size_bytes

    def _is_settled(self, replica: str) -> bool:
        """Whether the replica lies on a disk, or is gone."""
        entry = self.replicas.get(replica)
        return entry is None or entry.is_placed

    def is_doubtful(self, name: str) -> bool:
        """Whether anything more may have been given to that volume."""
        return any(one.of == name for one in self.in_doubt.values())

    def do(self, action: Action) -> None:
        text, act = action
        self.log.append(text)
        act()

    def replicas_of(self, volume: str) -> list[Replica]:
        return [facts for facts in self.replicas.values() if facts.volume == volume]

    def recorded(self) -> Iterator[Allocation]:
        """Every allocation on record."""
        for entry in self.record.entries.values() if self.record is not None else ():
            yield from entry.allocations

    def lying_of(self, volume: str) -> list[Replica]:
        """As `replicas_of`; one that waits for a disk lies where it was given one."""
        return [self._joined(facts) for facts in self.replicas_of(volume)]

    def _joined(self, facts: Replica) -> Replica:
        key = replica_key(facts.name)
        held = self.given.get(key)
        one = held or self.inherited.get(key)
        if one is None or not self.waits(facts.name):
            return facts
        size = max(facts.size_bytes, held.most_bytes if held is not None else one.size_bytes)
        return replace(facts, node=one.node, disk_uuid=one.disk_uuid, size_bytes=size)

    def pending(self) -> list[tuple[SchedulingRound, Pod]]:
        """The pods that have no node yet, with what kube-scheduler has in mind about each."""
        found = ((current, self.pods.get(current.key)) for current in self.rounds.values())
        return [(current, pod) for current, pod in found if pod is not None and pod.is_pending]

    def claims_of(self, pod: Pod) -> list[Claim]:
        found = (self.claims.get(f"{pod.namespace}/{entry.claim}") for entry in pod.volumes)
        return [claim for claim in found if claim is not None]

    def claim_of(self, volume: str) -> Claim | None:
        uid = volume.removeprefix("pvc-")
        return next((claim for claim in self.claims.values() if claim.uid == uid), None)

    def users_of(self, claim: Claim) -> list[Pod]:
        """Pods that have not ended and use the claim."""
        return [
            pod
            for pod in self.pods.values()
            if not pod.is_finished and any(f"ns/{entry.claim}" == claim.key for entry in pod.volumes)
        ]

    def volume_of(self, claim: Claim) -> Volume:
        """The claim's Longhorn volume as it is, or as it will be made."""
        return self.volumes.get(f"pvc-{claim.uid}") or volume_of(claim)

    def granted_bytes(self, claim: Claim) -> tuple[int, int]:
        """What the volume may become: at least what the cluster shows and the present leader has admitted a moment ago,
        at most all that was ever admitted, or is on record for a replica."""
        facts = self.volume_of(claim)
        grants = [entry for entry in self.grants if entry.volume == facts.name]
        held = (
            entry.size_bytes
            for entry in grants
            if entry.is_held and entry.term == self.term and not entry.is_over and self.now - entry.at < GROWTH_SECONDS
        )
        least = max((facts.size_bytes, claim.requested_bytes, *held))
        names = {entry.name for entry in self.replicas_of(facts.name)}
        given = (one.size_bytes for one in self.recorded() if one.purpose is Purpose.REPLICA and one.name in names)
        return least, max((least, *(entry.size_bytes for entry in grants), *given))

    def grants_of(self, volume: str, size_bytes: int) -> list[Grant]:
        """The grants by which the present leader has admitted that size, and counts it."""
        grants = (one for one in self.grants if one.volume == volume and one.size_bytes >= size_bytes)
        return [one for one in grants if one.is_held and one.term == self.term and not one.is_over]

    def may_be_stored(self, grant: Grant) -> bool:
        """Whether the API server may still store the claim as it was admitted."""
        claim = self.claims.get(grant.claim_key)
        return (
            claim is not None
            and claim.volume_name == grant.volume
            and claim.requested_bytes < grant.size_bytes
            and self.now - grant.at <= STORE_SECONDS
        )

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            raise BrokenPromise("\n".join((text, *self.log)))
