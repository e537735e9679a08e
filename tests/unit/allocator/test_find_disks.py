"""Which disks would take a replica: Longhorn's own procedure, beside what others have."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.by_name.beside import FoundDisks
from controller.allocator.by_name.find import DiskQuestion
from controller.allocator.outcome import Mode
from controller.errors import NotFoundError, NotReadyError
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, node
from tests.fakes.rooms import OPEN
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, image, why


def asked_about(**free_gib: float) -> Allocating:
    """A disk of that size on each node, and the volume `v` of 40 GiB with one unplaced replica `v-r-1`."""
    cluster = cluster_of(**free_gib)
    cluster.show("v", 40)
    return cluster


def find(cluster: Allocating, replica_name: str = "v-r-1", **question: Any) -> FoundDisks:
    return cluster.allocator.disks.find(DiskQuestion("v", replica_name, **question), SECONDS)


def nodes(found: FoundDisks) -> list[str]:
    return [entry.node for entry in found.disks]


def test_beside_nothing_it_is_longhorns_own_answer() -> None:
    cluster = asked_about(n1=100, n2=30, n3=200)
    found = find(cluster)
    assert [("n1", "d1", "n1-d1", 100), ("n3", "d1", "n3-d1", 200)] == [
        (entry.node, entry.disk, entry.uuid, entry.free_bytes // GIB) for entry in found.disks
    ]
    assert (40 * GIB, Try.NEW_ZONE) == (found.size_bytes, found.tried)
    assert found.preferred is not None and "n3" == found.preferred.node
    assert {"n2": (Reason.INSUFFICIENT_STORAGE, 10)} == why(found)


def test_a_disk_whose_room_a_pod_was_promised_is_refused_with_what_is_missing() -> None:
    cluster = asked_about(n1=100, n2=100)
    assert {"n1"} == cluster.ask("pod", 70, "n1")
    found = find(cluster)
    assert ["n2"] == nodes(found)
    assert {"n1": (Reason.CONTENDED, 10)} == why(found)
    assert "d1: 70 GiB are promised" in found.obstacles[0].rejection.message


def test_what_is_promised_and_leaves_enough_is_told_with_the_disk() -> None:
    cluster = asked_about(n1=100)
    assert {"n1"} == cluster.ask("pod", 50, "n1")
    (entry,) = find(cluster).disks
    assert (50, 50) == (entry.free_bytes // GIB, entry.promised_bytes // GIB)


def test_what_a_volume_holds_is_its_own_on_any_node() -> None:
    cluster = cluster_of(n1=100, n2=200)
    assert {"n1"} == cluster.ask("pod", 70, "n1")
    name = cluster.provision("pod")
    found = cluster.allocator.disks.find(DiskQuestion(name, f"{name}-r-1"), SECONDS)
    assert ["n1", "n2"] == nodes(found)
    assert [0, 0] == [entry.promised_bytes for entry in found.disks]
    assert found.preferred is not None and "n1" == found.preferred.node


def test_where_holds_close_the_first_group_of_nodes_the_next_one_is_tried() -> None:
    cluster = Allocating(replace(OPEN, soft_anti_affinity=True))
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        cluster.allocator.observe_node(name, node(name, free_gib=100, zone=zone))
    cluster.show("v", 40, on="n1")
    found = find(cluster, "")
    assert (["n3"], Try.NEW_ZONE) == (nodes(found), found.tried)
    assert {"n3"} == cluster.ask("pod", 70, "n3")
    found = find(cluster, "")
    assert (["n2"], Try.NEW_NODE_SOFT) == (nodes(found), found.tried)


@pytest.mark.parametrize(
    ("image_gib", "is_there", "reason"),
    [(50, False, None), (70, False, Reason.BACKING_IMAGE), (60, True, None), (70, True, Reason.INSUFFICIENT_STORAGE)],
)
def test_the_backing_image_takes_its_bytes_whether_it_is_there_or_comes_along(
    image_gib: int, is_there: bool, reason: Reason | None
) -> None:
    cluster = asked_about(n1=100)
    image(cluster, image_gib, *(["n1"] if is_there else []))
    cluster.show("v", 40, backing_image="i")
    found = find(cluster)
    assert (["n1"] if reason is None else []) == nodes(found)
    assert ({} if reason is None else {"n1": (reason, 10)}) == why(found)


def test_an_image_that_comes_with_another_volume_too_is_counted_for_each() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 20)
    cluster.add_class("image", dataLocality="best-effort", numberOfReplicas="1", backingImage="i")
    assert {"n1"} == cluster.ask("pod", 40, "n1", class_name="image")
    cluster.show("v", 20, backing_image="i")
    assert ["n1"] == nodes(find(cluster))
    cluster.show("v", 21, backing_image="i")
    assert [] == nodes(find(cluster))


def test_a_further_replica_is_bound_where_longhorn_would_bind_it() -> None:
    cluster = asked_about(n1=100, n2=100)
    assert ["n1", "n2"] == nodes(find(cluster, ""))
    assert ["n2"] == nodes(find(cluster, "", hard_node_affinity="n2"))
    cluster.show("v", 40, locality="strict-local", attached_to="n1")
    found = find(cluster, "")
    assert (["n1"], Reason.HARD_AFFINITY) == (nodes(found), why(found)["n2"][0])


def test_a_replica_that_has_a_place_finds_none() -> None:
    cluster = asked_about(n1=100)
    cluster.show("v", 40, on="n1")
    assert {"": (Reason.ALREADY_SCHEDULED, 0)} == why(find(cluster))


def test_who_is_not_there_is_named() -> None:
    cluster = asked_about(n1=100)
    with pytest.raises(NotFoundError, match="volume 'x'"):
        cluster.allocator.disks.find(DiskQuestion("x"), SECONDS)
    with pytest.raises(NotFoundError, match="replica 'v-r-9'"):
        find(cluster, "v-r-9")
    assert cluster.allocator.disks.knows("v") and not cluster.allocator.disks.knows("x")


def test_a_question_changes_nothing() -> None:
    cluster = asked_about(n1=100)
    cluster.ask("pod", 50, "n1")
    before = cluster.allocator.snapshot()
    find(cluster)
    assert before == cluster.allocator.snapshot()


def test_nothing_is_promised_while_the_extender_lets_everything_pass() -> None:
    cluster = asked_about(n1=100)
    cluster.ask("pod", 70, "n1")
    cluster.allocator.set_mode(Mode.BYPASS)
    assert ["n1"] == nodes(find(cluster))


def test_a_question_waits_for_the_one_before_no_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = asked_about(n1=100)
    queries = cluster.allocator.disks
    is_in, may_go = threading.Event(), threading.Event()
    real = queries._copy

    def slow(volume: str) -> Any:
        is_in.set()
        assert may_go.wait(10)
        return real(volume)

    monkeypatch.setattr(queries, "_copy", slow)
    first = threading.Thread(target=find, args=(cluster,))
    first.start()
    try:
        assert is_in.wait(10)
        with pytest.raises(NotReadyError):
            queries.find(DiskQuestion("v"), 0.01)
    finally:
        may_go.set()
        first.join(10)
    assert ["n1"] == nodes(find(cluster))
