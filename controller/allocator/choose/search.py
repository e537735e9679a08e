"""The one loop over nodes: in which order they are judged, in which lots, and within which budget.

Filter, preempt and the wake-up judge nodes in this way. Nodes that are likely to serve and cheap to judge come first:
those with data of the pod, those that an earlier question of the pod did not reach, those on which nothing is taken,
then the others, the least taken first. Prioritize, which scores every node, takes lots in the caller's order; the
account of a refusal judges the first nodes of the refusal, on a copy and without a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.verdict import LATE, Judgement
from controller.rules.demand import VolumeDemand


def in_order(
    names: Sequence[str],
    demands: Sequence[VolumeDemand],
    taken: Mapping[str, int],
    *,
    unreached: Collection[str] = (),
) -> Sequence[str]:
    """Return `names` in the order in which they are judged. `taken`: bytes by node. `unreached`: by an earlier call."""
    near = frozenset[str]().union(*(demand.home_nodes for demand in demands if demand.is_local))
    first = [name for name in names if name in near] if near else []
    late = [name for name in names if name in unreached and name not in near] if unreached else []
    if first or late:
        early = {*first, *late}
        names = [name for name in names if name not in early]
    if taken:
        is_held = taken.__contains__
        names = [*filterfalse(is_held, names), *sorted(filter(is_held, names), key=taken.__getitem__)]
    return [*first, *late, *names] if first or late else names


@dataclass(slots=True)
class NodeSearch:
    """How far the loop has come, and what it found. It goes on where it stopped, with another `PodFit`."""

    names: Sequence[str]
    rest: Sequence[str] = ()
    sure: dict[str, Judgement] = field(default_factory=dict)
    refused: dict[str, Judgement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rest = self.names

    def go_on(
        self,
        fit: PodFit,
        is_enough: Callable[[Collection[str]], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Judge lot after lot, at least one. Return whether the search is complete: `is_enough` said so of a lot's sure
        nodes, or every node was judged; False if `is_over` stopped it before."""
        begin = 0
        while begin < len(self.rest):
            if begin and is_over():
                self.rest = self.rest[begin:]
                return False
            judged = fit.judge_all(self.rest[begin : begin + fit.lot])
            begin += fit.lot
            sure = {name: one for name, one in judged.items() if one.is_sure}
            self.sure.update(sure)
            self.refused.update((name, one) for name, one in judged.items() if name not in sure)
            if is_enough(sure):
                break
        self.rest = self.rest[begin:]
        return True

    def unreached(self) -> list[str]:
        """Return the nodes that were not judged because the budget was spent."""
        return [name for name, judgement in self.refused.items() if judgement is LATE]


def search_all(
    fit: PodFit, names: Sequence[str], is_enough: Callable[[Collection[str]], bool] = lambda _sure: False
) -> NodeSearch:
    """Return a search that is complete."""
    search = NodeSearch(names)
    search.go_on(fit, is_enough)
    return search


def within(budget: Budget, names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield lots of `names` as long as the budget lasts."""
    for begin in range(0, len(names), size):
        if budget.is_spent():
            return
        yield names[begin : begin + size]
