"""Goals 2, 3A and 3B of the enhancement text: several volumes, drains, restarts; and the exact fit after a drain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.e2e.goals.cells import UnevenCell
from tests.e2e.goals.scenario import USUAL_DELAYS, RunEnd, Scenario

FILLED_SECONDS = 300.0
MOVED_SECONDS = 300.0


# Goal 2


def _four_volumes(cell: UnevenCell) -> RunEnd:
    claims = [f"c{number}" for number in range(1, 5)]
    for claim in claims:
        cell.claim(claim)
    cell.run_pod("p", *claims)
    cell.wait_pod_ready("p", FILLED_SECONDS)
    node, homes = cell.where()["p"], cell.homes()["p"]
    near = homes.count(node)
    return RunEnd(node == "n4" and near == len(homes) == 4, f"on {node}, {near} of its 4 volumes there")


SEVERAL_VOLUMES = Scenario(
    name="goal2",
    goal="2: a pod with four volumes of 100 GiB; nodes with one, two, three and four disks of 100 GiB",
    layout={f"n{disks}": (100,) * disks for disks in range(1, 5)},
    busy=("n4",),
    play=_four_volumes,
    times=10,
)


# Goal 3A and the exact fit after a drain


def fill_one_node(cell: UnevenCell, pods: int, **template: Any) -> None:
    """All pods of a StatefulSet run beside their data on the node `old`, and every node takes pods again."""
    others = [cell.short(node) for node in cell.nodes if node != cell.node("old")]
    cell.cordon(*others)
    cell.run_set(pods, **template)
    cell.wait_ready(pods, FILLED_SECONDS)
    cell.wait_data_on("old")
    cell.cordon(*others, lift=True)


def _drain(cell: UnevenCell) -> RunEnd:
    fill_one_node(cell, 4)
    cell.drain("old")
    return _ended_on(cell, {"roomy": 4})


def _drain_after_eviction(cell: UnevenCell) -> RunEnd:
    """Cordoned first: the data moves while the pods still run, and there is no room but theirs where it went."""
    fill_one_node(cell, 4)
    cell.cordon("old")
    cell.wait_data_on("roomy", MOVED_SECONDS)
    assert cell.counts() == {"old": 4}, f"pods moved before their data: {cell.counts()}"
    cell.drain("old")
    return _ended_on(cell, {"roomy": 4})


def _evicted_while_pending(cell: UnevenCell) -> RunEnd:
    """The pods cannot run anywhere for a while after the drain, and Longhorn evicts their detached volumes then."""
    fill_one_node(cell, 4)
    others = [cell.short(node) for node in cell.nodes if node != cell.node("old")]
    for short in others:
        _taint(cell, short, present=True)
    cell.drain("old")
    cell.wait_data_on("roomy", MOVED_SECONDS)
    assert not cell.bound(), f"pods moved before their data: {cell.counts()}"
    for short in reversed(others):  # the roomy one last, so that kube-scheduler alone takes another
        _taint(cell, short, present=False)
    return _ended_on(cell, {"roomy": 4})


def _taint(cell: UnevenCell, short: str, *, present: bool) -> None:
    taints = [{"key": "example.org/maintenance", "effect": "NoSchedule"}] if present else None
    cell.scene.api.patch(f"/api/v1/nodes/{cell.node(short)}", {"spec": {"taints": taints}})


def _ended_on(cell: UnevenCell, expected: dict[str, int]) -> RunEnd:
    """Where the pods are, and with the extender also whether their data came to them."""
    pods = sum(expected.values())
    cell.wait_bound(pods, FILLED_SECONDS)
    if cell.with_extender:
        cell.wait_ready(pods, FILLED_SECONDS)
        cell.wait_local(MOVED_SECONDS)
    counts = cell.counts()
    is_local = cell.with_extender and cell.is_local()
    spread = ", ".join(f"{count} on {node}" for node, count in counts.items())
    return RunEnd(counts == expected and is_local == cell.with_extender, f"{spread}{', all local' if is_local else ''}")


_TWO_LARGE_TWO_SMALL = {"roomy": (400,), "old": (400,), "small1": (99,), "small2": (99,)}
_EVICTING = {"node-drain-policy": "block-for-eviction"}

DRAIN = Scenario(
    name="goal3a",
    goal="3A: a drain of four pods; of the other nodes one has 400 GiB and two have 99 GiB",
    layout=_TWO_LARGE_TWO_SMALL,
    busy=("roomy",),
    play=_drain,
)
DRAIN_AT_ONCE = replace(
    DRAIN, name="goal3a-evicting", goal=f"{DRAIN.goal}; Longhorn evicts while the pods move", longhorn=_EVICTING
)
DRAIN_AFTER_EVICTION = replace(
    DRAIN,
    name="goal3a-data-first",
    goal=f"{DRAIN.goal}; the data moves while the pods still run",
    longhorn=_EVICTING,
    play=_drain_after_eviction,
)
DRAIN_WHILE_PENDING = replace(
    DRAIN,
    name="goal3a-pods-wait",
    goal=f"{DRAIN.goal}; the data moves while the pods are pending",
    longhorn=_EVICTING,
    play=_evicted_while_pending,
)


def _drain_restored(cell: UnevenCell) -> RunEnd:
    return _move_eight(cell, storageClassName=cell.class_from_backup())


def _drain_cloned(cell: UnevenCell) -> RunEnd:
    cell.claim("source")
    cell.cordon("left", "right")
    cell.run_pod("first", "source")
    cell.wait_pod_ready("first")
    cell.delete("pods", "first")
    cell.wait_gone("first")
    return _move_eight(cell, dataSource={"kind": "PersistentVolumeClaim", "name": "source"})


def _move_eight(cell: UnevenCell, **template: Any) -> RunEnd:
    """Eight pods go to two nodes with room for four each; a pod that comes while their data is under way gets none."""
    fill_one_node(cell, 8, **template)
    cell.drain("old")
    cell.wait_bound(8, FILLED_SECONDS)
    if cell.with_extender:
        cell.claim("late")
        cell.run_pod("late", "late")
        cell.wait_refused(1)
    return _ended_on(cell, {"left": 4, "right": 4})


EXACT = Scenario(
    name="drain-exact",
    goal="a drain of eight pods; the other two nodes have room for four each, and Longhorn begins to move data late",
    layout={"left": (400,), "right": (400,), "old": (1000,)},
    busy=("left",),
    play=_move_eight,
    times=20,
)
EXACT_RESTORED = replace(
    EXACT, name="drain-restored", goal=f"{EXACT.goal}; volumes restored from a backup", play=_drain_restored
)
EXACT_CLONED = replace(
    EXACT, name="drain-cloned", goal=f"{EXACT.goal}; volumes cloned from another", play=_drain_cloned
)


def late(scenario: Scenario, seconds: float) -> Scenario:
    """The same with a Longhorn that begins to move data only after so many seconds."""
    return replace(scenario, delays=replace(USUAL_DELAYS, relocate=seconds))


# Goal 3B


def _restart(cell: UnevenCell) -> RunEnd:
    wait: Callable[[int, float], None] = cell.wait_ready if cell.with_extender else cell.wait_bound
    cell.run_set(16)
    wait(16, FILLED_SECONDS)
    before = cell.where()
    cell.delete_set()
    cell.run_set(16)
    wait(16, FILLED_SECONDS)
    after = cell.where()
    back = sum(before[pod] == node for pod, node in after.items())
    return RunEnd(back == 16, f"{back} of 16 pods back on their nodes")


RESTART = Scenario(
    name="goal3b",
    goal="3B: a StatefulSet of sixteen pods made again, four nodes of 400 GiB, volumes retained",
    layout={f"n{number}": (400,) for number in range(1, 5)},
    busy=("n1", "n2"),
    reclaim="Retain",
    play=_restart,
)


# A pod whose node is cordoned while all others are full


def _away_from_home(cell: UnevenCell) -> RunEnd:
    cell.cordon("home")
    for name in ("full1", "full2"):
        cell.claim(name)
        cell.run_pod(name, name)
        cell.wait_pod_ready(name)
    cell.cordon("home", lift=True)
    cell.run_set(1, name="db")
    cell.wait_pod_ready("db-0")
    assert cell.where()["db-0"] == "home"
    cell.cordon("home")
    cell.delete("pods", "db-0")
    cell.wait_refused(1, 30)
    cell.wait_pod_ready("db-0", 120)
    node, data = cell.where()["db-0"], set(cell.data()["data-db-0"]) - {""}
    return RunEnd(node != "home" and data == {"home"}, f"refused at first, then on {node} with its data on {data}")


CORDONED_HOME = Scenario(
    name="cordoned-home",
    goal="a database whose node is cordoned while all others are full",
    layout={"home": (100,), "full1": (100,), "full2": (100,)},
    play=_away_from_home,
    has_counter=False,
)


def after_seconds(scenario: Scenario, seconds: int) -> Scenario:
    """The same with another limit for pods that have to run apart from their data."""
    return replace(scenario, product={"remote_fallback_after": str(seconds)})
