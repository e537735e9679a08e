"""A made-up cluster under random schedules: whatever order watches deliver in, no byte is promised twice.

The machine keeps the truth of the API server; the allocator sees it only through one queue a kind, delivered in order
within the kind and in any order between kinds. The scheduler chooses among what was offered, provisioning, attaching
and placement come at any later time, pods and claims go at any moment, and the leader may change.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.allocator.allocator import Decision, Due
from controller.allocator.outcome import PodKnowledge, UnknownObjectError
from controller.model.allocations import NodeRecord
from controller.model.longhorn import Replica, Volume
from controller.model.workload import Claim, PersistentVolume, Pod
from controller.rules.demand import Missing
from tests.fakes import builders
from tests.fakes.builders import GIB, TestCluster, observe, replica, volume

NODES = ("n1", "n2")
ROOM_GIB = 4
KINDS = ("pod", "claim", "pv", "volume", "replica")
Facts = Pod | Claim | PersistentVolume | Volume | Replica | NodeRecord

Written = tuple[float, str, Facts | None, Facts | None]  # when, key, what stands there, what went

WATCH_LAG_SECONDS = 2.0  # docs/compatibility.md
BIND_SECONDS = 600.0  # kube-scheduler's bindTimeoutSeconds, for which a chosen pod waits for its volumes


@dataclass
class Workload:
    """The truth about one pod and its claims. `offered`: the last answer, while the scheduler may still act on it."""

    name: str
    sizes: tuple[int, ...]
    uid: str
    offered: tuple[str, ...] = ()
    chosen: str = ""
    chosen_at: float = 0.0
    alive: bool = True
    claims: list[str] = field(default_factory=list)


class RaceMachine(RuleBasedStateMachine):
    kinds: tuple[str, ...] = KINDS

    def __init__(self) -> None:
        super().__init__()
        cluster = TestCluster().add_nodes(**dict.fromkeys(NODES, ROOM_GIB))
        self.clock, self.allocator = cluster.clock, cluster.allocator
        self.truth: dict[str, dict[str, Facts]] = {kind: {} for kind in self.kinds}
        self.queues: dict[str, deque[tuple[float, str, Facts | None, Facts | None]]] = {
            kind: deque() for kind in self.kinds
        }
        self.workloads: list[Workload] = []
        self.serial = 0

    def write(self, kind: str, key: str, facts: Facts | None) -> None:
        gone = self.truth[kind].pop(key, None)
        self.serial += 1
        if facts is not None:
            if not isinstance(facts, Replica | NodeRecord):
                facts = replace(facts, version=self.serial)
            self.truth[kind][key] = facts
        if facts is not None or gone is not None:
            self.queues[kind].append((self.clock.now(), key, facts, gone if facts is None else None))

    def advance(self, seconds: float) -> None:
        """The product says for how long it copes with watches that lag behind each other."""
        self.give_up_bindings(seconds)
        self.clock.advance(seconds)
        for kind, queue in self.queues.items():
            while queue and self.clock.now() - queue[0][0] > WATCH_LAG_SECONDS:
                self.deliver(kind)

    def now_utc(self) -> str:
        self.advance(1)
        return self.clock.stamp()

    def deliver(self, kind: str) -> None:
        _, key, facts, gone = self.queues[kind].popleft()
        observe(self.allocator, kind, key, facts, gone)

    def alive(self) -> list[Workload]:
        return [entry for entry in self.workloads if entry.alive]

    # Users

    @precondition(lambda self: len(self.alive()) < 9)
    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def create(self, sizes: list[int]) -> None:
        name = f"p{len(self.workloads)}"
        workload = Workload(name, tuple(sizes), f"pod-{name}")
        for index, size in enumerate(sizes):
            facts = builders.claim(f"{name}-{index}", size)
            workload.claims.append(facts.key)
            self.write("claim", facts.key, facts)
        self.workloads.append(workload)
        self.make_pod(workload)

    def make_pod(self, workload: Workload) -> None:
        claims = (key.partition("/")[2] for key in workload.claims)
        facts = builders.pod(workload.name, *claims, uid=workload.uid, created_utc=self.now_utc())
        self.write("pod", facts.key, facts)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        workload = data.draw(st.sampled_from(self.alive()))
        workload.alive, workload.offered, workload.chosen = False, (), ""
        self.write("pod", f"ns/{workload.name}", None)
        for claim in self.claims_of(workload):  # kubelet and attacher let go of it
            facts = self.truth["volume"].get(claim.volume_name)
            if isinstance(facts, Volume):
                self.write("volume", facts.name, replace(facts, node_id="", state="detached"))

    @precondition(lambda self: len(self.alive()) < len(self.workloads))
    @rule(data=st.data(), with_claims=st.booleans())
    def recreate_or_clean_up(self, data: st.DataObject, with_claims: bool) -> None:
        workload = data.draw(st.sampled_from([entry for entry in self.workloads if not entry.alive]))
        if with_claims and all(key in self.truth["claim"] for key in workload.claims):
            workload.alive, workload.uid = True, workload.uid + "x"
            self.make_pod(workload)
            return
        for claim in self.claims_of(workload):
            self.write("claim", claim.key, None)
            self.write("replica", f"{claim.volume_name}-r", None)
            for kind in ("pv", "volume"):
                self.write(kind, claim.volume_name, None)

    def claims_of(self, workload: Workload) -> list[Claim]:
        found = (self.truth["claim"].get(key) for key in workload.claims)
        return [claim for claim in found if isinstance(claim, Claim)]

    # kube-scheduler

    def waiting(self) -> list[Workload]:
        return [entry for entry in self.alive() if not entry.chosen]

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def filter(self, data: st.DataObject) -> None:
        self.ask(data.draw(st.sampled_from(self.waiting())))

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def schedule_everybody(self, data: st.DataObject) -> None:
        for workload in self.waiting():
            self.ask(workload)
            if workload.offered:
                self.pick(workload, data.draw(st.sampled_from(workload.offered)))

    def ask(self, workload: Workload) -> None:
        key = f"ns/{workload.name}"
        if self.allocator.knows_pod(workload.uid, key) is not PodKnowledge.PENDING:  # the extender's live read
            observe(self.allocator, "pod", key, self.truth["pod"][key])
        pinned = {
            claim.selected_node for claim in self.claims_of(workload) if claim.selected_node and not claim.volume_name
        }
        candidates = sorted(pinned) if len(pinned) == 1 else list(NODES)
        outcome = None
        while outcome is None:
            try:
                outcome = self.allocator.hold_pod(workload.uid, candidates)
            except UnknownObjectError as error:
                self.read(error.missing)
        workload.offered = tuple(outcome.passed)
        assert outcome.passed or set(outcome.refused) == set(candidates)
        assert outcome.decision is not Decision.BYPASS

    def read(self, missing: Missing) -> None:
        name = f"{missing.namespace}/{missing.name}" if missing.namespace else missing.name
        facts = self.truth[missing.kind].get(name)
        if facts is None:
            self.allocator.confirm_absent(missing)
        else:
            observe(self.allocator, missing.kind, name, facts)

    def choosing(self) -> list[Workload]:
        return [entry for entry in self.alive() if entry.offered and not entry.chosen]

    @precondition(lambda self: self.choosing())
    @rule(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        workload = data.draw(st.sampled_from(self.choosing()))
        self.pick(workload, data.draw(st.sampled_from(workload.offered)))

    def pick(self, workload: Workload, name: str) -> None:
        workload.chosen, workload.chosen_at = name, self.clock.now()
        pod = self.truth["pod"][f"ns/{workload.name}"]
        assert isinstance(pod, Pod)
        self.write("pod", pod.key, replace(pod, nominated_node=workload.chosen))
        for claim in self.claims_of(workload):
            if not claim.volume_name:
                self.write("claim", claim.key, replace(claim, selected_node=workload.chosen))
        self.bind_if_provisioned(workload)

    def bind_if_provisioned(self, workload: Workload) -> None:
        pod = self.truth["pod"].get(f"ns/{workload.name}")
        claims = self.claims_of(workload)
        if workload.alive and workload.chosen and isinstance(pod, Pod) and all(claim.volume_name for claim in claims):
            self.write("pod", pod.key, replace(pod, node_name=workload.chosen, nominated_node=""))

    def give_up_bindings(self, seconds: float) -> None:
        """Of pods whose volumes will not have come within the time, after so many seconds more."""
        for workload in self.alive():
            pod = self.truth["pod"].get(f"ns/{workload.name}")
            is_over = self.clock.now() + seconds >= workload.chosen_at + BIND_SECONDS
            if workload.chosen and is_over and isinstance(pod, Pod) and not pod.node_name:
                workload.offered, workload.chosen = (), ""
                self.write("pod", pod.key, replace(pod, nominated_node=""))

    @precondition(lambda self: self.choosing())
    @rule(data=st.data())
    def scheduler_gives_up_on_an_answer(self, data: st.DataObject) -> None:
        """And on every other one that is as old, since no choice has come for so long."""
        workload = data.draw(st.sampled_from(self.choosing()))
        workload.offered = ()
        self.advance(6)
        for due in self.allocator.due():
            self.read_live(due)
            self.allocator.expire(due)
            for other in self.choosing():
                if other.uid == due.claimant:
                    other.offered = ()

    def read_live(self, due: Due) -> None:
        """What the sweeper does before it lets a hold end: pod and claims as they are now reach the allocator first."""
        for kind, key in due.reads:
            if key in self.truth[kind]:
                observe(self.allocator, kind, key, self.truth[kind][key])

    # Longhorn

    @precondition(lambda self: self.provisionable())
    @rule(data=st.data())
    def provision(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.provisionable()))
        name = f"pvc-{claim.uid}"
        size = claim.requested_bytes
        self.write("volume", name, volume(name, size / GIB))
        self.write("replica", f"{name}-r", replica(f"{name}-r", name, size / GIB))
        self.write(
            "pv", name, PersistentVolume(name, "driver.longhorn.io", name, claim.uid, claim.key, size, self.now_utc())
        )
        self.write("claim", claim.key, replace(claim, volume_name=name))
        for workload in self.alive():
            if claim.key in workload.claims:
                self.bind_if_provisioned(workload)

    def provisionable(self) -> list[Claim]:
        claims = (facts for facts in self.truth["claim"].values() if isinstance(facts, Claim))
        return [claim for claim in claims if claim.selected_node and not claim.volume_name]

    @precondition(lambda self: self.attachable())
    @rule(data=st.data())
    def attach(self, data: st.DataObject) -> None:
        facts, to = data.draw(st.sampled_from(self.attachable()))
        self.write("volume", facts.name, replace(facts, node_id=to, state="attaching"))

    def attachable(self) -> list[tuple[Volume, str]]:
        found = []
        for workload in self.alive():
            pod = self.truth["pod"].get(f"ns/{workload.name}")
            if isinstance(pod, Pod) and pod.node_name:
                for claim in self.claims_of(workload):
                    facts = self.truth["volume"].get(claim.volume_name)
                    if isinstance(facts, Volume) and not facts.node_id:
                        found.append((facts, pod.node_name))
        return found

    @precondition(lambda self: self.placeable())
    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        facts, to = data.draw(st.sampled_from(self.placeable()))
        self.write("replica", facts.name, replace(facts, node=to, disk_uuid=f"{to}-d1"))

    def placeable(self) -> list[tuple[Replica, str]]:
        found = []
        for facts in self.replicas():
            owner = self.truth["volume"].get(facts.volume)
            if not facts.node and isinstance(owner, Volume) and owner.node_id:
                found.append((facts, owner.node_id))
        return found

    def replicas(self) -> list[Replica]:
        return [facts for facts in self.truth["replica"].values() if isinstance(facts, Replica)]

    # Delivery and leadership

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data(), count=st.integers(1, 6))
    def deliver_some(self, data: st.DataObject, count: int) -> None:
        kind = data.draw(st.sampled_from([kind for kind in self.kinds if self.queues[kind]]))
        for _ in range(min(count, len(self.queues[kind]))):
            self.deliver(kind)

    @rule()
    def sweep(self) -> None:
        self.advance(3)
        self.allocator.sweep()

    @rule()
    def change_leader(self) -> None:
        for kind in self.kinds:  # a new leader answers only once its stores are caught up
            while self.queues[kind]:
                self.deliver(kind)
        table = self.allocator._table
        self.allocator.begin_term(plans=table.plans(), holds=table.holds())

    # Safety

    @invariant()
    def no_node_is_promised_more_than_it_has(self) -> None:
        for name in NODES:
            assert self.promised(name) <= ROOM_GIB * GIB, f"{name}: {self.promised(name) / GIB}"

    def promised(self, name: str) -> int:
        """Replicas on the node, plus demand that stands chosen for it and has no replica yet; the truth, not our
        memory."""
        total = sum(facts.size_bytes for facts in self.replicas() if facts.node == name)
        for claim in self.claims_chosen_for(name):
            if not any(entry.volume == claim.volume_name and entry.node == name for entry in self.replicas()):
                total += claim.requested_bytes
        return total

    def claims_chosen_for(self, name: str) -> list[Claim]:
        found = (facts for facts in self.truth["claim"].values() if isinstance(facts, Claim))
        return [claim for claim in found if self.is_chosen_for(claim, name)]

    def is_chosen_for(self, claim: Claim, name: str) -> bool:
        return any(entry.chosen == name and claim.key in entry.claims for entry in self.alive())

    @invariant()
    def nothing_is_in_quarantine(self) -> None:
        assert () == self.allocator.snapshot().quarantined

    def teardown(self) -> None:
        """When everything is gone, so are all promises."""
        for workload in self.workloads:
            for key in workload.claims:
                self.write("claim", key, None)
            self.write("pod", f"ns/{workload.name}", None)
        for kind in self.kinds:
            for key in list(self.truth[kind]):
                self.write(kind, key, None)
            while self.queues[kind]:
                self.deliver(kind)
        assert () == self.allocator.snapshot().promises
