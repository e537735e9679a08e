"""Which certificates a process serves with, by its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from certs.keeper import Certificates, NoCertificates
from controller.assembly.certificates import CertificateWorker, MountedCertificates, certificate_worker
from controller.clock import SystemClock
from controller.kube.resources import SECRETS
from controller.serving.tls import ServerTls
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.unit.serving.tls_files import Mounted, authority, server_of
from tests.waiting import wait_until


def settings(**chosen: Any) -> ProcessSettings:
    return ProcessSettings(pod_name="p", pod_ip="10.0.0.1", **{"tls_mode": "self", **chosen}).checked()


def worker(api: FakeApiServer, tls: ServerTls | None, *, is_leading: bool = True, **chosen: Any) -> CertificateWorker:
    return certificate_worker(settings(**chosen), api, VirtualClock(), tls, lambda: is_leading)


def test_with_plain_http_there_is_nothing_to_keep() -> None:
    found = worker(FakeApiServer(), None, tls_mode="insecure-plain-http")
    assert isinstance(found, NoCertificates)
    assert found.is_serving
    assert {} == found.expiries()


@pytest.mark.parametrize("mode", ["self", "cert-manager", "provided"])
def test_secrets_are_followed_in_every_mode(mode: str) -> None:
    assert isinstance(worker(FakeApiServer(), ServerTls(), tls_mode=mode), Certificates)


def test_a_leader_makes_its_certificates_and_serves_with_them() -> None:
    api, tls = FakeApiServer(), ServerTls()
    found = certificate_worker(settings(tls_mode="self", tls_secret="mine"), api, SystemClock(), tls, lambda: True)
    found.start()
    wait_until(lambda: tls.context is not None)
    found.stop()
    assert found.is_serving
    names = {name for path, _, name in api.objects if path == SECRETS.path()}
    assert {"mine", "longhorn-scheduler-extender-client", "longhorn-scheduler-extender-ca"} == names


def test_a_directory_is_followed_in_place_of_a_secret(tmp_path: Path) -> None:
    tls, ca = ServerTls(), authority()
    files = Mounted(tmp_path / "tls")
    found = worker(FakeApiServer(), tls, tls_mode="provided", tls_cert_dir=str(files.path))
    assert isinstance(found, MountedCertificates)
    found.start()
    assert not found.is_serving
    assert "tls.crt" in found.problems[0]
    files.put(server_of(ca), ca.certificate)
    wait_until(lambda: tls.context is not None and not found.problems)
    assert {"server", "ca"} == found.expiries().keys()
    found.stop()
