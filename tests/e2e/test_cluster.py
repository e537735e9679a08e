"""The test cluster itself, on a real control plane: what every other end-to-end test stands on."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cache import REPOSITORY, STATE_VARIABLE
from tests.cluster.client import ApiClient, ApiError, Endpoint, endpoint_from_kubeconfig
from tests.cluster.cluster import Cluster, ClusterOptions, wait_for
from tests.cluster.history import read_history
from tests.cluster.process import start_ticks
from tests.cluster.state import read_state
from tests.e2e import workloads
from tests.unit.pages import FENCE

pytestmark = pytest.mark.cluster

DEADLINE = 30.0
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@contextmanager
def greeter(text: str) -> Iterator[int]:
    """A server on loopback that answers every line with `text` and that line, on one connection as long as wanted."""

    class Greeter(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(text.encode() + b" " + line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeter) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def ask(connection: socket.socket, text: str) -> str:
    connection.sendall(text.encode() + b"\n")
    with connection.makefile("rb") as file:
        return file.readline().decode().strip()


@pytest.mark.long
def test_two_clusters_run_at_once_and_know_nothing_of_each_other(cluster: Cluster) -> None:
    with Cluster.start(ClusterOptions(start_scheduler=False, record_history=False)) as second:
        assert second.api_url != cluster.api_url
        assert second.api().list("/api/v1/nodes")["items"] == []
        assert second.services.dns != cluster.services.dns
        assert second.services.address("a", "b", 9504) != cluster.services.address("a", "b", 9504)
        # One cluster's certificates are nothing to the other.
        foreign = Endpoint(cluster.api_url, endpoint_from_kubeconfig(second.kubeconfig).tls)
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            ApiClient(foreign).list("/api/v1/nodes")
        folder, pids = second.state_dir, second.pids()
    assert not folder.exists()
    assert [name for name, pid in pids.items() if start_ticks(pid) is not None] == []
    assert cluster.api().text("/readyz") == "ok"


def test_the_proxy_follows_an_endpoint_slice_and_leaves_open_connections_alone(cluster: Cluster) -> None:
    api, address = cluster.api(), cluster.services.address("default", "greet", 9504)

    def wait_led(*ips: str) -> None:
        wanted = [(ip, 7000) for ip in ips]
        wait_for(lambda: cluster.services.endpoints("default", "greet", 9504) == wanted, "the move", DEADLINE)

    body = {"metadata": {"name": "greet"}, "spec": {"ports": [{"name": "http", "port": 9504}]}}
    api.create("/api/v1/namespaces/default/services", body)
    with greeter("one") as first, greeter("two") as second:
        cluster.services.map_pod("10.244.1.1", 7000, first)
        cluster.services.map_pod("10.244.1.2", 7000, second)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)

        api.create(SLICES, workloads.endpoint_slice("greet-1", "greet", "10.244.1.1", 7000))
        wait_led("10.244.1.1")
        with socket.create_connection(address, timeout=5) as old:
            assert ask(old, "hello") == "one hello"

            api.replace(f"{SLICES}/greet-1", workloads.endpoint_slice("greet-1", "greet", "10.244.1.2", 7000))
            wait_led("10.244.1.2")
            with socket.create_connection(address, timeout=5) as new:
                assert ask(new, "hello") == "two hello"
            assert ask(old, "again") == "one again"

            api.delete(f"{SLICES}/greet-1")
            wait_led()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, timeout=5)
            assert ask(old, "still") == "one still"


def test_the_history_holds_an_object_that_lived_for_a_moment(cluster: Cluster) -> None:
    api = cluster.api()
    created = api.create(PODS, workloads.filler("brief", "nowhere", cpu="1", memory="1Gi"))
    api.delete(f"{PODS}/brief", gracePeriodSeconds=0)
    cluster.history_caught_up()

    lines = list(read_history(cluster.history))
    uid = created["metadata"]["uid"]
    events = [line["type"] for line in lines if line["object"] and line["object"]["metadata"]["uid"] == uid]
    assert (events[0], events[-1]) == ("ADDED", "DELETED")
    assert [line["rv"] for line in lines] == sorted(line["rv"] for line in lines)
    assert "GAP" not in {line["type"] for line in lines}


def command_line(*args: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster", *args],
        cwd=REPOSITORY,
        env={**os.environ, STATE_VARIABLE: str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for Unix sockets, which pytest's own may not."""
    with tempfile.TemporaryDirectory(prefix="cl-") as folder:
        yield Path(folder)


@pytest.mark.long
@pytest.mark.slow
def test_up_leaves_a_cluster_and_down_ends_exactly_what_up_started(cluster: Cluster, short_folder: Path) -> None:
    up = command_line("up", "--name", "x", "--nodes", "1", state=short_folder)
    assert up.returncode == 0, up.stderr
    state = read_state(short_folder / "x")
    assert state is not None
    try:
        assert str(short_folder / "x" / "admin.kubeconfig") in up.stdout
        again = command_line("up", "--name", "x", state=short_folder)
        assert again.returncode == 1
        assert "there is a cluster already" in again.stderr
        nodes = subprocess.run(
            [short_folder / "x" / "kubectl", "get", "nodes"], capture_output=True, text=True, check=False
        )
        assert "n1" in nodes.stdout

        os.kill(next(record.pid for record in state.processes if record.name == "history"), signal.SIGKILL)
        status = command_line("status", state=short_folder)
        assert "x: damaged" in status.stdout
        assert "ended: history" in status.stdout
    finally:
        down = command_line("down", "--name", "x", state=short_folder)
    assert down.returncode == 0, down.stderr
    assert [record.name for record in state.processes if start_ticks(record.pid) is not None] == []
    assert list(short_folder.iterdir()) == []
    assert cluster.api().text("/readyz") == "ok"


OWNER = """
import sys
from pathlib import Path
from tests.cluster.cluster import Cluster, ClusterOptions
cluster = Cluster.start(ClusterOptions(name="orphan", state_dir=Path(sys.argv[1]) / "orphan", record_history=False))
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_cluster_ends_with_its_killed_owner_and_the_next_one_names_what_it_left(short_folder: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(short_folder)], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        state = read_state(short_folder / "orphan")
        assert state is not None
    finally:
        owner.kill()
        owner.wait()
        owner.communicate()
    wait_for(lambda: all(start_ticks(r.pid) is None for r in state.processes), "the end of its processes", DEADLINE)

    said: list[str] = []
    options = ClusterOptions(name="next", state_dir=short_folder / "next", start_scheduler=False, record_history=False)
    with Cluster.start(options, progress=said.append):
        pass
    assert any("left: orphan: dead" in line for line in said)
    assert not (short_folder / "orphan").exists()


def test_the_example_of_the_page_runs() -> None:
    (example,) = [
        body
        for _, language, body in FENCE.findall((REPOSITORY / "docs" / "test-cluster.md").read_text())
        if language == "python"
    ]
    exec(compile(example, "example", "exec"), {})
