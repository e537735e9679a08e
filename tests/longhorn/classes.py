"""What a StorageClass and a claim ask of Longhorn, and what Longhorn refuses to make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.longhorn.quantity import quantity_bytes

Raw = dict[str, Any]
MIN_BYTES, GRANULE_BYTES = 10 * 1024**2, 2 * 1024**2
MOST_REPLICAS: Final = 20
LOCALITIES: Final = ("disabled", "best-effort", "strict-local")
FRONTENDS: Final = ("blockdev", "iscsi", "nvmf", "ublk")


def rounded(requested: int) -> int:
    """At least 10 MiB, rounded up to 2 MiB."""
    return -(-max(requested, MIN_BYTES) // GRANULE_BYTES) * GRANULE_BYTES


def requested_bytes(claim: Raw) -> int:
    return quantity_bytes(claim["spec"]["resources"]["requests"]["storage"])


def backup_of(url: str) -> str:
    """The name in `<target>/?backup=<name>&volume=<name>`; "" for anything else."""
    return parse_qs(urlsplit(url).query).get("backup", [""])[0]


def refusal(parameters: Mapping[str, str], claim: Raw, settings: Mapping[str, str]) -> str:
    """Why CSI or Longhorn's validator never makes such a volume; "" if they do."""
    locality = _locality(parameters, settings)
    if locality not in LOCALITIES:
        return f"dataLocality {locality!r} is unknown"
    text = _replicas(parameters, settings)
    if not text.isdecimal() or not 1 <= int(text) <= MOST_REPLICAS:
        return f"numberOfReplicas {text!r} is not within 1 to {MOST_REPLICAS}"
    if parameters.get("frontend", "blockdev") not in FRONTENDS:
        return f"frontend {parameters['frontend']!r} is unknown"
    if locality == "strict-local":
        if int(text) != 1:
            return "strict-local needs exactly one replica"
        if _is_shared(claim) and parameters.get("migratable") != "true":
            return "strict-local cannot be shared"
    return ""


def volume_spec(parameters: Mapping[str, str], claim: Raw, settings: Mapping[str, str]) -> Raw:
    """The Volume's spec by the class's parameters and Longhorn's default settings, where nothing is refused."""
    modes, shared = claim["spec"].get("accessModes") or [], _is_shared(claim)
    spec: Raw = {
        "size": str(rounded(requested_bytes(claim))),
        "numberOfReplicas": int(_replicas(parameters, settings)),
        "staleReplicaTimeout": int(parameters.get("staleReplicaTimeout") or 2880),
        "dataLocality": _locality(parameters, settings),
        "accessMode": "rwx" if shared else "rwop" if "ReadWriteOncePod" in modes else "rwo",
        "migratable": shared and parameters.get("migratable") == "true",
        "dataEngine": parameters.get("dataEngine") or "v1",
        "frontend": parameters.get("frontend", "blockdev"),
        "nodeID": "",
    }
    for selector in ("nodeSelector", "diskSelector"):
        if parameters.get(selector):
            spec[selector] = sorted(parameters[selector].split(","))
    for flag in ("replicaSoftAntiAffinity", "replicaZoneSoftAntiAffinity", "replicaDiskSoftAntiAffinity"):
        spec[flag] = parameters.get(flag) or "ignored"
    spec["replicaAutoBalance"] = parameters.get("replicaAutoBalance") or "ignored"
    for source in ("fromBackup", "backingImage"):
        if parameters.get(source):
            spec[source] = parameters[source]
    return spec


def _locality(parameters: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """An empty value is one too, and not the default."""
    return parameters.get("dataLocality", settings.get("default-data-locality", "disabled"))


def _replicas(parameters: Mapping[str, str], settings: Mapping[str, str]) -> str:
    if parameters.get("numberOfReplicas"):
        return parameters["numberOfReplicas"]
    text = settings.get("default-replica-count", "3")
    return str(json.loads(text).get(parameters.get("dataEngine") or "v1", "3")) if text.startswith("{") else text


def _is_shared(claim: Raw) -> bool:
    return any(mode in ("ReadWriteMany", "ReadOnlyMany") for mode in claim["spec"].get("accessModes") or ())
