"""HoldExpansion on a real gRPC server with mutual TLS: who may call, who answers, what failures look like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import grpc
import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import Caller, GrowthOutcome, GrowthRequest
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import ReloadingChannel
from controller.rpc.wire import HOLD_EXPANSION
from controller.serving.tls import Material
from tests.fakes.builders import GIB
from tests.fakes.waiting import wait_until
from tests.unit.rpc.leaders import NAME, Chain, Leader


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def leader(chain: Chain) -> Iterator[Leader]:
    with Leader(chain) as found:
        yield found


def volume_of(leader: Leader, gib: float = 100) -> str:
    leader.cluster.add_node("n1")
    leader.cluster.add_claim("a", gib)
    name = leader.cluster.provision("a")
    leader.cluster.place(name, "n1", gib)
    return name


def ask(
    leader: Leader,
    credentials: Material,
    request: pb.HoldExpansionRequest,
    method: str = HOLD_EXPANSION,
    seconds: float = 10,
) -> pb.HoldExpansionReply:
    reloading = ReloadingChannel(leader.address, NAME, lambda: credentials)
    try:
        with reloading.channel() as channel:
            call = channel.unary_unary(
                method,
                request_serializer=pb.HoldExpansionRequest.SerializeToString,
                response_deserializer=pb.HoldExpansionReply.FromString,
            )
            answer: pb.HoldExpansionReply = call(request, timeout=seconds)
            return answer
    finally:
        reloading.close()


def of_claim(volume: str, gib: float, **more: object) -> pb.HoldExpansionRequest:
    return pb.HoldExpansionRequest(
        claim_namespace="ns",
        claim_name="a",
        volume_name=volume,
        size_bytes=int(gib * GIB),
        **more,  # type: ignore[arg-type]
    )


def test_growth_is_admitted_held_and_refused_with_numbers(chain: Chain, leader: Leader) -> None:
    name = volume_of(leader)
    reply = ask(leader, chain.client, of_claim(name, 200))
    assert (pb.HoldExpansionReply.ADMITTED, 200 * GIB) == (reply.verdict, reply.size_bytes)
    assert 100 * GIB == leader.cluster.allocator.snapshot().held_bytes

    reply = ask(leader, chain.client, of_claim(name, 500))
    assert pb.HoldExpansionReply.REFUSED == reply.verdict
    assert name == reply.volume_name
    assert 400 * GIB == reply.largest_bytes
    assert [("n1", "d1")] == [(entry.node, entry.disk) for entry in reply.problems]
    assert ["admitted", "refused"] == leader.calls.outcomes


def test_a_dry_run_holds_nothing(chain: Chain, leader: Leader) -> None:
    reply = ask(leader, chain.client, of_claim(volume_of(leader), 200, dry_run=True))
    assert pb.HoldExpansionReply.ADMITTED == reply.verdict
    assert 0 == leader.cluster.allocator.snapshot().held_bytes
    assert ["dry-run"] == leader.calls.outcomes


def test_only_the_leader_answers(chain: Chain, leader: Leader) -> None:
    leader.checks.is_leading = False
    with pytest.raises(grpc.RpcError, match="does not lead") as raised:
        ask(leader, chain.client, of_claim(volume_of(leader), 200))
    assert grpc.StatusCode.UNAVAILABLE is raised.value.code()
    assert 0 == leader.cluster.allocator.snapshot().held_bytes


def test_an_answer_that_was_decided_in_a_term_that_has_ended_is_not_given(chain: Chain, leader: Leader) -> None:
    name = volume_of(leader)
    real = leader.cluster.allocator.expansions.hold

    def hold(*arguments: object) -> object:
        leader.checks.term += 1
        return real(*arguments)  # type: ignore[arg-type]

    leader.cluster.allocator.expansions.hold = hold  # type: ignore[method-assign,assignment]
    with pytest.raises(grpc.RpcError, match="term"):
        ask(leader, chain.client, of_claim(name, 200))


def test_old_data_is_no_ground_to_answer_on(chain: Chain, leader: Leader) -> None:
    leader.checks.is_fresh = False
    with pytest.raises(grpc.RpcError, match="too old"):
        ask(leader, chain.client, of_claim(volume_of(leader), 200))


@pytest.mark.parametrize("mode", [Mode.BYPASS, Mode.CLOSED])
def test_nothing_is_checked_while_the_extender_is_switched_off(chain: Chain, leader: Leader, mode: Mode) -> None:
    leader.checks.mode = mode
    reply = ask(leader, chain.client, of_claim(volume_of(leader), 10_000))
    assert pb.HoldExpansionReply.NOT_CHECKED == reply.verdict


def test_what_the_stores_lack_is_read_once_and_taken_for_absent_if_it_is(chain: Chain, leader: Leader) -> None:
    reply = ask(leader, chain.client, of_claim("pvc-gone", 10))
    assert pb.HoldExpansionReply.NOT_CHECKED == reply.verdict
    assert [("pv", "pvc-gone")] == leader.reads.reads


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.HoldExpansionRequest(size_bytes=1), "volume_name"),
        (pb.HoldExpansionRequest(volume_name="v"), "size_bytes"),
        (pb.HoldExpansionRequest(volume_name="v", size_bytes=-1), "size_bytes"),
        (pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_name="c"), "claim_namespace"),
        (pb.HoldExpansionRequest(volume_name="v" * 254, size_bytes=1), "volume_name"),
    ],
)
def test_a_wrong_field_is_named(chain: Chain, leader: Leader, request_: pb.HoldExpansionRequest, field: str) -> None:
    with pytest.raises(grpc.RpcError, match=field) as raised:
        ask(leader, chain.client, request_)
    assert grpc.StatusCode.INVALID_ARGUMENT is raised.value.code()


def test_no_certificate_of_another_authority_gets_in(leader: Leader, chain: Chain) -> None:
    stranger = Chain().client
    with pytest.raises(grpc.RpcError):
        ask(leader, Material(stranger.certificate, stranger.key, chain.client.client_ca), of_claim("v", 1))
    assert [] == leader.calls.outcomes


def test_a_call_that_is_not_offered_is_unimplemented(chain: Chain, leader: Leader) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        ask(leader, chain.client, of_claim("v", 1), "/DiskScheduler/ScheduleReplica")
    assert grpc.StatusCode.UNIMPLEMENTED is raised.value.code()


def test_the_service_is_pointed_here_while_leading_and_let_go_at_the_end(chain: Chain) -> None:
    leader = Leader(chain)
    leader.checks.is_leading = False
    with leader:
        assert 0 == leader.endpoint.points
        leader.checks.is_leading = True
        wait_until(lambda: leader.endpoint.points == 1)
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


def test_nothing_is_judged_or_held_for_a_caller_that_has_gone(chain: Chain, leader: Leader) -> None:
    name = volume_of(leader)
    real = leader.cluster.allocator.expansions.hold

    def hold(request: GrowthRequest, now_utc: datetime, caller: Caller) -> GrowthOutcome:
        wait_until(lambda: caller.has_left)  # its turn at the ledger comes late
        return real(request, now_utc, caller)

    leader.cluster.allocator.expansions.hold = hold  # type: ignore[method-assign,assignment]
    with pytest.raises(grpc.RpcError) as raised:
        ask(leader, chain.client, of_claim(name, 200), seconds=0.3)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is raised.value.code()
    wait_until(lambda: leader.calls.outcomes == ["gone"])
    assert 0 == leader.cluster.allocator.snapshot().held_bytes
