"""Which webhook entries there should be, by the settings, the wiring and the version of Longhorn. Pure.

A pod that requests the extender's resource is never scheduled if its scheduler does not ask the extender. So pods opt
in automatically only where that cannot happen: by default, for schedulers that are proven to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.admission.configurations import WantedEntries
from controller.canary.proof import NOT_PROVEN, NOT_RENEWED, Finding, Wiring
from controller.settings import LiveSettings
from controller.workers.support import LonghornRelease

ALWAYS: Final = "always"
OFF: Final = "off"
NOT_SEEN: Final = "no kube-scheduler of that name has been seen yet"
GRACE_SECONDS: Final = 45.0  # a canary that nobody looks at is given up after 30
"""For this long, a new leader keeps a rule that it found, until it knows the wiring itself: its predecessor had the
proof, and pods that are created in between would otherwise be placed unchecked."""


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """All that `decide` goes by. `findings` are by scheduler name; a name without one was not checked, or this process
    does not lead."""

    live: LiveSettings
    longhorn: LonghornRelease | None  # None: Longhorn's settings were not read yet
    schedulers: Sequence[str]
    findings: Mapping[str, Finding]
    opted_in: frozenset[str] = frozenset()  # the scheduler names in the present pod rule
    leading_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AdmissionPlan:
    """The wanted entries, and why pods do not opt in, by scheduler name, or "" for all of them."""

    wanted: WantedEntries
    why_not: Mapping[str, str]


def decide(facts: AdmissionFacts) -> AdmissionPlan | None:
    """The wanted entries, or None while it is not known whether the extender is on, or which Longhorn runs: then the
    configurations stay as they are. While it is off, or this version of Longhorn is not supported, no entry is wanted.
    """
    live = facts.live
    if live.enabled is False:
        return AdmissionPlan(WantedEntries(), {"": "scheduler-extender-enabled is false"})
    if live.enabled is None or facts.longhorn is None:
        return None
    if not facts.longhorn.support.is_supported:
        return AdmissionPlan(WantedEntries(), {"": f"this Longhorn is not supported: {facts.longhorn.support.problem}"})
    why_not = _why_not(facts)
    schedulers = () if "" in why_not else tuple(sorted(set(facts.schedulers) - why_not.keys()))
    return AdmissionPlan(WantedEntries(schedulers, live.share_managers, live.expansion_policy), why_not)


def _why_not(facts: AdmissionFacts) -> dict[str, str]:
    if facts.live.opt_in == OFF:
        return {"": "scheduler-extender-opt-in is off"}
    if facts.live.opt_in == ALWAYS:
        return {}
    return {name: cause for name in facts.schedulers if (cause := _not_wired(name, facts))}


def _not_wired(scheduler: str, facts: AdmissionFacts) -> str:
    """Why this scheduler's pods do not opt in; "" if they do."""
    finding = facts.findings.get(scheduler)
    if finding is not None and finding.state is Wiring.WIRED:
        return ""
    if finding is None or finding.cause == NOT_RENEWED:
        # It does not run: whether it asks, a canary tells as soon as it does. Until then it places no pod unchecked.
        return "" if scheduler in facts.opted_in else NOT_SEEN if finding is None else NOT_RENEWED
    if finding.state is Wiring.UNKNOWN and finding.cause == NOT_PROVEN:
        # No evidence against it. Without canaries, evidence for it may take a long time.
        is_early = facts.leading_seconds < GRACE_SECONDS or not facts.live.wiring_check_every_seconds
        return "" if scheduler in facts.opted_in and is_early else NOT_PROVEN
    return f"{finding.state}: {finding.cause}"
