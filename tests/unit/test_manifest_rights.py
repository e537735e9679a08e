"""What the controller's manifests grant about webhook configurations and pods, and nothing wider."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
import yaml

from certs.secret import OPAQUE, TLS_TYPE
from controller.admission.reconciler import LABELS
from controller.canary.pod import NAME_PREFIX, canary_body
from controller.follow.kinds import KINDS, FollowedKind
from controller.kube.resources import (
    CRDS,
    FORMER_CONFIGURATIONS,
    LONGHORN_REPLICAS,
    OUR_CONFIGURATIONS,
    POLICIES,
    POLICY_BINDINGS,
)
from controller.model.names import (
    CANARY_LABEL,
    EXTENDER_RESOURCE,
    FENCE,
    GATE,
    GUARD,
    STATUS_CONFIG_MAP,
    WAKE_ANNOTATION,
    WAKE_CONDITION,
)
from controller.model.versions import OWN_SCHEDULER_CRDS
from controller.placement.plan_entries import SHARDS, shard_name
from controller.record.backends import NODE_CRD
from controller.settings import ProcessSettings
from tests.helm.chart import EXAMPLES
from tests.helm.rights import rights_of


@cache
def all_documents(manifest: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((EXAMPLES / manifest).read_text()) if found]


def documents(manifest: str, *kinds: str) -> list[dict[str, Any]]:
    return [document for document in all_documents(manifest) if document["kind"] in kinds]


def granted(
    manifest: str, group: str, resource: str, roles: Iterable[str] = ("ClusterRole", "Role")
) -> set[tuple[str, str]]:
    """Verb and the name that it is bound to, "" for any."""
    found = rights_of(documents(manifest, *roles, "ClusterRoleBinding", "RoleBinding"))
    return {(one.verb, one.name) for one in found if (one.group, one.resource) == (group, resource)}


IS_OURS = 'request.userInfo.username == "system:serviceaccount:longhorn-system:longhorn-scheduler-extender"'


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_controller_can_follow_what_it_follows_and_read_what_it_reads_and_no_more(kind: FollowedKind[Any]) -> None:
    role = "Role" if kind.in_longhorn else "ClusterRole"
    found = granted("install.yaml", kind.resource.group, kind.resource.plural, roles=(role,))
    wanted = (["list", "watch"] if kind.is_followed else []) + (["get"] if kind.is_live else [])
    if kind.resource == LONGHORN_REPLICAS:
        wanted += ["get", "patch"]  # it places them
    assert {(verb, "") for verb in wanted} == found


def test_the_leader_reads_the_crds_that_tell_longhorns_releases_apart_and_no_more() -> None:
    crds = {("get", name) for name in (*OWN_SCHEDULER_CRDS, NODE_CRD)}
    assert crds == granted("install.yaml", CRDS.group, CRDS.plural)


def policy_of(manifest: str, about: str) -> tuple[dict[str, Any], str]:
    """The spec of a policy, and its conditions. It looks at what our account does, and binds whom it looks at."""
    (policy,) = (
        found
        for found in documents(manifest, "ValidatingAdmissionPolicy")
        if found["metadata"]["name"] == f"longhorn-scheduler-extender-{about}"
    )
    (binding,) = (
        found
        for found in documents(manifest, "ValidatingAdmissionPolicyBinding")
        if found["spec"]["policyName"] == policy["metadata"]["name"]
    )
    assert ("Fail", ["Deny"]) == (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"])
    assert IS_OURS == policy["spec"]["matchConditions"][0]["expression"]
    return policy["spec"], " ".join(validation["expression"] for validation in policy["spec"]["validations"])


def test_only_our_own_webhook_configurations_can_be_changed() -> None:
    for resource, name in OUR_CONFIGURATIONS.items():
        expected = {(verb, "") for verb in ("list", "watch")}
        expected |= {(verb, name) for verb in ("get", "update")}
        expected |= {("delete", former) for former in FORMER_CONFIGURATIONS[resource]}
        assert expected == granted("install.yaml", resource.group, resource.plural)
        (made,) = documents("install.yaml", resource.kind)
        assert ((name, LABELS), []) == ((made["metadata"]["name"], made["metadata"]["labels"]), made["webhooks"])


def test_switching_off_and_plans_are_the_only_changes_of_config_maps() -> None:
    name = ProcessSettings().config_map
    expected = {(verb, name) for verb in ("get", "list", "watch", "patch")}
    expected |= {(verb, shard_name(index)) for verb in ("get", "update", "delete") for index in range(SHARDS)}
    expected |= {(verb, STATUS_CONFIG_MAP) for verb in ("get", "patch")}
    assert {("create", ""), *expected} == granted("install.yaml", "", "configmaps")
    text = policy_of("install.yaml", "objects")[1]
    assert f'"{name}"' in text
    (pattern,) = re.findall(r'matches\("(\^longhorn[^"]*)"\)', text)
    names = [shard_name(index) for index in range(SHARDS)]
    assert names == [one for one in (*names, shard_name(SHARDS), "other") if re.fullmatch(pattern, one)]


def test_whoever_is_known_reads_whom_he_reaches_at_the_status_port_and_no_other_config_map() -> None:
    (binding,) = (
        one
        for one in documents("install.yaml", "RoleBinding")
        if one["subjects"][0].get("name") == "system:authenticated"
    )
    (role,) = (
        one for one in documents("install.yaml", "Role") if one["metadata"]["name"] == binding["roleRef"]["name"]
    )
    (rule,) = role["rules"]
    assert (["configmaps"], [STATUS_CONFIG_MAP], ["get"]) == (rule["resources"], rule["resourceNames"], rule["verbs"])
    (made,) = (one for one in documents("install.yaml", "ConfigMap") if one["metadata"]["name"] == STATUS_CONFIG_MAP)
    assert "data" not in made  # so that nobody who applies it again takes away what the leader wrote


def test_certificates_are_a_role_of_their_own_that_can_be_left_out() -> None:
    (role,) = [
        document
        for document in documents("install.yaml", "Role")
        if any("secrets" in rule["resources"] for rule in document["rules"])
    ]
    assert {"secrets"} == {resource for rule in role["rules"] for resource in rule["resources"]}
    settings = ProcessSettings()
    secrets = (
        *(settings.tls_secret, settings.tls_client_secret, settings.tls_ca_secret),
        *(settings.webhook_ca_secret, settings.webhook_tls_secret, settings.webhook_client_tls_secret),
        settings.replica_scheduler_tls_secret,
    )
    changed = {(verb, name) for verb in ("get", "update", "delete") for name in secrets}
    assert {("create", ""), *changed} == granted("install.yaml", "", "secrets")
    text = policy_of("install.yaml", "objects")[1]
    own = {settings.service, settings.replica_scheduler_service, settings.lease, OPAQUE, TLS_TYPE}
    assert [] == [name for name in (*secrets, *own) if f'"{name}"' not in text]


def test_pods_are_created_and_deleted_under_a_policy_that_knows_the_canary() -> None:
    assert {("create", ""), ("delete", "")} <= granted("install.yaml", "", "pods")
    spec, text = policy_of("install.yaml", "canary")
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (["CREATE", "DELETE"], ["pods"]) == (rule["operations"], rule["resources"])
    (container,) = canary_body("any", "any", {})["spec"]["containers"]
    assert f'startsWith("{NAME_PREFIX}")' in text
    assert f'variables.container.image == "{container["image"]}"' in text
    assert f'{{"{CANARY_LABEL}": "true"}}' in text
    assert f'["{EXTENDER_RESOURCE}"] == "1"' in text
    assert f'c.type != "{WAKE_CONDITION}"' in str(policy_of("install.yaml", "pod-status")[0]["variables"])


def test_pods_can_be_patched_only_where_the_policy_about_our_annotation_is_applied_too() -> None:
    assert ("patch", "") not in granted("install.yaml", "", "pods")
    assert {("patch", "")} == granted("wake-annotation.yaml", "", "pods")
    assert f'"{WAKE_ANNOTATION}"' in policy_of("wake-annotation.yaml", "wake")[1]


def test_the_leader_reads_its_policies_and_makes_and_deletes_the_gates_binding_alone() -> None:
    assert {("get", name) for name in (FENCE, GATE, GUARD)} == granted("install.yaml", POLICIES.group, POLICIES.plural)
    bindings = granted("install.yaml", POLICY_BINDINGS.group, POLICY_BINDINGS.plural)
    assert {*(("get", name) for name in (FENCE, GATE, GUARD)), ("create", ""), ("delete", GATE)} == bindings
    assert {("get", GATE), ("patch", GATE)} == granted("install.yaml", "", "serviceaccounts")
    names = [one["metadata"]["name"] for one in documents("install.yaml", POLICY_BINDINGS.kind)]
    assert (True, False) == ({FENCE, GUARD} <= {*names}, GATE in names)
