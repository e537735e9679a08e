"""The two forms of a request to the extender: names of nodes, or whole Nodes.

Which one kube-scheduler sends follows `nodeCacheCapable` of its configuration. The tests run with either: the form
comes from `$REQUEST_FORM`, so that the same tests show that the answers do not depend on it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.cluster.client import Object

FORM_VARIABLE = "REQUEST_FORM"


class Form(StrEnum):
    NAMES = "names"  # nodeCacheCapable: true, as the documents say
    NODES = "nodes"  # nodeCacheCapable: false, as the enhancement text says

    @property
    def is_node_cache_capable(self) -> bool:
        return self is Form.NAMES


def wanted_form() -> Form:
    """That in `$REQUEST_FORM`, else names. Raises ValueError that names the variable."""
    text = os.environ.get(FORM_VARIABLE) or Form.NAMES
    try:
        return Form(text)
    except ValueError:
        raise ValueError(f"{FORM_VARIABLE}: {text!r} is none of {', '.join(Form)}") from None


def encode(form: Form, pod: Object, nodes: Sequence[str], known: Mapping[str, Object]) -> bytes:
    """The body of a filter call. A node that is not among the `known` ones is sent with its name alone."""
    args: dict[str, Any] = {"Pod": pod, "Nodes": None, "NodeNames": None}
    if form is Form.NAMES:
        args["NodeNames"] = list(nodes)
    else:
        args["Nodes"] = {"metadata": {}, "items": [known.get(name) or {"metadata": {"name": name}} for name in nodes]}
    return json.dumps(args).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the extender said to one filter call."""

    status: int
    body: dict[str, Any]

    @property
    def passed(self) -> list[str]:
        """In whichever form it was answered: the form of the request, or the scheduler would see no node at all."""
        items = (self.body.get("Nodes") or {}).get("items") or []
        return sorted([*(self.body.get("NodeNames") or []), *(item["metadata"]["name"] for item in items)])

    @property
    def form(self) -> Form | None:
        """The field that the answer uses; None when it uses neither, as an error does."""
        return next((form for form, key in FIELDS.items() if self.body.get(key) is not None), None)

    @property
    def was_late(self) -> bool:
        """Whether the API server did not tell the extender of the pod in time; kube-scheduler then asks again."""
        error = str(self.body.get("Error") or "")
        return "did not answer" in error or "in time" in error

    @property
    def refused(self) -> dict[str, str]:
        return dict(self.body.get("FailedAndUnresolvableNodes") or {})


FIELDS: Mapping[Form, str] = {Form.NAMES: "NodeNames", Form.NODES: "Nodes"}


def post(url: str, body: bytes) -> Answer:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answer(answer.status, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.loads(error.read() or b"{}"))
