"""Small faults of the product, by its text, and whether the machine finds them.

Each runs in a process of its own, with that module's text replaced at import. Edit the list with the product.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.run import Replaced
from tests.race.invariants import LIMITS, PROMISES, REASONS, STARVATION

SURVIVED: Final = 10  # exit codes that nothing else uses
KILLED: Final = 11
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """`old` must stand exactly once in the module's text. `invariant`: the one that must fail."""

    name: str
    invariant: str
    module: str
    old: str
    new: str

    def source(self) -> str:
        """The module's text with the fault; ValueError when the product has changed under it."""
        text = ROOT.joinpath(*self.module.split(".")).with_suffix(".py").read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.module} has {self.old!r} {text.count(self.old)} times")
        return text.replace(self.old, self.new)


MUTANTS: Final = (
    Mutant(
        "a yes holds nothing on the last node offered",
        PROMISES,
        "controller.allocator.promises.holds",
        "            wanted = frozenset(nodes) - demand.home_nodes",
        "            wanted = frozenset(list(nodes)[:-1]) - demand.home_nodes",
    ),
    Mutant(
        "another pod's choice of a shared claim is taken for this one's",
        PROMISES,
        "controller.allocator.promises.choice",
        "        if not claim.selected_node or is_used_by_others(claim) or is_superseded(claim):",
        "        if not claim.selected_node or is_superseded(claim):",
    ),
    Mutant(
        "an answer does not supersede what bound claims say",
        PROMISES,
        "controller.allocator.promises.memory",
        "            self._superseded[pod_uid] = self._superseded.get(pod_uid, frozenset()) | frozenset(selected)",
        "            pass",
    ),
    Mutant(
        "a first placement stays on a node that takes it no more",
        PROMISES,
        "controller.allocator.promises.own",
        " and (falls_back or not takes_now(world, node, demand)):",
        " and False:",
    ),
    Mutant(
        "a new leader holds nothing for pods that wait",
        PROMISES,
        "controller.allocator.allocator",
        "            self._derive_locked(holds_everywhere=True)",
        "            self._derive_locked(holds_everywhere=False)",
    ),
    Mutant(
        "a claim that is provisioned without its pod counts for nothing",
        PROMISES,
        "controller.allocator.promises.settle",
        "        if demands and claim.selected_node and goes_on:",
        "        if False:",
    ),
    Mutant(
        "a placed replica leaves its promise where it was",
        PROMISES,
        "controller.allocator.promises.settle",
        "            if node in demand.home_nodes or demand.is_pinned:",
        "            if demand.is_pinned:",
    ),
    Mutant(
        "a yes holds twice the bytes",
        PROMISES,
        "controller.allocator.promises.holds",
        "        size_bytes=demand.size_bytes,",
        "        size_bytes=2 * demand.size_bytes,",
    ),
    Mutant(
        "a new leader admits growth at once",
        PROMISES,
        "controller.allocator.verbs.grow",
        "        if self.is_unknown_locked():",
        "        if False:",
    ),
    Mutant(
        "copies that are Longhorn's own to place count for ever",
        REASONS,
        "controller.allocator.promises.ends",
        "        return promise.chance_at + OWN_SECONDS",
        "        return None",
    ),
    Mutant(
        "a hold never ends by time",
        REASONS,
        "controller.allocator.promises.ends",
        "        if not self._memory.answers.is_due(due.claimant, now, *limits):",
        "        if True:",
    ),
    Mutant(
        "a growth that was never stored is held for ever",
        REASONS,
        "controller.allocator.promises.ends",
        "            if promise.until is not None and now >= promise.until:",
        "            if promise.until is not None and now < promise.until:",
    ),
    Mutant(
        "what is pending counts twice",
        STARVATION,
        "controller.allocator.promises.items",
        "    items = tuple(found)",
        "    items = tuple(found) * 2",
    ),
    Mutant(
        "a disk's room is what is free now, whatever Longhorn may believe",
        LIMITS,
        "controller.rules.eligibility",
        "        reach_bytes=max(reported, believed_bytes),",
        "        reach_bytes=limit - observed_scheduled(disk, replicas),",
    ),
    Mutant(
        "a disk's room is what its newest figure says",
        LIMITS,
        "controller.rules.eligibility",
        "        reach_bytes=max(reported, believed_bytes),",
        "        reach_bytes=reported,",
    ),
    Mutant(
        "copies that share a disk count once there",
        LIMITS,
        "controller.allocator.promises.items",
        "        return size if self.per_disk == 1 or not size else size * min(self.per_disk, room_bytes // size)",
        "        return size",
    ),
    Mutant(
        "what is pending may be left without a site",
        LIMITS,
        "controller.allocator.judge.sets",
        "            is_sure = is_waitable = self._is_spared()",
        "            pass",
    ),
    Mutant(
        "a local newcomer needs room on one disk only",
        LIMITS,
        "controller.allocator.judge.node",
        "        if all(not more or more + load <= disk.free_bytes for disk, more, load in rows) and all(",
        "        if any(more and more + load <= disk.free_bytes for disk, more, load in rows) and all(",
    ),
    Mutant(
        "what Longhorn prefers is taken for where it goes",
        LIMITS,
        "controller.allocator.judge.node",
        "        if all(not more or more + load <= disk.free_bytes for disk, more, load in rows) and all(",
        "        best = [max(rows, key=lambda row: row[0].free_bytes)]\n"
        "        if all(not more or more + load <= disk.free_bytes for disk, more, load in best) and all(",
    ),
    Mutant(
        "what roams counts on no disk",
        LIMITS,
        "controller.allocator.judge.pending",
        "            total = self._roaming_load(room, disk, images) if roaming else 0",
        "            total = 0",
    ),
    Mutant(
        "a disk is taken for 2 GiB smaller",
        STARVATION,
        "controller.rules.eligibility",
        "        free_bytes=limit - observed_scheduled(disk, replicas),",
        "        free_bytes=limit - observed_scheduled(disk, replicas) - 2 * 1024**3,",
    ),
)


def become(name: str) -> Mutant:
    """Put that fault into this process, which must not have imported the product yet."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} is imported already")
    sys.meta_path.insert(0, Replaced(mutant.module, mutant.source()))
    return mutant


def is_killed(mutant: Mutant, examples: int, seed: int) -> bool:
    """Whether the invariant fails on the faulty product, within so many examples."""
    mutant.source()
    command = [sys.executable, "-B", "-m", "tests.race", "--as-mutant", mutant.name]
    numbers = ["--examples", str(examples), "--seed", str(seed)]
    done = subprocess.run([*command, *numbers], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (SURVIVED, KILLED):
        raise RuntimeError(f"{mutant.name}: the run ended with {done.returncode}: {done.stderr}")
    return done.returncode == KILLED


def judge(examples: int, seed: int) -> int:
    """Every mutant against its invariant; 1 if one survives, or if the product itself fails, which proves nothing."""
    alive = 0
    for invariant in dict.fromkeys(mutant.invariant for mutant in MUTANTS):
        command = [sys.executable, "-B", "-m", "tests.race", "--no-shrink", "--invariant", invariant]
        done = subprocess.run([*command, "--examples", str(examples), "--seed", str(seed)], cwd=ROOT, check=False)
        if done.returncode:
            print(f"{invariant}: the product fails without any fault put in, so that no mutant proves anything")
            return 1
    for mutant in MUTANTS:
        is_dead = is_killed(mutant, examples, seed)
        alive += not is_dead
        print(f"{'killed' if is_dead else 'SURVIVED'}: {mutant.invariant}: {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - alive} of {len(MUTANTS)} mutants killed; seed {seed}, at most {examples} examples each")
    return 1 if alive else 0
