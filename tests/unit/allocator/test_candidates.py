"""The search for one replica's disks: which nodes count, each disk's checks, disk anti-affinity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import (
    BackingImage,
    DiskNeeds,
    EngineImage,
    InstanceManager,
    LonghornSettings,
    Replica,
    SpacePolicy,
    TopologyTerm,
)
from controller.model.versions import Behaviour
from controller.model.workload import KubeNode
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.oracle.reasons import longhorn_reason
from tests.unit.allocator.placing import ROOMY, disk, failed, names, node, reasons, replica, search, view, volume


def flags(node_soft: bool = False, zone_soft: bool = True, disk_soft: bool = True, **other: Any) -> LonghornSettings:
    return replace(
        ROOMY,
        soft_anti_affinity=node_soft,
        zone_soft_anti_affinity=zone_soft,
        disk_soft_anti_affinity=disk_soft,
        **other,
    )


# Which replicas are placed at all


def test_a_placed_replica_is_not_placed_again() -> None:
    found = search(view(node("n1")), new=replica(on="n1"))
    assert ([], {"/": Reason.ALREADY_SCHEDULED}) == (names(found), reasons(found))


def test_a_replica_that_failed_unused_is_not_placed() -> None:
    unused = replica(failed_at="2026-01-01T00:00:00Z")
    found = search(view(node("n1")), new=unused)
    assert ([], {"/": Reason.UNUSED_FAILED_REPLICA}) == (names(found), reasons(found))
    assert ["n1/d1"] == names(search(view(node("n1")), new=replace(unused, healthy_at="2026-01-01T00:00:00Z")))


def test_a_backing_image_that_is_not_there_fails_the_search() -> None:
    found = search(view(node("n1")), volume(backing_image="bi"))
    assert {"/": Reason.BACKING_IMAGE_NOT_FOUND} == reasons(found)
    assert "longhorn client operation failed" == longhorn_reason(found.refusals[0].rejection.reason)
    assert ["n1/d1"] == names(search(view(node("n1"), backing_image=BackingImage("bi")), volume(backing_image="bi")))


def test_what_is_wrong_with_the_replica_comes_first_and_a_foreign_image_asks_for_nothing() -> None:
    assert {"/": Reason.ALREADY_SCHEDULED} == reasons(search(view(), volume(backing_image="bi"), replica(on="n1")))
    foreign = BackingImage("bi", node_selector=("ssd",))
    assert ["n1/d1"] == names(search(view(node("n1"), backing_image=foreign)))


# Node candidates


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"deleting": True}, Reason.NODE_DELETING),
        ({"ready": False}, Reason.NODE_NOT_READY),
        ({"schedulable": False}, Reason.NODE_UNSCHEDULABLE),
        ({"allow_scheduling": False}, Reason.NODE_UNSCHEDULABLE),
    ],
)
def test_a_node_that_takes_nothing_is_no_candidate(change: dict[str, Any], expected: Reason) -> None:
    found = search(view(node("n1", **change), node("n2")))
    assert (["n2/d1"], {"n1/": expected}) == (names(found), reasons(found))


def test_the_conditions_decide_on_cordoned_nodes_not_kubernetes() -> None:
    cordoned = {"n1": KubeNode("n1", unschedulable=True)}
    assert ["n1/d1"] == names(search(view(node("n1"), kube_nodes=cordoned)))
    assert [] == names(search(view(node("n1", schedulable=False), kube_nodes=cordoned)))


def test_hard_affinity_has_no_fall_back() -> None:
    seen = view(node("n1"), node("n2", disk(size=99)))
    assert ["n1/d1"] == names(search(seen, new=replica(hard_node_affinity="n1")))
    found = search(seen, new=replica(hard_node_affinity="n2"))
    assert {"n1/": Reason.HARD_AFFINITY, "n2/d1": Reason.INSUFFICIENT_STORAGE} == reasons(found)
    assert [] == names(search(seen, new=replica(hard_node_affinity="gone")))


def test_hard_affinity_leaves_replicas_elsewhere_out_of_account() -> None:
    """The zone's replica is on a node that is no candidate, and so blocks nothing."""
    seen = view(
        node("n1", zone="z"), node("n2", zone="z"), replicas=[replica("a", "n1")], settings=flags(zone_soft=False)
    )
    assert [] == names(search(seen))
    assert ["n2/d1"] == names(search(seen, new=replica(hard_node_affinity="n2")))


def test_v2_volumes_need_block_disks_and_a_kubernetes_node_without_the_label() -> None:
    block = disk(type="block", filesystem="")
    seen = view(
        node("n1", block),
        node("n2", block),
        node("n3", block),
        node("n4"),
        kube_nodes={
            "n1": KubeNode("n1", unschedulable=False),
            "n2": KubeNode("n2", unschedulable=False, disables_v2=True),
            "n4": KubeNode("n4", unschedulable=False),
        },
    )
    found = search(seen, volume(needs=DiskNeeds(data_engine="v2")))
    assert ["n1/d1"] == names(found)
    assert {"n2/": Reason.V2_DISABLED, "n3/": Reason.V2_DISABLED, "n4/d1": Reason.DISK_TYPE} == reasons(found)


def test_topology_terms_filter_nodes() -> None:
    seen = view(node("n1", zone="z1"), node("n2", zone="z2"))
    bound = volume(needs=DiskNeeds(topology=(TopologyTerm("z2", ""),)))
    found = search(seen, bound)
    assert (["n2/d1"], {"n1/": Reason.TOPOLOGY}) == (names(found), reasons(found))


def test_the_replicas_engine_image_counts_before_the_volumes() -> None:
    images = (
        EngineImage("a", "e:1", "deployed", frozenset({"n1"})),
        EngineImage("b", "e:2", "deployed", frozenset({"n2"})),
    )
    seen = view(node("n1"), node("n2"), engine_images=images)
    assert ["n1/d1"] == names(search(seen, volume(image="e:1")))
    found = search(seen, volume(image="e:1"), replica(image="e:2"))
    assert (["n2/d1"], {"n1/": Reason.ENGINE_NOT_READY}) == (names(found), reasons(found))


def test_a_node_without_its_instance_manager_is_no_candidate() -> None:
    managers = (
        InstanceManager("a", "n1", "v1", "im:1", "running"),
        InstanceManager("b", "n2", "v1", "im:0", "running"),
    )
    settings = replace(ROOMY, instance_manager_image="im:1")
    found = search(view(node("n1"), node("n2"), instance_managers=managers, settings=settings))
    assert (["n1/d1"], {"n2/": Reason.ENGINE_NOT_READY}) == (names(found), reasons(found))
    assert ["n1/d1", "n2/d1"] == names(search(view(node("n1"), node("n2"), settings=settings)))


# Linked clones

CLONE = volume("clone", clone_mode="linked-clone", data_source="vol://src")


def sources(**other: Any) -> tuple[Replica, ...]:
    return (replica("s1", "n1", of="src", **other), replica("s2", "n2", "d2", of="src"))


def test_a_linked_clone_lies_next_to_its_source() -> None:
    seen = view(
        node("n1", disk("d1"), disk("d2")), node("n2", disk("d1"), disk("d2")), node("n3"), source_replicas=sources()
    )
    found = search(seen, CLONE)
    assert ["n1/d1", "n2/d2"] == names(found)
    assert {"n1/d2": Reason.LINKED_CLONE, "n2/d1": Reason.LINKED_CLONE, "n3/": Reason.LINKED_CLONE} == reasons(found)
    assert ["n2/d2"] == names(search(seen, CLONE, replica(linked_clone_source="s2")))
    assert [] == names(search(seen, CLONE, replica(linked_clone_source="s3")))
    assert [] == names(search(replace(seen, source_replicas=()), CLONE))
    assert 5 == len(names(search(seen, replace(CLONE, clone_mode="full-copy"))))


@pytest.mark.parametrize(
    "change",
    [
        {"healthy_at": ""},
        {"failed_at": "2026-01-01T00:00:00Z"},
        {"eviction_requested": True},
        {"node": ""},
        {"disk_uuid": ""},
    ],
)
def test_a_source_that_is_not_well_does_not_count(change: dict[str, Any]) -> None:
    seen = view(node("n1"), source_replicas=sources(**change)[:1])
    assert [] == names(search(seen, CLONE))


def test_older_releases_clone_from_evicting_sources_or_know_no_linked_clones() -> None:
    seen = view(node("n1"), node("n2"), source_replicas=sources(eviction_requested=True)[:1])
    older = replace(seen, behaviour=Behaviour(clones_skip_evicting_sources=False))
    assert ["n1/d1"] == names(search(older, CLONE))
    assert ["n1/d1"] == names(search(older, CLONE, replica(linked_clone_source="s2")))  # they do not know the field
    assert ["n1/d1", "n2/d1"] == names(search(replace(seen, behaviour=Behaviour(has_linked_clones=False)), CLONE))


# Disks


def test_every_disk_of_a_tried_node_is_a_candidate_and_each_refusal_stands_once() -> None:
    seen = view(
        node("n2", disk("d2"), disk("d1"), disk("d3", allow_scheduling=False)),
        node("n1", disk("d1", 99), disk("d2", type="block")),
        node("n3", disk("d1", tags=frozenset({"x"}))),
        settings=replace(ROOMY, space=replace(ROOMY.space, allow_empty_disk_selector=False)),
    )
    found = search(seen)
    assert ["n2/d1", "n2/d2"] == names(found)
    assert ["n2-d1", "n2-d2"] == [entry.uuid for entry in found.candidates]
    assert {
        "n1/d1": Reason.INSUFFICIENT_STORAGE,
        "n1/d2": Reason.DISK_TYPE,
        "n2/d3": Reason.DISK_UNSCHEDULABLE,
        "n3/d1": Reason.DISK_TAGS,
    } == reasons(found)


def test_a_node_without_disks_is_refused() -> None:
    bare = replace(node("n1"), disks=())
    assert {"n1/": Reason.DISK_NOT_FOUND} == reasons(search(view(bare)))


def test_the_volumes_size_and_written_bytes_decide() -> None:
    settings = replace(ROOMY, space=SpacePolicy(minimal_available_pct=10))
    seen = view(node("n1", disk(size=1000, available_bytes=200)), settings=settings)
    assert ["n1/d1"] == names(search(seen, volume(size=1000, actual_size_bytes=99)))
    assert {"n1/d1": Reason.TOO_FULL} == reasons(search(seen, volume(size=1000, actual_size_bytes=100)))
    assert {"n1/d1": Reason.INSUFFICIENT_STORAGE} == reasons(search(seen, volume(size=1001)))


def test_disks_that_share_a_uuid_take_nothing() -> None:
    twin = node("n2")
    twin = replace(twin, disks=(replace(twin.disks[0], uuid="n1-d1"),))
    found = search(view(node("n1"), twin, node("n3")))
    assert ["n3/d1"] == names(found)
    assert {"n1/d1": Reason.DISK_NOT_FOUND, "n2/d1": Reason.DISK_NOT_FOUND} == reasons(found)


# Fresh replicas of the same volume

FILLED = disk("d1", 300, scheduled_bytes=100, scheduled_replicas={"a": 100})


@pytest.mark.parametrize(
    ("replicas", "size", "expected"),
    [
        ([replica("a", "n1")], 200, True),  # the figure holds it already
        ([replica("a", "n1"), replica("b", "n1")], 100, True),
        ([replica("a", "n1"), replica("b", "n1")], 101, False),
        ([replica("a", "n1"), replica("b", "n1", deleting=True)], 101, False),
        ([replica("a", "n1"), replica("b", "n1", active=False)], 101, False),
        ([replica("a", "n1"), replica("b", "n1", failed_at="2026-01-01T00:00:00Z", rebuild_retry_count=5)], 101, False),
        ([replica("a", "n1"), replica("b", "n1", "d2")], 200, True),
        ([replica("a", "n1"), replica("b", "n2")], 200, True),
        ([replica("a", "n1"), replica("b")], 200, True),
    ],
)
def test_replicas_that_the_figures_lack_count_on_their_disk(replicas: list[Replica], size: int, expected: bool) -> None:
    seen = view(node("n1", FILLED), replicas=replicas, settings=flags(node_soft=True))
    assert expected == bool(names(search(seen, volume(size=size))))


def test_a_listed_replica_counts_as_listed_even_if_it_grew() -> None:
    """Longhorn goes by the name alone; the live ledger is stricter."""
    seen = view(node("n1", FILLED), replicas=[replica("a", "n1", size=150)], settings=flags(node_soft=True))
    assert ["n1/d1"] == names(search(seen, volume(size=200)))


def test_other_volumes_fresh_replicas_are_not_added() -> None:
    seen = view(node("n1", disk(size=100)))
    assert ["n1/d1"] == names(search(seen, volume(size=100)))


def test_older_releases_burden_every_disk_of_the_node() -> None:
    seen = view(
        node("n1", disk("d1", 300), disk("d2", 199)), replicas=[replica("a", "n1")], settings=flags(node_soft=True)
    )
    assert ["n1/d2"] == names(search(seen))
    older = replace(seen, behaviour=Behaviour(counts_fresh_per_node=True))
    assert ["n1/d1"] == names(search(older))  # d2 has 99 bytes left; d1 is all that is found, though a twin is there
    assert {"n1/d2": Reason.INSUFFICIENT_STORAGE} == reasons(search(older))


# Disk anti-affinity


@pytest.mark.parametrize("disk_soft", [False, True])
@pytest.mark.parametrize("d2_size", [100, 99])
def test_a_disk_with_a_replica_is_taken_only_without_another_and_only_softly(disk_soft: bool, d2_size: int) -> None:
    """Disk X holds a replica of the volume; disk Y is suitable, or too small by a byte."""
    seen = view(
        node("n1", disk("x"), disk("y", d2_size)),
        replicas=[replica("a", "n1", "x")],
        settings=flags(node_soft=True, disk_soft=disk_soft),
    )
    found = search(seen)
    if d2_size == 100:
        assert (["n1/y"], {"n1/x": Reason.DISK_ANTI_AFFINITY}) == (names(found), reasons(found))
    elif disk_soft:
        assert (["n1/x"], {"n1/y": Reason.INSUFFICIENT_STORAGE}) == (names(found), reasons(found))
    else:
        assert [] == names(found)
        assert {"n1/x": Reason.DISK_ANTI_AFFINITY, "n1/y": Reason.INSUFFICIENT_STORAGE} == reasons(found)


def test_with_a_replica_on_every_disk_all_are_equal() -> None:
    twins = [replica("a", "n1", "d1"), replica("b", "n1", "d1"), replica("c", "n1", "d2")]
    seen = view(node("n1", disk("d1"), disk("d2")), replicas=twins, settings=flags(node_soft=True))
    assert ["n1/d1", "n1/d2"] == names(search(seen))


@pytest.mark.parametrize(
    ("change", "is_avoided"),
    [
        ({}, True),
        ({"deleting": True}, True),
        ({"failed_at": "2026-01-01T11:00:00Z"}, True),
        ({"failed_at": "2026-01-01T11:00:00Z", "rebuild_retry_count": 5}, False),
        ({"failed_at": "2026-01-01T11:00:00Z", "eviction_requested": True}, False),
        ({"active": False}, True),
    ],
)
def test_which_replicas_their_disks_are_avoided_for(change: dict[str, Any], is_avoided: bool) -> None:
    seen = view(
        node("n1", disk("d1"), disk("d2")), replicas=[replica("a", "n1", **change)], settings=flags(node_soft=True)
    )
    assert (["n1/d2"] if is_avoided else ["n1/d1", "n1/d2"]) == names(search(seen))


def test_a_failed_replica_keeps_its_disk_though_its_replacement_is_due() -> None:
    degraded = volume(robustness="degraded", last_degraded_at="2026-01-01T00:00:00Z")
    seen = view(node("n1", disk("d1"), disk("d2")), replicas=[failed("a", "n1")])
    found = search(seen, degraded)
    assert (["n1/d2"], Try.NEW_ZONE) == (names(found), found.tried)


def test_a_hard_disk_sends_the_search_on_to_the_next_try() -> None:
    """The used disk in the new zone belongs to a failed replica whose node counts as unused by now."""
    degraded = volume(robustness="degraded", last_degraded_at="2026-01-01T00:00:00Z")
    nodes = node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="b")
    seen = view(*nodes, replicas=[failed("a", "n1"), replica("b", "n2")], settings=flags(disk_soft=False))
    found = search(seen, degraded)
    assert (["n3/d1"], Try.NEW_NODE) == (names(found), found.tried)
    assert {"n1/d1": Reason.DISK_ANTI_AFFINITY, "n2/": Reason.NODE_ANTI_AFFINITY} == reasons(found)
