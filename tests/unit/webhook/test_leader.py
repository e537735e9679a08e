"""Calls of the leader, over real connections: away, slow, changing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from controller.clock import SystemClock
from controller.errors import TooManyReadsError
from controller.rpc import disk_scheduler_pb2 as pb
from tests.ports import free_port
from tests.unit.rpc.leaders import HOST, NAME, Chain, Leader
from webhook.leader import CrowdedError, LeaderAwayError, LeaderClient, LeaderFailedError

REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(chain: Chain, port: int) -> Iterator[LeaderClient]:
    made = LeaderClient(f"{HOST}:{port}", NAME, lambda: chain.client, SystemClock())
    yield made
    made.stop()


def test_nobody_there_is_told_in_time(client: LeaderClient) -> None:
    with pytest.raises(LeaderAwayError):
        client.hold_expansion(REQUEST, 0.5)


def test_one_that_does_not_lead_is_told_with_its_own_words(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:
        leader.checks.is_leading = False
        with pytest.raises(LeaderAwayError, match="does not lead"):
            client.hold_expansion(REQUEST, 2.0)
        assert len(leader.calls.outcomes) > 1  # it was tried again


def test_a_leader_that_comes_in_time_answers(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:
        leader.checks.is_leading = False
        told = threading.Timer(0.3, lambda: setattr(leader.checks, "is_leading", True))
        told.start()
        assert pb.HoldExpansionReply.NOT_CHECKED == client.hold_expansion(REQUEST, 10).verdict
        told.join()


def test_a_new_leader_behind_the_same_service_is_reached(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as first:
        client.hold_expansion(REQUEST, 10)
        assert ["not-checked"] == first.calls.outcomes
    with Leader(chain, port) as second:
        client.hold_expansion(REQUEST, 10)
        assert ["not-checked"] == second.calls.outcomes


def test_a_fault_of_the_leader_is_no_absence(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:

        def broken(*_: object) -> None:
            raise AssertionError("broken")

        leader.cluster.allocator.expansions.missing = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(LeaderFailedError):
            client.hold_expansion(REQUEST, 10)
        assert ["internal"] == leader.calls.outcomes


def test_a_leader_that_reads_too_much_is_not_asked_again(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:

        def refuse(*_: object) -> bool:
            raise TooManyReadsError("20 reads a second")

        leader.reads.refresh = refuse  # type: ignore[method-assign,assignment]
        with pytest.raises(CrowdedError):
            client.hold_expansion(REQUEST, 10)
        assert ["too-many-reads"] == leader.calls.outcomes


def test_a_leader_that_hangs_is_left_in_time(chain: Chain, port: int, client: LeaderClient) -> None:
    go_on = threading.Event()
    with Leader(chain, port) as leader:
        leader.checks.check_leading = lambda: bool(go_on.wait(20))  # type: ignore[method-assign,assignment]
        try:
            with pytest.raises(LeaderAwayError, match="in time"):
                client.hold_expansion(REQUEST, 0.3)
        finally:
            go_on.set()


def test_nothing_is_called_without_a_certificate(port: int) -> None:
    client = LeaderClient(f"{HOST}:{port}", NAME, lambda: None, SystemClock())
    with pytest.raises(LeaderAwayError, match="certificate"):
        client.hold_expansion(REQUEST, 10)


def test_the_process_that_ends_waits_for_nobody(client: LeaderClient) -> None:
    client.stop()
    with pytest.raises(LeaderAwayError):
        client.hold_expansion(REQUEST, 600)
