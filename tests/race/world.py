"""The truth of the API server and Longhorn, and how it reaches the product: one watch queue for each kind of object,
in order within the kind and in any order between kinds; live reads; and changes of the leader."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.errors import NotLeaderError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, InstanceManager, LonghornNode, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod
from tests.fakes.clock import VirtualClock
from tests.race.driver import EVERYWHERE, SCHEDULING_TIMEOUT_SECONDS, Driver, Ended
from tests.race.invariants import ALLOCATIONS, LIMITS
from tests.race.longhorn_rules import Rules
from tests.race.record import LATE_SECONDS, RaceRecord
from tests.race.shapes import CLASSES, ClusterShape, longhorn_settings, node_facts, storage_class, volume_of

if TYPE_CHECKING:
    from tests.race.limits import Limits

KINDS: Final = ("pod", "claim", "pv", "volume", "replica", "node", "instance_manager")
ALLOCATED_KINDS: Final = (*KINDS, "backing_image", "record")  # while the record decides where replicas go
GROWTH_SECONDS: Final = 60.0  # for so long an admitted growth counts that nobody stores
WATCH_LAG_SECONDS: Final = 2.0  # docs/compatibility.md
OWNERS_SECONDS: Final = 600.0  # that a choice counts by its owner's word, or because a leader before may have answered
ROAMING_SECONDS: Final = 90.0  # after which a copy that is Longhorn's own to place counts for nothing
STORE_SECONDS: Final = 10.0  # within which the API server stores what a webhook admitted, or never
_UNVERSIONED: Final = ("replica", "node", "instance_manager", "backing_image", "record")
Key = tuple[str, str, str]  # purpose, name, and the disk's UUID; a replica that may move goes without
Action = tuple[str, Callable[[], None]]  # what it does, for the transcript


class BrokenPromise(AssertionError):
    """An invariant does not hold; the text has the transcript."""


@dataclass
class SchedulingRound:
    """What kube-scheduler has in mind about one pod, and what it was answered.

    `is_live`: the last answer promised something, and it was not given up, ended or superseded. `picked`: the node
    that the scheduler has decided for; `is_evident`: the cluster shows something of that.
    """

    key: str
    uid: str
    is_gated: bool = False
    was_asked: bool = False
    offered: frozenset[str] = frozenset()
    promised: dict[str, frozenset[str]] = field(default_factory=dict)  # claim uid -> nodes, as of the answer
    answered_at: float = 0.0
    term: int = 0  # of the leader that answered
    is_live: bool = False
    is_refused: bool = False  # by the last answer
    picked: str = ""
    is_evident: bool = False
    is_nominated: bool = False  # for the node that was picked, since the last answer
    selected: set[str] = field(default_factory=set)  # claims whose selected node this pod's rounds wrote
    unseen: frozenset[str] = frozenset()  # uids of claims of which the product had not seen all when it answered
    older: set[str] = field(default_factory=set)  # uids of claims whose word is older than a stranger's answer

    def give_up(self) -> None:
        """Nobody acts on the answer any more."""
        self.offered, self.is_live = frozenset(), False

    def forget(self) -> None:
        """Neither on the answer nor on what was decided."""
        self.picked, self.is_evident, self.is_nominated = "", False, False
        self.give_up()

    def overtake(self, claims: Iterable[Claim], names: Collection[str]) -> None:
        """A stranger was answered from scratch: what tells of a choice now only counts again if none follows in time
        (docs/rules/choices.md)."""
        self.is_nominated = False
        self.older.update(claim.uid for claim in claims if claim.volume_name or claim.selected_node not in ("", *names))


@dataclass
class Grant:
    """A growth that was admitted."""

    claim_key: str
    volume: str
    size_bytes: int
    at: float
    term: int
    is_held: bool = True  # the next ones after one that was never stored are judged alone
    over_at: float | None = None  # when its time was up, as the product said

    @property
    def is_over(self) -> bool:
        return self.over_at is not None


class _Event(NamedTuple):
    key: str
    facts: object | None
    gone: object | None
    at: float


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
        self.by_hand: set[str] = set()  # uids of claims whose owner wrote the node that they name
        self.doubted_at: dict[str, float] = {}  # claim uid -> when it last lost a pod, or its pod a choice
        self.given_back_at: dict[str, float] = {}  # claim uid -> when its provisioner last failed
        self.placeable_at: dict[str, float] = {}  # volume -> since when its missing copies are Longhorn's to place
        self.own_since: dict[str, tuple[object, float]] = {}  # volume -> what Longhorn has to place of it, since when
        self.selected_at: dict[str, float] = {}  # claim uid -> when a node was first written
        self.unproven_at: dict[str, float] = {}  # claim uid -> since when only its owner's word counts, in this term
        self.chance_at: dict[tuple[str, str], float] = {}  # volume and node -> when Longhorn had its chance there
        self.was_full: set[str] = set()  # volumes that once had all their copies
        self.term, self.term_at = 0, 0.0
        self.former: frozenset[str] = frozenset()  # uids of pods that were there when the leader began
        self.inherited: frozenset[str] = frozenset()  # of these, whom the leader before may have answered
        self.had_waiting = False  # and a scheduler may have been about to bind one of them
        self.figures_seen_at = 0.0  # when the product last heard of any disk's figures
        self.serial = 0
        self.in_doubt: dict[
            str, float
        ] = {}  # what a call without an answer may have been given, by name, and until when
        self.watcher: Limits | None = None  # who wants to know of every answer and every write
        self.before_time: Callable[[float], None] = lambda _seconds: None
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

    def write(self, kind: str, key: str, facts: Any) -> None:
        """Store the object, or take it away (None), and tell the watch."""
        store = self._stores[kind]
        if self.watcher is not None:
            self.watcher.written(kind, facts, store.get(key))
        gone = store.pop(key, None)
        if isinstance(facts, Claim) and facts.selected_node:
            self.selected_at.setdefault(facts.uid, self.now)
        self.serial += 1
        if kind in ("node", "instance_manager"):
            self._rules = None
        if facts is not None:
            store[key] = facts if kind in _UNVERSIONED else replace(facts, version=self.serial)
        if facts is not None or gone is not None:
            self._queues[kind].append(_Event(key, store.get(key), gone if facts is None else None, self.now))
        if kind in ("volume", "replica"):
            owner = facts if facts is not None else gone
            self._note_longhorn(owner.volume if isinstance(owner, Replica) else key)
        elif kind in ("record", "claim"):
            for name in self.volumes:
                self._note_longhorn(name)
        if self.shape.is_prompt:
            self.deliver_all()
        if kind in ("pod", "claim"):
            self._note_unproven()

    def read(self, kind: str, key: str) -> object | None:
        """A live read."""
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
            key, facts, gone, _ = queue.popleft()
            self.driver.observe(kind, key, facts, gone)
            if kind == "node":
                self.figures_seen_at = self.now
            if self.watcher is not None:
                self.watcher.delivered(kind, facts, gone)

    def _deliver_overdue(self) -> None:
        """Where the product says for how long it copes with watches that lag behind each other."""
        for kind, queue in self._queues.items() if self.invariant in (LIMITS, ALLOCATIONS) else ():
            while queue and self.now - queue[0].at > WATCH_LAG_SECONDS:
                self.deliver(kind)

    def undelivered(self) -> Iterator[tuple[str, object | None, object | None]]:
        """Kind, facts, and what is gone, of all events that the product does not know of."""
        for kind, queue in self._queues.items():
            for event in queue:
                yield kind, event.facts, event.gone

    def deliver_all(self, *kinds: str) -> None:
        """Of these kinds; of all without any."""
        for kind in kinds or self.kinds:
            self.deliver(kind, len(self._queues[kind]))

    # Leaders

    def change_leader(self, choice: int) -> None:
        """A new process that knows nothing but the stores, or the same one in a new term. What the former one has sent
        may arrive yet."""
        if self.record is None or not self.record.under_way():
            self.in_doubt.clear()
        if choice % 3:
            for kind, facts, gone in list(self.undelivered()):
                if self.watcher is not None:
                    self.watcher.delivered(kind, facts, gone)
            for queue in self._queues.values():
                queue.clear()
            self.driver = self._new_leader(choice)
        else:
            self.deliver_all()
            self.driver.end_term()
            self.driver.begin_term()
            self._count_term()
        self._note_unproven()

    def _new_leader(self, choice: int) -> Driver:
        shape = self.shape
        driver = Driver(self.clock, self.settings, shape.excess_pct, adds_up=shape.has_strangers)
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
        driver.begin_term()
        self._count_term()
        return driver

    def _count_term(self) -> None:
        self.term, self.term_at = self.term + 1, self.now
        self.former = frozenset(pod.uid for pod in self.pods.values())
        waiting = [pod for pod in self.pods.values() if pod.is_pending and pod.is_opted_in]
        self.had_waiting = bool(waiting)
        self.inherited = frozenset(pod.uid for pod in waiting if not pod.is_gated)
        self.unproven_at.clear()
        for current in self.rounds.values():
            current.older.clear()

    def _term_of(self, driver: Driver) -> int:
        if self.driver is not driver:
            raise NotLeaderError("another process leads")
        return self.term

    # Time

    def sweep(self, seconds: float) -> Ended:
        """Let time pass and do the sweeper's and the waker's work."""
        self.before_time(seconds)
        if self.record is not None:
            self.record.lose(self.serial, LATE_SECONDS - seconds)
        self.clock.advance(seconds)
        self._deliver_overdue()
        for name in self.volumes:
            self._note_longhorn(name)
        ended = self.driver.sweep(self.read)
        self._note_unproven()
        self.in_doubt = {name: until for name, until in self.in_doubt.items() if self.now < until}
        for current in self.rounds.values():
            if current.uid in ended.pods:
                pod = self.pods.get(current.key)
                # A former pod's choice that is seen late puts the answer in doubt, which ends it sooner; also one that
                # has been withdrawn meanwhile.
                claims = self.claims_of(pod) if pod is not None else ()
                late = (self.given_back_at.get(claim.uid, -inf) >= current.answered_at for claim in claims)
                is_doubted = any(claim.selected_node for claim in claims) or any(late)
                if current.is_live and not (current.is_evident or is_doubted):
                    age = self.now - current.answered_at
                    self.check(age >= SCHEDULING_TIMEOUT_SECONDS, f"the hold of {current.uid} ended after {age:g} s")
                current.is_live = False
                current.older.clear()
                if self.watcher is not None and pod is not None:
                    self.watcher.ended(pod)
            self._end_what_roams(current)
        for grant in self.grants:
            if grant.volume in ended.growths and not grant.is_over:
                grant.over_at = self.now
        self.driver.wake()
        if self.driver.service is not None:
            self.driver.service.keep()
        return ended

    def _end_what_roams(self, current: SchedulingRound) -> None:
        """What Longhorn had its time to place is promised no more by an answer that was acted on; a choice makes no new
        promise of what it only narrows, though the volume be detached (docs/rules/promises.md)."""
        for uid, nodes in current.promised.items() if current.picked and current.is_evident else ():
            since = self.placeable_at.get(f"pvc-{uid}", self.now)
            if self.now - max(since, current.answered_at) >= ROAMING_SECONDS:
                current.promised[uid] = nodes - {EVERYWHERE}

    # Whose word a choice is

    def is_proven(self, pod: Pod, node: str, *, by_nomination: bool = True) -> bool:
        """Whether more than the word of a claim's owner says that the pod goes to that node (docs/rules/choices.md)."""
        if self.driver.has_given_room(pod.uid, node):
            return True
        is_nominated = by_nomination and pod.nominated_node == node
        is_inherited = pod.uid in self.inherited and self.now < self.term_at + OWNERS_SECONDS
        return not pod.node_name and (is_nominated or is_inherited)

    def is_owners_word_over(self, claim: Claim) -> bool:
        """Whether a node that only the claim's owner is known to have written counts no more."""
        return claim.uid in self.unproven_at and self.now >= self.unproven_at[claim.uid] + OWNERS_SECONDS

    def _note_unproven(self) -> None:
        """A nomination may be seen after the claim that names its node."""
        is_seen = not self._queues["pod"]
        for claim in self.claims.values():
            if claim.uid in self.unproven_at or not claim.selected_node or claim.volume_name:
                continue
            users = (pod for pod in self.users_of(claim) if not (pod.is_over or pod.is_gated))
            going = (pod for pod in users if not self.rounds[pod.key].is_refused)
            if not any(self.is_proven(pod, claim.selected_node, by_nomination=is_seen) for pod in going):
                self.unproven_at[claim.uid] = self.now

    # Longhorn, as the objects tell

    def rules(self) -> Rules:
        """Longhorn's rules on the nodes as they are."""
        if self._rules is None or self._rules_at != self.now:
            self._rules = Rules(self.nodes, self.managers.values(), self.settings, self.clock.now_utc())
            self._rules_at = self.now
        return self._rules

    def free_bytes(self) -> Counter[str]:
        """What is left on every disk, by UUID, whatever Longhorn's figures show; what is on record is taken."""
        left = Counter(self.rules().limits())
        for (_, _, uuid), size in self.occupied().items():
            left[uuid] -= size
        return left

    def occupied(self) -> dict[Key, int]:
        """Bytes on each disk, by the objects or by the record, whichever has more."""
        sizes = dict(self.lying())
        for one in self.recorded():
            place = (str(one.purpose), one.name, one.disk_uuid)
            sizes[place] = max(sizes.get(place, 0), one.size_bytes)
        return sizes

    def lying(self) -> Iterator[tuple[Key, int]]:
        """Bytes on each disk by Longhorn's objects."""
        for entry in self.replicas.values():
            if entry.disk_uuid:
                yield ("replica", entry.name, entry.disk_uuid), entry.size_bytes
        for image in self.images.values():
            for uuid in image.disk_uuids:
                yield ("backing-image", image.name, uuid), image.real_size_bytes

    def do(self, action: Action) -> None:
        text, act = action
        self.log.append(text)
        act()

    def replicas_of(self, volume: str) -> list[Replica]:
        return [facts for facts in self.replicas.values() if facts.volume == volume]

    def recorded(self) -> Iterator[Allocation]:
        """All that is on record."""
        for entry in self.record.entries.values() if self.record is not None else ():
            yield from entry.allocations

    def lying_of(self, volume: str) -> list[Replica]:
        """As `replicas_of`; one without a disk lies where the record says, and is as large as either says."""
        found = self.replicas_of(volume)
        if self.record is None:
            return found
        entries = {one.name: one for one in self.recorded() if one.purpose is Purpose.REPLICA}
        return [self._joined(facts, entries.get(facts.name)) for facts in found]

    def _joined(self, facts: Replica, entry: Allocation | None) -> Replica:
        uuid = entry.disk_uuid if entry is not None else ""
        if entry is None or facts.disk_uuid not in ("", uuid) or (facts.failed_at and not facts.node):
            return facts
        size = max(facts.size_bytes, entry.size_bytes)
        return replace(facts, node=entry.node, disk_uuid=uuid, size_bytes=size)

    def claims_of(self, pod: Pod) -> list[Claim]:
        found = (self.claims.get(f"{pod.namespace}/{entry.claim}") for entry in pod.volumes)
        return [claim for claim in found if claim is not None]

    def claim_by_uid(self, uid: str) -> Claim | None:
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

    def doubt(self, pod: Pod) -> None:
        """The pod goes, or what was chosen for it is withdrawn: its promises stay for a while."""
        for claim in self.claims_of(pod):
            self.doubted_at[claim.uid] = self.now

    def forget_chances(self, claim: Claim, nodes: Iterable[str]) -> None:
        """The claim's volume is promised anew on nodes where it is not attached."""
        facts = self.volume_of(claim)
        for node in nodes:
            if facts.node_id != node:
                self.chance_at.pop((facts.name, node), None)

    def may_be_stored(self, grant: Grant) -> bool:
        """Whether the API server may still store the claim as it was admitted."""
        claim = self.claims.get(grant.claim_key)
        return (
            claim is not None
            and claim.volume_name == grant.volume
            and claim.requested_bytes < grant.size_bytes
            and self.now - grant.at <= STORE_SECONDS
        )

    def _note_longhorn(self, name: str) -> None:
        """Remember since when Longhorn could place what is missing of a volume, and where it had its chance."""
        facts = self.volumes.get(name)
        if facts is None:
            self.placeable_at.pop(name, None)
            self.own_since.pop(name, None)
            return
        replicas = self.lying_of(name)
        at = facts.node_id or (facts.owner_id if self._may_grow(facts) else "")
        own = at, frozenset(entry.name for entry in replicas if not (entry.node or entry.failed_at))
        if self.own_since.get(name, (None,))[0] != own:
            self.own_since[name] = own, self.now
        placed = sum(1 for entry in replicas if entry.is_placed and not entry.failed_at)
        if placed >= facts.replica_count:
            self.was_full.add(name)
        if facts.data_locality == "disabled" or facts.node_id:
            self.placeable_at.setdefault(name, self.now)
        else:
            self.placeable_at.pop(name, None)
        if facts.node_id and (facts.state == "attached" or facts.scheduled is False):
            self.chance_at.setdefault((name, facts.node_id), self.now)

    def _may_grow(self, facts: Volume) -> bool:
        """Whether the volume, detached, is or may be attached to its owner's node to grow."""
        claim = self.claim_by_uid(facts.name.removeprefix("pvc-"))
        return facts.expansion_required or (claim is not None and self.granted_bytes(claim)[1] > facts.size_bytes)

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            raise BrokenPromise("\n".join((text, *self.log)))
