"""The cases of `cases.yaml` as questions in the format of `plan`, and what is said of answers.

A case is a promise with a world, which each of its `rows` changes (maps are merged, all else is replaced) and says what
is expected of:

- `candidates`: the disks that Longhorn chooses among for the last replica that is asked for, as `node/disk`;
- `pick`, `picks`: the disk for that one, for each; of equal ones the first by name, and null for none;
- `refused`: places (a node, a disk, or "" for none) and Longhorn's reason, which stands there among others;
- `says`: reasons that stand somewhere, as Longhorn gives some for the cluster and the product for each node;
- `admitted`, `verdict`, `largest`, `growths` by disk: of a question of growth, to `grow` bytes;
- `error`: words that a complaint about bad input has.

The world: `nodes` with `disks` (d1, d2 ...; one ample disk unless there is more to say), the `volume`, its `replicas`
by the UUIDs of their disks (`a-d1`), those of a linked clone's source (`sources`), `settings` by the short names below,
`images`, `engines`, `managers`, Kubernetes nodes with labels (`kube`), other `objects`. `ask` names the replicas to be
placed, one called `new` unless they are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.longhorn_rules.objects import LONG_AGO, Raw, disk, longhorn, node, replica, volume

FILE: Final = Path(__file__).with_name("cases.yaml")
NOW: Final = "2026-01-01T12:00:00Z"
EXPECTED: Final = {
    *("candidates", "pick", "picks", "refused", "says", "admitted", "verdict", "largest", "growths", "error"),
}
SETTINGS: Final = {
    "soft nodes": "replica-soft-anti-affinity",
    "soft zones": "replica-zone-soft-anti-affinity",
    "soft disks": "replica-disk-soft-anti-affinity",
    "over-provisioning": "storage-over-provisioning-percentage",
    "minimal available": "storage-minimal-available-percentage",
    "auto-balance": "replica-auto-balance",
    "pressure": "replica-auto-balance-disk-pressure-percentage",
    "replacement wait": "replica-replenishment-wait-interval",
    "empty node selector": "allow-empty-node-selector-volume",
    "empty disk selector": "allow-empty-disk-selector-volume",
    "manager image": "default-instance-manager-image",
    "version": "current-longhorn-version",
}


def rows() -> Iterator[tuple[str, Raw, Raw]]:
    """Every row's name, question and expectations."""
    for case in _read()["rules"]:
        for number, row in enumerate(case.get("rows", [{}]), 1):
            world = {"nodes": {"a": None}, **merged(case, row)}
            promise, _ = world.pop("promise"), world.pop("rows", None)
            expected = {name: world.pop(name) for name in EXPECTED & world.keys()}
            yield f"{promise} ({number})", question(world), expected


def wrong_fields() -> dict[str, list[tuple[str, Any]]]:
    """By kind, paths and values that Longhorn's definitions do not allow there."""
    kinds = _read()["wrong fields"].items()
    return {kind: [item for entry in entries for item in entry.items()] for kind, entries in kinds}


@cache
def _read() -> Raw:
    found: Raw = yaml.safe_load(FILE.read_text())
    return found


def merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {name: merged(old.get(name), value) for name, value in new.items()}


def question(world: Raw) -> Raw:
    """The document. What is no part of a world is one of the document."""
    parts = {name: world.pop(name) for name in WORLD & world.keys()}
    found = [volume(**parts.get("volume", {})), *parts.get("objects", ())]
    for part, make in MAKERS.items():
        found += [make(name, entry or {}) for name, entry in parts.get(part, {}).items()]
    asked = parts.get("ask", ["new"]) if "grow" not in parts else []
    replicas = dict.fromkeys(asked) | parts.get("replicas", {})
    size = int(found[0]["spec"]["size"])
    found += [_replica(name, entry, size) for name, entry in replicas.items()]
    found += [_replica(name, entry, size, of="src") for name, entry in parts.get("sources", {}).items()]
    schedule = {"schedule": {"volume": "v", "replicas": asked}}
    return {
        "objects": found,
        "settings": {SETTINGS[name]: value for name, value in parts.get("settings", {}).items()},
        "now": NOW,
        "question": {"expand": {"volume": "v", "size": parts["grow"]}} if "grow" in parts else schedule,
        **world,
    }


def _node(name: str, given: Raw) -> Raw:
    return node(name, *(disk(**entry) for entry in given.get("disks", ())), **without(given, "disks"))


def _image(name: str, given: Raw) -> Raw:
    return longhorn("BackingImage", name, spec=given)


def _engine(name: str, given: Raw) -> Raw:
    """The nodes that have the image, and its state."""
    status = {"state": given.get("state", "deployed"), "nodeDeploymentMap": without(given, "state")}
    return longhorn("EngineImage", name, spec={"image": name}, status=status)


def _manager(name: str, given: Raw) -> Raw:
    """On the node that it is named after, unless another is named."""
    spec = {"nodeID": given.get("at", name), "type": "aio", "dataEngine": "v1", "image": "manager"}
    status = {"currentState": given.get("state", "running")}
    spec |= without(given, "at", "state", "deleting")
    return longhorn("InstanceManager", name, deleting=given.get("deleting", False), spec=spec, status=status)


def _kube(name: str, labels: Raw) -> Raw:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}}


MAKERS: Final = {"nodes": _node, "images": _image, "engines": _engine, "managers": _manager, "kube": _kube}
WORLD: Final = {*MAKERS, "volume", "replicas", "sources", "settings", "objects", "ask", "grow"}


def without(given: Raw, *names: str) -> Raw:
    return {name: value for name, value in given.items() if name not in names}


def _replica(name: str, entry: Raw | str | None, size: int, of: str = "v") -> Raw:
    """`entry`: its place, or a map in which `failed: true` stands for a failure a while ago."""
    given = dict(entry) if isinstance(entry, dict) else {"place": entry or ""}
    if given.pop("failed", False):
        given["failedAt"] = LONG_AGO
    return replica(name, **{"size": size, "of": of, **given})


def said(answer: Raw, reason_of: Any) -> Raw:
    """An answer in the terms of the expectations; `reason_of` makes Longhorn's reason of the answer's own."""
    if "error" in answer:
        return {"error": answer["error"]}
    if "steps" in answer:
        steps = answer["steps"]
        picks = [_place(step["scheduled"]) if step["scheduled"] else None for step in steps]
        refusals = [entry for step in steps[-1:] for entry in step["refusals"]]
        found: Raw = {"picks": picks, "pick": picks[-1], "candidates": list(map(_place, steps[-1]["candidates"]))}
    else:
        refusals = [entry for entry in answer["disks"] if entry["reason"]]
        growths = {_place(entry): entry["growth"] for entry in answer["disks"]}
        found = {"admitted": answer["admitted"], "verdict": answer.get("verdict")}
        found |= {"largest": answer["largestSize"], "growths": growths}
    reasons = [(_place(entry), reason_of(entry["reason"])) for entry in refusals]
    return found | {"refused": reasons, "says": [reason for _, reason in reasons]}


def _place(entry: Raw) -> str:
    return "/".join(filter(None, (entry["node"], entry["disk"])))


def is_met(name: str, expected: Any, found: Raw) -> bool:
    """Whether what was said meets one expectation."""
    if name not in found:
        return False
    if name == "refused":
        return set(expected.items()) <= set(found[name])
    if name == "says":
        return set(expected) <= set(found[name])
    if name == "error":
        return all(word in found[name] for word in expected)
    return bool(found[name] == expected)
