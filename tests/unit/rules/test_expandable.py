"""The rule itself. tests/longhorn_rules/cases.yaml has the states, asked of product and stand-in alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.versions import NEWEST, Behaviour
from controller.rules.expandable import GrowthCase, Lasting, Route, check_expandable
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, disk, replica, volume

FAILED_CLONE: dict[str, Any] = {"data_source": "vol://src", "clone_state": "failed"}


def case(route: Route = Route.CLAIM, new_gib: float = 20, behaviour: Behaviour = NEWEST, **state: Any) -> GrowthCase:
    """A volume of 10 GiB with a replica on n1 and one without a place."""
    replicas = replica("a", "v", on="n1"), replica("b", "v")
    return GrowthCase(volume("v", 10, **state), replicas, (("n1", disk("d1")),), int(new_gib * GIB), behaviour, route)


def said(of: GrowthCase) -> tuple[Lasting, Reason, str] | None:
    found = check_expandable(of)
    return None if found is None else (found.lasting, found.rejection.reason, found.disk)


def test_nothing_speaks_against_an_ordinary_volume() -> None:
    assert said(case()) is None


def test_what_never_passes_is_said_before_what_does() -> None:
    assert (Lasting.NOT_NOW, Reason.FAULTED, "") == said(case(robustness="faulted"))
    assert (Lasting.NEVER, Reason.CLONE_FAILED, "") == said(case(robustness="faulted", **FAILED_CLONE))
    limit = case(new_gib=16 * 1024, robustness="faulted")
    assert (Lasting.NEVER, Reason.INCOMPATIBLE_SIZE, "d1") == said(limit)


def test_a_disk_is_named() -> None:
    broken = replace(case(), disks=(("n1", replace(disk("d1"), ready=False)),))
    assert (Lasting.NOT_NOW, Reason.DISK_NOT_READY, "d1") == said(broken)


@pytest.mark.parametrize(
    ("state", "behaviour"),
    [
        ({"state": "attaching"}, NEWEST),
        ({"state": "creating"}, NEWEST),
        ({"state": "deleting"}, NEWEST),
        ({"migration_node_id": "n2"}, NEWEST),
        ({"state": "attached", "scheduled": False}, Behaviour(expansion_needs_scheduled=True)),
    ],
)
def test_what_csi_service_and_api_ask_is_not_asked_of_a_volume_object(
    state: dict[str, Any], behaviour: Behaviour
) -> None:
    assert said(case(behaviour=behaviour, **state)) is not None
    assert said(case(Route.VOLUME, behaviour=behaviour, **state)) is None


@pytest.mark.parametrize("route", Route)
def test_what_the_webhook_for_volumes_asks_is_asked_on_both_ways(route: Route) -> None:
    assert (Lasting.NOT_NOW, Reason.RESTORING, "") == said(case(route, restore_required=True))
    assert (Lasting.NOT_NOW, Reason.NOT_SCHEDULED, "") == said(case(route, scheduled=False))
    assert (Lasting.NEVER, Reason.CLONE_FAILED, "") == said(case(route, **FAILED_CLONE))
