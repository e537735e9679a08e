"""What this stand-in would do with saved objects: `schedule` and `expand` in the JSON of `plan`.

It answers with its own rules, so that the two can be compared. Documents are taken to be in order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tests.longhorn import expansion, placement, preference
from tests.longhorn.placement import Raw, Refusal, SearchState
from tests.longhorn.release import NEWEST, release_of

KINDS: Final = ("Node", "v1 Node", "Volume", "Replica", "BackingImage", "EngineImage", "InstanceManager", "Setting")


@dataclass(frozen=True)
class Question:
    """What is asked of which volume, and the world as Longhorn's informers would show it."""

    kind: str  # schedule or expand
    details: Mapping[str, Any]
    volume: Raw
    state: SearchState


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing given is changed."""
    question = read(document)
    answer_of = _schedule if question.kind == "schedule" else _expand
    return answer_of(question.state, question.volume, question.details)


def read(document: Mapping[str, Any]) -> Question:
    """The question in a document; the state's replicas are its own."""
    objects: dict[str, dict[str, Raw]] = {kind: {} for kind in KINDS}
    for raw in _flat(document["objects"]):
        version, kind = raw["apiVersion"], raw["kind"]
        known = objects.get(kind if version.startswith("longhorn.io/") else f"{version} {kind}", {})
        known[raw["metadata"]["name"]] = {**raw, "spec": raw.get("spec") or {}}
    settings = {name: str(raw["value"]) for name, raw in objects["Setting"].items()}
    settings |= {name: str(value) for name, value in document.get("settings", {}).items()}
    version = document.get("longhornVersion", settings.get("current-longhorn-version"))
    ((kind, details),) = document["question"].items()
    volume = objects["Volume"][details["volume"]]
    source = str(volume["spec"].get("dataSource") or "").partition("://")[2].split("/")[0]  # snap://<volume>/<snapshot>
    state = SearchState(
        nodes=objects["Node"],
        replicas=[copy.deepcopy(raw) for raw in _replicas_of(objects, details["volume"])],
        settings=settings,
        engine_images=list(objects["EngineImage"].values()) or None,
        instance_managers=list(objects["InstanceManager"].values()) or None,
        backing_images=objects["BackingImage"],
        kube_nodes=objects["v1 Node"] or None,
        source_replicas=_replicas_of(objects, source),
        now=datetime.fromisoformat(document["now"]) if "now" in document else datetime.now(UTC),
        release=NEWEST if version is None else release_of(version),
    )
    return Question(kind, details, volume, state)


def _flat(objects: list[Raw]) -> Iterator[Raw]:
    """Objects, those of a List among them."""
    for raw in objects:
        yield from _flat(raw["items"]) if raw["kind"].endswith("List") else [raw]


def _replicas_of(objects: Mapping[str, Mapping[str, Raw]], volume: str) -> list[Raw]:
    return [raw for raw in objects["Replica"].values() if raw["spec"].get("volumeName") == volume]


# Answers


def _schedule(state: SearchState, volume: Raw, details: Mapping[str, Any]) -> dict[str, Any]:
    own = {replica["metadata"]["name"]: replica for replica in state.replicas}
    return {"steps": [_step(state, volume, own[name]) for name in details["replicas"]]}


def _step(state: SearchState, volume: Raw, replica: Any) -> dict[str, Any]:
    """One call of Longhorn's scheduler; the pick is written into `replica`, the disks' figures stay as they were."""
    spec = replica["spec"]
    if spec.get("nodeID"):
        found = placement.SearchAnswer([], [Refusal("", "", "replica already scheduled", f"on node {spec['nodeID']}")])
    elif spec.get("failedAt") and not spec.get("healthyAt"):
        found = placement.SearchAnswer(
            [], [Refusal("", "", "unused failed replica is not supported", "it failed unused")]
        )
    else:
        found = placement.find_candidates(state, volume, replica)
    candidates = preference.near(state, volume, found.candidates)
    size = int(spec.get("volumeSize") or volume["spec"]["size"])
    chosen = placement.choose(state, volume, candidates, lambda _: 0, size=size)
    if chosen is not None:
        spec.update(nodeID=chosen.node, diskID=chosen.uuid)
        spec.setdefault("volumeSize", volume["spec"]["size"])
    refusals = sorted(found.refusals, key=lambda entry: (entry.node, entry.disk, entry.reason, entry.message))
    return {
        "replica": replica["metadata"]["name"],
        "scheduled": _place(chosen) if chosen is not None else None,
        "candidates": [_place(entry) for entry in candidates],
        "refusals": [
            {"node": entry.node, "disk": entry.disk, "reason": entry.reason, "message": entry.message}
            for entry in refusals
        ],
    }


def _place(entry: placement.Candidate) -> dict[str, str]:
    return {"node": entry.node, "disk": entry.disk, "diskUUID": entry.uuid}


def _expand(state: SearchState, volume: Raw, details: Mapping[str, Any]) -> dict[str, Any]:
    growths = expansion.check_expansion(state, volume, details["size"])
    return {
        "admitted": expansion.is_admitted(growths),
        "verdict": expansion.verdict(growths),
        "largestSize": expansion.largest_size(state, volume),
        "disks": [
            {
                "node": entry.node,
                "disk": entry.disk,
                "growth": entry.growth_bytes,
                "reason": entry.reason,
                "message": entry.message,
            }
            for entry in growths
        ],
    }
