"""Volumes whose pod went before Longhorn placed them: they count while Longhorn is going to place them, no longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.allocator import Decision
from tests.fakes.builders import LATER, LATEST, TestCluster

NODES = ("n1", "n2", "n3")
VOLUME = "pvc-uid-a"
SHORTLY, LONG = 30, 120  # seconds: Longhorn's replicas still count, and count no more


def class_of(locality: str, copies: int) -> dict[str, str]:
    return {"dataLocality": locality, "numberOfReplicas": str(copies)}


def orphan(
    locality: str = "best-effort", copies: int = 2, *, shared: bool = False, attached_to: str = ""
) -> TestCluster:
    """Three nodes of 100 GiB. The volume of `a`, of 80, was made, and its pod deleted while it was bound."""
    cluster = TestCluster()
    cluster.add_class("kind", **class_of(locality, copies))
    for name in NODES:
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("a", 80, class_name="kind", shared=shared)
    cluster.add_pod("a")
    assert set(NODES) == cluster.offered("a", *NODES)
    cluster.select_node("a", "n1")
    facts: dict[str, Any] = {"locality": locality, "access_mode": "rwx" if shared else "rwo"}
    cluster.provision("a", copies=copies, **facts)
    if attached_to:
        cluster.attach(VOLUME, attached_to, 80, replica_count=copies, state="attaching", **facts)
    cluster.drop_pod("a")
    return cluster


def offered(cluster: TestCluster, gib: float = 50, *nodes: str) -> set[str]:
    """Where a pod that has just come is offered room; it goes again."""
    cluster.add_pod("next", gib=gib, created=LATER)
    found = cluster.offered("next", *(nodes or NODES))
    cluster.drop_pod("next")
    cluster.drop_claim("next")
    return found


@pytest.mark.parametrize(
    ("locality", "copies", "shared"),
    [("best-effort", 2, False), ("best-effort", 3, False), ("best-effort", 1, True), ("best-effort", 1, False)],
)
def test_a_detached_volume_that_nobody_waits_for_takes_no_room(locality: str, copies: int, shared: bool) -> None:
    cluster = orphan(locality, copies, shared=shared)
    cluster.pass_time(LONG)

    assert set(NODES) == offered(cluster)
    assert () == cluster.allocator.snapshot().promises


@pytest.mark.parametrize("event", ["volume", "replica", "claim", "term"])
def test_no_later_event_brings_its_promise_back(event: str) -> None:
    cluster = orphan()
    cluster.pass_time(LONG)
    if event == "volume":
        cluster.attach(VOLUME, "", 80, replica_count=2, robustness="unknown")
    elif event == "replica":
        cluster.allocator.observe_replica(f"{VOLUME}-r-2", None)
    elif event == "claim":
        cluster.set_claim(replace(cluster.claims["a"], version=7))
    else:
        cluster.allocator.begin_term()

    assert set(NODES) == offered(cluster)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_volume_that_longhorn_places_without_a_pod_counts_until_it_has_had_its_time(copies: int) -> None:
    cluster = orphan("disabled", copies)
    assert set() == offered(cluster)
    cluster.pass_time(SHORTLY)
    assert set() == offered(cluster)

    cluster.pass_time(LONG - SHORTLY)
    assert set(NODES) == offered(cluster)


def test_such_a_volume_counts_where_it_lies_once_it_is_placed() -> None:
    cluster = orphan("disabled", 1)
    cluster.place(VOLUME, "n2", 80)

    assert {"n1", "n3"} == offered(cluster)


def test_copies_that_found_no_disk_for_long_take_no_room_and_those_that_lie_somewhere_do() -> None:
    cluster = orphan("disabled", 2)
    cluster.place(VOLUME, "n1", 80)
    assert set() == offered(cluster)

    cluster.pass_time(LONG)
    assert {"n2", "n3"} == offered(cluster)


@pytest.mark.parametrize(("copies", "shared"), [(2, False), (1, True)])
def test_an_attached_volume_counts_although_its_pod_is_gone(copies: int, shared: bool) -> None:
    cluster = orphan("best-effort", copies, shared=shared, attached_to="n1")
    assert set() == offered(cluster)
    cluster.pass_time(SHORTLY)
    assert set() == offered(cluster)

    facts: dict[str, Any] = {"replica_count": copies, "access_mode": "rwx" if shared else "rwo"}
    cluster.attach(VOLUME, "", 80, **facts)
    cluster.pass_time(LONG)
    assert set(NODES) == offered(cluster)


def test_a_pod_that_comes_for_the_volume_counts_again() -> None:
    cluster = orphan()
    cluster.pass_time(LONG)
    cluster.add_pod("again", "a", created=LATEST)
    assert set(NODES) == cluster.offered("again", *NODES)
    cluster.add_pod("next", gib=50, created=LATEST)

    assert Decision.CONTENDED is cluster.filter("next", *NODES).decision


def in_doubt(class_name: str = "longhorn") -> TestCluster:
    """Three nodes of 100 GiB, and a pod that went right after it was offered them for a volume of 80."""
    cluster = TestCluster()
    cluster.add_class("free", **class_of("disabled", 1))
    for name in NODES:
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("a", 80, class_name=class_name)
    cluster.add_pod("a")
    assert set(NODES) == cluster.offered("a", *NODES)
    cluster.drop_pod("a")
    assert set() == offered(cluster)
    return cluster


def test_a_choice_that_shows_after_its_pod_went_frees_the_other_nodes_at_once() -> None:
    cluster = in_doubt()
    cluster.select_node("a", "n1")

    assert {"n1": 80} == cluster.pending()
    assert {"n2", "n3"} == offered(cluster)
    assert () == cluster.allocator.due()


def test_a_volume_that_is_placed_after_its_pod_went_is_promised_nothing_more() -> None:
    """Its claim's watch lags behind that of replicas."""
    cluster = in_doubt("free")
    cluster.attach(VOLUME, "", 80, locality="disabled")
    cluster.place(VOLUME, "n2", 80)

    assert {} == cluster.pending()
    assert {"n1", "n3"} == offered(cluster)
    assert () == cluster.allocator.due()


def test_a_claim_that_is_bound_after_its_pod_went_leaves_nothing_in_doubt() -> None:
    cluster = in_doubt()
    cluster.set_claim(replace(cluster.claims["a"], volume_name=VOLUME))

    assert {} == cluster.pending()
    assert set(NODES) == offered(cluster)


def test_a_claim_that_is_provisioned_counts_again_for_a_pod_that_comes_and_is_refused() -> None:
    """Its other volume finds no room there, and the claim's node stands all the same."""
    cluster = in_doubt()
    cluster.select_node("a", "n1")
    cluster.pass_time(LONG)
    assert {} == cluster.pending()
    cluster.add_claim("b", 50)
    cluster.add_pod("again", "a", "b", created=LATEST)
    assert set() == cluster.offered("again", "n1")

    assert {"n1": 80} == cluster.pending()
    cluster.pass_time(LONG)
    assert {"n1": 80} == cluster.pending()


def test_a_bound_pod_that_is_being_deleted_has_not_gone() -> None:
    """It was bound by hand to another node than its claim is provisioned for, and takes its time to end."""
    cluster = in_doubt()
    cluster.add_pod("by-hand", "a", created=LATEST)
    cluster.bind("by-hand", "n2")
    cluster.select_node("a", "n1")
    cluster.change_pod("by-hand", is_deleting=True)
    cluster.pass_time(LONG)
    assert {"n1": 80, "n2": 80} == cluster.pending()
    cluster.drop_pod("by-hand")
    cluster.pass_time(LONG)

    assert {} == cluster.pending()


def test_a_claim_whose_further_copies_find_no_disk_is_promised_no_room_for_ever_while_its_pod_waits() -> None:
    """Its volume is there, and its PV never comes."""
    cluster = TestCluster()
    cluster.add_class("kind", **class_of("disabled", 2))
    for name in NODES:
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("a", 80, class_name="kind")
    cluster.add_pod("a")
    assert set(NODES) == cluster.offered("a", *NODES)
    cluster.select_node("a", "n1")
    cluster.attach(VOLUME, "", 80, locality="disabled", replica_count=2)
    cluster.place(VOLUME, "n1", 80)
    assert set() == offered(cluster)
    cluster.pass_time(LONG)
    cluster.set_claim(replace(cluster.claims["a"], version=7))

    assert {} == cluster.pending()
    assert {"n2", "n3"} == offered(cluster)
