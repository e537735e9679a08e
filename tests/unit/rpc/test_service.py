"""HoldExpansion on a real gRPC server with mutual TLS: who may call, who answers, what failures look like."""

from __future__ import annotations

import logging
from datetime import datetime

import grpc
import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import Caller, GrowthOutcome, GrowthRequest
from controller.kube.bounded_reads import BURST_SECONDS
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import LIMITS
from tests.fakes.builders import GIB, volume
from tests.unit.rpc.leaders import Chain, Leader, Reply, caller, hold_expansion
from tests.waiting import wait_until


def volume_of(leader: Leader) -> str:
    leader.cluster.add_node("n1")
    return leader.cluster.add_volume("a")


def of_claim(volume: str, gib: float, **more: object) -> pb.HoldExpansionRequest:
    return pb.HoldExpansionRequest(
        claim_namespace="ns",
        claim_name="a",
        volume_name=volume,
        size_bytes=int(gib * GIB),
        **more,  # type: ignore[arg-type]
    )


def test_growth_is_admitted_held_and_refused_with_numbers(leader: Leader) -> None:
    name = volume_of(leader)
    reply = leader.ask(of_claim(name, 200))
    assert (Reply.ADMITTED, 200 * GIB) == (reply.verdict, reply.size_bytes)
    assert 100 * GIB == leader.cluster.allocator.snapshot().held_bytes

    reply = leader.ask(of_claim(name, 500))
    assert (Reply.REFUSED, name, 400 * GIB) == (reply.verdict, reply.volume_name, reply.largest_bytes)
    assert [("n1", "d1")] == [(entry.node, entry.disk) for entry in reply.problems]
    assert ["admitted", "refused"] == leader.calls.outcomes


def test_what_is_admitted_for_later_says_why_in_the_answer_and_in_the_log(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    name = volume_of(leader)
    leader.cluster.allocator.observe_volume(name, volume(name, 100, restore_required=True))
    with caplog.at_level(logging.INFO):
        reply = leader.ask(of_claim(name, 200))
        wait_until(lambda: "outcome=admitted" in caplog.text, "the log's line")
    assert (Reply.ADMITTED, ["VolumeRestoring"]) == (reply.verdict, [problem.reason for problem in reply.problems])
    assert "reasons=VolumeRestoring " in caplog.text


def test_a_dry_run_holds_nothing(leader: Leader) -> None:
    assert Reply.ADMITTED == leader.ask(of_claim(volume_of(leader), 200, dry_run=True)).verdict
    assert 0 == leader.cluster.allocator.snapshot().held_bytes
    assert ["dry-run"] == leader.calls.outcomes


def test_only_the_leader_answers_and_never_on_old_data(leader: Leader) -> None:
    name = volume_of(leader)
    leader.checks.is_fresh = False
    assert "too old" in leader.refusal(of_claim(name, 200))
    leader.checks.is_leading = False
    assert "UNAVAILABLE: this process does not lead" == leader.refusal(of_claim(name, 200))
    assert 0 == leader.cluster.allocator.snapshot().held_bytes


def test_an_answer_that_was_decided_in_a_term_that_has_ended_is_not_given(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = volume_of(leader)
    real = leader.cluster.allocator.expansions.hold

    def hold(request: GrowthRequest, now_utc: datetime, asker: Caller) -> GrowthOutcome:
        leader.checks.term += 1
        return real(request, now_utc, asker)

    monkeypatch.setattr(leader.cluster.allocator.expansions, "hold", hold)
    assert "term" in leader.refusal(of_claim(name, 200))


@pytest.mark.parametrize("mode", [Mode.BYPASS, Mode.CLOSED])
def test_nothing_is_checked_while_the_extender_is_switched_off(leader: Leader, mode: Mode) -> None:
    leader.checks.mode = mode
    assert Reply.NOT_CHECKED == leader.ask(of_claim(volume_of(leader), 10_000)).verdict


def test_nothing_is_allowed_while_it_is_not_known_whether_it_is_on(leader: Leader) -> None:
    leader.checks.mode = Mode.UNKNOWN
    assert leader.refusal(of_claim(volume_of(leader), 10_000)).startswith("UNAVAILABLE: ")


def test_what_the_stores_lack_is_read_once_and_taken_for_absent_if_it_is(leader: Leader) -> None:
    assert Reply.NOT_CHECKED == leader.ask(of_claim("pvc-gone", 10)).verdict
    assert [("pv", "pvc-gone")] == leader.reads.reads


def test_of_volumes_that_nobody_has_so_many_are_read_and_the_others_not_judged(leader: Leader) -> None:
    most = int(BURST_SECONDS * LIMITS.a_second)
    refused = ""
    for number in range(20 * most):
        try:
            leader.ask(of_claim(f"pvc-{number}", 10))
        except grpc.RpcError as error:
            refused = f"{error.code().name}"
            break
    assert "ABORTED" == refused
    assert most <= len(leader.reads.reads)
    assert "too-many-reads" == leader.calls.outcomes[-1]
    assert Reply.ADMITTED == leader.ask(of_claim(volume_of(leader), 200)).verdict  # nothing has to be read


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.HoldExpansionRequest(size_bytes=1), "volume_name"),
        (pb.HoldExpansionRequest(volume_name="v"), "size_bytes"),
        (pb.HoldExpansionRequest(volume_name="v", size_bytes=-1), "size_bytes"),
        (pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_name="c"), "claim_name"),
        (pb.HoldExpansionRequest(volume_name="v" * 254, size_bytes=1), "volume_name"),
        (pb.HoldExpansionRequest(volume_name=".", size_bytes=1), "volume_name"),
        (
            pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_namespace="a/b", claim_name="c"),
            "claim_namespace",
        ),
        (pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_namespace="n", claim_name=".."), "claim_name"),
    ],
)
def test_a_wrong_field_is_named(leader: Leader, request_: pb.HoldExpansionRequest, field: str) -> None:
    assert leader.refusal(request_).startswith(f"INVALID_ARGUMENT: {field}: ")


def test_the_service_is_pointed_here_while_leading_and_let_go_at_the_end(chain: Chain) -> None:
    leader = Leader(chain)
    leader.checks.is_leading = False
    with leader:
        assert 0 == leader.endpoint.points
        leader.checks.is_leading = True
        wait_until(lambda: leader.endpoint.points == 1)
    assert 1 == leader.endpoint.cleared


def test_the_service_is_let_go_also_when_it_was_noticed_before_the_end_that_the_term_is_over(chain: Chain) -> None:
    leader = Leader(chain)
    with leader:
        wait_until(lambda: leader.endpoint.points == 1)
        leader.checks.is_leading = False
        wait_until(lambda: not leader.server.status()["points_here"])
    assert 1 == leader.endpoint.cleared


def test_without_a_certificate_nothing_is_served_and_the_reason_is_shown(chain: Chain) -> None:
    leader = Leader(chain)
    leader.material = None
    leader.server.start()
    try:
        wait_until(lambda: "certificate" in leader.server.status()["problem"])
        assert 0 == leader.endpoint.points
        leader.material = chain.server
        wait_until(lambda: bool(leader.server.status()["is_serving"]))
    finally:
        leader.server.stop()


def test_a_port_that_is_taken_is_told(chain: Chain, leader: Leader) -> None:
    second = Leader(chain, leader.server.port)
    second.server.start()
    try:
        wait_until(lambda: "cannot listen" in second.server.status()["problem"])
    finally:
        second.server.stop()


def test_nothing_is_judged_or_held_for_a_caller_that_has_gone(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    name = volume_of(leader)
    real = leader.cluster.allocator.expansions.hold

    def hold(request: GrowthRequest, now_utc: datetime, asker: Caller) -> GrowthOutcome:
        wait_until(lambda: asker.has_left)  # its turn at the ledger comes late
        return real(request, now_utc, asker)

    with caller(leader, leader.chain.client) as way:
        hold_expansion(way, of_claim(name, 200, dry_run=True))  # connected: what follows is not the handshake's time
        before = len(leader.calls.outcomes)
        monkeypatch.setattr(leader.cluster.allocator.expansions, "hold", hold)
        with pytest.raises(grpc.RpcError) as raised:
            hold_expansion(way, of_claim(name, 200), seconds=0.3)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is raised.value.code()
    wait_until(lambda: leader.calls.outcomes[before:] == ["gone"])
    assert 0 == leader.cluster.allocator.snapshot().held_bytes
