"""What the stand-in decides about a volume's replicas, and about nodes and figures, without a cluster."""

from __future__ import annotations

import pytest

from tests.longhorn import locality
from tests.longhorn.nodes import condition, settle
from tests.longhorn_rules import objects as worlds
from tests.longhorn_rules.objects import Raw, conditions, evicting, failed, node, replica

LOCAL = replica("here", "b-d1")
REMOTE = replica("there", "a-d1")
WAITING = replica("waits", hardNodeAffinity="b")
REBUILDING = replica("joins", "b-d1", healthyAt="", hardNodeAffinity="b")


def attached(where: str = "b", *, count: int = 1, data_locality: str = "best-effort", **status: object) -> Raw:
    wanted = worlds.volume(numberOfReplicas=count, dataLocality=data_locality, nodeID=where)
    wanted["status"] |= {"state": "attached", "currentNodeID": where, **status}
    return wanted


def detached(data_locality: str = "best-effort") -> Raw:
    return attached("", data_locality=data_locality, state="detached")


# Moving data to the volume's node


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([REMOTE], "b"),
        ([REMOTE, LOCAL], ""),
        ([REMOTE, REBUILDING], ""),
        ([REMOTE, WAITING], ""),
        ([REMOTE, replica("waits", hardNodeAffinity="c")], "b"),
        ([REMOTE, failed("old", "b-d1")], "b"),
        ([replica("new", "a-d1", healthyAt="")], ""),  # not as healthy as it should be
        ([], ""),
    ],
)
def test_one_more_replica_is_wanted_where_the_volume_has_none(replicas: list[Raw], expected: str) -> None:
    assert expected == locality.wants_local(attached(), replicas, {})


def test_only_a_healthy_attached_best_effort_volume_moves() -> None:
    assert "" == locality.wants_local(attached(data_locality="disabled"), [REMOTE], {})
    assert "" == locality.wants_local(detached(), [REMOTE], {})
    assert "" == locality.wants_local(attached(count=2), [REMOTE], {})
    assert "" == locality.wants_local(attached(currentNodeID="a"), [REMOTE], {})
    assert "" == locality.wants_local(attached(), [REMOTE], {"concurrent-replica-rebuild-per-node-limit": "0"})


def test_a_replica_for_a_node_that_the_volume_left_is_obsolete_unless_it_is_healthy() -> None:
    replicas = [REMOTE, WAITING, REBUILDING, LOCAL]
    assert [WAITING, REBUILDING] == locality.obsolete(detached(), replicas)
    assert [WAITING, REBUILDING] == locality.obsolete(attached("c"), replicas)
    assert [] == locality.obsolete(attached("b"), replicas)
    assert [] == locality.obsolete(detached(), [WAITING, REBUILDING])  # nothing else holds the data
    assert [] == locality.obsolete(detached("strict-local"), replicas)


ZONES = {name: node(name, zone=zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"), ("d", "z2"))}


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (["c-d1", "d-d1"], "r0"),  # both in one zone: by name
        (["c-d1", "a-d1"], "r1"),  # a shares its zone with b
        (["a-d1", "c-d1", "c-d2"], "r1"),  # c holds two
        (["a-d1", "c-d1", "c-d2", "d-d1", "d-d1"], "r3"),  # one disk of d holds two
    ],
)
def test_the_surplus_replica_is_the_one_that_is_least_apart(remote: list[str], expected: str) -> None:
    replicas = [replica(f"r{index}", place) for index, place in enumerate(remote)] + [LOCAL]
    gone = locality.surplus(attached(count=len(remote)), replicas, ZONES)
    assert gone is not None
    assert expected == gone["metadata"]["name"]


def test_nothing_is_surplus_before_the_local_replica_is_healthy() -> None:
    assert locality.surplus(attached(), [REMOTE, REBUILDING], ZONES) is None
    assert locality.surplus(attached(count=2), [REMOTE, LOCAL], ZONES) is None
    assert locality.surplus(attached(), [REMOTE, replica("r", "c-d1")], ZONES) is None
    assert locality.surplus(detached(), [REMOTE, LOCAL], ZONES) is None


@pytest.mark.parametrize(
    ("volume", "replicas", "expected"),
    [
        (detached(), [], False),  # best-effort waits for its node
        (detached("disabled"), [], True),
        (detached("disabled"), [replica("r")], True),
        (detached("disabled"), [REMOTE], False),
        (detached(), [REMOTE, WAITING], True),
        (attached(), [replica("r")], True),
        (attached(), [REMOTE], True),
        (attached(), [LOCAL], False),
        (attached(), [LOCAL, REMOTE], True),
        (attached(), [LOCAL, replica("r", "a-d1", healthyAt="")], True),
    ],
)
def test_a_volume_gets_a_turn_when_there_is_something_to_do(volume: Raw, replicas: list[Raw], expected: bool) -> None:
    assert expected == locality.needs_turn(volume, replicas, {}, ZONES)


# Eviction


LEAVING = evicting("leaves", "a-d1")


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([LEAVING], True),
        ([LEAVING, WAITING], True),  # nobody knows when there is room near the volume
        ([LEAVING, replica("spare")], False),
        ([LEAVING, replica("spare", "c-d1", healthyAt="")], False),
        ([LEAVING, LOCAL], False),
        ([LEAVING, failed("lost", "c-d1")], True),
        ([LEAVING, evicting("too", "c-d1")], True),
        ([REMOTE], False),
        ([failed("lost", "a-d1", evictionRequested=True)], False),
    ],
)
def test_an_evicting_replica_gets_one_in_its_place(replicas: list[Raw], expected: bool) -> None:
    assert expected == locality.wants_spare(attached(), replicas, {})
    assert expected == locality.lacks_spare(detached(), replicas)
    assert not locality.wants_spare(detached(), replicas, {})
    assert not locality.wants_spare(attached(), replicas, {"concurrent-replica-rebuild-per-node-limit": "0"})


def test_evicting_replicas_go_once_enough_healthy_ones_stay() -> None:
    assert [LEAVING] == locality.evicted(attached(), [LEAVING, LOCAL])
    assert [] == locality.evicted(attached(count=2), [LEAVING, LOCAL])
    assert [] == locality.evicted(attached(), [LEAVING, REBUILDING])
    assert [] == locality.evicted(attached(), [LEAVING, evicting("too", "c-d1")])
    assert [] == locality.evicted(attached(count=0), [LEAVING])


def test_data_does_not_follow_a_volume_that_longhorn_attached_for_itself() -> None:
    errand = attached()
    errand["spec"]["disableFrontend"] = True
    assert "" == locality.wants_local(errand, [REMOTE], {})
    assert "" == locality.wants_local(attached(restoreRequired=True), [REMOTE], {})


def test_a_volume_is_being_filled_until_its_restore_or_clone_is_complete() -> None:
    assert locality.is_filling(attached(restoreRequired=True))
    assert not locality.is_filling(attached(restoreRequired=False))
    clone = attached()
    clone["spec"]["dataSource"] = "vol://other"
    assert locality.is_filling(clone)
    clone["status"]["cloneStatus"] = {"state": "initiated"}
    assert locality.is_filling(clone)
    clone["status"]["cloneStatus"] = {"state": "completed"}
    assert not locality.is_filling(clone)


# Attaching


def test_strict_local_is_attached_to_its_replica_alone() -> None:
    strict = detached("strict-local")
    assert locality.may_attach(strict, [replica("r")], "a")
    assert locality.may_attach(strict, [REMOTE], "a")
    assert not locality.may_attach(strict, [REMOTE], "b")
    assert locality.may_attach(detached(), [REMOTE], "b")


def test_an_engine_starts_from_healthy_replicas_or_at_first_from_all() -> None:
    new, lost = replica("new", "a-d1", healthyAt=""), failed("lost", "c-d1")
    assert [LOCAL] == locality.starters([LOCAL, new, lost])
    assert [new] == locality.starters([new, lost, WAITING])
    assert [] == locality.starters([WAITING, lost])


def test_a_replica_that_is_being_deleted_serves_nobody() -> None:
    going = [
        replica("going", "b-d1", deleting=True),
        replica("evicted", "a-d1", deleting=True, evictionRequested=True),
        replica("waits", deleting=True, hardNodeAffinity="a"),
    ]
    assert [] == locality.starters(going)
    assert [] == locality.evicted(attached(), [*going, LOCAL])
    assert [] == locality.obsolete(attached(), [*going, LOCAL])
    assert "b" == locality.wants_local(attached(), [*going, REMOTE], {})
    assert locality.lacks_spare(attached(), [LEAVING, going[0]])
    assert not locality.needs_turn(attached(), [*going, LOCAL], {}, ZONES)


# Nodes


def kube(*, ready: str = "True", cordoned: bool = False, zone: str = "") -> Raw:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    return {
        "metadata": {"name": "a", "labels": labels},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": conditions(Ready=ready)},
    }


def ready_node() -> Raw:
    entry = node("a", worlds.disk(100, scheduled=40))
    entry["status"]["diskStatus"]["d1"]["conditions"] = conditions(Ready="True", Schedulable="True")
    return entry


@pytest.mark.parametrize(
    ("seen", "reason"), [(None, "KubernetesNodeGone"), (kube(ready="Unknown"), "KubernetesNodeNotReady")]
)
def test_a_node_without_a_ready_kubernetes_node_is_not_ready_and_comes_back(seen: Raw | None, reason: str) -> None:
    entry = ready_node()
    before = ready_node()
    assert settle(entry, seen, follows_cordons=True)
    disk = entry["status"]["diskStatus"]["d1"]
    assert ("False", reason) == (
        condition(entry["status"], "Ready")["status"],
        condition(entry["status"], "Ready")["reason"],
    )
    assert ["NodeNotReady"] * 2 == [condition(disk, kind)["reason"] for kind in ("Ready", "Schedulable")]
    assert 40 == disk["storageScheduled"]
    assert not settle(entry, seen, follows_cordons=True)
    assert settle(entry, kube(), follows_cordons=True)
    assert all(condition(entry["status"], kind)["status"] == "True" for kind in ("Ready", "Schedulable"))
    assert before["status"]["diskStatus"]["d1"]["storageScheduled"] == disk["storageScheduled"]


def test_a_cordon_counts_by_setting() -> None:
    entry = ready_node()
    assert not settle(entry, kube(cordoned=True), follows_cordons=False)
    assert settle(entry, kube(cordoned=True), follows_cordons=True)
    assert "KubernetesNodeCordoned" == condition(entry["status"], "Schedulable")["reason"]
    assert settle(entry, kube(), follows_cordons=True)
    assert "True" == condition(entry["status"], "Schedulable")["status"]


def test_what_somebody_else_wrote_stays() -> None:
    entry = ready_node()
    entry["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "ManagerPodDown"}]
    settle(entry, kube(), follows_cordons=True)
    assert "ManagerPodDown" == condition(entry["status"], "Ready")["reason"]


def test_the_zone_follows_the_label_where_there_is_one() -> None:
    entry = node("a", zone="z1")
    assert not settle(entry, kube(), follows_cordons=True)
    assert settle(entry, kube(zone="z2"), follows_cordons=True)
    assert "z2" == entry["status"]["zone"]
