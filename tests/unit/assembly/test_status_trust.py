"""What callers of the status port are told: by whom, where, and how it stays true."""

from __future__ import annotations

import hashlib
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from certs.authority import Pair
from certs.keeper import NoCertificates
from controller.assembly.status_listeners import StatusListeners
from controller.assembly.status_trust import StatusTrust
from controller.errors import ConfigError, ForbiddenError
from controller.kube.resources import CONFIG_MAPS
from controller.process.status_port import StatusServer
from controller.serving.tls import ServerTls
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.ports import free_port
from tests.unit.assembly.processes import settings_of
from tests.unit.serving.tls_files import HOST, Mounted, authority, server_of

NAMESPACE, NAME = "longhorn-system", "longhorn-scheduler-extender-status"


class TrustedLeader:
    """A copy that may publish, and the ConfigMap that the manifest has made."""

    def __init__(self) -> None:
        self.api, self.leads = FakeApiServer(), True
        self.authorities: bytes | None = b"FIRST"
        self.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"a": "b"}}})
        self.trust = StatusTrust(
            self.api,
            NAMESPACE,
            leader="p1",
            address="10.0.0.1:9508",
            authorities=lambda: self.authorities,
            is_leading=lambda: self.leads,
        )

    def data(self) -> dict[str, str]:
        found: dict[str, str] = self.api.get(CONFIG_MAPS, NAMESPACE, NAME).get("data") or {}
        return found


def test_the_leader_publishes_and_keeps_it_true() -> None:
    leader = TrustedLeader()
    leader.trust.look()
    told = {"leader": "p1", "address": "10.0.0.1:9508", "ca.crt": "FIRST"}
    assert told == leader.data()
    version = leader.api.version
    leader.trust.look()
    assert version == leader.api.version  # nothing is written without need
    leader.authorities = b"FIRST\nNEXT"  # before a rotation, so that both are trusted
    leader.trust.look()
    assert {**told, "ca.crt": "FIRST\nNEXT"} == leader.data()
    leader.api.patch(CONFIG_MAPS, NAMESPACE, NAME, {"data": {"ca.crt": "FORGED", "other": "x"}})
    leader.trust.look()
    assert {**told, "ca.crt": "FIRST\nNEXT", "other": "x"} == leader.data()


def test_what_was_published_stays_while_a_new_leader_does_not_know_its_authorities_yet() -> None:
    leader = TrustedLeader()
    leader.trust.look()
    before, leader.authorities = leader.data(), None
    leader.trust.look()
    assert (before, "") == (leader.data(), leader.trust.problem)


def test_a_follower_publishes_nothing() -> None:
    leader = TrustedLeader()
    leader.leads = False
    leader.trust.look()
    assert ({}, "") == (leader.data(), leader.trust.problem)


def test_what_cannot_be_published_is_said_once_and_is_no_problem_any_more_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = TrustedLeader()
    leader.api.delete(CONFIG_MAPS, NAMESPACE, NAME)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            leader.trust.worker._run()
    assert "apply the manifest again" in leader.trust.problem
    assert 1 == len(caplog.messages)
    leader.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": NAME, "namespace": NAMESPACE}})
    leader.api.fail_with(ForbiddenError("403: not you"), "patch")
    leader.trust.worker._run()
    assert "403: not you" == leader.trust.problem
    leader.api.work()
    leader.trust.worker._run()
    assert "" == leader.trust.problem


def listeners(tls: ServerTls | None = None, api: FakeApiServer | None = None, **settings: object) -> StatusListeners:
    chosen = settings_of(**settings)
    return StatusListeners(
        chosen,
        api or FakeApiServer(),
        VirtualClock(),
        tls=tls,
        certificates=NoCertificates(),
        is_leading=lambda: True,
    )


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (listeners(status_tls_port=9508), ["status"]),  # over plain HTTP there is no certificate
        (listeners(ServerTls(), status_tls_port=0), ["status"]),
        (listeners(ServerTls(), status_tls_port=9508), ["status", "status-tls", "status-trust"]),
    ],
)
def test_the_port_on_the_network_is_there_where_a_certificate_can_be(made: StatusListeners, names: list[str]) -> None:
    assert names == [worker.name for part in made.parts({}, None) for worker in part.workers]


def test_a_directory_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.crt"):
        listeners(status_tls_port=9508, status_tls_cert_dir=str(tmp_path))


@contextmanager
def served(made: StatusListeners) -> Iterator[int]:
    """The port on the network."""
    (server,) = (part for part in made.parts({}, None) if part.workers[0].name == "status-tls")
    assert isinstance(server, StatusServer)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def shown(port: int, trusted: Pair) -> str:
    """The fingerprint of the certificate that a caller is shown who shows none, and who trusts that authority."""
    trust = ssl.create_default_context(cadata=trusted.certificate.decode())
    with trust.wrap_socket(socket.create_connection((HOST, port), 10), server_hostname=HOST) as sock:
        certificate = sock.getpeercert(binary_form=True)
        sock.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        assert b"401" in sock.recv(64)  # and no certificate was asked for
    assert certificate is not None
    return hashlib.sha256(certificate).hexdigest()


def fingerprint(leaf: Pair) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(leaf.certificate.decode())).hexdigest()


def test_callers_are_shown_the_extender_s_certificate_and_the_next_one_without_a_restart() -> None:
    tls, ca = ServerTls(), authority()
    with served(listeners(tls, status_tls_port=free_port())) as port:
        with pytest.raises(OSError):
            shown(port, ca)  # there is none yet
        for leaf in (server_of(ca), server_of(ca)):
            tls.use(leaf.certificate, leaf.key, ca.certificate)
            assert fingerprint(leaf) == shown(port, ca)


def test_callers_are_shown_the_certificate_of_the_directory_and_told_its_authorities(tmp_path: Path) -> None:
    ca, files = authority(), Mounted(tmp_path / "tls")
    files.put(server_of(ca), ca.certificate)
    leader = TrustedLeader()
    made = listeners(api=leader.api, status_tls_port=free_port(), status_tls_cert_dir=str(files.path))
    with served(made) as port:
        for _ in range(2):
            leaf = server_of(ca)
            files.put(leaf, ca.certificate)
            assert fingerprint(leaf) == shown(port, ca)
    (trust,) = (part for part in made.parts({}, None) if isinstance(part, StatusTrust))
    trust.look()
    assert {"ca.crt": ca.certificate.decode()}.items() <= leader.data().items()
    (files.path / "ca.crt").unlink()  # the callers' own authorities have to do
    trust.look()
    assert "" == leader.data()["ca.crt"]
