"""A new leader fences before it decides anything."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controller.errors import ClusterError, ConflictError, ForbiddenError, NotLeaderError, UnavailableError
from controller.kube.resources import LONGHORN_REPLICAS, SERVICE_ACCOUNTS, Resource
from controller.placement.gate import FENCED_SECONDS, OTHER_SERVERS_SECONDS
from tests.unit.placement.gate_stage import GateCell, GateLeader

START = "2026-01-01T00:00:00Z"


def test_a_term_is_written_with_its_begin_and_the_other_servers_get_time_to_see_it() -> None:
    cell = GateCell()
    began = cell.clock.now()
    GateLeader(cell).lead("1")
    assert {"term": "1", "since": START, "renewed": START} == cell.stamps()
    assert OTHER_SERVERS_SECONDS == cell.clock.now() - began


def test_a_term_begins_once_a_write_of_the_former_one_is_refused() -> None:
    cell = GateCell()
    GateLeader(cell).lead("1")
    cell.fence_lag, began = 0.45, cell.clock.now()
    GateLeader(cell).lead("2")
    assert 0.5 + OTHER_SERVERS_SECONDS == pytest.approx(cell.clock.now() - began)


@pytest.mark.parametrize("has_replica", [True, False])
def test_a_fence_that_refuses_nothing_is_not_awaited_long(has_replica: bool, caplog: pytest.LogCaptureFixture) -> None:
    cell = GateCell()
    GateLeader(cell).lead("1")
    cell.fence_lag, began = 1e9, cell.clock.now()
    if not has_replica:
        cell.drop(LONGHORN_REPLICAS, "r1")
    GateLeader(cell).lead("2")
    waited = FENCED_SECONDS if has_replica else 0.0
    assert waited + OTHER_SERVERS_SECONDS == pytest.approx(cell.clock.now() - began, abs=0.2)
    assert has_replica is ("was not refused by the fence" in caplog.text)
    assert "2" == cell.stamps()["term"]


@pytest.mark.parametrize(
    "error", [None, ForbiddenError("403: no right"), ClusterError("422: a webhook says no")], ids=str
)
def test_where_the_account_cannot_be_written_the_term_begins_without_the_guarantee(error: ClusterError | None) -> None:
    """None: there is no account."""
    cell = GateCell()
    if error is None:
        cell.drop(SERVICE_ACCOUNTS)
    else:
        cell.api.fail_with(error, "patch", about=SERVICE_ACCOUNTS)
    leader = GateLeader(cell).lead("1")
    assert ("missing", None) == (leader.state, leader.gate.figures().renewed_seconds_ago)
    leader.go_on(0)
    assert "missing" == leader.state
    assert str(error or "does not exist") in leader.problem


def test_a_fence_that_cannot_be_proven_keeps_no_leader_from_its_term(caplog: pytest.LogCaptureFixture) -> None:
    cell = GateCell()
    cell.write_stamps(term="4-abc")
    cell.api.fail_with(ClusterError("422: a webhook says no"), "patch", about=LONGHORN_REPLICAS)
    assert "following" != GateLeader(cell).lead("5-abc").state
    assert "the fence is not proven: 422: a webhook says no" in caplog.text


def test_a_refusal_by_somebody_else_does_not_prove_the_fence(caplog: pytest.LogCaptureFixture) -> None:
    cell = GateCell()
    cell.write_stamps(term="4-abc")
    cell.api.fail_with(ForbiddenError("403: a webhook says no"), "patch", about=LONGHORN_REPLICAS)
    GateLeader(cell).lead("5-abc")
    assert "was not refused by the fence term=5-abc proof=unclear" in caplog.text


@pytest.mark.parametrize("garbage", ["x" * 200, "a\nb", "\u00e4", " "])
def test_a_term_that_is_garbage_keeps_no_leader_from_its_own(garbage: str) -> None:
    cell = GateCell()
    cell.write_stamps(term=garbage, since="garbage", renewed="garbage")
    leader = GateLeader(cell).settled("5-abc")
    assert ("enforced", "5-abc") == (leader.state, cell.stamps()["term"])


@pytest.mark.parametrize(
    ("verb", "about"), [("patch", SERVICE_ACCOUNTS), ("list", LONGHORN_REPLICAS)], ids=["at once", "half way"]
)
def test_an_api_server_that_does_not_answer_keeps_the_term_from_beginning_and_the_next_try_fences_the_former_one(
    verb: str, about: Resource
) -> None:
    cell = GateCell()
    GateLeader(cell).lead("1")
    leader, cell.fence_lag = GateLeader(cell), 0.45
    cell.api.fail_with(UnavailableError("503"), verb, about=about)
    with pytest.raises(UnavailableError):
        leader.lead("2")
    assert "following" == leader.state
    cell.api.work()
    began = cell.clock.now()
    leader.lead("2")
    assert 0.5 + OTHER_SERVERS_SECONDS == pytest.approx(cell.clock.now() - began)


def test_the_account_is_written_again_where_others_wrote_it_meanwhile() -> None:
    cell = GateCell()
    cell.api.fail_with(ConflictError("409"), "patch", times=2)
    GateLeader(cell).lead("1")
    assert "1" == cell.stamps()["term"]

    cell.api.fail_with(ConflictError("409"), "patch")
    with pytest.raises(ConflictError):
        GateLeader(cell).lead("2")


@pytest.mark.parametrize("is_over", [True, False], ids=["it has gone", "it goes before the write"])
def test_a_leader_whose_lease_has_gone_does_not_replace_the_next_term(is_over: bool) -> None:
    cell = GateCell()
    late = GateLeader(cell)

    def overtake(verb: str = "patch", _resource: object = None) -> None:
        if verb == "patch":
            cell.api.work()
            late.is_current = False
            GateLeader(cell).lead("2")

    if is_over:
        overtake()
    else:
        cell.api.fail = overtake
    with pytest.raises(NotLeaderError):
        late.lead("1")
    assert "2" == cell.stamps()["term"]


@pytest.mark.parametrize("hours", [1, -1])
def test_the_stamps_are_of_the_servers_clock_whatever_this_machine_says(hours: int) -> None:
    cell = GateCell()
    cell.ahead = timedelta(hours=hours)
    leader = GateLeader(cell).settled()
    assert "enforced" == leader.state
    assert cell.is_closed()
