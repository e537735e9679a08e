"""The kinds that the controller follows: the allocator takes each, the manifest grants each, what they show counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.allocator.outcome import Decision
from controller.follow.kinds import KINDS, Kind
from controller.kube import resources
from controller.model.longhorn import BackingImage, EngineImage, InstanceManager
from controller.rules.reasons import Reason
from tests.fakes.builders import LATEST, TestCluster, volume

MANIFEST = Path(__file__).resolve().parents[3] / "docs" / "examples" / "install.yaml"
SETTINGS: Kind[Any] = Kind("setting", resources.LONGHORN_SETTINGS, lambda raw: raw, lambda *_: None, in_longhorn=True)


def rules(kind: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(MANIFEST.read_text())
    return [rule for document in documents if document["kind"] == kind for rule in document["rules"]]


@pytest.mark.parametrize("kind", [*KINDS, SETTINGS], ids=lambda kind: kind.name)
def test_the_manifest_lets_the_controller_follow_every_kind(kind: Kind[Any]) -> None:
    resource = kind.resource
    granted = {
        verb
        for rule in rules("Role" if kind.in_longhorn else "ClusterRole")
        if resource.group in rule["apiGroups"] and resource.plural in rule["resources"] and "resourceNames" not in rule
        for verb in rule["verbs"]
    }
    assert {"get", "list", "watch"} <= granted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_allocator_takes_the_loss_of_an_object_of_every_kind(kind: Kind[Any]) -> None:
    allocator = TestCluster().allocator
    version = allocator.version
    kind.observe(allocator, "ns/never-seen", None, None)
    assert allocator.version > version


# What they show


def refused(cluster: TestCluster, pod: str = "p") -> Reason | None:
    return cluster.filter(pod, "n1").refused.get("n1")


def wakes(cluster: TestCluster) -> list[str]:
    cluster.clock.advance(60)
    return [wakeup.name for wakeup in cluster.plan_wakeups()]


def test_a_node_runs_v1_volumes_once_their_engine_image_is_there_and_the_pod_is_woken() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.allocator.observe_engine_image("ei", EngineImage("ei", "engine:1", "deploying", frozenset({"n2"})))
    assert Reason.ENGINE_NOT_READY == refused(cluster)
    assert [] == wakes(cluster)
    cluster.allocator.observe_engine_image("ei", EngineImage("ei", "engine:1", "deployed", frozenset({"n1", "n2"})))
    assert ["p"] == wakes(cluster)
    assert refused(cluster) is None


def test_a_node_runs_volumes_once_its_instance_manager_runs_and_the_pod_is_woken() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.allocator.observe_instance_manager("im", InstanceManager("im", "n1", "v1", "im:1", "starting"))
    assert Reason.ENGINE_NOT_READY == refused(cluster)
    assert [] == wakes(cluster)
    cluster.allocator.observe_instance_manager("im", InstanceManager("im", "n1", "v1", "im:1", "running"))
    assert ["p"] == wakes(cluster)
    assert refused(cluster) is None
    cluster.allocator.observe_instance_manager("im", None)
    assert refused(cluster) is None  # no such object at all: the rule is off


def test_a_backing_images_tags_decide_once_it_is_known() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("p")
    name = cluster.run("p", "p", "n2")
    cluster.drop_pod("p")
    cluster.allocator.observe_volume(name, volume(name, backing_image="img"))
    cluster.add_pod("again", "p", created=LATEST)
    assert Decision.OFFERED == cluster.filter("again", "n1").decision
    cluster.allocator.observe_backing_image("img", BackingImage("img", node_selector=("gpu",)))
    assert Reason.NODE_TAGS == refused(cluster, "again")
    cluster.allocator.observe_backing_image("img", BackingImage("img"))
    assert refused(cluster, "again") is None
