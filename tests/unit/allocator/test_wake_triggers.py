"""What may make room for a refused pod, one thing at a time: each is noticed, and wakes the pod that has room now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from controller.allocator.outcome import Mode
from controller.model.longhorn import (
    BackingImage,
    Disk,
    EngineImage,
    InstanceManager,
    LonghornNode,
    LonghornSettings,
    SpacePolicy,
)
from controller.model.workload import KubeNode
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, LATER, TestCluster, disk, node, observe, replica, volume

Step = Callable[[TestCluster], object]


@dataclass(frozen=True)
class TriggerCase:
    """How it comes that the pod finds no room, and what changes that."""

    name: str
    before: Step
    change: Step
    parameters: tuple[tuple[str, str], ...] = ()  # of the pod's storage class


def put(facts: LonghornNode) -> Step:
    return lambda cluster: cluster.put_node(facts)


def one_disk(entry: Disk) -> Step:
    return put(node("n1", entry))


def nothing(_cluster: TestCluster) -> None:
    pass


def taken(cluster: TestCluster) -> None:
    """The node has room for one volume, and another pod's replica has it."""
    cluster.put_node(node("n1", free_gib=100))
    cluster.add_pod("other")
    cluster.run("other", "other", "n1")


def held(cluster: TestCluster) -> None:
    """The same room is offered to another pod on two nodes."""
    cluster.put_node(node("n1", free_gib=100))
    cluster.add_node("n2", free_gib=100)
    cluster.add_pod("other")
    assert {"n1", "n2"} == cluster.offered("other", "n1", "n2")


def chosen(cluster: TestCluster) -> None:
    held(cluster)
    cluster.select_node("other", "n1")


def unknown_to_kubernetes(cluster: TestCluster) -> None:
    cluster.add_node("n2", free_gib=10)
    cluster.allocator.observe_kube_node("n1", None)


def shared(cluster: TestCluster) -> None:
    """A shared volume waits for a node, which may be this one."""
    cluster.put_node(node("n1", free_gib=100))
    cluster.add_node("n2", free_gib=100)
    claim = cluster.add_claim("other", shared=True)
    cluster.add_pod("other", "other")
    cluster.filter("other", "n1", "n2")
    cluster.select_node("other", "n1")
    name = cluster.provision("other")
    cluster.allocator.observe_volume(name, volume(name, access_mode="rwx", locality="disabled"))
    cluster.bind("other", "n1")
    assert claim.is_shared


def share_manager_went_elsewhere(cluster: TestCluster) -> None:
    name = f"pvc-{cluster.claims['other'].uid}"
    facts = volume(name, access_mode="rwx", locality="disabled", attached_to="n2")
    cluster.allocator.observe_volume(name, facts)
    cluster.place(name, "n2")


def too_large(cluster: TestCluster) -> None:
    """The pod's own volume exists, and is larger than the node."""
    cluster.put_node(node("n1", free_gib=100))
    cluster.attach(cluster.provision("p"), "", 150)


def made_smaller(cluster: TestCluster) -> None:
    name = f"pvc-{cluster.claims['p'].uid}"
    cluster.attach(name, "", 100)
    cluster.allocator.observe_replica(f"{name}-r-1", replica(f"{name}-r-1", name, 100))


def on_image(cluster: TestCluster) -> None:
    """The pod's volume is made on an image whose copy would have to come along."""
    cluster.put_node(node("n1", free_gib=140))
    name = cluster.provision("p")
    cluster.attach(name, "", backing_image="img")
    cluster.allocator.observe_backing_image("img", BackingImage("img", real_size_bytes=50 * GIB))


def image_is_smaller(cluster: TestCluster) -> None:
    cluster.allocator.observe_backing_image("img", BackingImage("img", real_size_bytes=40 * GIB))


def sees(kind: str, key: str, facts: object) -> Step:
    return lambda cluster: observe(cluster.allocator, kind, key, facts)


def configures(longhorn: LonghornSettings) -> Step:
    return lambda cluster: cluster.allocator.configure(LiveSettings(enabled=True), longhorn)


def other_goes(cluster: TestCluster) -> None:
    cluster.drop_pod("other")
    cluster.drop_claim("other")


def time_passes(cluster: TestCluster) -> None:
    cluster.clock.advance(120)
    cluster.let_doubts_pass()


def pressed(cluster: TestCluster) -> None:
    cluster.put_node(node("n1", replace(disk(), available_bytes=50 * GIB)))


def longhorn_is_away(cluster: TestCluster) -> None:
    """Nobody reports: its managers are gone, and with them what they say of nodes and disks."""
    cluster.put_node(replace(node("n1", replace(disk(), schedulable=False)), ready=False))


def switched_on_again(cluster: TestCluster) -> None:
    cluster.allocator.set_mode(Mode.CLOSED)
    cluster.put_node(node("n1", free_gib=100))
    cluster.allocator.set_mode(Mode.ACTIVE)


SMALL = put(node("n1", free_gib=50))
LARGE = put(node("n1", free_gib=100))


def large_but(step: Step) -> Step:
    """There is room for the pod, but for that."""

    def before(cluster: TestCluster) -> None:
        LARGE(cluster)
        step(cluster)

    return before


CASES = (
    TriggerCase("a replica went", taken, lambda cluster: cluster.delete_volume("other")),
    TriggerCase("a disk was enabled", one_disk(replace(disk(), allow_scheduling=False)), LARGE),
    TriggerCase("a disk can be scheduled to", one_disk(replace(disk(), schedulable=False)), LARGE),
    TriggerCase("a disk is not evicted any more", one_disk(replace(disk(), eviction_requested=True)), LARGE),
    TriggerCase("a disk was added", SMALL, put(node("n1", disk("d1", 50), disk("d2", 100)))),
    TriggerCase("a disk is larger", SMALL, LARGE),
    TriggerCase("less is reserved", one_disk(replace(disk(), reserved_bytes=350 * GIB)), LARGE),
    TriggerCase("the file system has room", pressed, LARGE),
    TriggerCase("a disk was tagged", nothing, one_disk(disk(tags=("ssd",))), (("diskSelector", "ssd"),)),
    TriggerCase(
        "a node was tagged",
        nothing,
        put(replace(node("n1"), tags=frozenset({"fast"}))),
        (("nodeSelector", "fast"),),
    ),
    TriggerCase("a node became ready", put(replace(node("n1"), ready=False)), LARGE),
    TriggerCase("a node was enabled", put(replace(node("n1"), allow_scheduling=False)), LARGE),
    TriggerCase("a node was uncordoned", put(replace(node("n1"), schedulable=False)), LARGE),
    TriggerCase("a node came to Longhorn", sees("node", "n1", None), LARGE),
    TriggerCase(
        "a node came to Kubernetes",
        large_but(unknown_to_kubernetes),
        sees("kube_node", "n1", KubeNode("n1", unschedulable=False)),
    ),
    TriggerCase("a setting changed", SMALL, configures(LonghornSettings(space=SpacePolicy(over_provisioning_pct=200)))),
    TriggerCase(
        "the size asked for became less",
        SMALL,
        lambda cluster: cluster.set_claim(replace(cluster.claims["p"], requested_bytes=50 * GIB)),
    ),
    TriggerCase("the volume turned out smaller", too_large, made_smaller),
    TriggerCase("a share-manager moved", shared, share_manager_went_elsewhere),
    TriggerCase("Longhorn is back", longhorn_is_away, LARGE),
    TriggerCase("the extender is switched on again", SMALL, switched_on_again),
    TriggerCase("a contention was resolved", held, lambda cluster: cluster.select_node("other", "n2")),
    TriggerCase("a choice was withdrawn", chosen, other_goes),
    TriggerCase("a hold ended by time", held, time_passes),
    TriggerCase("an answer was lost", held, lambda cluster: cluster.allocator.end_holds("pod-other", 1)),
    TriggerCase("a pod with a hold went", held, other_goes),
    TriggerCase("a backing image is smaller", on_image, image_is_smaller),
    TriggerCase(
        "an engine image was deployed",
        large_but(sees("engine_image", "ei", EngineImage("ei", "engine:1", "deploying", frozenset()))),
        sees("engine_image", "ei", EngineImage("ei", "engine:1", "deployed", frozenset({"n1"}))),
    ),
    TriggerCase(
        "an instance manager runs",
        large_but(sees("instance_manager", "im", InstanceManager("im", "n1", "v1", "im:1", "starting"))),
        sees("instance_manager", "im", InstanceManager("im", "n1", "v1", "im:1", "running")),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refused_pod_is_woken_when(case: TriggerCase) -> None:
    cluster = TestCluster()
    cluster.add_class("its", dataLocality="best-effort", numberOfReplicas="1", **dict(case.parameters))
    cluster.add_node("n1", free_gib=1)
    cluster.add_claim("p", class_name="its")
    case.before(cluster)
    cluster.add_pod("p", created=LATER)
    assert not cluster.offered("p", "n1")
    cluster.clock.advance(1)
    assert "p" not in cluster.woken()
    version = cluster.allocator.version

    case.change(cluster)

    assert cluster.allocator.wait_for_change(version, 0)
    assert "p" in cluster.woken()
    assert cluster.offered("p", "n1")
