"""JSON Schemas of an API server's kinds, from its own /openapi/v2, as kubeconform reads them: closed, so that a field
that the server would drop is a finding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]
_PREFIX: Final = "#/definitions/"
# Where the document says less than the server takes.
_WIDER: Final[dict[str, Schema]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
LOCATION: Final = "{{.Group}}_{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"


def write_schemas(document: Schema, folder: Path) -> set[str]:
    """A file for each kind, whole in itself; the kinds."""
    definitions = {name: _WIDER.get(name) or _closed(schema) for name, schema in document["definitions"].items()}
    kinds = set()
    for name, schema in document["definitions"].items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            needed = {one: definitions[one] for one in _reached(name, definitions)}
            whole = {"$ref": f"{_PREFIX}{name}", "definitions": needed}
            group = kind["group"] or kind["version"]  # as kubeconform names the core group
            path = folder / f"{group}_{kind['kind'].lower()}_{kind['version']}.json"
            path.write_text(json.dumps(whole))
            kinds.add(kind["kind"])
    return kinds


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items() if not key.startswith("x-")}
    keeps_others = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(properties := schema.get("properties"), dict) and not keeps_others:
        # Fields of that name: a CustomResourceDefinition has some that begin with x-.
        closed["properties"] = {name: _closed(field) for name, field in properties.items()}
        closed["additionalProperties"] = False
    return closed


def _reached(name: str, definitions: dict[str, Schema]) -> set[str]:
    found, ahead = {name}, [name]
    while ahead:
        new = set(_references(definitions[ahead.pop()])) - found
        found |= new
        ahead += new
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix(_PREFIX)
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
