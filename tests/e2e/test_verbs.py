"""The verbs beside filter, on the real kube-scheduler: whom a preemption may evict, and bindings that we make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e import workloads
from tests.e2e.harness import FILL_CPU, Cell, Scene
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

URGENT = "urgent"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MakeCell = Callable[..., Cell]
StartScheduler = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def urgent(shared_scene: Scene) -> None:
    shared_scene.api.create(workloads.PRIORITIES, {"metadata": {"name": URGENT}, "value": 1000})


def occupy(cell: Cell) -> None:
    """A pod without priority in the way on every node of the cell but the last.

    They end with a grace, as pods do: kube-scheduler 1.34 may preempt twice in a row, and leaves the pod asleep when
    the second time its victim is gone without one.
    """
    for node in cell.nodes[:-1]:
        filler = workloads.filler(f"low-{node}", node, cpu=FILL_CPU, memory="1Gi")
        filler["spec"]["terminationGracePeriodSeconds"] = 1
        cell.create("pods", filler)


def ask(cell: Cell, scheduler: str) -> None:
    """An urgent pod with a claim of 100 GiB that does not fit beside another one."""
    main = workloads.container("v0")
    main["resources"]["requests"]["cpu"] = FILL_CPU
    cell.ask("high", priorityClassName=URGENT, schedulerName=scheduler, containers=[main])


def names(cell: Cell) -> set[str]:
    return {str(pod["metadata"]["name"]) for pod in cell.pods()}


def dropped(scene: Scene) -> int:
    return scene.controllers[-1].counted('preemption_candidates_total{kept="false"}')


def attempt(scene: Scene, cell: Cell, number: int) -> None:
    """Have the scheduler look at the pod again, and wait until it has asked whom it may evict."""
    before = dropped(scene)
    patch: dict[str, Any] = {"metadata": {"annotations": {"attempt": str(number)}}}
    scene.api.patch(cell.path("pods", "high"), patch)
    wait_until(lambda: dropped(scene) > before, "another question about victims", 60)


def test_nobody_is_evicted_where_longhorn_has_no_room_anyway(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler
) -> None:
    """Every node with free CPU lacks Longhorn room, and so does every node with victims."""
    cell = make_cell(nodes=3, disks_gib=(50,), fillers=0)
    occupy(cell)
    before = dropped(scene)
    ask(cell, start_scheduler("preempting-scheduler"))
    wait_until(lambda: dropped(scene) > before, "a question about victims", 60)
    for number in range(3):
        attempt(scene, cell, number)

    assert names(cell) == {"high", *(f"low-{node}" for node in cell.nodes[:-1])}
    scene.controllers[-1].wait_ledger_empty()


def test_without_the_verb_a_pod_is_evicted_for_nothing(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler
) -> None:
    cell = make_cell(nodes=2, disks_gib=(50,), fillers=0)
    occupy(cell)
    ask(cell, start_scheduler("evicting-scheduler", preempt=False))

    cell.wait_gone(f"low-{cell.nodes[0]}")
    assert not cell.bound()


def test_the_one_node_whose_victim_makes_place_is_chosen(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler
) -> None:
    cell = make_cell(nodes=4, fillers=0)
    roomy = cell.nodes[1]
    for node in cell.nodes:
        if node != roomy:
            cell.allow_scheduling(node, allowed=False)
    occupy(cell)
    ask(cell, start_scheduler("choosing-scheduler"))

    cell.wait_pod_ready("high")
    assert names(cell) == {"high", *(f"low-{node}" for node in cell.nodes[:-1] if node != roomy)}
    assert {roomy} == {pod["spec"]["nodeName"] for pod in cell.pods() if pod["metadata"]["name"] == "high"}


def test_pods_that_we_bind_are_bound_as_exactly_as_those_of_the_scheduler(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler, may_bind: None
) -> None:
    cell = make_cell(nodes=2, fillers=1)
    cell.stateful_set(replicas=8, scheduler=start_scheduler("binding-scheduler", bind=True))
    scene.assert_exactly_full(cell)


def test_without_managed_resources_every_pod_is_bound(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler, may_bind: None
) -> None:
    """As in Kubernetes' own text about extenders, with a path of its own: also pods that have no claims, and in
    bypass."""
    cell = make_cell(nodes=2, fillers=0)
    wired: dict[str, Any] = {"path": "/api/scheduler", "preempt": False, "node_cache_capable": False}
    options: dict[str, Any] = {"opted_in": False}
    options["schedulerName"] = start_scheduler("binding-all", bind=True, managed=False, **wired)
    cell.ask("claims", **options)
    cell.pod("none", **options)
    for name in ("claims", "none"):
        cell.wait_pod_ready(name)
    scene.set_settings(bypass="true")
    try:
        cell.pod("bypass", **options)
        cell.wait_pod_ready("bypass")
    finally:
        scene.set_settings(bypass="false")


def test_what_cannot_be_bound_is_told_in_the_api_servers_words(scene: Scene, cell: Cell, may_bind: None) -> None:
    def bind(name: str, uid: str, node: str = cell.nodes[0]) -> str:
        words = {"PodName": name, "PodNamespace": cell.namespace, "PodUID": uid, "Node": node}
        answer = scene.call("/bind", json.dumps(words).encode())
        assert answer.status == 200
        return str(answer.body["Error"])

    made = cell.pod("p", opted_in=False, schedulerName="nobody")
    uid = str(made["metadata"]["uid"])
    assert "not found" in bind("gone", "u")
    assert "uid" in bind("p", "another").casefold()
    assert "" == bind("p", uid)
    for node in cell.nodes[:2]:
        assert "already assigned" in bind("p", uid, node)
    lost = cell.pod("lost", opted_in=False, schedulerName="nobody")
    assert "" == bind("lost", str(lost["metadata"]["uid"]), "no-such-node")  # as kube-scheduler's own binding


@pytest.mark.parametrize("strategy", ["pack", pytest.param("spread", marks=pytest.mark.long)])
def test_the_strategy_decides_between_nodes_that_are_equal_otherwise(scene: Scene, cell: Cell, strategy: str) -> None:
    scene.set_settings(strategy=strategy)
    try:
        for number in range(2):
            cell.ask(f"p{number}", gib=200)
            cell.wait_pod_ready(f"p{number}")
    finally:
        scene.set_settings(strategy="spread")

    assert {"pack": 1, "spread": 2}[strategy] == len({pod["spec"]["nodeName"] for pod in cell.pods()})


@pytest.fixture(scope="module")
def may_bind(shared_scene: Scene) -> None:
    """What the documents tell users to grant for the bind verb."""
    role = {
        "metadata": {"name": "bind-pods"},
        "rules": [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}],
    }
    binding = {
        "metadata": {"name": "bind-pods"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bind-pods"},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE, "namespace": NAMESPACE}],
    }
    shared_scene.api.create(f"{RBAC}/clusterroles", role)
    shared_scene.api.create(f"{RBAC}/clusterrolebindings", binding)
