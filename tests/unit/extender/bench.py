"""What every verb stands on: a real allocator on virtual time, with everything else in reach of a test."""

from __future__ import annotations

from collections.abc import Sequence

from controller.allocator.outcome import Mode
from extender.preconditions import Preconditions
from tests.fakes.builders import TestCluster
from tests.fakes.edges import FakeGate, FakeReads


class VerbBench:
    """Nodes with so many free GiB, what must hold before an answer, and who is told of refusals."""

    def __init__(self, **free_gib: float) -> None:
        self.cluster = TestCluster()
        for name, gib in free_gib.items():
            self.cluster.add_node(name, free_gib=gib)
        self.allocator = self.cluster.allocator
        self.gate, self.live = FakeGate(), FakeReads(self.allocator)
        self.mode, self.stale = Mode.ACTIVE, ""
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self.preconditions = Preconditions(
            self.allocator,
            self.gate,
            self.live,
            self.cluster.clock,
            mode=lambda: self.mode,
            stale_kind=lambda: self.stale or None,
        )

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None:
        self.told.append((uid, tuple(candidates)))
