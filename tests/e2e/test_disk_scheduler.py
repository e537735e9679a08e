"""The disk scheduler on the real API server: many processes ask at once, and leaders die. What counts is read from the
API server and summed up here, by nothing of the product's."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from certs.authority import LeafSpec, read_pair, sign
from controller.allocations.definition import allocation_crd
from tests.cluster.cache import REPOSITORY
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.harness import install_product, make_certificates
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.longhorn import paths
from tests.longhorn.install import install
from tests.longhorn.longhorn import add_node
from tests.longhorn.options import GIB, DiskOptions
from tests.unit.serving.tls_files import DAY
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CLIENT: Final = "test-manager"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RECORDS: Final = f"/apis/scheduling.longhorn.io/v1alpha1/namespaces/{NAMESPACE}/nodediskallocations"
SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"
DISK_GIB: Final = 100
NODES: Final = ("n1", "n2", "n3", "n4")
WAIT_SECONDS: Final = 60.0
SERVICE_PORT: Final = 9504
SHORT_SEEDS: Final = 1  # of 20 runs with leaders that die


class Site:
    """An API server with Longhorn's definitions and nodes, and no Longhorn: whoever calls is the one who places."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.api, self.folder = cluster, cluster.api(), folder
        install(self.api, NAMESPACE, {}, capacity_tracking=False)
        self.api.create(CRDS, allocation_crd())
        wait_until(lambda: self.api.get_or_none(RECORDS) is not None, "served NodeDiskAllocations", 30)
        install_product(cluster, {"scheduler-extender-allocation-authority": "disk-scheduler"})
        make_certificates(cluster)
        self.kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, folder / "extender.kubeconfig")
        for name in NODES:
            cluster.add_node(name)
            add_node(self.api, NAMESPACE, name, {"d1": DiskOptions(maximum_bytes=DISK_GIB * GIB)})
        self.leaders: list[Controller] = []
        self._callers: list[subprocess.Popen[str]] = []

    def start_leader(self) -> Controller:
        controller = Controller(self.cluster, self.kubeconfig, flags=("--disk-scheduler-clients", CLIENT))
        self.leaders.append(controller)
        return controller

    def stop(self) -> None:
        for process in self._callers:
            process.kill()
            process.wait()
        for controller in self.leaders:
            controller.stop()

    @property
    def address(self) -> str:
        host, port = self.cluster.services.address(NAMESPACE, "longhorn-replica-scheduler", SERVICE_PORT)
        return f"{host}:{port}"

    def certificate(self) -> Path:
        """A folder with a certificate that the webhook's authority signed for the caller."""
        folder = self.folder / "tls"
        if not folder.exists():
            ca = self._secret("longhorn-scheduler-webhook-ca")
            leaf = sign(ca, LeafSpec(CLIENT, DAY, is_client=True), datetime.now(UTC))
            folder.mkdir()
            for name, data in (("tls.crt", leaf.certificate), ("tls.key", leaf.key), ("ca.crt", ca.certificate)):
                (folder / name).write_bytes(data)
        return folder

    def _secret(self, name: str) -> Any:

        wait_until(lambda: self.api.get_or_none(f"{SECRETS}/{name}") is not None, f"Secret {name}", WAIT_SECONDS)
        data = self.api.get(f"{SECRETS}/{name}")["data"]
        return read_pair(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]), what=name)

    # What is placed

    def add_volume(self, name: str, gib: int, replicas: int = 1) -> list[str]:
        """A volume with unplaced replicas, whose names these are."""
        size = str(gib * GIB)
        spec = {"size": size, "numberOfReplicas": replicas, "dataLocality": "disabled", "frontend": "blockdev"}
        self.api.create(paths.longhorn("volumes", NAMESPACE), _object("Volume", name, spec))
        names = [f"{name}-r-{number}" for number in range(replicas)]
        for one in names:
            spec = {"volumeName": name, "volumeSize": size, "active": True}
            self.api.create(paths.longhorn("replicas", NAMESPACE), _object("Replica", one, spec))
        return names

    def add_image(self, name: str, gib: int) -> None:
        made = self.api.create(paths.longhorn("backingimages", NAMESPACE), _object("BackingImage", name, {}))
        made["status"] = {"realSize": gib * GIB, "size": gib * GIB}
        self.api.replace(f"{paths.longhorn('backingimages', NAMESPACE, name)}/status", made)

    # Who asks

    def ask(self, requests: Sequence[str], processes: int) -> list[subprocess.Popen[str]]:
        """So many processes, which share the requests."""
        started = []
        for number in range(processes):
            command = [sys.executable, "-m", "tests.e2e.disk_callers", self.address, str(self.certificate())]
            lines = (self.folder / f"requests-{time.monotonic_ns()}-{number}").resolve()
            lines.write_text("".join(f"{one}\n" for one in requests[number::processes]))
            process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=lines.open(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            started.append(process)
        self._callers += started
        return started

    def outcome(self, processes: Sequence[subprocess.Popen[str]], seconds: float = 240.0) -> Outcome:
        found = Outcome({}, Counter(), {})
        for process in processes:
            text, _ = process.communicate(timeout=seconds)
            assert 0 == process.returncode, text
            for line in text.splitlines():
                row = json.loads(line)
                if "refused" in row:
                    assert ":" not in row["refused"], row  # nobody answered
                    found.refused[row["refused"]] += 1
                    found.why[" ".join(row["request"])] = row["refused"]
                for name, node, disk, size in row.get("given", ()):
                    key = (name, node, disk)
                    found.given[key] = max(size, found.given.get(key, 0))
        return found

    # What stands in the API server

    def on_record(self) -> dict[tuple[str, str, str], int]:
        """Bytes by name, node and disk."""
        found = {}
        for record in self.api.list(RECORDS)["items"]:
            for disk, lists in record["spec"].get("diskAllocations", {}).items():
                for sizes in lists.values():
                    for name, size in sizes.items():
                        found[name, record["metadata"]["name"], disk] = size
        return found

    def sums(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for (_, node, disk), size in self.on_record().items():
            found[node, disk] += size
        return found


@dataclass
class Outcome:
    """What callers were told: allocations by name, node and disk, and how many were refused with which code."""

    given: dict[tuple[str, str, str], int]
    refused: Counter[str]
    why: dict[str, str]


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": f"{paths.GROUP}/{paths.VERSION}", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
        found = Site(cluster, tmp_path)
        try:
            yield found
        finally:
            found.stop()


def test_from_many_processes_exactly_what_fits_is_given(site: Site) -> None:
    """Replicas of 30 GiB for 120, where 12 fit: three on each disk, and 88 refused with the reason."""
    site.start_leader().wait_leading()
    replicas = [(name, site.add_volume(name, 30)[0]) for name in (f"v{number}" for number in range(100))]
    outcome = site.outcome(site.ask([f"replica {volume} {replica}" for volume, replica in replicas], 8))
    assert {"RESOURCE_EXHAUSTED": 88} == dict(outcome.refused)
    assert outcome.given == site.on_record()
    assert {(name, "d1"): 90 * GIB for name in NODES} == dict(site.sums())


def test_replicas_images_and_expansions_at_once_never_exceed_a_disk(site: Site) -> None:
    site.start_leader().wait_leading()
    first = [site.add_volume(f"old{number}", 10, replicas=3) for number in range(4)]
    old = site.outcome(site.ask([f"replica {one.rsplit('-r-')[0]} {one}" for members in first for one in members], 4))
    assert 12 == len(old.given) and not old.refused
    requests = [f"expand old{number} {40 * GIB}" for number in range(4)]
    requests += [f"replica new{number} {site.add_volume(f'new{number}', 15)[0]}" for number in range(30)]
    for number in range(10):
        site.add_image(f"image{number}", 8)
        requests.append(f"image image{number} {8 * GIB}")
    random.Random(7).shuffle(requests)
    outcome = site.outcome(site.ask(requests, 10))
    assert set(outcome.refused) <= {"RESOURCE_EXHAUSTED"}
    assert all(total <= DISK_GIB * GIB for total in site.sums().values()), site.sums()
    record = site.on_record()
    assert {**old.given, **outcome.given} == record
    for number, members in enumerate(first):  # all or none
        sizes = {size for (name, _, _), size in record.items() if name in members}
        assert 1 == len(sizes), (number, sizes)
    smallest = 8 * GIB if any("image" in one for one in outcome.why) else 15 * GIB
    assert all(DISK_GIB * GIB - total < smallest for total in site.sums().values()), "room is left, and was refused"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed >= SHORT_SEEDS else []) for seed in range(20)]
)
def test_leaders_that_die_lose_nothing_and_give_nothing_twice(site: Site, seed: int) -> None:
    """The leader is killed at random moments, three times, while eight processes ask; another copy takes over."""
    dice = random.Random(seed)
    for controller in (site.start_leader(), site.start_leader()):
        wait_until(controller.answers_ready, "a ready copy", WAIT_SECONDS)
    replicas = [(name, site.add_volume(name, 2)[0]) for name in (f"v{number}" for number in range(240))]
    callers = site.ask([f"replica {volume} {replica}" for volume, replica in replicas], 8)
    killed = 0
    for _ in range(3):
        wait_for_more(site, callers)
        time.sleep(dice.uniform(0.0, 0.3))  # a random moment, not a wait
        for controller in [one for one in site.leaders if leads(one)]:
            killed += not all_over(callers)
            controller.stop(kill=True)
            site.leaders.remove(controller)
            site.start_leader()
    outcome = site.outcome(callers)
    assert killed, "nobody was killed while others asked"
    assert {"RESOURCE_EXHAUSTED": 40} == dict(outcome.refused)
    record = site.on_record()
    assert outcome.given == record and 200 == len(record)
    assert {(name, "d1"): 100 * GIB for name in NODES} == dict(site.sums())


def leads(controller: Controller) -> bool:
    try:
        return controller.is_running and bool(controller.status()["is_leading"])
    except OSError:
        return False


def wait_for_more(site: Site, callers: Sequence[subprocess.Popen[str]]) -> None:
    """Until more is on record, or nobody asks any more."""
    before = len(site.on_record())
    wait_until(lambda: len(site.on_record()) > before or all_over(callers), "allocations", WAIT_SECONDS)


def all_over(callers: Sequence[subprocess.Popen[str]]) -> bool:
    return all(process.poll() is not None for process in callers)
