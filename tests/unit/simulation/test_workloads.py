"""Which pods and claims controllers make of what people write."""

from __future__ import annotations

from typing import Any

import pytest

from controller.plan.complaints import InputError, Notes
from controller.simulation.workloads import Workloads, read_workloads
from tests.fakes.saved import Raw, core
from tests.unit.simulation.asking import ask, cluster, pods, stateful_set

TEMPLATE: Raw = {"spec": {"containers": []}}


def workload(kind: str, version: str = "apps/v1", name: str = "w", **spec: Any) -> Raw:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {"template": TEMPLATE, **spec}}


def made(*objects: Raw) -> list[str]:
    wanted = Workloads()
    read_workloads("f.yaml", objects, "shop", Notes(), wanted)
    return [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for of in wanted.workloads for pod in of.pods]


@pytest.mark.parametrize(
    ("given", "count", "prefix"),
    [
        (workload("Deployment", replicas=3), 3, "shop/w-"),
        (workload("Deployment"), 1, "shop/w-"),
        (workload("ReplicaSet", replicas=2), 2, "shop/w-"),
        (workload("Job", "batch/v1", parallelism=5, completions=2), 2, "shop/w-"),
        (workload("Job", "batch/v1", suspend=True), 0, "shop/w-"),
        (workload("CronJob", "batch/v1", jobTemplate={"spec": {"template": TEMPLATE}}), 1, "shop/w-1-"),
        (workload("Deployment", replicas=0), 0, ""),
    ],
)
def test_replicas_are_multiplied(given: Raw, count: int, prefix: str) -> None:
    names = made(given)
    assert count == len(set(names))
    assert all(name.startswith(prefix) for name in names)
    assert names == made(given)


def test_a_stateful_set_numbers_its_pods_and_makes_their_claims() -> None:
    wanted = Workloads()
    given = stateful_set("db", 2, ordinals={"start": 5})
    read_workloads("f.yaml", [given], "shop", Notes(), wanted)

    (found,) = wanted.workloads
    assert ["db-5", "db-6"] == [pod["metadata"]["name"] for pod in found.pods]
    assert ["data-db-5"] == [claim["metadata"]["name"] for claim in found.claims["db-5"]]
    assert {"claimName": "data-db-5"} == found.pods[0]["spec"]["volumes"][0]["persistentVolumeClaim"]


def test_a_daemon_set_has_a_pod_on_each_node() -> None:
    assert {"w-n1": "n1", "w-n2": "n2"} == pods(ask(cluster(n1=10, n2=10), workload("DaemonSet")))


def test_pods_without_volumes_spread_and_are_kept_apart_if_they_ask_for_it() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"affinity": apart}}
    found = ask(cluster(n1=10, n2=10), workload("ReplicaSet", replicas=3, template=template))

    assert ["n1", "n2", "refused"] == sorted(pods(found).values())
    assert "0 of 2 nodes: 2 anti-affinity to another pod" == found.findings[0].text


def test_lists_and_several_documents_are_read_and_other_kinds_counted() -> None:
    wanted = Workloads()
    items = {"apiVersion": "v1", "kind": "List", "items": [core("Service", "s"), core("Pod", "p", spec={})]}
    read_workloads("f.yaml", [items, None, core("ConfigMap", "c")], "shop", Notes(), wanted)

    assert {"Service": 1, "ConfigMap": 1} == wanted.ignored
    assert 1 == len(wanted.workloads)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (workload("Deployment", replicas="3"), "f.yaml: Deployment w: spec.replicas: is not an integer: '3'"),
        (workload("Deployment", replicas=-1), "f.yaml: Deployment w: spec.replicas: is negative: -1"),
        (workload("Deployment", template={}), "f.yaml: Deployment w: spec.template.spec: is missing"),
        (workload("Deploymnt"), "f.yaml: Deploymnt w: kind: Deploymnt is not read, Deployment is"),
        (workload("Deployment", "apps/v1beta1"), "f.yaml: Deployment w: apiVersion: apps/v1beta1 is not read"),
        ({"kind": "Pod"}, "f.yaml: document[0].apiVersion: is missing"),
        ({"apiVersion": "v1", "kind": "Pod", "spec": {}}, "f.yaml: document[0]: metadata.name: is missing"),
    ],
)
def test_mistakes_are_named(given: Raw, said: str) -> None:
    with pytest.raises(InputError) as caught:
        made(given)
    assert str(caught.value).startswith(said)
