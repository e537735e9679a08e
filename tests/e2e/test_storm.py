"""Pods that find no room, with the generated configuration: they cost next to nothing and evict nobody in vain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.goals import refused
from tests.e2e.goals.scenario import harmless, not_right, play
from tests.e2e.harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

STORM_SECONDS, PREEMPTION_SECONDS = 20.0, 10.0


@pytest.fixture(scope="module", autouse=True)
def generated_schedulers(shared_scene: Scene) -> Iterator[None]:
    with refused.urgent_pods(shared_scene):
        yield


def test_refused_pods_are_left_alone_until_something_changes(scene: Scene) -> None:
    assert [] == not_right(play(scene, refused.storm(STORM_SECONDS)))
    scene.controllers[-1].wait_ledger_empty()


def test_evictions_happen_only_where_they_help(scene: Scene) -> None:
    """Without the preempt verb the same pods are evicted for nothing."""
    runs = play(scene, refused.nobody_evicted(PREEMPTION_SECONDS), refused.ONE_EVICTED, runs=1, counters=1)
    assert [] == not_right(runs)
    assert [] == harmless(runs)
