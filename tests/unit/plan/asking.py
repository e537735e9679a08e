"""A pod, its claims and their volumes as kubectl prints them, and `fit` questions about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.plan import command as plan
from controller.plan.complaints import InputError, Notes
from tests.fakes import saved
from tests.fakes.saved import GIB, Raw, core, storage_class, volume

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CLASS_PARAMETERS = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
CLASS = storage_class("local", **CLASS_PARAMETERS)


def pod(*claims: str, name: str = "p") -> Raw:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return core("Pod", name, "ns", spec={"volumes": volumes})


def claim(name: str, gib: int = 60, *, of_class: str | None = "local", bound: str = "", **meta: Any) -> Raw:
    spec: Raw = {"storageClassName": of_class, "resources": {"requests": {"storage": f"{gib}Gi"}}}
    return core("PersistentVolumeClaim", name, "ns", spec={**spec, "volumeName": bound}, metadata=meta)


def pv(name: str, of: str) -> Raw:
    csi = {"driver": "driver.longhorn.io", "volumeHandle": name}
    ref = {"namespace": "ns", "name": of, "uid": f"uid-{of}"}
    return core("PersistentVolume", name, spec={"csi": csi, "claimRef": ref, "capacity": {"storage": "60Gi"}})


def bound(of: str, *replicas: Raw, **spec: Any) -> list[Raw]:
    """A claim with its PV and its Longhorn volume `v`."""
    facts = volume("v", gib=60, **{"dataLocality": "best-effort", "numberOfReplicas": 1, **spec})
    return [claim(of, bound="v"), pv("v", of), facts, *replicas]


def asked(objects: list[Raw], nodes: tuple[str, ...], promises: list[Raw] | None = None) -> tuple[list[Raw], Raw]:
    """Objects, with the class that claims name, and the question about the pod."""
    details: Raw = {"pod": "ns/p", "nodes": list(nodes), **({} if promises is None else {"promises": promises})}
    has_class = any(one["metadata"]["name"] == "local" for one in objects)
    return objects if has_class else [CLASS, *objects], {"fit": details}


def fit(objects: list[Raw], *nodes: str, promises: list[Raw] | None = None, **more: Any) -> dict[str, Raw]:
    found: dict[str, Raw] = saved.ask(*asked(objects, nodes, promises), **more)["nodes"]
    return found


def verdicts(objects: list[Raw], *nodes: str, **more: Any) -> dict[str, str]:
    return {name: entry["verdict"] for name, entry in fit(objects, *nodes, **more).items()}


def refused(objects: list[Raw], *nodes: str) -> InputError:
    with pytest.raises(InputError) as caught:
        fit(objects, *nodes)
    return caught.value


def told(objects: list[Raw], *nodes: str, promises: list[Raw] | None = None, lenient: bool = True) -> list[str]:
    """The verdict on each node, then what is said beside."""
    notes, (given, question) = Notes(is_lenient=lenient), asked(objects, nodes, promises)
    found = plan.answer({"objects": given, "question": question}, NOW, notes)["nodes"]
    return [*(entry["verdict"] for entry in found.values()), *notes.lines()]


def reasons(entry: Raw) -> list[str]:
    """Each once: a node's and its disks' may be the same."""
    return sorted({refusal["reason"] for refusal in entry["refusals"]})


def promise(on: str, gib: int, of: str = "other") -> Raw:
    return {"node": on, "volume": of, "size": gib * GIB}
