"""Reviews that the API server never sent: what somebody who reaches the webhook's port can hold, and whom he can delay.

The API server shows a certificate to the webhook, as docs/security.md says; the webhook of most tests demands none.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.body_memory import FILTER, MOST_MIB, REVIEWS, SENDERS
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import Object
from tests.cluster.components import LOOPBACK
from tests.e2e import workloads
from tests.e2e.again import Again
from tests.e2e.connection import Connection
from tests.e2e.gate import Gate
from tests.e2e.growing_cell import GrowingCell
from tests.e2e.harness import GIB, Cell, Scene
from tests.e2e.neighbours import ForeignWebhook
from tests.e2e.programs import Controller
from tests.e2e.scheduling import RESOURCE, SERVER_NAME
from tests.e2e.webhooks import OURS, VALIDATING, Webhook
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PODS_ENTRY = "pods.scheduling.longhorn.io"
WAIT_SECONDS = 60.0
HELD_SECONDS = 60.0  # as docs/rules/growth.md says
OLD_SECONDS = 10.0
FORGERS, VICTIMS = 200, 60
ANSWER_SECONDS = 2.5  # the API server gives up after 3
READS_A_SECOND, BURST = 50, 100  # as docs/settings.md says


@pytest.fixture(scope="module", autouse=True)
def all_opt_in(shared_scene: Scene) -> Iterator[None]:
    shared_scene.set_settings(opt_in="always")
    yield
    shared_scene.set_settings(opt_in="auto")


@contextmanager
def opened(scene: Scene, *flags: str) -> Iterator[Gate]:
    gate = Gate(scene, flags)
    gate.open()
    wait_until(lambda: asks_about_pods(scene), "an entry for pods", WAIT_SECONDS)
    yield gate
    gate.close()


def asks_about_pods(scene: Scene) -> bool:
    entries = (scene.api.get_or_none(OURS[0]) or {}).get("webhooks") or ()
    return any(entry["name"] == PODS_ENTRY for entry in entries)


@pytest.fixture
def stage(scene: Scene, make_cell: Callable[..., Cell]) -> Iterator[GrowingCell]:
    """One node with one disk of 400 GiB, and a webhook that lets anybody ask."""
    with opened(scene) as gate:
        yield GrowingCell.of(scene, make_cell(nodes=1, fillers=0), gate)


@pytest.fixture
def closed_stage(scene: Scene, make_cell: Callable[..., Cell], pki: Path) -> Iterator[GrowingCell]:
    """The same with a webhook that demands the API server's certificate."""
    with opened(scene, "--client-ca-file", str(pki / "front-proxy-ca.crt")) as gate:
        yield GrowingCell.of(scene, make_cell(nodes=1, fillers=0), gate)


def forge(stage: GrowingCell, name: str, gib: int, client: Path | None = None) -> bool:
    """Review a growth that nobody asked for; whether it is allowed. `client`: a certificate to show, without its
    suffix. OSError where the webhook does not speak with such."""
    assert stage.gate.webhook is not None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None:
        context.load_cert_chain(f"{client}.crt", f"{client}.key")
    connection = http.client.HTTPSConnection(LOOPBACK, stage.gate.webhook.port, timeout=10, context=context)
    try:
        connection.request("POST", "/validate-pvcs", growth(stage, name, gib), {"Content-Type": "application/json"})
        answer: Object = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return bool(answer["response"]["allowed"])


def growth(stage: GrowingCell, name: str, gib: int) -> bytes:
    def claim(size: int) -> Object:
        spec: Any = {"volumeName": stage.volume_name(name), "resources": {"requests": {"storage": str(size * GIB)}}}
        return {"metadata": {"name": name, "namespace": stage.cell.namespace}, "spec": spec}

    request = {
        "uid": "forged",
        "kind": {"kind": "PersistentVolumeClaim"},
        "resource": {"resource": "persistentvolumeclaims"},
        "operation": "UPDATE",
        "namespace": stage.cell.namespace,
        "object": claim(gib),
        "oldObject": claim(1),
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def opts_in(stage: GrowingCell, name: str, claim: str, **query: Any) -> bool:
    """Create a pod that does not ask for the extender itself; whether it does then."""
    cell = stage.cell
    pod = workloads.pod(name, claim, selector=cell.selector, opted_in=False)
    made = cell.scene.api.create(cell.path("pods"), pod, **query)
    return RESOURCE in (made["spec"]["containers"][0]["resources"].get("requests") or {})


def test_whoever_has_not_the_api_servers_certificate_is_not_heard(closed_stage: GrowingCell, pki: Path) -> None:
    stage = closed_stage
    stage.add("a", gib=100)
    assert opts_in(stage, "p", "a", dryRun="All")
    assert "Longhorn cannot grow claim" in stage.grow("a", 500)
    assert not stage.grow("a", 110)
    stage.wait_grown(110, "a")

    for client in (None, pki / "stranger"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            forge(stage, "a", 385, client)
    assert {} == stage.growths()
    assert stage.gate.webhook is not None and stage.gate.webhook.answers_ready()
    # That the request itself is in order:
    assert forge(stage, "a", 385, pki / "front-proxy-client")
    assert {"a": ("HELD", 275)} == stage.growths()


@pytest.mark.long
def test_what_is_asked_for_again_and_again_and_never_stored_is_held_for_a_minute_and_then_no_more(
    stage: GrowingCell,
) -> None:
    stage.add("a", gib=100)
    allowed = 0

    def forge_again() -> None:
        nonlocal allowed
        allowed += forge(stage, "a", 385)

    with Again(forge_again, 0.2):
        wait_until(lambda: stage.growths() == {"a": ("HELD", 285)}, "the hold", WAIT_SECONDS)
        began = time.monotonic()
        wait_until(lambda: not stage.growths(), "the hold's end", HELD_SECONDS + 10)
        print(f"held for {time.monotonic() - began:.1f} s")
        seen = allowed
        wait_until(lambda: allowed > seen + 20, "further reviews", WAIT_SECONDS)
        assert {} == stage.growths()
        stage.cell.ask("victim", gib=200)
        stage.cell.wait_bound(1, WAIT_SECONDS / 2)
        # Nor is the owner kept from growing.
        assert not stage.grow("a", 190)
        stage.wait_grown(190, "a")
    assert {"a"} == {one["involvedObject"]["name"] for one in stage.cell.events("LonghornGrowthNotHeld")}
    assert [] == stage.scene.judge(stage.cell).complaints()


class Hesitant:
    """Somebody else's webhook, which answers about a cell's claims once it is let. Threads: its own."""

    def __init__(self, stage: GrowingCell, folder: Path) -> None:
        self.go_on = threading.Event()
        self._webhook = ForeignWebhook(
            stage.scene.api,
            folder,
            "hesitant",
            self._answer,
            collection=VALIDATING,
            operation="UPDATE",
            resource="persistentvolumeclaims",
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": stage.cell.namespace}},
            timeoutSeconds=30,
        )

    def _answer(self, _: str, request: Object) -> Object:
        return {"allowed": bool(request.get("dryRun")) or self.go_on.wait(25)}

    def __enter__(self) -> Hesitant:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._webhook.stop()


@pytest.mark.long
def test_what_another_webhook_keeps_for_long_is_held_until_it_is_stored(stage: GrowingCell, tmp_path: Path) -> None:
    stage.add("a", gib=100)
    with Hesitant(stage, tmp_path) as other, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stage.grow, "a", 300)
        wait_until(lambda: held_for(stage) > OLD_SECONDS, "an old hold", WAIT_SECONDS)
        stage.cell.ask("beside", gib=101)
        stage.cell.wait_refused(1)
        other.go_on.set()
        assert "" == asked.result(WAIT_SECONDS)
    stage.wait_grown(300, "a")
    assert [] == stage.cell.bound()
    assert [] == stage.scene.judge(stage.cell).complaints()


def held_for(stage: GrowingCell) -> float:
    promises = stage.scene.controllers[-1].status()["promises"]
    return max((one["age_seconds"] for one in promises if one["kind"] == "growth"), default=0.0)


@contextmanager
def flooded(stage: GrowingCell) -> Iterator[None]:
    """With so many forged reviews of pods at a time, from another process."""
    webhook = stage.gate.webhook
    assert webhook is not None
    before = webhook.counted("pod_reviews_total")
    command = [sys.executable, "-m", "tests.e2e.flood", str(webhook.port), str(FORGERS)]
    with subprocess.Popen(command, cwd=REPOSITORY) as process:
        try:
            wait_until(lambda: webhook.counted("pod_reviews_total") > before + FORGERS, "a flood", WAIT_SECONDS)
            yield
            assert process.poll() is None
        finally:
            process.kill()


def claims_read(scene: Scene) -> int:
    """How many reads of single claims the API server has answered."""
    samples = [line for line in scene.api.text("/metrics").splitlines() if line.startswith("apiserver_request_total{")]
    wanted = ('resource="persistentvolumeclaims"', 'verb="GET"')
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in samples if all(part in line for part in wanted))


@pytest.mark.long
def test_a_flood_of_reviews_costs_few_reads_and_keeps_no_pod_from_opting_in(stage: GrowingCell) -> None:
    stage.add("a", gib=1)
    before, began, slowest = claims_read(stage.scene), time.monotonic(), 0.0
    with flooded(stage):
        for number in range(VICTIMS):
            asked = time.monotonic()
            # One whose claim is known, and one whose claim is not: what is not read may be Longhorn's.
            assert opts_in(stage, f"p-{number}", "a" if number % 2 else f"later-{number}", dryRun="All"), number
            slowest = max(slowest, time.monotonic() - asked)
    seconds = time.monotonic() - began
    reads = claims_read(stage.scene) - before
    print(f"slowest of the pods: {slowest:.3f} s; reads: {reads} in {seconds:.1f} s")
    assert slowest <= ANSWER_SECONDS
    assert reads <= BURST + READS_A_SECOND * (seconds + 1)


def attacked(program: Controller | Webhook, trust: ssl.SSLContext, path: str, body: bytes) -> tuple[Counter[int], int]:
    """How often which status came, 0 for no answer, where many send that body at once; and its worker's peak in MiB."""
    worker, at_once = program.worker(), threading.Barrier(SENDERS)
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # the peak begins anew

    def send(_: int) -> int:
        made = Connection((LOOPBACK, program.port), SERVER_NAME, trust, timeout=10, connected=lambda _: None)
        with closing(made) as connection:
            try:
                connection.connect()
                at_once.wait(WAIT_SECONDS)
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    with ThreadPoolExecutor(SENDERS) as pool:
        told = Counter(pool.map(send, range(SENDERS)))
    assert worker == program.worker()
    return told, program.peak_mib()


@pytest.mark.long
def test_large_bodies_take_little_memory_and_the_next_call_is_answered(stage: GrowingCell) -> None:
    """JSON of very many values: of the webhook, which anybody may ask here, and of the leader, as kube-scheduler."""
    webhook, leader = stage.gate.webhook, stage.scene.controllers[-1]
    assert webhook is not None
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    attacks = ((webhook, anybody, REVIEWS.values()), (leader, stage.scene.trust, FILTER.values()))
    for program, trust, bodies in attacks:
        for path, body in bodies:
            told, peak = attacked(program, trust, path, body)
            print(f"{path}: {dict(told)}, at most {peak} MiB")
            assert peak <= MOST_MIB
    stage.add("a", gib=1)
    assert opts_in(stage, "p", "a", dryRun="All")
    stage.cell.ask("q", gib=1)
    stage.cell.wait_bound(1)
