"""Claims whose volumes are made only when a test says so: what is planned for them meanwhile, and where their copies
come to lie. All of it is read from the API server."""

from __future__ import annotations

import threading
from typing import Final

from tests.cluster.client import ApiClient, Object
from tests.cluster.watch import Reflector
from tests.e2e.harness import Cell, Scene
from tests.e2e.placed import replicas
from tests.e2e.scheduling import NAMESPACE
from tests.judge.facts import PLANS, Spot, copy_facts, is_leaders, plan_stored, writer_of
from tests.waiting import wait_until

WAIT_SECONDS: Final = 60.0
HELD: Final = "scheduling.longhorn.io/held"
Spots = frozenset[Spot]
NOWHERE: Final[Spots] = frozenset()


class PlansSeen:
    """What was planned for each volume, as the ConfigMaps have shown it. Threads: any, and the reflector's."""

    def __init__(self, api: ApiClient) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._seen: dict[str, list[Spots]] = {}
        self._volumes: dict[str, set[str]] = {}  # by ConfigMap
        self._watch = Reflector(api, f"/api/v1/namespaces/{NAMESPACE}/configmaps", self._on_event, name="plans")
        self._watch.wait_synced()

    def of(self, volume: str) -> list[Spots]:
        """The disks of its plans, one after the other; none where there was no plan any more."""
        with self._lock:
            return list(self._seen.get(volume, ()))

    def wait(self, volume: str, *, besides: Spots = NOWHERE) -> Spots:
        """The disks of its plan, once there is one, and another one than `besides`."""
        return wait_until(lambda: self._now(volume) - besides and self._now(volume), "a plan", WAIT_SECONDS)

    def stop(self) -> None:
        self._watch.stop()

    def _now(self, volume: str) -> Spots:
        return (self.of(volume) or [NOWHERE])[-1]

    def _on_event(self, verb: str, raw: Object) -> None:
        name = raw["metadata"]["name"]
        text = "" if verb == "DELETED" or not name.startswith(PLANS) else (raw.get("data") or {}).get("plans", "")
        found = {plan.volume: frozenset(plan.places) for plan in map(plan_stored, text.splitlines()) if plan}
        with self._lock:
            volumes = self._volumes.setdefault(name, set())
            volumes |= found.keys()
            for volume in volumes:
                seen = self._seen.setdefault(volume, [])
                if not seen or seen[-1] != found.get(volume, NOWHERE):
                    seen.append(found.get(volume, NOWHERE))


def copies(scene: Scene, volume: str) -> list[Object]:
    """Its Replicas."""
    return [one for one in replicas(scene) if one["spec"]["volumeName"] == volume]


def unplaced(scene: Scene, volume: str) -> list[Object]:
    return [one for one in copies(scene, volume) if not one["spec"].get("nodeID")]


def wait_unplaced(scene: Scene, volume: str) -> str:
    """The name of a Replica without a node, once there is one."""
    found = wait_until(lambda: unplaced(scene, volume), f"a copy without a node of {volume}", WAIT_SECONDS)
    return str(found[0]["metadata"]["name"])


def places(scene: Scene, volume: str) -> Spots:
    """Where the leader has put its copies; those that somebody else has placed are left out."""
    placed = (one for one in copies(scene, volume) if is_leaders(writer_of(one)[0]))
    return frozenset(spot for spot in (copy_facts(one).spot for one in placed) if spot is not None)


def told(cell: Cell, claim: str) -> set[str]:
    """The reasons of that claim's Events."""
    return {one["reason"] for one in cell.events(about=claim)}


def wait_told(cell: Cell, claim: str, reason: str) -> None:
    wait_until(lambda: cell.events(reason, claim), f"an Event {reason} of claim {claim}", WAIT_SECONDS)
