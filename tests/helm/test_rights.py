"""Which rights, Secrets and flags the chart renders for which values, and the second scheduler's configuration."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import controller.commands.run
import webhook.cli
from controller.installation.uninstall import made_by_the_leader
from controller.record.definition import allocation_crd
from controller.settings import ProcessSettings
from tests.helm.chart import IMAGE, NAMESPACE, Helm, with_image
from tests.helm.combinations import COMBINATIONS, SITES, Values
from tests.helm.rights import rights_of
from tests.unit.scheduler_config.asking import ask

Object = dict[str, Any]
HOOK = "helm.sh/hook"
EXTENDER_SECRETS = {f"longhorn-scheduler-extender-{name}" for name in ("ca", "tls", "client")}
WRITES = ("get", "update", "delete")
WEBHOOK_SECRETS = {"longhorn-replica-scheduler-tls"} | {
    f"longhorn-scheduler-webhook-{name}" for name in ("ca", "tls", "client-tls")
}


def granted(helm: Helm, values: Values, resource: str) -> set[tuple[str, str]]:
    """What the chart lets our accounts do with a resource of the core group: verb and name."""
    rights = rights_of(helm.objects(values))
    return {(one.verb, one.name) for one in rights if (one.group, one.resource) == ("", resource)}


def test_secrets_are_written_only_where_the_leader_makes_them(helm: Helm) -> None:
    webhooks_own = {("get", "longhorn-scheduler-webhook-tls"), ("get", "longhorn-scheduler-webhook-client-tls")}
    all_of = EXTENDER_SECRETS | WEBHOOK_SECRETS
    others = {"tls": {"mode": "provided"}, "webhook": {"tls": {"mode": "provided"}}}
    plain: Values = {"tls": {"mode": "insecure-plain-http"}}
    expected: tuple[tuple[Values, set[tuple[str, str]]], ...] = (
        ({}, {("create", "")} | {(verb, name) for verb in WRITES for name in all_of}),
        (others, {("get", name) for name in all_of if not name.endswith("-ca")}),
        (plain, {("create", "")} | {(verb, name) for verb in WRITES for name in WEBHOOK_SECRETS}),
    )
    for values, rights in expected:
        assert rights | webhooks_own == granted(helm, values, "secrets"), values
    assert set() == granted(helm, plain | {"webhook": {"enabled": False}}, "secrets")


def test_what_is_handed_over_at_the_end_may_be_deleted(helm: Helm) -> None:
    """On OpenShift nobody else may say whose an object is."""
    rights = {(one.verb, one.resource, one.name) for one in rights_of(helm.objects({}))}
    for resource, name in made_by_the_leader(ProcessSettings(tls_mode="self"), purges=True):
        for verb in WRITES:
            assert (verb, resource.plural, name) in rights, (verb, name)


def test_rights_beyond_the_usual_come_only_with_what_needs_them(helm: Helm) -> None:
    assert set() == granted(helm, {}, "pods/binding")
    assert {("create", "")} == granted(helm, {"bind": {"enabled": True}}, "pods/binding")
    assert ("patch", "") not in granted(helm, {}, "pods")
    wakes: Values = {"settings": {"wake-with-annotation": True}}
    assert ("patch", "") in granted(helm, wakes, "pods")
    policies = {one["metadata"]["name"] for one in helm.objects(wakes, "ValidatingAdmissionPolicyBinding")}
    assert "longhorn-scheduler-extender-wake" in policies
    for values in ({"controller": {"statusTls": {"port": 0}}}, {"tls": {"mode": "insecure-plain-http"}}):
        reviews = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
        for chosen, found in ((values, set()), ({}, reviews)):
            rights = {one for one in rights_of(helm.objects(chosen)) if one.account == "longhorn-scheduler-extender"}
            assert found == {(one.verb, one.resource) for one in rights if one.resource.endswith("reviews")}
        assert [] == [one for one in helm.objects(values) if "extender-status" in one["metadata"]["name"]]


def test_the_record_comes_with_its_kind_and_only_the_rights_to_write_it(helm: Helm) -> None:
    def rights(values: Values) -> set[tuple[str, str]]:
        groups = {"longhorn.io", "scheduling.longhorn.io"}
        return {(one.resource, one.verb) for one in rights_of(helm.objects(values)) if one.group in groups}

    usual = rights({})
    assert {("nodediskallocations", "list"), ("nodediskallocations", "watch")} == {
        right for right in usual if right[0] == "nodediskallocations"
    }
    kept: Values = {"allocationRecord": {"enabled": True}}
    writes = {("nodediskallocations", verb) for verb in ("get", "create", "update", "patch", "delete")}
    assert writes == rights(kept) - usual
    in_nodes: Values = {"allocationRecord": {"enabled": True, "inLonghornNodes": True}}
    assert {("nodes", verb) for verb in ("get", "update", "patch")} == rights(in_nodes) - rights(kept)
    assert [] == helm.objects({}, "CustomResourceDefinition")
    (crd,) = helm.objects(kept, "CustomResourceDefinition")
    assert "keep" == crd["metadata"]["annotations"]["helm.sh/resource-policy"]
    assert allocation_crd()["spec"] == crd["spec"]
    assert allocation_crd()["metadata"]["name"] == crd["metadata"]["name"]


def test_names_of_secrets_reach_flags_roles_and_certificates_alike(helm: Helm) -> None:
    values = COMBINATIONS["cert-manager"]
    names = {"extender-server", "extender-client", "webhook-server", "webhook-client", "leader-server"}
    made = {one["spec"]["secretName"] for one in helm.objects(values, "Certificate")}
    assert names == made - {"longhorn-scheduler-extender-authority"}
    assert {("get", name) for name in names} == granted(helm, values, "secrets")
    found = {program: set(one.get("args", ())) for program, one in containers(helm, values).items()}
    assert {
        "--tls-secret=extender-server",
        "--tls-client-secret=extender-client",
        "--webhook-tls-secret=webhook-server",
        "--webhook-client-tls-secret=webhook-client",
        "--replica-scheduler-tls-secret=leader-server",
    } <= found["longhorn-scheduler-extender"]
    assert {"--tls-secret=webhook-server", "--tls-client-secret=webhook-client"} <= found["longhorn-scheduler-webhook"]


def containers(helm: Helm, values: Values) -> dict[str, Object]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]
        for one in helm.objects(values, "Deployment")
    }


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_programs_take_the_flags_of_the_combination(helm: Helm, name: str) -> None:
    """Each by its own parser and its own check of what cannot work."""
    environment = {"POD_NAME": "a", "POD_IP": "10.0.0.1", "NODE_NAME": "n1", "POD_NAMESPACE": "longhorn-system"}
    found = containers(helm, with_image(COMBINATIONS[name]))
    programs = {
        "longhorn-scheduler-extender": (controller.commands.run.command, controller.commands.run.process_settings),
        "longhorn-scheduler-webhook": (webhook.cli.run, webhook.cli.webhook_settings),
    }
    for program, (command, settings) in programs.items():
        if program in found:
            name, *words = found[program]["args"]
            settings(command.make_context(name, words).params, environment)  # raises where one is unknown


def test_pods_for_control_planes_tolerate_their_taints(helm: Helm) -> None:
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in helm.objects(with_image(COMBINATIONS["control planes"]), "Deployment")
    }
    assert 3 == len(pods)
    kinds = {"longhorn-scheduler-webhook": "preferredDuringSchedulingIgnoredDuringExecution"}
    for name, pod in pods.items():
        tolerated = {(one["key"], one["operator"], one["effect"]) for one in pod["tolerations"]}
        assert ("node-role.kubernetes.io/control-plane", "Exists", "NoSchedule") in tolerated
        kind = kinds.get(name, "requiredDuringSchedulingIgnoredDuringExecution")
        assert {kind} == set(pod["affinity"]["nodeAffinity"])
        assert "podAntiAffinity" in pod["affinity"]


def test_no_other_image_than_those_that_are_named(helm: Helm) -> None:
    def images(values: Values) -> set[str]:
        return {one["image"] for one in containers(helm, with_image(values)).values()}

    assert {"REGISTRY/longhorn-scheduler-extender:TAG"} == images({})
    second = {"secondScheduler": {"enabled": True}}
    assert {"REGISTRY/longhorn-scheduler-extender:TAG", "registry.k8s.io/kube-scheduler:v1.36.3"} == images(second)
    assert {
        "registry.rancher.example.com/longhorn-scheduler-extender:TAG",
        "registry.rancher.example.com/kube-scheduler:v1.36.3",
    } == images({**SITES["rancher"], **second})
    assert {
        "registry.example.com:5000/mirror/longhorn-scheduler-extender:TAG",
        "mirror.test/kube-scheduler:v1.36.0",
    } == images(COMBINATIONS["control planes"])


CERTIFICATES = "/etc/kube-scheduler-certificates"


@pytest.mark.parametrize("tls", [{}, {"mode": "insecure-plain-http"}], ids=["tls", "plain"])
@pytest.mark.parametrize("values", [{}, COMBINATIONS["control planes"]["secondScheduler"]], ids=["defaults", "all"])
def test_the_second_scheduler_asks_as_the_program_would_have_it(helm: Helm, values: Values, tls: Values) -> None:
    second = {"enabled": True, "name": "longhorn-scheduler", **values}
    (config,) = (
        yaml.safe_load(one["data"]["config.yaml"])
        for one in helm.objects({"secondScheduler": second, "tls": tls}, "ConfigMap")
        if "config.yaml" in one.get("data", ())
    )
    words = ["--for", "plain", "--part", "config"]
    words += ["--insecure-plain-http"] if tls else ["--certificate-dir", CERTIFICATES]
    words += ["--ignorable"] if second.get("ignorable") else []
    words += ["--http-timeout", second.get("httpTimeout", "4s")]
    words += ["--qps", str(second.get("qps", 500)), "--burst", str(second.get("burst", 1000))]
    wanted = yaml.safe_load(ask(*words).text)
    del wanted["clientConnection"]["kubeconfig"]  # its pod's service account
    wanted["leaderElection"] |= {"resourceName": second["name"], "resourceNamespace": "longhorn-system"}
    wanted["percentageOfNodesToScore"] = second.get("percentageOfNodesToScore", 100)
    wanted["profiles"] = [{"schedulerName": second["name"]}]
    if second.get("allPods"):
        (resource,) = wanted["extenders"][0].pop("managedResources")
        fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": [resource["name"]]}}
        wanted["profiles"][0]["pluginConfig"] = [fit]
    assert wanted == config


def test_over_tls_the_second_scheduler_shows_the_certificate_of_its_secret(helm: Helm) -> None:
    pod = next(
        one["spec"]["template"]["spec"]
        for one in helm.objects({"secondScheduler": {"enabled": True}}, "Deployment")
        if one["metadata"]["name"] == "longhorn-scheduler"
    )
    (mounted,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == CERTIFICATES)
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == mounted["name"])
    assert ProcessSettings().tls_client_secret == volume["secret"]["secretName"]


def test_everything_of_a_namespace_is_in_that_of_the_release(helm: Helm) -> None:
    values = {**IMAGE, **COMBINATIONS["network"], "secondScheduler": {"enabled": True}}
    text = helm.rendered(values, namespace="storage")
    assert "longhorn-system" not in text
    namespaces = {one["metadata"].get("namespace") for one in yaml.safe_load_all(text)}
    # `helm test` has rights where its pod would be; what is for Prometheus is where its values say.
    assert {None, "storage", "kube-system", "default", "kube-public"} == namespaces


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
def test_helm_finds_the_log_of_the_test_under_the_name_of_each_of_its_objects(helm: Helm, namespace: str) -> None:
    """`helm test --logs` of Helm 3 looks for a pod of the name of every hook, whatever its kind, and fails without."""
    marks = ((one, one["metadata"].get("annotations", {})) for one in helm.objects({"test": {"namespace": namespace}}))
    hooks = {(one["kind"], one["metadata"].get("namespace")): one for one, mark in marks if mark.get(HOOK) == "test"}
    assert {"longhorn-scheduler-extender-test"} == {one["metadata"]["name"] for one in hooks.values()}
    assert 6 + 2 * (namespace != NAMESPACE) == len(hooks)
    assert "hook-succeeded" not in hooks["Pod", NAMESPACE]["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
