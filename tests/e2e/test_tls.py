"""The real kube-scheduler reaches the product over HTTPS, with a client certificate, through the Service."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from bench.scrape import samples_of
from certs.authority import LeafSpec, Pair, make_authority, read_pair, server_names, sign
from tests.e2e.connection import Connection
from tests.e2e.forms import FilterAnswer, encode
from tests.e2e.harness import Cell, Scene
from tests.e2e.scheduling import NAMESPACE, SERVICE, Config
from tests.unit.scheduler_config.asking import ask
from tests.unit.serving.tls_files import CLIENT, DAY, Mounted, client_of, context, now
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
SPEC = LeafSpec("server", DAY, server_names(SERVICE, NAMESPACE))
StartScheduler = Callable[..., str]
BURST, LEAFS = 48, 3  # pods, and certificates that come into use before the last of them is bound
CALLS = 50  # of each observer
OBSERVE_EVERY_SECONDS = 0.05


def secret(scene: Scene, name: str) -> dict[str, bytes]:
    data = scene.api.get(f"{SECRETS}/{SERVICE}-{name}")["data"]
    return {key: b64decode(value) for key, value in data.items()}


def scheduler_over_tls(
    scene: Scene, start: StartScheduler, name: str, folder: Path, ca: bytes, client: Pair | None, *, server: str = ""
) -> str:
    """Start one with the file that `render-scheduler-config` prints; `client` and the server's name may be others."""
    host, port = scene.address
    pair = client or client_of(make_authority("unused", DAY, now()))
    words = ["--for", "plain", "--part", "config", "--service-address", host, "--port", str(port)]
    words += [
        "--scheduler-kubeconfig",
        str(scene.cluster.layout.kubeconfig("kube-scheduler")),
        "--scheduler-name",
        name,
    ]
    for kind, data in (("ca", ca), ("cert", pair.certificate), ("key", pair.key)):
        (folder / f"{name}-{kind}").write_bytes(data)
        words += [f"--{kind}-file", str(folder / f"{name}-{kind}")]
    config: Config = yaml.safe_load(ask(*words, get=None).text)
    tls = config["extenders"][0]["tlsConfig"]
    if client is None:
        del tls["certData"], tls["keyData"]
    tls["serverName"] = server or tls["serverName"]
    config["leaderElection"] = {"leaderElect": False}  # several run at once
    return start(name, config)


def client_in(scene: Scene) -> Pair:
    data = secret(scene, "client")
    return read_pair(data["tls.crt"], data["tls.key"], what="client")


def refused(cell: Cell, scheduler: str) -> str:
    """Have this scheduler place a pod that it cannot ask about; what it says."""
    cell.ask(scheduler, schedulerName=scheduler)

    def said() -> str:
        """Without the claim, which a scheduler may see later than its pod, nothing is asked."""
        verdict = cell.verdict(scheduler)
        return "" if "persistentvolumeclaim" in verdict else verdict

    wait_until(said, f"a failure of {scheduler}", 60)
    assert not cell.bound()
    return said()


def test_pods_are_placed_over_https_with_our_own_certificates(
    scene: Scene, make_cell: Callable[..., Cell], start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    cell = make_cell(nodes=1, fillers=0)
    # The address that is called is no name in the certificate: the name is checked that the file says.
    ca = secret(scene, "client")["ca.crt"]
    name = scheduler_over_tls(scene, start_scheduler, "https-scheduler", tmp_path, ca, client_in(scene))
    cell.stateful_set(replicas=4, scheduler=name)
    scene.assert_exactly_full(cell)
    assert scene.controllers[-1].counted('handshakes_total{outcome="done"}') >= 1

    addresses = set(scene.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")["spec"]["clusterIPs"])
    shown = scene.run("controller", "certs", "show", kubeconfig=scene.cluster.kubeconfig)
    assert 0 == shown.returncode
    assert all(name in shown.stdout for name in (SERVER_NAME, *addresses))
    checked = scene.run("controller", "certs", "check", kubeconfig=scene.cluster.kubeconfig)
    assert (0, "all certificates are in order\n") == (checked.returncode, checked.stdout)


def test_who_is_not_ours_is_refused_and_the_pod_says_why(
    scene: Scene, make_cell: Callable[..., Cell], start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    cell = make_cell(fillers=0)
    ca, ours = secret(scene, "client")["ca.crt"], client_in(scene)
    stranger, before = make_authority("stranger", DAY, now()), scene.controllers[-1].decisions("offered")

    def said(name: str, ca: bytes, client: Pair | None, server: str = "") -> str:
        return refused(cell, scheduler_over_tls(scene, start_scheduler, name, tmp_path, ca, client, server=server))

    assert "x509: certificate signed by unknown authority" in said("wrong-authority", stranger.certificate, ours)
    assert "not somebody.else.svc" in said("wrong-name", ca, ours, "somebody.else.svc")
    assert "tls: " in said("wrong-client", ca, client_of(stranger))
    assert "tls: " in said("no-client", ca, None)
    assert before == scene.controllers[-1].decisions("offered")
    # The same pod, once a scheduler that is ours looks after it.
    scene.cluster.stop_scheduler("no-client")
    scheduler_over_tls(scene, start_scheduler, "no-client", tmp_path, ca, ours)
    cell.wait_pod_ready("no-client")


LATE = "Longhorn: node was not evaluated in time"


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
        wait_until(lambda: self.failures or digest in self.shown, "use of the new leaf", 60)

    def _connection(self) -> Connection:
        return Connection(self._address, SERVER_NAME, self._client, timeout=10, connected=self._note)

    def _note(self, certificate: bytes) -> None:
        self.shown.append(_digest(certificate))

    def _call(self, connection: Connection) -> None:
        connection.request("POST", "/filter", self._body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = FilterAnswer(response.status, json.loads(response.read()))
        is_proper = answer.status == 200 and not answer.body.get("Error")
        refused = answer.body.get("FailedAndUnresolvableNodes") or {}
        is_late = refused.keys() == self._nodes and set(refused.values()) == {LATE}  # on a machine that does much else
        if not (is_proper and (is_late or (answer.passed and self._nodes.issuperset(answer.passed)))):
            self.failures.append(repr(answer))


def _digest(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()


def failed_calls(scene: Scene, scheduler: str) -> list[str]:
    """What it has logged of attempts that ended because it could not ask the product."""
    host, port = scene.address
    lines = scene.cluster.scheduler_log(scheduler).read_text().splitlines()
    return [line for line in lines if "Error scheduling pod" in line and f"https://{host}:{port}/" in line]


def question(scene: Scene, cell: Cell) -> bytes:
    """A filter call about a new pod of this cell, which nobody places."""
    cell.claim("asked-about")
    raw = cell.pod("asked-about", "asked-about", schedulerName="nobody")
    return encode(scene.form, raw, cell.nodes, {})


@pytest.mark.long
def test_the_servers_certificate_changes_during_a_burst_and_an_expired_one_is_refused(
    shared_scene: Scene, make_cell: Callable[..., Cell], start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    scene = shared_scene
    scene.longhorn.resume()
    scene.stop_controllers()
    ca = make_authority("ca", 10 * DAY, now() - 5 * DAY)
    client = sign(ca, CLIENT, now())
    files = Mounted(tmp_path / "tls")
    files.put(sign(ca, SPEC, now() - 4 * DAY), ca.certificate)  # ended three days ago
    scene.start_controller(flags=("--tls-mode", "provided", "--tls-cert-dir", str(files.path)))
    name = scheduler_over_tls(scene, start_scheduler, "burst-scheduler", tmp_path, ca.certificate, client)
    body = question(scene, asked := make_cell(fillers=0))
    cell = make_cell(disks_gib=(BURST // 4 * 100,))
    assert "certificate has expired" in refused(cell, name)
    wait_until(lambda: failed_calls(scene, name), "its log of that", 60)

    files.put(sign(ca, SPEC, now()), ca.certificate)
    cell.wait_pod_ready(name)  # kube-scheduler tries again by itself
    cell.kill(name)
    cell.delete("persistentvolumeclaims", name)
    cell.wait_gone(name)
    wait_until(lambda: not cell._volumes(), "the end of its volume", 60)

    trusted = context(tmp_path, ca.certificate, client)
    fresh = Observer(scene.address, trusted, body, asked.nodes, keeps=False)
    kept = Observer(scene.address, trusted, body, asked.nodes, keeps=True)
    failed_before = failed_calls(scene, name)
    before = samples_of(scene.cluster.scheduler_metrics(name))
    ours_before = samples_of(scene.controllers[-1].page("/metrics"))
    with fresh, kept:
        wait_until(lambda: fresh.shown and kept.shown, "first calls", 60)
        cell.stateful_set(scheduler=name, replicas=BURST)
        bound_by_leaf = list[int]()  # how many pods were bound when each leaf came into use
        while len(cell.bound()) < BURST and not (fresh.failures or kept.failures):
            leaf = sign(ca, SPEC, now())
            files.put(leaf, ca.certificate)
            fresh.wait_shown(leaf)
            bound_by_leaf.append(len(cell.bound()))
        # A burst that is over soon leaves few calls to judge by.
        wait_until(lambda: fresh.failures or kept.failures or min(fresh.calls, kept.calls) >= CALLS, "calls", 60)
    gained = samples_of(scene.cluster.scheduler_metrics(name)).since(before)
    ours_gained = samples_of(scene.controllers[-1].page("/metrics")).since(ours_before)
    assert ([], []) == (fresh.failures, kept.failures)
    assert 1 == len(kept.shown)  # a new leaf cuts no connection that is open
    assert LEAFS <= sum(bound < BURST for bound in bound_by_leaf)
    # kube-scheduler's own word, and the product's: a failed call is made again, so bound pods prove nothing. Its count
    # of failed attempts has others in it, such as a claim that was changed while it was bound.
    assert BURST == gained.by_label("scheduler_schedule_attempts_total", "result")["scheduled"]
    assert failed_before == failed_calls(scene, name)
    assert 0 == ours_gained.value("longhorn_scheduler_extender_failures_total")
    cell.wait_ready(BURST, 120)
    assert dict.fromkeys(cell.nodes, BURST // 4) == Counter(pod["spec"]["nodeName"] for pod in cell.pods())
    assert [] == scene.judge(cell).complaints()
    scene.stop_controllers()
