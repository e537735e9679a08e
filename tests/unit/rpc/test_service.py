"""HoldExpansion and FindDiskCandidates on a real gRPC server with mutual TLS: what is answered, what is read for that,
and who is not waited for."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import grpc
import pytest

from controller.allocator.verbs.grow import Caller, GrowthOutcome, GrowthRequest
from controller.errors import UnavailableError
from controller.kube.bounded_reads import BURST_SECONDS
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import LIMITS
from tests.fakes.builders import GIB, replica, volume
from tests.unit.rpc.leaders import Leader, Reply, ask, caller
from tests.waiting import wait_until


def find(volume: str, replica: str = "", affinity: str = "") -> pb.FindDiskCandidatesRequest:
    return pb.FindDiskCandidatesRequest(volume_name=volume, replica_name=replica, hard_node_affinity=affinity)


def of_claim(volume: str, gib: float, *, dry_run: bool = False) -> pb.HoldExpansionRequest:
    return pb.HoldExpansionRequest(
        claim_namespace="ns", claim_name="a", volume_name=volume, size_bytes=int(gib * GIB), dry_run=dry_run
    )


@pytest.fixture
def name(leader: Leader) -> str:
    """A volume of 100 GiB."""
    leader.cluster.add_node("n1")
    return leader.cluster.add_volume("a")


# Growth


def test_growth_is_admitted_held_and_refused_with_numbers(leader: Leader, name: str) -> None:
    assert Reply.ADMITTED == leader.ask(of_claim(name, 200, dry_run=True)).verdict
    assert 0 == leader.cluster.allocator.snapshot().held_bytes
    reply = leader.ask(of_claim(name, 200))
    assert (Reply.ADMITTED, 200 * GIB) == (reply.verdict, reply.size_bytes)
    assert 100 * GIB == leader.cluster.allocator.snapshot().held_bytes

    reply = leader.ask(of_claim(name, 500))
    assert (Reply.REFUSED, name, 400 * GIB) == (reply.verdict, reply.volume_name, reply.largest_bytes)
    assert [("n1", "d1")] == [(entry.node, entry.disk) for entry in reply.problems]
    assert ["dry-run", "admitted", "refused"] == leader.calls.outcomes
    admitted, refused = leader.noted.after()  # a dry run decides nothing
    assert ("growth", "admitted") == (admitted.kind, admitted.decision)
    assert admitted.about.startswith("PersistentVolumeClaim ns/")
    assert ("refused", {"InsufficientPhysicalSpace": 1}) == (refused.decision, refused.reasons)
    assert f"volume {name} to 500 GiB: " in refused.text


def test_what_is_admitted_for_later_says_why_in_the_answer_and_in_the_log(
    leader: Leader, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    leader.cluster.allocator.observe_volume(name, volume(name, 100, restore_required=True))
    with caplog.at_level(logging.INFO):
        reply = leader.ask(of_claim(name, 200))
        wait_until(lambda: "decision=admitted" in caplog.text, "the log's line")
    assert (Reply.ADMITTED, ["VolumeRestoring"]) == (reply.verdict, [problem.reason for problem in reply.problems])
    assert "reasons=VolumeRestoring:1 " in caplog.text


def test_what_the_stores_lack_is_read_once_and_taken_for_absent_if_it_is(leader: Leader) -> None:
    assert Reply.NOT_CHECKED == leader.ask(of_claim("pvc-gone", 10)).verdict
    assert [("pv", "pvc-gone")] == leader.reads.reads


def test_of_volumes_that_nobody_has_so_many_are_read_and_the_others_not_judged(leader: Leader, name: str) -> None:
    most = int(BURST_SECONDS * LIMITS.a_second)
    refused = ""
    with caller(leader, leader.chain.client) as way:
        for number in range(20 * most):
            try:
                ask(way, of_claim(f"pvc-{number}", 10))
            except grpc.RpcError as error:
                refused = f"{error.code().name}"
                break
    assert "ABORTED" == refused
    assert most <= len(leader.reads.reads)
    assert "too-many-reads" == leader.calls.outcomes[-1]
    assert Reply.ADMITTED == leader.ask(of_claim(name, 200)).verdict  # nothing has to be read


def test_nothing_is_held_for_a_caller_that_has_gone(leader: Leader, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = leader.cluster.allocator.expansions.hold

    def hold(request: GrowthRequest, now_utc: datetime, asker: Caller) -> GrowthOutcome:
        wait_until(lambda: asker.has_left)  # its turn at the ledger comes late
        return real(request, now_utc, asker)

    with caller(leader, leader.chain.client) as way:
        ask(way, of_claim(name, 200, dry_run=True))  # connected: what follows is not the handshake's time
        before = len(leader.calls.outcomes)
        monkeypatch.setattr(leader.cluster.allocator.expansions, "hold", hold)
        with pytest.raises(grpc.RpcError) as raised:
            ask(way, of_claim(name, 200), seconds=0.3)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is raised.value.code()
    wait_until(lambda: leader.calls.outcomes[before:] == ["gone"])
    assert 0 == leader.cluster.allocator.snapshot().held_bytes


# Disks


@pytest.fixture
def contended(leader: Leader) -> Leader:
    """200 GiB on n1, of which a pod was promised 120, and 300 on n2; the volume v wants 90."""
    leader.cluster.add_nodes(n1=200, n2=300)
    assert {"n1"} == leader.cluster.ask("pod", 120, "n1")
    leader.cluster.allocator.observe_volume("v", volume("v", 90, locality="disabled"))
    leader.cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 90))
    return leader


def test_candidates_and_refusals_come_with_their_numbers(contended: Leader) -> None:
    reply = contended.ask(find("v", "v-r-1"))
    (candidate,) = reply.candidates
    assert candidate == reply.preferred
    assert ("n2", "d1", "n2-d1", 0) == (candidate.node, candidate.disk, candidate.disk_uuid, candidate.promised_bytes)
    assert (90 * GIB, "1") == (reply.size_bytes, reply.tried)
    (refusal,) = reply.refusals
    assert ("n1", "d1", pb.DiskRefusal.CONTENDED) == (refusal.node, refusal.disk, refusal.reason)
    assert refusal.missing_bytes == 90 * GIB - (200 - 120) * GIB
    assert "120 GiB are promised" in refusal.message
    assert ["found"] == contended.calls.outcomes


def test_no_candidate_is_an_answer(contended: Leader) -> None:
    reply = contended.ask(find("v", affinity="n1"))
    assert not reply.candidates and not reply.HasField("preferred") and not reply.tried
    assert {("n1", pb.DiskRefusal.CONTENDED), ("n2", pb.DiskRefusal.HARD_AFFINITY)} == {
        (entry.node, entry.reason) for entry in reply.refusals
    }
    assert ["none-found"] == contended.calls.outcomes


def test_a_volume_that_the_stores_lack_is_read_and_who_is_not_there_is_not_found(contended: Leader) -> None:
    assert "NOT_FOUND: there is no Longhorn volume 'w'" == contended.refusal(find("w"))
    assert "NOT_FOUND: volume 'v' has no replica 'x'" == contended.refusal(find("v", "x"))
    assert [("volume", "w")] == contended.reads.reads
    contended.reads.objects["volume", "w"] = volume("w", 10, locality="disabled")
    assert ["n1", "n2"] == [entry.node for entry in contended.ask(find("w")).candidates]
    contended.reads.fails["volume"] = UnavailableError("away")
    assert contended.refusal(find("u")).startswith("UNAVAILABLE: the API server did not answer")
    assert ["not-found", "not-found", "found", "not-ready"] == contended.calls.outcomes


def test_a_question_that_waits_for_others_ends_with_its_callers_patience(contended: Leader) -> None:
    turn: threading.Lock = contended.cluster.allocator.disks._turn
    with caller(contended, contended.chain.disk_client) as way:
        ask(way, find("v"))  # connected
        with turn, pytest.raises(grpc.RpcError) as raised:
            ask(way, find("v"), seconds=0.3)
        told = f"{raised.value.code().name}: {raised.value.details()}"
        assert told.startswith(("DEADLINE_EXCEEDED: ", "UNAVAILABLE: other questions"))
        assert ask(way, find("v")).candidates


def test_questions_about_disks_use_up_none_of_the_reads_that_the_webhook_needs(leader: Leader) -> None:
    """As many as may read at once."""
    entered, done = threading.Semaphore(0), threading.Event()

    def read() -> None:
        entered.release()
        done.wait(60)

    names = [f"v{number}" for number in range(LIMITS.at_once)]
    leader.reads.shows.update(dict.fromkeys(names, read))
    with ThreadPoolExecutor(len(names)) as pool:
        calls = [pool.submit(leader.refusal, find(one), seconds=60) for one in names]
        try:
            assert all(entered.acquire(timeout=30) for _ in calls)
            assert "not known yet: 4 threads already read" in leader.refusal(find("w"))
            assert Reply.NOT_CHECKED == leader.ask(of_claim("w", 1)).verdict
        finally:
            done.set()
        assert {"NOT_FOUND"} == {call.result(60).partition(":")[0] for call in calls}
