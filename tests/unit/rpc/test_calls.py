"""What all calls of DiskScheduler have in common, on a real gRPC server with mutual TLS: who may make them, when they
are answered, and what a request has to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from certs.authority import LeafSpec
from certs.webhook import CLIENT_SUBJECT, webhook_leaves
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.errors import ConfigError, TooManyReadsError
from controller.process.common_metrics import PREFIX
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.build import build_rpc
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import GIB, TestCluster
from tests.fakes.edges import FakeReads
from tests.ports import free_port
from tests.unit.rpc.leaders import DISK_CLIENT, HOST, NAME, Chain, Checks, FakeRecord, Leader, Reply
from tests.unit.serving.tls_files import DAY
from webhook.leader import LeaderClient, LeaderFailedError

HOLD = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
FIND = pb.FindDiskCandidatesRequest(volume_name="v")
REPLICA = pb.ScheduleReplicaRequest(volume_name="v", replica_name="r")
OF_DISKS = (
    FIND,
    REPLICA,
    pb.ReuseFailedReplicaRequest(volume_name="v"),
    pb.ExpandVolumeRequest(volume_name="v", size_bytes=1),
    pb.DeallocateReplicaRequest(replica_name="r"),
    pb.ScheduleBackingImageRequest(backing_image_name="i"),
    pb.DeallocateBackingImageRequest(backing_image_name="i", disk_uuid="d"),
)
LEAFS = webhook_leaves(
    "longhorn-system", service="longhorn-scheduler-webhook", leader_service="longhorn-replica-scheduler", domain=""
)


@pytest.fixture(scope="module")
def lasting(chain: Chain) -> Iterator[Leader]:
    """Of which no test changes anything."""
    with Leader(chain) as found:
        yield found


# Who may


def client(subject: str, *names: str) -> LeafSpec:
    return LeafSpec(subject, DAY, names, is_client=True)


@pytest.mark.parametrize(
    "spec",
    [
        client(CLIENT_SUBJECT),
        client("another", CLIENT_SUBJECT),
        client("another", "first.example", CLIENT_SUBJECT, "10.0.0.1"),
        client(CLIENT_SUBJECT, "another.example"),
        LEAFS["webhook-client"],
    ],
    ids=["common name", "DNS name", "among DNS names", "common name beside others", "as mode self makes it"],
)
def test_who_has_the_name_is_answered(chain: Chain, leader: Leader, spec: LeafSpec) -> None:
    assert Reply.NOT_CHECKED == leader.ask(HOLD, chain.leaf(spec)).verdict
    assert ["not-checked"] == leader.calls.outcomes


@pytest.mark.parametrize(
    "spec",
    [
        client("kube-scheduler"),
        client(f"{CLIENT_SUBJECT}-2"),
        client(CLIENT_SUBJECT.upper()),
        client("another", f"{CLIENT_SUBJECT}.example", "*"),
        client("longhorn-replica-scheduler", NAME),  # the leader's own names
    ],
    ids=["another", "longer", "other letters", "DNS names", "the server's names"],
)
@pytest.mark.parametrize("leads", [True, False], ids=["", "by a follower"])
def test_who_has_another_name_is_told_so_and_nothing_that_he_wrote_is_read_or_logged(
    chain: Chain, leader: Leader, spec: LeafSpec, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    leader.checks.is_leading = leads
    refusal = leader.refusal(pb.HoldExpansionRequest(volume_name="v\nforged", size_bytes=1), chain.leaf(spec))
    assert re.match(f"PERMISSION_DENIED: .*for {spec.subject}.*, not for {CLIENT_SUBJECT}", refusal)
    assert (["denied"], []) == (leader.calls.outcomes, leader.reads.reads)
    assert spec.subject in caplog.text
    assert "forged" not in caplog.text


@pytest.mark.parametrize("request_", OF_DISKS, ids=lambda one: type(one).__name__)
def test_calls_about_disks_are_for_their_own_clients(chain: Chain, leader: Leader, request_: Message) -> None:
    call = type(request_).__name__.removesuffix("Request")
    for subject in (CLIENT_SUBJECT, DISK_CLIENT.upper()):
        denial = f"PERMISSION_DENIED: the client certificate is for {subject}, who may not call {call}"
        assert denial == leader.refusal(request_, chain.leaf_of(subject))
    for material in (chain.disk_client, chain.leaf_of("whoever", "another.client")):
        assert "PERMISSION_DENIED" not in leader.refusal(request_, material)  # there is nothing of what it names


def test_who_may_ask_about_disks_may_hold_no_expansion(chain: Chain, leader: Leader) -> None:
    assert leader.refusal(HOLD, chain.disk_client).startswith("PERMISSION_DENIED: ")


def test_without_a_name_every_client_of_the_authority_may_hold_expansions(chain: Chain) -> None:
    with Leader(chain, client_name="") as leader:
        for subject in ("another", CLIENT_SUBJECT):
            assert Reply.NOT_CHECKED == leader.ask(HOLD, chain.leaf_of(subject)).verdict


def test_the_process_asks_for_the_name_in_its_settings_and_counts_who_is_denied(chain: Chain) -> None:
    registry, cluster = CollectorRegistry(), TestCluster()
    settings = ProcessSettings(pod_ip=HOST, grpc_address=HOST, grpc_port=free_port(), webhook_client_name="ours")
    built = build_rpc(
        settings,
        FakeApiServer(),
        SystemClock(),
        cluster.allocator,
        FakeReads(cluster.allocator),
        registry,
        checks=Checks,
        is_leading=lambda: True,
        credentials=lambda: chain.server,
    )
    clients = {
        name: LeaderClient(f"{HOST}:{settings.grpc_port}", NAME, partial(chain.leaf_of, name), SystemClock())
        for name in ("ours", CLIENT_SUBJECT)
    }
    built.part.start()
    try:
        assert Reply.NOT_CHECKED == clients["ours"].hold_expansion(HOLD, 20).verdict
        with pytest.raises(LeaderFailedError, match=f"for {CLIENT_SUBJECT}, not for ours"):  # heard at once
            clients[CLIENT_SUBJECT].hold_expansion(HOLD, 20)
    finally:
        for made in clients.values():
            made.stop()
        built.part.stop()
    for outcome in ("not-checked", "denied"):
        labels = {"call": "HoldExpansion", "outcome": outcome}
        assert 1 == registry.get_sample_value(f"{PREFIX}_rpc_calls_total", labels)


def test_names_in_the_settings_are_those_of_certificates_that_others_make() -> None:
    """Mode self makes the webhook's, which is no name for questions about disks."""
    assert CLIENT_SUBJECT == ProcessSettings().webhook_client_name == LEAFS["webhook-client"].subject
    named = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", tls_mode="self", webhook_client_name="ours")
    with pytest.raises(ConfigError, match="--webhook-client-name"):
        named.checked()
    for mode in ("cert-manager", "provided"):
        replace(named, webhook_tls_mode=mode).checked()
    unnamed = replace(named, webhook_client_name="")
    assert "" == unnamed.checked().disk_scheduler_clients
    with pytest.raises(ConfigError, match="--disk-scheduler-clients"):
        replace(named, webhook_client_name=CLIENT_SUBJECT, disk_scheduler_clients=f"a, {CLIENT_SUBJECT}").checked()


# When they are answered


@pytest.mark.parametrize(
    ("request_", "modes"),
    [(HOLD, [Mode.UNKNOWN]), (FIND, [Mode.UNKNOWN, Mode.CLOSED]), (REPLICA, [Mode.UNKNOWN, Mode.CLOSED])],
    ids=["HoldExpansion", "FindDiskCandidates", "ScheduleReplica"],
)
def test_only_the_leader_answers_and_never_on_old_data(leader: Leader, request_: Message, modes: list[Mode]) -> None:
    leader.checks.is_fresh = False
    assert "UNAVAILABLE: what is known of claim is too old" == leader.refusal(request_)
    leader.checks.is_fresh = True
    for leader.checks.mode in modes:
        assert "UNAVAILABLE: switched off, or not known whether" == leader.refusal(request_)
    leader.checks.is_leading = False
    assert "UNAVAILABLE: this process does not lead" == leader.refusal(request_)
    assert ["not-ready"] * (2 + len(modes)) == leader.calls.outcomes


@pytest.mark.parametrize("mode", [Mode.BYPASS, Mode.CLOSED])
def test_of_a_growth_nothing_is_checked_while_the_extender_is_switched_off(leader: Leader, mode: Mode) -> None:
    leader.checks.mode = mode
    leader.cluster.add_node("n1")
    growth = pb.HoldExpansionRequest(volume_name=leader.cluster.add_volume("a"), size_bytes=2**60)
    assert Reply.NOT_CHECKED == leader.ask(growth).verdict


@pytest.mark.parametrize(
    ("part", "verb", "make"),
    [
        ("expansions", "hold", lambda name: pb.HoldExpansionRequest(volume_name=name, size_bytes=200 * GIB)),
        ("disks", "find", lambda name: pb.FindDiskCandidatesRequest(volume_name=name)),
    ],
    ids=["HoldExpansion", "FindDiskCandidates"],  # of the others: test_at_once.py
)
def test_an_answer_that_was_decided_in_a_term_that_has_ended_is_not_given(
    leader: Leader, part: str, verb: str, make: Callable[[str], Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.cluster.add_node("n1")
    request = make(leader.cluster.add_volume("a"))
    decides = getattr(leader.cluster.allocator, part)
    real = getattr(decides, verb)

    def end_the_term(*arguments: Any) -> Any:
        leader.checks.term += 1
        return real(*arguments)

    monkeypatch.setattr(decides, verb, end_the_term)
    assert "UNAVAILABLE: the term in which this was decided has ended" == leader.refusal(request)


@pytest.mark.parametrize("request_", [FIND, REPLICA], ids=lambda one: type(one).__name__)
def test_too_many_reads_are_no_changed_record(leader: Leader, record: FakeRecord, request_: Message) -> None:
    """ABORTED means to these callers that somebody else has changed the record."""
    leader.reads.fails[""] = TooManyReadsError("4 threads read")
    assert re.match("UNAVAILABLE: .*not known yet: 4 threads read", leader.refusal(request_))


# What a request has to be


LONG = "v" * 254
BAD_NAMES = (".", "..", "v/w", "V", "v_w", "-v", "v.", "v..w", "v\n", "v?x=1", "\u00e9")
NO_NAME = "is not the name of an object"
BAD = [
    (pb.HoldExpansionRequest(size_bytes=1), "volume_name: is missing"),
    (pb.HoldExpansionRequest(volume_name=LONG, size_bytes=1), "volume_name: is longer than 253 characters"),
    (pb.HoldExpansionRequest(volume_name=".", size_bytes=1), f"volume_name: {NO_NAME}"),
    (pb.HoldExpansionRequest(volume_name="v"), "size_bytes: is not positive: 0"),
    (pb.HoldExpansionRequest(volume_name="v", size_bytes=-1), "size_bytes: is not positive: -1"),
    (
        pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_name="c"),
        "claim_name: needs claim_namespace beside it",
    ),
    (
        pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_namespace="a/b", claim_name="c"),
        f"claim_namespace: {NO_NAME}",
    ),
    (
        pb.HoldExpansionRequest(volume_name="v", size_bytes=1, claim_namespace="n", claim_name=".."),
        f"claim_name: {NO_NAME}",
    ),
    (pb.FindDiskCandidatesRequest(), "volume_name: is missing"),
    (pb.FindDiskCandidatesRequest(volume_name="v", replica_name=LONG), "replica_name: is longer than 253 characters"),
    (pb.FindDiskCandidatesRequest(volume_name="v", hard_node_affinity=".."), f"hard_node_affinity: {NO_NAME}"),
    (
        pb.FindDiskCandidatesRequest(volume_name="v", replica_name="r", hard_node_affinity="n1"),
        "hard_node_affinity: is for a further replica",
    ),
    (pb.ScheduleReplicaRequest(replica_name="r"), "volume_name: is missing"),
    (pb.ScheduleReplicaRequest(volume_name="v", replica_name=LONG), "replica_name: is longer than 253 characters"),
    *((pb.ScheduleReplicaRequest(volume_name=one, replica_name="r"), f"volume_name: {NO_NAME}") for one in BAD_NAMES),
    (pb.ReuseFailedReplicaRequest(), "volume_name: is missing"),
    (pb.ExpandVolumeRequest(volume_name="v"), "size_bytes: is not positive: 0"),
    (pb.DeallocateReplicaRequest(), "replica_name: is missing"),
    (pb.ScheduleBackingImageRequest(backing_image_name="i", size_bytes=-1), "size_bytes: is negative: -1"),
    (pb.DeallocateBackingImageRequest(backing_image_name="i"), "disk_uuid: is missing"),
]


@pytest.mark.parametrize(("request_", "problem"), BAD, ids=lambda one: type(one).__name__ if one != str(one) else one)
def test_a_wrong_field_is_named(lasting: Leader, request_: Message, problem: str) -> None:
    assert lasting.refusal(request_).startswith(f"INVALID_ARGUMENT: {problem}")
