"""What a term begins and ends with, and what all parts of placing do together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocator.plans.plan import Plan
from controller.errors import NotLeaderError, UnavailableError
from controller.kube.resources import CONFIG_MAPS, LONGHORN_REPLICAS, SERVICE_ACCOUNTS
from controller.model.names import GATE, RENEWED_ANNOTATION, SINCE_ANNOTATION, TERM_ANNOTATION
from controller.model.places import Place
from controller.placement.build import DISK_OPENERS
from controller.placement.plan_objects import Loaded
from controller.process.common_metrics import PREFIX
from tests.fakes.builders import GIB
from tests.unit.placement.plan_stage import hold
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.placement.whole_leader import WholeLeader


@pytest.fixture
def cell() -> ReplicaCell:
    found = ReplicaCell(n1=100)
    found.api.date = found.clock.now_utc
    found.api.put(SERVICE_ACCOUNTS, NAMESPACE, {"metadata": {"name": GATE}})
    return found


def plan(leader: WholeLeader, volume: str = "v") -> Plan:
    return Plan(volume, f"uid-{volume}", (Place("n1", "n1-d1", 10 * GIB),), (), leader.cell.clock.now_utc())


# Terms


@pytest.mark.parametrize("term", [0, 1])
def test_a_term_has_a_name_of_its_own_and_fences_by_it(cell: ReplicaCell, term: int) -> None:
    leader = WholeLeader(cell)
    names = list[str]()
    for _ in range(2):
        leader.begin(term)
        names.append(leader.terms.name)
        assert leader.terms.name == leader.annotation(TERM_ANNOTATION)
    assert 2 == len(set(names))
    assert {str(term)} == {name.partition("-")[0] for name in names}


def test_a_try_that_failed_goes_on_under_its_name(cell: ReplicaCell) -> None:
    """Under another one it would take what it has written itself for the term of the leader before."""
    leader = WholeLeader(cell)
    leader.begin()
    leader.checks.term = 2
    cell.api.fail_with(UnavailableError("503"), "list", about=LONGHORN_REPLICAS)
    with pytest.raises(UnavailableError):
        leader.terms.fence(2)
    failed = leader.terms.name
    assert failed == leader.annotation(TERM_ANNOTATION)
    cell.api.work()
    leader.terms.fence(2)
    assert failed == leader.terms.name


def test_a_begin_that_fails_after_the_fence_does_not_lengthen_the_gates_time(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    stamps = set[tuple[str, str]]()
    cell.api.fail_with(UnavailableError("503"), about=CONFIG_MAPS)
    for _ in range(3):
        leader.terms.fence(1)
        stamps.add((leader.annotation(SINCE_ANNOTATION), leader.annotation(RENEWED_ANNOTATION)))
        with pytest.raises(UnavailableError):
            leader.terms.load(1)
        cell.clock.advance(20)
    assert 1 == len(stamps)


def test_who_does_not_hold_the_lease_fences_nobody(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    leader.holds_lease = False
    with pytest.raises(NotLeaderError):
        leader.terms.fence(1)
    assert "" == leader.annotation(TERM_ANNOTATION)


def test_a_term_goes_on_with_what_the_one_before_stored_at_its_end(cell: ReplicaCell) -> None:
    first = WholeLeader(cell)
    assert Loaded() == first.begin()
    planned, held = plan(first), hold("pod", "n1")
    first.parts.placer._plans.put(planned, held)
    first.terms.end()

    assert Loaded((planned,), (held,)) == WholeLeader(cell).begin(2)


# A leader


def test_a_replica_that_appears_is_placed_under_the_name_of_the_term(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    leader.terms.fence(1)
    managers = list[str]()
    cell.api.admit = lambda _resource, _old, _new, manager: managers.append(manager)
    name = cell.add("v")
    leader.round()
    assert ("n1", [f"longhorn-scheduler-extender-{leader.terms.name}"]) == (cell.node_of(name), managers)

    leader.round()
    assert ((), True) == (leader.status("placement")["replicas"], leader.placer.is_alive())
    assert 1 == leader.registry.get_sample_value(f"{PREFIX}_replica_placements_total", {"outcome": "placed"})


def test_a_volume_that_shows_late_has_its_replica_placed_at_once(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    name = cell.put_replica("v")
    assert {"no-volume": 1} == leader.round().status("placement")["waiting"]
    cell.put_volume("v")
    leader.round()
    assert "n1" == cell.node_of(name)


def replica_gone(cell: ReplicaCell) -> None:
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, "old-r-1")


def larger_disk(cell: ReplicaCell) -> None:
    cell.put_node("n1", 200)


def another_node(cell: ReplicaCell) -> None:
    cell.put_node("n2", 100)


@pytest.mark.parametrize("give", [larger_disk, another_node, replica_gone])
def test_what_waits_is_placed_as_soon_as_room_appears(cell: ReplicaCell, give: Callable[[ReplicaCell], None]) -> None:
    cell.put_volume("old", 90)
    cell.put_replica("old", gib=90, nodeID="n1", diskID="n1-d1")
    name = cell.add("v", 20)
    leader = WholeLeader(cell)
    for _ in range(30):
        leader.round(1)
    leader.round(0.1)
    assert "" == cell.node_of(name)
    give(cell)
    leader.round()
    assert cell.node_of(name)


@pytest.mark.parametrize("kind", DISK_OPENERS)
def test_whatever_else_may_open_a_disk_has_it_looked_at_again(cell: ReplicaCell, kind: str) -> None:
    leader = WholeLeader(cell)
    leader.placer.unplaced.take()
    leader.stores[kind].apply("ADDED", {"metadata": {"name": "any"}, "spec": {}, "status": {}})
    assert leader.placer.unplaced.take().has_room


def test_the_gate_is_renewed_while_the_placer_lives(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    leader.terms.fence(1)
    (gate,) = (one.part for one in leader.parts.parts if one.name == "placement_gate")
    (worker,) = gate.workers

    def renewed(seconds: int) -> str:
        for _ in range(seconds):
            leader.round(1) if is_turning else cell.clock.advance(1)
            worker._run()
        return leader.annotation(RENEWED_ANNOTATION)

    is_turning = True
    first = renewed(4)
    assert first < (second := renewed(4))
    is_turning = False
    renewed(10)
    assert second <= (last := leader.annotation(RENEWED_ANNOTATION)) == renewed(10)
    assert last


def test_what_is_held_and_then_planned_is_stored_and_goes_from_there_with_its_volume(cell: ReplicaCell) -> None:
    leader = WholeLeader(cell)
    leader.begin()
    leader.see()

    def stored() -> str:
        leader.round()
        leader.terms.end()
        maps = cell.api.list_page(CONFIG_MAPS, NAMESPACE).items
        return "".join(one["data"]["plans"] for one in maps)

    leader.cluster.ask("pod", 10, "n1")
    assert '"volumes":[["pvc-uid-pod",' in stored()
    leader.cluster.select_node("pod", "n1")
    assert '"volume":"pvc-uid-pod"' in stored()
    leader.cluster.drop_pod("pod")
    leader.cluster.drop_claim("pod")
    assert "" == stored()
