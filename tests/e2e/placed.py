"""Who has placed the Replicas of a scene, and what lies where, as the API server has it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tests.e2e.harness import Cell, Scene
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.judge.facts import is_leaders, writer_of
from tests.longhorn import paths
from tests.longhorn.options import GIB

REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)


def replicas(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.api.list(REPLICAS)["items"]
    return found


def is_placed_by_leader(replica: dict[str, Any]) -> bool:
    return is_leaders(writer_of(replica)[0])


def placers(scene: Scene) -> Counter[str]:
    """How many Replicas with a node the leader has placed, and how many others."""
    placed = [one for one in replicas(scene) if one["spec"].get("nodeID")]
    return Counter("leader" if is_placed_by_leader(one) else "others" for one in placed)


def gate_state(controller: Controller) -> str:
    return str(controller.status()["placement_gate"]["state"])


def fills(scene: Scene) -> dict[str, int]:
    """GiB by disk, as the Replica objects say."""
    found = Counter[str]()
    for one in replicas(scene):
        if one["spec"].get("nodeID"):
            found[f"{one['spec']['nodeID']}/{one['spec']['diskID']}"] += int(one["spec"]["volumeSize"]) // GIB
    return dict(found)


def by_node(cell: Cell) -> dict[str, int]:
    """GiB of Replicas on each of the cell's nodes."""
    found = Counter[str]()
    for disk, gib in fills(cell.scene).items():
        found[disk.partition("/")[0]] += gib
    return {node: found[node] for node in cell.nodes}


def add_class_of_now(cell: Cell) -> str:
    """The name of one whose volumes are made and placed without a pod."""
    return cell.add_class("now", locality="disabled", binding="Immediate")
