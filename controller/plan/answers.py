"""Answers of `plan` as JSON objects; docs/plan-format.md is their description.

Lists are sorted by node and disk. A reason is one of our stable codes, "" where nothing is refused; `node` and `disk`
are "" where a refusal concerns the whole node, or the volume or replica as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.plan.fit import NodeFit
from controller.rules.candidates import Candidate
from controller.rules.growth import ExpansionPlan, Prospect
from controller.rules.preference import PlacementStep
from controller.rules.reasons import Reason, Refusal, Rejection

Json = dict[str, Any]


def encode_step(step: PlacementStep) -> Json:
    """One replica of a `schedule` question; `candidates` are those that Longhorn's choice is narrowed to."""
    return {
        "replica": step.replica,
        "scheduled": None if step.scheduled is None else _place(step.scheduled),
        "candidates": [_place(entry) for entry in sorted(step.preferred, key=lambda entry: (entry.node, entry.disk))],
        "refusals": _refusals(step.search.refusals),
    }


def _place(entry: Candidate) -> Json:
    return {"node": entry.node, "disk": entry.disk, "diskUUID": entry.uuid}


def _refusals(refusals: Iterable[Refusal]) -> list[Json]:
    found = [{"node": entry.node, "disk": entry.disk, **_reason(entry.rejection)} for entry in refusals]
    return sorted(found, key=lambda entry: tuple(entry.values()))


def _reason(rejection: Rejection | None) -> Json:
    if rejection is None:
        return {"reason": "", "message": ""}
    return {"reason": str(rejection.reason), "message": rejection.message}


def encode_expansion(plan: ExpansionPlan) -> Json:
    """The answer to an `expand` question. What speaks against the volume itself stands first, without node and disk."""
    of_disk: dict[tuple[str, str], Rejection] = {}
    disks: list[Json] = []
    for found in plan.obstructions:
        if found.node:
            of_disk.setdefault((found.node, found.disk), found.rejection)
        else:
            disks.append({"node": "", "disk": "", "growth": 0, **_reason(found.rejection)})
    for entry in plan.disks:
        other = of_disk.get((entry.node, entry.disk))
        is_limit = other is not None and other.reason is Reason.INCOMPATIBLE_SIZE
        rejection = other if is_limit else entry.rejection or other
        disks.append({"node": entry.node, "disk": entry.disk, "growth": entry.growth_bytes, **_reason(rejection)})
    return {
        "admitted": plan.prospect is Prospect.NOW,
        "verdict": str(plan.prospect),
        "largestSize": plan.largest_bytes,
        "disks": disks,
    }


def encode_fit(fits: Mapping[str, NodeFit]) -> Json:
    """The answer to a `fit` question, nodes and volumes by name."""
    return {
        "nodes": {
            name: {
                "verdict": fit.verdict.name.lower(),
                "bounded": fit.is_bounded,
                "placement": dict(fit.placement),
                "refusals": _refusals(fit.refusals),
            }
            for name, fit in sorted(fits.items())
        }
    }
