"""What a simulation says of pods that come, claims that grow and settings that change."""

from __future__ import annotations

import pytest

from controller.plan.complaints import InputError
from tests.fakes.saved import GIB, Raw, setting
from tests.unit.plan import asking as saved_pods
from tests.unit.simulation.asking import (
    LOCAL,
    about,
    ask,
    cluster,
    kube_node,
    pod_of,
    pods,
    running,
    stateful_set,
    used,
)


def test_pods_take_room_one_after_the_other_and_the_one_too_many_is_refused() -> None:
    found = ask(cluster(n1=100, n2=100), stateful_set("db", 3, podManagementPolicy="Parallel"))

    assert {"db-0": "n1", "db-1": "n2", "db-2": "refused"} == pods(found)
    assert {"n1": 60, "n2": 60} == used(found)
    assert "for 1 of the pods several nodes would do: kube-scheduler may choose another one" in found.remarks
    assert ["pod ns/db-2 InsufficientStorage"] == about(found)
    assert "Claim ns/data-db-2 (60 GiB) lacks 20 GiB on disk d1" in found.findings[0].text
    assert "request at most 40 GiB" in found.findings[0].change


def test_an_ordered_set_makes_no_pod_behind_one_that_is_refused() -> None:
    found = ask(cluster(n1=100), stateful_set("db", 3))

    assert {"db-0": "n1", "db-1": "refused", "db-2": "not-made"} == pods(found)
    assert "StatefulSet ns/db makes it once db-1 runs" == pod_of(found, "db-2").text


def test_every_copy_of_a_volume_gets_a_disk_and_one_too_few_is_told() -> None:
    found = ask(cluster(n1=100, n2=100), stateful_set("web", of_class="three", gib=10))

    (volume,) = pod_of(found, "web-0").volumes
    assert ["n1", "n2"] == [one.node for one in volume.places]
    assert 1 == volume.missing
    assert ["volume ns/data-web-0 CopyMissing"] == about(found)


def test_pods_that_wait_come_first_and_count_only_if_nothing_else_is_asked() -> None:
    waiting = [LOCAL, saved_pods.pod("old", name="old"), saved_pods.claim("old", 60)]
    objects = [*cluster(n1=100)[1:], *waiting]

    found = ask(objects, stateful_set("db"))
    assert {"old": "n1", "db-0": "refused"} == pods(found)

    big = [*cluster(n1=50)[1:], *waiting]
    assert ["pod ns/old InsufficientStorage"] == about(ask(big))
    assert [] == about(ask(big, stateful_set("db", gib=10)))


def test_a_set_that_stands_already_gets_only_the_pods_that_are_added() -> None:
    standing = running("db-0", "n1", "n1")
    found = ask([*cluster(n1=100, n2=100), *standing], stateful_set("db", 2))

    assert {"db-1": "n2"} == pods(found)
    assert "StatefulSet ns/db is there already: only what is added comes" in found.remarks


def test_a_class_that_waits_for_no_pod_has_its_volume_placed_at_once() -> None:
    claim = saved_pods.claim("data", 10, of_class="at-once")
    found = ask(cluster(n1=100, n2=100), claim)

    assert ["n1", "n2"] == [one.node for one in found.claims[0].new]
    assert {"n1": 10, "n2": 10} == used(found)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"nodeSelector": {"disk": "fast"}}, "1 cordoned, 1 node selector"),
        ({"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}, "1 cordoned, 1 insufficient cpu"),
    ],
)
def test_rules_of_kube_scheduler_keep_pods_off_nodes(pod: Raw, why: str) -> None:
    objects = [*cluster(n1=100), *cluster(n2=100)[3:]]
    objects[3] = kube_node("n1", unschedulable=True)

    found = ask(objects, stateful_set("db", pod=pod))

    assert {"db-0": "refused"} == pods(found)
    assert f"0 of 2 nodes: {why}" == pod_of(found, "db-0").text


def test_a_claim_that_is_not_there_is_named() -> None:
    found = ask(cluster(n1=100), saved_pods.pod("gone", name="p"))
    assert "there is no claim ns/gone" == pod_of(found, "p").text


def test_a_growth_takes_its_room_before_pods_come() -> None:
    grown = {**LOCAL, "allowVolumeExpansion": True}
    objects = [grown, *cluster(n1=100)[1:], *running("v", "n1", "n1", gib=20, owner="")]

    found = ask(objects, stateful_set("db", gib=50), grow={"v": 60})
    assert [("ns/v", "admitted")] == [(one.claim, one.verdict) for one in found.growths]
    assert ["pod ns/db-0 InsufficientStorage"] == about(found)

    refused = ask(objects, grow={"v": 200}).growths[0]
    assert ("refused", 95 * GIB) == (refused.verdict, refused.largest_bytes)
    assert 20 == used(ask(objects, grow={"v": 200}))["n1"]


def test_a_class_without_growth_is_refused_and_holds_nothing() -> None:
    found = ask([*cluster(n1=100), *running("v", "n1", "n1", gib=20)], grow={"v": 30})
    assert "StorageClass local has no allowVolumeExpansion" == found.growths[0].text
    assert {"n1": 20} == used(found)


def test_a_setting_that_changes_counts_afterwards_alone() -> None:
    objects = [*cluster(n1=100), setting("storage-over-provisioning-percentage", "100")]
    found = ask(objects, stateful_set("db", 2), settings={"storage-over-provisioning-percentage": "200"})

    assert {"db-0": "n1", "db-1": "n1"} == pods(found)
    assert (100 * GIB, 200 * GIB) == (found.disks[0].limit_before, found.disks[0].limit_after)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"settings": {"storage-over-provisionin-percentage": "1"}}, "storage-over-provisioning-percentage is read"),
        (
            {"settings": {"storage-over-provisioning-percentage": "much"}},
            "settings.storage-over-provisioning-percentage",
        ),
        ({"fail": ["n9"]}, "--fail: there is no node n9"),
        ({"drain": ["n9"]}, "--drain: there is no node n9"),
        ({"grow": {"data": 5}}, "--grow: claim ns/data does not exist"),
    ],
)
def test_what_is_not_there_is_named(question: Raw, said: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(cluster(n1=100), **question)
    assert said in str(caught.value)


def test_plans_of_the_leader_keep_their_room() -> None:
    line = '{"volume":"pvc-x","uid":"u","places":[["n1","n1-d1",64424509440]],"pods":["uid-p"],"since":"%s"}'
    name = "longhorn-scheduler-extender-plans-0"
    plans = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "longhorn-system"},
        "data": {"plans": line % "2026-01-01T11:59:59Z"},
    }
    pod = saved_pods.pod("x", name="p")
    pod["spec"]["nodeName"] = "n1"
    claim = saved_pods.claim("x", 60, uid="x")
    objects = [*cluster(n1=100), pod, claim, plans]

    assert ["pod ns/db-0 Contended"] == about(ask(objects, stateful_set("db")))
    assert [] == about(ask(objects[:-1], stateful_set("db")))
