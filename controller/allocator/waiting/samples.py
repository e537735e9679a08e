"""What kube-scheduler's sampling hides from us.

In a cluster of a hundred nodes or more, kube-scheduler stops looking for feasible nodes after a part of them
(`percentageOfNodesToScore`; no fewer than a hundred, `minFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`), and
asks extenders about that part alone. So a pod may be refused although a node that was not named has room. The next
attempt begins where the last one ended, so that looking again at once shows other nodes.

A *series* is a run of such attempts, from the moment that some node has room for the pod until it has found one, or
none has room any more. It goes on at once while every attempt shows nodes that it had not shown yet, and by the usual
back-off otherwise. When several attempts in a row showed nothing new, whatever they did not show is taken for nodes
that the pod may not use: a selector, a taint or its CPU keeps it away, which we cannot see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

SAMPLE_LEAST: Final = 100
MOST_REPEATS: Final = 5


class NodeSets:
    """Sets of node names as bits of a number: of thousands of nodes, for each of hundreds of pods."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def of(self, names: Iterable[str]) -> int:
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        marks = bytearray(len(self._places) // 8 + 1)
        for place in places:
            marks[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(marks, "little")

    def within(self, names: Iterable[str], members: int) -> list[str]:
        """Those of `names` that are in the set."""
        marks = members.to_bytes(len(self._places) // 8 + 1, "little")
        known = [(name, self._places.get(name, -1)) for name in names]
        return [name for name, place in known if place >= 0 and marks[place >> 3] >> (place & 7) & 1]

    def clear(self) -> None:
        self._places.clear()


@dataclass(frozen=True, slots=True)
class Series:
    """What attempts to schedule one pod have shown. `possible`: the nodes that count, None for all of them."""

    seen: int = 0
    repeats: int = 0  # attempts in a row that showed nothing new
    possible: int | None = None
    is_fresh: bool = False  # the last attempt showed something new

    def shown(self, sample: int, *, by_wake: bool) -> Series:
        """After one more attempt. An attempt that the scheduler made by itself starts again, since something changed
        that we do not see."""
        if not by_wake:
            return Series(sample)
        seen = self.seen | sample
        if seen != self.seen:
            return Series(seen, 0, self.possible, is_fresh=True)
        if self.repeats + 1 < MOST_REPEATS:
            return replace(self, repeats=self.repeats + 1, is_fresh=False)
        return Series(seen, 0, seen)

    def over(self) -> Series:
        """No node has room any more."""
        return Series(possible=self.possible)


def is_sample(candidates: int, nodes: int) -> bool:
    """Whether so many candidates may be a part of the `nodes` that the pod could use."""
    return SAMPLE_LEAST <= candidates < nodes
