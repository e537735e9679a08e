"""What each data locality means, and where Longhorn is going to add a copy next to the engine: both sides of every
condition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from controller.model.longhorn import DATA_LOCALITIES, LonghornSettings, Replica, Volume
from controller.model.longhorn_settings import longhorn_settings
from controller.model.parse import volume_facts
from controller.rules.locality import LOCALITIES, bound_to, locality_named, node_of_copy_to_come
from controller.rules.provisioning import check_class
from tests.fakes.builders import replica, storage_class, volume

SETTINGS = LonghornSettings()
SINCE = "2026-01-01T00:00:00Z"
FAILED = {"failed_at": SINCE}


def attached(count: int = 1, **other: Any) -> Volume:
    """A healthy volume that is attached to n1."""
    fields: dict[str, Any] = {"attached_to": "n1", "replica_count": count, "frontend": "blockdev"}
    return volume("vol", **{**fields, "locality": "best-effort", "robustness": "healthy", **other})


def on(node: str, **fields: Any) -> Replica:
    return replica(f"r-{node}", "vol", on=node, **{"healthy_at": SINCE, **fields})


def test_each_data_locality_that_is_read_has_a_row() -> None:
    assert set(LOCALITIES) == set(DATA_LOCALITIES)
    assert LonghornSettings().default_data_locality == DATA_LOCALITIES[0] == "disabled"


def test_an_unknown_data_locality_is_refused_where_it_is_read_and_promises_nothing_elsewhere() -> None:
    raw = {"metadata": {"name": "vol"}, "spec": {"dataLocality": "rack-local"}}
    with pytest.raises(MalformedRequestError, match=r"spec\.dataLocality.*is not one of .*'rack-local'"):
        volume_facts(raw)
    with pytest.raises(MalformedRequestError, match="'rack-local' is not one of disabled, best-effort, strict-local"):
        check_class(storage_class("lh", {"dataLocality": "rack-local"}))
    settings, problems = longhorn_settings({"default-data-locality": "rack-local"})
    assert (["default-data-locality"], "disabled") == ([one.name for one in problems], settings.default_data_locality)
    assert locality_named("rack-local") == locality_named("disabled")


@pytest.mark.parametrize(("locality", "bound"), [("disabled", ""), ("best-effort", ""), ("strict-local", "n1")])
def test_only_strict_local_binds_copies_to_the_node_of_their_volume(locality: str, bound: str) -> None:
    facts = attached(locality=locality)
    assert (bound, bound or "n2") == (bound_to(facts), bound_to(facts, "n2"))
    assert bound_to(replace(facts, node_id=""), "n2") == ("" if bound else "n2")


@pytest.mark.parametrize(
    ("facts", "replicas", "is_to_come"),
    [
        pytest.param({}, [on("n2")], True, id="attached where no replica is"),
        pytest.param({}, [on("n1")], False, id="a replica is there"),
        pytest.param({}, [], False, id="nothing to copy from"),
        pytest.param({"locality": "disabled"}, [on("n2")], False, id="no locality"),
        pytest.param({"locality": "strict-local"}, [on("n2")], False, id="strict-local never moves"),
        pytest.param({"state": "attaching"}, [on("n2")], True, id="attaching"),
        pytest.param({"state": "detaching"}, [on("n2")], False, id="detaching"),
        pytest.param({"node_id": ""}, [on("n2")], False, id="no node"),
        pytest.param({"frontend": ""}, [on("n2")], False, id="no frontend"),
        pytest.param({"is_standby": True}, [on("n2")], False, id="standby"),
        pytest.param({"restore_required": True}, [on("n2")], False, id="restoring"),
        pytest.param({"deleting": True}, [on("n2")], False, id="going"),
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
        pytest.param({"count": 2}, [on("n2"), on("n3", **FAILED)], False, id="a failed copy is none"),
        pytest.param({"count": 2}, [on("n2"), on("n3", healthy_at="")], False, id="one that is being rebuilt is none"),
        pytest.param({"count": 2}, [on("n2"), on("n3")], True, id="enough healthy copies"),
        pytest.param({"migration_node_id": "n3"}, [on("n2")], False, id="migrating"),
        pytest.param({"expansion_required": True}, [on("n2")], False, id="growing"),
    ],
)
def test_locality_makes_a_copy_next_to_the_engine(
    facts: dict[str, Any], replicas: list[Replica], is_to_come: bool
) -> None:
    assert ("n1" if is_to_come else "") == node_of_copy_to_come(attached(**facts), replicas, SETTINGS)


def test_nothing_is_added_where_longhorns_limit_is_zero() -> None:
    none = replace(SETTINGS, concurrent_rebuild_limit=0)
    assert node_of_copy_to_come(attached(), [on("n2")], none) == ""
