"""What a running server is given, in each mode, by leaders and followers, and what is known of it."""

from __future__ import annotations

import pytest

from certs.authority import LeafSpec, Pair, bundle_of, make_authority, read_pair, sign
from certs.keeper import CertificateMode, Certificates, extender_leaves, extender_plan
from certs.rotation import DAY, PINNED, YEAR
from certs.secret import SecretStore
from controller.errors import ConfigError, UnavailableError
from controller.kube.resources import SECRETS, SERVICES
from controller.process.repeated import QUIET_SECONDS
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import put_leaf, spoil_secret
from tests.waiting import wait_until

SETTINGS = ProcessSettings(
    service="extender", tls_extra_names="more.example", tls_secret="tls", tls_client_secret="client", tls_ca_secret="ca"
)


class ServiceCluster:
    """One cluster, and servers that read their certificates from it."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()
        self.leader: object = None
        self.refuses = False
        spec = {"clusterIPs": ["10.96.0.7"]}
        self.api.create(SERVICES, "longhorn-system", {"metadata": {"name": "extender"}, "spec": spec})

    def server(self, mode: CertificateMode = CertificateMode.SELF) -> CertifiedServer:
        return CertifiedServer(self, mode)

    def write(self, name: str, leaf: Pair, authority: Pair) -> None:
        put_leaf(self.api, "longhorn-system", name, leaf, authority.certificate)


class CertifiedServer:
    def __init__(self, world: ServiceCluster, mode: CertificateMode) -> None:
        self.world = world
        self.given: list[tuple[bytes, bytes, bytes]] = []
        store = SecretStore(world.api, "longhorn-system")
        plan = extender_plan(store, SETTINGS)
        self.certificates = Certificates(
            mode, store, plan, world.clock, {"server": self._use}, lambda: world.leader is self
        )
        self.look = self.certificates.look

    def _use(self, certificate: bytes, key: bytes, client_ca: bytes) -> bool:
        if self.world.refuses:
            raise ConfigError("tls.crt: does not please the library")
        is_new = self.given[-1:] != [(certificate, key, client_ca)]
        if is_new:
            self.given.append((certificate, key, client_ca))
        return is_new


@pytest.fixture
def world() -> ServiceCluster:
    return ServiceCluster()


@pytest.fixture
def leader(world: ServiceCluster) -> CertifiedServer:
    """A server that leads and has looked once."""
    world.leader = made = world.server()
    made.look()
    return made


def test_a_follower_waits_for_the_leader_and_then_serves_the_same(world: ServiceCluster) -> None:
    leader, follower = world.server(), world.server()
    follower.look()
    assert [] == follower.given
    assert 3 == len(follower.certificates.problems)

    world.leader = leader
    leader.look()
    follower.look()
    assert follower.certificates.is_serving
    assert [] == list(follower.certificates.problems)
    assert leader.given == follower.given


def test_the_names_are_all_of_the_service_and_its_address(leader: CertifiedServer) -> None:
    certificate, key, _ = leader.given[0]
    facts = read_pair(certificate, key, what="x").facts
    base = "extender.longhorn-system"
    expected = {"extender", base, f"{base}.svc", f"{base}.svc.cluster.local", "10.96.0.7", "more.example"}
    assert expected == facts.names
    assert "CN=extender.longhorn-system.svc.cluster.local" in facts.subject


def test_expiries_count_down_by_name(world: ServiceCluster, leader: CertifiedServer) -> None:
    ends = leader.certificates.expiries()
    expected = {"ca": 20 * YEAR, "server": 90 * DAY, "client": 10 * YEAR}
    assert {name: life.total_seconds() for name, life in expected.items()} == ends
    world.clock.advance(91 * 86_400)
    assert leader.certificates.expiries()["server"] < 0


def test_a_renewal_by_the_leader_reaches_the_follower(world: ServiceCluster, leader: CertifiedServer) -> None:
    follower = world.server()
    follower.look()
    world.clock.advance(61 * 86_400)
    follower.look()
    assert 1 == len(follower.given)
    leader.look()
    follower.look()
    assert 2 == len(leader.given)
    assert leader.given == follower.given
    assert leader.given[0][2] == leader.given[1][2]


@pytest.mark.usefixtures("leader")
def test_a_follower_goes_on_with_what_it_has_while_secrets_are_gone(world: ServiceCluster) -> None:
    follower = world.server()
    follower.look()
    before = dict(world.api.objects)
    for name in ("ca", "tls", "client"):
        world.api.delete(SECRETS, "longhorn-system", name)
    follower.look()
    assert 1 == len(follower.given)
    assert follower.certificates.problems

    world.leader = follower  # it takes over, and what it remembers comes back
    follower.look()
    assert [] == list(follower.certificates.problems)
    key = (SECRETS.path(), "longhorn-system", "ca")
    assert before[key]["data"] == world.api.objects[key]["data"]


def test_what_the_library_does_not_take_is_a_problem_and_no_end(world: ServiceCluster) -> None:
    world.leader = leader = world.server()
    world.refuses = True
    with pytest.raises(ConfigError):
        leader.look()
    assert not leader.certificates.is_serving


@pytest.mark.parametrize("mode", [CertificateMode.CERT_MANAGER, CertificateMode.PROVIDED])
def test_what_others_write_is_read_and_never_written(world: ServiceCluster, mode: CertificateMode) -> None:
    now = world.clock.now_utc()
    ca = make_authority("theirs", 10 * DAY, now)
    world.leader = server = world.server(mode)
    server.look()
    assert [] == server.given
    assert ["Secret tls: its Secret does not exist"] == list(server.certificates.problems)

    leaf = sign(ca, LeafSpec("s", DAY, ("x",)), now)
    world.write("tls", leaf, ca)
    version = world.api.version
    server.look()
    assert [(leaf.certificate, leaf.key, ca.certificate)] == server.given
    assert [] == list(server.certificates.problems)
    assert {"server", "ca"} == server.certificates.expiries().keys()
    world.clock.advance(2 * 86_400)  # ended: others' business; it is shown
    server.look()
    assert server.certificates.expiries()["server"] < 0
    assert version == world.api.version


def test_what_others_write_wrongly_is_named_and_the_last_good_one_stays(world: ServiceCluster) -> None:
    now = world.clock.now_utc()
    ca, other = (make_authority("theirs", 10 * DAY, now) for _ in range(2))
    server = world.server(CertificateMode.PROVIDED)
    good, bad = (sign(authority, LeafSpec("s", DAY, ("x",)), now) for authority in (ca, other))
    world.write("tls", bad, ca)
    server.look()
    assert (b"", []) == (server.certificates.bundle, server.given)
    world.write("tls", good, ca)
    server.look()
    world.write("tls", bad, ca)
    server.look()
    assert 1 == len(server.given)
    (problem,) = server.certificates.problems
    assert "not signed by an authority in ca.crt" in problem
    assert server.certificates.is_serving


def test_clients_of_an_authority_that_others_replace_are_let_in_for_a_day_more(world: ServiceCluster) -> None:
    now = world.clock.now_utc()
    old, new, elsewhere = (make_authority("theirs", 10 * DAY, now) for _ in range(3))
    server = world.server(CertificateMode.PROVIDED)
    # Whom the client trusts is not whom the server lets in.
    world.write("client", sign(elsewhere, LeafSpec("c", DAY, is_client=True), now), elsewhere)
    for authority in (old, new):
        world.write("tls", sign(authority, LeafSpec("s", 3 * DAY, ("x",)), now), authority)
        server.look()
    world.clock.advance(86_400 - 10)
    server.look()
    assert bundle_of([new, old]) == server.given[-1][2] == server.certificates.bundle
    world.clock.advance(10)
    server.look()
    assert new.certificate == server.given[-1][2] == server.certificates.bundle


def test_an_api_server_that_is_away_changes_nothing(world: ServiceCluster, leader: CertifiedServer) -> None:
    world.api.fail_with(UnavailableError("503"))
    with pytest.raises(UnavailableError):
        leader.look()
    assert leader.certificates.is_serving
    assert 1 == len(leader.given)


@pytest.mark.parametrize("mode", CertificateMode)
@pytest.mark.parametrize(
    "data", [{"ca.crt": b""}, {"ca.crt": b"junk"}, {"tls.key": b""}, {"tls.crt": b""}, {"tls.key": b"", "ca.crt": b""}]
)
def test_a_damaged_secret_is_named_once_and_looked_at_less_and_less_often(
    world: ServiceCluster, mode: CertificateMode, data: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    now = world.clock.now_utc()
    ca = make_authority("theirs", 10 * DAY, now)
    world.write("tls", sign(ca, LeafSpec("s", DAY, ("x",)), now), ca)
    spoil_secret(world.api, "longhorn-system", "tls", data)
    server = world.server(mode)
    pauses = [server.certificates._looks.run_once() for _ in range(40)]
    assert not server.certificates.is_serving
    assert [1.0] * 30 == pauses[:30]
    assert 10.0 == pauses[-1]
    assert 0 == caplog.text.count("certificates: ")
    world.clock.advance(QUIET_SECONDS)
    for _ in range(3):
        server.certificates._looks.run_once()
    assert len(server.certificates.problems) == caplog.text.count("certificates: ")
    if mode is not CertificateMode.SELF:
        world.write("tls", sign(ca, LeafSpec("s", DAY, ("x",)), now), ca)
        assert 10.0 == server.certificates._looks.run_once()
        assert server.certificates.is_serving


def test_its_thread_looks_until_it_is_stopped(world: ServiceCluster) -> None:
    world.leader = leader = world.server()
    leader.certificates.start()
    wait_until(lambda: leader.certificates.is_serving)
    leader.certificates.stop()
    assert 1 == len(leader.given)


def test_the_products_leaves_fit_its_policy_and_end_with_their_authority() -> None:
    leaves = extender_leaves(["x" * 300, "a.b"])
    PINNED.checked(leaves.values())
    assert "a.b" == leaves["server"].subject
    assert leaves["client"].life <= PINNED.ca_life
    assert PINNED.settle is None
