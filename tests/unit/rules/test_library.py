"""Longhorn's read-only questions, by the names that its replica scheduler gives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.longhorn import Disk, LonghornSettings, SpacePolicy
from controller.model.workload import KubeNode
from controller.rules import library
from tests.unit.allocator.placing import disk, failed, names, node, replica, view, volume

SETTINGS = LonghornSettings(space=SpacePolicy(over_provisioning_pct=200, minimal_available_pct=25))


def info(of: Disk | None = None) -> library.DiskSchedulingInfo:
    return library.get_disk_scheduling_info(of or disk(size=1000), SETTINGS)


def test_a_disk_is_told_with_its_two_limits() -> None:
    found = info(disk(size=1000, reserved_bytes=100))
    assert (1800, 250) == (found.limit_bytes, found.minimal_available_bytes)


@pytest.mark.parametrize(
    ("size", "required", "fits"),
    [(2000, 0, True), (2001, 0, False), (100, 749, True), (100, 750, False)],
    ids=["up to the limit", "beyond it", "more than the minimum stays", "just the minimum stays"],
)
def test_room_on_a_disk(size: int, required: int, fits: bool) -> None:
    assert fits is library.is_schedulable_to_disk(size, required, info())


@pytest.mark.parametrize(
    ("available", "percentage", "is_under"),
    [(200, 80, False), (199, 80, True), (0, 0, False), (0, -1, False)],
)
def test_a_disk_under_pressure(available: int, percentage: int, is_under: bool) -> None:
    assert is_under is library.is_disk_under_pressure(percentage, info(disk(size=1000, available_bytes=available)))


@pytest.mark.parametrize(
    ("scheduled", "reserved", "required", "fits"),
    [(500, 100, 299, True), (500, 100, 300, False), (799, 100, 0, True), (800, 100, 0, False), (0, 0, 750, False)],
    ids=["89 %", "90 %", "scheduled 89 %", "scheduled 90 %", "too little stays available"],
)
def test_room_on_a_disk_that_must_not_come_under_pressure(
    scheduled: int, reserved: int, required: int, fits: bool
) -> None:
    found = info(disk(size=1000, scheduled_bytes=scheduled, reserved_bytes=reserved))
    assert fits is library.is_schedulable_to_disk_consider_disk_pressure(90, 10, required, found)


def test_a_disk_without_a_size_takes_nothing() -> None:
    assert not library.is_schedulable_to_disk_consider_disk_pressure(90, 0, 0, info(disk(size=0)))


def test_nodes_that_take_replicas_of_a_data_engine() -> None:
    nodes = {
        "n1": node("n1"),
        "n2": node("n2", ready=False),
        "n3": node("n3", allow_scheduling=False),
        "n4": node("n4"),
    }
    kube = {name: KubeNode(name, unschedulable=False, disables_v2=name == "n4") for name in nodes}
    assert ["n1", "n4"] == list(library.list_schedulable_nodes(nodes, "v1", kube))
    assert ["n1"] == list(library.list_schedulable_nodes(nodes, "v2", kube))
    assert ["n1", "n4"] == list(library.list_schedulable_nodes(nodes, "v2"))


def test_nodes_with_room_whatever_their_state() -> None:
    nodes = {
        "n1": node("n1", disk("d1", 10), disk("d2", 100), ready=False),
        "n2": node("n2", disk("d1", 10)),
        "n3": replace(node("n3"), disks=()),
    }
    assert ["n1"] == list(library.filter_nodes_schedulable_for_volume(nodes, volume(size=150), SETTINGS))


def test_disks_for_a_replica() -> None:
    found = library.find_disk_candidates(view(node("n1"), node("n2", disk("d1", 10))), volume(), replica())
    assert ["n1/d1"] == names(found)


@pytest.mark.parametrize(
    ("robustness", "affinity", "seconds"),
    [("degraded", "", 301.0), ("degraded", "n1", 0.0), ("healthy", "", 0.0)],
    ids=["a failed one may come back", "bound to a node", "nothing is missing"],
)
def test_when_a_new_replica_is_made(robustness: str, affinity: str, seconds: float) -> None:
    degraded = volume(robustness=robustness, last_degraded_at="2026-01-01T11:55:00Z")
    seen = view(node("n1"), replicas=[failed("r", "n1")])
    assert seconds == library.require_new_replica(seen, degraded, affinity)
