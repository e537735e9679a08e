"""AdmissionReview, `admission.k8s.io/v1`: what the API server asks, and what it is told.

Shapes are those of the Kubernetes documentation, "Dynamic Admission Control". The answer always carries the request's
uid; a review whose uid cannot be read has no valid answer, so it is refused as a request (400). A patch (RFC 6902) adds
only what is missing, parents first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller.errors import MalformedRequestError
from controller.kube.json_pointer import pointer
from controller.model.reader import Raw, flag_at, mapping_at, text_at

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_WARNING_CHARACTERS: Final = 256  # the API server cuts longer ones, and drops those beyond 4096 together
BLIND_WARNING: Final = "Longhorn scheduler extender: the pod could not be reviewed and was admitted unchanged"


@dataclass(frozen=True, slots=True)
class Operation:
    """An `add`: of a key that is not there, or, of one that is, its new value."""

    path: str  # a JSON pointer
    value: Any

    def raw(self) -> dict[str, Any]:
        return {"op": "add", "path": self.path, "value": self.value}


@dataclass(frozen=True, slots=True)
class Review:
    """One request. `object` and `old_object` are empty where the API server sends none (CREATE has no old one)."""

    uid: str
    kind: str  # of the request's own form, as "Pod"
    resource: str  # as "pods"
    sub_resource: str
    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    namespace: str
    name: str  # "" for an object that gets its name later
    is_dry_run: bool
    object: Raw
    old_object: Raw

    @property
    def is_new_pod(self) -> bool:
        return (self.resource, self.operation, self.sub_resource) == ("pods", "CREATE", "")


def decode_review(body: bytes) -> Review:
    """MalformedRequestError names the field that is wrong."""
    try:
        raw: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError("body", f"is not JSON: {error}") from error
    except RecursionError as error:
        raise MalformedRequestError("body", "nests too deep") from error
    if not isinstance(raw, dict):
        raise MalformedRequestError("body", "is not an object")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw.get(field) != expected:
            raise MalformedRequestError(field, f"is not {expected}")
    if not isinstance(raw.get("request"), dict):
        raise MalformedRequestError("request", "is missing")
    request = raw["request"]
    uid = text_at(request, "request", "uid")
    if not uid:
        raise MalformedRequestError("request.uid", "is missing")
    resource = mapping_at(request, "request", "resource")
    return Review(
        uid=uid,
        kind=text_at(mapping_at(request, "request", "kind"), "request.kind", "kind"),
        resource=text_at(resource, "request.resource", "resource"),
        sub_resource=text_at(request, "request", "subResource"),
        operation=text_at(request, "request", "operation"),
        namespace=text_at(request, "request", "namespace"),
        name=text_at(request, "request", "name"),
        is_dry_run=flag_at(request, "request", "dryRun"),
        object=mapping_at(request, "request", "object"),
        old_object=mapping_at(request, "request", "oldObject"),
    )


def encode_allowed(uid: str, operations: Sequence[Operation] = (), warnings: Sequence[str] = ()) -> bytes:
    """Allowed, with a JSON patch when there are operations."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        patch = msgspec.json.encode([operation.raw() for operation in operations])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return _encode(response, warnings)


def encode_admitted_unchanged(uid: str) -> bytes:
    """The answer where the review of a pod failed on our side: it must be created as if the webhook were not there."""
    return encode_allowed(uid, warnings=[BLIND_WARNING])


def encode_denied(uid: str, message: str) -> bytes:
    """Refused; `message` is what the user reads in kubectl."""
    status = {"code": 403, "message": message, "reason": "Forbidden"}
    return _encode({"uid": uid, "allowed": False, "status": status}, ())


def _encode(response: dict[str, Any], warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = [warning[:MAX_WARNING_CHARACTERS] for warning in warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


# Patches


def plan_value(raw: Mapping[str, Any], steps: Sequence[str | int], value: Any) -> list[Operation]:
    """The operations that put `value` at `steps` of `raw`; none if it is there already. The last step is a key; a list
    must exist.

    One operation: the missing parents are part of its value.
    """
    current: Any = raw
    for depth, step in enumerate(steps):
        if isinstance(step, int):
            current = current[step]
            continue
        if not isinstance(current, Mapping):
            raise MalformedRequestError(".".join(map(str, steps[:depth])), "is not an object")
        found = current.get(step)
        if depth == len(steps) - 1:
            return [] if found == value else [Operation(pointer(*steps), value)]
        if found is None:  # missing, or null
            for missing in reversed(steps[depth + 1 :]):
                value = {missing: value}
            return [Operation(pointer(*steps[: depth + 1]), value)]
        current = found
    raise ValueError("a path ends with a key")
