"""An API server with Longhorn's definitions and nodes; programs that ask the leader for room, and what they hear."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import yaml

from certs.authority import LeafSpec, read_pair, sign
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiClient
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.disk_callers import NAME
from tests.e2e.harness import Scene, install_product, make_certificates
from tests.e2e.manager_writes import made_object, make_volume, place_of
from tests.e2e.programs import Controller, leader_address
from tests.e2e.scheduling import NAMESPACE, SERVICE, SERVICE_PORT, trust_of
from tests.longhorn import paths
from tests.longhorn.install import install
from tests.longhorn.longhorn import add_node
from tests.longhorn.options import GIB, DiskOptions
from tests.unit.serving.tls_files import DAY
from tests.waiting import wait_until

CLIENT: Final = "test-manager"
RECORD: Final = REPOSITORY / "docs" / "examples" / "allocation-record.yaml"
Disks = Mapping[str, tuple[str, str]]  # UUID -> node and the disk's name
RECORDS: Final = f"/apis/scheduling.longhorn.io/v1alpha1/namespaces/{NAMESPACE}/nodediskallocations"
SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"
DISK_GIB: Final = 100
NODES: Final = ("n1", "n2", "n3", "n4")
WAIT_SECONDS: Final = 60.0


class Site:
    """An API server with Longhorn's definitions and nodes, and no Longhorn: whoever calls is the one who places."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.api, self.folder = cluster, cluster.api(), folder
        install(self.api, NAMESPACE, {}, capacity_tracking=False)
        install_product(cluster, {"scheduler-extender-allocation-authority": "disk-scheduler"})
        install_record(cluster)
        make_certificates(cluster)
        self.kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, folder / "extender.kubeconfig")
        for name in NODES:
            cluster.add_node(name)
            add_node(self.api, NAMESPACE, name, {"d1": DiskOptions(maximum_bytes=DISK_GIB * GIB)})
        self.leaders: list[Controller] = []
        self._callers: list[subprocess.Popen[str]] = []

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Self]:
        """On a cluster of its own."""
        with Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
            site = cls(cluster, folder)
            try:
                yield site
            finally:
                site.stop()

    def start_leader(self, *flags: str, **options: Any) -> Controller:
        flags = ("--disk-scheduler-clients", CLIENT, *flags)
        controller = Controller(self.cluster, self.kubeconfig, flags=flags, **options)
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
        return leader_address(self.cluster)

    @property
    def extender(self) -> tuple[str, int]:
        """Where kube-scheduler reaches the extender's Service."""
        return self.cluster.services.address(NAMESPACE, SERVICE, SERVICE_PORT)

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """What kube-scheduler has: the extender's authority, and a certificate to show."""
        path, (host, port) = self.folder / "scheduler.yaml", self.extender
        words = ["--for", "plain", "--service-address", host, "--port", str(port), "--output", str(path)]
        command = [sys.executable, "-m", "controller", "render-scheduler-config", *words]
        command += ["--kubeconfig", str(self.kubeconfig)]
        subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, check=True)
        return trust_of(yaml.safe_load(path.read_text()), self.folder)

    # What is placed

    def add_volume(self, name: str, gib: int, replicas: int = 1) -> list[str]:
        """A volume with unplaced replicas, whose names these are."""
        return make_volume(self.api, name, gib * GIB, replicas)

    def add_image(self, name: str, gib: int) -> None:
        made = self.api.create(paths.longhorn("backingimages", NAMESPACE), made_object("BackingImage", name, {}))
        made["status"] = {"realSize": gib * GIB, "size": gib * GIB}
        self.api.replace(f"{paths.longhorn('backingimages', NAMESPACE, name)}/status", made)

    def place(self, replica: str, node: str) -> None:
        """As a manager does."""
        (disk,) = self.api.get(paths.longhorn("nodes", NAMESPACE, node))["status"]["diskStatus"].values()
        spec = place_of(replica, node, disk["diskName"], disk["diskUUID"])
        self.api.patch(paths.longhorn("replicas", NAMESPACE, replica), {"spec": spec})

    # Who asks

    def ask(self, requests: Sequence[str], processes: int, *, writes: bool = False) -> list[subprocess.Popen[str]]:
        """So many processes, which share the requests. `writes`: what they are told, into Longhorn's objects."""
        folder = caller_certificate(self.api, self.folder)
        kubeconfig = self.cluster.layout.kubeconfig("admin") if writes else None
        started = start_callers(self.address, folder, requests, processes, kubeconfig=kubeconfig)
        self._callers += started
        return started

    def outcome(self, processes: Sequence[subprocess.Popen[str]], seconds: float = 240.0) -> Outcome:
        return outcome_of(processes, seconds)

    # What stands in the API server

    def on_record(self) -> dict[tuple[str, str, str], int]:
        return recorded(self.api)

    def sums(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for (_, node, disk), size in self.on_record().items():
            found[node, disk] += size
        return found


def start_callers(
    address: str,
    certificate: Path,
    requests: Sequence[str],
    processes: int,
    pace: float = 0.0,
    kubeconfig: Path | None = None,
) -> list[subprocess.Popen[str]]:
    """So many processes, which share the requests. `pace` and `kubeconfig`: see there."""
    command = [sys.executable, "-m", "tests.e2e.disk_callers", address, str(certificate), "--pace", str(pace)]
    command += ["--writes", str(kubeconfig)] if kubeconfig else []
    started = []
    for number in range(processes):
        lines = (certificate.parent / f"requests-{time.monotonic_ns()}-{number}").resolve()
        lines.write_text("".join(f"{one}\n" for one in requests[number::processes]))
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=lines.open(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
    return started


def outcome_of(processes: Sequence[subprocess.Popen[str]], seconds: float = 240.0) -> Outcome:
    """What they were told, once all have ended."""
    found = Outcome({}, Counter(), {})
    for process in processes:
        text, _ = process.communicate(timeout=seconds)
        assert 0 == process.returncode, text
        for line in text.splitlines():
            row = json.loads(line)
            found.waited += row["waited"]
            if "refused" in row:
                assert ":" not in row["refused"], row  # nobody answered
                found.refused[row["refused"]] += 1
                disks = frozenset((node, disk, reason, size) for node, disk, reason, size in row.get("disks", ()))
                found.why[" ".join(row["request"])] = Refused(row["refused"], disks, row.get("more", 0))
            for name, node, disk, size in row.get("given", ()):
                key = (name, node, disk)
                found.given[key] = max(size, found.given.get(key, 0))
    return found


def install_record(cluster: Cluster) -> None:
    done = cluster.kubectl("apply", "-f", str(RECORD))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: cluster.api().get_or_none(RECORDS) is not None, "served NodeDiskAllocations", 30)


def caller_certificate(api: ApiClient, parent: Path) -> Path:
    """A folder with a certificate that the webhook's authority signed for the caller."""
    folder = parent / "tls"
    if not folder.exists():
        path = f"{SECRETS}/longhorn-scheduler-webhook-ca"
        wait_until(lambda: api.get_or_none(path) is not None, "the authority", WAIT_SECONDS)
        data = {name: base64.b64decode(value) for name, value in api.get(path)["data"].items()}
        ca = read_pair(data["tls.crt"], data["tls.key"], what=path)
        leaf = sign(ca, LeafSpec(CLIENT, DAY, is_client=True), datetime.now(UTC))
        folder.mkdir()
        for name, content in (("tls.crt", leaf.certificate), ("tls.key", leaf.key), ("ca.crt", ca.certificate)):
            (folder / name).write_bytes(content)
    return folder


def start_asked_leader(scene: Scene, folder: Path, told: Path) -> tuple[Controller, Path]:
    """The leader that the scene's Longhorn asks for places once it has read the file `told`, and a certificate with
    which others may ask as well."""
    install_record(scene.cluster)
    leader = scene.start_controller(flags=("--disk-scheduler-clients", CLIENT))
    certificate = caller_certificate(scene.api, folder)
    told.write_text(json.dumps({"address": leader_address(scene.cluster), "name": NAME, "folder": str(certificate)}))
    return leader, certificate


def recorded(api: ApiClient) -> dict[tuple[str, str, str], int]:
    """Bytes by name, node and name of the disk, as the API server has them."""
    found, disks = {}, disks_of(api)
    for record in api.list(RECORDS)["items"]:
        for uuid, lists in record["spec"].get("diskAllocations", {}).items():
            for sizes in lists.values():
                for name, size in sizes.items():
                    found[name, record["metadata"]["name"], disks[uuid][1]] = size
    return found


def disks_of(api: ApiClient) -> Disks:
    nodes = api.list(paths.longhorn("nodes", NAMESPACE))["items"]
    return {
        status["diskUUID"]: (node["metadata"]["name"], disk)
        for node in nodes
        for disk, status in node["status"]["diskStatus"].items()
    }


@dataclass(frozen=True)
class Refused:
    """With which code, and why: node, disk, reason and missing bytes of each disk that was named; `more` were not."""

    code: str
    disks: frozenset[tuple[str, str, str, int]]
    more: int


@dataclass
class Outcome:
    """What callers were told: allocations by name, node and disk, and how many were refused with which code; by request
    why. `waited`: how often Longhorn was the authority, and they asked again."""

    given: dict[tuple[str, str, str], int]
    refused: Counter[str]
    why: dict[str, Refused]
    waited: int = 0
