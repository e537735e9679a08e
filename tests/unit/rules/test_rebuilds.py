"""Which replicas Longhorn is going to make by itself, with both sides of every condition."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.model.longhorn import LonghornSettings, Replica, Volume
from controller.rules.rebuilds import Cause, Rebuild, rebuilds_ahead
from tests.fakes.builders import GIB, replica, volume

SETTINGS = LonghornSettings()
DEGRADED_AT = "2026-01-01T00:00:00Z"
DUE = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)  # 600 s later
LATER = DUE + timedelta(seconds=1)
HEALTHY = {"healthy_at": DEGRADED_AT}
FAILED = {"healthy_at": DEGRADED_AT, "failed_at": DEGRADED_AT}


def attached(count: int = 2, *, locality: str = "disabled", **other: Any) -> Volume:
    """A healthy volume of 100 GiB, 30 of them written, attached to n1."""
    fields: dict[str, Any] = {
        "attached_to": "n1",
        "replica_count": count,
        "frontend": "blockdev",
        "robustness": "healthy",
        "actual_size_bytes": 30 * GIB,
    }
    return volume("vol", locality=locality, **{**fields, **other})


def degraded(count: int = 2, **other: Any) -> Volume:
    return attached(count, **{"robustness": "degraded", "last_degraded_at": DEGRADED_AT, **other})


def on(node: str, **fields: Any) -> Replica:
    return replica(f"r-{node}", "vol", on=node, **{**HEALTHY, **fields})


def causes(facts: Volume, *replicas: Replica, now: datetime = LATER, **settings: Any) -> list[tuple[Cause, str]]:
    ahead = rebuilds_ahead(facts, replicas, replace(SETTINGS, **settings))
    found = [entry for entry in ahead if entry.due_at is None or now > entry.due_at]
    return [(entry.cause, entry.node) for entry in found]


ANYWHERE = [(Cause.REPLENISHMENT, "")]
EVICTED = [(Cause.EVICTION, "")]


def test_a_volume_with_all_its_replicas_awaits_none() -> None:
    assert [] == causes(attached(), on("n1"), on("n2"))


def test_the_copy_to_come_has_the_volumes_size_and_copies_what_was_written() -> None:
    facts = degraded()
    (entry,) = rebuilds_ahead(facts, [on("n1")], SETTINGS)
    assert Rebuild("vol", Cause.REPLENISHMENT, 100 * GIB, 30 * GIB, facts.needs) == entry


@pytest.mark.parametrize(
    ("facts", "second", "now", "expected"),
    [
        pytest.param(degraded(), None, DUE, ANYWHERE, id="no replica to wait for"),
        pytest.param(degraded(), on("n2", **FAILED), DUE, [], id="waited for until the interval has passed"),
        pytest.param(degraded(), on("n2", **FAILED), LATER, ANYWHERE, id="the interval has passed"),
        pytest.param(degraded(), on("n2", **FAILED, rebuild_retry_count=4), DUE, [], id="4 rebuilds failed"),
        pytest.param(degraded(), on("n2", **FAILED, rebuild_retry_count=5), DUE, ANYWHERE, id="5 rebuilds failed"),
        pytest.param(degraded(3), on("n2", **FAILED), DUE, ANYWHERE, id="one more is missing than may come back"),
        pytest.param(
            degraded(last_degraded_at=""), on("n2", **FAILED), DUE, ANYWHERE, id="since when it is degraded is unknown"
        ),
        pytest.param(degraded(), on("n2", **FAILED, deleting=True), DUE, ANYWHERE, id="it is being deleted"),
        pytest.param(degraded(), on("n2", **FAILED, active=False), DUE, ANYWHERE, id="an inactive twin"),
        pytest.param(attached(), on("n2", **FAILED), DUE, ANYWHERE, id="the volume is not degraded"),
        pytest.param(
            attached(last_degraded_at=DEGRADED_AT), on("n2", **FAILED), DUE, ANYWHERE, id="it was degraded once"
        ),
        pytest.param(degraded(), on("n2", healthy_at=""), LATER, [], id="its rebuild goes on"),
        pytest.param(degraded(), replica("r2", "vol"), LATER, [], id="its object is there, unplaced"),
        pytest.param(degraded(migration_node_id="n9"), None, LATER, [], id="migrating"),
        pytest.param(degraded(expansion_required=True), None, LATER, [], id="growing"),
        pytest.param(degraded(deleting=True), None, LATER, [], id="deleting"),
        pytest.param(degraded(data_layout="sharded"), None, LATER, [], id="sharded"),
        pytest.param(degraded(robustness="faulted"), None, LATER, [], id="faulted"),
        pytest.param(degraded(state="detached", node_id=""), None, LATER, [], id="detached"),
    ],
)
def test_a_missing_copy_is_made_when_no_failed_one_can_come_back(
    facts: Volume, second: Replica | None, now: datetime, expected: list[tuple[Cause, str]]
) -> None:
    replicas = [on("n1")] if second is None else [on("n1"), second]
    assert expected == causes(facts, *replicas, now=now)


def test_the_wait_interval_is_longhorns_setting() -> None:
    waiting = degraded(), on("n1"), on("n2", **FAILED)
    early = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert [] == causes(*waiting, now=early, replenishment_wait_seconds=60)
    assert ANYWHERE == causes(*waiting, now=early + timedelta(microseconds=1), replenishment_wait_seconds=60)


def test_nothing_is_rebuilt_where_longhorns_limit_is_zero() -> None:
    evicting = on("n2", eviction_requested=True)
    for limit, expected in ((1, EVICTED), (0, [])):
        assert expected == causes(attached(), on("n1"), evicting, concurrent_rebuild_limit=limit)


@pytest.mark.parametrize(("engine", "setting"), [("v1", "offline_rebuilding_v1"), ("v2", "offline_rebuilding_v2")])
def test_detached_volumes_are_rebuilt_where_offline_rebuilding_is_on(engine: str, setting: str) -> None:
    facts = degraded(state="detached", node_id="")
    facts = replace(facts, needs=replace(facts.needs, data_engine=engine))
    for name in ("offline_rebuilding_v1", "offline_rebuilding_v2"):
        flag: dict[str, Any] = {name: True}
        assert (ANYWHERE if name == setting else []) == causes(facts, on("n1"), **flag)


def test_nothing_is_copied_from_a_volume_without_a_healthy_replica() -> None:
    for fields in (FAILED, {"healthy_at": ""}, {"disk_uuid": ""}):
        assert [] == causes(degraded(), on("n1", **fields))
    assert ANYWHERE == causes(degraded(), on("n1"))


# Eviction


@pytest.mark.parametrize("state", ["attached", "detached"])
def test_an_evicting_replica_needs_one_more_until_enough_others_are_there(state: str) -> None:
    facts = attached(state=state)
    evicting = on("n2", eviction_requested=True)
    assert EVICTED == causes(facts, on("n1"), evicting)
    assert [] == causes(facts, on("n1"), evicting, on("n3"))
    assert [] == causes(facts, on("n1"), evicting, replica("new", "vol"))


def test_an_evicting_replica_is_not_waited_for_with_the_failed_ones() -> None:
    others = on("n1"), on("n3", **FAILED), on("n4", **FAILED)
    assert [] == causes(degraded(3), *others, now=DUE)
    assert ANYWHERE == causes(degraded(3), *others, on("n2", eviction_requested=True), now=DUE)


def test_a_strict_local_volume_stays_on_its_node_when_it_leaves_a_disk() -> None:
    facts = attached(1, locality="strict-local", state="detached", node_id="")
    assert [(Cause.EVICTION, "n1")] == causes(facts, on("n1", eviction_requested=True))


# Locality


@pytest.mark.parametrize(
    ("facts", "replicas", "expected"),
    [
        pytest.param({}, [on("n2")], True, id="attached where no replica is"),
        pytest.param({}, [on("n1")], False, id="a replica is there"),
        pytest.param({"locality": "disabled"}, [on("n2")], False, id="no locality"),
        pytest.param({"locality": "strict-local"}, [on("n2")], False, id="strict-local never moves"),
        pytest.param({"state": "attaching"}, [on("n2")], True, id="attaching"),
        pytest.param({"state": "detaching"}, [on("n2")], False, id="detaching"),
        pytest.param({"node_id": ""}, [on("n2")], False, id="no node"),
        pytest.param({"frontend": ""}, [on("n2")], False, id="no frontend"),
        pytest.param({"is_standby": True}, [on("n2")], False, id="standby"),
        pytest.param({"restore_required": True}, [on("n2")], False, id="restoring"),
        pytest.param({"access_mode": "rwx"}, [on("n2")], True, id="shared: the share manager's node"),
        pytest.param(
            {}, [on("n2"), replica("new", "vol", hard_node_affinity="n1")], False, id="its object waits already"
        ),
        pytest.param(
            {}, [on("n2"), replica("new", "vol", hard_node_affinity="n3")], True, id="another node's object waits"
        ),
        pytest.param({}, [on("n2"), on("n1", **FAILED)], False, id="a failed one there may come back"),
        pytest.param({}, [on("n2"), on("n1", **FAILED, rebuild_retry_count=5)], True, id="a failed one is lost"),
        pytest.param({}, [on("n2"), on("n1", deleting=True)], True, id="the one there is going"),
        pytest.param({}, [on("n2"), on("n1", active=False)], True, id="the one there is a twin"),
        pytest.param({"count": 2}, [on("n2")], False, id="too few healthy copies"),
        pytest.param({"count": 2}, [on("n2"), on("n3")], True, id="enough healthy copies"),
        pytest.param({"migration_node_id": "n3"}, [on("n2")], False, id="migrating"),
    ],
)
def test_locality_makes_a_copy_next_to_the_engine(
    facts: dict[str, Any], replicas: list[Replica], expected: bool
) -> None:
    given = {"locality": "best-effort", **facts}
    found = causes(attached(given.pop("count", 1), **given), *replicas)
    assert expected == ((Cause.LOCALITY, "n1") in found)


# Creation


@pytest.mark.parametrize(
    ("locality", "state", "expected"),
    [
        ("disabled", "creating", [(Cause.CREATION, "")]),
        ("disabled", "detached", []),
        ("disabled", "", []),
        ("best-effort", "creating", []),  # their replicas wait for the volume's node
        ("strict-local", "creating", []),
    ],
)
def test_a_volume_that_is_being_made_gets_its_replicas_anywhere(
    locality: str, state: str, expected: list[tuple[Cause, str]]
) -> None:
    facts = volume("vol", locality=locality, state=state, replica_count=2)
    assert expected == causes(facts)
    assert [2] * len(expected) == [entry.copies for entry in rebuilds_ahead(facts, [], SETTINGS)]
    assert [] == causes(replace(facts, deleting=True))
    assert [] == causes(facts, replica("r", "vol"))


# How many


@pytest.mark.parametrize(
    ("count", "replicas", "copies"),
    [
        (3, [on("n1")], 2),
        (3, [on("n1"), on("n2", **FAILED)], 2),
        (4, [on("n1"), on("n2", eviction_requested=True), on("n3", eviction_requested=True)], 3),
        (3, [on("n1"), on("n2", eviction_requested=True), on("n3", eviction_requested=True)], 2),
    ],
)
def test_every_copy_that_is_missing_is_awaited(count: int, replicas: list[Replica], copies: int) -> None:
    (entry,) = rebuilds_ahead(degraded(count), replicas, SETTINGS)
    assert copies == entry.copies
