"""Why no disk takes a Replica, by reason, and what is wrong with a class, as a person is told.

tests/scenarios/never_placed.txt tells what comes of pods of such classes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.choose.shortfall import nearest_miss
from controller.allocator.outcome import TurnStep, Unplaceable
from controller.allocator.plans.shared_claims import NodeLimit
from controller.allocator.verbs.account import MOST_NODES, account_of_limit
from controller.model.longhorn import BackingImage, DiskNeeds, LonghornSettings
from controller.model.places import Place
from controller.model.workload import KubeNode
from tests.fakes import builders
from tests.fakes.builders import GIB, TestCluster, node
from tests.unit.allocator.placed_cluster import PlacedCluster, add_free_volume, add_second_copy, made_plan


def lack_of(site: PlacedCluster, replica: str) -> Unplaceable:
    found = site.allocator.lack_of(replica)
    assert found is not None
    return found


def test_disks_and_nodes_are_counted_by_reason_with_the_words_of_one_each() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100], n2=400)
    site.put_node(replace(builders.node("n3"), ready=False))
    site.add_node("n4", builders.disk("d1", 100, tags=("ssd",)))
    (first,) = add_free_volume(site, "v", 200, needs=DiskNeeds(disk_selector=("ssd",)))

    found = lack_of(site, first)

    assert {"DiskTagsNotFulfilled": 3, "NodeNotReady": 1, "InsufficientStorage": 1} == found.reasons
    assert found.text.startswith("3 disks DiskTagsNotFulfilled (n1, d0: ")
    assert "; 1 node NodeNotReady (n3: " in found.text
    assert "; 1 disk InsufficientStorage (n4, d1: " in found.text
    assert (True, None, ()) == (found.is_first, found.claim, found.pods)


def test_what_is_planned_for_others_is_in_the_way_of_a_first_copy_alone() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=85)
    site.chosen("a", 80, "n1")
    site.chosen("b", 80, "n2")
    (first,) = add_free_volume(site, "v", 50)
    second = add_second_copy(site, 15, first_on="n1", volume="w")

    assert {"Contended": 2} == lack_of(site, first).reasons
    assert "80 GiB are promised to other volumes" in lack_of(site, first).text
    assert site.allocator.lack_of(second) is None


def test_its_claim_and_who_uses_it_are_told() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    pod = site.add_pod("a", gib=200)
    site.provision("a", data_locality="disabled")
    found = lack_of(site, "pvc-uid-a-r-1")
    assert (site.claims["a"], (pod,)) == (found.claim, found.pods)


def test_nothing_lacks_where_there_is_room_or_a_place_or_no_replica() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    assert site.allocator.lack_of(first) is None
    site.store(site.turn(first))
    site.add_node("n1", free_gib=0)
    for name in (first, "gone"):
        assert site.allocator.lack_of(name) is None


@pytest.mark.parametrize("is_full", [False, True])
def test_a_copy_beside_a_failed_one_is_no_first_one_and_need_not_spare_what_is_planned(is_full: bool) -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    if is_full:
        add_second_copy(site, 60, first_on="n2", volume="w")
    else:
        site.chosen("a", 80, "n2")
    second = add_second_copy(site, 60, first_on="n1")
    failed = builders.replica("v-r-1", "v", 60, on="n1", uid="uid-v-r-1", failed_at="2026-01-01T11:59:00Z")
    site.allocator.observe_replica("v-r-1", failed)
    found = site.allocator.lack_of(second)
    assert is_full is (found is not None)
    assert found is None or not found.is_first


def test_beside_a_copy_that_is_being_deleted_a_replica_is_the_first_one() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    second = add_second_copy(site, 200, first_on="n1")
    assert not lack_of(site, second).is_first
    going = builders.replica("v-r-1", "v", 200, on="n1", uid="uid-v-r-1", deleting=True)
    site.allocator.observe_replica("v-r-1", going)
    assert lack_of(site, second).is_first


def test_bytes_of_a_volume_without_a_claim_are_told_as_those_of_others() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.table.put(made_plan("v", "uid-v", [Place("n1", "n1-d1", 60 * GIB)]))
    assert set() == site.ask("a", 60, "n1")
    assert "1 volume of other namespaces 60 GiB" in site.allocator.account_of("pod-a", ["n1"])


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        pytest.param(NodeLimit(frozenset({"n2", "n1"})), "on n1, n2,", id="those nodes"),
        pytest.param(NodeLimit(frozenset()), "on different nodes,", id="no node for all of them"),
        pytest.param(NodeLimit(waits=True), "its node is not known yet", id="not known yet"),
    ],
)
def test_where_others_use_a_pods_volumes_is_told(limit: NodeLimit, told: str) -> None:
    assert told in account_of_limit(limit)


def test_so_many_nodes_are_looked_at_and_the_rest_is_counted() -> None:
    site = PlacedCluster().add_nodes(**{f"n{number}": 100 for number in range(MOST_NODES + 7)})
    (first,) = add_free_volume(site, "v", 200)
    found = lack_of(site, first)
    assert {"InsufficientStorage": MOST_NODES} == found.reasons
    assert found.text.endswith("; 7 more nodes")


ONE = {"numberOfReplicas": "1"}


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        pytest.param({"dataLocality": "strict-local", "numberOfReplicas": "2"}, "strict-local", id="two local copies"),
        pytest.param({"dataLocality": "strict-local"}, "strict-local", id="strict-local without a count"),
        pytest.param({"dataLocality": "best_effort", **ONE}, "best_effort", id="misspelt locality"),
        pytest.param({"dataLocality": "", **ONE}, "dataLocality", id="empty locality"),
        pytest.param({"dataLocality": "disabled", "numberOfReplicas": "21"}, "21", id="too many copies"),
        pytest.param({"dataLocality": "best-effort", "frontend": "iscsi", **ONE}, "iscsi", id="another frontend"),
        pytest.param({"dataLocality": "disabled", "frontend": "iscsi", **ONE}, "iscsi", id="the same, anywhere"),
    ],
)
def test_a_pod_of_a_class_that_longhorn_never_serves_is_told_its_claim_and_what_is_wrong(
    parameters: dict[str, str], word: str
) -> None:
    site = PlacedCluster().add_nodes(n1=400)
    site.add_class("kind", **parameters)
    site.add_pod("asks", ("asks", 80, "kind"))
    outcome = site.filter("asks", "n1")
    assert (Decision.REFUSED, {"n1"}, False) == (outcome.decision, set(outcome.refused), outcome.waitable)
    text = site.allocator.account_of("pod-asks", ["n1"])
    assert ("ns/asks" in text, word in text) == (True, True), text


# Volumes that may lie anywhere, and that no disk takes: the cause, as for those that follow their pod

THREE = {"dataLocality": "disabled", "numberOfReplicas": "3"}
NOT_DEGRADED = LonghornSettings(degraded_availability=False)
ONE_ZONE = replace(NOT_DEGRADED, zone_soft_anti_affinity=False)
ONLY = "copies find a disk, and allow-volume-creation-with-degraded-availability is false; "


@pytest.mark.parametrize(
    ("nodes", "settings", "gib", "more", "reason", "said"),
    [
        ("n1 n2", None, 10, {"nodeSelector": "sdd"}, "NodeTagsNotFulfilled",
         ": 2 nodes NodeTagsNotFulfilled (n1: has no tags; the volume asks for sdd)"),
        ("n1 n2", None, 10, {"diskSelector": "sdd"}, "DiskTagsNotFulfilled",
         ": 2 disks DiskTagsNotFulfilled (n1, d1: has no tags; the volume asks for sdd)"),
        ("n1", NOT_DEGRADED, 10, {}, "NodeAntiAffinity",
         f": only 1 of 3 {ONLY}1 node NodeAntiAffinity (n1: already has a replica of pvc-uid-a)"),
        ("n1 n2", ONE_ZONE, 10, {}, "ZoneAntiAffinity",
         "1 node ZoneAntiAffinity (n2: its zone '' already has a replica of pvc-uid-a)"),
        ("n1 n2", None, 201, {}, "NoRoomInCluster",
         "the largest disk takes at most 200 GiB. No Longhorn room for ns/a 201 GiB: 2 disks InsufficientStorage ("),
        ("n1 n2 tagged", None, 60, {"nodeSelector": "ssd"}, "NoRoomInCluster",
         "; 1 disk InsufficientStorage (tagged, d1: 60 GiB + 0 bytes scheduled exceeds the disk's limit of 50 GiB by"),
        ("n1 tagged", NOT_DEGRADED, 10, {"nodeSelector": "ssd"}, "NodeTagsNotFulfilled", f": only 1 of 3 {ONLY}1 "),
        ("n1 away", None, 201, {}, "NoRoomInCluster", "1 node NodeNotReady (away: condition Ready is not True)"),
        ("away", None, 10, {}, "NodeNotReady", ": 1 node NodeNotReady (away: condition Ready is not True)"),
    ],
)  # fmt: skip
def test_a_volume_that_may_lie_anywhere_is_refused_with_the_cause(
    nodes: str, settings: LonghornSettings | None, gib: int, more: dict[str, str], reason: str, said: str
) -> None:
    cluster = TestCluster(settings=settings)
    facts = {
        "tagged": replace(node("tagged", free_gib=50), tags=frozenset({"ssd"})),
        "away": replace(node("away"), ready=False),
    }
    for name in nodes.split():
        cluster.add_node(name, free_gib=200)
        cluster.put_node(facts.get(name, node(name, free_gib=200)))
    cluster.allocator.observe_kube_node("compute", KubeNode("compute", unschedulable=False))
    cluster.add_class("three", **THREE, **more)
    cluster.add_pod("a", ("a", gib, "three"))
    candidates = [*nodes.split(), "compute"]
    expected = {**dict.fromkeys(nodes.split(), reason), "compute": "NoLonghornNode"}
    assert expected == cluster.filter("a", *candidates).refused
    assert said in cluster.allocator.account_of("pod-a", candidates)
    assert "; 1 node NoLonghornNode (compute: " in cluster.allocator.account_of("pod-a", candidates)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_first_copy_waits_for_the_size_of_its_image(is_known: bool) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_backing_image("i", BackingImage("i", real_size_bytes=20 * GIB * is_known))
    (first,) = add_free_volume(site, "v", 30, backing_image="i")
    turn = site.turn(first)
    if is_known:
        assert turn.write is not None
        assert 50 * GIB == turn.write.place.size_bytes
        return
    assert (None, "no-room") == (turn.write, turn.reason)
    lack = lack_of(site, first)
    assert {"BackingImageSizeUnknown": 1} == lack.reasons
    assert "the size of backing image i is not known" in lack.text
    site.allocator.observe_backing_image("i", BackingImage("i", real_size_bytes=20 * GIB))
    assert TurnStep.PLACE is site.turn(first).step


def test_the_example_is_the_nearest_miss_with_its_node() -> None:
    cluster = TestCluster().add_nodes(n1=70, n2=[10, 200, 10], n3=120)
    cluster.ask("a", 250, "n1", "n2", "n3")
    text = cluster.allocator.account_of("pod-a", ["n1", "n2", "n3"])
    assert "3 nodes InsufficientStorage (n2, pvc-uid-a: d1: 250 GiB + 0 bytes scheduled exceeds the disk's" in text
    assert "by 50 GiB)" in text


def test_of_nodes_that_promises_fill_the_one_that_lacks_least_is_the_example() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100, n3=100)
    for name, gib, on in (("a", 90, "n1"), ("b", 40, "n2"), ("c", 80, "n3")):
        cluster.ask(name, gib, on)
    cluster.ask("asks", 70, "n1", "n2", "n3")
    text = cluster.allocator.account_of("pod-asks", ["n1", "n2", "n3"])
    assert "3 nodes Contended (n2: 40 GiB are promised on this node: ns/b 40 GiB)" in text


def test_of_disks_for_a_volume_that_may_lie_anywhere_the_nearest_is_the_example() -> None:
    site = PlacedCluster().add_nodes(n1=50, n2=180, n3=120)
    (first,) = add_free_volume(site, "v", 200)
    assert "3 disks InsufficientStorage (n2, d1: " in lack_of(site, first).text


@pytest.mark.parametrize(("sizes", "missing"), [((60, 60), 20), ((90, 20), 10), ((120, 10), 30)])
def test_what_several_volumes_lack_together_is_what_one_disk_needs_more(sizes: tuple[int, ...], missing: int) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a", *((f"c{number}", gib) for number, gib in enumerate(sizes)))
    cluster.filter("a", "n1")
    look = cluster.allocator.look()
    fit = look.room().fit(cluster.pods["a"], look.world.demands_of(cluster.pods["a"])[0])
    found = nearest_miss(fit, "n1", is_thorough=True)
    assert found is not None
    assert missing == -(-found.missing_bytes // GIB)
    assert 100 == found.free_bytes // GIB
