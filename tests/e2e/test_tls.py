"""The real kube-scheduler reaches the product over HTTPS, with a client certificate, through the Service."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.scrape import samples_of
from certs.authority import LeafSpec, Pair, make_authority, read_pair, server_names, sign
from tests.cluster.cache import REPOSITORY
from tests.e2e.connection import Connection
from tests.e2e.forms import Answer, encode
from tests.e2e.harness import Cell, Scene
from tests.e2e.scheduling import NAMESPACE, SERVICE, Config
from tests.e2e.view import poll
from tests.unit.serving.tls_files import CLIENT, DAY, Mounted, client_of, context, now

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
SPEC = LeafSpec("server", DAY, server_names(SERVICE, NAMESPACE))
StartScheduler = Callable[..., str]
BURST, LEAFS = 48, 3  # pods, and certificates that come into use before the last of them is bound
OBSERVE_EVERY_SECONDS = 0.05


def secret(scene: Scene, name: str) -> dict[str, bytes]:
    data = scene.api.get(f"{SECRETS}/{SERVICE}-{name}")["data"]
    return {key: b64decode(value) for key, value in data.items()}


def config_over_tls(scene: Scene, ca: bytes, client: Pair | None) -> Config:
    """What the documents tell users to configure, with everything inline."""
    config = scene.extender_config()
    (extender,) = config["extenders"]
    host, port = scene.address
    tls = {"serverName": SERVER_NAME, "caData": b64encode(ca).decode()}
    if client is not None:
        tls |= {"certData": b64encode(client.certificate).decode(), "keyData": b64encode(client.key).decode()}
    extender |= {"urlPrefix": f"https://{host}:{port}", "enableHTTPS": True, "tlsConfig": tls}
    return config


@pytest.fixture
def start_scheduler(shared_scene: Scene) -> Iterator[StartScheduler]:
    """A function that starts one more kube-scheduler; the name of its profile."""
    started: list[str] = []

    def start(name: str, ca: bytes, client: Pair | None) -> str:
        config = {**config_over_tls(shared_scene, ca, client), "profiles": [{"schedulerName": name}]}
        shared_scene.cluster.start_scheduler(config, name=name)
        started.append(name)
        return name

    yield start
    for name in started:
        shared_scene.cluster.stop_scheduler(name)


class SelfMade:
    """The product with certificates of its own."""

    def __init__(self, scene: Scene) -> None:
        self.ca = secret(scene, "client")["ca.crt"]
        self.client = client_in(scene)


def client_in(scene: Scene) -> Pair:
    data = secret(scene, "client")
    return read_pair(data["tls.crt"], data["tls.key"], what="client")


@pytest.fixture
def over_tls(shared_scene: Scene) -> Iterator[Scene]:
    """The shared scene with one copy that makes its certificates itself, in charge."""
    shared_scene.longhorn.resume()
    shared_scene.stop_controllers()
    shared_scene.start_controller(flags=("--tls-mode", "self"))
    yield shared_scene
    shared_scene.stop_controllers()


@pytest.fixture
def make_own_cell(shared_scene: Scene) -> Iterator[Callable[..., Cell]]:
    """As `make_cell`, but without a plain copy of the product in charge."""
    cells: list[Cell] = []

    def make(name: str, **options: Any) -> Cell:
        cells.append(shared_scene.cell(name, **options))
        return cells[-1]

    yield make
    for cell in cells:
        cell.clear()


def failure_of(cell: Cell, name: str) -> str:
    """What kube-scheduler wrote on the pod."""
    for pod in cell.pods():
        if pod["metadata"]["name"] == name:
            for condition in (pod.get("status") or {}).get("conditions") or []:
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return f"{condition.get('reason')}: {condition.get('message')}"
    return ""


def refused(cell: Cell, scheduler: str) -> str:
    """Have this scheduler place a pod that it cannot ask about; what it says."""
    cell.claim(scheduler)
    cell.pod(scheduler, scheduler, schedulerName=scheduler)
    poll(lambda: failure_of(cell, scheduler), f"a failure of {scheduler}", 60)
    assert not cell.bound()
    return failure_of(cell, scheduler)


def run_certs(scene: Scene, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "certs", *arguments, "--kubeconfig", str(scene.cluster.kubeconfig)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def test_pods_are_placed_over_https_with_our_own_certificates(
    over_tls: Scene, make_own_cell: Callable[..., Cell], start_scheduler: StartScheduler
) -> None:
    made = SelfMade(over_tls)
    cell = make_own_cell("tls-own")
    name = start_scheduler("https-scheduler", made.ca, made.client)
    cell.stateful_set(scheduler=name)
    cell.wait_ready(16, 120)
    report = over_tls.judge(cell)

    assert [] == report.complaints()
    assert dict.fromkeys(cell.nodes, 4) == report.pods_per_node()
    assert over_tls.controllers[-1].counted('handshakes_total{outcome="done"}') >= 1

    addresses = set(over_tls.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")["spec"]["clusterIPs"])
    shown = run_certs(over_tls, "show")
    assert 0 == shown.returncode
    assert all(name in shown.stdout for name in (SERVER_NAME, *addresses))
    checked = run_certs(over_tls, "check")
    assert (0, "all certificates are well\n") == (checked.returncode, checked.stdout)


def test_who_is_not_ours_is_refused_and_the_pod_says_why(
    over_tls: Scene, make_own_cell: Callable[..., Cell], start_scheduler: StartScheduler
) -> None:
    made = SelfMade(over_tls)
    cell = make_own_cell("tls-strangers", fillers=0)
    stranger = make_authority("stranger", DAY, now())

    wrong_ca = refused(cell, start_scheduler("wrong-authority", stranger.certificate, made.client))
    no_client = refused(cell, start_scheduler("no-client", made.ca, None))
    wrong_client = refused(cell, start_scheduler("wrong-client", made.ca, client_of(stranger)))

    assert "x509: certificate signed by unknown authority" in wrong_ca
    assert "tls: " in no_client
    assert "tls: " in wrong_client
    assert 0 == over_tls.controllers[-1].decisions("offered")
    # The same pod, once a scheduler that is ours looks after it.
    over_tls.cluster.stop_scheduler("no-client")
    config = {**config_over_tls(over_tls, made.ca, made.client), "profiles": [{"schedulerName": "no-client"}]}
    over_tls.cluster.start_scheduler(config, name="no-client")
    cell.wait_pod_ready("no-client")


def test_secrets_that_are_deleted_or_spoilt_come_back_as_they_were(over_tls: Scene) -> None:
    before = {name: secret(over_tls, name) for name in ("ca", "tls", "client")}
    over_tls.api.delete(f"{SECRETS}/{SERVICE}-ca")
    over_tls.api.delete(f"{SECRETS}/{SERVICE}-tls")
    spoilt = {"data": {"tls.key": b64encode(b"garbage").decode(), "ca.crt": ""}}
    over_tls.api.patch(f"{SECRETS}/{SERVICE}-client", spoilt)

    def is_back() -> bool:
        found = [over_tls.api.get_or_none(f"{SECRETS}/{SERVICE}-{name}") for name in before]
        return all(found) and before == {name: secret(over_tls, name) for name in before}

    poll(is_back, "the Secrets as they were", 60)


class Observer:
    """Asks through the Service as kube-scheduler does, again and again, about a pod that fits on `nodes`.

    Notes what was not a proper answer, and the certificate of each handshake. `keeps`: all calls on one connection, as
    kube-scheduler makes them, else each on a connection of its own.
    """

    def __init__(
        self, address: tuple[str, int], client: ssl.SSLContext, body: bytes, nodes: Sequence[str], *, keeps: bool
    ) -> None:
        self._address, self._client = address, client
        self._body, self._nodes, self._keeps = body, set(nodes), keeps
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.calls, self.failures = 0, list[str]()
        self.shown = list[str]()

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        connection = self._connection()
        while not self._stop.wait(OBSERVE_EVERY_SECONDS):
            self.calls += 1
            try:
                self._call(connection)
            except Exception as error:  # thread top: every failure counts
                self.failures.append(repr(error))
                connection.close()
            if not self._keeps:
                connection.close()
        connection.close()

    def wait_shown(self, leaf: Pair) -> None:
        """Until this certificate is shown to it, or a call has failed."""
        digest = _digest(ssl.PEM_cert_to_DER_cert(leaf.certificate.decode()))
        poll(lambda: self.failures or digest in self.shown, "use of the new leaf", 60)

    def _connection(self) -> Connection:
        return Connection(self._address, SERVER_NAME, self._client, timeout=10, connected=self._note)

    def _note(self, certificate: bytes) -> None:
        self.shown.append(_digest(certificate))

    def _call(self, connection: Connection) -> None:
        connection.request("POST", "/filter", self._body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = Answer(response.status, json.loads(response.read()))
        is_proper = answer.status == 200 and not answer.body.get("Error")
        if not (is_proper and answer.passed and self._nodes.issuperset(answer.passed)):
            self.failures.append(repr(answer))


def _digest(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()


def question(scene: Scene, cell: Cell) -> bytes:
    """A filter call about a new pod of this cell, which nobody places."""
    cell.claim("asked-about")
    raw = cell.pod("asked-about", "asked-about", schedulerName="nobody")
    return encode(scene.form, raw, cell.nodes, {})


def test_the_servers_certificate_changes_during_a_burst_and_an_expired_one_is_refused(
    shared_scene: Scene, make_own_cell: Callable[..., Cell], start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    scene = shared_scene
    scene.longhorn.resume()
    scene.stop_controllers()
    ca = make_authority("ca", 10 * DAY, now() - 5 * DAY)
    client = sign(ca, CLIENT, now())
    files = Mounted(tmp_path / "tls")
    files.put(sign(ca, SPEC, now() - 4 * DAY), ca.certificate)  # ended three days ago
    scene.start_controller(flags=("--tls-mode", "provided", "--tls-cert-dir", str(files.path)))
    name = start_scheduler("burst-scheduler", ca.certificate, client)
    body = question(scene, asked := make_own_cell("tls-asked", fillers=0))
    cell = make_own_cell("tls-burst", disks_gib=(BURST // 4 * 100,))
    assert "certificate has expired" in refused(cell, name)

    files.put(sign(ca, SPEC, now()), ca.certificate)
    cell.wait_pod_ready(name)  # kube-scheduler tries again by itself
    cell.delete("pods", name, gracePeriodSeconds=0)
    cell.delete("persistentvolumeclaims", name)
    cell.wait_gone(name)
    poll(lambda: not cell._volumes(), "the end of its volume", 60)

    trusted = context(tmp_path, ca.certificate, client)
    fresh = Observer(scene.address, trusted, body, asked.nodes, keeps=False)
    kept = Observer(scene.address, trusted, body, asked.nodes, keeps=True)
    before = samples_of(scene.cluster.scheduler_metrics(name))
    ours_before = samples_of(scene.controllers[-1].page("/metrics"))
    with fresh, kept:
        poll(lambda: fresh.shown and kept.shown, "first calls", 60)
        cell.stateful_set(scheduler=name, replicas=BURST)
        bound_by_leaf = list[int]()  # how many pods were bound when each leaf came into use
        while len(cell.bound()) < BURST and not (fresh.failures or kept.failures):
            leaf = sign(ca, SPEC, now())
            files.put(leaf, ca.certificate)
            fresh.wait_shown(leaf)
            bound_by_leaf.append(len(cell.bound()))
    gained = samples_of(scene.cluster.scheduler_metrics(name)).since(before)
    ours_gained = samples_of(scene.controllers[-1].page("/metrics")).since(ours_before)
    assert ([], []) == (fresh.failures, kept.failures)
    assert 1 == len(kept.shown)  # a new leaf cuts no connection that is open
    assert LEAFS <= sum(bound < BURST for bound in bound_by_leaf)
    assert min(fresh.calls, kept.calls) >= 50
    # kube-scheduler's own word, and the product's: a failed call is made again, so bound pods prove nothing.
    attempts = gained.by_label("scheduler_schedule_attempts_total", "result")
    assert (0, BURST) == (attempts.get("error", 0), attempts["scheduled"])
    assert 0 == ours_gained.value("longhorn_scheduler_extender_failures_total")
    cell.wait_ready(BURST, 120)
    assert dict.fromkeys(cell.nodes, BURST // 4) == Counter(pod["spec"]["nodeName"] for pod in cell.pods())
    assert [] == scene.judge(cell).complaints()
    scene.stop_controllers()
