"""Which rights of a role are told as used, from lines as an API server writes them."""

from __future__ import annotations

import json
from typing import Any

from tests.helm.rights import Right, rights_of, uses

ROLE = {
    "kind": "Role",
    "metadata": {"name": "ours", "namespace": "longhorn-system"},
    "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["update"],
            "resourceNames": ["a", "b"],
        },
    ],
}
BINDING = {
    "kind": "RoleBinding",
    "metadata": {"name": "ours", "namespace": "longhorn-system"},
    "roleRef": {"kind": "Role", "name": "ours"},
    "subjects": [{"kind": "ServiceAccount", "name": "it", "namespace": "longhorn-system"}],
}
LEASES = "coordination.k8s.io"


def line(verb: str, *, user: str = "it", code: int = 200, uri: str = "", **target: Any) -> str:
    event = {
        "user": {"username": f"system:serviceaccount:longhorn-system:{user}"},
        "verb": verb,
        "requestURI": uri,
        "objectRef": target,
        "responseStatus": {"code": code},
    }
    return json.dumps(event)


def test_each_verb_resource_and_name_is_a_right() -> None:
    expected = {Right("it", "get", "", "pods"), Right("it", "get", "", "pods/status")}
    expected |= {Right("it", "update", LEASES, "leases", name) for name in "ab"}
    assert expected == rights_of([ROLE, BINDING])
    assert set() == rights_of([ROLE])


def test_what_was_allowed_counts_for_its_name_and_for_any() -> None:
    found = uses([line("update", resource="leases", apiGroup=LEASES, name="a"), line("get", resource="pods", code=403)])
    assert {Right("it", "update", LEASES, "leases", "a"), Right("it", "update", LEASES, "leases")} == set(found)


def test_a_list_or_watch_of_one_object_counts_for_it() -> None:
    uri = "/api/v1/configmaps?fieldSelector=metadata.name%3Dsettings&watch=1"
    assert Right("it", "watch", "", "configmaps", "settings") in uses([line("watch", uri=uri, resource="configmaps")])


def test_requests_of_others_and_of_no_resource_count_for_nobody() -> None:
    other = json.loads(line("get", resource="pods"))
    other["user"]["username"] = "system:serviceaccount:kube-system:it"
    paths = json.loads(line("get"))
    del paths["objectRef"]
    assert not uses([json.dumps(other), json.dumps(paths)])
