"""What kube-scheduler refuses about profiles and extenders, by pkg/scheduler/apis/config/validation."""

from __future__ import annotations

from typing import Any

from controller.scheduler_config.draft import Draft


def check(draft: Draft, document: dict[str, Any]) -> None:
    """ConfigError names the first field that is refused. `document`: as YAML 1.1 reads it."""
    profiles, extenders = document.get("profiles") or [], document.get("extenders") or []
    names = [raw.get("schedulerName") for raw in profiles]
    for index, name in enumerate(names):
        if name == "" or (name is None and len(names) > 1):
            draft.fail(
                f"profiles[{index}].schedulerName", "is not set; kube-scheduler requires it with several profiles"
            )
        if name in names[:index]:
            draft.fail(f"profiles[{index}].schedulerName", f"is {name}, as that of another profile")
    binders = [f"extenders[{index}]" for index, raw in enumerate(extenders) if raw.get("bindVerb")]
    if len(binders) > 1:
        draft.fail("extenders", f"{' and '.join(binders)} have a bindVerb, and only one of all extenders may have one")
    managed: set[str] = set()
    for index, raw in enumerate(extenders):
        weight = raw.get("weight") or 0
        if raw.get("prioritizeVerb") and not (isinstance(weight, int | float) and weight > 0):
            draft.fail(f"extenders[{index}].weight", "is not above 0, which an extender with a prioritizeVerb needs")
        for number, resource in enumerate(raw.get("managedResources") or []):
            name, field = str(resource.get("name") or ""), f"extenders[{index}].managedResources[{number}].name"
            if name in managed or "/" not in name:
                draft.fail(field, f"is {name!r}, " + ("which is managed already" if name in managed else "no resource"))
            managed.add(name)
