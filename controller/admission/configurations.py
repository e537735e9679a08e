"""The webhook configurations as objects: which requests the API server sends to the webhook, and what it does while the
webhook is unavailable.

Pure: from what is wanted, where the webhook is, and the authorities to trust, it makes the entries. These have every
field that the API server would default, so that present and wanted entries can be compared.

The webhook must not burden the API server, so it is sent only what concerns it: selectors exclude whole namespaces, and
CEL match conditions check the objects themselves. Kubernetes evaluates them before it calls; a condition that fails to
evaluate is treated by the failure policy.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.model import names

Raw = dict[str, Any]

DOMAIN: Final = "scheduling.longhorn.io"
PODS: Final = f"pods.{DOMAIN}"
MARKED_PODS: Final = f"marked-pods.{DOMAIN}"
SHARE_MANAGERS: Final = f"share-managers.{DOMAIN}"
CLAIMS: Final = f"claims.{DOMAIN}"
VOLUMES: Final = f"volumes.{DOMAIN}"
GROWTH_CHECK: Final = f"growth-check.{DOMAIN}"
POD_SECONDS: Final = 3
SHARE_MANAGER_SECONDS: Final = 2
EXPANSION_SECONDS: Final = 5
EXPANSION_OFF: Final = "off"
EXPANSION_DENY: Final = "deny"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
SHARE_MANAGER_LABELS: Final = {"longhorn.io/component": "share-manager"}
_SAID_NO: Final = ["false", "False", "FALSE"]


@dataclass(frozen=True, slots=True)
class WantedEntries:
    """Which entries are wanted. `schedulers`: the names of those whose pods opt in; if empty, no pod does."""

    schedulers: tuple[str, ...] = ()
    share_managers: bool = False
    expansion: str = EXPANSION_OFF  # allow or deny: what the API server does without us


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """Where the webhook is, and the namespaces whose pods never opt in."""

    namespace: str  # Longhorn's, and ours
    service: str
    excluded: tuple[str, ...] = ("kube-system",)
    port: int = 443


def mutating(wanted: WantedEntries, place: WebhookPlace) -> list[Raw]:
    """The entries of the MutatingWebhookConfiguration, without their authorities."""
    entries = []
    if wanted.schedulers:
        entries += [_pods(wanted, place), _marked_pods(wanted, place)]
    if wanted.share_managers:
        entries.append(_share_managers(place))
    return entries


def validating(wanted: WantedEntries, place: WebhookPlace) -> list[Raw]:
    """Entries of the ValidatingWebhookConfiguration, without their authorities."""
    if wanted.expansion == EXPANSION_OFF:
        return []
    return [_claims(wanted, place), _volumes(wanted, place), _growth_check(place)]


def with_authorities(entries: Sequence[Raw], bundle: bytes, present: Sequence[Mapping[str, Any]]) -> list[Raw]:
    """The entries with their `caBundle`.

    An entry without one is left out, as the API server could not trust the webhook. Without a `bundle` (not known for
    now), an entry keeps the authorities that it has among the `present` ones.
    """
    given = base64.b64encode(bundle).decode()
    complete = []
    for entry in entries:
        authorities = given or _present_authorities(entry["name"], present)
        if authorities:
            complete.append({**entry, "clientConfig": {**entry["clientConfig"], "caBundle": authorities}})
    return complete


def _present_authorities(name: str, present: Sequence[Mapping[str, Any]]) -> str:
    for entry in present:
        if entry.get("name") == name:
            return str((entry.get("clientConfig") or {}).get("caBundle") or "")
    return ""


def _pods(wanted: WantedEntries, place: WebhookPlace) -> Raw:
    """New pods with claims, unless their namespace's label keeps them out."""
    return _pod_entry(PODS, wanted, place, "NotIn", _condition("is-not-opted-out", f"{_MARK} != 'false'"))


def _marked_pods(wanted: WantedEntries, place: WebhookPlace) -> Raw:
    """In namespaces whose label keeps pods out: pods that ask to opt in themselves."""
    return _pod_entry(MARKED_PODS, wanted, place, "In", _condition("is-opted-in", f"{_MARK} == 'true'"))


def _pod_entry(name: str, wanted: WantedEntries, place: WebhookPlace, operator: str, condition: Raw) -> Raw:
    """`operator`: what the namespace's label has to be to those that keep pods out."""
    left_alone = sorted({place.namespace, *place.excluded})
    where = [
        {"key": NAMESPACE_NAME, "operator": "NotIn", "values": left_alone},
        {"key": names.OPT_IN_MARK, "operator": operator, "values": _SAID_NO},
    ]
    return {
        **_mutating(name, "/mutate-pods", POD_SECONDS, place),
        "namespaceSelector": {"matchExpressions": where},
        "matchConditions": [_HAS_CLAIMS, _IS_UNBOUND, _names_scheduler(wanted.schedulers), condition],
    }


def _share_managers(place: WebhookPlace) -> Raw:
    """Longhorn's share-manager pods as it creates them: without claims, in a namespace whose pods are left alone."""
    return {
        **_mutating(SHARE_MANAGERS, "/mutate-share-managers", SHARE_MANAGER_SECONDS, place),
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: place.namespace}},
        "objectSelector": {"matchLabels": dict(SHARE_MANAGER_LABELS)},
        "matchConditions": [_IS_UNBOUND],
    }


def _mutating(name: str, path: str, seconds: int, place: WebhookPlace) -> Raw:
    return {
        **_entry(name, path, place, _rule("CREATE", "", "v1", "pods")),
        "timeoutSeconds": seconds,
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }


def _claims(wanted: WantedEntries, place: WebhookPlace) -> Raw:
    """Growth of bound claims: in every namespace, as they share disks, and of every driver, as only the PV names it
    reliably; the claim's annotations are up to its owner."""
    return {
        **_expansion(CLAIMS, "/validate-pvcs", wanted, place, _rule("UPDATE", "", "v1", "persistentvolumeclaims")),
        "matchConditions": [
            _condition("is-bound", "has(object.spec.volumeName) && object.spec.volumeName != ''"),
            _condition("grows", _grows("spec.resources.requests.storage")),
        ],
    }


def _volumes(wanted: WantedEntries, place: WebhookPlace) -> Raw:
    """Growth of Longhorn's own volumes, which its user interface and its API can ask for without a claim."""
    rule = _rule("UPDATE", names.LONGHORN_GROUP, names.LONGHORN_VERSION, "volumes")
    return {
        **_expansion(VOLUMES, "/validate-volumes", wanted, place, rule),
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: place.namespace}},
        "matchConditions": [_condition("grows", _grows("spec.size"))],
    }


def _growth_check(place: WebhookPlace) -> Raw:
    """Pods that nobody wants, whose denial says whether the webhook reaches the leader."""
    return {
        **_entry(GROWTH_CHECK, "/check-growth", place, _rule("CREATE", "", "v1", "pods")),
        "objectSelector": {"matchLabels": {names.GROWTH_CHECK_LABEL: "true"}},
        "timeoutSeconds": EXPANSION_SECONDS,
        "failurePolicy": "Ignore",
        "sideEffects": "None",
    }


def _expansion(name: str, path: str, wanted: WantedEntries, place: WebhookPlace, rule: Raw) -> Raw:
    return {
        **_entry(name, path, place, rule),
        "timeoutSeconds": EXPANSION_SECONDS,
        "failurePolicy": "Fail" if wanted.expansion == EXPANSION_DENY else "Ignore",
        "sideEffects": "NoneOnDryRun",  # what is allowed is held, but for a dry run
    }


def _entry(name: str, path: str, place: WebhookPlace, rule: Raw) -> Raw:
    service = {"namespace": place.namespace, "name": place.service, "path": path, "port": place.port}
    return {
        "name": name,
        "clientConfig": {"service": service},
        "rules": [rule],
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {},
        "objectSelector": {},
    }


def _rule(operation: str, group: str, version: str, resource: str) -> Raw:
    return {
        "operations": [operation],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "scope": "Namespaced",
    }


# Match conditions. `object` has the API server's defaults; a field that is not set is absent.


def _condition(name: str, expression: str) -> Raw:
    return {"name": name, "expression": expression}


def _names_scheduler(schedulers: Sequence[str]) -> Raw:
    listed = ", ".join(map(_text, sorted(schedulers)))
    return _condition(
        "asks-a-wired-scheduler",
        "(has(object.spec.schedulerName) && object.spec.schedulerName != '' "
        f"? object.spec.schedulerName : 'default-scheduler') in [{listed}]",
    )


def _grows(field: str) -> str:
    """The quantity grows. One that was absent or is malformed is sent to the webhook when it changes."""
    new, old = f"object.{field}", f"oldObject.{field}"
    return (
        f"{_has('object', field)} && (!({_has('oldObject', field)}) || ("
        f"isQuantity({new}) && isQuantity({old}) ? quantity({new}).isGreaterThan(quantity({old})) : {new} != {old}))"
    )


def _has(root: str, field: str) -> str:
    """The field and all its parents exist; `has` alone fails if a parent is missing."""
    steps = field.split(".")
    return " && ".join(f"has({root}.{'.'.join(steps[:depth])})" for depth in range(1, len(steps) + 1))


def _text(value: str) -> str:
    """A CEL string; JSON's escapes are among CEL's."""
    return json.dumps(value, ensure_ascii=True)


def _mark_in(place: str, otherwise: str) -> str:
    """The pod's mark for opting in, in lower case."""
    marks, key = f"object.metadata.{place}", _text(names.OPT_IN_MARK)
    return f"has({marks}) && {key} in {marks} ? {marks}[{key}].lowerAscii() : {otherwise}"


_MARK: Final = "(" + _mark_in("annotations", _mark_in("labels", "''")) + ")"  # its annotation, or else its label
_IS_UNBOUND: Final = _condition("is-unbound", "!has(object.spec.nodeName) || object.spec.nodeName == ''")
_HAS_CLAIMS: Final = _condition(
    "has-claims",
    "has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))",
)
