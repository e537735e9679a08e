"""A cell whose volumes grow, as the API server, the leader and Longhorn's stand-in show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from tests.cluster.client import ApiError, Object
from tests.e2e.gate import Gate
from tests.e2e.harness import GIB, Cell, Scene, longhorn_node
from tests.e2e.view import CLAIMS, LONGHORN_REPLICAS
from tests.waiting import wait_until

WAIT_SECONDS, PUT_OFF_SECONDS = 60.0, 70.0


@dataclass
class GrowingCell:
    """A cell whose volumes get their places as soon as they are asked for. Each node has one disk."""

    scene: Scene
    cell: Cell
    gate: Gate
    immediate: str  # the class

    @classmethod
    def of(cls, scene: Scene, cell: Cell, gate: Gate, *, copies: int = 1) -> Self:
        """With a class of volumes of so many copies that are placed at once."""
        immediate = cell.add_class("immediate", locality="disabled", replicas=copies, binding="Immediate")
        return cls(scene, cell, gate, immediate)

    def add(self, *names: str, gib: int) -> None:
        """Claims with placed volumes, without any pod."""
        for name in names:
            self.ask(name, gib)
        self.wait(lambda: all(self.replica(name) for name in names), f"{len(names)} placed volumes")
        # For a minute after a leader that was killed, perhaps by an earlier test, its successor puts expansions off.
        refusal = partial(self.grow, names[0], gib + 1, dryRun="All")
        wait_until(lambda: "Try again" not in refusal(), "a leader that admits growth", PUT_OFF_SECONDS)

    def ask(self, name: str, gib: int) -> None:
        """A claim, of which nothing has come yet."""
        self.cell.claim(name, gib, self.immediate)

    def claim(self, name: str) -> Object:
        found = self.scene.view.get(CLAIMS, f"{self.cell.namespace}/{name}")
        return found or {"spec": {}}

    def volume_name(self, name: str) -> str:
        return str(self.claim(name)["spec"].get("volumeName") or "")

    def replica(self, name: str) -> Object | None:
        """The volume's replica, once it has a disk and the claim is bound: no claim grows before."""
        volume = self.volume_name(name)
        if (self.claim(name).get("status") or {}).get("phase") != "Bound":
            return None
        replicas = self.scene.view.all(LONGHORN_REPLICAS)
        return next((r for r in replicas if r["spec"]["volumeName"] == volume and r["spec"].get("diskID")), None)

    def copies(self, name: str) -> dict[str, float]:
        """GiB of the volume's replicas, by node."""
        placed = [r for r in self.scene.view.all(LONGHORN_REPLICAS) if r["spec"].get("diskID")]
        mine = [r["spec"] for r in placed if r["spec"]["volumeName"] == self.volume_name(name)]
        return {spec["nodeID"]: int(spec["volumeSize"]) / GIB for spec in mine}

    def size_gib(self, name: str) -> float:
        replica = self.replica(name)
        return int(replica["spec"]["volumeSize"]) / GIB if replica is not None else 0.0

    def capacity(self, name: str) -> str:
        return str(((self.claim(name).get("status") or {}).get("capacity") or {}).get("storage"))

    def scheduled_gib(self) -> float:
        node = self.scene.api.get(longhorn_node(self.cell.nodes[0]))
        return sum(int(disk["storageScheduled"]) for disk in node["status"]["diskStatus"].values()) / GIB

    def grow(self, name: str, size: str | int, **query: Any) -> str:
        """Ask for that size (GiB, or as text); "" or what the API server refuses it with, or cannot ask a webhook."""
        patch = {"spec": {"resources": {"requests": {"storage": size if isinstance(size, str) else f"{size}Gi"}}}}
        try:
            self.scene.api.patch(self.cell.path("persistentvolumeclaims", name), patch, **query)
        except ApiError as error:
            if not (error.forbidden or "failed calling webhook" in error.message):
                raise
            return error.message
        return ""

    def grow_or_hear_why(self, name: str, gib: int) -> str:
        """The same, asked again for as long as the refusal says that a little later may be enough."""
        said = [""]

        def is_final() -> bool:
            said[0] = self.grow(name, gib)
            return "Try again" not in said[0]

        wait_until(is_final, f"a final answer about {name}", PUT_OFF_SECONDS)
        return said[0]

    def growths(self) -> dict[str, tuple[str, int]]:
        """State and GiB, by claim, of the growths that the leader has admitted."""
        return {
            promise["claim"].partition("/")[2]: (promise["state"], promise["size_bytes"] // GIB)
            for promise in self.scene.controllers[-1].status()["promises"]
            if promise["kind"] == "growth" and promise["claim"].startswith(f"{self.cell.namespace}/")
        }

    def wait(self, condition: Callable[[], object], what: str, timeout: float = WAIT_SECONDS) -> None:
        self.scene.view.wait_for(condition, what, timeout)

    def wait_grown(self, gib: int, *names: str) -> None:
        self.wait(lambda: all(self.size_gib(name) == gib for name in names), f"{len(names)} volumes of {gib} GiB")
