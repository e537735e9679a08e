"""What the Python side says: the same world, asked without HTTP and JSON between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.allocator.outcome import Mode
from controller.errors import ClusterError
from extender.preconditions import PodFailedError
from tests.extender_go.worlds import NAMESPACE, PodSpec, World, WorldSpec


@dataclass(frozen=True, slots=True)
class Verdict:
    error: str = ""
    passed: list[str] = field(default_factory=list)
    unresolvable: dict[str, str] = field(default_factory=dict)


class Twin:
    """Does to its own world what the server must have done to the other one."""

    def __init__(self, spec: WorldSpec) -> None:
        self._world = World(spec)
        self._is_bypassed = spec.mode is Mode.BYPASS

    def filter(self, pod: PodSpec, nodes: Sequence[str]) -> Verdict:
        if self._needs_nothing(pod):
            return Verdict(passed=list(nodes))
        if error := self._failure(pod):
            return Verdict(error)
        outcome = self._world.allocator.hold_pod(pod.uid, nodes)
        return Verdict("", list(outcome.passed), {node: reason.text for node, reason in outcome.refused.items()})

    def prioritize(self, pod: PodSpec, nodes: Sequence[str]) -> dict[str, int]:
        if self._needs_nothing(pod) or self._failure(pod):
            return dict.fromkeys(nodes, 0)
        return dict(self._world.allocator.score_nodes(pod.uid, nodes))

    def preempt(self, pod: PodSpec, victims: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[list[str], int]]:
        kept = {node for node, entry in victims.items() if entry["uids"]}
        if not self._needs_nothing(pod):
            asked = [node for node, entry in victims.items() if entry["uids"]]
            if self._failure(pod):
                self._world.allocator.preemption_failed(pod.uid, asked)
                kept = set()
            else:
                kept = set(self._world.allocator.nodes_with_room(pod.uid, asked))
        return {node: (victims[node]["uids"], victims[node]["violations"]) for node in kept}

    def bind(self, pod: PodSpec, node: str) -> str:
        """ "" when it is bound, else the error."""
        if not self._is_bypassed and (error := self._failure(pod, with_objects=False)):
            return error
        world = self._world
        is_known = pod.volumes and pod.state not in ("unknown", "late", "replaced")
        if is_known or not self._is_bypassed:
            world.allocator.begin_binding(pod.uid, node)
        try:
            world.binder.bind(NAMESPACE, pod.name, pod.uid, node)
        except ClusterError as error:
            world.allocator.end_binding(pod.uid)
            return str(error)
        return ""

    def ledger(self) -> dict[str, Any]:
        return self._world.ledger()

    def _needs_nothing(self, pod: PodSpec) -> bool:
        return self._is_bypassed or not pod.volumes

    def _failure(self, pod: PodSpec, *, with_objects: bool = True) -> str:
        """Why the call cannot be decided, or ""."""
        checks = self._world.preconditions
        try:
            checks.know_pod(pod.uid, NAMESPACE, pod.name)
            if with_objects:
                checks.know_objects(pod.uid)
        except PodFailedError as error:
            return str(error)
        return ""
