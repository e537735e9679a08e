"""The one loop over nodes: in which order they are looked at, in which lots, and within which budget.

Filter, preempt and the wake-up look at nodes in this way. What is likely to serve and cheap to judge comes first: nodes
with data of the pod, nodes that an earlier question of the pod did not reach, nodes without promises, then the others,
least promised first. Prioritize, which has points for each node, takes lots in the caller's order; the account of a
refusal looks at the first nodes of the refusal, on a copy and without a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import LATE, Judgement
from controller.allocator.promises.ledger import Ledger
from controller.rules.demand import VolumeDemand

LOT: Final = 32  # nodes that are judged at once; enough offers may make the rest needless


def in_order(
    names: Sequence[str],
    demands: Sequence[VolumeDemand],
    ledger: Ledger,
    *,
    unreached: Collection[str] = (),
    more_bytes: Callable[[str], int] = lambda _name: 0,
) -> Sequence[str]:
    """`unreached`: what a budget kept from an earlier question of the same pod. `more_bytes`: what counts as promised
    on a node beside the ledger's sums."""
    near = frozenset[str]().union(*(demand.home_nodes for demand in demands if demand.is_local))
    promised = ledger.nodes()
    if not (near or unreached or promised or ledger.limited()):
        return names
    first, late, quiet, occupied = [], [], [], list[tuple[int, str]]()
    for name in names:
        if name in near:
            first.append(name)
        elif name in unreached:
            late.append(name)
        elif pending := (ledger.pending_bytes(name) if name in promised else 0) + more_bytes(name):
            occupied.append((pending, name))
        else:
            quiet.append(name)
    if not occupied and not first and not late:
        return names
    occupied.sort(key=lambda entry: entry[0])
    return [*first, *late, *quiet, *(name for _, name in occupied)]


@dataclass(slots=True)
class NodeSearch:
    """How far the loop has come; it goes on where it stopped, in another slice of time with another judge."""

    names: Sequence[str]
    rest: Sequence[str] = ()
    sure: list[str] = field(default_factory=list)
    refused: dict[str, Judgement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rest = self.names

    def go_on(
        self,
        judge: Judge,
        is_enough: Callable[[Sequence[str]], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Whether it is complete: enough was found (asked after each lot, with what is sure of it), or every node was
        looked at. False: `is_over` said so before. At least one lot is looked at."""
        begin = 0
        while begin < len(self.rest):
            if begin and is_over():
                self.rest = self.rest[begin:]
                return False
            sure, refused = judge.sure_among(self.rest[begin : begin + LOT])
            begin += LOT
            self.sure += sure
            self.refused.update(refused)
            if is_enough(sure):
                break
        self.rest = self.rest[begin:]
        return True

    def unreached(self) -> list[str]:
        """Nodes that the judge's budget kept from being looked at."""
        return [name for name, judgement in self.refused.items() if judgement is LATE]


def look(
    judge: Judge, names: Sequence[str], is_enough: Callable[[Sequence[str]], bool] = lambda _sure: False
) -> NodeSearch:
    """A whole search."""
    search = NodeSearch(names)
    search.go_on(judge, is_enough)
    return search


def within(budget: Budget, names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Lots of `names`, as long as the budget lasts."""
    for begin in range(0, len(names), size):
        if budget.is_spent():
            return
        yield names[begin : begin + size]
