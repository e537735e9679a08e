"""What the product recorded and told during a run, for the checker."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from tests.e2e.explained import ReachRecord, Recorded, merged, reach_records
from tests.e2e.harness import Cell, Scene

DISCRETION_EVENT: Final = "AtLonghornsDiscretion"
REMOTE_EVENT: Final = "LonghornRemoteFallback"


class Records:
    """Collects from every copy of the product; each of them keeps its records for ten minutes, or until it is killed.

    Threads: one at a time.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._reach: list[ReachRecord] = []

    def collect(self) -> None:
        for controller in self._scene.controllers:
            with suppress(OSError):
                if controller.is_running:
                    self._reach = merged(self._reach, reach_records(controller.status(), time.time()))

    def recorded(self, cell: Cell, *, everybody_asked: bool = False) -> Recorded:
        """All that was collected, and what the pods of the cell's present run were told."""
        self.collect()
        told: dict[str, set[str]] = {DISCRETION_EVENT: set(), REMOTE_EVENT: set()}
        for event in self._scene.api.list(cell.path("events"))["items"]:
            told.get(event["reason"], set()).add(event["involvedObject"].get("uid", ""))
        return Recorded(
            self._reach,
            frozenset(told[DISCRETION_EVENT]),
            frozenset(told[REMOTE_EVENT]),
            everybody_asked=everybody_asked,
        )
