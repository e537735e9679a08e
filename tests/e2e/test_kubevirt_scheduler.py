"""A kube-scheduler of its own for virtual machines, as the proposal has it: a stock one under another name, to which
all its pods' questions go to the extender, whether they ask for the flag resource or not. The webhook does not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.harness import GIB, Cell, Scene
from tests.e2e.second_scheduler import second
from tests.e2e.served_machines import Machines
from tests.e2e.view import LONGHORN_REPLICAS
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME = "kubevirt-scheduler"
VMS, BURST, ROOM = 8, 32, 16
MakeCell = Callable[..., Cell]


@pytest.fixture(scope="module", autouse=True)
def scheduler(shared_scene: Scene) -> Iterator[None]:
    """With a log of all scores."""
    config = second(shared_scene, NAME, all_pods=True)
    shared_scene.cluster.start_scheduler(config, name=NAME, flags={"v": "10"})
    yield
    shared_scene.cluster.stop_scheduler(NAME)


@pytest.fixture
def machines(scene: Scene, make_cell: MakeCell) -> Iterator[Machines]:
    found = Machines(scene, make_cell(nodes=5, fillers=0))
    yield found
    found.end()
    scene.set_settings(co_schedule_strictness="required")


def begin(machines: Machines) -> str:
    """The pod of the proposal's own manifest of a virtual machine, in which nothing but the annotation and the name of
    the scheduler speaks of us."""
    return machines.begin(opted_in=False, schedulerName=NAME)


def test_the_annotation_alone_brings_a_machine_to_its_share_manager(machines: Machines) -> None:
    there = machines.cell.nodes[2]
    machines.serve(there)
    names = [begin(machines) for _ in range(VMS)]
    assert {there: VMS} == Counter(map(machines.wait_node, names))


ANSWERED, TOTAL, PLUGIN = "Extender scored node", "Calculated node's final score", "Plugin scored node"


def scores_of(scene: Scene, pod: str) -> dict[str, Counter[str]]:
    """What kube-scheduler's log says of a pod, by node: the extender's score as it answered, the total, and the sum of
    all plugins' scores."""
    found = {words: Counter[str]() for words in (ANSWERED, TOTAL, PLUGIN)}
    for line in scene.cluster.scheduler_log(NAME).read_text().splitlines():
        match = re.search(r'"([^"]+) for pod" pod="[^"]+/([^"]+)".* node="([^"]+)" score=(\d+)', line)
        if match is not None and match[1] in found and match[2] == pod:
            found[match[1]][match[3]] += int(match[4])
    return found


def test_the_score_is_a_hundred_in_the_schedulers_own_log(scene: Scene, machines: Machines) -> None:
    scene.set_settings(co_schedule_strictness="preferred")
    nodes = machines.cell.nodes
    machines.serve(nodes[2])
    name = begin(machines)
    assert nodes[2] == machines.wait_node(name)
    wait_until(lambda: len(scores_of(scene, name)[TOTAL]) == len(nodes), "all totals in the log")
    said = scores_of(scene, name)
    assert {**dict.fromkeys(nodes, 0), nodes[2]: 10} == dict(said[ANSWERED])
    assert {**dict.fromkeys(nodes, 0), nodes[2]: 100} == {
        node: said[TOTAL][node] - said[PLUGIN][node] for node in nodes
    }


@pytest.mark.long
def test_two_schedulers_that_burst_for_the_last_space_promise_no_byte_twice(scene: Scene, make_cell: MakeCell) -> None:
    """Room for sixteen volumes, and twice thirty-two pods at once, half of them without the flag resource."""
    cell = make_cell(nodes=4, fillers=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cell.claim, [f"data-{number}" for number in range(2 * BURST)]))
        list(pool.map(lambda number: start(cell, number), range(2 * BURST)))
    cell.wait_ready(ROOM, 120)
    cell.wait_refused(2 * BURST - ROOM, 60)
    assert [] == scene.judge(cell).complaints()
    assert dict.fromkeys(cell.nodes, 400 * GIB) == replica_bytes(cell)
    refused = [(pod["spec"]["schedulerName"], cell.verdict(pod["metadata"]["name"])) for pod in cell.refused()]
    assert {"default-scheduler", NAME} == {scheduler for scheduler, verdict in refused if "Longhorn: " in verdict}


def start(cell: Cell, number: int) -> None:
    """Both schedulers' pods by turns."""
    options: dict[str, Any] = {"opted_in": False, "schedulerName": NAME} if number % 2 else {}
    cell.pod(f"p-{number}", f"data-{number}", **options)


def replica_bytes(cell: Cell) -> dict[str, int]:
    """What lies on each node, by the API server's Replica objects."""
    found = Counter[str]()
    for replica in cell.scene.api.list(LONGHORN_REPLICAS)["items"]:
        if replica["spec"]["nodeID"] in cell.nodes:
            found[replica["spec"]["nodeID"]] += int(replica["spec"]["volumeSize"])
    return dict(found)
