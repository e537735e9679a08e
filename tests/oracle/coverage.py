"""Which rules decide a world, asked of the tests' own rules for Longhorn; and how many worlds each one decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.longhorn import expansion, placement, preference
from tests.longhorn.plan import Question
from tests.oracle.limits import near_limits
from tests.oracle.rules import GROWTH, PLACEMENT, SOFT, Edit, asked
from tests.oracle.worlds import OracleWorld

TRIES: Final = ("1", "2a", "2b unused", "2b evicting", "2c unused", "2c used")
REASONS: Final = sorted({reason for reason, _ in (*PLACEMENT.values(), *GROWTH.values()) if reason})
# (group, name) -> in how many worlds
Counts = Counter[tuple[str, str]]


def names() -> list[tuple[str, str]]:
    """All that has to decide worlds often enough."""
    groups: Mapping[str, Iterable[str]] = {
        "try": TRIES,
        "soft flag": SOFT,
        "reason": REASONS,
        "rule": PLACEMENT,
        "growth": GROWTH,
    }
    return [(group, name) for group, entries in groups.items() for name in entries]


def cover(world: OracleWorld, question: Question) -> Counts:
    """What decides this world, and which limits it lies next to."""
    found: Counts = Counter()
    near = near_limits(world)
    found.update(("limit", name) for name in near)
    found["worlds", "within a byte of a limit"] = bool(near)
    found["worlds", f"asked to {question.kind}"] = 1
    decisive = _placement(question, found) if question.kind == "schedule" else _growth(question)
    found.update(("rule" if question.kind == "schedule" else "growth", name) for name, _ in decisive)
    found.update(("reason", reason) for reason in {reason for _, reason in decisive if reason})
    return found


def _placement(question: Question, found: Counts) -> list[tuple[str, str]]:
    before = candidates(question)
    new = asked(question)
    if not _is_refused(new):
        attempt = placement.find_candidates(question.state, question.volume, new).attempt
        if attempt and candidates(question, leave_out=attempt) != before:
            found["try", attempt] = 1
    found["worlds", "with candidates"] = bool(before)
    for name, flip in SOFT.items():
        with _edited(list(flip(question))) as is_there:
            found["soft flag", name] = is_there and candidates(question) != before
    decisive = []
    for name, (reason, rule) in PLACEMENT.items():
        with _edited(list(rule(question))) as is_there:
            if is_there and candidates(question) != before:
                decisive.append((name, reason))
    return decisive


def candidates(question: Question, *, leave_out: str = "") -> tuple[Hashable, ...]:
    """The disks for the first replica that is asked for."""
    new = asked(question)
    if _is_refused(new):
        return ()
    found = placement.find_candidates(question.state, question.volume, new, leave_out=leave_out).candidates
    return tuple(preference.near(question.state, question.volume, found))


def _is_refused(replica: Any) -> bool:
    spec = replica["spec"]
    return bool(spec.get("nodeID") or (spec.get("failedAt") and not spec.get("healthyAt")))


def _growth(question: Question) -> list[tuple[str, str]]:
    def admitted() -> bool:
        return expansion.is_admitted(
            expansion.check_expansion(question.state, question.volume, question.details["size"])
        )

    before, decisive = admitted(), []
    for name, (reason, rule) in GROWTH.items():
        with _edited(list(rule(question))) as is_there:
            if is_there and admitted() != before:
                decisive.append((name, reason))
    return decisive


_ABSENT: Final = object()


@contextmanager
def _edited(edits: list[Edit]) -> Any:
    """The edits made for as long as the block lasts; yields whether there are any."""
    undo = [(where, key, where.get(key, _ABSENT)) for where, key, _ in edits]
    for where, key, value in edits:
        where[key] = value
    try:
        yield bool(edits)
    finally:
        for where, key, value in reversed(undo):
            if value is _ABSENT:
                where.pop(key, None)
            else:
                where[key] = value


def table(counts: Counts, worlds: int, wanted: float) -> str:
    """Text for a person; what decided fewer than the wanted share of the worlds is marked."""
    lines = [f"{worlds} worlds"]
    for group in ("worlds", "limit", "try", "soft flag", "reason", "rule", "growth"):
        known = [name for where, name in names() if where == group]
        found = known or sorted({name for where, name in counts if where == group})
        lines.append(f"\n{group}")
        for name in found:
            count = counts[group, name]
            mark = "  too few" if known and count < wanted * worlds else ""
            lines.append(f"  {name:<60} {count:>8} {100 * count / max(1, worlds):7.2f} %{mark}")
    return "\n".join(lines)
