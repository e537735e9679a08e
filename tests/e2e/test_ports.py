"""What somebody can do who reaches a port of ours. He reads no more than the API server lets him read, and writes
nothing into the log but text."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.commands.leader import ADDRESSES
from tests.cluster.components import LOOPBACK
from tests.e2e.forms import Form, encode
from tests.e2e.harness import Cell, Scene
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WAIT_SECONDS = 30.0
ROLE = "longhorn-scheduler-extender-status-reader"
DOCUMENTS = ("/status", "/overview", "/decisions", "/capacity", "/", "/page/main.js")


@dataclass(frozen=True, slots=True)
class Guarded:
    scene: Scene
    controller: Controller
    cell: Cell

    def published(self) -> dict[str, str]:
        """What everybody may read of the status port."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/longhorn-scheduler-extender-status"
        found: dict[str, str] = self.scene.api.get(path).get("data") or {}
        return found

    def ask(self, path: str, token: str) -> tuple[int, Any]:
        """What a caller with that token gets, who checks whom he reaches: the HTTP status, and the document."""
        context = ssl.create_default_context(cadata=self.published()["ca.crt"])
        plain = socket.create_connection((LOOPBACK, self.controller.status_tls_port), timeout=10)
        with context.wrap_socket(plain, server_hostname=f"{SERVICE}.{NAMESPACE}.svc") as sock:
            connection = http.client.HTTPConnection(SERVICE)
            connection.sock = sock
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            body = answer.read()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(body) if is_json else body.decode()

    def codes(self, token: str, *paths: str) -> list[int]:
        return [self.ask(path, token)[0] for path in paths]

    def holders(self, seen: Any) -> set[tuple[str, int]]:
        """Who has bytes on the cell's node, as one document says: names, "" for a sum, and GiB."""
        (node,) = (one for one in seen["nodes"] if one["node"] in self.cell.nodes)
        return {(one["name"], one["size_bytes"] // 2**30) for one in node["holders"]}

    def token(self, name: str) -> str:
        """Of a new account in the cell's namespace, which has no right but those of all accounts."""
        cluster, namespace = self.scene.cluster, self.cell.namespace
        cluster.api().create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        return cluster.kubectl("create", "token", name, "-n", namespace).stdout.strip()

    def allow(self, *words: str) -> None:
        done = self.scene.cluster.kubectl("create", *words)
        assert 0 == done.returncode, done.stderr


@pytest.fixture(scope="module")
def guarded(shared_scene: Scene) -> Iterator[Guarded]:
    """A copy of the product that logs JSON; and a pod that finds no room beside pods of its namespace and another."""
    shared_scene.longhorn.resume()
    shared_scene.stop_controllers()
    controller = shared_scene.start_controller(flags=("--log-format", "json"))
    cell = shared_scene.cell("ports", nodes=1, fillers=0)
    cell.ask("other", gib=200)
    cell.wait_bound(1)
    other = [cell.path("pods"), cell.path("persistentvolumeclaims")]
    cell.renew()
    cell.ask("small", gib=10)
    cell.wait_bound(1)
    cell.ask("large", gib=300)
    cell.wait_refused(1)
    yield Guarded(shared_scene, controller, cell)
    for path in other:
        shared_scene.api.delete(path, gracePeriodSeconds=0)
    cell.end()
    shared_scene.stop_controllers()


def test_the_port_for_the_network_tells_of_no_object(guarded: Guarded) -> None:
    controller = guarded.controller
    assert controller.status()["is_leading"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        controller.page("/status")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", controller.status_port)):
        pass  # it listens on one address alone


def test_over_the_network_the_api_server_decides_who_reads_what(guarded: Guarded) -> None:
    namespace = guarded.cell.namespace
    account = f"--serviceaccount={namespace}:"
    wait_until(lambda: guarded.published().get("leader") == guarded.controller.name, "what is published", WAIT_SECONDS)
    reader, developer, stranger = map(guarded.token, ("reader", "developer", "stranger"))
    guarded.allow("clusterrolebinding", "ports-reader", f"--clusterrole={ROLE}", f"{account}reader")
    guarded.allow("role", "pods", "-n", namespace, "--verb=get", "--resource=pods,persistentvolumeclaims")
    guarded.allow("rolebinding", "pods", "-n", namespace, "--role=pods", f"{account}developer")
    own, claim = f"/explain/pods/{namespace}/large", f"/explain/claims/{namespace}/large"
    try:
        wait_until(lambda: guarded.ask("/overview", reader)[0] == 200, "a reader", WAIT_SECONDS)
        wait_until(lambda: guarded.ask(own, developer)[0] == 200, "a developer", WAIT_SECONDS)
        assert [200] * len(DOCUMENTS) == guarded.codes(reader, *DOCUMENTS)
        others = (f"/explain/pods/{NAMESPACE}/large", f"/explain/volumes/{namespace}")
        assert [403] * 3 == guarded.codes(reader, own, *others)  # names of all in a list are no right to one of them
        assert [200, 200] == guarded.codes(developer, own, claim)
        assert [403] * (len(DOCUMENTS) + 2) == guarded.codes(developer, *DOCUMENTS, *others)
        assert [403, 403, 401, 401] == [
            *guarded.codes(stranger, "/overview", own),
            *guarded.codes("made-up", "/overview"),
            *guarded.codes("", own),
        ]
        seen = guarded.ask(own, developer)[1]
        assert ["Pod", namespace, "large", "waits"] == [seen[key] for key in ("kind", "namespace", "name", "state")]
        assert {("", 210)} == guarded.holders(seen)  # he may get pods of his namespace, and list none
        guarded.allow("role", "all-pods", "-n", namespace, "--verb=list", "--resource=pods")
        guarded.allow("rolebinding", "all-pods", "-n", namespace, "--role=all-pods", f"{account}developer")
        named = {("", 200), (f"{namespace}/small", 10)}
        wait_until(lambda: named == guarded.holders(guarded.ask(own, developer)[1]), "names", WAIT_SECONDS)
    finally:
        guarded.scene.cluster.kubectl("delete", "clusterrolebinding/ports-reader")


def test_everybody_who_is_known_may_read_whom_he_reaches_there(guarded: Guarded, tmp_path: Path) -> None:
    cluster, namespace = guarded.scene.cluster, guarded.cell.namespace
    guarded.token("anybody")
    kubeconfig = cluster.service_account_kubeconfig(namespace, "anybody", tmp_path / "kubeconfig")
    words = ("-n", NAMESPACE, "get", "configmap", "longhorn-scheduler-extender-status")
    done = cluster.kubectl("--kubeconfig", str(kubeconfig), *words, "-o", "jsonpath={.data.address}")
    assert (0, f"{guarded.controller.ip}:{guarded.controller.status_tls_port}") == (done.returncode, done.stdout), done
    assert 0 != cluster.kubectl("--kubeconfig", str(kubeconfig), *words[:-1], "longhorn-scheduler-extender").returncode


def test_on_loopback_all_of_it_is_for_whoever_comes(guarded: Guarded) -> None:
    controller, namespace = guarded.controller, guarded.cell.namespace

    def found(path: str) -> Any:
        return json.loads(controller.page(path, controller.status_port))

    def overview() -> Any:
        return found("/overview")

    wait_until(lambda: overview()["gate"] == "enforced", "the gate", WAIT_SECONDS)
    wait_until(lambda: not overview()["problems"], "no problem", WAIT_SECONDS)
    seen = overview()
    assert (True, controller.name, "active") == (seen["is_leading"], seen["holder"].rpartition("_")[0], seen["mode"])
    assert [(namespace, "large")] == [
        (one["namespace"], one["name"]) for one in seen["waiting"] if one["namespace"] == namespace
    ]
    assert {f"{guarded.cell.name}-n1"} <= {one["node"] for one in seen["disks"]}
    entries = found("/decisions?after=0")
    assert {"term", "mode", "gate", "filter", "place"} <= {one["kind"] for one in entries}
    (refused, *_) = [one for one in entries if one["about"] == f"Pod {namespace}/large"]
    assert ("filter", "refused") == (refused["kind"], refused["decision"])
    assert sum(refused["reasons"].values()) >= 1
    assert [] == found(f"/decisions?after={entries[-1]['serial'] + 1_000_000}")[len(entries) + 100 :]
    assert "waits" == found(f"/explain/pods/{namespace}/large")["state"]
    assert found("/capacity")["totals"]["disks"] >= 1
    assert "<html" in controller.page("/", controller.status_port)


def test_people_ask_the_leader_that_the_command_finds(guarded: Guarded, tmp_path: Path) -> None:
    """By a table of addresses, and with a token at the pod's own."""
    cluster, controller, namespace = guarded.scene.cluster, guarded.controller, guarded.cell.namespace
    table = tmp_path / "addresses.json"
    table.write_text(json.dumps({controller.name: {"status": f"{LOOPBACK}:{controller.status_port}"}}))

    def run(*words: str, kubeconfig: Path = cluster.kubeconfig, addresses: str = "") -> tuple[int, str]:
        done = guarded.scene.run("controller", *words, kubeconfig=kubeconfig, **{ADDRESSES: addresses})
        return done.returncode, done.stdout + done.stderr

    code, seen = run("status", addresses=str(table))
    assert (0, True) == (code, f"{namespace}/large" in seen), seen
    code, said = run("explain", "pod", f"{namespace}/large", addresses=str(table))
    assert (1, f"Pod {namespace}/large waits since ") == (code, said[: len(f"Pod {namespace}/large waits since ")]), (
        said
    )
    assert f"{guarded.cell.name}-n1" in said and "GiB" in said
    assert 0 == run("explain", "pod", f"{namespace}/small", addresses=str(table))[0]
    code, said = run("capacity", addresses=str(table))
    assert code in (0, 1) and "Largest new volume: " in said, said

    guarded.token("person")
    person = cluster.service_account_kubeconfig(namespace, "person", tmp_path / "kubeconfig")
    # He may read no Lease, and is told by what the leader publishes; nobody is at that made-up address.
    unreached = f"error: pod {NAMESPACE}/{controller.name} was not reached: "
    wait_until(lambda: run("status", kubeconfig=person)[1].startswith(unreached), "an address", WAIT_SECONDS)
    port = {"name": "status", "containerPort": controller.status_tls_port}
    container = {"name": "controller", "image": "none", "ports": [port]}
    spec = {"schedulerName": "nobody", "containers": [container]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    guarded.scene.api.create(path, {"metadata": {"name": controller.name}, "spec": spec})
    guarded.scene.api.patch(
        f"{path}/{controller.name}/status", {"status": {"podIP": LOOPBACK, "podIPs": [{"ip": LOOPBACK}]}}
    )
    account = f"--serviceaccount={namespace}:person"
    guarded.allow("role", "finders", "-n", NAMESPACE, "--verb=get", "--resource=leases,pods")
    guarded.allow("rolebinding", "finders", "-n", NAMESPACE, "--role=finders", account)
    guarded.allow("clusterrolebinding", "ports-person", f"--clusterrole={ROLE}", account)
    try:
        wait_until(lambda: run("status", kubeconfig=person)[0] == 0, "a way by the token", WAIT_SECONDS)
        code, said = run("explain", "pod", f"{namespace}/large", kubeconfig=person)
        assert (3, True) == (code, "403" in said and "port-forward: " in said), said  # his rights end there
    finally:
        cluster.kubectl("delete", "clusterrolebinding/ports-person")
        cluster.kubectl("delete", "-n", NAMESPACE, "role/finders", "rolebinding/finders", f"pod/{controller.name}")


FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x00"


def test_whatever_is_sent_the_log_stays_one_object_a_line(guarded: Guarded) -> None:
    controller = guarded.controller
    pod = {"metadata": {"name": FORGED, "namespace": FORGED, "uid": FORGED}, "spec": {"schedulerName": FORGED}}
    guarded.scene.call("/filter", encode(Form.NAMES, pod, [FORGED], {}))
    wait_until(lambda: controller.status()["rpc"]["is_serving"], "gRPC server with a certificate", WAIT_SECONDS)
    junk = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", FORGED.encode() + b"\r\n\r\n")
    ports = (
        controller.grpc_port,
        controller.metrics_port,
        controller.status_port,
        controller.status_tls_port,
        controller.port,
    )
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
    assert any(FORGED in text for line in lines for text in json.loads(line).values() if isinstance(text, str))
