"""A made-up cluster in which the leader places every copy: whatever is asked, chosen and taken back, no byte is given
twice, and whoever was let through finds his places.

Events are delivered at once; tests/unit/allocator/race_machine.py has watches that lag.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.allocator.outcome import TurnStep
from controller.allocator.plans.plan import Source
from controller.model.places import Place
from tests.fakes import builders
from tests.fakes.builders import EPOCH, GIB, LATEST
from tests.unit.allocator.placed_cluster import PlacedCluster

DISKS: Final = {"n1": [4, 3], "n2": [5], "n3": [3, 3]}
KINDS: Final = {
    "longhorn": ("best-effort", 1),
    "strict": ("strict-local", 1),
    "roaming": ("disabled", 1),
    "two": ("disabled", 2),
    "near": ("best-effort", 2),
}
MOST_PODS: Final = 6
WHICH: Final = st.integers(0, 9)
AT: Final = st.sets(st.sampled_from(list(DISKS)), min_size=1)


@dataclass
class Asked:
    """A pod, and its claims by their class. `offered`: by the last answer; `chosen`: of these, by kube-scheduler.
    `made`: claims with a volume. `is_early`: it shows as bound before these are."""

    name: str
    claims: dict[str, str]
    offered: tuple[str, ...] = ()
    chosen: str = ""
    made: set[str] = field(default_factory=set)
    is_early: bool = False


class SettleMachine(RuleBasedStateMachine):
    adds_up = False

    def __init__(self) -> None:
        super().__init__()
        self.site = PlacedCluster().add_nodes(**DISKS)
        self.site.adds_up = self.adds_up
        for kind, (locality, copies) in KINDS.items():
            self.site.add_class(kind, dataLocality=locality, numberOfReplicas=str(copies))
        self.pods: dict[str, Asked] = {}
        self.count = 0

    def one(self, which: int, *, is_chosen: bool) -> Asked | None:
        """Any of the pods whose node is chosen, or not."""
        pods = [pod for pod in self.pods.values() if bool(pod.chosen) is is_chosen]
        return pods[which % len(pods)] if pods else None

    # Users

    @rule(volumes=st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(1, 3)), min_size=1, max_size=3), at=AT)
    def create(self, volumes: list[tuple[str, int]], at: set[str]) -> None:
        if len(self.pods) >= MOST_PODS:
            return
        self.count += 1
        name = f"p{self.count}"
        claims = {f"{name}-{number}": kind for number, (kind, _) in enumerate(volumes)}
        for claim, (kind, gib) in zip(claims, volumes, strict=True):
            self.site.add_claim(claim, gib, class_name=kind)
        self.pods[name] = Asked(name, claims)
        self.site.add_pod(name, *claims, created=EPOCH)
        self.ask_about(self.pods[name], at)

    @rule(which=WHICH, at=AT)
    def ask(self, which: int, at: set[str]) -> None:
        pod = self.one(which, is_chosen=False)
        if pod is not None:
            self.ask_about(pod, at)

    def ask_about(self, pod: Asked, at: set[str]) -> None:
        passed = tuple(sorted(self.site.offered(pod.name, *sorted(at))))
        pod.offered = tuple(dict.fromkeys((*pod.offered, *passed))) if self.adds_up else passed

    @rule(which=WHICH, node=WHICH, how=st.sampled_from(["select", "nominate", "bind"]))
    def choose(self, which: int, node: int, how: str) -> None:
        pod = self.one(which, is_chosen=False)
        if pod is None or not pod.offered:
            return
        pod.chosen = pod.offered[node % len(pod.offered)]
        if how == "nominate":
            self.site.change_pod(pod.name, nominated_node=pod.chosen)
        for claim in pod.claims.keys() - pod.made:
            self.site.select_node(claim, pod.chosen)
        if how == "bind" or pod.made:
            pod.is_early = pod.claims.keys() > pod.made
            self.site.bind(pod.name, pod.chosen)

    @rule(which=WHICH)
    def ask_about_a_chosen_one(self, which: int) -> None:
        pod = self.one(which, is_chosen=True)
        if pod is not None and not self.site.pods[pod.name].node_name:
            pod.offered = tuple(sorted(self.site.offered(pod.name, *DISKS)))
            self.check_answer(pod)

    def check_answer(self, pod: Asked) -> None:
        """The choice stands."""
        assert (pod.chosen,) == pod.offered

    @rule(which=WHICH, is_chosen=st.booleans())
    def delete(self, which: int, is_chosen: bool) -> None:
        pod = self.one(which, is_chosen=is_chosen)
        if pod is None:
            return
        del self.pods[pod.name]
        self.site.drop_pod(pod.name)
        for claim in pod.claims:
            volume = f"pvc-uid-{claim}"
            self.site.drop_claim(claim)
            self.site.allocator.observe_pv(volume, None)
            self.site.allocator.observe_volume(volume, None)
            for number in (1, 2):
                self.site.allocator.observe_replica(f"{volume}-r-{number}", None)

    # Longhorn

    @rule(which=WHICH, is_attached=st.booleans())
    def make(self, which: int, is_attached: bool) -> None:
        """A volume is made; once all are, the pod is bound."""
        pod = self.one(which, is_chosen=True)
        if pod is None:
            return
        for claim, kind in pod.claims.items():
            if claim not in pod.made:
                pod.made.add(claim)
                locality, copies = KINDS[kind]
                node = pod.chosen if is_attached else ""
                self.site.provision(claim, created=LATEST, copies=copies, locality=locality, attached_to=node)
                return
        self.site.bind(pod.name, pod.chosen)

    @rule(which=WHICH, is_answered=st.booleans())
    def place(self, which: int, is_answered: bool) -> None:
        """The leader looks at each copy of the pod's volumes."""
        pod = self.one(which, is_chosen=True)
        for claim in pod.made if pod is not None else ():
            assert pod is not None
            for number in range(1, KINDS[pod.claims[claim]][1] + 1):
                name = f"pvc-uid-{claim}-r-{number}"
                turn = self.site.turn(name)
                assert not turn.fault
                if turn.step is TurnStep.PLACE:
                    facts = self.site.store(turn) if is_answered else self.site.written(turn)
                    self.site.allocator.observe_replica(name, facts)

    # Time and leaders

    @rule()
    def time_goes_by(self) -> None:
        """What was offered and not chosen may end."""
        self.site.pass_time(6)
        for pod in self.pods.values():
            pod.offered = ()

    @rule()
    def change_leader(self) -> None:
        self.site.change_leader()

    # What holds

    @invariant()
    def no_byte_is_given_twice(self) -> None:
        for name, sizes in DISKS.items():
            for number, gib in enumerate(sizes):
                uuid = f"{name}-d{number}"
                lies = sum(one.size_bytes for one in self.site.allocator._world.replicas_on(uuid))
                taken = lies + self.site.table.taken_bytes(name, uuid)
                assert taken <= gib * GIB, f"{uuid}: {taken / GIB}"

    @invariant()
    def who_was_let_through_has_his_places(self) -> None:
        for pod in self.pods.values():
            for claim, kind in pod.claims.items() if pod.chosen else ():
                locality, copies = KINDS[kind]
                nodes = [place.node for place in self.places(f"pvc-uid-{claim}")]
                assert 1 <= len(nodes) <= copies, (claim, nodes)
                assert len(set(nodes)) == len(nodes), (claim, nodes)
                if copies == 1 and locality != "disabled":
                    assert [pod.chosen] == nodes, claim

    def places(self, volume: str) -> list[Place]:
        """Planned, or placed."""
        plan = self.site.table.plan(volume)
        replicas = self.site.allocator._world.replicas_of(volume).values()
        lie = [Place(one.node, one.disk_uuid, one.size_bytes) for one in replicas if one.node]
        return [*(plan.places if plan is not None else ()), *lie]

    @invariant()
    def what_is_offered_is_held(self) -> None:
        """Or planned, where its claims still name the node that was chosen before."""
        for pod in self.pods.values():
            hold = self.site.table.hold(f"pod-{pod.name}")
            for name in pod.offered if not (pod.chosen or pod.made) else ():
                assert hold is not None and hold.includes(name)
                volumes = {f"pvc-uid-{claim}" for claim in pod.claims}
                planned = {volume for volume in volumes if self.places(volume)} if hold.chosen == name else set[str]()
                assert volumes == hold.at(name).keys() | planned

    @invariant()
    def nothing_is_in_quarantine(self) -> None:
        assert () == self.site.allocator.snapshot().quarantined
        assert "" == self.site.allocator.failure

    def teardown(self) -> None:
        """When everything is gone, so are all plans and holds."""
        for pod in list(self.pods.values()):
            self.site.drop_pod(pod.name)
            for claim in pod.claims:
                self.site.drop_claim(claim)
                self.site.allocator.observe_volume(f"pvc-uid-{claim}", None)
        assert [] == self.site.table.plans()
        assert [] == [hold for source in Source for hold in self.site.table.holds(source)]


class ClosingMachine(SettleMachine):
    """Disks are closed and opened meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()

    @rule(which=WHICH)
    def close_or_open(self, which: int) -> None:
        uuids = [f"{name}-d{number}" for name, sizes in DISKS.items() for number, _ in enumerate(sizes)]
        self.closed ^= {uuids[which % len(uuids)]}
        for name, sizes in DISKS.items():
            disks = (builders.disk(f"d{number}", gib, node=name) for number, gib in enumerate(sizes))
            shut = (replace(one, allow_scheduling=one.uuid not in self.closed) for one in disks)
            self.site.put_node(builders.node(name, *shut))

    def check_answer(self, pod: Asked) -> None:
        """Unless a place there is lost: it is answered anew then, and the same node has to be chosen again."""
        hold = self.site.table.hold(f"pod-{pod.name}")
        if (pod.chosen,) != pod.offered or (hold is not None and hold.size_bytes):
            pod.chosen = ""

    @invariant()
    def who_was_let_through_has_his_places(self) -> None:
        """Or was told that one is lost. They stay held while nothing tells that the same node was chosen again."""
        for pod in self.pods.values():
            hold = self.site.table.hold(f"pod-{pod.name}")
            held = hold.volumes if hold is not None else frozenset[str]()
            for claim in pod.claims if pod.chosen and not pod.is_early else ():
                volume = f"pvc-uid-{claim}"
                assert volume in held or self.places(volume) or self.site.planner.has_lost(volume)

    @invariant()
    def nothing_is_planned_on_a_closed_disk(self) -> None:
        planned = {place.disk_uuid for plan in self.site.table.plans() for place in plan.places}
        assert not planned & self.closed


class OpenSettleMachine(SettleMachine):
    """Anybody may ask, so that answers add up."""

    adds_up = True
