"""Figures beside what is asked of them: a line each, and the exit code of the benchmark.

A figure that could not be measured (nan) meets nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar


@dataclass(slots=True)
class NamedCase:
    """Runs that are compared with each other."""

    name: str


CaseT = TypeVar("CaseT", bound=NamedCase)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure in words, and whether it meets what is asked. `is_of_machine`: a busy machine alone can spoil it."""

    figure: str
    is_met: bool
    asked: str
    is_of_machine: bool = True

    def __str__(self) -> str:
        return f"{'met    ' if self.is_met else 'NOT MET'} {self.figure} (asked: {self.asked})"


def never(what: str, count: int) -> Verdict:
    """What no machine excuses."""
    return Verdict(f"{what}: {count} times", count == 0, "never", is_of_machine=False)


def add_report_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="exit with 0 although limits are not met that depend on the machine, for one that is busy otherwise",
    )


def conclude(verdicts: Sequence[Verdict], *, is_report_only: bool, file: TextIO | None = None) -> int:
    """Print a line for each; the exit code, 1 when one is not met that counts."""
    for verdict in verdicts:
        print(f"  {verdict}", file=file or sys.stdout, flush=True)
    return int(any(not (verdict.is_met or (is_report_only and verdict.is_of_machine)) for verdict in verdicts))


def report(found: Mapping[str, Any], verdicts: Sequence[Verdict], *, is_report_only: bool) -> int:
    """Print what was found as one JSON object, with the machine's load and the verdicts, which go to standard error as
    well; the exit code."""
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({**found, "load_average": load, "verdicts": lines_of(verdicts)}), flush=True)
    return conclude(verdicts, is_report_only=is_report_only, file=sys.stderr)


def write(output: Path, document: object) -> None:
    """Keep what was found, as JSON."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def lines_of(verdicts: Sequence[Verdict]) -> list[str]:
    """The verdicts as a benchmark's output has them."""
    return [str(verdict) for verdict in verdicts]


@dataclass(slots=True)
class Results(Generic[CaseT]):
    """All cases so far; written after every run, so that an interrupted bench leaves what it measured."""

    output: Path
    cases: list[CaseT] = field(default_factory=list)

    def open(self, case: CaseT) -> CaseT:
        self.cases.append(case)
        print(f"  {case.name}", flush=True)
        return case

    def write(self, checks: Sequence[Verdict]) -> None:
        document = {
            "cases": [asdict(case) for case in self.cases],
            "verdicts": lines_of(checks),
            "load_average": os.getloadavg(),
            "cpus": os.cpu_count(),
        }
        write(self.output, document)

    def conclude(self, checks: Sequence[Verdict], *, is_report_only: bool) -> int:
        """Write all, and print a line for each verdict; the exit code."""
        self.write(checks)
        print()
        code = conclude(checks, is_report_only=is_report_only)
        print(f"\nwritten: {self.output}")
        return code
