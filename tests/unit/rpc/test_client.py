"""Which failures of a call cost the client its connection."""

from __future__ import annotations

import grpc
import pytest

from certs.authority import LeafSpec
from controller.errors import (
    CallerGoneError,
    MalformedRequestError,
    NotFoundError,
    NotLeaderError,
    PreconditionError,
    TooManyReadsError,
)
from controller.rpc.credentials import StrangerError
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient
from tests.unit.rpc.leaders import DISK_CLIENT, NAME, Chain, Checks, Leader
from tests.unit.serving.tls_files import DAY

SECONDS = 20.0
Code = grpc.StatusCode


class FailingChecks(Checks):
    """Of a process whose calls all end like this."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    def begin(self) -> int:
        raise self._failure


def connections(chain: Chain, leader: Leader, code: Code) -> int:
    """How many a client makes for three calls that end with that code."""
    made = chain.leaf(LeafSpec(DISK_CLIENT, DAY, is_client=True))
    before = leader.handshakes
    with DiskSchedulerClient(leader.address, NAME, lambda: made) as client:
        for _ in range(3):
            with pytest.raises(CallFailedError) as raised:
                client.find_disk_candidates("v", seconds=SECONDS)
            assert code is raised.value.code
    return leader.handshakes - before


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotFoundError("no such volume"), Code.NOT_FOUND),
        (PreconditionError("not now"), Code.FAILED_PRECONDITION),
        (StrangerError("for another"), Code.PERMISSION_DENIED),
        (MalformedRequestError("volume_name", "is odd"), Code.INVALID_ARGUMENT),
        (TooManyReadsError("busy"), Code.ABORTED),
    ],
)
def test_a_leaders_no_leaves_the_connection_open(chain: Chain, leader: Leader, failure: Exception, code: Code) -> None:
    leader.checks = FailingChecks(failure)
    assert 1 == connections(chain, leader, code)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotLeaderError("this process does not lead"), Code.UNAVAILABLE),
        (CallerGoneError("nobody waits"), Code.CANCELLED),
        (RuntimeError("a fault"), Code.UNKNOWN),
    ],
)
def test_the_next_call_connects_anew_where_another_process_may_answer(
    chain: Chain, leader: Leader, failure: Exception, code: Code
) -> None:
    leader.checks = FailingChecks(failure)
    assert 3 == connections(chain, leader, code)


def test_a_process_that_never_answers_is_left(chain: Chain, leader: Leader) -> None:
    """As one whose machine is gone: nobody closes the connection. Here the call's time is over as it begins."""
    made = chain.leaf(LeafSpec(DISK_CLIENT, DAY, is_client=True))
    leader.checks = FailingChecks(NotFoundError("no such volume"))
    before = leader.handshakes
    with DiskSchedulerClient(leader.address, NAME, lambda: made) as client:
        for code, seconds in ((Code.NOT_FOUND, SECONDS), (Code.DEADLINE_EXCEEDED, -1.0), (Code.NOT_FOUND, SECONDS)):
            with pytest.raises(CallFailedError) as raised:
                client.find_disk_candidates("v", seconds=seconds)
            assert code is raised.value.code
    assert 2 == leader.handshakes - before
