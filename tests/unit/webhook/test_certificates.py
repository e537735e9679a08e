"""What the webhook serves and calls with: read from Secrets or files, kept through damage, given up when cut off."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from certs.authority import LeafSpec, Pair, make_authority, sign
from certs.keeper import NoCertificates
from certs.rotation import DAY
from certs.webhook import DEFAULT_PACE
from controller.errors import ClusterError, UnavailableError
from controller.kube.resources import SECRETS, Resource
from controller.process.repeated import QUIET_SECONDS
from controller.serving.tls import Material, ServerTls
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import put_leaf, put_secret, spoil_secret
from tests.unit.serving.tls_files import Mounted
from tests.waiting import wait_until
from webhook.certificates import WebhookCertificates, certificate_worker
from webhook.settings import WebhookSettings

SETTINGS = WebhookSettings(tls_secret="server", tls_client_secret="client")
SPACE = SETTINGS.namespace
HOUR_SECONDS = 3_600.0


class CertifiedWebhook:
    def __init__(self, *, settings: WebhookSettings = SETTINGS, secrets: Sequence[str] = ()) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()
        self.tls = ServerTls(lets_anybody_in=not settings.client_ca_file)
        self.ca = make_authority("ca", 300 * DAY, self.clock.now_utc())
        for name in secrets:
            self.put(name)
        made = certificate_worker(settings, self.api, self.clock, self.tls)
        assert isinstance(made, WebhookCertificates)
        self.worker = made

    def leaf(self, name: str) -> Pair:
        spec = LeafSpec(name, 90 * DAY, is_client=name == "client", names=() if name == "client" else ("webhook",))
        return sign(self.ca, spec, self.clock.now_utc())

    def put(self, name: str) -> Pair:
        leaf = self.leaf(name)
        put_leaf(self.api, SPACE, name, leaf, self.ca.certificate)
        return leaf

    def look_for(self, hours: float) -> None:
        for _ in range(int(hours * 6)):
            self.clock.advance(600.0)
            self.worker.look()

    def cut_off(self) -> None:
        self.api.fail_with(UnavailableError("the API server: timeout"))

    @property
    def in_use(self) -> tuple[object, object]:
        return self.worker.client_credentials(), self.tls.context

    @property
    def used(self) -> tuple[bool, bool]:
        """Whether it serves, and whether it calls with a certificate."""
        return self.worker.is_serving, self.worker.client_credentials() is not None


@pytest.fixture
def world() -> CertifiedWebhook:
    world = CertifiedWebhook(secrets=("server", "client"))
    world.worker.look()
    return world


def test_both_certificates_are_taken_from_their_secrets_and_new_ones(world: CertifiedWebhook) -> None:
    assert (True, True) == world.used
    ends = {"webhook-server": 90 * DAY, "webhook-client": 90 * DAY, "webhook-ca": 300 * DAY}
    assert {name: life.total_seconds() for name, life in ends.items()} == world.worker.expiries()
    assert [] == list(world.worker.problems)

    before = world.tls.context
    world.put("server")
    leaf = world.put("client")
    world.worker.look()
    assert before is not world.tls.context
    assert Material(leaf.certificate, leaf.key, world.ca.certificate) == world.worker.client_credentials()


@pytest.mark.parametrize("secrets", [(), ("server",), ("client",)])
def test_each_is_used_without_the_other(secrets: tuple[str, ...]) -> None:
    world = CertifiedWebhook(secrets=secrets)
    world.worker.look()
    assert ("server" in secrets, "client" in secrets) == world.used
    assert 2 - len(secrets) == len(world.worker.problems)
    assert all("does not exist" in problem for problem in world.worker.problems)


@pytest.mark.parametrize("data", [{"ca.crt": b""}, {"tls.key": b""}])
@pytest.mark.parametrize("mode", ["self", "provided"])
def test_a_damaged_secret_is_named_once_and_looked_at_less_and_less_often(
    mode: str, data: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    world = CertifiedWebhook(settings=replace(SETTINGS, tls_mode=mode), secrets=("server", "client"))
    spoil_secret(world.api, SPACE, "client", data)
    pauses = [world.worker._looks.run_once() for _ in range(40)]
    assert (1.0, 10.0) == (pauses[29], pauses[-1])
    assert (True, False) == world.used
    assert 0 == caplog.text.count("certificates: webhook-client")
    world.clock.advance(QUIET_SECONDS)
    for _ in range(3):
        world.worker._looks.run_once()
    assert 1 == caplog.text.count("certificates: webhook-client")
    world.put("client")
    assert 10.0 == world.worker._looks.run_once()
    assert (True, True) == world.used


FILES = ("tls.crt", "tls.key", "ca.crt")
DAMAGE: dict[str, Callable[[CertifiedWebhook, str], dict[str, bytes]]] = {
    "no values": lambda _world, _name: {},
    "garbage": lambda _world, _name: dict.fromkeys(FILES, b"garbage"),
    "empty values": lambda _world, _name: dict.fromkeys(FILES, b""),
    "another one's key": lambda world, name: dict(
        zip(FILES, (world.leaf(name).certificate, world.leaf(name).key, world.ca.certificate), strict=True)
    ),
}


@pytest.mark.parametrize("name", ["server", "client"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_and_loss_leave_what_is_in_use(
    world: CertifiedWebhook, name: str, damage: Callable[[CertifiedWebhook, str], dict[str, bytes]]
) -> None:
    before = world.in_use
    put_secret(world.api, SPACE, name, damage(world, name))
    world.look_for(24)
    assert before == world.in_use
    assert 1 == len(world.worker.problems)
    world.api.delete(SECRETS, SPACE, name)
    world.look_for(24)
    assert before == world.in_use
    world.put(name)
    world.worker.look()
    assert [] == list(world.worker.problems)
    assert before != world.in_use


def test_who_is_cut_off_stops_after_half_a_day_and_goes_on_when_it_is_back(world: CertifiedWebhook) -> None:
    world.cut_off()
    world.look_for(12)
    assert (True, True) == world.used
    world.look_for(0.5)
    assert (False, False) == world.used
    assert any("not been confirmed" in problem for problem in world.worker.problems)
    world.api.work()
    world.worker.look()
    assert (True, True) == world.used


def test_who_was_suspended_stops_before_it_serves_again(world: CertifiedWebhook) -> None:
    world.clock.advance(30 * HOUR_SECONDS)
    world.cut_off()
    world.worker.look()
    assert not world.worker.is_serving


def test_one_secret_that_may_not_be_read_costs_only_its_own_certificate(world: CertifiedWebhook) -> None:
    read = world.api.get
    shown = world.tls.context

    def refuse_client(resource: Resource, namespace: str | None, name: str, *, timeout: float = 10.0) -> object:
        if name == "client":
            raise ClusterError("403: forbidden")
        return read(resource, namespace, name, timeout=timeout)

    world.api.get = refuse_client  # type: ignore[assignment, method-assign]
    world.look_for(13)
    assert shown is world.tls.context
    assert world.worker.client_credentials() is None


def test_half_a_day_is_less_than_the_distances_of_a_rotation() -> None:
    for distance in (DEFAULT_PACE.policy.overlap, DEFAULT_PACE.policy.settle):
        assert distance is not None
        assert DEFAULT_PACE.confirm_seconds <= distance.total_seconds() / 2


def test_files_are_followed_and_need_no_confirmation(tmp_path: Path) -> None:
    server, client = Mounted(tmp_path / "server"), Mounted(tmp_path / "client")
    settings = replace(
        SETTINGS, tls_mode="provided", tls_cert_dir=str(server.path), tls_client_cert_dir=str(client.path)
    )
    world = CertifiedWebhook(settings=settings)
    world.worker.look()
    assert 2 == len(world.worker.problems)
    server.put(world.leaf("server"), b"not looked at")
    client.put(world.leaf("client"), world.ca.certificate)
    world.worker.look()
    assert [] == list(world.worker.problems)
    assert (True, True) == world.used
    world.clock.advance(48 * HOUR_SECONDS)
    (server.path / "..data").unlink()
    world.worker.look()
    assert world.worker.is_serving
    assert 1 == len(world.worker.problems)


def test_without_a_clients_directory_only_the_server_is_followed(tmp_path: Path) -> None:
    server = Mounted(tmp_path / "server")
    world = CertifiedWebhook(settings=replace(SETTINGS, tls_mode="provided", tls_cert_dir=str(server.path)))
    server.put(world.leaf("server"), b"")
    (server.path / "..data" / "ca.crt").unlink()
    world.worker.look()
    assert [] == list(world.worker.problems)
    assert (True, False) == world.used


# Who may ask


def demanding(path: Path) -> CertifiedWebhook:
    return CertifiedWebhook(settings=replace(SETTINGS, client_ca_file=str(path)), secrets=("server", "client"))


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_who_is_to_know_the_api_server_and_does_not_serves_nobody(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    world = demanding(path)
    world.worker.look()
    assert (False, True) == world.used
    assert [str(path) in problem for problem in world.worker.problems] == [True]

    path.write_bytes(world.ca.certificate)
    world.worker.look()
    assert (True, True) == world.used
    assert [] == list(world.worker.problems)


def test_the_authorities_of_the_api_server_are_followed_and_damage_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    first, second = (make_authority(name, DAY, VirtualClock().now_utc()) for name in ("first", "second"))
    path.write_bytes(first.certificate)
    world = demanding(path)
    world.worker.look()
    assert ssl.CERT_REQUIRED == let_in(world)[0]
    for content in (first.certificate + second.certificate, b"damaged"):
        path.write_bytes(content)
        world.worker.look()
        assert (ssl.CERT_REQUIRED, ["first", "second"]) == let_in(world)
    before = world.tls.context
    world.put("server")
    world.worker.look()
    assert before is not world.tls.context
    assert (ssl.CERT_REQUIRED, ["first", "second"]) == let_in(world)


def test_without_such_a_file_no_certificate_is_demanded(world: CertifiedWebhook) -> None:
    assert (ssl.CERT_NONE, []) == let_in(world)


def let_in(world: CertifiedWebhook) -> tuple[ssl.VerifyMode, list[str]]:
    """Whether certificates are demanded, and of which authorities, by name."""
    context = world.tls.context
    assert context is not None
    found = [x509.load_der_x509_certificate(one).subject for one in context.get_ca_certs(binary_form=True)]
    names = [subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value for subject in found]
    return context.verify_mode, sorted(map(str, names))


def test_without_tls_there_is_nothing_to_keep() -> None:
    off = certificate_worker(WebhookSettings(tls_mode="off"), FakeApiServer(), VirtualClock(), None)
    assert isinstance(off, NoCertificates)


def test_its_thread_looks_until_it_is_stopped() -> None:
    fresh = CertifiedWebhook(secrets=("server", "client"))
    fresh.worker.start()
    wait_until(lambda: fresh.worker.is_serving)
    fresh.worker.stop()
