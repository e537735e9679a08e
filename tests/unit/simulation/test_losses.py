"""What a simulation says of nodes that are drained or lost."""

from __future__ import annotations

import pytest

from tests.fakes.saved import replica, setting, volume
from tests.unit.simulation.asking import about, ask, cluster, pods, running, stateful_set, used


def states(found: object) -> dict[str, str]:
    return {one.volume: one.state for one in found.rebuilds}  # type: ignore[attr-defined]


def test_a_lost_node_has_its_pods_moved_and_its_copies_rebuilt() -> None:
    objects = [*cluster(n1=100, n2=100, n3=100), *running("db-0", "n1", "n1", "n2")]
    found = ask(objects, fail=["n1"])

    assert pods(found)["db-0"] in ("n2", "n3")
    assert {"db-0": "rebuilt"} == states(found)
    assert {"n1": 0, "n2": 60, "n3": 60} == used(found)
    assert [] == about(found)
    assert ["lost", "", ""] == [one.state for one in found.disks]


def test_a_copy_that_finds_no_disk_is_missing() -> None:
    objects = [*cluster(n1=100, n2=100, n3=50), *running("db-0", "n2", "n1", "n2")]
    found = ask(objects, fail=["n1"])

    assert {"db-0": "degraded"} == states(found)
    assert ["volume ns/db-0 CopyMissing"] == about(found)
    assert "InsufficientStorage" in found.findings[0].text


def test_what_has_its_only_copy_there_is_lost_with_its_pod() -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1")]
    found = ask(objects, fail=["n1"])

    assert {"db-0": "lost"} == states(found)
    assert ["pod ns/db-0 NotFound", "volume ns/db-0 DataLost"] == about(found)
    assert "the data of claim ns/db-0 is lost with n1" == found.findings[0].text


def test_a_detached_volume_is_rebuilt_later() -> None:
    alone = [volume("v", gib=10, numberOfReplicas=2), replica("a", "n1", gib=10), replica("b", "n2", gib=10)]
    found = ask([*cluster(n1=100, n2=100, n3=100), *alone], fail=["n1"])

    assert {"v": "waits"} == states(found)
    assert {"n1": 0, "n2": 10, "n3": 0} == used(found)


def test_a_drained_node_keeps_its_copies_and_takes_no_more() -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", "n2", gib=20)]
    found = ask(objects, stateful_set("new", gib=70), drain=["n1"])

    assert {"db-0": "n2", "new-0": "n2"} == pods(found)
    assert {"n1": 20, "n2": 90} == used(found)
    assert ["closed", ""] == [one.state for one in found.disks]


def test_a_drained_local_volume_follows_its_pod_where_there_is_room() -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", dataLocality="best-effort")]
    found = ask(objects, drain=["n1"])

    assert {"db-0": "n2"} == pods(found)
    assert {"n1": 0, "n2": 60} == used(found)
    assert [] == about(found)

    found = ask([*cluster(n1=100, n2=50), *running("db-0", "n1", "n1", dataLocality="best-effort")], drain=["n1"])
    assert ["pod ns/db-0 InsufficientStorage", "volume ns/db-0 LastReplica"] == about(found)


def test_strict_data_goes_nowhere() -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", dataLocality="strict-local")]
    assert ["pod ns/db-0 ReplicaElsewhere", "volume ns/db-0 LastReplica"] == about(ask(objects, drain=["n1"]))


@pytest.mark.parametrize(
    ("policy", "findings", "on_n1"),
    [
        ("block-if-contains-last-replica", ["volume v LastReplica"], 10),
        ("allow-if-replica-is-stopped", [], 10),
        ("always-allow", [], 10),
        ("block-for-eviction", [], 0),
        ("block-for-eviction-if-contains-last-replica", [], 0),
    ],
)
def test_the_policy_for_drains_decides_about_last_copies(policy: str, findings: list[str], on_n1: int) -> None:
    alone = [volume("v", gib=10, numberOfReplicas=1), replica("a", "n1", gib=10)]
    found = ask([*cluster(n1=100, n2=100), *alone, setting("node-drain-policy", policy)], drain=["n1"])

    assert findings == about(found)
    assert {"n1": on_n1, "n2": 10 - on_n1} == used(found)


def test_pods_that_nothing_controls_end_and_those_of_daemon_sets_stay() -> None:
    objects = [*cluster(n1=100, n2=100), *running("bare", "n1", "n1", "n2", owner=""),
               *running("agent", "n1", "n1", "n2", gib=10, owner="DaemonSet")]  # fmt: skip
    assert {"bare": "ends"} == pods(ask(objects, drain=["n1"]))


def test_an_ephemeral_volume_is_made_anew_where_its_pod_goes() -> None:
    facts = running("web", "n1", "n1", owner="ReplicaSet")
    claim, pod = facts[-2], facts[-1]
    claim["metadata"]["name"] = "web-scratch"
    claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}]
    facts[-3]["spec"]["claimRef"]["name"] = "web-scratch"
    template = {"spec": {"storageClassName": "local", "resources": {"requests": {"storage": "30Gi"}}}}
    pod["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]

    found = ask([*cluster(n1=100, n2=100), *facts], drain=["n1"])

    assert {"web": "n2"} == pods(found)
    assert {"n1": 0, "n2": 30} == used(found)


def test_what_was_lost_is_made_again_before_anything_new_comes() -> None:
    objects = [*cluster(n1=100, n2=100, n3=100), *running("db-0", "n2", "n1", "n2")]
    found = ask(objects, stateful_set("new", gib=60), fail=["n1"])

    assert {"db-0": "rebuilt"} == states(found)
    assert ["pod ns/new-0 InsufficientStorage"] == about(found)


def test_a_set_whose_pods_move_is_there_already() -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", "n2", gib=20)]
    assert {"db-0": "n2", "db-1": "n2"} == pods(ask(objects, stateful_set("db", 2, gib=20), drain=["n1"]))
