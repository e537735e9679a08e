"""What every verb stands on: a real allocator on virtual time, with everything else in reach of a test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from controller.allocator.outcome import Decision, Mode
from controller.model.workload import Pod
from controller.rules.reasons import Reason
from controller.views.decisions import DecisionLog
from extender import wire
from extender.binding import BindingArgs, BindingService
from extender.contention import WaitBudget
from extender.coschedule import CoScheduling
from extender.preconditions import Preconditions
from extender.preemption import PreemptionArgs, PreemptionService, Victims
from extender.priorities import PriorityService
from extender.service import ExtenderService, PodHolds
from tests.fakes.builders import TestCluster
from tests.fakes.edges import Anywhere, FakeBinder, FakeGate, FakeReads


def ref(pod: Pod) -> wire.PodRef:
    return wire.PodRef(pod.uid, pod.namespace, pod.name, bool(pod.volumes))


def args_for(pod: Pod, *nodes: str) -> wire.FilterArgs:
    return wire.FilterArgs(ref(pod), list(nodes), has_names=True, items=None)


class VerbBench:
    """Nodes with so many free GiB, the service of each verb, what must hold before an answer, and who hears of what."""

    def __init__(self, **free_gib: float) -> None:
        self.cluster = TestCluster()
        for name, gib in free_gib.items():
            self.cluster.add_node(name, free_gib=gib)
        self.allocator = self.cluster.allocator
        self.gate, self.live, self.binder = FakeGate(), FakeReads(self.allocator), FakeBinder()
        self.mode, self.stale = Mode.ACTIVE, ""
        self.wait_seconds, self.is_gone = 0.0, False
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self.noted = DecisionLog(self.cluster.clock)
        self.decisions: list[Decision] = []
        self.waits: list[float] = []
        self.counted: list[tuple[int, int]] = []
        self.preconditions = Preconditions(
            self.allocator,
            self.gate,
            self.live,
            self.cluster.clock,
            mode=lambda: self.mode,
            stale_kind=lambda: self.stale or None,
        )
        self.build(Anywhere(), self.allocator)

    def build(self, co_scheduler: CoScheduling, holds: PodHolds) -> None:
        self.service = ExtenderService(
            holds,
            self.preconditions,
            self.cluster.clock,
            self,
            self,
            contention_wait_seconds=lambda: self.wait_seconds,
            budget=WaitBudget(),
            co_scheduler=co_scheduler,
            note=self.noted.note,
        )
        self.priorities = PriorityService(self.allocator, self.preconditions, co_scheduler)
        self.preempting = PreemptionService(
            self.allocator, self.preconditions, self, self, co_scheduler, self.noted.note
        )
        self.binding = BindingService(self.preconditions, self.binder)

    # Who hears of it

    def decided(self, decision: Decision, reasons: Mapping[Reason, int], is_bounded: bool) -> None:
        self.decisions.append(decision)

    def contention_waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def preempted(self, kept: int, dropped: int) -> None:
        self.counted.append((kept, dropped))

    def refused(self, uid: str, namespace: str, name: str) -> None:
        self.told.append((uid, tuple(self.allocator.refused_on(uid))))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        self.told.append((uid, ()))

    # The verbs

    def filter(self, pod: Pod, *nodes: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.service.filter_pod(args_for(pod, *nodes), lambda: self.is_gone))
        return answer

    def fails(self, pod: Pod, error: type[Exception], match: str | None = None) -> None:
        """A filter call ends so, and what is held stays as it was."""
        before = self.held
        with pytest.raises(error, match=match):
            self.filter(pod, "n1")
        assert self.held == before

    @property
    def held(self) -> int:
        return self.allocator.snapshot().held_count

    def scores(self, pod: Pod, *nodes: str) -> dict[str, int]:
        return {row["Host"]: row["Score"] for row in json.loads(self.priorities.prioritize(args_for(pod, *nodes)))}

    def preempt(self, pod: Pod, **victims: Sequence[str]) -> dict[str, list[str]]:
        """The victims that may be evicted, by node."""
        args = PreemptionArgs(ref(pod), {node: Victims(tuple(uids), 0) for node, uids in victims.items()})
        answer = json.loads(self.preempting.preempt(args))["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in entry["Pods"]] for node, entry in answer.items()}

    def bind(self, pod: Pod, node: str = "n1") -> str:
        return self.binding.bind(BindingArgs(ref(pod), node))
