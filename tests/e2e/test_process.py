"""The controller process on a real API server: election, hand-over, modes, crashes. Placement has its own tests."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import ApiClient
from tests.cluster.cluster import Cluster, wait_for
from tests.fakes.ports import free_port

ROOT = Path(__file__).parents[2]
SERVICE = "longhorn-scheduler-extender"
SECONDS = 60.0


class Copy:
    """One controller process, as its pod would start it."""

    def __init__(self, kubeconfig: Path, namespace: str, number: int, logs: Path) -> None:
        self.name, self.address = f"controller-{number}", f"10.99.0.{number}"
        self.port, self.metrics_port = free_port(), free_port()
        self.log_file = logs / f"{self.name}.log"
        flags = {
            "kubeconfig": kubeconfig,
            "namespace": namespace,
            "extender-address": "127.0.0.1",
            "extender-port": self.port,
            "endpoint-port": 9504,
            "grpc-address": "127.0.0.1",
            "grpc-port": free_port(),
            "metrics-address": "127.0.0.1",
            "metrics-port": self.metrics_port,
        }
        command = [sys.executable, "-m", "controller", "run"]
        command += [f"--{name}={value}" for name, value in flags.items()]
        environment = {**os.environ, "POD_NAME": self.name, "POD_IP": self.address, "NODE_NAME": f"node-{number}"}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def get(self, port: int, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def answers(self) -> bool:
        return self.get(self.port, "/healthz")[0] == 200

    def is_ready(self) -> bool:
        return self.get(self.metrics_port, "/readyz")[0] == 200

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.get(self.metrics_port, "/status")[1])
        return document

    def filter(self, pod: dict[str, Any], *nodes: str) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/filter", body)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def worker(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class Site:
    """A namespace with the product's ConfigMap and Service, and copies of the controller in it."""

    def __init__(self, api: ApiClient, kubeconfig: Path, namespace: str, logs: Path) -> None:
        self.api, self.namespace = api, namespace
        self._kubeconfig, self._logs = kubeconfig, logs
        self.copies: list[Copy] = []
        self._create("configmaps", "ConfigMap", data={"scheduler-extender-enabled": "true"})
        self._create("services", "Service", spec={"ports": [{"name": "http", "port": 9504}]})

    def _create(self, plural: str, kind: str, **body: Any) -> None:
        meta = {"name": SERVICE}
        path = f"/api/v1/namespaces/{self.namespace}/{plural}"
        self.api.create(path, {"apiVersion": "v1", "kind": kind, "metadata": meta, **body})

    def start(self) -> Copy:
        self.copies.append(Copy(self._kubeconfig, self.namespace, len(self.copies) + 1, self._logs))
        return self.copies[-1]

    def start_leader(self) -> Copy:
        copy = self.start()
        wait_for(copy.answers, f"{copy.name} leads", timeout=SECONDS)
        return copy

    def set(self, **values: str) -> None:
        data = {f"scheduler-extender-{name}": value for name, value in values.items()}
        self.api.patch(f"/api/v1/namespaces/{self.namespace}/configmaps/{SERVICE}", {"data": data})

    def add_pod(self, name: str, opted_in: bool = True) -> dict[str, Any]:
        resource = {"longhorn.io/scheduler-extender": "1"} if opted_in else {}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "not-there"}}
        container = {"name": "c", "image": "none", "resources": {"requests": resource, "limits": resource}}
        return self.api.create(
            f"/api/v1/namespaces/{self.namespace}/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": [container], "volumes": [volume]},
            },
        )

    def endpoints(self) -> list[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        items = self.api.list(path, label_selector=f"kubernetes.io/service-name={SERVICE}")["items"]
        return [address for item in items for entry in item["endpoints"] or [] for address in entry["addresses"]]


@pytest.fixture
def site(cluster: Cluster, make_namespace: Callable[..., str], tmp_path: Path) -> Iterator[Site]:
    site = Site(cluster.api(), cluster.kubeconfig, make_namespace("process"), tmp_path)
    yield site
    for copy in site.copies:
        copy.end()


pytestmark = pytest.mark.cluster


def test_one_copy_leads_the_other_is_ready_and_answers_nobody(site: Site) -> None:
    leader = site.start_leader()
    follower = site.start()
    wait_for(follower.is_ready, "the follower is ready", timeout=SECONDS)
    pod = site.add_pod("a")

    assert leader.filter(pod, "n1", "n2") == (
        200,
        {
            "Nodes": None,
            "NodeNames": ["n1", "n2"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        },
    )
    assert follower.filter(pod, "n1")[0] == 503
    assert site.endpoints() == [leader.address]
    identity = leader.status()["identity"]
    wait_for(lambda: follower.status()["holder"] == identity, "the follower knows who leads", timeout=SECONDS)


def test_a_clean_stop_hands_over_at_once(site: Site) -> None:
    leader = site.start_leader()
    follower = site.start()
    wait_for(follower.is_ready, "the follower is ready", timeout=SECONDS)

    assert leader.end() == 0

    # Far less than the 15 s after which an abandoned Lease may be taken.
    wait_for(follower.answers, "the follower leads", timeout=10)
    wait_for(lambda: site.endpoints() == [follower.address], "the Service follows", timeout=10)
    assert follower.status()["term"] == 1


def test_a_worker_that_is_killed_takes_up_its_own_lease_again(site: Site) -> None:
    leader = site.start_leader()
    identity, worker = leader.status()["identity"], leader.worker()

    os.kill(worker, signal.SIGKILL)

    wait_for(lambda: not leader.answers() or leader.worker() != worker, "the worker is gone", timeout=SECONDS)
    wait_for(leader.answers, "its successor leads", timeout=12)
    assert leader.status()["identity"] == identity
    assert leader.status()["term"] == 1


def test_a_pod_that_does_not_exist_is_an_error_and_holds_nothing(site: Site) -> None:
    leader = site.start_leader()
    pod = site.add_pod("a")
    other = {**pod, "metadata": {**pod["metadata"], "name": "other"}}

    status, answer = leader.filter(other, "n1")
    assert (status, answer["Error"]) == (200, "Longhorn: the pod does not exist")

    status, answer = leader.filter({**pod, "metadata": {**pod["metadata"], "uid": "another"}}, "n1")
    assert (status, answer["Error"]) == (200, "Longhorn: another pod of that name exists")
    assert leader.status()["held"]["count"] == 0


def test_switched_off_it_closes_when_no_pod_waits_and_opens_for_one_that_does(site: Site) -> None:
    leader = site.start_leader()
    pod = site.add_pod("a")

    site.set(enabled="false")
    wait_for(lambda: leader.status()["mode"] == "bypass", "bypass for the pod that waits", timeout=SECONDS)
    assert leader.filter(pod, "n1")[1]["NodeNames"] == ["n1"]

    site.api.delete(f"/api/v1/namespaces/{site.namespace}/pods/a")
    wait_for(lambda: leader.status()["mode"] == "closed", "closed", timeout=SECONDS)
    wait_for(lambda: site.endpoints() == [], "the Service is empty", timeout=SECONDS)
    assert not leader.answers()

    site.add_pod("b")
    wait_for(lambda: site.endpoints() == [leader.address], "open again for the late pod", timeout=SECONDS)
    assert leader.status()["mode"] == "bypass"


def test_bypass_wakes_the_pods_that_wait(site: Site) -> None:
    site.start_leader()
    site.add_pod("a")

    site.set(bypass="true")

    def is_woken() -> bool:
        pod = site.api.get(f"/api/v1/namespaces/{site.namespace}/pods/a")
        return any(
            entry["type"] == "scheduling.longhorn.io/RoomAvailable" for entry in pod["status"].get("conditions", ())
        )

    wait_for(is_woken, "the pod is woken", timeout=SECONDS)


def test_a_setting_that_does_not_fit_is_named_and_the_last_good_value_stays(site: Site) -> None:
    leader = site.start_leader()
    site.set(**{"pod-scheduling-timeout": "7"})
    wait_for(lambda: leader.status()["settings"]["pod_scheduling_timeout_seconds"] == 7, "7 s", timeout=SECONDS)

    site.set(**{"pod-scheduling-timeout": "soon"})

    wait_for(lambda: leader.status()["settings_problems"], "the problem is named", timeout=SECONDS)
    assert list(leader.status()["settings_problems"]) == ["scheduler-extender-pod-scheduling-timeout"]
    assert leader.status()["settings"]["pod_scheduling_timeout_seconds"] == 7


def test_an_interrupt_from_a_terminal_ends_the_process_and_empties_the_service(site: Site) -> None:
    leader = site.start_leader()

    os.killpg(leader.process.pid, signal.SIGINT)

    assert leader.process.wait(30) == 0
    assert site.endpoints() == []


def test_a_configuration_that_cannot_work_is_named_and_ends_with_2(tmp_path: Path) -> None:
    environment = {**os.environ, "POD_NAME": "p", "POD_IP": "10.0.0.1"}
    for flags, name in (
        (["--kubeconfig", str(tmp_path / "none")], "kubeconfig"),
        (["--lease-duration-seconds", "5"], "renew_deadline_seconds"),
        (["--threads", "0"], "threads"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "controller", "run", *flags],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"configuration: {name}: ")
