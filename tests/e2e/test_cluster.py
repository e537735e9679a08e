"""The test cluster itself, on a real control plane: what every other end-to-end test stands on."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cache import REPOSITORY, STATE_VARIABLE
from tests.cluster.client import ApiClient, ApiError, Endpoint, endpoint_from_kubeconfig
from tests.cluster.cluster import Cluster, ClusterOptions, wait_for
from tests.cluster.history import read_history
from tests.cluster.process import start_ticks
from tests.cluster.state import read_state
from tests.cluster.watch import Reflector

pytestmark = pytest.mark.cluster

DEADLINE = 30.0
PODS = "/api/v1/namespaces/default/pods"
EXTENDER_NAMESPACE, EXTENDER_SERVICE, EXTENDER_PORT = "longhorn-system", "longhorn-scheduler-extender", 9504


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.start() as running:
        running.add_node("n1", labels={"zone": "a"})
        yield running


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> ApiClient:
    return cluster.api()


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "none"}], **spec}}


def node_of(api: ApiClient, name: str) -> str | None:
    value: str | None = api.get(f"{PODS}/{name}")["spec"].get("nodeName")
    return value


def is_bound(api: ApiClient, name: str, node: str) -> bool:
    return node_of(api, name) == node


def service(name: str, port: int = 9504) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": port}]}}


def endpoint_slice(service_name: str, port: int, *ips: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{service_name}-1", "labels": {"kubernetes.io/service-name": service_name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in ips],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def slices(namespace: str, name: str = "") -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices{'/' + name if name else ''}"


@contextmanager
def greeter(text: str) -> Iterator[int]:
    """A server on loopback that answers every line with `text` and that line, on one connection as long as wanted."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as file:
            for line in file:
                file.write(text.encode() + b" " + line)
                file.flush()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def ask(connection: socket.socket, text: str) -> str:
    connection.sendall(text.encode() + b"\n")
    with connection.makefile("rb") as file:
        return file.readline().decode().strip()


def test_the_cluster_says_its_version_and_is_ready(cluster: Cluster, api: ApiClient) -> None:
    assert api.text("/readyz") == "ok"
    assert api.get("/version")["gitVersion"].startswith("v1.")
    answer = cluster.kubectl("get", "nodes", "-o", "name")
    assert (answer.returncode, answer.stdout) == (0, "node/n1\n")


def test_a_pod_is_bound_to_the_node_that_was_added(api: ApiClient) -> None:
    api.create(PODS, pod("bound", nodeSelector={"zone": "a"}))
    wait_for(lambda: node_of(api, "bound") == "n1", "binding", DEADLINE)


def test_the_controllers_run_and_a_deleted_node_takes_no_pod(cluster: Cluster, api: ApiClient) -> None:
    cluster.add_node("gone", labels={"only": "gone"})
    cluster.delete_node("gone")
    template = {"metadata": {"labels": {"app": "set"}}, "spec": pod("x")["spec"]}
    spec = {
        "serviceName": "set",
        "podManagementPolicy": "Parallel",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "set"}},
        "template": template,
    }
    api.create("/apis/apps/v1/namespaces/default/statefulsets", {"metadata": {"name": "set"}, "spec": spec})
    for name in ("set-0", "set-1"):
        wait_for(functools.partial(is_bound, api, name, "n1"), f"binding of {name}", DEADLINE)


def test_a_user_without_rights_is_refused_and_a_service_account_has_its_own(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.api("somebody", groups=("some-group",)).list("/api/v1/nodes")
    assert refused.value.forbidden

    path = cluster.service_account_kubeconfig("default", "default", tmp_path / "account.kubeconfig")
    account = ApiClient.from_kubeconfig(path)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    with pytest.raises(ApiError) as refused:
        account.list("/api/v1/nodes")
    assert refused.value.forbidden


def test_two_clusters_run_at_once_and_know_nothing_of_each_other(cluster: Cluster, api: ApiClient) -> None:
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
    assert api.text("/readyz") == "ok"


def test_the_proxy_follows_an_endpoint_slice_and_leaves_open_connections_alone(
    cluster: Cluster, api: ApiClient
) -> None:
    address = cluster.services.address("default", "greet", 9504)
    api.create("/api/v1/namespaces/default/services", service("greet"))
    with greeter("one") as first, greeter("two") as second:
        cluster.services.map_pod("10.244.1.1", 7000, first)
        cluster.services.map_pod("10.244.1.2", 7000, second)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)

        api.create(slices("default"), endpoint_slice("greet", 7000, "10.244.1.1"))
        wait_for(lambda: cluster.services.endpoints("default", "greet", 9504) != [], "endpoints", DEADLINE)
        with socket.create_connection(address, timeout=5) as old:
            assert ask(old, "hello") == "one hello"

            api.replace(slices("default", "greet-1"), endpoint_slice("greet", 7000, "10.244.1.2"))
            wanted = [("10.244.1.2", 7000)]
            wait_for(lambda: cluster.services.endpoints("default", "greet", 9504) == wanted, "the move", DEADLINE)
            with socket.create_connection(address, timeout=5) as new:
                assert ask(new, "hello") == "two hello"
            assert ask(old, "again") == "one again"

            api.delete(slices("default", "greet-1"))
            wait_for(lambda: cluster.services.endpoints("default", "greet", 9504) == [], "no endpoints", DEADLINE)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, timeout=5)
            assert ask(old, "still") == "one still"


def test_a_connection_to_a_pod_that_is_gone_is_reset(cluster: Cluster, api: ApiClient) -> None:
    api.create("/api/v1/namespaces/default/services", service("nobody"))
    api.create(slices("default"), endpoint_slice("nobody", 7000, "10.244.9.9"))
    wait_for(lambda: cluster.services.endpoints("default", "nobody", 9504) != [], "endpoints", DEADLINE)
    address = cluster.services.address("default", "nobody", "http")
    with pytest.raises(ConnectionResetError), socket.create_connection(address, timeout=5) as connection:
        connection.recv(1)


def test_the_history_holds_an_object_that_lived_for_a_moment(cluster: Cluster, api: ApiClient) -> None:
    created = api.create(PODS, pod("brief", nodeName="nowhere"))
    api.delete(f"{PODS}/brief", gracePeriodSeconds=0)
    cluster.history_caught_up()

    lines = list(read_history(cluster.history))
    uid = created["metadata"]["uid"]
    events = [line["type"] for line in lines if line["object"] and line["object"]["metadata"]["uid"] == uid]
    assert (events[0], events[-1]) == ("ADDED", "DELETED")
    assert [line["rv"] for line in lines] == sorted(line["rv"] for line in lines)
    assert "GAP" not in {line["type"] for line in lines}


def test_the_history_covers_longhorn_kinds_from_their_definition_on(cluster: Cluster, api: ApiClient) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "metadata": {"name": "replicas.longhorn.io"},
        "spec": {
            "group": "longhorn.io",
            "scope": "Namespaced",
            "names": {"plural": "replicas", "singular": "replica", "kind": "Replica"},
            "versions": [{"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    cluster.history_covers("/apis/longhorn.io/v1beta2/replicas", timeout=DEADLINE)
    body = {"apiVersion": "longhorn.io/v1beta2", "kind": "Replica", "metadata": {"name": "r1"}, "spec": {"x": 1}}
    api.create("/apis/longhorn.io/v1beta2/namespaces/default/replicas", body)
    api.patch("/apis/longhorn.io/v1beta2/namespaces/default/replicas/r1", {"spec": {"x": 2}})
    cluster.history_caught_up()
    lines = [line for line in read_history(cluster.history) if line["group"] == "longhorn.io"]
    seen = [(line["type"], (line["object"] or {}).get("spec")) for line in lines]
    assert seen == [("START", None), ("ADDED", {"x": 1}), ("MODIFIED", {"x": 2})]


def test_a_reflector_ends_up_with_what_the_api_server_has(cluster: Cluster, api: ApiClient) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    seen: list[tuple[str, str]] = []
    reflector = Reflector(cluster.api(), path, lambda kind, obj: seen.append((kind, obj["metadata"]["name"])))
    try:
        reflector.wait_synced()
        api.create(path, {"metadata": {"name": "a"}, "data": {"k": "1"}})
        api.patch(f"{path}/a", [{"op": "replace", "path": "/data/k", "value": "2"}], type="json")
        api.delete(f"{path}/a")
        wait_for(lambda: ("DELETED", "a") in seen, "the deletion", DEADLINE)
        assert [kind for kind, name in seen if name == "a"] == ["ADDED", "MODIFIED", "DELETED"]
        assert reflector.get("default/a") is None
        assert reflector.error is None
    finally:
        reflector.stop()


class ExtenderStub(ThreadingHTTPServer):
    """Answers every filter call with all nodes, and remembers the names of the pods."""

    def __init__(self) -> None:
        self.pods: list[str] = []
        super().__init__(("127.0.0.1", 0), ExtenderHandler)


class ExtenderHandler(BaseHTTPRequestHandler):
    server: ExtenderStub

    def do_POST(self) -> None:
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.pods.append(args["Pod"]["metadata"]["name"])
        body = json.dumps({"NodeNames": args["NodeNames"]}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *args: Any) -> None:
        pass


def test_kube_scheduler_reaches_an_extender_by_its_service_name(cluster: Cluster, api: ApiClient) -> None:
    cluster.create_namespace(EXTENDER_NAMESPACE)
    stub = ExtenderStub()
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    cluster.services.map_pod("10.244.2.1", EXTENDER_PORT, stub.server_address[1])
    api.create(f"/api/v1/namespaces/{EXTENDER_NAMESPACE}/services", service(EXTENDER_SERVICE, EXTENDER_PORT))
    api.create(slices(EXTENDER_NAMESPACE), endpoint_slice(EXTENDER_SERVICE, EXTENDER_PORT, "10.244.2.1"))
    config = {
        "profiles": [{"schedulerName": "with-extender"}],
        "extenders": [
            {
                "urlPrefix": f"http://{EXTENDER_SERVICE}.{EXTENDER_NAMESPACE}.svc:{EXTENDER_PORT}",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
            }
        ],
    }
    try:
        cluster.start_scheduler(config, name="with-extender")
        api.create(PODS, pod("asks", schedulerName="with-extender"))
        wait_for(lambda: node_of(api, "asks") == "n1", "binding through the extender", DEADLINE)
        assert stub.pods == ["asks"]
        assert 'scheduler_schedule_attempts_total{profile="with-extender",result="scheduled"} 1' in (
            cluster.scheduler_metrics("with-extender")
        )

        cluster.restart_scheduler(name="with-extender", kill=True)
        api.create(PODS, pod("asks-again", schedulerName="with-extender"))
        wait_for(lambda: node_of(api, "asks-again") == "n1", "binding after a restart", DEADLINE)
        assert stub.pods == ["asks", "asks-again"]
    finally:
        cluster.stop_scheduler("with-extender")
        stub.shutdown()
        stub.server_close()
    assert "with-extender" not in cluster.pids()


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
