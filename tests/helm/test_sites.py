"""What platforms ask of the pods: users of the namespace's own, the host's network, one registry, nodes that drain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, Helm, with_image
from tests.helm.combinations import SITES, Values

Object = dict[str, Any]
WEBHOOK = "longhorn-scheduler-webhook"
EVERYTHING: Values = {"secondScheduler": {"enabled": True}}
PODS = {
    "longhorn-scheduler",
    "longhorn-scheduler-extender",
    "longhorn-scheduler-extender-test",
    "longhorn-scheduler-extender-uninstall",
    WEBHOOK,
}
KINDS = ("Deployment", "Job", "Pod", "PodDisruptionBudget")
ASKED_FOR: tuple[Values, ...] = (
    {"webhook": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, "secondScheduler": {"enabled": True}},
    {
        "controller": {
            "extraVolumes": [],
            "extraVolumeMounts": [],
            "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
            "hostAliases": [],
        }
    },
    {
        "controller": {"podDisruptionBudget": {"minAvailable": "50%"}},
        "webhook": {"replicas": 3, "podDisruptionBudget": {"maxUnavailable": 1}},
    },
    {"controller": {"securityContext": {"runAsUser": 1000770000}, "podSecurityContext": {"fsGroup": 1}}},
)


def pods(helm: Helm, values: Values) -> dict[str, Object]:
    """The spec of each pod that the chart has, hooks among them, by its object's name."""
    return dict(_pods(helm.objects(values)))


def _pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for one in objects:
        if one["kind"] in ("Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]
        elif one["kind"] == "Pod":
            yield one["metadata"]["name"], one["spec"]


@pytest.mark.parametrize("values", ASKED_FOR)
def test_what_sites_asked_for_is_taken_by_both_helms(helm: Helm, helm4: Helm, values: Values) -> None:
    by_3, by_4 = (
        {(made["kind"], made["metadata"]["name"]): made for made in one.objects(values) if made["kind"] in KINDS}
        for one in (helm, helm4)
    )
    assert by_3 == by_4


def test_pods_of_every_kind_have_a_user_and_a_group_that_are_not_roots(helm: Helm) -> None:
    found = pods(helm, EVERYTHING)
    assert PODS == set(found)
    for name, pod in found.items():
        assert (65532, 65532) == tuple(pod["securityContext"][key] for key in ("runAsUser", "runAsGroup")), name


def test_a_field_is_left_out_of_every_pod_or_of_a_programs_and_its_hooks(helm: Helm, helm4: Helm) -> None:
    """The canary names no user at all."""
    for one in (helm, helm4):
        for name, pod in pods(one, SITES["openshift"]).items():
            assert {"runAsNonRoot", "seccompProfile"} == set(pod["securityContext"]), name
            assert "runAsUser" not in pod["containers"][0]["securityContext"], name
        own = pods(one, {**EVERYTHING, "controller": {"podSecurityContext": {"runAsGroup": None, "fsGroup": 1}}})
        with_group = {name for name, pod in own.items() if "runAsGroup" in pod["securityContext"]}
        assert {"longhorn-scheduler", WEBHOOK} == with_group
        assert 1 == own["longhorn-scheduler-extender"]["securityContext"]["fsGroup"]


def test_the_fields_of_containers_are_added_to_the_usual_ones(helm: Helm) -> None:
    usual = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    found = pods(helm, {**EVERYTHING, **ASKED_FOR[-1]})
    for name, pod in found.items():
        added = {} if name in ("longhorn-scheduler", WEBHOOK) else {"runAsUser": 1000770000}
        assert {**usual, **added} == pod["containers"][0]["securityContext"], name


def test_a_webhook_on_the_hosts_network_resolves_names_and_makes_room_for_its_successor(helm: Helm) -> None:
    (deployment,) = (one for one in helm.objects(SITES["eks"], "Deployment") if one["metadata"]["name"] == WEBHOOK)
    assert {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}} == deployment["spec"]["strategy"]
    pod = deployment["spec"]["template"]["spec"]
    assert (True, "ClusterFirstWithHostNet") == (pod["hostNetwork"], pod["dnsPolicy"])
    (container,) = pod["containers"]
    assert {"https": 19443, "metrics": 19506} == {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {"--port=19443", "--metrics-port=19506", "--status-port=19507"} <= set(container["args"])
    assert "metrics" == container["readinessProbe"]["httpGet"]["port"]
    others = {name: pod for name, pod in pods(helm, SITES["eks"]).items() if name != WEBHOOK}
    assert [] == [name for name, pod in others.items() if pod.keys() & {"hostNetwork", "dnsPolicy"}]
    assert "strategy" not in helm.objects({}, "Deployment")[-1]["spec"]


def test_network_policies_let_in_a_webhook_on_the_hosts_network_by_address(helm: Helm) -> None:
    (policy,) = helm.objects(SITES["eks"], "NetworkPolicy")  # none of the webhook: it would not apply there
    (rule,) = (one for one in policy["spec"]["ingress"] if one["ports"][0]["port"] == 9505)
    assert {"ipBlock": {"cidr": "10.0.16.0/20"}} in rule["from"]
    own = helm.objects(SITES["openshift"] | {"webhook": {"ports": {"https": 8443}}}, "NetworkPolicy")
    assert [8443, 9506] == [one["ports"][0]["port"] for one in own[1]["spec"]["ingress"]]


def test_folders_with_certificates_are_mounted_and_named(helm: Helm) -> None:
    volume: Object = {"name": "own", "csi": {"driver": "csi.cert-manager.io", "readOnly": True}}
    mounts: Values = {"extraVolumes": [volume], "extraVolumeMounts": [{"name": "own", "mountPath": "/etc/own"}]}
    values = {
        "tls": {"mode": "provided", "certDir": "/etc/own"},
        "controller": mounts,
        "webhook": {**mounts, "tls": {"mode": "provided", "certDir": "/etc/own", "clientCAFile": "/etc/own/ca.crt"}},
    }
    found = pods(helm, values)
    for name, flags in (
        ("longhorn-scheduler-extender", {"--tls-cert-dir=/etc/own"}),
        (WEBHOOK, {"--tls-cert-dir=/etc/own", "--client-ca-file=/etc/own/ca.crt"}),
    ):
        (container,) = found[name]["containers"]
        assert flags <= set(container["args"])
        assert mounts["extraVolumeMounts"][0] in container["volumeMounts"]
        assert volume in found[name]["volumes"]


def test_the_documented_values_have_the_webhook_demand_the_api_servers_certificate(helm: Helm) -> None:
    text = (CHART.parents[1] / "docs" / "reviews.md").read_text()
    (block,) = (one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "clientCAFile" in one)
    pod = pods(helm, yaml.safe_load(block))[WEBHOOK]
    (container,) = pod["containers"]
    (file,) = (Path(flag.partition("=")[2]) for flag in container["args"] if flag.startswith("--client-ca-file="))
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mounts[str(file.parent)]]
    assert f"create configmap {volume['configMap']['name']} --from-file={file.name}" in text


@pytest.mark.parametrize(
    ("budget", "replicas", "expected"),
    [
        ({}, 2, {"minAvailable": 1}),
        ({"minAvailable": "50%"}, 2, {"minAvailable": "50%"}),
        ({"minAvailable": "66%"}, 3, {"minAvailable": "66%"}),
        ({"maxUnavailable": 1}, 1, {"maxUnavailable": 1}),
        ({"maxUnavailable": "1%"}, 2, {"maxUnavailable": "1%"}),
    ],
)
def test_budgets_that_let_a_node_drain_are_taken(helm: Helm, budget: Values, replicas: int, expected: Object) -> None:
    values = {"webhook": {"replicas": replicas, "podDisruptionBudget": budget}}
    (made,) = (one["spec"] for one in helm.objects(values, "PodDisruptionBudget") if one["metadata"]["name"] == WEBHOOK)
    assert expected == {key: value for key, value in made.items() if key != "selector"}


def test_copies_keep_apart_from_those_of_their_own_generation(helm: Helm) -> None:
    """Also from those that an update replaces, all new ones would go to the one node that has none of these."""
    for name, pod in pods(helm, EVERYTHING).items():
        if affinity := pod.get("affinity"):
            (term,) = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            assert ["pod-template-hash"] == term["podAffinityTerm"]["matchLabelKeys"], name


def test_a_disconnected_site_pulls_everything_from_its_registry_with_its_credentials(helm: Helm) -> None:
    found = pods(helm, SITES["disconnected"])
    assert PODS == set(found)
    for name, pod in found.items():
        assert [{"name": "site-registry"}] == pod["imagePullSecrets"], name
        assert pod["containers"][0]["image"].startswith("registry.site.example:5000/longhorn/"), name


def test_helm_keeps_the_pod_of_its_test_and_not_the_rights(helm: Helm) -> None:
    """Helm 3 reads the log of the pod after it has deleted what was to be deleted."""
    kept = {"Pod": "before-hook-creation"}
    found = [one for one in helm.objects({}) if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    assert "Pod" in {one["kind"] for one in found}
    for one in found:
        expected = kept.get(one["kind"], "before-hook-creation,hook-succeeded")
        assert expected == one["metadata"]["annotations"]["helm.sh/hook-delete-policy"], one["kind"]


def test_a_site_names_its_own_registry(helm: Helm) -> None:
    for name, values in SITES.items():
        assert helm.template(values).stdout == helm.template(with_image(values) | {"image": values["image"]}).stdout, (
            name
        )
