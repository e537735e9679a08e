"""Many worlds, one after the other: the first disagreements, shrunk."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from tests.oracle.compare import Answerer, ask_product, differences
from tests.oracle.mix import world_of
from tests.oracle.shrink import shrink
from tests.oracle.worlds import Document


@dataclass(frozen=True)
class Disagreement:
    """One world that the two judge differently, before and after everything that does not matter was taken away."""

    seed: int
    index: int
    lines: list[str]
    smallest: Document
    smallest_lines: list[str]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"world {self.index} of seed {self.seed}:",
                *(f"  {line}" for line in self.lines),
                "smallest world that shows it:",
                json.dumps(self.smallest),
                *(f"  {line}" for line in self.smallest_lines),
            ]
        )


@dataclass
class ComparedWorlds:
    """Sums over worlds; `disagreements` holds one of each kind, `disagreeing` counts them all."""

    worlds: int = 0
    disagreeing: int = 0
    disagreements: dict[str, Disagreement] = field(default_factory=dict)

    def add(self, other: ComparedWorlds) -> None:
        self.worlds += other.worlds
        self.disagreeing += other.disagreeing
        self.disagreements = {**other.disagreements, **self.disagreements}


def run(seed: int, indices: range, *, product: Answerer = ask_product, most: int = 5) -> ComparedWorlds:
    """Compare these worlds of the seed. At most `most` kinds of disagreement are shrunk, which takes a while each."""
    result = ComparedWorlds()
    for index in indices:
        document = world_of(seed, index).document()
        lines = differences(document, product)
        result.worlds += 1
        if lines:
            result.disagreeing += 1
            kind = kind_of(lines)
            if kind not in result.disagreements and len(result.disagreements) < most:
                result.disagreements[kind] = _shrunk(seed, index, document, lines, product)
    return result


def kind_of(lines: list[str]) -> str:
    """What the first line says, without names and figures: worlds of one kind are likely to have one cause."""
    return re.sub(r"\(.*?\)|\[.*?\]|\{.*?\}|[\w-]*[0-9][\w-]*", "", lines[0])


def _shrunk(seed: int, index: int, document: Document, lines: list[str], product: Answerer) -> Disagreement:
    kind = kind_of(lines)

    def still_shows(smaller: Document) -> bool:
        found = differences(smaller, product)
        return bool(found) and kind_of(found) == kind

    smallest = shrink(document, still_shows)
    return Disagreement(seed, index, lines, smallest, differences(smallest, product))
