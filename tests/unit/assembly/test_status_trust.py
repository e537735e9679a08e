"""What callers of the status port are told: by whom, where, and how it stays true."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from certs.keeper import NoCertificates
from controller.assembly.status_listeners import StatusListeners
from controller.assembly.status_trust import StatusTrust
from controller.errors import ConfigError, ForbiddenError
from controller.kube.resources import CONFIG_MAPS
from controller.serving.tls import ServerTls
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.unit.assembly.processes import settings_of

NAMESPACE, NAME = "longhorn-system", "longhorn-scheduler-extender-status"


class TrustedLeader:
    """A copy that may publish, and the ConfigMap that the manifest has made."""

    def __init__(self) -> None:
        self.api, self.authorities, self.leads = FakeApiServer(), b"FIRST", True
        self.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"a": "b"}}})
        self.trust = StatusTrust(
            self.api,
            NAMESPACE,
            leader="p1",
            address="10.0.0.1:9508",
            authorities=lambda: self.authorities,
            is_leading=lambda: self.leads,
        )

    def data(self) -> object:
        return self.api.get(CONFIG_MAPS, NAMESPACE, NAME).get("data")


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


def test_a_follower_publishes_nothing() -> None:
    leader = TrustedLeader()
    leader.leads = False
    leader.trust.look()
    assert (None, "") == (leader.data(), leader.trust.problem)


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


def listeners(tls: ServerTls | None = None, **settings: object) -> StatusListeners:
    chosen = settings_of(**settings)
    return StatusListeners(
        chosen,
        FakeApiServer(),
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
