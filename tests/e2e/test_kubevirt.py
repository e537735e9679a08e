"""Virtual machines beside the share-managers of their shared volumes, on the real kube-scheduler.

The pods have the shape that KubeVirt's virt-controller gives them, and the share-managers that of Longhorn's; neither
of the two runs here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from controller.rules.reasons import Reason
from tests.e2e import workloads
from tests.e2e.harness import FILL_CPU, NODES, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.served_machines import MIGRATION_JOB, WAIT_SECONDS, Machines
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MakeCell = Callable[..., Cell]
URGENT, DEAR = "machine-urgent", "machine-dear"  # DEAR: kube-scheduler evicts others before such a pod
ELSEWHERE = Reason.SERVED_ELSEWHERE.text


@pytest.fixture(scope="module", autouse=True)
def priorities(shared_scene: Scene) -> None:
    for name, value in ((URGENT, 1000), (DEAR, 10)):
        shared_scene.api.create(workloads.PRIORITIES, {"metadata": {"name": name}, "value": value})


@pytest.fixture
def machines(scene: Scene, make_cell: MakeCell) -> Iterator[Machines]:
    found = Machines(scene, make_cell(nodes=5, fillers=0))
    yield found
    found.end()
    scene.set_settings(co_schedule_strictness="required", co_schedule_fallback_after="0")


@pytest.mark.parametrize("count", [6, pytest.param(20, marks=pytest.mark.long)])
def test_a_virtual_machine_runs_where_its_volume_is_served(machines: Machines, count: int) -> None:
    """All of them. A kube-scheduler that does not ask us spreads the same pods over the nodes."""
    there = machines.cell.nodes[3]
    machines.serve(there)
    without_us = [machines.begin(opted_in=False, schedulerName=STOCK_SCHEDULER) for _ in range(count)]
    spread = Counter(map(machines.wait_node, without_us))
    print(f"without the extender: {sorted(spread.values())}")
    assert 3 <= len(spread) and spread[there] < count / 2, spread
    assert {there: count} == Counter(machines.start() for _ in range(count))


def test_a_machine_that_migrates_leaves_the_node(machines: Machines) -> None:
    """Its data lies there as well: that draws it no more than the share-manager does."""
    (there,) = machines.replica_nodes(1)
    machines.serve(there)
    names = [machines.begin(labels={MIGRATION_JOB: "job"}) for _ in range(4)]
    assert {there} != set(map(machines.wait_node, names))


@pytest.mark.parametrize(
    "migratable", ["false", pytest.param("true", marks=pytest.mark.long)], ids=["served", "migratable"]
)
def test_a_machine_migrates_also_when_the_nodes_with_its_data_are_full(
    scene: Scene, make_cell: MakeCell, migratable: str
) -> None:
    """It is not held back where its volume is served, nor where its replicas lie."""
    cell = make_cell(nodes=4, fillers=0)
    several = cell.add_class("two", replicas=2, parameters={"migratable": migratable})
    machines = Machines(scene, cell, class_name=several)
    full = machines.replica_nodes(2)
    machines.serve(full[0])
    try:
        source = full[0]
        machines.occupy(*full)
        target = machines.start(labels={MIGRATION_JOB: "job"}, cpu=FILL_CPU, away_from=source)
    finally:
        machines.end()
    assert target in set(cell.nodes) - set(full)


def test_a_refused_machine_follows_the_share_manager_to_another_node(machines: Machines) -> None:
    first, second = machines.cell.nodes[1], machines.cell.nodes[2]
    machines.serve(first)
    name = machines.begin(away_from=first)  # not by a cordon, which kube-scheduler may hear of after the machine
    machines.wait_verdict(name, ELSEWHERE)
    assert "" == machines.node_of(name)
    machines.serve(second)
    assert second == machines.wait_node(name)


@pytest.mark.long
def test_preferred_lets_it_run_elsewhere_when_the_node_takes_nothing(machines: Machines) -> None:
    there = machines.cell.nodes[1]
    machines.scene.set_settings(co_schedule_strictness="preferred")
    machines.serve(there)
    wait_until(lambda: there == machines.start(), "a machine beside its share-manager", WAIT_SECONDS)
    machines.scene.api.patch(f"/api/v1/nodes/{there}", {"spec": {"unschedulable": True}})
    wait_until(lambda: there != machines.start(), "a machine elsewhere", WAIT_SECONDS)


# The share-manager's node is full


PREFERRED, LATE = {"co_schedule_strictness": "preferred"}, {"co_schedule_fallback_after": "1"}


@pytest.mark.parametrize(
    ("lacks", "setting"),
    [
        ("CPU", PREFERRED),
        ("Longhorn room", LATE),
        pytest.param("CPU", LATE, marks=pytest.mark.long),
        pytest.param("Longhorn room", PREFERRED, marks=pytest.mark.long),
    ],
    ids=["CPU-preferred", "Longhorn room-late", "CPU-late", "Longhorn room-preferred"],
)
def test_a_machine_waits_for_a_full_node_until_it_may_run_elsewhere(
    machines: Machines, lacks: str, setting: dict[str, str]
) -> None:
    there = machines.cell.nodes[1]
    machines.serve(there)
    if lacks == "CPU":
        machines.occupy(there)
        name = machines.begin(cpu=FILL_CPU)
        machines.wait_verdict(name, "1 Insufficient cpu", f"4 {ELSEWHERE}")
    else:
        machines.fill_disk(there, 350)
        machines.cell.claim("data", 100)
        name = machines.begin("data")
        machines.wait_verdict(name, f"1 {Reason.INSUFFICIENT_STORAGE.text}", f"4 {ELSEWHERE}")
    machines.scene.set_settings(**setting)
    assert machines.wait_node(name) in set(machines.cell.nodes) - {there}


def test_a_machine_runs_elsewhere_once_the_node_of_its_share_manager_is_gone(machines: Machines) -> None:
    """The share-manager's pod is still there: Kubernetes deletes it after forty seconds."""
    there = next(node for node in machines.cell.nodes if node != machines.first)
    machines.serve(there)
    machines.occupy(there)
    name = machines.begin(cpu=FILL_CPU)
    machines.wait_verdict(name, f"4 {ELSEWHERE}")
    machines.scene.api.delete(f"{NODES}/{there}")
    assert machines.wait_node(name, 20) in set(machines.cell.nodes) - {there}


def test_a_node_that_lacks_cpu_is_the_only_one_where_anybody_may_be_evicted(machines: Machines) -> None:
    """All others have free CPU, but are refused so that eviction would not help there."""
    there = machines.cell.nodes[1]
    machines.serve(there)
    machines.occupy(there)
    modest = machines.begin(cpu=FILL_CPU)
    others = len(machines.scene.api.list(NODES)["items"]) - 1
    told = "1 No preemption victims found", f"{others} Preemption is not helpful for scheduling"
    machines.wait_verdict(modest, f"4 {ELSEWHERE}", *told)
    assert {there} == machines.occupied()
    assert there == machines.start(cpu=FILL_CPU, priorityClassName=URGENT)
    assert set() == machines.occupied()


@pytest.mark.long
def test_nobody_is_evicted_for_a_machine_where_it_may_not_run(machines: Machines) -> None:
    """With all nodes full the extender is asked about victims first. kube-scheduler alone would take them anywhere
    else, since they cost less there."""
    there, *_ = machines.cell.nodes
    machines.serve(there)
    machines.occupy(*machines.cell.nodes, priority={there: DEAR})
    assert there == machines.start(cpu=FILL_CPU, priorityClassName=URGENT)
    assert set(machines.cell.nodes) - {there} == machines.occupied()
