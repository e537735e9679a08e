"""Runs a module's tests against each of its mutants, in forked processes (`python -m tests.mutation`)."""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.mutation.mutants import SourceMutant, mutants_of

ROOT: Final = Path(__file__).resolve().parents[2]
EXPLAINED: Final = Path(__file__).with_name("survivors.txt")
LONGEST_SECONDS: Final = 60
WANTED_PCT: Final = 95.0

_CASES: Final = "longhorn_rules/test_cases"
_TRANSCRIPTS: Final = "scenarios/test_transcripts"
_FIT: Final = "unit/allocator/test_fit"
_CANDIDATES: Final = "unit/allocator/test_candidates"
_REUSE: Final = "unit/allocator/test_reuse"
_PREFERENCE: Final = "unit/allocator/test_preference"
_SEARCH: Final = "unit/allocator/test_search"
_POD_FIT: Final = "unit/allocator/test_pod_fit"
_LEGAL: Final = "unit/choose/test_legal"
_CHOOSE: Final = "unit/choose/test_choose"
_EVERYDAY: Final = "unit/allocator/test_everyday"
_SCORING: Final = "unit/allocator/test_scoring"
_PLACING: Final = (_CANDIDATES, _CASES, _REUSE)
_PACKING: Final = (
    "unit/allocator/test_effort",
    "unit/allocator/test_packing",
    _POD_FIT,
    _FIT,
    _TRANSCRIPTS,
    _EVERYDAY,
)
# The tests that are asked about a module, the likeliest to notice first. The allocator's rules, and a sample of the
# other packages.
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "controller.rules.eligibility": ("unit/rules/test_eligibility", *_PLACING, _FIT),
    "controller.rules.candidates": _PLACING,
    "controller.rules.affinity": (*_PLACING, _CHOOSE, _LEGAL),
    "controller.rules.placing": (_REUSE, _TRANSCRIPTS),
    "controller.rules.preference": (_PREFERENCE, _CASES, _CANDIDATES),
    "controller.rules.locality": ("unit/rules/test_locality", "unit/rules/test_demand"),
    "controller.rules.growth": ("unit/allocator/test_expansion", _CASES),
    "controller.allocator.choose.packing": _PACKING,
    "controller.allocator.choose.pod_fit": (
        _POD_FIT,
        *_PACKING,
        "unit/allocator/test_pod_fit_worlds",
        _SEARCH,
        _CASES,
        "unit/plan/test_fit",
    ),
    "controller.allocator.choose.search": (_SEARCH, _POD_FIT, _FIT, _TRANSCRIPTS, _EVERYDAY),
    "controller.allocator.choose.shape": (_FIT, _SCORING, *_PACKING),
    "controller.allocator.choose.legal": (_LEGAL, _CHOOSE, "unit/allocator/test_places", _TRANSCRIPTS),
    "controller.allocator.plans.choice": ("unit/allocator/test_choice", _TRANSCRIPTS, _EVERYDAY),
    "controller.allocator.plans.table": ("unit/allocator/test_table", _TRANSCRIPTS),
    "controller.election.elector": ("unit/election/test_elector",),
    "webhook.pod_opt_in": ("unit/webhook/test_pod_opt_in", "unit/webhook/test_app"),
    "certs.rotation": ("unit/certs/test_rotation",),
}


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a given text."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<mutant of {self._name}>", "exec"), module.__dict__)


def code_with(module: str, source: str, holds: Callable[[], bool], most_seconds: float = 0) -> int:
    """The exit code of a forked process where the module, not imported yet, has that text: 0 if `holds` is true there,
    1 if it is not; anything else if it raises or takes too long (0: no limit). Nothing of what it prints is seen."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            signal.setitimer(signal.ITIMER_PROF, most_seconds)  # of its own processor time, whatever else there is
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            sys.dont_write_bytecode = True
            sys.meta_path.insert(0, Replaced(module, source))
            code = 0 if holds() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def survives(module: str, source: str, tests: Sequence[str]) -> bool:
    """Whether all the tests pass with that text in the module's place. A mutant that runs too long counts as killed."""

    def all_pass() -> bool:
        import pytest

        files = [f"tests/{name}.py" for name in dict.fromkeys(tests)]
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "any failure"]
        return pytest.main([*options, *files]) == 0

    return code_with(module, source, all_pass, LONGEST_SECONDS) == 0


@dataclass(slots=True)
class MutationTally:
    """How one module's mutants ended."""

    module: str
    killed: int = 0
    explained: int = 0
    alive: list[SourceMutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.killed + self.explained + len(self.alive)

    def line(self) -> str:
        share = 100 * self.killed / self.total if self.total else 100.0
        return (
            f"{self.module} {self.killed:4d} of {self.total:4d} killed ({share:5.1f} %), "
            f"{self.explained} survive for a reason, {len(self.alive)} without one"
        )


def explained_survivors(path: Path = EXPLAINED) -> dict[str, set[str]]:
    """Survivors with a reason, by module: paragraphs of a line `module: code | change` and the reason below it."""
    found: dict[str, set[str]] = {}
    for paragraph in path.read_text().split("\n\n"):
        head = paragraph.strip().splitlines()[:1]
        if head and not head[0].startswith("#"):
            module, _, key = head[0].partition(": ")
            found.setdefault(module, set()).add(key)
    return found


def judge(module: str, jobs: int, explained: Iterable[str], every: int = 1) -> MutationTally:
    """How the module's mutants end, or each `every`-th of them."""
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    tests = TESTS[module]
    if not survives(module, source, tests):
        raise RuntimeError(f"{module}: its tests fail as it is")
    tally, known = MutationTally(module), set(explained)
    mutants = list(mutants_of(source))[::every]
    started = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = pool.map(lambda mutant: survives(module, mutant.source, tests), mutants)
        for number, (mutant, is_alive) in enumerate(zip(mutants, outcomes, strict=True), start=1):
            if not is_alive:
                tally.killed += 1
            elif mutant.key in known:
                tally.explained += 1
            else:
                tally.alive.append(mutant)
                print(f"  survives: {module}.py:{mutant.line}: {mutant.key}", flush=True)
            if number % 25 == 0:
                print(f"  {module}: {number} of {len(mutants)}, {time.monotonic() - started:.0f} s", flush=True)
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"all of {', '.join(TESTS)} without any")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="a sample: each N-th mutant of a module")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.modules) - TESTS.keys())
    if unknown:
        parser.error(f"not a module that is mutated: {', '.join(unknown)}")
    os.chdir(ROOT)
    known = explained_survivors()
    tallies = []
    for module in options.modules or TESTS:
        tallies.append(judge(module, options.jobs, known.get(module, ()), options.every))
        print(tallies[-1].line(), flush=True)
    killed, total = sum(tally.killed for tally in tallies), sum(tally.total for tally in tallies)
    explained = sum(tally.explained for tally in tallies)
    share = 100 * killed / (total or 1)
    print(f"{killed} of {total} mutants killed ({share:.1f} %), {explained} survive for a reason (survivors.txt)")
    return 0 if share >= WANTED_PCT and not any(tally.alive for tally in tallies) else 1
