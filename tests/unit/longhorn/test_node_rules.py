"""Which nodes the stand-in takes into account at all."""

from __future__ import annotations

import pytest

from tests.longhorn.placement import is_true
from tests.unit.longhorn.worlds import Raw, ask, disk, node, places, reasons, replica, volume


@pytest.mark.parametrize(
    "unfit",
    [
        node("b", ready="False"),
        node("b", ready="Unknown"),
        node("b", schedulable="False"),
        node("b", allow=False),
        node("b", deleting=True),
    ],
)
def test_an_unavailable_node_is_refused(unfit: Raw) -> None:
    answer = ask([node("a"), unfit])
    assert ["a-d1"] == places(answer)
    assert [("b", "nodes are unavailable")] == [(entry.node, entry.reason) for entry in answer.refusals]


def test_a_missing_condition_is_not_true() -> None:
    bare = node("b")
    bare["status"]["conditions"] = []
    assert ["a-d1"] == places(ask([node("a"), bare]))
    assert not is_true(None, "Ready")


def test_hard_affinity_leaves_that_node_or_none() -> None:
    nodes = [node("a"), node("b"), node("c", allow=False)]
    assert ["b-d1"] == places(ask(nodes, new=replica("new", hardNodeAffinity="b")))
    answer = ask(nodes, new=replica("new", hardNodeAffinity="c"))
    assert [] == places(answer)
    assert {"nodes are unavailable", "hard affinity cannot be satisfied"} == reasons(answer)


def test_hard_affinity_does_not_fall_back_from_a_full_node() -> None:
    answer = ask([node("a"), node("b", disk(available=0))], new=replica("new", hardNodeAffinity="b"))
    assert [] == places(answer)
    assert {"insufficient storage"} == reasons(answer)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([{"zone": "z1"}], ["a-d1"]),
        ([{"zone": "z1"}, {"zone": "z2"}], ["a-d1", "b-d1"]),
        ([{"region": "r1"}], ["a-d1", "b-d1"]),
        ([{"zone": "z1", "region": "r2"}], []),
        ([{"zone": "z3"}], []),
        ([{"zone": "", "region": ""}], ["a-d1", "b-d1", "c-d1"]),
    ],
)
def test_topology_wants_one_term_whose_parts_all_match(terms: list[Raw], expected: list[str]) -> None:
    nodes = [node("a", zone="z1", region="r1"), node("b", zone="z2", region="r1"), node("c")]
    answer = ask(nodes, volume(topologyRequirement=terms))
    assert expected == places(answer)
    assert ("topology requirement cannot be satisfied" in reasons(answer)) == (not expected)


# Engine


def manager(where: str, engine: str = "v1", state: str = "running", image: str = "im") -> Raw:
    return {"spec": {"nodeID": where, "dataEngine": engine, "image": image}, "status": {"currentState": state}}


def image(name: str, state: str = "deployed", **deployed: bool) -> Raw:
    return {"spec": {"image": name}, "status": {"state": state, "nodeDeploymentMap": deployed}}


def test_a_running_instance_manager_of_the_engine_is_needed() -> None:
    managers = [manager("a"), manager("b", state="stopped"), manager("c", engine="v2")]
    assert ["a-d1"] == places(ask([node("a"), node("b"), node("c"), node("d")], instance_managers=managers))


def test_v1_needs_the_default_instance_manager_image_and_v2_any() -> None:
    setting = {"default-instance-manager-image": "new"}
    nodes = [node(name, disk(diskType="block"), disk()) for name in ("a", "b")]
    old = [manager("a", image="old"), manager("b", image="new")]
    assert ["b-d2"] == places(ask(nodes, instance_managers=old, settings=setting))
    both = [manager("a", "v2", image="old"), manager("b", "v2", image="new")]
    assert ["a-d1", "b-d1"] == places(ask(nodes, volume(dataEngine="v2"), instance_managers=both, settings=setting))


@pytest.mark.parametrize("state", ["deployed", "deploying"])
def test_the_replicas_engine_image_must_be_on_the_node(state: str) -> None:
    nodes, images = [node("a"), node("b"), node("c")], [image("e1", state, a=True, b=False), image("e2", c=True)]
    new = replica("new", image="e1")
    assert ["a-d1"] == places(ask(nodes, volume(image="e2"), new=new, engine_images=images))
    assert ["c-d1"] == places(ask(nodes, volume(image="e2"), engine_images=images))


def test_an_engine_image_in_trouble_serves_nobody() -> None:
    answer = ask([node("a")], volume(image="e"), engine_images=[image("e", "incompatible", a=True)])
    assert [] == places(answer)
    assert {"none of the node candidates contains a ready engine image"} == reasons(answer)


def test_v2_asks_for_no_engine_image() -> None:
    nodes = [node("a", disk(diskType="block"))]
    assert ["a-d1"] == places(ask(nodes, volume(dataEngine="v2", image="e"), engine_images=[]))


def test_v2_needs_a_kubernetes_node_that_does_not_opt_out() -> None:
    label = {"node.longhorn.io/disable-v2-data-engine": "true"}
    kube = {"a": {"metadata": {}}, "b": {"metadata": {"labels": label}}}
    nodes = [node(name, disk(diskType="block")) for name in ("a", "b", "c")]
    assert ["a-d1"] == places(ask(nodes, volume(dataEngine="v2"), kube_nodes=kube))
    assert 3 == len(places(ask(nodes, volume(dataEngine="v2"))))
    assert 3 == len(places(ask([node("a"), node("b"), node("c")], kube_nodes=kube)))  # v1 does not care


# Tags


@pytest.mark.parametrize(
    ("selector", "allow_empty", "expected"),
    [
        ([], "true", ["a-d1", "b-d1", "c-d1"]),
        ([], "false", ["a-d1"]),
        (["fast"], "true", ["b-d1", "c-d1"]),
        (["fast"], "false", ["b-d1", "c-d1"]),
        (["fast", "big"], "true", ["c-d1"]),
        (["Fast"], "true", []),
        ([""], "true", []),
    ],
)
def test_node_tags(selector: list[str], allow_empty: str, expected: list[str]) -> None:
    nodes = [node("a"), node("b", tags=("fast",)), node("c", tags=("big", "fast"))]
    settings = {"allow-empty-node-selector-volume": allow_empty}
    assert expected == places(ask(nodes, volume(nodeSelector=selector), settings=settings))


def test_a_backing_image_adds_its_own_node_and_disk_selector() -> None:
    nodes = [
        node("a", disk(tags=("ssd",)), disk(), tags=("fast",)),
        node("b", disk(tags=("ssd",))),
    ]
    images = {"bi": {"spec": {"nodeSelector": ["fast"], "diskSelector": ["ssd"]}}}
    assert ["a-d1"] == places(ask(nodes, volume(backingImage="bi"), backing_images=images))


def test_a_backing_image_without_selector_counts_as_an_empty_one() -> None:
    nodes, settings = [node("a", tags=("fast",))], {"allow-empty-node-selector-volume": "false"}
    wanted = volume(nodeSelector=["fast"], backingImage="bi")
    assert [] == places(ask(nodes, wanted, settings=settings, backing_images={"bi": {"spec": {}}}))
    assert ["a-d1"] == places(ask(nodes, volume(nodeSelector=["fast"]), settings=settings))


# Linked clones


def test_a_linked_clone_goes_to_disks_with_a_healthy_source_replica() -> None:
    nodes = [node("a", disk(), disk()), node("b"), node("c"), node("d"), node("e")]
    sources = [
        replica("s1", "a-d2"),
        replica("s2", "b-d1", failedAt="2026-01-01T00:00:00Z"),
        replica("s3", "c-d1", evictionRequested=True),
        replica("s4", "d-d1", healthyAt=""),
        replica("s5"),
    ]
    wanted = volume(cloneMode="linked-clone")
    answer = ask(nodes, wanted, source_replicas=sources)
    assert ["a-d2"] == places(answer)
    assert [] == places(ask(nodes[1:], wanted, source_replicas=sources))
    assert {"linked clone replica cannot be satisfied"} == reasons(ask(nodes[1:], wanted, source_replicas=sources))


def test_a_linked_clone_that_names_its_source_takes_that_disk_alone() -> None:
    nodes, sources = [node("a"), node("b")], [replica("s1", "a-d1"), replica("s2", "b-d1")]
    wanted, new = volume(cloneMode="linked-clone"), replica("new", linkedCloneSrcReplicaName="s2")
    assert ["b-d1"] == places(ask(nodes, wanted, new=new, source_replicas=sources))


def test_a_full_copy_is_not_bound_to_its_source() -> None:
    assert ["a-d1", "b-d1"] == places(
        ask([node("a"), node("b")], volume(cloneMode="full-copy"), source_replicas=[replica("s", "a-d1")])
    )
