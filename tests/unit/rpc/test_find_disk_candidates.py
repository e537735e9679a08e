"""FindDiskCandidates on a real gRPC server with mutual TLS: who may ask, what is answered, what failures look like."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from certs.authority import LeafSpec
from certs.webhook import CLIENT_SUBJECT
from controller.allocator.outcome import Mode
from controller.errors import ConfigError, UnavailableError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.serving.tls import Material
from controller.settings import ProcessSettings
from tests.fakes.builders import GIB, replica, volume
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient
from tests.unit.rpc.leaders import DISK_CLIENT, NAME, Chain, Leader
from tests.unit.serving.tls_files import DAY


def leaf(chain: Chain, subject: str, *names: str) -> Material:
    return chain.leaf(LeafSpec(subject, DAY, names, is_client=True))


@pytest.fixture
def contended(leader: Leader) -> Leader:
    """200 GiB on n1, of which a pod was promised 120, and 300 on n2; the volume v wants 90."""
    leader.cluster.add_nodes(n1=200, n2=300)
    assert {"n1"} == leader.cluster.ask("pod", 120, "n1")
    leader.cluster.allocator.observe_volume("v", volume("v", 90, locality="disabled"))
    leader.cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 90))
    return leader


def test_candidates_and_refusals_come_with_their_numbers(contended: Leader, client: DiskSchedulerClient) -> None:
    reply = client.find_disk_candidates("v", "v-r-1")
    (candidate,) = reply.candidates
    assert candidate == reply.preferred
    assert ("n2", "d1", "n2-d1", 0) == (candidate.node, candidate.disk, candidate.disk_uuid, candidate.promised_bytes)
    assert (90 * GIB, "1") == (reply.size_bytes, reply.tried)
    (refusal,) = reply.refusals
    assert ("n1", "d1", pb.DiskRefusal.CONTENDED) == (refusal.node, refusal.disk, refusal.reason)
    assert refusal.missing_bytes == 90 * GIB - (200 - 120) * GIB
    assert "120 GiB are promised" in refusal.message
    assert ["found"] == contended.calls.outcomes


def test_no_candidate_is_an_answer(contended: Leader, client: DiskSchedulerClient) -> None:
    reply = client.find_disk_candidates("v", hard_node_affinity="n1")
    assert not reply.candidates and not reply.HasField("preferred") and not reply.tried
    assert {("n1", pb.DiskRefusal.CONTENDED), ("n2", pb.DiskRefusal.HARD_AFFINITY)} == {
        (entry.node, entry.reason) for entry in reply.refusals
    }
    assert ["none-found"] == contended.calls.outcomes


def code_of(call: DiskSchedulerClient, *words: str, **more: Any) -> str:
    with pytest.raises(CallFailedError) as raised:
        call.find_disk_candidates(*words, **more)
    assert str(raised.value) == f"{raised.value.code.name}: {raised.value.details}"
    return str(raised.value)


def test_who_is_not_there_is_not_found(contended: Leader, client: DiskSchedulerClient) -> None:
    assert "NOT_FOUND: there is no Longhorn volume 'w'" == code_of(client, "w")
    assert "NOT_FOUND: volume 'v' has no replica 'x'" == code_of(client, "v", "x")
    assert [("volume", "w")] == contended.reads.reads
    assert ["not-found"] * 2 == contended.calls.outcomes


def test_a_volume_that_only_the_api_server_knows_is_read(contended: Leader, client: DiskSchedulerClient) -> None:
    contended.reads.objects["volume", "w"] = volume("w", 10, locality="disabled")
    assert ["n1", "n2"] == [entry.node for entry in client.find_disk_candidates("w").candidates]


def test_a_read_that_fails_is_no_answer(contended: Leader, client: DiskSchedulerClient) -> None:
    contended.reads.fails["volume"] = UnavailableError("away")
    assert code_of(client, "w").startswith("UNAVAILABLE: the API server did not answer")


@pytest.mark.parametrize(
    ("words", "more", "field"),
    [
        (("",), {}, "volume_name"),
        (("v" * 254,), {}, "volume_name"),
        (("v", "r" * 254), {}, "replica_name"),
        ((".",), {}, "volume_name"),
        (("v", "r/s"), {}, "replica_name"),
        (("v",), {"hard_node_affinity": ".."}, "hard_node_affinity"),
        (("v", "v-r-1"), {"hard_node_affinity": "n1"}, "hard_node_affinity"),
    ],
)
def test_a_wrong_field_is_named(
    contended: Leader, client: DiskSchedulerClient, words: tuple[str, ...], more: dict[str, str], field: str
) -> None:
    assert code_of(client, *words, **more).startswith(f"INVALID_ARGUMENT: {field}: ")


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.UNKNOWN])
def test_only_the_leader_answers_and_never_on_old_data(
    contended: Leader, client: DiskSchedulerClient, mode: Mode
) -> None:
    contended.checks.is_fresh = False
    assert "too old" in code_of(client, "v")
    contended.checks.is_fresh, contended.checks.mode = True, mode
    assert code_of(client, "v").startswith("UNAVAILABLE: ")
    contended.checks.mode, contended.checks.is_leading = Mode.ACTIVE, False
    assert "UNAVAILABLE: this process does not lead" == code_of(client, "v")
    assert ["not-ready"] * 3 == contended.calls.outcomes


def test_an_answer_of_a_term_that_has_ended_is_not_given(
    contended: Leader, client: DiskSchedulerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = contended.cluster.allocator.disks
    real = queries.find

    def find(*words: Any) -> Any:
        contended.checks.term += 1
        return real(*words)

    monkeypatch.setattr(queries, "find", find)
    assert "term" in code_of(client, "v")


def test_a_question_that_waits_for_others_ends_with_its_callers_patience(
    contended: Leader, client: DiskSchedulerClient
) -> None:
    client.find_disk_candidates("v")  # connected
    turn: threading.Lock = contended.cluster.allocator.disks._turn
    with turn:
        assert code_of(client, "v", seconds=0.3).startswith(("DEADLINE_EXCEEDED: ", "UNAVAILABLE: other questions"))
    assert client.find_disk_candidates("v").candidates


@pytest.mark.parametrize("subject", [CLIENT_SUBJECT, "somebody", DISK_CLIENT.upper()])
def test_who_has_another_name_is_denied(
    chain: Chain, contended: Leader, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    made = leaf(chain, subject)
    with DiskSchedulerClient(contended.address, NAME, lambda: made) as stranger:
        refusal = code_of(stranger, "forged")
    assert f"PERMISSION_DENIED: the client certificate is for {subject}, who may not call FindDiskCandidates" == refusal
    assert ["denied"] == contended.calls.outcomes
    assert "forged" not in caplog.text
    assert not contended.reads.reads


def test_each_of_the_names_is_one_that_may_ask(chain: Chain, contended: Leader) -> None:
    made = leaf(chain, "whoever", "another.client")
    with DiskSchedulerClient(contended.address, NAME, lambda: made) as other:
        assert other.find_disk_candidates("v").candidates


def test_who_may_ask_about_disks_may_hold_no_expansion(contended: Leader, client: DiskSchedulerClient) -> None:
    with pytest.raises(CallFailedError) as raised:
        client.hold_expansion("v", GIB)
    assert grpc.StatusCode.PERMISSION_DENIED is raised.value.code


def test_the_webhooks_own_name_is_no_name_for_it() -> None:
    named = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", tls_mode="self")
    with pytest.raises(ConfigError, match="--disk-scheduler-clients"):
        ProcessSettings(
            pod_name="p", pod_ip="10.0.0.1", tls_mode="self", disk_scheduler_clients=f"a, {CLIENT_SUBJECT}"
        ).checked()
    assert "" == named.checked().disk_scheduler_clients
