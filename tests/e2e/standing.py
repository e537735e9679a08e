"""The product that stands still at one of its own steps, dies there, or hears late what becomes of Replicas.

`python -m tests.e2e.standing run --steps FOLDER ...` takes the product's own arguments as well. What is to happen
stands in files of the folder, which a test writes and takes away while the product runs: see `StepOrders`.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

import controller.cli
import controller.kube.api
from controller.kube.api import ClientKubeApi, WatchStream
from controller.kube.resources import CONFIG_MAPS, LONGHORN_REPLICAS, Resource
from controller.placement.plan_entries import KEY

LOOK_SECONDS = 0.02


class PlacingStep(StrEnum):
    COMMIT = "commit"  # plans are made, and the write of their ConfigMap has not left
    PLACE = "place"  # a place is decided, and its PATCH has not left
    PLACED = "placed"  # it is stored, and the answer has not come


class StepOrders:
    """What one copy of the product is to do: a test writes it, the copy reads it. Threads: any of either."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._late, self._reached = folder, folder / "late", folder / "reached"

    @property
    def flags(self) -> tuple[str, str]:
        return "--steps", str(self._folder)

    # The test's side

    def stop_at(self, step: PlacingStep) -> None:
        """Every call that comes to this step stands still there, until `go_on`."""
        self._wish_for(step, "stop")

    def die_at(self, step: PlacingStep) -> None:
        """The first call that comes to this step ends the copy there, as the kernel would."""
        self._wish_for(step, "die")

    def _wish_for(self, step: PlacingStep, what: str) -> None:
        self._reached.unlink(missing_ok=True)
        _write(self._folder / step, what)

    def go_on(self, step: PlacingStep) -> None:
        (self._folder / step).unlink(missing_ok=True)

    def hear_late(self, seconds: float) -> None:
        """Events of Replicas come so long after the API server's time in them; for ever, if that is infinite."""
        _write(self._late, str(seconds))

    def reached(self) -> dict[str, float]:
        """Objects whose calls have come to the step that was named last, and when, by the wall clock."""
        lines = self._reached.read_text().splitlines() if self._reached.exists() else []
        return {name: float(at) for name, at in map(str.split, lines)}

    # The copy's side

    def come_to(self, step: PlacingStep, name: str) -> None:
        if not self._wish(step):
            return
        with self._reached.open("a") as file:
            file.write(f"{name} {time.time()}\n")
        while wish := self._wish(step):
            if wish == "die":
                os.killpg(0, signal.SIGKILL)
            time.sleep(LOOK_SECONDS)

    def late_seconds(self) -> float:
        return float(_read(self._late) or 0)

    def _wish(self, step: PlacingStep) -> str:
        return _read(self._folder / step)


def _write(path: Path, text: str) -> None:
    """In one move: who reads it meanwhile finds the former text or this one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def _read(path: Path) -> str:
    """Empty where there is no such file."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


class StandingApi(ClientKubeApi):
    """The API server, with `steps` in the way to it and back."""

    steps: StepOrders

    def replace(self, resource: Resource, namespace: str | None, name: str, body: Any, **more: Any) -> dict[str, Any]:
        if resource is CONFIG_MAPS and (body.get("data") or {}).get(KEY):
            self.steps.come_to(PlacingStep.COMMIT, name)
        return super().replace(resource, namespace, name, body, **more)

    def patch(self, resource: Resource, namespace: str | None, name: str, body: Any, **more: Any) -> dict[str, Any]:
        is_place = resource is LONGHORN_REPLICAS and not more.get("dry_run") and _gives_node(body)
        if is_place:
            self.steps.come_to(PlacingStep.PLACE, name)
        found = super().patch(resource, namespace, name, body, **more)
        if is_place:
            self.steps.come_to(PlacingStep.PLACED, name)
        return found

    def watch(self, resource: Resource, *args: Any, **more: Any) -> WatchStream:
        stream = super().watch(resource, *args, **more)
        return LateStream(stream, self.steps.late_seconds) if resource is LONGHORN_REPLICAS else stream


def _gives_node(body: Any) -> bool:
    return isinstance(body, list) and any(one["op"] == "add" and one["path"] == "/spec/nodeID" for one in body)


class LateStream:
    """A watch whose events come late. Threads: one reads, any closes."""

    def __init__(self, stream: WatchStream, late: Callable[[], float]) -> None:
        self._stream, self._late, self._is_closed = stream, late, False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            stored_at = stored_seconds(line)
            while not self._is_closed and time.time() < stored_at + self._late():
                time.sleep(LOOK_SECONDS)
            if self._is_closed:
                return
            yield line

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()


def stored_seconds(line: bytes) -> float:
    """The latest time in the event's object, in whole seconds; long ago for a bookmark, which has none."""
    meta = msgspec.json.decode(line)["object"].get("metadata") or {}
    times = [meta.get("creationTimestamp"), meta.get("deletionTimestamp")]
    times += [entry.get("time") for entry in meta.get("managedFields") or ()]
    return max((datetime.fromisoformat(one).timestamp() for one in times if one), default=-math.inf)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=Path, required=True)
    options, rest = parser.parse_known_args()
    StandingApi.steps = StepOrders(options.steps)
    controller.kube.api.ClientKubeApi = StandingApi  # type: ignore[misc]
    return controller.cli.main(rest)


if __name__ == "__main__":
    sys.exit(main())
