"""JSON from the API server: answers, the events of a watch, and refusals."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    UnavailableError,
)

_DEPTH: Final = 100  # of what is read of an object; Kubernetes and Longhorn nest a tenth of it
_HALF_PAIR: Final = re.compile(r"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)

# All that a 422 says where a JSON patch does not fit the stored object, as where a `test` in it fails.
MISFIT: Final = "the server rejected our request due to an error in our request"
_ERRORS: Final[Mapping[int, type[ClusterError]]] = {
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: UnavailableError,
}

log = logging.getLogger(__name__)

_Any = Any | msgspec.UnsetType


class _Head(msgspec.Struct, rename="camel", omit_defaults=True):
    """As much of an object as we read, however much it has: what is not named in a class is not built."""


class _Metadata(_Head):
    name: _Any = msgspec.UNSET
    namespace: _Any = msgspec.UNSET
    uid: _Any = msgspec.UNSET
    resource_version: _Any = msgspec.UNSET
    creation_timestamp: _Any = msgspec.UNSET
    deletion_timestamp: _Any = msgspec.UNSET
    labels: _Any = msgspec.UNSET
    annotations: _Any = msgspec.UNSET
    owner_references: _Any = msgspec.UNSET


class _Container(_Head):
    resources: _Any = msgspec.UNSET


class _Volume(_Head):
    name: _Any = msgspec.UNSET
    persistent_volume_claim: _Any = msgspec.UNSET
    ephemeral: _Head | msgspec.UnsetType = msgspec.UNSET


class _PodSpec(_Head):
    containers: list[_Container] | msgspec.UnsetType = msgspec.UNSET
    init_containers: list[_Container] | msgspec.UnsetType = msgspec.UNSET
    volumes: list[_Volume] | msgspec.UnsetType = msgspec.UNSET
    node_name: _Any = msgspec.UNSET
    priority: _Any = msgspec.UNSET
    scheduler_name: _Any = msgspec.UNSET
    scheduling_gates: _Any = msgspec.UNSET


class _Pod(_Head):
    """Or the Status of an error."""

    metadata: _Metadata | msgspec.UnsetType = msgspec.UNSET
    spec: _PodSpec | msgspec.UnsetType = msgspec.UNSET
    status: _Any = msgspec.UNSET
    code: _Any = msgspec.UNSET
    message: _Any = msgspec.UNSET


class _PodEvent(_Head):
    type: str
    object: _Pod


_EVENTS: Final = {"pods": msgspec.json.Decoder(_PodEvent)}  # anybody may fill a pod; the others are small


def decode_event(line: bytes, plural: str) -> Any:
    """A watch's event about an object of that kind, as `decode` reads it; of a pod only what is read anywhere. 1.4 MiB
    of arguments, which somebody changes a label of again and again, would keep Python busy for 30 ms each time."""
    if plural in _EVENTS:
        with contextlib.suppress(ValueError, RecursionError):
            return msgspec.to_builtins(_EVENTS[plural].decode(line))
    return decode(line, plural)


def decode(data: bytes, what: str) -> Any:
    """JSON from the API server. ValueError for what is none. One odd object must not keep the others out: what is no
    plain JSON, and told of as `what`, is read as Go's encoding/json does, so as kube-scheduler and Longhorn see it:
    with U+FFFD for text that is no Unicode. Null stands for what is nested too deep."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        problem = error  # msgspec.DecodeError is a ValueError
    text = _HALF_PAIR.sub(lambda found: found[1] or "\ufffd", data.decode("utf-8", "replace"))
    found = json.loads(_shallow(text), strict=False)
    log.warning("%s: is not plain JSON, and was read all the same: %s", what, problem)
    return found


def _shallow(text: str) -> str:
    """JSON with null for each list and object that is nested too deep."""
    pieces, kept_to, depth = [], 0, 0
    for found in _BRACKETS.finditer(text):
        depth += (found[1] is not None) - (found[2] is not None)
        if found[1] and depth == _DEPTH + 1:
            pieces += [text[kept_to : found.start()], "null"]
        elif found[2] and depth == _DEPTH:
            kept_to = found.end()
    return "".join((*pieces, text[kept_to:]))


def error_of(status: int, data: bytes) -> ClusterError:
    """The exception for a refusal with that HTTP status and body."""
    try:
        message = str(msgspec.json.decode(data).get("message", ""))
    except (ValueError, AttributeError):
        message = data[:200].decode("utf-8", "replace").strip()
        if status == 404:
            message = (
                f"the server has no such kind of object (is its CRD installed?), or it is no API server: {message}"
            )
    text = f"{status}: {message}"
    if status == 422 and message == MISFIT:
        return ConflictError(text)
    kind = _ERRORS.get(status, UnavailableError if status >= 500 else ClusterError)
    return kind(text)
