"""A few random worlds, and each fault that is put in is found; `python -m tests.places` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.places.judge import WorldFault, WorldFinding, guilty
from tests.places.mutants import BUILDS, PRODUCT
from tests.places.scenes import SCENES
from tests.places.world import random_world

FAULTS_IN_SCENES = [
    ("bytes", "displaced_plan", WorldFault.OVER),
    ("recheck", "displaced_plan", WorldFault.OVER),
    ("holding", "held_bytes", WorldFault.FOREIGN),
    ("loading", "loaded_plans", WorldFault.MOVED),
    ("restless", "loaded_plans", WorldFault.MOVED),
    ("holding-all", "second_copy", WorldFault.FROZEN),
    ("ages-none", "held_bytes", WorldFault.FOREIGN),
    ("ages-clock", "leaderless", WorldFault.FOREIGN),
    ("mute", "unasked_volume", WorldFault.FOREIGN),
    ("mute-ages-endless", "unasked_volume", WorldFault.IDLE),
    ("displacing-never", "lasting_plan", WorldFault.FROZEN),
    ("displacing-at-once", "displaced_plan", WorldFault.PLANNED),
    ("gate", "held_bytes", WorldFault.FOREIGN),
    ("fence", "late_write", WorldFault.TERM),
]


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_is_found_in_a_random_world_that_nothing_explains(seed: int) -> None:
    assert [] == guilty(random_world(seed, BUILDS[PRODUCT]).run().findings)


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_found_in_a_scene(name: str) -> None:
    assert [] == guilty(SCENES[name](BUILDS[PRODUCT]).findings)


@pytest.mark.parametrize(("build", "scene", "fault"), FAULTS_IN_SCENES)
def test_a_fault_is_found_in_a_scene(build: str, scene: str, fault: WorldFault) -> None:
    assert fault in faults(guilty(SCENES[scene](BUILDS[build]).findings))


def test_forgotten_writes_are_found_in_a_random_world() -> None:
    assert {WorldFault.OVER, WorldFault.PAIR} <= faults(guilty(random_world(2, BUILDS["marking"]).run().findings))


def faults(findings: list[WorldFinding]) -> set[WorldFault]:
    return {one.fault for one in findings}
