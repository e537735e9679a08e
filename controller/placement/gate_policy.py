"""The policies by which only the leader places, as the chart has them and the API server stores them.

The chart brings them; the leader compares what is stored with what stands here. A test keeps both equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.kube.resources import LONGHORN_REPLICAS, SERVICE_ACCOUNTS
from controller.model.names import (
    FENCE,
    GATE,
    GUARD,
    HELD_ANNOTATION,
    LEFT_ANNOTATION,
    MANAGER_PREFIX,
    PROOF_MANAGER,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)

SILENT_SECONDS: Final = 45
"""The gate is open when the leader has not renewed for longer."""
YOUNG_SECONDS: Final = 30
"""A living leader keeps a Replica that it has not marked for so long."""
MOST_SECONDS: Final = 120
"""And so long in all, however often the leader changes."""
AHEAD_SECONDS: Final = 5
"""What lies further ahead of the API server's clock is no time of a leader's."""

Spec = Mapping[str, Any]

DENIES, AUDITS = "Deny", "Audit"  # what a binding does
_DAY: Final = "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
_LEAP_DAY: Final = "2[0-9](0[48]|[2468][048]|[13579][26])-02-29"
_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_IS_PROOF: Final = f'request.dryRun && request.options.?fieldManager.orValue("") == "{PROOF_MANAGER}"'


def expected_policies(namespace: str, account: str) -> Mapping[str, Spec]:
    """The spec of each policy, by name; `account` is that of the leader, in Longhorn's namespace."""
    is_ours = f'request.userInfo.username == "system:serviceaccount:{namespace}:{account}"'
    return {GATE: _gate(is_ours), FENCE: _fence(is_ours), GUARD: _guard(is_ours)}


def expected_bindings(namespace: str, *, audits: bool = False) -> Mapping[str, Spec]:
    """The spec of each binding, by name. `audits`: the gate refuses nothing; the API server's audit log names what it
    would have refused."""
    reference = {"name": GATE, "namespace": namespace, "parameterNotFoundAction": "Allow"}
    return {
        GATE: {"policyName": GATE, "validationActions": [AUDITS if audits else DENIES], "paramRef": reference},
        FENCE: {"policyName": FENCE, "validationActions": [DENIES], "paramRef": reference},
        GUARD: {"policyName": GUARD, "validationActions": [DENIES]},
    }


def _gate(is_ours: str) -> Spec:
    variables = {
        "isProof": is_ours,
        "now": "object.metadata.managedFields.filter(f, has(f.time)).map(f, timestamp(f.time)).max()",
        "form": f'"^(2[0-9]{{3}}-{_DAY}" + "|{_LEAP_DAY})T{_CLOCK}Z$"',
        "never": 'timestamp("1970-01-01T00:00:00Z")',
        "latest": f'variables.now + duration("{AHEAD_SECONDS}s")',
        "sinceText": _of_account(SINCE_ANNOTATION),
        "renewedText": _of_account(RENEWED_ANNOTATION),
        "sinceRead": _time("variables.sinceText"),
        "renewedRead": _time("variables.renewedText"),
        "isRead": (
            "variables.sinceRead != variables.never && variables.sinceRead <= variables.latest "
            "&& variables.renewedRead <= variables.latest"
        ),
        "renewed": "variables.isRead ? variables.renewedRead : variables.never",
        "made": "timestamp(object.metadata.creationTimestamp)",
        "age": "variables.renewed - [variables.made, variables.sinceRead].max()",
        "isHeld": f'oldObject.metadata.?annotations["{HELD_ANNOTATION}"].hasValue()',
        "isLeft": f'oldObject.metadata.?annotations["{LEFT_ANNOTATION}"].hasValue()',
    }
    is_free = (
        f'params == null || variables.now - variables.renewed > duration("{SILENT_SECONDS}s") || (!variables.isProof '
        f'&& (variables.isLeft || (!variables.isHeld && (variables.age >= duration("{YOUNG_SECONDS}s") '
        f'|| variables.now - variables.made > duration("{MOST_SECONDS}s")))))'
    )
    is_seen = (
        f'{is_ours} ? {_IS_PROOF} : object.?spec.?nodeID.orValue("") != "" && oldObject.?spec.?nodeID.orValue("") == ""'
    )
    return {
        **_about_replicas(
            {"first-node-or-proof": is_seen},
            variables,
            {is_free: "the Longhorn scheduler extender places this replica"},
            selector={"matchExpressions": [{"key": "longhornnode", "operator": "In", "values": [""]}]},
            reason={"reason": "Forbidden"},
        ),
        "paramKind": _PARAMETER,
    }


def _fence(is_ours: str) -> Spec:
    is_of_term = (
        'params == null || (variables.term != "" '
        f'&& request.options.?fieldManager.orValue("") == "{MANAGER_PREFIX}" + variables.term)'
    )
    message = "this is not the term in which the Longhorn scheduler extender may write Replicas"
    return {
        **_about_replicas(
            {"is-ours": is_ours, "is-no-proof": f"!({_IS_PROOF})"},
            {"term": _of_account(TERM_ANNOTATION)},
            {is_of_term: message},
            reason={"reason": "Forbidden"},
        ),
        "paramKind": _PARAMETER,
    }


def _guard(is_ours: str) -> Spec:
    variables = {
        "before": "dyn(oldObject.spec)",
        "after": "dyn(object.spec)",
        "isUnplaced": '!has(variables.after.nodeID) || variables.after.nodeID == ""',
        "directory": 'variables.after.?dataDirectoryName.orValue("")',
        "labelsBefore": "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}",
        "labelsAfter": "has(object.metadata.labels) ? object.metadata.labels : {}",
        "marks": f'["{HELD_ANNOTATION}", "{LEFT_ANNOTATION}"]',
        "annotationsBefore": "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
        "annotationsAfter": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
    }
    place = '["nodeID", "diskID", "diskPath", "dataDirectoryName", "hardNodeAffinity"]'
    labels = '["longhornnode", "longhorndiskuuid"]'
    may = "the Longhorn scheduler extender may"
    validations = {
        '!has(variables.before.nodeID) || variables.before.nodeID == ""': f"{may} not change a Replica that has a node",
        _keeps("variables.before", "variables.after", place): f"{may} change nothing of a Replica but its place",
        _DIRECTORY: f"{may} give a Replica no directory but one of its volume's name",
        _PATH: f"{may} give a Replica no path that leads upwards",
        _keeps("variables.labelsBefore", "variables.labelsAfter", labels): (
            f"{may} change no label of a Replica but those of its place"
        ),
        (
            "variables.annotationsAfter.all(key, key in variables.marks || (key in variables.annotationsBefore "
            "&& variables.annotationsBefore[key] == variables.annotationsAfter[key])) "
            "&& variables.annotationsBefore.all(key, key in variables.marks || key in variables.annotationsAfter)"
        ): f"{may} change no annotation of a Replica but its two marks",
        _same("finalizers"): f"{may} not change a Replica's finalizers",
        _same("ownerReferences"): f"{may} not change a Replica's owners",
    }
    return _about_replicas({"is-ours": is_ours, "is-stored": "!request.dryRun"}, variables, validations)


_DIRECTORY: Final = (
    '(variables.isUnplaced && variables.directory == variables.before.?dataDirectoryName.orValue("")) '
    '|| (variables.directory.startsWith(variables.before.volumeName + "-") '
    '&& variables.directory.substring(size(variables.before.volumeName) + 1).matches("^[0-9a-f]{8}$"))'
)
_PATH: Final = 'variables.isUnplaced || !variables.after.?diskPath.orValue("").matches("(^|/)[.][.](/|$)")'

_PARAMETER: Final = {"apiVersion": SERVICE_ACCOUNTS.api_version, "kind": SERVICE_ACCOUNTS.kind}


def _about_replicas(
    conditions: Mapping[str, str],
    variables: Mapping[str, str],
    validations: Mapping[str, str],
    *,
    selector: Spec | None = None,
    reason: Mapping[str, str] | None = None,
) -> Spec:
    """A policy about updates of Replicas. `validations`: expression -> message."""
    rule = {
        "apiGroups": [LONGHORN_REPLICAS.group],
        "apiVersions": [LONGHORN_REPLICAS.version],
        "operations": ["UPDATE"],
        "resources": [LONGHORN_REPLICAS.plural],
        "scope": "Namespaced",
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": selector or {},
            "resourceRules": [rule],
        },
        "matchConditions": _named(conditions),
        "variables": _named(variables),
        "validations": [
            {"expression": expression, "message": message, **(reason or {})}
            for expression, message in validations.items()
        ],
    }


def _named(expressions: Mapping[str, str]) -> list[Spec]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _of_account(annotation: str) -> str:
    return f'params.metadata.?annotations["{annotation}"].orValue("")'


def _time(text: str) -> str:
    return f"{text}.matches(variables.form) ? timestamp({text}) : variables.never"


def _keeps(before: str, after: str, free: str) -> str:
    return (
        f"{after}.all(key, key in {free} || (key in {before} && {before}[key] == {after}[key])) "
        f"&& {before}.all(key, key in {after})"
    )


def _same(field: str) -> str:
    one, other = (f"(has({of}.metadata.{field}) ? {of}.metadata.{field} : [])" for of in ("object", "oldObject"))
    return f"{one} == {other}"
