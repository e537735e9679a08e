"""What the controller's manifests grant about webhook configurations and pods, and nothing wider."""

from __future__ import annotations

from typing import Any

import yaml

from controller.canary.pod import NAME_PREFIX, canary_body
from controller.kube.resources import FORMER_CONFIGURATIONS, OUR_CONFIGURATIONS
from controller.model.names import WAKE_ANNOTATION
from controller.settings import ProcessSettings
from tests.cluster.cache import REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"


def documents(manifest: str, kind: str) -> list[dict[str, Any]]:
    found = yaml.safe_load_all((EXAMPLES / manifest).read_text())
    return [document for document in found if document and document["kind"] == kind]


def granted(manifest: str, group: str, resource: str) -> set[tuple[str, str]]:
    """Verb and the name that it is bound to, "" for any."""
    return {
        (verb, name)
        for role in (*documents(manifest, "ClusterRole"), *documents(manifest, "Role"))
        for rule in role["rules"]
        if group in rule["apiGroups"] and resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def is_about_us(policy: dict[str, Any]) -> bool:
    """Whether it looks at what our account does, all of that and nothing else."""
    (account,) = documents("install.yaml", "ServiceAccount")
    meta = account["metadata"]
    (condition,) = policy["spec"]["matchConditions"]
    user = f"system:serviceaccount:{meta['namespace']}:{meta['name']}"
    return bool(condition["expression"] == f'request.userInfo.username == "{user}"')


def test_only_our_own_webhook_configurations_can_be_changed() -> None:
    for resource, name in OUR_CONFIGURATIONS.items():
        expected = {(verb, "") for verb in ("create", "list", "watch")}
        expected |= {(verb, name) for verb in ("get", "update", "delete")}
        expected |= {("delete", former) for former in FORMER_CONFIGURATIONS[resource]}
        assert expected == granted("install.yaml", resource.group, resource.plural)


def test_switching_off_is_the_only_change_of_a_config_map() -> None:
    name = ProcessSettings().config_map
    assert {(verb, name) for verb in ("get", "list", "watch", "patch")} == granted("install.yaml", "", "configmaps")


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
    changed = {(verb, name) for verb in ("get", "update") for name in secrets}
    assert {("create", ""), *changed} == granted("install.yaml", "", "secrets")


def test_pods_are_created_and_deleted_under_a_policy_that_knows_the_canary() -> None:
    assert {("create", ""), ("delete", "")} <= granted("install.yaml", "", "pods")
    (policy,) = documents("install.yaml", "ValidatingAdmissionPolicy")
    (binding,) = documents("install.yaml", "ValidatingAdmissionPolicyBinding")
    assert ("Fail", ["Deny"]) == (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"])
    assert policy["metadata"]["name"] == binding["spec"]["policyName"]
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (["CREATE", "DELETE"], ["pods"]) == (rule["operations"], rule["resources"])
    assert is_about_us(policy)
    (container,) = canary_body("any", "any", {})["spec"]["containers"]
    text = " ".join(validation["expression"] for validation in policy["spec"]["validations"])
    assert f'startsWith("{NAME_PREFIX}")' in text
    assert f'c.image == "{container["image"]}"' in text


def test_pods_can_be_patched_only_where_the_policy_is_applied_too() -> None:
    assert ("patch", "") not in granted("install.yaml", "", "pods")
    assert {("patch", "")} == granted("wake-annotation.yaml", "", "pods")
    (policy,) = documents("wake-annotation.yaml", "ValidatingAdmissionPolicy")
    (binding,) = documents("wake-annotation.yaml", "ValidatingAdmissionPolicyBinding")
    assert ("Fail", ["Deny"]) == (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"])
    assert policy["metadata"]["name"] == binding["spec"]["policyName"]


def test_the_policy_is_about_our_account_and_our_annotation() -> None:
    (policy,) = documents("wake-annotation.yaml", "ValidatingAdmissionPolicy")
    assert is_about_us(policy)
    assert any(f'"{WAKE_ANNOTATION}"' in validation["expression"] for validation in policy["spec"]["validations"])
