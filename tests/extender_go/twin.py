"""What the Python side says: the same world, asked without HTTP and JSON between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from controller.allocator.outcome import Mode
from controller.errors import ClusterError
from extender.preconditions import PodFailedError
from extender.wire import PodRef
from tests.extender_go.worlds import NAMESPACE, MadeUpWorld, PodSpec, WorldSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TwinAnswer:
    error: str = ""
    passed: list[str] = field(default_factory=list)
    unresolvable: dict[str, str] = field(default_factory=dict)


class Twin:
    """Does to its own world what the server must have done to the other one."""

    def __init__(self, spec: WorldSpec) -> None:
        self._world = MadeUpWorld(spec)
        self._is_bypassed = spec.mode is Mode.BYPASS

    def filter(self, pod: PodSpec, nodes: Sequence[str]) -> TwinAnswer:
        if self._needs_nothing(pod):
            return TwinAnswer(passed=list(nodes))
        try:
            outcome = self._ask(pod, lambda: self._world.allocator.hold_pod(pod.uid, nodes))
        except PodFailedError as error:
            return TwinAnswer(str(error))
        return TwinAnswer("", list(outcome.passed), {node: reason.text for node, reason in outcome.refused.items()})

    def prioritize(self, pod: PodSpec, nodes: Sequence[str]) -> dict[str, int]:
        if self._needs_nothing(pod):
            return dict.fromkeys(nodes, 0)
        try:
            return dict(self._ask(pod, lambda: self._world.allocator.score_nodes(pod.uid, nodes)))
        except PodFailedError:
            return dict.fromkeys(nodes, 0)

    def preempt(self, pod: PodSpec, victims: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[list[str], int]]:
        kept = {node for node, entry in victims.items() if entry["uids"]}
        if not self._needs_nothing(pod):
            asked = [node for node, entry in victims.items() if entry["uids"]]
            try:
                kept = set(self._ask(pod, lambda: self._world.allocator.nodes_with_room(pod.uid, asked)))
            except PodFailedError:
                self._world.allocator.preemption_failed(pod.uid, asked)
                kept = set()
        return {node: (victims[node]["uids"], victims[node]["violations"]) for node in kept}

    def bind(self, pod: PodSpec, node: str) -> str:
        """ "" when it is bound, else the error. Whatever the scheduler hands over is bound, known or not."""
        try:
            self._world.binder.bind(NAMESPACE, pod.name, pod.uid, node)
        except ClusterError as error:
            return str(error)
        return ""

    def ledger(self) -> dict[str, Any]:
        return self._world.ledger()

    def _needs_nothing(self, pod: PodSpec) -> bool:
        return self._is_bypassed or not pod.volumes

    def _ask(self, pod: PodSpec, question: Callable[[], T]) -> T:
        checks = self._world.preconditions
        checks.know_pod(PodRef(pod.uid, NAMESPACE, pod.name))
        return checks.ask(question)
