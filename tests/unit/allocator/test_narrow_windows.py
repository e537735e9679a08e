"""Short moments between two events in which a promise could get lost, or be made twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.workload import KubeNode
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, GIB, TestCluster, disk, node, replica, volume

WAIT = 300


def cluster_of(*names: str, free_gib: float = 150, live: LiveSettings | None = None) -> TestCluster:
    cluster = TestCluster(live=live)
    cluster.add_class("anywhere", dataLocality="disabled", numberOfReplicas="1")
    for name in names:
        cluster.add_node(name, free_gib=free_gib)
    return cluster


def other_gets(cluster: TestCluster, *names: str, gib: float = 100) -> set[str]:
    return cluster.offered(cluster.add_pod("other", gib=gib).name, *names)


def grown(*nodes: str) -> tuple[TestCluster, GrowthRequest]:
    """A volume of 100 GiB with a replica on each node, and what asks for 300 of it."""
    cluster = cluster_of(*nodes, free_gib=400)
    cluster.add_claim("a")
    name = cluster.provision("a", replica_count=len(nodes))
    for number, on in enumerate(nodes, 1):
        cluster.allocator.observe_replica(f"{name}-r-{number}", replica(f"{name}-r-{number}", name, on=on))
    return cluster, GrowthRequest(name, 300 * GIB, "ns", "a")


def test_a_disk_without_figures_takes_no_growth_back() -> None:
    cluster, request = grown("n1", "n2")
    assert GrowthVerdict.ADMITTED is cluster.allocator.expansions.hold(request).verdict
    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=300 * GIB))
    broken = replace(disk("d1"), ready=False, maximum_bytes=0, available_bytes=0)
    cluster.put_node(node("n2", broken))

    assert not other_gets(cluster, "n1", gib=250)


def test_an_answer_for_other_nodes_is_newer_than_what_an_unbound_claim_says() -> None:
    """Its provisioner has given the choice back, and our watch of claims lags behind."""
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("p")
    assert {"n1", "n2"} == cluster.offered("p", "n1", "n2")
    cluster.select_node("p", "n1")
    assert {"n2"} == cluster.offered("p", "n2")
    cluster.change_pod("p", unschedulable_since_utc=EPOCH)
    assert "pod-p" in {
        who for row in cluster.allocator.snapshot().promises if row.node == "n2" for who in row.claimants
    }
    cluster.set_claim(replace(cluster.claims["p"], selected_node=""))

    assert not other_gets(cluster, "n2")


@pytest.mark.parametrize("is_late", [False, True])
def test_longhorns_copy_counts_once_whichever_of_claim_and_volume_is_known(is_late: bool) -> None:
    cluster = cluster_of("n1", free_gib=250)
    if not is_late:
        cluster.add_claim("x", class_name="anywhere")
    cluster.allocator.observe_volume("pvc-uid-x", volume("pvc-uid-x", locality="disabled"))
    cluster.allocator.observe_replica("r", replica("r", "pvc-uid-x"))
    if is_late:
        cluster.add_claim("x", class_name="anywhere")
        cluster.select_node("x", "n1")
    else:
        cluster.drop_claim("x")

    assert {"*": 100} == cluster.pending()


def test_a_new_copy_counts_though_a_former_one_was_given_up() -> None:
    cluster = cluster_of("n1", "n2")
    facts = volume("v", attached_to="n1")
    cluster.allocator.observe_replica("v-1", replica("v-1", "v", on="n2", healthy_at=EPOCH))
    cluster.allocator.observe_volume("v", facts)
    cluster.allocator.observe_replica("v-2", replica("v-2", "v", hard_node_affinity="n1"))
    cluster.pass_time(95)
    assert {} == cluster.pending()
    cluster.allocator.observe_replica("v-2", None)
    cluster.allocator.observe_replica("v-3", replica("v-3", "v", hard_node_affinity="n1"))

    assert not other_gets(cluster, "n1")
    for name in ("v-1", "v-3"):
        cluster.allocator.observe_replica(name, None)
    cluster.allocator.observe_volume("v", None)
    assert not cluster.allocator._memory._spent


def test_a_new_yes_stands_though_the_same_promise_has_ended_before() -> None:
    cluster = cluster_of("n1", free_gib=90)
    cluster.add_claim("x", class_name="anywhere")
    cluster.add_pod("p", "x")
    cluster.select_node("x", "n1")
    cluster.provision("x", locality="disabled")
    cluster.pass_time(95)
    cluster.put_node(node("n1", free_gib=150))
    assert {"n1"} == cluster.offered("p", "n1")
    cluster.bind("p", "n1")

    assert not other_gets(cluster, "n1")


def test_a_claim_of_several_pods_keeps_its_node_between_its_binding_and_theirs() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_claim("s")
    for name in ("p1", "p2"):
        cluster.add_pod(name, "s")
    cluster.offered("p1", "n1", "n2")
    cluster.select_node("s", "n1")
    cluster.pass_time(9)  # longer than the hold of p1
    cluster.provision("s")

    assert not other_gets(cluster, "n1")


def test_a_zone_opens_when_the_node_that_closed_it_goes() -> None:
    cluster = cluster_of("n1", "n2", "n3")
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        cluster.put_node(replace(cluster.allocator._world.nodes[name], zone=zone))
    facts = volume("v", locality="disabled", replica_count=2, zone_soft_anti_affinity="disabled")
    cluster.allocator.observe_volume("v", facts)
    cluster.allocator.observe_replica("v-1", replica("v-1", "v", on="n1", healthy_at=EPOCH))
    cluster.allocator.observe_replica("v-2", replica("v-2", "v"))
    assert {"n2"} == other_gets(cluster, "n2", "n3")
    cluster.drop_pod("other")
    cluster.allocator.observe_kube_node("n1", None)

    assert not other_gets(cluster, "n2", "n3")
    cluster.allocator.observe_kube_node("n1", KubeNode("n1", unschedulable=False))
    assert {"n2"} == cluster.offered("other", "n2", "n3")


def test_kept_room_is_kept_against_a_burst() -> None:
    cluster = cluster_of("n1", free_gib=600, live=LiveSettings(enabled=True, starvation_after_seconds=WAIT))
    for name in ("tiny-1", "tiny-2"):
        cluster.add_node(name, free_gib=1)
    cluster.add_claim("job", 200)
    cluster.set_claim(replace(cluster.claims["job"], owner_pod_uid="pod-job"))
    cluster.run("job", cluster.add_pod("job", gib=200).name, "n1", gib=200)
    cluster.add_pod("large", gib=550)
    assert not cluster.offered("large", "n1")
    cluster.clock.advance(WAIT)
    cluster.plan_wakeups()

    offered = [cluster.offered(cluster.add_pod(f"small-{number}", gib=50).name, "n1") for number in range(4)]
    assert [{"n1"}, set(), set(), set()] == offered


def test_growth_that_went_by_unchecked_is_waited_for() -> None:
    cluster, request = grown("n1")
    cluster.allocator.set_mode(Mode.BYPASS)
    assert GrowthVerdict.NOT_CHECKED is cluster.allocator.expansions.hold(request).verdict
    assert cluster.allocator.has_unseen_growth()
    cluster.allocator.set_mode(Mode.ACTIVE)

    assert GrowthVerdict.TRY_AGAIN is cluster.allocator.expansions.hold(request).verdict


def test_a_term_that_goes_on_after_a_pause_has_not_forgotten_what_it_admitted() -> None:
    cluster, request = grown("n1")
    assert GrowthVerdict.ADMITTED is cluster.allocator.expansions.hold(request).verdict
    cluster.allocator.end_term()
    cluster.allocator.begin_term(has_predecessor=False)

    assert GrowthVerdict.TRY_AGAIN is cluster.allocator.expansions.hold(request).verdict
