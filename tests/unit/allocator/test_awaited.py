"""What Longhorn does by itself counts in filter calls, from the moment at which it may happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.model.longhorn import LonghornSettings
from controller.rules.reasons import Reason
from tests.fakes.builders import LATEST, TestCluster, replica, volume

FAILED = {"failed_at": "2026-01-01T00:00:00Z"}


def cluster_of(*nodes: str, free_gib: float = 400, settings: LonghornSettings | None = None) -> TestCluster:
    cluster = TestCluster(settings=settings)
    for name in nodes:
        cluster.add_node(name, free_gib=free_gib)
    return cluster


def observe(cluster: TestCluster, *placed: str, count: int = 1, locality: str = "disabled", **fields: Any) -> None:
    """A volume "v" of 100 GiB without a claim, with healthy replicas on those nodes."""
    facts = {"replica_count": count, "frontend": "blockdev", **fields}
    cluster.allocator.observe_volume("v", volume("v", locality=locality, **facts))
    for name in placed:
        put(cluster, name)


def put(cluster: TestCluster, on: str, **fields: Any) -> None:
    healthy_at = "2026-01-01T00:00:00Z"
    made = replica(f"v-r-{on}", "v", on=on, **{"healthy_at": healthy_at, **fields})
    cluster.allocator.observe_replica(made.name, made)


def reasons(cluster: TestCluster, *nodes: str, gib: float = 100) -> dict[str, str]:
    """The answer on each of `nodes` for a new one-replica best-effort volume of that size."""
    if "asks" not in cluster.pods:
        cluster.add_pod("asks", gib=gib)
    outcome = cluster.filter("asks", *nodes)
    return {name: outcome.refused.get(name, "passes") for name in nodes}


def wait(cluster: TestCluster, name: str = "new", **fields: Any) -> None:
    """Longhorn has made a replica of "v", and not placed it yet."""
    cluster.allocator.observe_replica(name, replica(name, "v", **fields))


def test_a_locality_move_counts_on_the_engines_node_from_the_moment_that_it_shows() -> None:
    cluster = cluster_of("n1", "n2", "n3", free_gib=150)
    observe(cluster, "n2", locality="best-effort", attached_to="n1")
    assert {"n1": "passes", "n3": "passes"} == reasons(cluster, "n1", "n3")  # foreseen, and no promise
    wait(cluster, hard_node_affinity="n1")
    assert {"n1": Reason.CONTENDED, "n3": "passes"} == reasons(cluster, "n1", "n3")
    cluster.allocator.observe_replica("new", replica("new", "v", on="n1"))
    assert Reason.INSUFFICIENT_STORAGE == cluster.filter("asks", "n1").refused["n1"]


def test_the_share_managers_node_is_where_a_shared_volumes_copy_comes() -> None:
    cluster = cluster_of("n1", "n2", free_gib=150)
    observe(cluster, "n2", locality="best-effort", access_mode="rwx", attached_to="n1")
    wait(cluster, hard_node_affinity="n1")
    assert {"n1": Reason.CONTENDED} == reasons(cluster, "n1")


def test_the_copy_for_an_evicting_replica_may_come_to_any_other_node() -> None:
    cluster = cluster_of("n1", "n2", "n3", "n4", free_gib=250)
    observe(cluster, "n1", "n2", count=2)
    put(cluster, "n2", eviction_requested=True)
    free = {"n1": "passes", "n2": "passes", "n3": "passes"}
    assert free == reasons(cluster, "n1", "n2", "n3")
    wait(cluster)
    cluster.add_pod("asks", "larger", gib=151)
    wanted = {"n1": Reason.INSUFFICIENT_STORAGE, "n2": Reason.INSUFFICIENT_STORAGE, "n3": Reason.CONTENDED}
    assert wanted == reasons(cluster, "n1", "n2", "n3")
    cluster.allocator.observe_replica("new", replica("new", "v", on="n4"))
    assert "passes" == reasons(cluster, "n3")["n3"]


def test_a_failed_replica_whose_replacement_will_fall_due_bars_no_node() -> None:
    cluster = cluster_of("n1", "n2", "n3", free_gib=150)
    observe(cluster, "n1", count=2, attached_to="n1", robustness="degraded", last_degraded_at="2026-01-01T00:00:00Z")
    put(cluster, "n2", **FAILED)
    cluster.clock.advance(601)
    assert {"n3": "passes"} == reasons(cluster, "n3")
    wait(cluster)
    assert {"n3": Reason.CONTENDED} == reasons(cluster, "n3")


def test_what_longhorn_does_not_place_closes_no_node_for_long() -> None:
    cluster = cluster_of("n1", "n2", free_gib=150)
    observe(cluster)
    wait(cluster)
    cluster.clock.advance(89)
    cluster.allocator.sweep()
    assert {"n1": Reason.CONTENDED} == reasons(cluster, "n1")
    cluster.clock.advance(1)
    cluster.allocator.sweep()
    assert {"n1": "passes"} == reasons(cluster, "n1")
    wait(cluster, "another")  # a new replica has its own time
    assert {"n1": Reason.CONTENDED} == reasons(cluster, "n1")


@pytest.mark.parametrize(
    ("zone_soft", "same", "other"), [(True, Reason.CONTENDED, Reason.CONTENDED), (False, "passes", Reason.CONTENDED)]
)
def test_no_copy_is_awaited_in_a_zone_that_may_not_have_another(zone_soft: bool, same: str, other: str) -> None:
    cluster = cluster_of("n1", "n2", "n3", free_gib=150, settings=LonghornSettings(zone_soft_anti_affinity=zone_soft))
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        cluster.put_node(replace(cluster.allocator._world.nodes[name], zone=zone))
    observe(cluster, "n1", count=2, attached_to="n1", robustness="degraded")
    wait(cluster)
    assert {"n2": same, "n3": other} == reasons(cluster, "n2", "n3")
    cluster.put_node(replace(cluster.allocator._world.nodes["n1"], ready=False))  # then its replica closes no zone
    assert {"n2": Reason.CONTENDED, "n3": other} == reasons(cluster, "n2", "n3")


def test_a_volume_that_is_being_made_counts_wherever_it_may_land() -> None:
    cluster = cluster_of("n1", "n2", free_gib=150)
    observe(cluster, state="creating")
    assert {"n1": Reason.CONTENDED, "n2": Reason.CONTENDED} == reasons(cluster, "n1", "n2")
    observe(cluster, "n1")
    assert {"n2": "passes"} == reasons(cluster, "n2")


def test_a_volume_that_is_attached_elsewhere_than_it_was_promised_may_land_there() -> None:
    cluster = cluster_of("n1", "n2", "n3", free_gib=150)
    cluster.add_pod("mine")
    cluster.filter("mine", "n1")
    cluster.select_node("mine", "n1")
    handle = cluster.provision("mine")
    assert {"n1": Reason.CONTENDED, "n3": "passes"} == reasons(cluster, "n1", "n3")
    cluster.attach(handle, "n3")  # by Longhorn, to be restored
    assert {"n1": Reason.CONTENDED, "n3": Reason.CONTENDED} == reasons(cluster, "n1", "n3")
    cluster.attach(handle, "n1")
    assert {"n1": Reason.CONTENDED, "n3": "passes"} == reasons(cluster, "n1", "n3")


def test_a_pods_own_volumes_are_not_awaited_against_it() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("mine")
    name = cluster.run("mine", "mine", "n1")
    assert {} == cluster.pending()
    cluster.drop_pod("mine")
    cluster.attach(name, "n2", frontend="blockdev")  # remotely: a move to n2 will follow
    cluster.add_pod("again", "mine", created=LATEST)
    assert Decision.RESTART == cluster.filter("again", "n1", "n2").decision
    assert {"n2"} == cluster.offered("again", "n2")


@pytest.mark.parametrize(("soft", "verdict"), [("disabled", "passes"), ("enabled", Reason.CONTENDED)])
def test_two_unplaced_replicas_of_a_volume_come_to_one_node_only_if_anti_affinity_is_soft(
    soft: str, verdict: str
) -> None:
    cluster = cluster_of("n1", "n2", free_gib=250)
    observe(cluster, count=2, soft_anti_affinity=soft, zone_soft_anti_affinity="enabled")
    for name in ("one", "two"):
        cluster.allocator.observe_replica(name, replica(name, "v"))
    assert {"n1": verdict} == reasons(cluster, "n1")


@pytest.mark.parametrize(("soft", "verdict"), [("disabled", "passes"), ("enabled", Reason.CONTENDED)])
def test_a_volume_that_is_being_made_comes_twice_to_a_node_only_if_anti_affinity_is_soft(
    soft: str, verdict: str
) -> None:
    cluster = cluster_of("n1", "n2", free_gib=250)
    observe(cluster, count=2, state="creating", soft_anti_affinity=soft, zone_soft_anti_affinity="enabled")
    assert {"n1": verdict} == reasons(cluster, "n1")


def test_an_unplaced_replica_needs_its_volumes_size() -> None:
    cluster = cluster_of("n1", free_gib=200)
    observe(cluster)
    cluster.allocator.observe_replica("one", replica("one", "v"))
    assert {"n1": "passes"} == reasons(cluster, "n1")
    cluster.allocator.observe_volume("v", volume("v", 101, locality="disabled", frontend="blockdev"))
    assert {"n1": Reason.CONTENDED} == reasons(cluster, "n1")
