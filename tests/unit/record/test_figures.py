"""What the record tells people and Prometheus, and which changes make it look again."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import ClusterError
from controller.kube.resources import NODE_DISK_ALLOCATIONS
from controller.settings import LiveSettings
from tests.unit.record.stage import (
    OURS,
    RecordLeader,
    entry,
    image_entry,
    set_field,
    write,
)


def metrics(leader: RecordLeader) -> dict[str, float]:
    return {
        sample.name.removeprefix("longhorn_scheduler_extender_allocation_record_"): sample.value
        for family in leader.registry.collect()
        for sample in family.samples
    }


def test_metrics_and_the_status_tell_where_the_record_is_and_how_it_does() -> None:
    leader = RecordLeader()
    before = {"kept": 0, "entries": 0, "unreadable": 0, "unmatched": 0, "writes_total": 0, "failures_total": 0}
    assert before == metrics(leader)  # there is no place yet
    write(leader.backend, entry("r1", node="n3"), image_entry("i1", node="n3"), node="n3")
    leader.give("given")
    set_field(leader.api, leader.backend, "n2", {"n2-d1": {"replicas": {"r1": 10, "r2": "x"}}})
    leader.api.fail_with(ClusterError("422: no"), "patch", "replace")
    leader.round()
    expected: dict[str, Any] = {
        "place": "node-disk-allocation",
        "problem": "",
        "is_kept": True,
        "records": 3,
        "entries": 2,
        "unreadable": {"n2": "spec.diskAllocations.n2-d1.replicas.r2: is not a number of bytes"},
        "unmatched": 1,
        "writes": 2,
        "failures": 1,
        "last_failure": "n2: the record of n2 cannot be written: 422: no",
    }
    assert ("allocations", expected) == (leader.part.name, leader.part.status())
    shown = {"kept": 1, "entries": 2, "unreadable": 1, "unmatched": 1, "writes_total": 2, "failures_total": 1}
    assert shown == metrics(leader)
    leader.api.work()
    leader.round()
    leader.see()
    status = leader.part.status()
    assert ({}, 1, 3) == (status["unreadable"], status["entries"], status["writes"])


@pytest.mark.parametrize("what", ["follows", "keeps none", "has no place"])
def test_nothing_is_kept_by_a_process_that(what: str) -> None:
    leader = RecordLeader(OURS if what != "keeps none" else LiveSettings(enabled=True, allocation_record=False))
    if what == "has no place":
        leader.api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    leader.is_open = what != "follows"
    leader.round()
    assert 0 == metrics(leader)["kept"]


def test_a_follower_tells_what_its_watch_shows_and_asks_nobody() -> None:
    leader = RecordLeader(leads=False)
    write(leader.backend, entry("r1"))
    leader.see()
    leader.api.fail_with(ClusterError("nobody is to ask"))
    status = leader.part.status()
    assert ("", 1, 1) == (status["place"], status["records"], status["entries"])
