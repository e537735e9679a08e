"""What people are told of claims and volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import BackingImage
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from controller.views.documents import Explanation
from controller.views.explain.volume import explain_claim, explain_volume
from tests.fakes.builders import DRIVER, EPOCH, GIB, TestCluster, replica, storage_class
from tests.unit.views.asking import everything


def of_claim(cluster: TestCluster, name: str) -> Explanation:
    cluster.clock.advance(2)
    return explain_claim(cluster.allocator.look(), "ns", name, everything)


def of_volume(cluster: TestCluster, name: str) -> Explanation:
    cluster.clock.advance(2)
    return explain_volume(cluster.allocator.look(), name, everything)


def said(found: Explanation) -> tuple[str, str]:
    assert found.text
    return found.state, found.cause


def stored(gib: float = 100, **volume: Any) -> TestCluster:
    """Claim "a" with a volume whose one copy lies on n1."""
    cluster = TestCluster().add_nodes(n1=400)
    name = cluster.add_volume("a", gib)
    cluster.attach(name, "n1", gib, **volume)
    return cluster


def test_what_is_not_known_is_gone() -> None:
    cluster = TestCluster()
    for found in (of_claim(cluster, "x"), of_volume(cluster, "x")):
        assert ("gone", "unknown") == said(found)


def test_a_claim_that_is_not_longhorns_is_none_of_our_business() -> None:
    cluster = TestCluster()
    cluster.allocator.observe_class("nfs", storage_class("nfs", {}, provisioner="nfs.example"))
    cluster.add_claim("a", class_name="nfs")
    cluster.add_claim("b", class_name="")
    assert [("not-ours", "not-longhorn")] * 2 == [said(of_claim(cluster, name)) for name in ("a", "b")]


def test_a_claim_that_is_not_bound_is_told_of_as_its_pod() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_claim("a", 200)
    assert ("waits", "unused") == said(of_claim(cluster, "a"))
    cluster.add_pod("p", "a")
    cluster.filter("p", "n1")
    found = of_claim(cluster, "a")
    assert ("waits", Reason.INSUFFICIENT_STORAGE) == said(found)
    assert "Its volume is made for pod ns/p." in found.text
    assert ("PersistentVolumeClaim", "a", 1) == (found.kind, found.name, len(found.nodes))
    assert found.change


def test_a_claim_without_its_class_or_that_longhorn_refuses_says_so() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_class("bad", numberOfReplicas="99")
    cluster.add_claim("a", class_name="missing")
    cluster.add_claim("b", class_name="bad")
    assert ("waits", "missing-class") == said(of_claim(cluster, "a"))
    assert ("waits", Reason.NEVER_PLACED) == said(of_claim(cluster, "b"))


def test_a_bound_claim_whose_volume_is_missing_or_another_drivers_says_so() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    for name, driver in (("a", DRIVER), ("b", "nfs.example")):
        claim = cluster.set_claim(replace(cluster.add_claim(name), volume_name=f"pv-{name}"))
        assert ("waits", "missing-pv") == said(of_claim(cluster, name))
        pv = PersistentVolume(f"pv-{name}", driver, f"handle-{name}", claim.uid, claim.key, GIB, EPOCH)
        cluster.allocator.observe_pv(pv.name, pv)
    assert ("waits", "missing-volume") == said(of_claim(cluster, "a"))
    assert ("not-ours", "not-longhorn") == said(of_claim(cluster, "b"))


def test_a_claim_that_names_the_volume_of_another_is_told_nothing_of_it() -> None:
    cluster = stored()
    thief = replace(cluster.claims["a"], namespace="evil", name="thief", uid="uid-thief")
    for key in ("evil/thief", "ns/a"):  # under its own name, and under that of the other once it is deleted
        namespace, name = key.split("/")
        cluster.allocator.observe_claim(key, replace(thief, namespace=namespace, name=name))
        cluster.clock.advance(2)
        found = explain_claim(cluster.allocator.look(), namespace, name, everything)
        assert ("waits", "pv-of-another") == said(found)
        assert ((), ()) == (found.volumes, found.nodes)
        assert "n1" not in found.text


def test_a_volume_tells_where_its_copies_lie() -> None:
    cluster = stored()
    found = of_claim(cluster, "a")
    assert ("runs", "healthy") == said(found)
    ((place,),) = [one.places for one in found.volumes]
    assert ("n1", "d1", "stored", 100 * GIB) == (place.node, place.disk, place.kind, place.size_bytes)
    assert "where the volume is attached" in place.why


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"robustness": "faulted"}, ("waits", Reason.FAULTED)),
        ({"robustness": "degraded"}, ("runs", "degraded")),
        ({"deleting": True}, ("gone", "deleted")),
        ({"replica_count": 2}, ("waits", "rebuild-pending")),
        ({"replica_count": 2, "node_id": ""}, ("waits", "detached")),
        ({"node_id": ""}, ("runs", "detached")),
    ],
)
def test_the_state_of_a_volume_is_told(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected == said(of_volume(stored(**facts), "pvc-uid-a"))


def test_a_failed_copy_is_given_time_to_come_back() -> None:
    cluster = stored(replica_count=2, robustness="degraded", last_degraded_at="2026-01-01T00:00:00Z")
    failed = replica("pvc-uid-a-r-2", "pvc-uid-a", on="n1", failed_at="2026-01-01T00:00:00Z", rebuild_retry_count=1)
    cluster.allocator.observe_replica(failed.name, replace(failed, active=False))
    found = of_volume(cluster, "pvc-uid-a")
    assert ("waits", "replacement") == said(found)
    assert "That is in 599 s." in found.text


def unplaced(gib: float = 100, **volume: Any) -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100, n2=150)
    cluster.add_claim("a", gib)
    name = cluster.provision("a", data_locality="disabled", **volume)
    if "node_id" not in volume:
        cluster.attach(name, "n1", gib, locality="disabled", **volume)
    return cluster


def test_a_copy_that_no_disk_takes_tells_the_nearest_miss() -> None:
    found = of_volume(unplaced(200), "pvc-uid-a")
    assert ("waits", Reason.INSUFFICIENT_STORAGE) == said(found)
    assert "The first copy (200 GiB) lacks 50 GiB on disk d1 of node n2" in found.text
    assert "Enlarge disk d1 of node n2 by 50 GiB; or set" in found.change
    assert ["n2", "n1"] == [one.node for one in found.nodes]


def test_a_copy_waits_for_what_others_were_promised() -> None:
    cluster = unplaced(80)
    cluster.ask("b", 100, "n2")
    cluster.ask("c", 80, "n1")
    found = of_volume(cluster, "pvc-uid-a")
    assert ("waits", Reason.CONTENDED) == said(found)
    assert found.change.startswith("Wait: ")


def test_a_copy_that_finds_a_disk_is_placed_in_a_moment() -> None:
    assert ("waits", "being-placed") == said(of_volume(unplaced(50), "pvc-uid-a"))


def test_a_copy_of_a_detached_volume_waits_for_its_attachment() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_claim("a", 50)
    cluster.provision("a")
    assert ("waits", "not-attached") == said(of_volume(cluster, "pvc-uid-a"))


def test_a_copy_whose_image_has_no_size_waits_for_it() -> None:
    cluster = unplaced(50, backing_image="image")
    cluster.allocator.observe_backing_image("image", BackingImage("image"))
    assert ("waits", Reason.BACKING_IMAGE_SIZE_UNKNOWN) == said(of_volume(cluster, "pvc-uid-a"))


def test_a_volume_with_planned_places_is_let_through() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.ask("a", 50, "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    assert ("let-through", "planned") == said(of_volume(cluster, name))


# Growth


def growing(gib: float, **volume: Any) -> TestCluster:
    """The claim of a volume of 100 GiB on a disk of 400 GiB asks for so many."""
    cluster = stored(**volume)
    cluster.let_figures_follow()
    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=int(gib * GIB)))
    return cluster


def test_growth_for_which_there_is_room_is_told() -> None:
    assert ("runs", "growing") == said(of_volume(growing(200), "pvc-uid-a"))


def test_growth_that_no_disk_ever_takes_is_told_with_the_largest_that_fits() -> None:
    found = of_volume(growing(500), "pvc-uid-a")
    assert ("waits", Reason.PHYSICAL_SPACE) == said(found)
    assert "It cannot grow to 500 GiB on disk d1 of node n1" in found.text
    assert "Request at most 400 GiB." == found.change


def test_growth_for_which_bytes_are_missing_tells_how_many() -> None:
    cluster = growing(200)
    cluster.add_node("n1", free_gib=150)
    cluster.let_figures_follow()
    found = of_volume(cluster, "pvc-uid-a")
    assert ("waits", Reason.INSUFFICIENT_STORAGE) == said(found)
    text = "Free 50 GiB on disk d1 of node n1; or request at most 150 GiB."
    assert text == found.change


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"restore_required": True}, Reason.RESTORING),
        ({"clone_state": "initiated"}, Reason.CLONING),
        ({"clone_state": "failed", "data_source": "vol://b"}, Reason.CLONE_FAILED),
        ({"state": "attaching"}, Reason.IN_TRANSITION),
        ({"migration_node_id": "n2"}, Reason.MIGRATING),
    ],
)
def test_what_keeps_a_volume_from_growing_is_told(facts: dict[str, Any], reason: Reason) -> None:
    assert ("waits", reason) == said(of_volume(growing(500, **facts), "pvc-uid-a"))
