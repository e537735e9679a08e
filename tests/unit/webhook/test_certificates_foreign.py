"""A change of authority where others write the webhook's chain, with handshakes at every step.

kube-apiserver checks the webhook by what stood in `caBundle` half a minute ago; webhook and leader check each other
over gRPC. The wall clock is the real one and does not move: only seconds of the monotonic clock pass.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from concurrent import futures
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import grpc
import pytest

from certs.authority import LeafSpec, Pair, bundle_of, is_rooted_in, make_authority, sign
from certs.rotation import DAY
from controller.assembly.certificates import KeptWebhookChain, webhook_chain
from controller.errors import ClusterError
from controller.kube.resources import OUR_CONFIGURATIONS, Resource
from controller.rpc.credentials import ReloadingChannel, server_credentials
from controller.serving.tls import Material, ServerTls
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import publish, published, put_leaf, spoil_secret
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


def authority(life: int = 300) -> Pair:
    return make_authority("ca", life * DAY, datetime.now(UTC))


def leaf_of(ca: Pair, secret: str) -> Pair:
    return sign(ca, SPECS[secret], datetime.now(UTC))


def is_taken(server: ssl.SSLContext | None, trusted: bytes, name: str) -> bool:
    """Whether a client that trusts this PEM completes a handshake with a server of that name."""
    assert server is not None
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=trusted.decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    done = set[int]()
    for turn in range(20):
        try:
            ends[turn % 2].do_handshake()
            done.add(turn % 2)
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    assert done == {0, 1}
    return True


# The product gives up a handshake after 5 s: a busy machine needs that long at times.
PATIENT = [("grpc.server_handshake_timeout_ms", 60_000)]


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


class ForeignCluster:
    """Secrets that the test writes, one leader, one webhook, and a kube-apiserver that is late."""

    def __init__(self, mode: str, shared: Pair, server: Pair | None = None) -> None:
        self.mode, self.api, self.clock = mode, FakeApiServer(), VirtualClock()
        self.clock.now_utc = lambda: datetime.now(UTC)  # type: ignore[method-assign]
        for secret in SPECS:
            self.put(secret, server if server is not None and secret == SERVER_SECRET else shared)
        self.start_leader()
        self.start_webhook()
        self.bundles: list[tuple[float, bytes]] = []
        self._grpc = grpc.server(futures.ThreadPoolExecutor(2), [Echo()], options=PATIENT)
        self.leader.look()
        port = self._grpc.add_secure_port("127.0.0.1:0", server_credentials(self.leader_shows))
        self._grpc.start()
        self.way = ReloadingChannel(f"127.0.0.1:{port}", LEADER, self.webhook_shows)
        self.pass_time(10 * MINUTE)  # all of this stands for long

    def stop(self) -> None:
        self.way.close()
        self._grpc.stop(None).wait(20.0)

    def leader_shows(self) -> Material | None:
        """What the present leader shows: another one may follow it."""
        return self.leader.grpc_server()

    def webhook_shows(self) -> Material | None:
        return self.worker.client_credentials()

    @property
    def in_grpc(self) -> tuple[Material, Material]:
        """What the webhook and the leader show each other."""
        client, server = self.webhook_shows(), self.leader_shows()
        assert client is not None
        assert server is not None
        return client, server

    def start_leader(self) -> None:
        settings = ProcessSettings(
            pod_name="p", pod_ip="10.0.0.1", tls_mode="self", webhook_tls_mode=self.mode
        ).checked()
        leader = webhook_chain(settings, self.api, self.clock, lambda: True)
        assert isinstance(leader, KeptWebhookChain)
        self.leader = leader

    def start_webhook(self) -> None:
        self.tls = ServerTls(lets_anybody_in=True)
        worker = certificate_worker(WebhookSettings(tls_mode=self.mode), self.api, self.clock, self.tls)
        assert isinstance(worker, WebhookCertificates)
        self.worker = worker

    def put(self, secret: str, ca: Pair, *, bundle: bytes | None = None) -> None:
        put_leaf(self.api, SPACE, secret, leaf_of(ca, secret), bundle or ca.certificate)

    def put_all(self, ca: Pair) -> None:
        for secret in SPECS:
            self.put(secret, ca)

    def shows_one_of(self, ca: Pair) -> bool:
        return is_taken(self.tls.context, ca.certificate, WEBHOOK)

    def damage(self, secret: str, value: bytes) -> None:
        spoil_secret(self.api, SPACE, secret, {"ca.crt": value})

    def round(self) -> None:
        """The webhook looks before the leader: it is the first to hold a new leaf."""
        self.worker.look()
        self.leader.look()
        bundle = self.leader.ca_bundle()
        if bundle:
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

    @property
    def published(self) -> bytes:
        return published(self.api)

    def check(self) -> None:
        """Nobody is refused now: by the caBundle of now and of half a minute ago, and by gRPC, on a new connection."""
        late = [bundle for then, bundle in self.bundles if then <= self.clock.now() - LAG_SECONDS][-1]
        for bundle in {late, self.published}:
            assert is_taken(self.tls.context, bundle, WEBHOOK)
        assert "" == self.call()

    def call(self) -> str:
        """How a call of the leader fails, "" when it is answered."""
        self.way.close()
        try:
            with self.way.channel() as channel:
                echo: Any = channel.unary_unary("/Test/Call")
                echo(b"x", timeout=20.0)
        except grpc.RpcError as error:
            return str(error.code())
        return ""

    def check_for(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(ROUND_SECONDS)
            self.round()
            self.check()


OLD = authority()


@pytest.fixture
def cluster() -> Iterator[ForeignCluster]:
    made = ForeignCluster("provided", OLD)
    yield made
    made.stop()


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(name.split("-")[-2] for name in order) for order in ORDERS])
def test_nobody_is_refused_while_the_secrets_change_one_after_the_other(
    cluster: ForeignCluster, order: tuple[str]
) -> None:
    new = authority()
    cluster.check()
    for secret in order:
        cluster.put(secret, new)
        cluster.check_for(100.0)
    assert all(is_rooted_in(material.certificate, [new]) for material in cluster.in_grpc)
    assert cluster.shows_one_of(new)


@pytest.mark.parametrize("mode", ["cert-manager", "provided"])
def test_nobody_is_refused_when_all_change_at_once(mode: str) -> None:
    cluster, new = ForeignCluster(mode, OLD), authority()
    cluster.put_all(new)
    cluster.check_for(200.0)
    assert cluster.shows_one_of(new)  # all that is shown is of the new one
    cluster.stop()


def test_a_leader_that_starts_in_between_trusts_whom_the_one_before_had_published(cluster: ForeignCluster) -> None:
    new = authority()
    cluster.put_all(new)
    cluster.round()
    cluster.start_leader()
    cluster.check_for(10.0)
    assert cluster.shows_one_of(OLD)  # the webhook waits with its new certificate
    cluster.check_for(100.0)
    assert cluster.shows_one_of(new)


def test_before_it_is_known_who_was_trusted_nothing_is_published(cluster: ForeignCluster) -> None:
    new, before = authority(), cluster.published

    def refuse(_verb: str, resource: Resource) -> None:
        if resource in OUR_CONFIGURATIONS:
            raise ClusterError("403: forbidden")

    cluster.put_all(new)
    cluster.start_leader()
    cluster.api.fail = refuse
    cluster.leader.look()
    assert b"" == cluster.leader.ca_bundle()
    assert any("403" in problem for problem in cluster.leader.problems)
    cluster.api.fail = lambda _verb, _resource: None
    cluster.leader.look()
    assert before in cluster.leader.ca_bundle()
    assert [] == list(cluster.leader.problems)


def test_a_withdrawn_authority_is_trusted_no_longer_after_the_settling_time(cluster: ForeignCluster) -> None:
    new, old_client = authority(), cluster.worker.client_credentials()
    old_server = ServerTls(lets_anybody_in=True)
    leaf = leaf_of(OLD, SERVER_SECRET)
    old_server.use(leaf.certificate, leaf.key, b"")
    cluster.put_all(new)
    cluster.pass_time(A_DAY - 10 * MINUTE)
    assert is_taken(old_server.context, cluster.published, WEBHOOK)
    cluster.check()
    cluster.pass_time(20 * MINUTE)
    cluster.check()
    assert not is_taken(old_server.context, cluster.published, WEBHOOK)
    assert {new.certificate} == {cluster.published, *(material.client_ca for material in cluster.in_grpc)}

    cluster.worker.client_credentials = lambda: old_client  # type: ignore[method-assign]
    assert "StatusCode.UNAVAILABLE" == cluster.call()


@pytest.mark.parametrize(
    "damage", [b"", b"garbage", leaf_of(OLD, SERVER_SECRET).certificate], ids=["none", "no", "leaf"]
)
@pytest.mark.parametrize("secret", list(SPECS))
def test_a_damaged_file_of_authorities_takes_no_trust_away(secret: str, damage: bytes) -> None:
    cluster = ForeignCluster("provided", OLD, server=authority())  # one names an authority that no other does
    cluster.damage(secret, damage)
    cluster.pass_time(2 * A_DAY)
    cluster.check()
    if secret != CLIENT_SECRET:  # its own process could not know whom to trust
        cluster.start_leader()
        cluster.pass_time(2 * A_DAY)
        assert is_taken(cluster.tls.context, cluster.published, WEBHOOK)
    cluster.stop()


def test_a_leaf_that_is_written_before_its_authority_waits_for_it(cluster: ForeignCluster) -> None:
    new = authority()
    for secret in SPECS:
        cluster.put(secret, new, bundle=OLD.certificate)
        cluster.check_for(30.0)
    for secret in SPECS:
        cluster.put(secret, new, bundle=bundle_of([OLD, new]))
        cluster.check_for(100.0)
    assert cluster.shows_one_of(new)


def test_a_leader_that_nobody_will_ever_know_waits_half_a_day_and_not_longer(cluster: ForeignCluster) -> None:
    _, before = cluster.in_grpc
    cluster.put(LEADER_SECRET, authority())
    cluster.pass_time(12 * HOUR - 10 * MINUTE)
    cluster.check()
    _, shown = cluster.in_grpc
    assert before.certificate == shown.certificate
    cluster.pass_time(20 * MINUTE)
    assert "" != cluster.call()


def test_a_renewal_under_the_same_authority_is_shown_at_once(cluster: ForeignCluster) -> None:
    before = cluster.tls.context, *cluster.in_grpc
    cluster.put_all(OLD)
    cluster.round()
    after = cluster.tls.context, *cluster.in_grpc
    assert all(one != other for one, other in zip(before, after, strict=True))
    cluster.check()
