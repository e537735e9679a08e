"""The two forms of a request to the extender: names of nodes, or whole Nodes.

Which one kube-scheduler sends follows `nodeCacheCapable` of its configuration. The tests run with either: the form
comes from `$REQUEST_FORM`, so that the same tests show that the answers do not depend on it.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.cluster.client import Object
from tests.e2e.connection import Connection
from tests.e2e.scheduling import SERVER_NAME

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
class FilterAnswer:
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
    def refused(self) -> dict[str, str]:
        return dict(self.body.get("FailedAndUnresolvableNodes") or {})


FIELDS: Mapping[Form, str] = {Form.NAMES: "NodeNames", Form.NODES: "Nodes"}


def post(address: tuple[str, int], path: str, body: bytes, trust: ssl.SSLContext | None) -> FilterAnswer:
    """One call on a connection of its own, as kube-scheduler makes it: the certificate is for the Service's name.
    Without `trust`, over plain HTTP."""
    made = (
        http.client.HTTPConnection(*address, timeout=10)
        if trust is None
        else Connection(address, SERVER_NAME, trust, timeout=10, connected=lambda _: None)
    )
    with closing(made) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return FilterAnswer(answer.status, json.loads(answer.read() or b"{}"))
