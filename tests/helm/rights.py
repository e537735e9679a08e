"""Which of the rights that the chart renders were used, by the API servers' own audit logs.

`make rights` runs the end-to-end tests, whose API servers write one, and then prints what nobody used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.helm.chart import NAMESPACE, Helm

Object = dict[str, Any]
DONE: Final = "ResponseComplete"
REFUSED: Final = 403


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, or on one object of it; `account` may do it. `name` is "" where any is meant."""

    account: str
    verb: str
    group: str
    resource: str  # with the subresource, as in pods/status
    name: str = ""

    def __str__(self) -> str:
        kind = ".".join(filter(None, (self.resource, self.group)))
        return f"{self.account}: {self.verb} {kind}" + (f" {self.name}" if self.name else "")


def rights_of(objects: Iterable[Object]) -> set[Right]:
    """What the roles among the objects let the accounts do that these bind them to. Paths of no resource aside."""
    found = list(objects)
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["rules"]
        for one in found
        if one["kind"] in ("Role", "ClusterRole")
    }
    rights = set()
    for binding in found:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        kind = binding["roleRef"]["kind"]
        namespace = binding["metadata"].get("namespace", "") if kind == "Role" else ""
        for rule in roles.get((kind, namespace, binding["roleRef"]["name"]), ()):
            for subject in binding["subjects"]:
                if subject["kind"] == "ServiceAccount":
                    rights |= set(_of_rule(subject["name"], rule))
    return rights


def _of_rule(account: str, rule: Mapping[str, Any]) -> Iterator[Right]:
    for group in rule.get("apiGroups", ()):
        for resource in rule.get("resources", ()):
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(account, verb, group, resource, name)


def uses(lines: Iterable[str]) -> Counter[Right]:
    """What service accounts of Longhorn's namespace were let do, by the lines of audit logs."""
    prefix, found = f"system:serviceaccount:{NAMESPACE}:", Counter[Right]()
    for line in lines:
        event = json.loads(line)
        user, target = event["user"]["username"], event.get("objectRef")
        code = (event.get("responseStatus") or {}).get("code", 0)
        if target is None or not user.startswith(prefix) or code == REFUSED:
            continue
        resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
        account, group = user.removeprefix(prefix), target.get("apiGroup", "")
        for name in {"", _name_of(event, target)}:
            found[Right(account, event["verb"], group, resource, name)] += 1
    return found


def _name_of(event: Object, target: Object) -> str:
    """Of a list or watch of one object the name stands in the field selector."""
    name = target.get("name", "")
    marker = "metadata.name%3D"
    if not name and marker in event.get("requestURI", ""):
        name = event["requestURI"].partition(marker)[2].partition("&")[0]
    return str(name)


def unused(helm: Helm, folder: Path) -> list[Right]:
    """Of the chart as it is installed without any values but an image's."""
    used = Counter[Right]()
    for log in sorted(folder.glob("*.jsonl")):
        with log.open() as lines:
            used += uses(lines)
    if not used:
        raise RuntimeError(f"{folder} has no audit log of our accounts")
    return sorted(right for right in rights_of(helm.objects({})) if not used[right])
