"""What somebody can do who reaches a port of ours. He reads no more than the API server lets him read, and writes
nothing into the log but text."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.cache import REPOSITORY
from tests.cluster.components import LOOPBACK
from tests.e2e.forms import Form, encode
from tests.e2e.harness import Scene
from tests.e2e.programs import Controller
from tests.e2e.webhooks import write_certificates
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

STATUS_ACCESS = REPOSITORY / "docs" / "examples" / "status-access.yaml"
WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Guarded:
    scene: Scene
    controller: Controller
    tls_port: int

    def ask(self, token: str) -> int:
        """The HTTP status that a caller with that token gets."""
        url = f"https://{LOOPBACK}:{self.tls_port}/status"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=10, context=ssl._create_unverified_context()) as answer:
                assert json.load(answer)["is_leading"]
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def guarded(shared_scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A copy of the product that logs JSON, and serves its status document over TLS as well."""
    shared_scene.longhorn.resume()
    shared_scene.stop_controllers()
    folder, port = tmp_path_factory.mktemp("status"), free_port()
    write_certificates(folder)
    done = shared_scene.cluster.kubectl("apply", "-f", str(STATUS_ACCESS))
    assert 0 == done.returncode, done.stderr
    flags = ("--log-format", "json", "--status-tls-port", str(port), "--status-tls-cert-dir", str(folder))
    yield Guarded(shared_scene, shared_scene.start_controller(flags=flags), port)
    shared_scene.stop_controllers()
    shared_scene.cluster.kubectl("delete", "-f", str(STATUS_ACCESS))


def test_the_port_for_the_network_tells_of_no_object(guarded: Guarded) -> None:
    controller = guarded.controller
    assert controller.status()["is_leading"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        controller.page("/status")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", controller.status_port)):
        pass  # it listens on one address alone


def test_over_the_network_the_api_server_decides_who_reads_the_status_document(guarded: Guarded) -> None:
    cluster = guarded.scene.cluster
    for name in ("reader", "stranger"):
        cluster.api().create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    subject = "--serviceaccount=default:reader"
    role = "--clusterrole=longhorn-scheduler-extender-status-reader"
    done = cluster.kubectl("create", "clusterrolebinding", "status-reader", role, subject)
    assert 0 == done.returncode, done.stderr
    try:
        tokens = {
            name: cluster.kubectl("create", "token", name, "-n", "default").stdout.strip()
            for name in ("reader", "stranger")
        }
        wait_until(lambda: guarded.ask(tokens["reader"]) == 200, "a reader", WAIT_SECONDS)
        assert [403, 401, 401] == [guarded.ask(token) for token in (tokens["stranger"], "made-up", "")]
    finally:
        cluster.kubectl("delete", "clusterrolebinding/status-reader")
        cluster.kubectl("delete", "-n", "default", "serviceaccount/reader", "serviceaccount/stranger")


FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x00"


def test_whatever_is_sent_the_log_stays_one_object_a_line(guarded: Guarded) -> None:
    controller = guarded.controller
    pod = {"metadata": {"name": FORGED, "namespace": FORGED, "uid": FORGED}, "spec": {"schedulerName": FORGED}}
    guarded.scene.call("/filter", encode(Form.NAMES, pod, [FORGED], {}))
    wait_until(lambda: controller.status()["rpc"]["is_serving"], "gRPC server with a certificate", WAIT_SECONDS)
    junk = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", FORGED.encode() + b"\r\n\r\n")
    ports = (controller.grpc_port, controller.metrics_port, controller.status_port, guarded.tls_port, controller.port)
    for data in junk:
        for each in ports:
            with socket.create_connection((LOOPBACK, each)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(data)
                sock.settimeout(1.0)
                with contextlib.suppress(OSError):
                    sock.recv(1)
    guarded.scene.stop_controllers()
    lines = controller.log.read_bytes().decode().removesuffix("\n").split("\n")
    assert [] == [line for line in lines if not (line.startswith("{") and isinstance(json.loads(line), dict))]
    assert any(FORGED in json.loads(line)["message"] for line in lines)
