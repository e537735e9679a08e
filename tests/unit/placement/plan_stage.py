"""Plans and holds, and an API server that has ConfigMaps with them and outlives its leaders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controller.allocator.plans.plan import Hold, Plan, Source
from controller.errors import ForbiddenError
from controller.kube.resources import CONFIG_MAPS
from controller.model.places import Place
from controller.placement.plan_entries import KEY, SHARDS, shard_name
from controller.placement.plan_objects import PlanObjects
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.longhorn.options import GIB

NAMESPACE = "longhorn-system"
FIRST = shard_name(0)  # has the plans of one that has few
NAMES = [shard_name(index) for index in range(SHARDS)]
Raw = dict[str, Any]


def plan(volume: str, *disks: str, pods: int = 1) -> Plan:
    places = tuple(Place(f"node-{disk}", disk, 10 * GIB) for disk in disks or ("d1",))
    return Plan(volume, f"uid-{volume}", places, tuple(f"pod-{n}" for n in range(pods)), VirtualClock().now_utc())


def hold(pod: str, *nodes: str, volume: str = "v0", far: Mapping[str, tuple[str, ...]] | None = None) -> Hold:
    """An answer to that pod, with a disk on each node for its volume; `far`: disks of volumes that it may reach from
    everywhere."""
    offers = {node: {volume: Place(node, f"disk-{node}", 10 * GIB)} for node in nodes}
    anywhere = {
        name: tuple(Place(f"node-{disk}", disk, 10 * GIB) for disk in disks) for name, disks in (far or {}).items()
    }
    return Hold(pod, Source.FILTER, offers, anywhere, 0.0, VirtualClock().now_utc())


def neighbours(count: int) -> list[str]:
    """Volumes whose plans, put together, stand in one ConfigMap."""
    return [f"v{number}" for number in range(count)]


class PlanSite:
    """An API server that outlives its leaders. Once the time has passed, all that is due has been done."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()

    def leader(self, *volumes: str, term: int = 1) -> PlanObjects:
        """It has stored plans of these volumes."""
        found = self.new()
        found.load(term)
        found.put(*map(plan, volumes))
        assert found.flush(1.0) or not volumes
        return found

    def new(self, check: Callable[[int], None] = lambda _term: None) -> PlanObjects:
        return PlanObjects(self.api, NAMESPACE, self.clock, check)

    def pass_time(self, objects: PlanObjects, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(10 * SHARDS):
            if objects.run_once() != 0:
                return
        pytest.fail("it is never done")

    def refuse(self, refused: str, verb: str = "replace") -> None:
        """The API server takes no write of that ConfigMap any more, or no call of that verb."""
        send = getattr(self.api, verb)

        def answer(resource: Any, namespace: Any, name: str, *args: Any, **more: Any) -> Raw:
            if name == refused:
                raise ForbiddenError("403: no")
            found: Raw = send(resource, namespace, name, *args, **more)
            return found

        setattr(self.api, verb, answer)

    def lines_in(self, name: str) -> list[dict[str, Any]]:
        """All entries of that ConfigMap."""
        return [json.loads(line) for line in self.raw(name)["data"][KEY].splitlines()]

    def written(self) -> dict[str, Any]:
        """The plans of all ConfigMaps, by volume."""
        return {found["volume"]: found for name in NAMES for found in self.lines_in(name) if "volume" in found}

    def volumes(self) -> set[str]:
        return set(self.written())

    def volumes_in(self, name: str) -> list[str]:
        return [found["volume"] for found in self.lines_in(name) if "volume" in found]

    def held(self) -> dict[str, Any]:
        """The holds of all ConfigMaps, by pod."""
        return {found["pod"]: found for name in NAMES for found in self.lines_in(name) if "pod" in found}

    def pods(self) -> set[str]:
        return set(self.held())

    def before(self, verb: str, act: Callable[[], object]) -> None:
        """Do that right before the next such call about the ConfigMap of v0."""
        send = getattr(self.api, verb)

        def later(*args: Any, **more: Any) -> Any:
            name = args[2]["metadata"]["name"] if verb == "create" else args[2]
            if name == FIRST:
                setattr(self.api, verb, send)
                act()
            return send(*args, **more)

        setattr(self.api, verb, later)

    def raw(self, name: str) -> Raw:
        return self.api.get(CONFIG_MAPS, NAMESPACE, name)

    def spoil(self, **fields: Any) -> None:
        """Somebody merges that into the first ConfigMap."""
        self.api.patch(CONFIG_MAPS, NAMESPACE, FIRST, fields)

    def put(self, **fields: Any) -> None:
        """Somebody makes the first ConfigMap, in place of the one that is there."""
        self.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": FIRST}, **fields})

    def writes(self) -> int:
        return len(self.api.log)
