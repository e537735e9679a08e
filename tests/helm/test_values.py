"""What the schema lets through and refuses, what every value does, and that what is made from the chart is current."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.settings import GONE, LIVE_FIELDS, PREFIX
from tests.helm import alerts
from tests.helm.chart import CHART, IMAGE, NAME, NAMESPACE, Helm, made, merged, readme, with_image
from tests.helm.combinations import COMBINATIONS, SITES, Values
from tests.helm.schema import schema_of, values_of

TEXT = (CHART / "values.yaml").read_text()


def test_schema_and_readme_are_made_from_the_values() -> None:
    assert schema_of(TEXT) == (CHART / "values.schema.json").read_text(), "make chart"
    assert readme() == (CHART / "README.md").read_text(), "make chart"
    assert alerts.page() == alerts.PAGE.read_text(), "make chart"


def test_the_manifests_of_the_examples_are_what_the_chart_renders(helm: Helm) -> None:
    for path, text in made(helm).items():
        assert text == path.read_text(), f"{path.name}: make chart"


def settings_map(helm: Helm, values: Values) -> dict[str, Any]:
    (found,) = (one for one in helm.objects(values, "ConfigMap") if one["metadata"]["name"] == NAME)
    return found


def test_every_live_setting_can_be_said(helm: Helm) -> None:
    others = {"opt-in": "always", "strategy": "off", "expansion-policy": "deny", "max-offers": 1000000}
    others |= {"allocation-authority": "disk-scheduler", "co-schedule-strictness": "preferred", "placement": "longhorn"}
    settings: Values = {}
    for name in (name.removeprefix(PREFIX) for name in LIVE_FIELDS):
        settings[name] = others.get(name, 7)
    flags = (
        "enabled",
        "bypass",
        "wake-with-annotation",
        "opt-in-only-marked",
        "share-managers",
        "allocation-record",
    )
    settings |= dict.fromkeys(flags, True)
    made_of_it = settings_map(helm, {"settings": settings})
    assert {name: str(value).lower() for name, value in settings.items()} == {
        name.removeprefix(PREFIX): value for name, value in made_of_it["data"].items()
    }


@pytest.mark.parametrize("former", [{"settings": {"replica-placement": True}}, {"replicaPlacement": {"enabled": True}}])
def test_what_earlier_releases_took_is_still_taken(helm: Helm, former: Values) -> None:
    made_of_it = settings_map(helm, former)
    assert [{"scheduler-extender-replica-placement": "true"}] == [made_of_it["data"]]  # the program tells


def test_settings_that_do_nothing_any_more_are_still_taken(helm: Helm) -> None:
    gone: Values = {"allow-stranding": True, "roaming-overcommit-percent": 25, "namespace-cap-percent": "10"}
    gone["allocation-grace"] = 3
    assert {name.removeprefix(PREFIX) for name in GONE} == gone.keys()
    made_of_it = settings_map(helm, {"settings": gone})
    assert {f"{PREFIX}{name}": str(value).lower() for name, value in gone.items()} == made_of_it["data"]


def leaves(values: Values, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def at(values: Values, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def without(values: Values, path: tuple[str, ...]) -> Values:
    less = copy.deepcopy(values)
    del at(less, path[:-1])[path[-1]]
    return less


NOT_RENDERED = {("requireLonghorn",)}  # counts where Helm can ask the cluster


@pytest.mark.long
@pytest.mark.parametrize("name", COMBINATIONS)
def test_each_value_of_the_combination_does_something(helm: Helm, name: str) -> None:
    """What stands in it is rendered otherwise without it; so no value can be named and forgotten in the templates."""
    values = with_image(COMBINATIONS[name])
    whole = helm.template(values)
    assert (0, "") == (whole.returncode, whole.stderr)
    defaults = {value.path: value.default for value in values_of(TEXT) if value.is_leaf}
    said = [path for path in leaves(COMBINATIONS[name]) if path in defaults and path not in NOT_RENDERED]
    for path in (path for path in said if at(COMBINATIONS[name], path) != defaults[path]):
        less = helm.template(without(values, path))
        assert (less.returncode, less.stdout) != (0, whole.stdout), ".".join(path)


def test_the_combinations_say_every_value() -> None:
    said = {path for values in (IMAGE, *COMBINATIONS.values()) for path in leaves(values)}
    assert [] == [value.name for value in values_of(TEXT) if value.is_leaf and value.path not in said]


@pytest.mark.parametrize("name", COMBINATIONS)
def test_common_labels_and_annotations_are_on_every_object_and_pod(helm: Helm, name: str) -> None:
    common = {"commonLabels": {"site/owner": "storage"}, "commonAnnotations": {"site/contact": "somebody"}}
    values = {key: value for key, value in COMBINATIONS[name].items() if key != "extraObjects"} | common
    for one in helm.objects(values):
        pod = one["spec"]["template"] if one["kind"] in ("Deployment", "Job") else one
        for metadata in (one["metadata"], pod["metadata"]):
            assert "storage" == metadata["labels"].get("site/owner"), one["metadata"]
            assert "somebody" == metadata["annotations"].get("site/contact"), one["metadata"]


# The wrong values, and what the error names.
TYPOS: list[tuple[Values, str]] = [
    ({"images": {"registry": "r"}}, "images"),
    ({"image": {"registery": "r"}}, "registery"),
    ({"image": "registry.example.com/lse:1"}, "image"),
    ({"image": {"tag": 1.10}}, "tag"),
    ({"image": {"digest": "0123456789abcdef"}}, "digest"),
    ({"image": {"pullPolicy": "ifNotPresent"}}, "pullPolicy"),
    ({"imagePullSecrets": ["regcred"]}, "imagePullSecrets"),
    ({"imagePullSecrets": "regcred"}, "imagePullSecrets"),
    ({"replicas": 3}, "replicas"),
    ({"controller": {"replicas": 0}}, "replicas"),
    ({"controller": {"replicas": "2"}}, "replicas"),
    ({"controller": {"resource": {}}}, "resource"),
    ({"controller": {"resources": {"request": {"cpu": "1"}}}}, "request"),
    ({"controller": {"tolerations": [{"key": "a", "effects": "NoSchedule"}]}}, "effects"),
    ({"controller": {"tolerations": [{"key": "a", "effect": "noSchedule"}]}}, "effect"),
    ({"controller": {"tolerations": {"key": "a"}}}, "tolerations"),
    ({"controller": {"affinity": {"podAntiaffinity": {}}}}, "podAntiaffinity"),
    ({"controller": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "topologyKey"),
    ({"controller": {"extraArgs": "--threads=8"}}, "extraArgs"),
    ({"controller": {"controlPlane": True}}, "controlPlane"),
    ({"controller": {"livenessProbe": {"timeout": 5}}}, "timeout"),
    ({"controller": {"nodeSelector": {"gpu": True}}}, "gpu"),
    ({"webhooks": {"enabled": False}}, "webhooks"),
    ({"webhook": {"enabled": "false"}}, "enabled"),
    ({"webhook": {"tls": {"mode": "off"}}}, "mode"),
    ({"tls": {"mode": "certmanager"}}, "mode"),
    ({"tls": {"enabled": True}}, "enabled"),
    ({"settings": {"scheduler-extender-enabled": True}}, "scheduler-extender-enabled"),
    ({"settings": {"strategy": "binpack"}}, "strategy"),
    ({"settings": {"placement": "off"}}, "placement"),
    ({"settings": {"max-offers": -1}}, "max-offers"),
    ({"settings": {"enabled": "yes"}}, "enabled"),
    ({"secondScheduler": {"name": "Second_Scheduler"}}, "name"),
    ({"secondScheduler": {"httpTimeout": "10s"}}, "httpTimeout"),
    ({"networkPolicy": {"controlPlaneCIDRs": ["10.0.0.1"]}}, "controlPlaneCIDRs"),
    ({"networkPolicy": {"controlPlaneCIDR": "10.0.0.0/28"}}, "controlPlaneCIDR"),
    ({"monitoring": {"serviceMonitor": True}}, "serviceMonitor"),
    ({"monitoring": {"scrapeTimeout": "5"}}, "scrapeTimeout"),
    ({"monitoring": {"prometheusRule": {"overrides": {"LonghornSchedulerNoRoom": {"fore": "2h"}}}}}, "fore"),
    ({"controller": {"updateStrategy": {"type": "Rolling"}}}, "type"),
    ({"service": {"type": "clusterIP"}}, "type"),
    ({"service": {"nodePort": 70000}}, "nodePort"),
    ({"flowSchema": {"matchingPrecedence": 20000}}, "matchingPrecedence"),
    ({"schedulerNames": "default-scheduler"}, "schedulerNames"),
    ({"podSecurityContext": {"runAsuser": 1}}, "runAsuser"),
    ({"webhook": {"securityContext": {"readOnlyRootFilesystem": "true"}}}, "readOnlyRootFilesystem"),
    ({"webhook": {"dnsPolicy": "Cluster"}}, "dnsPolicy"),
    ({"webhook": {"dnsConfig": {"options": [{"name": "ndots", "value": 1}]}}}, "value"),
    ({"webhook": {"ports": {"https": 0}}}, "https"),
    ({"controller": {"hostAliases": [{"ip": "192.0.2.1", "hostname": "a"}]}}, "hostname"),
    ({"controller": {"podDisruptionBudget": {"maxUnavailable": 0}}}, "maxUnavailable"),
    ({"controller": {"podDisruptionBudget": {"minAvailable": "50"}}}, "minAvailable"),
    ({"controller": {"podDisruptionBudget": {"minAvailable": "0%"}}}, "minAvailable"),
]


def test_typos_are_refused_with_their_name(helm: Helm) -> None:
    assert len(TYPOS) >= 30
    for typo, name in TYPOS:
        done = helm.template(merged(IMAGE, typo))
        assert (1, "") == (done.returncode, done.stdout), typo
        assert "don't meet the specifications of the schema" in done.stderr, (typo, done.stderr)
        assert name in done.stderr, (typo, done.stderr)


# What the schema cannot see, and what the error says.
CONTRADICTIONS: list[tuple[Values, str]] = [
    ({"image": {"registry": ""}}, "image.registry"),
    ({"tls": {"secretName": "mine"}}, "tls.secretName"),
    ({"webhook": {"tls": {"leaderSecretName": "mine"}}}, "webhook.tls"),
    ({"tls": {"mode": "insecure-plain-http"}, "bind": {"enabled": True}}, "bind.enabled"),
    ({"networkPolicy": {"enabled": True}}, "networkPolicy.controlPlaneCIDRs"),
    ({"controller": {"statusTls": {"port": 0, "secretName": "mine"}}}, "controller.statusTls.secretName"),
    ({"controller": {"leaderElection": {"leaseDurationSeconds": 10}}}, "leaseDurationSeconds"),
    ({"controller": {"leaderElection": {"retryPeriodSeconds": 10}}}, "renewDeadlineSeconds"),
    ({"controller": {"replicas": 1}}, "controller.podDisruptionBudget.minAvailable"),
    ({"webhook": {"replicas": 1}}, "webhook.podDisruptionBudget.minAvailable"),
    ({"secondScheduler": {"enabled": True, "replicas": 1}}, "secondScheduler.podDisruptionBudget.minAvailable"),
    ({"secondScheduler": {"enabled": True, "name": "default-scheduler"}}, "secondScheduler.name"),
    ({"allocationRecord": {"inLonghornNodes": True}}, "allocationRecord.inLonghornNodes"),
    ({"image": {"registry": "https://mirror"}}, "image.registry: https://mirror: a registry"),
    ({"image": {"registry": ""}, "global": {"imageRegistry": "http://mirror"}}, "global.imageRegistry: http://mirror"),
    (
        merged(SITES["rancher"], {"global": {"cattle": {"systemDefaultRegistry": "http://r"}}}),
        "global.cattle.systemDefaultRegistry: http",
    ),
    ({"secondScheduler": {"enabled": True, "image": {"registry": "http://m"}}}, "secondScheduler.image.registry: http"),
    ({"image": {"repository": "lse:1"}}, "image.repository: lse:1: the tag"),
    ({"controller": {"podDisruptionBudget": {"minAvailable": "51%"}}}, "minAvailable: with 51% of 2 replicas no node"),
    ({"webhook": {"replicas": 3, "podDisruptionBudget": {"minAvailable": 3}}}, "webhook.podDisruptionBudget"),
    ({"webhook": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}}, "maxUnavailable, not both"),
    (
        {"monitoring": {name: {"enabled": True} for name in ("podMonitor", "serviceMonitor")}},
        "monitoring: podMonitor and",
    ),
    ({"monitoring": {"prometheusRule": {"enabled": True, "disabled": ["Odd"]}}}, "there is no alert Odd"),
    ({"monitoring": {"prometheusRule": {"enabled": True, "overrides": {"Odd": {}}}}}, "there is no alert Odd"),
    (merged(SITES["eks"], {"networkPolicy": {"nodeCIDRs": []}}), "networkPolicy.nodeCIDRs"),
    ({"webhook": {"ports": {"https": 9506}}}, "webhook.ports"),
    ({"tls": {"certDir": "/etc/server"}}, "tls.certDir"),
    ({"webhook": {"tls": {"certDir": "/etc/server"}}}, "webhook.tls.certDir"),
    ({"webhook": {"tls": {"mode": "provided", "clientCertDir": "/etc/client"}}}, "webhook.tls.clientCertDir"),
]


def test_values_that_do_not_go_together_are_refused(helm: Helm) -> None:
    for values, says in CONTRADICTIONS:
        done = helm.template(with_image(values))
        assert 1 == done.returncode, values
        assert says in done.stderr, (values, done.stderr)


def test_a_port_that_is_set_by_flag_is_compared_with_those_of_the_file(helm: Helm) -> None:
    """Helm makes whole numbers of flags, and floating ones of files."""
    done = helm.template(with_image({}), "--set", "webhook.ports.https=9506")
    assert 1 == done.returncode
    assert "webhook.ports: two of them are the same" in done.stderr


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors_look_at_longhorns_namespace_from_wherever_they_are(helm: Helm, kind: str) -> None:
    enabled: Values = {f"{kind[0].lower()}{kind[1:]}": {"enabled": True}}
    for namespace, selector in (("", None), ("monitoring", {"matchNames": [NAMESPACE]})):
        monitors = helm.objects({"monitoring": {**enabled, "namespace": namespace, "scrapeTimeout": "9s"}}, kind)
        assert 2 == len(monitors)
        for one in monitors:
            assert (namespace or NAMESPACE) == one["metadata"]["namespace"]
            assert selector == one["spec"].get("namespaceSelector")
            (endpoint,) = one["spec"].get("endpoints") or one["spec"]["podMetricsEndpoints"]
            assert {"port": "metrics", "interval": "30s", "scrapeTimeout": "9s"} == endpoint


def test_without_the_operators_kinds_only_the_dashboard_is_rendered(helm: Helm) -> None:
    parts = ("podMonitor", "prometheusRule", "dashboard")
    values = with_image({"monitoring": {name: {"enabled": True} for name in parts}})
    done = helm.run("template", "x", str(CHART), "--kube-version", "1.36.3", values=values)
    assert (0, False, True) == (
        done.returncode,
        "monitoring.coreos.com" in done.stdout,
        'grafana_dashboard: "1"' in done.stdout,
    )


@pytest.mark.long
def test_both_helms_lint_the_chart_and_render_the_same(helm: Helm, helm4: Helm) -> None:
    for name, values in COMBINATIONS.items():
        texts = []
        for one in (helm, helm4):
            linted = one.run("lint", "--strict", "--kube-version", "1.36.3", str(CHART), values=with_image(values))
            assert 0 == linted.returncode, (name, linted.stdout, linted.stderr)
            texts.append(one.template(with_image(values)).stdout)
        objects = [sorted(yaml.safe_dump(one) for one in yaml.safe_load_all(text) if one) for text in texts]
        assert len(objects[0]) > 20
        assert objects[0] == objects[1], name


UMBRELLA = """\
apiVersion: v2
name: storage
version: 1.0.0
dependencies: [{name: longhorn-scheduler-extender, version: "*-0", condition: longhorn-scheduler-extender.enabled}]
"""


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_chart_that_depends_on_it_may_switch_it_off(
    helm: Helm, helm4: Helm, tmp_path: Path, is_enabled: bool
) -> None:
    """cert-manager/cert-manager#7334, helm/helm#13141: Helm hands the value of the condition on to the chart."""
    (tmp_path / "Chart.yaml").write_text(UMBRELLA)
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    values = {"global": {"site": "x"}, CHART.name: with_image({"enabled": is_enabled})}
    for one in (helm, helm4):
        done = one.template(values, chart=tmp_path)
        assert (0, is_enabled) == (done.returncode, "kind: Deployment" in done.stdout), done.stderr


def test_outside_of_such_a_chart_it_is_not_switched_off(helm: Helm) -> None:
    done = helm.template(with_image({"enabled": False}))
    assert 1 == done.returncode
    assert "enabled: is for a chart that has this one as a dependency" in done.stderr
    assert 0 == helm.template(with_image({"enabled": True})).returncode


def test_a_section_that_is_missing_is_named(helm: Helm) -> None:
    """argoproj/argo-helm#1114, cilium/cilium#33841: `--reuse-values` leaves out what an earlier chart did not know."""
    sections = [value for value in values_of(TEXT) if not value.is_leaf]
    assert len(sections) > 20
    for value in sections:
        lacking: Any = None
        for key in reversed(value.path):
            lacking = {key: lacking}
        done = helm.template(with_image(lacking) if value.path[0] != "image" else lacking)
        assert 1 == done.returncode, value.name
        assert "don't meet the specifications of the schema" in done.stderr, (value.name, done.stderr)
        assert f"'{value.path[-1]}'" in done.stderr, (value.name, done.stderr)


def test_an_older_kubernetes_is_refused_and_a_vendors_version_is_not(helm: Helm) -> None:
    versions = {"v1.31.9": 1, "v1.36.3+rke2r1": 0, "v1.36.3-gke.1234": 0, "v1.34.1-eks-abcdef": 0, "v1.32.0": 0}
    for version, code in versions.items():
        done = helm.run("template", "x", str(CHART), "--kube-version", version, values=with_image({}))
        assert code == done.returncode, (version, done.stderr)


def test_rancher_asks_about_values_that_there_are() -> None:
    questions = yaml.safe_load((CHART / "questions.yaml").read_text())["questions"]
    questions += [below for question in questions for below in question.get("subquestions", ())]
    known = {value.name: value.default for value in values_of(TEXT)} | {
        "settings.enabled": False,
        "settings.placement": "leader",
    }
    assert [] == [one["variable"] for one in questions if known.get(one["variable"], ...) != one["default"]]
