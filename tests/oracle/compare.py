"""The same question to the product and to the tests' own rules for Longhorn: where the answers differ.

Compared are what Longhorn itself decides: every step's set of candidates and whether the replica is placed, the reasons
of refused disks and nodes where Longhorn has a reason, and the verdict, the largest size and every disk's growth of an
expansion. Which of several candidates is picked is chance in Longhorn; the steps after a different pick are not
compared. Both read as beside a running Longhorn, whose words and versions may be newer ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from controller.plan import command as product_plan
from controller.plan.complaints import InputError as ProductInputError
from controller.plan.complaints import Notes
from controller.rules.reasons import Reason
from tests.longhorn import plan as reference_plan
from tests.oracle.reasons import longhorn_reason
from tests.oracle.worlds import NOW, Document

Answer = dict[str, Any]
Answerer = Callable[[Document], Answer]
BAD_INPUT: Final = "error"
# Longhorn names these for the cluster as a whole, when no node is left.
OF_CLUSTER: Final = frozenset(
    {
        "hard affinity cannot be satisfied",
        "topology requirement cannot be satisfied",
        "linked clone replica cannot be satisfied",
        "none of the node candidates contains a ready engine image",
    }
)


def ask_product(document: Document) -> Answer:
    try:
        return product_plan.answer(document, NOW, Notes(is_lenient=True))
    except ProductInputError as error:
        return {BAD_INPUT: str(error)}


def ask_reference(document: Document) -> Answer:
    return reference_plan.answer(document)


def differences(document: Document, product: Answerer = ask_product) -> list[str]:
    """What the product says differently, one line each; none: the two agree, or the product refuses the document. A
    crash is a difference as well."""
    try:
        found = product(document)
        if BAD_INPUT in found:
            return []
        expected = ask_reference(document)
    except Exception as error:
        return [f"crash: {type(error).__name__}: {error}"]
    return _steps(document, expected, found) if "steps" in expected else _expansion(expected, found)


def _steps(document: Document, expected: Answer, found: Answer) -> list[str]:
    names = [step["replica"] for step in expected["steps"]]
    if names != [step["replica"] for step in found["steps"]]:
        return [f"replicas: expected {names}, found {[step['replica'] for step in found['steps']]}"]
    has_nodes = any(raw.get("kind") == "Node" for raw in document["objects"])
    lines = []
    for name, ours, theirs in zip(names, expected["steps"], found["steps"], strict=True):
        lines += [f"{name}: {line}" for line in _step(ours, theirs, has_nodes)]
        if lines or ours["scheduled"] != theirs["scheduled"]:
            break
    return lines


def _step(expected: Answer, found: Answer, has_nodes: bool) -> list[str]:
    lines = []
    wanted, got = _places(expected["candidates"]), _places(found["candidates"])
    if wanted != got:
        lines.append(f"candidates: missing {sorted(wanted - got)}, too many {sorted(got - wanted)}")
    if len(got) != len(found["candidates"]):
        lines.append("candidates: one stands there twice")
    if (expected["scheduled"] is None) != (found["scheduled"] is None):
        lines.append(f"scheduled: expected {expected['scheduled']}, found {found['scheduled']}")
    if found["scheduled"] is not None and found["scheduled"] not in found["candidates"]:
        lines.append(f"scheduled: {found['scheduled']} is no candidate")
    return lines + _refusals(expected, found, has_nodes)


def _places(entries: list[Answer]) -> set[tuple[str, str, str]]:
    return {(entry["node"], entry["disk"], entry["diskUUID"]) for entry in entries}


def _refusals(expected: Answer, found: Answer, has_nodes: bool) -> list[str]:
    """Every disk that Longhorn refuses for a reason has to be refused for that reason, and every node as well.

    Longhorn names some reasons for the cluster as a whole; the product names them for each node. The product remembers
    a refused node as such no longer once a later try reached its disks.
    """
    reached = {entry["node"] for entry in (*found["candidates"], *found["refusals"]) if entry["disk"]}
    ours = {(entry["node"], entry["disk"], entry["reason"]) for entry in expected["refusals"]}
    theirs = {(entry["node"], entry["disk"], longhorn_reason(Reason(entry["reason"]))) for entry in found["refusals"]}
    everywhere = {reason for _, _, reason in theirs}
    lines = []
    for node, disk, reason in sorted(ours):
        if reason in OF_CLUSTER:
            is_there = bool(reached) or reason in everywhere or not has_nodes
        elif disk or node not in reached:
            is_there = (node, disk, reason) in theirs
        else:
            is_there = True
        if not is_there:
            lines.append(f"refusals: {node or 'cluster'} {disk}: {reason} is missing")
    for node, disk, reason in sorted(theirs, key=str):
        if disk and reason and (node, disk, reason) not in ours:
            lines.append(f"refusals: {node} {disk}: {reason} is not Longhorn's")
    return lines


def _expansion(expected: Answer, found: Answer) -> list[str]:
    lines = [
        f"{name}: expected {expected[name]}, found {found[name]}"
        for name in ("admitted", "verdict", "largestSize")
        if expected[name] != found[name]
    ]
    wanted, got = _growths(expected, of_product=False), _growths(found, of_product=True)
    return lines + [f"disks: expected {wanted}, found {got}" for _ in range(wanted != got)]


def _growths(answer: Answer, *, of_product: bool) -> list[tuple[str, str, int, str]]:
    """Node, disk, growth and Longhorn's reason."""
    return sorted(
        (
            entry["node"],
            entry["disk"],
            entry["growth"],
            reason_of(entry["reason"]) if of_product else entry["reason"],
        )
        for entry in answer["disks"]
    )


def reason_of(code: str) -> str:
    """Longhorn's reason, or ours where it has none; "" where nothing is refused."""
    return (longhorn_reason(Reason(code)) or code) if code else ""
