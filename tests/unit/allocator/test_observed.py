"""What events and live reads show, in whatever order they come, as far as no transcript (tests/scenarios) can tell
it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.outcome import UnknownObjectError
from controller.allocator.verbs.observe import CLAIMS_AT_ONCE
from controller.model.workload import Claim, PodVolume
from controller.rules.demand import Missing
from tests.fakes.builders import GIB, LATER, LATEST, TestCluster, disk, node, pod, replica


@pytest.fixture
def cluster() -> TestCluster:
    """One node of 100 GiB, and a pod `a` that asks for as much."""
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    return cluster


def test_a_pod_may_wait_for_bytes_that_are_held_and_not_for_those_that_are_taken(cluster: TestCluster) -> None:
    cluster.filter("a", "n1")
    cluster.add_pod("b")
    cluster.add_pod("large", gib=101)

    assert (Decision.CONTENDED, True) == (cluster.filter("b", "n1").decision, cluster.filter("b", "n1").waitable)
    refused = cluster.filter("large", "n1")
    assert (Decision.REFUSED, False) == (refused.decision, refused.waitable)


def test_a_class_that_changes_settles_all_its_claims_however_many(cluster: TestCluster) -> None:
    """It is done a few claims at a time, so that others are let in between."""
    names = [f"c{number}" for number in range(2 * CLAIMS_AT_ONCE + 1)]
    cluster.add_node("n2", free_gib=1000)
    cluster.add_node("n3", free_gib=1000)
    for name in names:
        assert cluster.ask(name, 1, "n2", class_name="roaming")
        cluster.select_node(name, "n2")
    assert len(names) == sum(cluster.pending().values())

    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="2")

    assert 2 * len(names) == sum(cluster.pending().values())


# What a live read has shown


def test_a_claim_that_names_a_pv_that_is_not_seen_yet_is_no_claim_that_needs_nothing(cluster: TestCluster) -> None:
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))  # after the live reads of the call
    for ask in (cluster.allocator.hold_pod, cluster.allocator.nodes_with_room, cluster.allocator.score_nodes):
        with pytest.raises(UnknownObjectError, match="pv pvc-uid-a is not known yet"):
            ask("pod-a", ["n1"])
    cluster.allocator.confirm_absent(Missing("pv", "", "pvc-uid-a"))
    assert Decision.NOTHING_NEEDED is cluster.filter("a", "n1").decision


def test_what_was_absent_is_asked_for_again_by_a_later_call(cluster: TestCluster) -> None:
    cluster.drop_claim("a")
    with pytest.raises(UnknownObjectError) as unknown:
        cluster.filter("a", "n1")
    assert Missing("claim", "ns", "a") == unknown.value.missing
    cluster.allocator.confirm_absent(unknown.value.missing)
    assert Decision.NOTHING_NEEDED is cluster.filter("a", "n1").decision

    cluster.clock.advance(1.1)

    with pytest.raises(UnknownObjectError, match="claim a is not known yet"):
        cluster.filter("a", "n1")


def test_what_a_live_read_has_shown_is_not_undone_by_an_older_event(cluster: TestCluster) -> None:
    """The watch delivers late what was true before the read."""
    cluster.filter("a", "n1")
    seen = cluster.set_claim(replace(cluster.claims["a"], selected_node="n1", version=7))
    cluster.set_claim(replace(seen, selected_node="", version=6))

    cluster.clock.advance(60)
    assert cluster.allocator.due() == ()
    (row,) = cluster.allocator.snapshot().promises
    assert (row.node, row.state) == ("n1", "PLANNED")

    cluster.set_claim(replace(seen, selected_node="", version=8))  # withdrawn, in truth
    cluster.clock.advance(60)
    assert ["pod-a"] == [due.claimant for due in cluster.allocator.due()]


def test_an_older_deletion_does_not_take_away_an_object_that_was_made_again(cluster: TestCluster) -> None:
    old = cluster.claims["a"]
    cluster.set_claim(replace(old, uid="another", version=9))
    cluster.allocator.observe_claim(old.key, None, gone=old)

    assert cluster.offered("a", "n1") == {"n1"}
    assert cluster.pending() == {"n1": 100}


def test_an_older_event_of_a_former_object_does_not_take_the_place_of_the_next_one(cluster: TestCluster) -> None:
    """The live read was ahead of the watch, which delivers the former claim, its end, and the next claim."""
    former = replace(cluster.claims["a"], uid="former", version=3)
    claim = cluster.set_claim(replace(former, uid="next", version=8))
    assert cluster.offered("a", "n1") == {"n1"}

    for facts, gone in ((former, None), (None, former), (claim, None)):
        cluster.allocator.observe_claim(claim.key, facts, gone)
        assert cluster.pending() == {"n1": 100}


# Generic ephemeral volumes: a pod's claim goes with it, and one of the same name may be seen for its next pod


@pytest.fixture
def made_again(cluster: TestCluster) -> Claim:
    """The pod `a` is another one by now, and the former one's claim is still seen. The claim that the next one has."""
    claim = cluster.set_claim(replace(cluster.claims["a"], owner_pod_uid="former"))
    volumes = (PodVolume("v0", "a", is_ephemeral=True),)
    cluster.set_pod(pod("a", uid="former", created_utc=LATER, volumes=volumes))
    cluster.drop_pod("a")
    cluster.set_pod(pod("a", uid="next", created_utc=LATEST, volumes=volumes))
    return replace(claim, uid="uid-next", owner_pod_uid="next", version=9)


def test_a_former_pods_claim_is_not_taken_for_nothing_needed(cluster: TestCluster, made_again: Claim) -> None:
    with pytest.raises(UnknownObjectError, match="claim a is not known yet"):
        cluster.filter("a", "n1")

    cluster.set_claim(made_again)
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.add_pod("b")
    assert Decision.CONTENDED is cluster.filter("b", "n1").decision


def test_a_former_pods_choice_is_not_the_next_ones(cluster: TestCluster, made_again: Claim) -> None:
    cluster.add_node("n2", free_gib=100)
    cluster.set_claim(replace(cluster.claims["a"], selected_node="n2", version=5))
    assert {"next"}.isdisjoint(cluster.claimants())

    cluster.set_claim(made_again)
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")


# Disks beyond their limit


def over(cluster: TestCluster) -> list[tuple[str, str, int]]:
    return [(one.node, one.disk, one.over_bytes // GIB) for one in cluster.allocator.snapshot().disks_over]


def test_a_disk_with_more_than_its_limit_is_shown_while_it_is_ready_though_longhorn_has_closed_it() -> None:
    """It calls one that is over its limit unschedulable."""
    cluster, n1 = TestCluster(), node("n1", disk("a", 100), disk("b", 50))
    cluster.put_node(n1)
    for name, gib in (("r", 60), ("s", 45)):
        cluster.allocator.observe_replica(name, replica(name, f"volume-of-{name}", gib, on="n1", disk_name="a"))
    assert [("n1", "a", 5)] == over(cluster)
    closed = replace(n1.disks[0], schedulable=False)
    cluster.put_node(replace(n1, disks=(closed, n1.disks[1])))
    assert [("n1", "a", 5)] == over(cluster)

    without_figures = replace(closed, ready=False, maximum_bytes=0, available_bytes=0)
    cluster.put_node(replace(n1, disks=(without_figures, n1.disks[1])))
    assert [] == over(cluster)
    cluster.put_node(n1)
    cluster.allocator.observe_replica("s", None)
    assert [] == over(cluster)
