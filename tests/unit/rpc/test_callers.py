"""Whom the leader answers: not everybody whose certificate its authority signed."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from certs.authority import LeafSpec
from certs.webhook import CLIENT_SUBJECT, webhook_leaves
from controller.clock import SystemClock
from controller.errors import ConfigError
from controller.process.common_metrics import PREFIX
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.build import build_rpc
from controller.serving.tls import Material
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import TestCluster
from tests.fakes.edges import FakeReads
from tests.ports import free_port
from tests.unit.rpc.leaders import HOST, NAME, Chain, Checks, Leader, Reply
from tests.unit.serving.tls_files import DAY
from webhook.leader import LeaderClient, LeaderFailedError

REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
LEAFS = webhook_leaves(
    "longhorn-system", service="longhorn-scheduler-webhook", leader_service="longhorn-replica-scheduler", domain=""
)


def client(subject: str, *names: str) -> LeafSpec:
    return LeafSpec(subject, DAY, names, is_client=True)


def test_the_certificate_that_mode_self_makes_has_the_name_that_is_asked_for() -> None:
    assert CLIENT_SUBJECT == ProcessSettings().webhook_client_name
    assert LEAFS["webhook-client"].subject == ProcessSettings().webhook_client_name


def test_another_name_is_for_certificates_that_others_make() -> None:
    named = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", tls_mode="self", webhook_client_name="ours")
    with pytest.raises(ConfigError, match="--webhook-client-name"):
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
        LEAFS["webhook-client"],
    ],
    ids=["common name", "DNS name", "among DNS names", "common name beside others", "as mode self makes it"],
)
def test_who_has_the_name_is_answered(chain: Chain, leader: Leader, spec: LeafSpec) -> None:
    assert Reply.NOT_CHECKED == leader.ask(REQUEST, chain.leaf(spec)).verdict
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
def test_who_has_another_name_is_told_so_and_nothing_is_held(chain: Chain, leader: Leader, spec: LeafSpec) -> None:
    refusal = leader.refusal(REQUEST, chain.leaf(spec))
    assert re.match(f"PERMISSION_DENIED: .*for {spec.subject}.*, not for {CLIENT_SUBJECT}", refusal)
    assert ["denied"] == leader.calls.outcomes
    assert [] == leader.reads.reads


def test_the_log_says_who_is_denied_and_nothing_that_he_wrote(
    chain: Chain, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    request = pb.HoldExpansionRequest(volume_name="v\nforged", size_bytes=1)
    leader.refusal(request, chain.leaf(client("somebody")))
    assert "somebody" in caplog.text
    assert "forged" not in caplog.text


def test_a_stranger_is_denied_by_a_follower_too(chain: Chain, leader: Leader) -> None:
    leader.checks.is_leading = False
    assert "PERMISSION_DENIED" in leader.refusal(REQUEST, chain.leaf(client("another")))


@pytest.mark.parametrize("name", ["webhook-server", "replica-scheduler-server"])
def test_a_servers_certificate_does_not_even_get_in(chain: Chain, leader: Leader, name: str) -> None:
    assert "UNAVAILABLE" in leader.refusal(REQUEST, chain.leaf(LEAFS[name]))
    assert [] == leader.calls.outcomes


def test_without_a_name_every_client_of_the_authority_is_answered(chain: Chain) -> None:
    with Leader(chain, client_name="") as leader:
        for spec in (client("another"), client(CLIENT_SUBJECT)):
            assert Reply.NOT_CHECKED == leader.ask(REQUEST, chain.leaf(spec)).verdict
        stranger = Chain().client
        for material in (stranger, Material(stranger.certificate, stranger.key, chain.client.client_ca)):
            assert leader.refusal(REQUEST, material)


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
        name: LeaderClient(f"{HOST}:{settings.grpc_port}", NAME, partial(chain.leaf, client(name)), SystemClock())
        for name in ("ours", CLIENT_SUBJECT)
    }
    built.part.start()
    try:
        assert Reply.NOT_CHECKED == clients["ours"].hold_expansion(REQUEST, 20).verdict
        with pytest.raises(LeaderFailedError, match=f"for {CLIENT_SUBJECT}, not for ours"):  # heard at once
            clients[CLIENT_SUBJECT].hold_expansion(REQUEST, 20)
    finally:
        for made in clients.values():
            made.stop()
        built.part.stop()
    for outcome in ("not-checked", "denied"):
        labels = {"call": "HoldExpansion", "outcome": outcome}
        assert 1 == registry.get_sample_value(f"{PREFIX}_rpc_calls_total", labels)
