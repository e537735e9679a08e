"""Answers of `python -m controller.plan` as JSON objects; docs/plan-format.md is their description.

Lists are sorted by node and disk. A reason is one of our stable codes, "" where nothing is refused; `node` and `disk`
are "" where a refusal concerns the whole node, or the volume or replica as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.allocator.verbs.fit import NodeFit
from controller.rules.candidates import Candidate
from controller.rules.growth import ExpansionPlan
from controller.rules.reasons import Refusal
from controller.rules.schedule import PlacementStep

Json = dict[str, Any]


def encode_step(step: PlacementStep) -> Json:
    """One replica of a `schedule` question; `candidates` are those that Longhorn's choice is narrowed to."""
    ordered = sorted(step.preferred, key=lambda entry: (entry.node, entry.disk))
    return {
        "replica": step.replica,
        "scheduled": None if step.scheduled is None else _place(step.scheduled),
        "candidates": [_place(entry) for entry in ordered],
        "refusals": encode_refusals(step.search.refusals),
    }


def _place(entry: Candidate) -> Json:
    return {"node": entry.node, "disk": entry.disk, "diskUUID": entry.uuid}


def encode_refusals(refusals: Iterable[Refusal]) -> list[Json]:
    found = [
        {
            "node": entry.node,
            "disk": entry.disk,
            "reason": str(entry.rejection.reason),
            "message": entry.rejection.message,
        }
        for entry in refusals
    ]
    return sorted(found, key=lambda entry: tuple(entry.values()))


def encode_expansion(plan: ExpansionPlan) -> Json:
    """The answer to an `expand` question. What speaks against the volume itself stands first, without node and disk."""
    disks: list[Json] = []
    if plan.rejection is not None:
        disks.append(
            {
                "node": "",
                "disk": "",
                "growth": 0,
                "reason": str(plan.rejection.reason),
                "message": plan.rejection.message,
            }
        )
    for entry in plan.disks:
        rejection = entry.rejection
        disks.append(
            {
                "node": entry.node,
                "disk": entry.disk,
                "growth": entry.growth_bytes,
                "reason": "" if rejection is None else str(rejection.reason),
                "message": "" if rejection is None else rejection.message,
            }
        )
    return {"admitted": plan.admitted, "largestSize": plan.largest_bytes, "disks": disks}


def encode_fit(fits: Mapping[str, NodeFit]) -> Json:
    """The answer to a `fit` question, nodes and volumes by name."""
    return {
        "nodes": {
            name: {
                "verdict": fit.verdict.name.lower(),
                "robust": fit.is_robust,
                "bounded": fit.is_bounded,
                "placement": dict(sorted(fit.placement.items())),
                "refusals": encode_refusals(fit.refusals),
            }
            for name, fit in sorted(fits.items())
        }
    }
