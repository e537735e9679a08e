"""A change of authority where others write the webhook's chain, and who is taken by whom at every step.

kube-apiserver checks the webhook by what stood in `caBundle` half a minute ago; webhook and leader check each other
over gRPC.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest

from certs.authority import LeafSpec, Pair, bundle_of, is_rooted_in, make_authority, sign
from certs.rotation import DAY
from controller.assembly.certificates import KeptWebhookChain, webhook_chain
from controller.errors import ClusterError
from controller.kube.resources import VALIDATING_WEBHOOKS
from controller.serving.tls import Material, ServerTls
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import publish, published, put_leaf, spoil_secret
from tests.unit.certs.chains import NOW, trusts
from webhook.certificates import WebhookCertificates, certificate_worker
from webhook.settings import WebhookSettings

SPACE = "longhorn-system"
WEBHOOK, LEADER = f"longhorn-scheduler-webhook.{SPACE}.svc", f"longhorn-replica-scheduler.{SPACE}.svc"
SERVER_SECRET, CLIENT_SECRET = "longhorn-scheduler-webhook-tls", "longhorn-scheduler-webhook-client-tls"
LEADER_SECRET = "longhorn-replica-scheduler-tls"
SPECS = {
    SERVER_SECRET: LeafSpec("webhook", 40 * DAY, (WEBHOOK,)),
    CLIENT_SECRET: LeafSpec("client", 40 * DAY, is_client=True),
    LEADER_SECRET: LeafSpec("leader", 40 * DAY, (LEADER,)),
}
ORDERS = list(permutations(SPECS))
LAG_SECONDS = 30.0
ROUND_SECONDS = 10.0
MINUTE, HOUR, A_DAY = 60.0, 3_600.0, 86_400.0


def authority() -> Pair:
    return make_authority("ca", timedelta(days=300), NOW)


def leaf_of(ca: Pair, secret: str) -> Pair:
    return sign(ca, SPECS[secret], NOW)


class ShownTls(ServerTls):
    """Says which certificate is served."""

    def use(self, certificate: bytes, key: bytes, client_ca: bytes) -> bool:
        before = self.context
        is_new = super().use(certificate, key, client_ca)
        if self.context is not before:
            self.leaf = certificate
        return is_new


class ForeignCluster:
    """Secrets that the test writes, one leader, one webhook, and a kube-apiserver that is late."""

    def __init__(self, mode: str = "provided", server: Pair | None = None) -> None:
        self.mode, self.api, self.clock = mode, FakeApiServer(), VirtualClock()
        for secret in SPECS:
            self.put(secret, server if server is not None and secret == SERVER_SECRET else OLD)
        self.start_leader()
        self.tls = ShownTls(lets_anybody_in=True)
        worker = certificate_worker(WebhookSettings(tls_mode=mode), self.api, self.clock, self.tls)
        assert isinstance(worker, WebhookCertificates)
        self.worker = worker
        self.bundles: list[tuple[float, bytes]] = []
        self.pass_time(10 * MINUTE)  # all of this stands for long

    def start_leader(self) -> None:
        settings = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", tls_mode="self", webhook_tls_mode=self.mode)
        leader = webhook_chain(settings.checked(), self.api, self.clock, lambda: True)
        assert isinstance(leader, KeptWebhookChain)
        self.leader = leader

    def put(self, secret: str, ca: Pair, *, bundle: bytes | None = None) -> None:
        put_leaf(self.api, SPACE, secret, leaf_of(ca, secret), bundle or ca.certificate)

    def put_all(self, ca: Pair) -> None:
        for secret in SPECS:
            self.put(secret, ca)

    @property
    def in_grpc(self) -> tuple[Material, Material]:
        """What the webhook and the leader show each other."""
        client, server = self.worker.client_credentials(), self.leader.grpc_server()
        assert client is not None
        assert server is not None
        return client, server

    @property
    def published(self) -> bytes:
        return published(self.api)

    def round(self) -> None:
        """The webhook looks before the leader: it is the first to hold a new leaf."""
        self.worker.look()
        self.leader.look()
        if bundle := self.leader.ca_bundle():
            publish(self.api, bundle)
        self.bundles.append((self.clock.now(), self.published))

    def pass_time(self, seconds: float) -> None:
        """Rounds to the end of it, as often as they change anything; in between nothing is looked at."""
        rest = seconds
        while rest > 0:
            step = ROUND_SECONDS if rest <= 2 * MINUTE or seconds - rest < 2 * MINUTE else HOUR
            self.clock.advance(min(step, rest))
            rest -= step
            self.round()

    def is_taken(self, bundle: bytes, leaf: bytes = b"") -> bool:
        """Whether the webhook is, with this leaf or with what it shows, by whoever trusts this bundle."""
        return trusts(bundle, leaf or self.tls.leaf, self.clock.now_utc(), name=WEBHOOK)

    def takes_leader(self) -> bool:
        client, server = self.in_grpc
        return trusts(client.client_ca, server.certificate, self.clock.now_utc(), name=LEADER)

    def is_client(self, leaf: bytes) -> bool:
        """Whether the leader takes calls with it."""
        return trusts(self.in_grpc[1].client_ca, leaf, self.clock.now_utc(), as_client=True)

    def check(self) -> None:
        """Nobody is refused now: by the caBundle of now and of half a minute ago, and by gRPC, on a new connection."""
        late = [bundle for then, bundle in self.bundles if then <= self.clock.now() - LAG_SECONDS][-1]
        assert self.is_taken(late)
        assert self.is_taken(self.published)
        assert self.takes_leader()
        assert self.is_client(self.in_grpc[0].certificate)

    def check_for(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(ROUND_SECONDS)
            self.round()
            self.check()


OLD = authority()


@pytest.fixture
def cluster() -> ForeignCluster:
    return ForeignCluster()


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(name.split("-")[-2] for name in order) for order in ORDERS])
def test_nobody_is_refused_while_secrets_change_one_by_one(cluster: ForeignCluster, order: tuple[str]) -> None:
    new = authority()
    cluster.check()
    for secret in order:
        cluster.put(secret, new)
        cluster.check_for(100.0)
    assert all(is_rooted_in(material.certificate, [new]) for material in cluster.in_grpc)
    assert cluster.is_taken(new.certificate)


@pytest.mark.parametrize("mode", ["cert-manager", "provided"])
def test_nobody_is_refused_when_all_change_at_once(mode: str) -> None:
    cluster, new = ForeignCluster(mode), authority()
    cluster.put_all(new)
    cluster.check_for(200.0)
    assert cluster.is_taken(new.certificate)  # all that is shown is of the new one


def test_a_leader_that_starts_in_between_trusts_whom_the_one_before_had_published(cluster: ForeignCluster) -> None:
    new = authority()
    cluster.put_all(new)
    cluster.round()
    cluster.start_leader()
    cluster.check_for(10.0)
    assert cluster.is_taken(OLD.certificate)  # the webhook waits with its new certificate
    cluster.check_for(100.0)
    assert cluster.is_taken(new.certificate)


def test_before_it_is_known_who_was_trusted_nothing_is_published(cluster: ForeignCluster) -> None:
    new, before = authority(), cluster.published
    cluster.put_all(new)
    cluster.start_leader()
    cluster.api.fail_with(ClusterError("403: forbidden"), about=VALIDATING_WEBHOOKS)
    cluster.leader.look()
    assert b"" == cluster.leader.ca_bundle()
    assert any("403" in problem for problem in cluster.leader.problems)
    cluster.api.work()
    cluster.leader.look()
    assert before in cluster.leader.ca_bundle()
    assert [] == list(cluster.leader.problems)


def test_a_withdrawn_authority_is_trusted_no_longer_after_the_settling_time(cluster: ForeignCluster) -> None:
    new, (old_client, _) = authority(), cluster.in_grpc
    old_server = leaf_of(OLD, SERVER_SECRET).certificate
    cluster.put_all(new)
    cluster.pass_time(A_DAY - 10 * MINUTE)
    assert cluster.is_taken(cluster.published, old_server)
    cluster.check()
    cluster.pass_time(20 * MINUTE)
    cluster.check()
    assert not cluster.is_taken(cluster.published, old_server)
    assert {new.certificate} == {cluster.published, *(material.client_ca for material in cluster.in_grpc)}
    assert not cluster.is_client(old_client.certificate)


@pytest.mark.parametrize(
    "damage", [b"", b"garbage", leaf_of(OLD, SERVER_SECRET).certificate], ids=["none", "no", "leaf"]
)
@pytest.mark.parametrize("secret", list(SPECS))
def test_a_damaged_file_of_authorities_takes_no_trust_away(secret: str, damage: bytes) -> None:
    cluster = ForeignCluster(server=authority())  # one names an authority that no other does
    spoil_secret(cluster.api, SPACE, secret, {"ca.crt": damage})
    cluster.pass_time(A_DAY + HOUR)
    cluster.check()
    if secret != CLIENT_SECRET:  # its own process could not know whom to trust
        cluster.start_leader()
        cluster.pass_time(A_DAY + HOUR)
        assert cluster.is_taken(cluster.published)


def test_a_leaf_that_is_written_before_its_authority_waits_for_it(cluster: ForeignCluster) -> None:
    new = authority()
    for secret in SPECS:
        cluster.put(secret, new, bundle=OLD.certificate)
        cluster.check_for(30.0)
    for secret in SPECS:
        cluster.put(secret, new, bundle=bundle_of([OLD, new]))
        cluster.check_for(100.0)
    assert cluster.is_taken(new.certificate)


def test_a_leader_that_nobody_will_ever_know_waits_half_a_day_and_not_longer(cluster: ForeignCluster) -> None:
    _, before = cluster.in_grpc
    cluster.put(LEADER_SECRET, authority())
    cluster.pass_time(12 * HOUR - 10 * MINUTE)
    cluster.check()
    _, shown = cluster.in_grpc
    assert before.certificate == shown.certificate
    cluster.pass_time(20 * MINUTE)
    assert not cluster.takes_leader()


def test_a_renewal_under_the_same_authority_is_shown_at_once(cluster: ForeignCluster) -> None:
    before = cluster.tls.context, *cluster.in_grpc
    cluster.put_all(OLD)
    cluster.round()
    after = cluster.tls.context, *cluster.in_grpc
    assert all(one != other for one, other in zip(before, after, strict=True))
    cluster.check()
