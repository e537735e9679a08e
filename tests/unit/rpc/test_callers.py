"""Whom the leader answers: not everybody whose certificate its authority signed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import grpc
import pytest
from prometheus_client import CollectorRegistry

from certs.authority import LeafSpec
from certs.webhook import CLIENT_SUBJECT, webhook_leaves
from controller.clock import SystemClock
from controller.errors import ConfigError
from controller.process.common_metrics import PREFIX
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.build import build_rpc
from controller.settings import ProcessSettings
from tests.cluster.components import free_ports
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import TestCluster
from tests.unit.rpc.leaders import HOST, NAME, Chain, Checks, Leader, Reads
from tests.unit.rpc.test_service import ask
from tests.unit.serving.tls_files import DAY
from webhook.leader import LeaderClient, LeaderFailedError

REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
LEAFS = webhook_leaves(
    "longhorn-system", service="longhorn-scheduler-webhook", leader_service="longhorn-replica-scheduler", domain=""
)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


def client(subject: str, *names: str) -> LeafSpec:
    return LeafSpec(subject, DAY, names, is_client=True)


def code_of(chain: Chain, leader: Leader, spec: LeafSpec) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        ask(leader, chain.leaf(spec), REQUEST)
    code: grpc.StatusCode = raised.value.code()
    return code


def test_the_certificate_that_mode_self_makes_has_the_name_that_is_asked_for() -> None:
    assert CLIENT_SUBJECT == ProcessSettings().webhook_client_name
    assert LEAFS["webhook-client"].spec.subject == ProcessSettings().webhook_client_name


def test_another_name_is_for_certificates_that_others_make() -> None:
    named = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", webhook_client_name="ours")
    with pytest.raises(ConfigError, match="webhook_client_name"):
        named.checked()
    for mode in ("cert-manager", "provided"):
        replace(named, webhook_tls_mode=mode).checked()
    replace(named, webhook_client_name="").checked()


@pytest.mark.parametrize(
    "spec",
    [
        client(CLIENT_SUBJECT),
        client("another", CLIENT_SUBJECT),
        client("another", "first.example", CLIENT_SUBJECT, "10.0.0.1"),
        client(CLIENT_SUBJECT, "another.example"),
        LEAFS["webhook-client"].spec,
    ],
    ids=["common name", "DNS name", "among DNS names", "common name beside others", "as mode self makes it"],
)
def test_who_has_the_name_is_answered(chain: Chain, spec: LeafSpec) -> None:
    with Leader(chain) as leader:
        assert pb.HoldExpansionReply.NOT_CHECKED == ask(leader, chain.leaf(spec), REQUEST).verdict
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
def test_who_has_another_name_is_told_so_and_nothing_is_held(chain: Chain, spec: LeafSpec) -> None:
    with Leader(chain) as leader:
        with pytest.raises(grpc.RpcError, match=f"for {spec.subject}.*, not for {CLIENT_SUBJECT}") as raised:
            ask(leader, chain.leaf(spec), REQUEST)
        assert grpc.StatusCode.PERMISSION_DENIED is raised.value.code()
        assert ["denied"] == leader.calls.outcomes
        assert [] == leader.reads.reads


def test_the_log_says_who_is_denied_and_nothing_that_he_wrote(chain: Chain, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    request = pb.HoldExpansionRequest(volume_name="v\nforged", size_bytes=1)
    with Leader(chain) as leader, pytest.raises(grpc.RpcError):
        ask(leader, chain.leaf(client("somebody")), request)
    assert "somebody" in caplog.text
    assert "forged" not in caplog.text


def test_a_stranger_is_denied_by_a_follower_too(chain: Chain) -> None:
    with Leader(chain) as leader:
        leader.checks.is_leading = False
        assert grpc.StatusCode.PERMISSION_DENIED is code_of(chain, leader, client("another"))


@pytest.mark.parametrize("name", ["webhook-server", "replica-scheduler-server"])
def test_a_servers_certificate_does_not_even_get_in(chain: Chain, name: str) -> None:
    with Leader(chain) as leader:
        assert grpc.StatusCode.UNAVAILABLE is code_of(chain, leader, LEAFS[name].spec)
        assert [] == leader.calls.outcomes


def test_without_a_name_every_client_of_the_authority_is_answered(chain: Chain) -> None:
    with Leader(chain, client_name="") as leader:
        for spec in (client("another"), client(CLIENT_SUBJECT)):
            assert pb.HoldExpansionReply.NOT_CHECKED == ask(leader, chain.leaf(spec), REQUEST).verdict
        stranger = Chain().leaf(client(CLIENT_SUBJECT))
        with pytest.raises(grpc.RpcError):
            ask(leader, stranger, REQUEST)


def test_another_name_may_be_asked_for(chain: Chain) -> None:
    with Leader(chain, client_name="ours") as leader:
        assert pb.HoldExpansionReply.NOT_CHECKED == ask(leader, chain.leaf(client("ours")), REQUEST).verdict
        assert grpc.StatusCode.PERMISSION_DENIED is code_of(chain, leader, client(CLIENT_SUBJECT))


def test_the_process_asks_for_the_name_in_its_settings_and_counts_who_is_denied(chain: Chain) -> None:
    registry, cluster = CollectorRegistry(), TestCluster()
    settings = ProcessSettings(pod_ip=HOST, grpc_address=HOST, grpc_port=free_ports(1)[0], webhook_client_name="ours")
    built = build_rpc(
        settings,
        FakeApiServer(),
        SystemClock(),
        cluster.allocator,
        Reads(),
        registry,
        checks=Checks,
        is_leading=lambda: True,
        credentials=lambda: chain.server,
    )
    clients = {
        name: LeaderClient(f"{HOST}:{settings.grpc_port}", NAME, partial(chain.leaf, client(name)), SystemClock())
        for name in ("ours", CLIENT_SUBJECT)
    }
    built.part.start()
    try:
        assert pb.HoldExpansionReply.NOT_CHECKED == clients["ours"].hold_expansion(REQUEST, 20).verdict
        with pytest.raises(LeaderFailedError):
            clients[CLIENT_SUBJECT].hold_expansion(REQUEST, 20)
    finally:
        for made in clients.values():
            made.stop()
        built.part.stop()
    for outcome in ("not-checked", "denied"):
        labels = {"call": "HoldExpansion", "outcome": outcome}
        assert 1 == registry.get_sample_value(f"{PREFIX}_rpc_calls_total", labels)


def test_a_webhook_that_is_denied_hears_at_once_that_the_leader_failed(chain: Chain) -> None:
    with Leader(chain) as leader:
        denied = LeaderClient(leader.address, NAME, lambda: chain.leaf(client("another")), SystemClock())
        try:
            with pytest.raises(LeaderFailedError, match=f"for another, not for {CLIENT_SUBJECT}"):
                denied.hold_expansion(REQUEST, 10)
        finally:
            denied.stop()
        assert ["denied"] == leader.calls.outcomes
