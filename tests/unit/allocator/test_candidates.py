"""What is said of the search for one replica's disks: the try that decided, and one reason for each disk refused.

Which disks Longhorn takes is tried with tests/longhorn_rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import BackingImage, Replica
from controller.model.workload import KubeNode
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.fakes.rooms import OPEN
from tests.unit.allocator.placing import disk, failed, flags, names, node, reasons, replica, search, view, volume

EVICTING = replica("a", "n1", eviction_requested=True)
HARD_ZONES = flags(zone_soft=False, node_soft=True)


@pytest.mark.parametrize(
    ("nodes", "replicas", "settings", "expected", "tried"),
    [
        pytest.param("n1 n2 n3@b", [replica("a", "n1")], flags(), ["n3/d1"], Try.NEW_ZONE, id="a new zone"),
        pytest.param("n1", [EVICTING], HARD_ZONES, ["n1/d1"], Try.EVICTING_ZONE, id="a hard zone that empties"),
        pytest.param("n1 n2", [replica("a", "n1")], flags(), ["n2/d1"], Try.NEW_NODE, id="a new node"),
        pytest.param("n1", [EVICTING], flags(), ["n1/d1"], Try.EVICTING_NODE, id="a node that empties"),
        pytest.param(
            "n1 n2", [replica("a", "n1")], flags(True), ["n2/d1"], Try.NEW_NODE_SOFT, id="a new node, soft nodes"
        ),
        pytest.param("n1", [replica("a", "n1")], flags(True), ["n1/d1"], Try.USED_NODE, id="a used node"),
        pytest.param("n1", [replica("a", "n1")], flags(), [], None, id="none"),
    ],
)
def test_the_try_that_decided_is_named(
    nodes: str, replicas: list[Replica], settings: Any, expected: list[str], tried: Try | None
) -> None:
    """Nodes of zone a, unless another one is named."""
    made = [node(name, zone=zone or "a") for name, _, zone in (text.partition("@") for text in nodes.split())]
    found = search(view(*made, replicas=replicas, settings=settings))
    assert (expected, tried) == (names(found), found.tried)


def test_a_zones_and_a_nodes_anti_affinity_are_told_apart() -> None:
    nodes = node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b")
    found = search(view(*nodes, replicas=[replica("a", "n1")]))
    assert {"n1/": Reason.NODE_ANTI_AFFINITY, "n2/": Reason.ZONE_ANTI_AFFINITY} == reasons(found)


def test_what_is_wrong_with_the_replica_comes_first_and_a_foreign_image_asks_for_nothing() -> None:
    assert {"/": Reason.ALREADY_SCHEDULED} == reasons(search(view(), volume(backing_image="bi"), replica(on="n1")))
    foreign = BackingImage("bi", node_selector=("ssd",))
    assert ["n1/d1"] == names(search(view(node("n1"), backing_image=foreign)))


def test_the_conditions_decide_on_cordoned_nodes_not_kubernetes() -> None:
    cordoned = {"n1": KubeNode("n1", unschedulable=True)}
    assert ["n1/d1"] == names(search(view(node("n1"), kube_nodes=cordoned)))
    assert [] == names(search(view(node("n1", schedulable=False), kube_nodes=cordoned)))


# Disks


def test_every_disk_of_a_tried_node_is_a_candidate_and_each_refusal_stands_once() -> None:
    seen = view(
        node("n2", disk("d2"), disk("d1"), disk("d3", allow_scheduling=False)),
        node("n1", disk("d1", 99), disk("d2", type="block")),
        node("n3", disk("d1", tags=frozenset({"x"}))),
        settings=replace(OPEN, space=replace(OPEN.space, allow_empty_disk_selector=False)),
    )
    found = search(seen)
    assert ["n2/d1", "n2/d2"] == names(found)
    assert ["n2-d1", "n2-d2"] == [entry.uuid for entry in found.candidates]
    assert {
        "n1/d1": Reason.INSUFFICIENT_STORAGE,
        "n1/d2": Reason.DISK_TYPE,
        "n2/d3": Reason.DISK_UNSCHEDULABLE,
        "n3/d1": Reason.DISK_TAGS,
    } == reasons(found)


def test_a_node_without_disks_is_refused() -> None:
    bare = replace(node("n1"), disks=())
    assert {"n1/": Reason.DISK_NOT_FOUND} == reasons(search(view(bare)))


def test_disks_of_one_node_that_share_a_uuid_take_nothing() -> None:
    """Nodes may share one, as cloned ones do: Longhorn looks a disk up within the replica's node."""
    clones = [node(name, disk("d1"), disk("d2")) for name in ("n1", "n2")]
    clones = [replace(one, disks=(replace(one.disks[0], uuid="same"), one.disks[1])) for one in clones]
    twins = node("n3", disk("d1"), disk("d2"))
    twins = replace(twins, disks=tuple(replace(one, uuid="twin") for one in twins.disks))
    found = search(view(*clones, twins))
    assert ["n1/d1", "n1/d2", "n2/d1", "n2/d2"] == names(found)
    assert {"n3/d1": Reason.DISK_NOT_FOUND, "n3/d2": Reason.DISK_NOT_FOUND} == reasons(found)


def test_a_hard_disk_sends_the_search_on_to_the_next_try() -> None:
    """The used disk in the new zone belongs to a failed replica whose node counts as unused by now."""
    degraded = volume(robustness="degraded", last_degraded_at="2026-01-01T00:00:00Z")
    nodes = node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="b")
    seen = view(*nodes, replicas=[failed("a", "n1"), replica("b", "n2")], settings=flags(disk_soft=False))
    found = search(seen, degraded)
    assert (["n3/d1"], Try.NEW_NODE) == (names(found), found.tried)
    assert {"n1/d1": Reason.DISK_ANTI_AFFINITY, "n2/": Reason.NODE_ANTI_AFFINITY} == reasons(found)
