"""values.schema.json and the chart's README, from values.yaml alone: a key's comment is what stands right above it.

A line `# @schema {...}` of a comment is JSON Schema for the key; what it leaves out follows from the default. A mapping
without such a line is looked into, and takes the keys that stand there and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import yaml

from controller import settings

Schema = dict[str, Any]
MARK: Final = "@schema "
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[\w-]+):")


@dataclass(frozen=True, slots=True)
class Value:
    """One key of values.yaml. `is_leaf`: what is below it is for the user to say."""

    path: tuple[str, ...]
    text: str
    default: Any
    schema: Schema
    is_leaf: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


def values_of(text: str) -> Iterator[Value]:
    """The keys of a values.yaml, in its order."""
    comments = dict(_comments(text))
    yield from _below((), yaml.safe_load(text), comments)


def _below(
    path: tuple[str, ...], mapping: dict[str, Any], comments: dict[tuple[str, ...], list[str]]
) -> Iterator[Value]:
    for key, default in mapping.items():
        here = (*path, key)
        lines = comments[here]
        schema: Schema = {}
        for line in lines:
            if line.startswith(MARK):
                schema |= json.loads(line.removeprefix(MARK))
        words = " ".join(line for line in lines if not line.startswith(MARK))
        is_leaf = not isinstance(default, dict) or not default or bool(schema.keys() & {"$ref", "type"})
        yield Value(here, words, default, schema, is_leaf)
        if not is_leaf:
            yield from _below(here, default, comments)


def _comments(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each key's path with the comment right above it."""
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip().removeprefix("#").strip())
            continue
        if match := _KEY.match(line):
            indent = len(match["indent"])
            path = [part for part in path if part[0] < indent] + [(indent, match["key"])]
            yield tuple(key for _, key in path), above
        above = []


# -- the schema -----------------------------------------------------------------------------------------------------

_STRING: Final[Schema] = {"type": "string"}
_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def _closed(properties: Schema, *required: str) -> Schema:
    closed: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return closed | ({"required": list(required)} if required else {})


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _amounts() -> Schema:
    return {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def _settings() -> Schema:
    """By the program's own table of live settings."""
    defaults = settings.LiveSettings()
    found: Schema = {}
    for name, key in settings._LIVE.items():
        default = getattr(defaults, key.field)
        if isinstance(default, bool):
            schema: Schema = {"enum": [True, False, "true", "false"]}
        elif key.choices:
            schema = {"enum": list(key.choices)}
        else:
            schema = _COUNT | {"maximum": key.most}
        found[name.removeprefix(settings.PREFIX)] = schema
    assert len(found) == len(fields(settings.LiveSettings))
    former: Schema = {"enum": [True, False, "true", "false"]}  # no effect, and the program tells
    found |= {name.removeprefix(settings.PREFIX): former for name in settings.FORMER}
    gone: Schema = {"type": ["boolean", "integer", "string"]}  # the same
    return _closed(found | {name.removeprefix(settings.PREFIX): gone for name in settings.GONE})


_TOLERATION: Final = _closed(
    {
        "key": _STRING,
        "operator": {"enum": ["Exists", "Equal", "Lt", "Gt"]},
        "value": _STRING,
        "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        "tolerationSeconds": {"type": "integer"},
    }
)
_SPREAD: Final = _closed(
    {
        "maxSkew": {"type": "integer", "minimum": 1},
        "topologyKey": _TEXT,
        "whenUnsatisfiable": {"enum": ["DoNotSchedule", "ScheduleAnyway"]},
        "labelSelector": {"type": "object"},
        "matchLabelKeys": _list(_TEXT),
        "minDomains": {"type": "integer", "minimum": 1},
        "nodeAffinityPolicy": {"enum": ["Honor", "Ignore"]},
        "nodeTaintsPolicy": {"enum": ["Honor", "Ignore"]},
    },
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
)
_ID: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
_OBJECT: Final[Schema] = {"type": ["object", "null"]}
# Those of PodSecurityContext and SecurityContext that both have, and the others of each; null leaves one out.
_SECURITY: Final[Schema] = {
    "appArmorProfile": _OBJECT,
    "runAsGroup": _ID,
    "runAsNonRoot": _FLAG,
    "runAsUser": _ID,
    "seLinuxOptions": _OBJECT,
    "seccompProfile": _OBJECT,
}
_POD_SECURITY: Final[Schema] = _SECURITY | {
    "fsGroup": _ID,
    "fsGroupChangePolicy": {"enum": ["Always", "OnRootMismatch", None]},
    "seLinuxChangePolicy": {"enum": ["MountOption", "Recursive", None]},
    "supplementalGroups": {"type": ["array", "null"], "items": {"type": "integer"}},
    "supplementalGroupsPolicy": {"enum": ["Merge", "Strict", None]},
    "sysctls": {"type": ["array", "null"]},
}
_CONTAINER_SECURITY: Final[Schema] = _SECURITY | {
    "allowPrivilegeEscalation": _FLAG,
    "capabilities": _OBJECT,
    "privileged": _FLAG,
    "procMount": {"type": ["string", "null"]},
    "readOnlyRootFilesystem": _FLAG,
}
_PROBE: Final = _closed(
    {
        name: {"type": "integer", "minimum": 0 if name == "initialDelaySeconds" else 1}
        for name in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold", "successThreshold")
    }
)


_ALERT: Final[Schema] = {
    "expr": _TEXT,
    "for": _TEXT,
    "keep_firing_for": _TEXT,
    "labels": {"type": "object", "additionalProperties": _STRING},
    "annotations": {"type": "object", "additionalProperties": _STRING},
}


def _definitions() -> Schema:
    """Kinds of values that several keys share."""
    return {
        "alerts": {"type": "object", "additionalProperties": _closed(_ALERT)},
        "affinity": _closed({name: {"type": "object"} for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")}),
        "cidrs": _list({"type": "string", "pattern": "^[0-9a-fA-F:.]+/[0-9]{1,3}$"}),
        "dnsConfig": _closed(
            {
                "nameservers": _list(_TEXT),
                "options": _list(_closed({"name": _TEXT, "value": _STRING}, "name")),
                "searches": _list(_TEXT),
            }
        ),
        "dnsPolicy": {"enum": ["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
        "flags": _list({"type": "string", "pattern": "^--[a-z]"}),
        "hostAliases": _list(_closed({"ip": _TEXT, "hostnames": _list(_TEXT)}, "ip", "hostnames")),
        "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"},
        "names": _list(_TEXT) | {"uniqueItems": True},
        "objects": _list({"type": "object"}),
        "podSecurity": _closed(_POD_SECURITY),
        "probe": _PROBE,
        "references": _list(_closed({"name": _TEXT}, "name")),
        "resources": _closed({"requests": _amounts(), "limits": _amounts(), "claims": _list({"type": "object"})}),
        "security": _closed(_CONTAINER_SECURITY),
        "settings": _settings(),
        "share": {"type": ["integer", "string"], "minimum": 1, "pattern": "^(|[1-9][0-9]?%|100%)$"},
        "spread": _list(_SPREAD),
        "strategy": _closed({"type": {"enum": ["RollingUpdate", "Recreate"]}, "rollingUpdate": {"type": "object"}}),
        "strings": {"type": "object", "additionalProperties": _STRING},
        "tolerations": _list(_TOLERATION),
    }


def schema_of(text: str) -> str:
    """The text of values.schema.json for a values.yaml."""
    # Of charts that have this one as a dependency: Helm hands the value of their `condition` on.
    top = _closed({"enabled": {"type": "boolean"}})
    for value in values_of(text):
        parent = top
        for key in value.path[:-1]:
            parent = parent["properties"][key]
        parent["properties"][value.path[-1]] = _schema(value)
        if not value.is_leaf:  # as after an upgrade with --reuse-values, from a chart that did not know it
            parent.setdefault("required", []).append(value.path[-1])
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": _definitions()}
    return json.dumps({**head, **top}, indent=2) + "\n"


def _schema(value: Value) -> Schema:
    if not value.is_leaf:
        return _closed({}) | value.schema
    if value.schema.keys() & {"$ref", "type", "enum"}:
        return value.schema
    match value.default:
        case bool():
            inferred: Schema = {"type": "boolean"}
        case int():
            inferred = _COUNT
        case str():
            inferred = _STRING
        case _:
            raise ValueError(f"values.yaml: {value.name}: say in its comment what it is, by {MARK}{{...}}")
    return inferred | value.schema


# -- the README -----------------------------------------------------------------------------------------------------


def table_of(text: str) -> str:
    """The values as a table in Markdown."""
    rows = ["| value | default | |", "|---|---|---|"]
    for value in values_of(text):
        default = f"`{_shown(value.default)}`" if value.is_leaf else ""
        choices = ", ".join(f"`{choice}`" for choice in value.schema.get("enum", ()) if choice)
        words = value.text + (f" One of {choices}." if choices and "`" not in value.text else "")
        if value.is_leaf or words:
            rows.append(f"| `{value.name}` | {default} | {words.strip()} |")
    return "\n".join(rows) + "\n"


def _shown(default: Any) -> str:
    text = json.dumps(default, separators=(", ", ": "))
    return text.strip('"') if isinstance(default, str) and default else text
