"""Used nodes and zones, and the order in which the stand-in tries groups of nodes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.unit.longhorn.worlds import Raw, ask, disk, evicting, failed, node, places, replica, volume

NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)
FULL = disk(available=0)


def soft(*, in_zone: bool, on_node: bool, balance: str = "disabled") -> dict[str, str]:
    return {
        "replica-zone-soft-anti-affinity": str(in_zone).lower(),
        "replica-soft-anti-affinity": str(on_node).lower(),
        "replica-auto-balance": balance,
    }


def _with(field: str, value: str) -> Raw:
    wanted = volume()
    wanted["spec"][field] = value
    return wanted


ALL_FLAGS = [soft(in_zone=zone, on_node=here) for zone in (False, True) for here in (False, True)]


@pytest.mark.parametrize("settings", ALL_FLAGS)
def test_an_unused_zone_comes_first_under_every_setting(settings: dict[str, str]) -> None:
    nodes = [node("a", zone="z1"), node("b", zone="z1"), node("c", zone="z2")]
    assert ["c-d1"] == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=settings))


@pytest.mark.parametrize(
    ("settings", "expected"), list(zip(ALL_FLAGS, ([], [], ["b-d1"], ["b-d1"]), strict=True)), ids=str
)
def test_without_an_unused_zone_an_unused_node_needs_the_zone_flag_alone(
    settings: dict[str, str], expected: list[str]
) -> None:
    nodes = [node("a", zone="z1"), node("b", zone="z1"), node("c", FULL, zone="z2")]
    assert expected == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=settings))


@pytest.mark.parametrize(("settings", "expected"), list(zip(ALL_FLAGS, ([], [], [], ["a-d2"]), strict=True)), ids=str)
def test_a_used_node_needs_both_flags(settings: dict[str, str], expected: list[str]) -> None:
    nodes = [node("a", disk(), disk(), zone="z1"), node("b", FULL, zone="z1"), node("c", FULL, zone="z2")]
    assert expected == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=settings))


@pytest.mark.parametrize(
    ("settings", "expected"), list(zip(ALL_FLAGS, (["a-d2"], ["a-d2"], ["a-d2"], ["a-d2"]), strict=True)), ids=str
)
def test_a_node_whose_only_replica_is_evicting_may_be_used_again(settings: dict[str, str], expected: list[str]) -> None:
    nodes = [node("a", disk(), disk(), zone="z1"), node("b", FULL, zone="z2")]
    assert expected == places(ask(nodes, replicas=[evicting("r", "a-d1")], settings=settings))


@pytest.mark.parametrize(("balance", "expected"), [("disabled", []), ("least-effort", []), ("best-effort", ["a-d2"])])
def test_hard_zones_reuse_an_evicting_node_only_in_a_zone_that_empties(balance: str, expected: list[str]) -> None:
    nodes = [node("a", disk(), disk(), zone="z1"), node("b", zone="z1")]
    there = [evicting("r1", "a-d1"), replica("r2", "b-d1")]
    assert expected == places(ask(nodes, replicas=there, settings=soft(in_zone=False, on_node=True, balance=balance)))


def test_hard_zones_do_not_offer_an_unused_node_of_a_zone_that_empties() -> None:
    nodes = [node("a", FULL, zone="z1"), node("b", zone="z1")]
    assert [] == places(ask(nodes, replicas=[evicting("r", "a-d1")], settings=soft(in_zone=False, on_node=False)))


def test_one_replica_that_stays_keeps_the_node_used() -> None:
    nodes = [node("a", disk(), disk(), disk())]
    there = [evicting("r1", "a-d1"), replica("r2", "a-d2")]
    for order in (there, there[::-1]):
        assert [] == places(ask(nodes, replicas=order, settings=soft(in_zone=True, on_node=False)))


def test_an_unused_node_comes_before_an_evicting_one() -> None:
    nodes, there = [node("a", disk(), disk()), node("b")], [evicting("r", "a-d1")]
    assert ["b-d1"] == places(ask(nodes, replicas=there, settings=soft(in_zone=True, on_node=False)))
    nodes[1] = node("b", FULL)
    assert ["a-d2"] == places(ask(nodes, replicas=there, settings=soft(in_zone=True, on_node=False)))


def test_an_unused_node_comes_before_a_used_one() -> None:
    nodes, there = [node("a", disk(), disk()), node("b")], [replica("r", "a-d1")]
    assert ["b-d1"] == places(ask(nodes, replicas=there, settings=soft(in_zone=True, on_node=True)))


def test_the_last_resort_does_not_ask_for_node_tags() -> None:
    nodes, there = [node("a", disk(), disk())], [replica("r", "a-d1")]
    wanted = volume(nodeSelector=["fast"])
    assert ["a-d2"] == places(ask(nodes, wanted, there, settings=soft(in_zone=True, on_node=True)))
    assert [] == places(ask(nodes, wanted, [evicting("r", "a-d1")], settings=soft(in_zone=True, on_node=False)))
    assert [] == places(ask(nodes, wanted, settings=soft(in_zone=True, on_node=True)))


def test_hard_disks_send_the_search_to_the_next_group() -> None:
    # The unused node's only disk shares its UUID with the replica's disk, so only the used node's second disk is left.
    a, b = node("a", disk(), disk()), node("b")
    b["status"]["diskStatus"]["d1"]["diskUUID"] = "a-d1"
    settings = {**soft(in_zone=True, on_node=True), "replica-disk-soft-anti-affinity": "false"}
    assert ["a-d2"] == places(ask([a, b], replicas=[replica("r", "a-d1")], settings=settings))


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("replicaZoneSoftAntiAffinity", "replica-zone-soft-anti-affinity"),
        ("replicaSoftAntiAffinity", "replica-soft-anti-affinity"),
    ],
)
def test_the_volumes_own_flags_win(field: str, setting: str) -> None:
    nodes, there = [node("a", disk(), disk(), zone="z")], [replica("r", "a-d1")]
    everything = soft(in_zone=True, on_node=True)
    assert [] == places(ask(nodes, _with(field, "disabled"), there, settings=everything))
    refusing = {**everything, setting: "false"}
    assert ["a-d2"] == places(ask(nodes, _with(field, "enabled"), there, settings=refusing))
    assert [] == places(ask(nodes, _with(field, "ignored"), there, settings=refusing))


def test_longhorns_defaults_are_hard_nodes_and_soft_zones() -> None:
    there = [replica("r", "a-d1")]
    assert ["b-d1"] == places(ask([node("a", disk(), disk(), zone="z"), node("b", zone="z")], replicas=there))
    assert [] == places(ask([node("a", disk(), disk(), zone="z")], replicas=there))


def test_nodes_without_a_zone_share_one() -> None:
    nodes, there = [node("a"), node("b"), node("c", zone="z")], [replica("r", "a-d1")]
    assert ["c-d1"] == places(ask(nodes, replicas=there, settings=soft(in_zone=False, on_node=False)))


def test_the_region_plays_no_part() -> None:
    nodes = [node("a", zone="z", region="r1"), node("b", zone="z", region="r2")]
    assert [] == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=soft(in_zone=False, on_node=False)))


# What counts as used

HARD = soft(in_zone=False, on_node=False)


@pytest.mark.parametrize(
    "there",
    [
        replica("r"),
        replica("r", "a-d1", deleting=True),
        failed("r", "a-d1", rebuildRetryCount=5),
        failed("r", "a-d1", evictionRequested=True),
        failed("r", "a-d1", diskID=""),
    ],
)
def test_some_replicas_use_neither_node_nor_zone(there: Raw) -> None:
    settings = {**HARD, "replica-disk-soft-anti-affinity": "true"}
    assert "b-d1" in places(ask([node("a", zone="z"), node("b", zone="z")], replicas=[there], settings=settings))


def test_a_failed_replica_that_may_come_back_uses_its_zone() -> None:
    nodes = [node("a", zone="z"), node("b", zone="z")]
    assert [] == places(ask(nodes, replicas=[failed("r", "a-d1", rebuildRetryCount=4)], settings=HARD))


@pytest.mark.parametrize(
    ("since", "robustness", "expected"),
    [
        ("2026-01-01T00:50:00Z", "degraded", []),  # exactly 600 s ago: not over yet
        ("2026-01-01T00:49:59Z", "degraded", ["b-d1"]),
        ("2026-01-01T00:49:59Z", "healthy", []),
        ("", "degraded", []),
    ],
)
def test_a_failed_replica_is_ignored_once_its_replacement_is_due(
    since: str, robustness: str, expected: list[str]
) -> None:
    wanted = volume(status={"robustness": robustness, "lastDegradedAt": since})
    nodes, there = [node("a", FULL, zone="z"), node("b", zone="z")], [failed("r", "a-d1")]
    assert expected == places(ask(nodes, wanted, there, settings=HARD, now=NOW))


def test_the_wait_for_a_failed_replica_is_a_setting() -> None:
    wanted = volume(status={"robustness": "degraded", "lastDegradedAt": "2026-01-01T00:59:49Z"})
    nodes, there = [node("a", FULL, zone="z"), node("b", zone="z")], [failed("r", "a-d1")]
    settings = {**HARD, "replica-replenishment-wait-interval": "10"}
    assert ["b-d1"] == places(ask(nodes, wanted, there, settings=settings, now=NOW))


@pytest.mark.parametrize(
    "lost", [node("a", zone="z", ready="False"), node("a", zone="z", allow=False), node("x", zone="z")]
)
def test_a_replica_on_a_node_that_is_no_candidate_blocks_nothing(lost: Raw) -> None:
    assert "b-d1" in places(ask([lost, node("b", zone="z")], replicas=[replica("r", "a-d1")], settings=HARD))


# Disks under pressure, under best-effort auto-balance

PRESSED = disk(100, available=9)
SOFT_DISKS = {"replica-disk-soft-anti-affinity": "true"}


@pytest.mark.parametrize(
    ("balance", "pressure", "available", "expected"),
    [
        ("best-effort", "90", 9, ["a-d2"]),
        ("best-effort", "90", 10, []),  # 10 % is not below 100 - 90
        ("best-effort", "0", 9, []),
        ("least-effort", "90", 9, []),
        ("disabled", "90", 9, []),
    ],
)
def test_a_used_node_with_a_pressed_disk_counts_as_unused(
    balance: str, pressure: str, available: int, expected: list[str]
) -> None:
    nodes, there = [node("a", disk(100, available=available), disk())], [replica("r", "a-d1")]
    settings = soft(in_zone=True, on_node=False, balance=balance)
    settings["replica-auto-balance-disk-pressure-percentage"] = pressure
    assert expected == places(ask(nodes, replicas=there, settings=settings))


def test_reserved_bytes_count_as_used_for_pressure() -> None:
    settings = soft(in_zone=True, on_node=False, balance="best-effort")
    for reserved, expected in ((10, []), (11, ["a-d2"])):
        nodes = [node("a", disk(100, available=20, reserved=reserved), disk())]
        assert expected == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=settings))


def test_more_reserved_than_available_is_pressure_unless_pressure_means_empty() -> None:
    nodes, there = [node("a", disk(100, available=5, reserved=50), disk())], [replica("r", "a-d1")]
    settings = soft(in_zone=True, on_node=False, balance="best-effort")
    assert ["a-d2"] == places(ask(nodes, replicas=there, settings=settings))
    settings["replica-auto-balance-disk-pressure-percentage"] = "100"
    assert [] == places(ask(nodes, replicas=there, settings=settings))


def test_a_volumes_own_balance_wins_over_the_setting() -> None:
    nodes, there = [node("a", PRESSED, disk())], [replica("r", "a-d1")]
    settings = soft(in_zone=True, on_node=False)
    assert ["a-d2"] == places(ask(nodes, volume(replicaAutoBalance="best-effort"), there, settings=settings))
    settings["replica-auto-balance"] = "best-effort"
    assert [] == places(ask(nodes, volume(replicaAutoBalance="disabled"), there, settings=settings))


def test_a_disk_without_a_size_has_nothing_free_and_only_disks_in_spec_and_status_count_for_pressure() -> None:
    settings = soft(in_zone=True, on_node=False, balance="best-effort")
    for is_in_spec, expected in ((True, ["a-d2"]), (False, [])):
        known = node("a", disk(0), disk())
        if not is_in_spec:
            del known["spec"]["disks"]["d1"]
        assert expected == places(ask([known], replicas=[replica("r", "a-d2")], settings=settings | SOFT_DISKS))
