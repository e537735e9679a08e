"""AdmissionReview, `admission.k8s.io/v1`: what the API server asks, and what it is told.

Shapes are those of the Kubernetes documentation, "Dynamic Admission Control". The answer always carries the request's
uid; a review whose uid cannot be read has no valid answer, so it is refused as a request (400).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller.errors import MalformedRequestError
from controller.model.reader import Raw, flag_at, mapping_at, text_at
from webhook.json_patch import Operation

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_WARNING_CHARACTERS: Final = 256  # the API server cuts longer ones, and drops those beyond 4096 together

_decoder: Final = msgspec.json.Decoder()


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


def decode_review(body: bytes) -> Review:
    """MalformedRequestError names the field that is wrong."""
    try:
        raw: Any = _decoder.decode(body)
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


def encode_denied(uid: str, message: str, *, code: int = 403, warnings: Sequence[str] = ()) -> bytes:
    """Refused; `message` is what the user reads in kubectl."""
    status = {"code": code, "message": message, "reason": "Forbidden" if code == 403 else "BadRequest"}
    return _encode({"uid": uid, "allowed": False, "status": status}, warnings)


def _encode(response: dict[str, Any], warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = [warning[:MAX_WARNING_CHARACTERS] for warning in warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
