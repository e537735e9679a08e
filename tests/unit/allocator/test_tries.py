"""Anti-affinity among nodes and zones: what is used, in which order nodes are tried, eviction, auto-balance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import (
    DiskNeeds,
    LonghornSettings,
    Replica,
)
from controller.model.versions import Behaviour
from controller.rules.affinity import Try
from controller.rules.candidates import PlacementView
from controller.rules.reasons import Reason
from tests.oracle.reasons import longhorn_reason
from tests.unit.allocator.placing import ROOMY, disk, failed, names, node, reasons, replica, search, view, volume


def flags(node_soft: bool = False, zone_soft: bool = True, disk_soft: bool = True, **other: Any) -> LonghornSettings:
    return replace(
        ROOMY,
        soft_anti_affinity=node_soft,
        zone_soft_anti_affinity=zone_soft,
        disk_soft_anti_affinity=disk_soft,
        **other,
    )


# The order of tries

A, B, C = "z-a", "z-b", "z-c"


def three(**settings: Any) -> PlacementView:
    """n1 with a replica and n2 without in zone a, n3 in zone b."""
    return view(node("n1", zone=A), node("n2", zone=A), node("n3", zone=B), replicas=[replica("a", "n1")], **settings)


@pytest.mark.parametrize("node_soft", [False, True])
@pytest.mark.parametrize("zone_soft", [False, True])
def test_a_new_node_in_a_new_zone_comes_first_whatever_the_settings(node_soft: bool, zone_soft: bool) -> None:
    found = search(three(settings=flags(node_soft, zone_soft)))
    assert (["n3/d1"], Try.NEW_ZONE) == (names(found), found.tried)
    assert {"n1/": Reason.NODE_ANTI_AFFINITY, "n2/": Reason.ZONE_ANTI_AFFINITY} == reasons(found)


@pytest.mark.parametrize(
    ("node_soft", "zone_soft", "expected", "tried"),
    [
        (False, False, [], None),
        (True, False, [], None),
        (False, True, ["n2/d1"], Try.NEW_NODE),
        (True, True, ["n2/d1"], Try.NEW_NODE_SOFT),
    ],
)
def test_a_new_node_in_a_used_zone_needs_a_soft_zone_only(
    node_soft: bool, zone_soft: bool, expected: list[str], tried: Try | None
) -> None:
    seen = view(
        node("n1", zone=A), node("n2", zone=A), replicas=[replica("a", "n1")], settings=flags(node_soft, zone_soft)
    )
    found = search(seen)
    assert (expected, tried) == (names(found), found.tried)


@pytest.mark.parametrize(
    ("node_soft", "zone_soft", "expected", "tried"),
    [
        (False, False, [], None),
        (True, False, [], None),
        (False, True, [], None),
        (True, True, ["n1/d1"], Try.USED_NODE),
    ],
)
def test_a_used_node_needs_both_to_be_soft(
    node_soft: bool, zone_soft: bool, expected: list[str], tried: Try | None
) -> None:
    found = search(view(node("n1", zone=A), replicas=[replica("a", "n1")], settings=flags(node_soft, zone_soft)))
    assert (expected, tried) == (names(found), found.tried)
    assert found.tried is not None or reasons(found) == {"n1/": Reason.NODE_ANTI_AFFINITY}
    assert all(longhorn_reason(entry.rejection.reason) is None for entry in found.refusals)


def test_a_full_disk_in_a_new_zone_falls_back_to_the_next_try() -> None:
    seen = view(
        node("n1", zone=A), node("n2", zone=A), node("n3", disk(size=99), zone=B), replicas=[replica("a", "n1")]
    )
    found = search(seen)
    assert (["n2/d1"], Try.NEW_NODE) == (names(found), found.tried)
    assert {"n1/": Reason.NODE_ANTI_AFFINITY, "n3/d1": Reason.INSUFFICIENT_STORAGE} == reasons(found)


def test_nodes_without_a_zone_share_one() -> None:
    seen = view(node("n1"), node("n2"), replicas=[replica("a", "n1")], settings=flags(zone_soft=False))
    assert {"n1/": Reason.NODE_ANTI_AFFINITY, "n2/": Reason.ZONE_ANTI_AFFINITY} == reasons(search(seen))


def test_regions_play_no_part() -> None:
    seen = view(
        node("n1", zone=A, region="r1"),
        node("n2", zone=A, region="r2"),
        replicas=[replica("a", "n1")],
        settings=flags(zone_soft=False),
    )
    assert [] == names(search(seen))


@pytest.mark.parametrize("level", ["node", "zone", "disk"])
def test_a_volumes_own_flag_wins_over_the_setting(level: str) -> None:
    """The setting decides for `ignored` only; each level by itself."""
    field = {"node": "soft", "zone": "zone_soft", "disk": "disk_soft"}[level] + "_anti_affinity"
    changed: dict[str, Any] = {field: False}
    soft, hard = flags(node_soft=True), replace(flags(node_soft=True), **changed)
    nodes = [node("n1", zone=A)] if level != "zone" else [node("n1", zone=A), node("n2", zone=A)]
    for settings, own, expected in [
        (soft, "ignored", True),
        (hard, "ignored", False),
        (soft, "disabled", False),
        (hard, "enabled", True),
    ]:
        seen = view(*nodes, replicas=[replica("a", "n1")], settings=settings)
        own_flag: dict[str, Any] = {field: own}
        assert expected == bool(names(search(seen, volume(**own_flag)))), (settings, own)


def test_the_last_step_takes_used_nodes_without_their_tags() -> None:
    tagged = volume(needs=DiskNeeds(node_selector=("ssd",)))
    seen = view(node("n1"), replicas=[replica("a", "n1")], settings=flags(node_soft=True))
    assert (["n1/d1"], Try.USED_NODE) == (names(search(seen, tagged)), search(seen, tagged).tried)
    # A node that is not used stays refused by its tags, there and in every other step.
    assert {"n2/": Reason.NODE_TAGS} == reasons(search(replace(seen, nodes={**seen.nodes, "n2": node("n2")}), tagged))
    assert [] == names(search(view(node("n1"), settings=flags(node_soft=True)), tagged))
    # The disk's tags are asked all the same.
    both = volume(needs=DiskNeeds(("ssd",), ("nvme",)))
    assert {"n1/d1": Reason.DISK_TAGS} == reasons(search(seen, both))


# Which replicas make a node used


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        ({}, True),
        ({"deleting": True}, False),
        ({"active": False}, True),
        ({"failed_at": "2026-01-01T11:00:00Z"}, True),
        ({"failed_at": "2026-01-01T11:00:00Z", "rebuild_retry_count": 4}, True),
        ({"failed_at": "2026-01-01T11:00:00Z", "rebuild_retry_count": 5}, False),
        ({"failed_at": "2026-01-01T11:00:00Z", "eviction_requested": True}, False),
        ({"failed_at": "2026-01-01T11:00:00Z", "disk_uuid": ""}, False),
    ],
)
def test_used_nodes(change: dict[str, Any], is_used: bool) -> None:
    seen = view(node("n1"), replicas=[replica("a", "n1", **change)])
    assert is_used == (Reason.NODE_ANTI_AFFINITY in reasons(search(seen)).values())


@pytest.mark.parametrize(
    ("degraded_at", "robustness", "is_used"),
    [
        ("2026-01-01T11:50:00Z", "degraded", True),  # exactly the interval ago: not yet
        ("2026-01-01T11:49:59Z", "degraded", False),
        ("2026-01-01T12:49:59+01:00", "degraded", False),
        ("2026-01-01T11:00:00Z", "healthy", True),
        ("", "degraded", True),
    ],
)
def test_failed_replicas_count_until_a_replacement_is_due(degraded_at: str, robustness: str, is_used: bool) -> None:
    seen = view(node("n1"), replicas=[failed("a", "n1")])
    found = search(seen, volume(robustness=robustness, last_degraded_at=degraded_at))
    assert is_used == (Reason.NODE_ANTI_AFFINITY in reasons(found).values())
    unknown = search(replace(seen, now_utc=None), volume(robustness=robustness, last_degraded_at=degraded_at))
    assert Reason.NODE_ANTI_AFFINITY in reasons(unknown).values()


@pytest.mark.parametrize("change", [{"ready": False}, {"allow_scheduling": False}, {"schedulable": False}])
def test_a_replica_on_a_node_that_is_no_candidate_does_not_block_its_zone(change: dict[str, Any]) -> None:
    nodes = node("n1", zone=A, **change), node("n2", zone=A)
    found = search(view(*nodes, replicas=[replica("a", "n1")], settings=flags(zone_soft=False)))
    assert (["n2/d1"], Try.NEW_ZONE) == (names(found), found.tried)


def test_a_replica_on_a_node_with_other_tags_blocks_its_zone() -> None:
    nodes = node("n1", zone=A), node("n2", zone=A, tags=frozenset({"ssd"}))
    seen = view(*nodes, replicas=[replica("a", "n1")], settings=flags(zone_soft=False))
    assert {"n1/": Reason.NODE_TAGS, "n2/": Reason.ZONE_ANTI_AFFINITY} == reasons(
        search(seen, volume(needs=DiskNeeds(node_selector=("ssd",))))
    )


# Eviction


def evicting(*more: Replica, **settings: Any) -> PlacementView:
    """n1 in zone a holds nothing but an evicting replica, unless there is more."""
    return view(
        node("n1", zone=A),
        node("n2", zone=A),
        replicas=[replica("a", "n1", eviction_requested=True), *more],
        **settings,
    )


def test_an_evicting_node_may_be_used_again_in_a_hard_zone_of_nothing_else() -> None:
    found = search(evicting(settings=flags(zone_soft=False, node_soft=True)))
    assert (["n1/d1"], Try.EVICTING_ZONE) == (names(found), found.tried)


@pytest.mark.parametrize("order", [1, -1])
def test_a_zone_with_another_replica_is_not_evicting_in_either_order(order: int) -> None:
    seen = evicting(replica("b", "n2"), settings=flags(zone_soft=False))
    seen = replace(seen, replicas=seen.replicas[::order])
    assert [] == names(search(seen))
    balanced = search(seen, volume(auto_balance="best-effort"))
    assert (["n1/d1"], Try.EVICTING_ZONE) == (names(balanced), balanced.tried)
    assert [] == names(search(seen, volume(auto_balance="least-effort")))


@pytest.mark.parametrize("order", [1, -1])
def test_a_node_with_another_replica_is_not_evicting_in_either_order(order: int) -> None:
    both = [replica("a", "n1", eviction_requested=True), replica("b", "n1")][::order]
    assert [] == names(search(view(node("n1"), replicas=both)))
    assert [] == names(search(view(node("n1"), replicas=both, settings=flags(zone_soft=False))))


def test_a_soft_zone_takes_a_new_node_before_an_evicting_one() -> None:
    found = search(evicting())
    assert (["n2/d1"], Try.NEW_NODE) == (names(found), found.tried)
    full = search(evicting(), volume(needs=DiskNeeds(disk_selector=("x",))))
    assert [] == names(full)
    only = view(node("n1"), replicas=[replica("a", "n1", eviction_requested=True)])
    assert (["n1/d1"], Try.EVICTING_NODE) == (names(search(only)), search(only).tried)


def test_a_soft_node_takes_any_used_node_after_the_new_ones() -> None:
    seen = evicting(replica("b", "n2"), settings=flags(node_soft=True))
    found = search(seen)
    assert (["n1/d1", "n2/d1"], Try.USED_NODE) == (names(found), found.tried)


# Auto-balance under pressure

PRESSED = disk("d1", scheduled_bytes=100, scheduled_replicas={"a": 100})


@pytest.mark.parametrize(
    ("available", "settings", "own", "expected"),
    [
        (99, {"auto_balance": "best-effort"}, "ignored", ["n1/d2"]),
        (100, {"auto_balance": "best-effort"}, "ignored", []),
        (99, {"auto_balance": "best-effort", "disk_pressure_pct": 0}, "ignored", []),
        (99, {"auto_balance": "best-effort", "disk_pressure_pct": 91}, "ignored", []),
        (89, {"auto_balance": "best-effort", "disk_pressure_pct": 91}, "ignored", ["n1/d2"]),
        (99, {"auto_balance": "least-effort"}, "ignored", []),
        (99, {"auto_balance": "best-effort"}, "disabled", []),
        (99, {}, "best-effort", ["n1/d2"]),
    ],
)
def test_a_used_node_with_a_disk_under_pressure_counts_as_unused(
    available: int, settings: dict[str, Any], own: str, expected: list[str]
) -> None:
    pressed = replace(PRESSED, available_bytes=available)
    seen = view(node("n1", pressed, disk("d2")), replicas=[replica("a", "n1")], settings=flags(**settings))
    found = search(seen, volume(auto_balance=own))
    assert expected == names(found)
    assert found.tried is (Try.NEW_NODE if expected else None)


def test_pressure_opens_no_used_zone() -> None:
    nodes = node("n1", replace(PRESSED, available_bytes=1), disk("d2"), zone=A), node("n2", zone=B)
    seen = view(*nodes, replicas=[replica("a", "n1")], settings=flags(auto_balance="best-effort"))
    assert ["n2/d1"] == names(search(seen))
    hard = replace(seen, nodes={"n1": nodes[0]}, settings=flags(zone_soft=False, auto_balance="best-effort"))
    assert [] == names(search(hard))


def test_older_releases_open_every_used_node() -> None:
    seen = view(
        node("n1", disk("d1"), disk("d2")), replicas=[replica("a", "n1")], settings=flags(auto_balance="best-effort")
    )
    assert [] == names(search(seen))
    assert ["n1/d2"] == names(search(replace(seen, behaviour=Behaviour(balance_opens_used_nodes=True))))
