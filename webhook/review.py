"""AdmissionReview, `admission.k8s.io/v1`: what the API server asks, and what it is told.

Shapes are those of the Kubernetes documentation, "Dynamic Admission Control". The answer always carries the request's
uid; a review whose uid cannot be read has no valid answer, so it is refused as a request (400). A patch (RFC 6902) adds
only what is missing, parents first.

Of a review only what is asked about is decoded, and no object with more than MOST_VALUES values: a body of some MiB may
be a hundred times as large once it is decoded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from controller.errors import MalformedRequestError
from controller.kube.resources import pointer
from controller.model.reader import Raw

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MOST_VALUES: Final = 100_000  # of an object; a pod with 5,000 environment variables has 30,000
MAX_WARNING_CHARACTERS: Final = 256  # the API server cuts longer ones, and drops those beyond 4096 together
_Decoded = TypeVar("_Decoded")
BLIND_WARNING: Final = "Longhorn scheduler extender: the pod could not be reviewed and was admitted unchanged"

_VALUES: Final = (b",", b":", b"[", b"{")  # one of them stands before each
_STRING_OR_VALUE: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|([,:\[{])', re.DOTALL)


class _Kind(msgspec.Struct):
    kind: str | None = None


class _Resource(msgspec.Struct):
    resource: str | None = None


class _Request(msgspec.Struct, rename="camel"):
    uid: str | None = None
    kind: _Kind | None = None
    resource: _Resource | None = None
    sub_resource: str | None = None
    operation: str | None = None
    namespace: str | None = None
    name: str | None = None
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    request: _Request | None = None


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any] | None)


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
    review = _decode(_ENVELOPE, body, "")
    if review.api_version != API_VERSION:
        raise MalformedRequestError("apiVersion", f"is not {API_VERSION}")
    if review.kind != KIND:
        raise MalformedRequestError("kind", f"is not {KIND}")
    request = review.request
    if request is None:
        raise MalformedRequestError("request", "is missing")
    if not request.uid:
        raise MalformedRequestError("request.uid", "is missing")
    return Review(
        uid=request.uid,
        kind=(request.kind.kind if request.kind is not None else None) or "",
        resource=(request.resource.resource if request.resource is not None else None) or "",
        sub_resource=request.sub_resource or "",
        operation=request.operation or "",
        namespace=request.namespace or "",
        name=request.name or "",
        is_dry_run=bool(request.dry_run),
        object=_object(request.object, "request.object"),
        old_object=_object(request.old_object, "request.oldObject"),
    )


def _object(raw: msgspec.Raw, path: str) -> Raw:
    data = bytes(raw)
    if len(data) > MOST_VALUES and sum(map(data.count, _VALUES)) > MOST_VALUES:  # perhaps in texts alone
        values = (match for match in _STRING_OR_VALUE.finditer(data) if match[1])
        if next(islice(values, MOST_VALUES, None), None) is not None:
            raise MalformedRequestError(path, f"has more than {MOST_VALUES} values")
    return _decode(_OBJECT, data, path) or {}


def _decode(decoder: msgspec.json.Decoder[_Decoded], data: bytes, path: str) -> _Decoded:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        raise MalformedRequestError(f"{path}{at.rstrip('`')}".strip(".") or "body", problem) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError(path or "body", f"is not JSON: {error}") from error
    except RecursionError as error:
        raise MalformedRequestError(path or "body", "nests too deep") from error


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
