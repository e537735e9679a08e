"""kube-schedulers that take over from each other: some ask the extender, some were never told of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from controller.model.names import DEFAULT_SCHEDULER
from tests.e2e import scheduling
from tests.e2e.harness import Scene
from tests.e2e.scheduling import RESOURCE

# Of kube-scheduler's own election; a test need not wait for its defaults.
ELECTION = {"leaderElect": True, "leaseDuration": "7s", "renewDeadline": "6s", "retryPeriod": "500ms"}


class Schedulers:
    """A scene whose kube-schedulers the test starts and ends itself."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.api = scene, scene.api
        self._schedulers: list[str] = []
        self._numbers = itertools.count(1)

    def scheduler(self, *, wired: bool, profiles: Sequence[str] = ()) -> str:
        """Start one more kube-scheduler, which waits for the Lease while another one holds it. `profiles`: besides that
        of ordinary pods."""
        name = f"{'wired' if wired else 'stock'}-{next(self._numbers)}"
        config = self.scene.extender_config() if wired else scheduling.stock()
        if profiles:
            config["profiles"] = [{"schedulerName": one} for one in (DEFAULT_SCHEDULER, *profiles)]
        self.scene.cluster.start_scheduler({**config, "leaderElection": ELECTION}, name=name)
        self._schedulers.append(name)
        return name

    def stop_schedulers(self, *, kill: bool = False) -> None:
        while self._schedulers:
            self.scene.cluster.stop_scheduler(self._schedulers.pop(), kill=kill)

    def kill(self, name: str) -> None:
        self._schedulers.remove(name)
        self.scene.cluster.stop_scheduler(name, kill=True)


def lacks_resource(entry: dict[str, Any]) -> bool:
    """Whether an entry of the history shows a pod whose scheduler looked for the extender's resource on the nodes."""
    if entry["kind"] != "Pod" or entry["object"] is None:
        return False
    conditions = (entry["object"].get("status") or {}).get("conditions") or []
    return any(f"Insufficient {RESOURCE}" in condition.get("message", "") for condition in conditions)
