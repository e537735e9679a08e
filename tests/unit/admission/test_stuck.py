"""Pods whose scheduler misses the resource on the nodes: who they are, and what is told of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.admission.stuck import LISTED, TELL_EVERY_SECONDS, StuckPods
from controller.kube.recorder import Target
from controller.kube.store import Change
from controller.model.workload import Pod
from tests.fakes.builders import pod
from tests.fakes.clock import VirtualClock

POD = pod("a", scheduler_name="default-scheduler")
STUCK = replace(POD, lacks_extender=True)


class StuckRig:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.notes: list[tuple[str, str]] = []
        self.summaries: list[str] = []
        self.stuck = StuckPods(self.clock, self, lambda _reason, text, _is_warning: self.summaries.append(text))

    def note(self, target: Target, reason: str, message: str, *, is_warning: bool = False) -> None:
        assert is_warning
        self.notes.append((f"{target.namespace}/{target.name}", message))

    def change(self, old: Pod | None, new: Pod | None) -> None:
        self.stuck.pods_changed([Change("ns/a", old, new)])


@pytest.fixture
def rig() -> StuckRig:
    return StuckRig()


def numbered(number: int) -> Pod:
    return pod(f"p{number:03}", lacks_extender=True)


@pytest.mark.parametrize(
    "end",
    [POD, None, replace(STUCK, node_name="n1"), replace(STUCK, is_deleting=True), replace(POD, uid="another")],
    ids=["freed", "gone", "bound", "deleted", "made anew"],
)
def test_a_pod_is_listed_from_its_condition_until_it_is_free_or_gone(rig: StuckRig, end: Pod | None) -> None:
    rig.change(None, POD)
    assert 0 == len(rig.stuck)
    rig.change(POD, STUCK)
    assert {"count": 1, "pods": ["ns/a"]} == rig.stuck.status()
    rig.change(STUCK, end)
    assert {"count": 0, "pods": []} == rig.stuck.status()


def test_each_is_told_once_by_its_schedulers_name(rig: StuckRig) -> None:
    rig.change(None, STUCK)
    rig.change(STUCK, replace(STUCK, priority=5))
    rig.stuck.tell()
    rig.stuck.tell()
    assert ["ns/a"] == [key for key, _ in rig.notes]
    assert "'default-scheduler'" in rig.notes[0][1]
    (summary,) = rig.summaries
    assert summary.startswith("1 pod waits in vain")


def test_one_that_is_free_again_before_anybody_told_is_not_told(rig: StuckRig) -> None:
    rig.change(None, STUCK)
    rig.change(STUCK, POD)
    rig.stuck.tell()
    assert ([], []) == (rig.notes, rig.summaries)


def test_the_list_and_the_summary_stay_short(rig: StuckRig) -> None:
    for number in range(LISTED + 1):
        rig.change(None, numbered(number))
    rig.stuck.tell()
    status = rig.stuck.status()
    assert (LISTED + 1, LISTED) == (status["count"], len(status["pods"]))
    assert 1 == len(rig.summaries)
    assert rig.summaries[0].startswith(f"{LISTED + 1} pods")
    assert "p000" not in rig.summaries[0]


def test_a_number_that_changes_is_told_now_and_then(rig: StuckRig) -> None:
    for number in range(60):
        rig.change(None, numbered(number))
        rig.stuck.tell()
        rig.clock.advance(1)
    assert 2 == len(rig.summaries)
    rig.clock.advance(TELL_EVERY_SECONDS)
    rig.stuck.tell()
    rig.stuck.tell()
    assert 3 == len(rig.summaries)
