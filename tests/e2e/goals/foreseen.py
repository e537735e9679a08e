"""What `simulate` says on the living cluster, and then what happens: goals 1 and 2, a drain, a lost node.

Compared are the pods that find a place and those that do not, and the bytes on each node where only one outcome is
possible. Which of several equal pods is refused, and which of several nodes with room a pod gets, may differ.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.goals import placing
from tests.e2e.goals.cells import UnevenCell
from tests.e2e.goals.scenario import RunEnd, Scenario
from tests.e2e.harness import longhorn_node
from tests.e2e.placed import REPLICAS
from tests.e2e.view import LONGHORN_REPLICAS, LONGHORN_VOLUMES

GIB: Final = 2**30
SECONDS: Final = 240.0
_FAILED: Final = {"spec": {"failedAt": "2026-01-01T00:00:00Z", "rebuildRetryCount": 5}}


@dataclass(frozen=True, slots=True)
class Foreseen:
    """How many of the cell's pods have a place and how many have none, GiB of copies by node, and claims that lack
    copies."""

    placed: int
    refused: int
    gib: Mapping[str, int]
    short: frozenset[str] = frozenset()


def foresee(cell: UnevenCell, *words: str, files: Sequence[Object] = ()) -> Foreseen:
    """What the command says of the cell, on the living cluster. It writes nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": list(files)}, file)
        file.flush()
        given = ("-f", file.name, "-n", cell.namespace) if files else ()
        kubeconfig = cell.scene.cluster.kubeconfig
        done = cell.scene.run("controller", "simulate", "-o", "json", *given, *words, kubeconfig=kubeconfig)
    if done.returncode not in (0, 1):
        raise AssertionError(f"simulate: {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    states = Counter(one["state"] for one in found["pods"] if one["namespace"] == cell.namespace)
    gib = Counter[str]()
    for disk in found["disks"]:
        if disk["node"] in cell.nodes:
            gib[cell.short(disk["node"])] += disk["used_after"] // GIB
    about = (one for one in found["findings"] if one["kind"] == "volume")
    short = {one["about"].partition("/")[2] for one in about if one["about"].startswith(f"{cell.namespace}/")}
    return Foreseen(states["placed"], states["refused"], dict(sorted(gib.items())), frozenset(short))


def seen(cell: UnevenCell, *, lost: str = "") -> Foreseen:
    """What the cluster shows. `lost`: a node whose copies count no more."""
    pods = cell.pods()
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    gib, there = dict.fromkeys(map(cell.short, cell.nodes), 0), Counter[str]()
    for replica in cell.scene.view.all(LONGHORN_REPLICAS):
        spec = replica["spec"]
        node = cell.short(spec.get("nodeID") or "")
        if node in gib and node != lost and not spec.get("failedAt"):
            gib[node] += int(spec["volumeSize"]) // GIB
            there[spec["volumeName"]] += 1
    wanted = {one["metadata"]["name"]: one["spec"]["numberOfReplicas"] for one in cell.scene.view.all(LONGHORN_VOLUMES)}
    claims = ((one["metadata"]["name"], one["spec"].get("volumeName", "")) for one in cell.claims())
    short = {name for name, volume in claims if volume in wanted and there[volume] < wanted[volume]}
    return Foreseen(placed, len(pods) - placed, dict(sorted(gib.items())), frozenset(short))


def _compared(cell: UnevenCell, said: Foreseen, look: Callable[[], Foreseen]) -> RunEnd:
    """Waits until what is seen is what was said."""
    try:
        cell.wait(lambda: look() == said, "what was foreseen", SECONDS)
    except TimeoutError:
        return RunEnd(False, f"foreseen {said}, seen {look()}")
    return RunEnd(True, f"as foreseen: {said}")


def _burst(cell: UnevenCell) -> RunEnd:
    """Goal 1: a StatefulSet whose pods all come at once, one more than there is room for."""
    said = foresee(cell, files=[cell.set_body(5)])
    cell.run_set(5)
    cell.wait_ready(4, SECONDS)
    cell.wait_refused(1, SECONDS)
    return _compared(cell, said, lambda: seen(cell))


def _four_volumes(cell: UnevenCell) -> RunEnd:
    """Goal 2: a pod with four volumes, which fits on one node alone."""
    names = [f"c{number}" for number in range(1, 5)]
    claims = [workloads.claim(name, cell.class_name) for name in names]
    pod = workloads.pod("p", *names, selector=cell.selector)
    said = foresee(cell, files=[*claims, pod])
    for name in names:
        cell.claim(name)
    cell.run_pod("p", *names)
    cell.wait_pod_ready("p", SECONDS)
    return _compared(cell, said, lambda: seen(cell))


def _drain(cell: UnevenCell) -> RunEnd:
    """Goal 3A: four pods with their data leave a node; a fifth pod's data, elsewhere, stays."""
    placing.fill_one_node(cell, 4)
    said = foresee(cell, "--drain", cell.node("old"))
    cell.drain("old")
    cell.wait_ready(4, SECONDS)
    return _compared(cell, said, lambda: seen(cell))


def _drain_too_many(cell: UnevenCell) -> RunEnd:
    """The same where only three of the four find room."""
    placing.fill_one_node(cell, 4)
    said = foresee(cell, "--drain", cell.node("old"))
    cell.drain("old")
    cell.wait_ready(3, SECONDS)
    cell.wait_refused(1, SECONDS)
    return _compared(cell, said, lambda: replace(seen(cell), short=said.short))  # told of copies that stay: not shown


def _loss(cell: UnevenCell) -> RunEnd:
    """A node is lost with its copies. The small volume's is made again where there is room; for the large one there is
    none."""
    kind = cell.add_class("two", locality="disabled", replicas=2)
    for name, gib in (("large", 150), ("small", 45)):
        cell.run_set(1, name=name, gib=gib, storageClassName=kind)
        cell.wait_pod_ready(f"{name}-0", SECONDS)
    cell.wait(lambda: not seen(cell).short, "all copies", SECONDS)
    said = foresee(cell, "--fail", cell.node("a"))
    _lose(cell, "a")
    cell.wait_ready(2, SECONDS)
    everybody = replace(said, placed=2 - said.refused)  # it tells of no pod that stays where it is
    return _compared(cell, everybody, lambda: seen(cell, lost="a"))


def _lose(cell: UnevenCell, short: str) -> None:
    """As good as gone: no pod runs there or comes there, its copies have failed for good, and it takes no others."""
    node = cell.node(short)
    cell.cordon(short)
    cell.scene.api.patch(longhorn_node(node), {"spec": {"allowScheduling": False}})
    there = [pod["metadata"]["name"] for pod in cell.bound() if pod["spec"]["nodeName"] == node]
    cell.kill(*there)
    cell.wait(lambda: not {pod["metadata"]["name"] for pod in cell.pods()} & set(there), "end of its pods", SECONDS)
    cell.drop_attachments()
    for replica in cell.scene.view.all(LONGHORN_REPLICAS):
        if replica["spec"].get("nodeID") == node:
            cell.scene.api.patch(f"{REPLICAS}/{replica['metadata']['name']}", _FAILED)


def _scenario(name: str, layout: Mapping[str, Sequence[int]], play: Callable[[UnevenCell], RunEnd]) -> Scenario:
    goal = " ".join((play.__doc__ or "").split())
    return Scenario(f"foreseen-{name}", goal, layout, play, has_counter=False)


_SEVERAL: Final = {f"n{disks}": (100,) * disks for disks in range(1, 5)}
_OLD: Final = {"old": (400,), "small1": (99,), "small2": (99,)}
ALL: Final = (
    _scenario("goal1", {"n1": (200,), "n2": (200,)}, _burst),
    _scenario("goal2", _SEVERAL, _four_volumes),
    _scenario("drain", {**_OLD, "roomy": (400,)}, _drain),
    _scenario("drain-too-many", {**_OLD, "roomy": (300,)}, _drain_too_many),
    _scenario("loss", {"a": (200,), "b": (200,), "c": (100,)}, _loss),
)
