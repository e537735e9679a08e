"""Pods opt in on a real API server, which asks the product's webhook through its Service by the product's rules.

Which pods the API server asks about at all is `test_admission_config.py`'s.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Object
from tests.cluster.components import LOOPBACK
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, Scene
from tests.e2e.neighbours import Change, NeighbourWebhook
from tests.e2e.scheduling import NAMESPACE, RESOURCE
from tests.e2e.webhooks import (
    CONTAINER_PORT,
    OURS,
    SLICES,
    WEBHOOK_SERVICE,
    Webhook,
    write_certificates,
    write_configuration,
)
from tests.longhorn.install import ensure
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MARK = "scheduling.longhorn.io/opt-in"
LIMITED = {"limits": {"cpu": "1"}}
PODS_ENTRY = "pods.scheduling.longhorn.io"
ATTACHMENTS = f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/volumeattachments"
SILENT_IP = "10.246.250.1"
WAIT_SECONDS = 60.0
MADE_MEANWHILE = 8  # pods in each state of a rolling update
_numbers = itertools.count(1)


class OptInStage:
    """A cluster whose API server asks one copy of the webhook; no scheduler and no leader run."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.api, self.folder = scene, scene.api, folder
        self.bundle = write_certificates(folder / "tls")
        self._namespaces: list[str] = []
        for name, provisioner in (("lh", workloads.DRIVER), ("nfs", "nfs.example.org")):
            ensure(self.api, CLASSES, {**workloads.storage_class(name), "provisioner": provisioner})
        self.webhook = self.start_webhook()
        self.webhook.wait_ready()
        write_configuration(self.api, self.bundle)
        self.wait_asked()

    def start_webhook(self) -> Webhook:
        flags = ("--tls-mode", "provided", "--tls-cert-dir", str(self.folder / "tls"))
        return Webhook(self.scene.cluster, flags)

    def wait_asked(self) -> None:
        probe = self.namespace()
        wait_until(lambda: asking(probe.dry_run("c")), "API server that asks the webhook", WAIT_SECONDS)

    def namespace(self, **metadata: Any) -> Space:
        """With a claim `ours` of Longhorn's and one `theirs` of somebody else's."""
        name = f"opt-in-{next(_numbers)}"
        self._namespaces.append(name)
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: self.api.get_or_none(account) is not None, f"account in {name}", WAIT_SECONDS)
        space = Space(self, name)
        for claim, class_name in (("ours", "lh"), ("theirs", "nfs")):
            self.api.create(space.path("persistentvolumeclaims"), workloads.claim(claim, class_name, 1))
        return space

    def stop(self) -> None:
        """Nobody is asked any more, and what was made is gone."""
        self.webhook.stop(kill=True)
        self.api.patch(OURS[0], {"webhooks": []})
        for name in self._namespaces:
            self.api.delete(f"/apis/apps/v1/namespaces/{name}/statefulsets")
            self.api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)

    def calls(self, family: str) -> int:
        """A counter of the API server's about our entry for pods."""
        lines = self.api.text("/metrics").splitlines()
        wanted = (f"apiserver_admission_webhook_{family}{{", f'name="{PODS_ENTRY}"')
        return sum(
            int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(wanted[0]) and wanted[1] in line
        )

    def failures_told(self) -> list[str]:
        """What the API server says of calls of ours that failed."""
        lines = self.scene.cluster.layout.log("kube-apiserver").read_text().splitlines()
        return [line for line in lines if "ailed calling webhook" in line and "longhorn" in line]

    @contextmanager
    def beside(self, space: Space, name: str, change: Change, folder: Path) -> Iterator[None]:
        """With somebody else's webhook at work in that namespace."""
        with NeighbourWebhook(self.api, folder, name, space.name, change) as neighbour:
            wait_until(lambda: space.dry_run("theirs") and neighbour.seen, "neighbour that is asked", WAIT_SECONDS)
            yield


class Space:
    """A namespace, and the objects that tests make in it."""

    def __init__(self, stage: OptInStage, name: str) -> None:
        self.api, self.name = stage.api, name

    def path(self, plural: str) -> str:
        group = "apis/apps/v1" if plural == "statefulsets" else "api/v1"
        return f"/{group}/namespaces/{self.name}/{plural}"

    def pod(self, *claims: str, query: dict[str, Any] | None = None, **changes: Any) -> Object:
        """Create a pod of these claims; what the API server made of it."""
        return self.api.create(self.path("pods"), plain_pod(*claims, **changes), **(query or {}))

    def dry_run(self, *claims: str, **changes: Any) -> Object:
        return self.pod(*claims, query={"dryRun": "All"}, **changes)


def plain_pod(*claims: str, meta: Object | None = None, **spec: Any) -> Object:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
    containers = [{"name": "main", "image": "example.org/nothing"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", **(meta or {})},
        "spec": {"containers": containers, "volumes": volumes, **spec},
    }


def asking(pod: Object) -> list[str]:
    """The containers that ask for the extender, each as request and limit of one."""
    spec = pod["spec"]
    found = []
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        resources = container.get("resources") or {}
        amounts = {part: (resources.get(part) or {}).get(RESOURCE) for part in ("requests", "limits")}
        if any(amounts.values()):
            assert {"requests": "1", "limits": "1"} == amounts
            found.append(container["name"])
    return found


@pytest.fixture(scope="module")
def stage(unscheduled_scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OptInStage]:
    found = OptInStage(unscheduled_scene, tmp_path_factory.mktemp("opt-in"))
    yield found
    found.stop()


@pytest.fixture
def space(stage: OptInStage) -> Space:
    return stage.namespace()


# Who opts in


def test_pods_of_a_stateful_set_ask_exactly_once(space: Space) -> None:
    """Their claims are made a moment before them, by another process."""
    raw = workloads.stateful_set("web", "lh", replicas=5, gib=1, opted_in=False)
    space.api.create(space.path("statefulsets"), raw)
    wait_until(lambda: len(space.api.list(space.path("pods"))["items"]) == 5, "five pods", WAIT_SECONDS)
    assert [["main"]] * 5 == [asking(pod) for pod in space.api.list(space.path("pods"))["items"]]


def test_bare_pods_opt_in_by_the_claims_that_they_name(space: Space) -> None:
    assert ["main"] == asking(space.pod("theirs", "ours"))
    assert [] == asking(space.pod("theirs"))
    assert [] == asking(space.pod())


def test_a_pod_that_is_made_before_its_claim_opts_in_and_its_maker_is_told(stage: OptInStage, space: Space) -> None:
    assert ["main"] == asking(space.pod("later"))
    text = json.dumps(plain_pod("later", meta={"name": "p", "generateName": None}))
    done = stage.scene.cluster.kubectl("-n", space.name, "create", "--dry-run=server", "-f", "-", input=text)
    assert "Warning: Longhorn scheduler extender: claim later: it was not found yet" in done.stderr


def test_quality_of_service_stays_what_it_was(space: Space) -> None:
    assert "BestEffort" == space.pod("ours")["status"]["qosClass"]
    containers = [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    assert "Guaranteed" == space.pod("ours", containers=containers)["status"]["qosClass"]


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_a_marked_namespace_stays_out_but_for_pods_that_are_marked_themselves(stage: OptInStage, place: str) -> None:
    out = stage.namespace(**{place: {MARK: "false"}})
    assert [] == asking(out.pod("ours"))
    assert ["main"] == asking(out.pod("ours", meta={place: {MARK: "true"}}))


# Beside other webhooks


def add_container_in_front(pod: Object) -> list[Object]:
    return [
        {"op": "add", "path": "/spec/containers/0", "value": {"name": "injected", "image": "x", "resources": LIMITED}}
    ]


def take_resources_away(pod: Object) -> list[Object]:
    return [{"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "1"}}}]


def rewrite_everything(pod: Object) -> list[Object]:
    return [{"op": "replace", "path": "/spec/containers", "value": [{"name": "only", "image": "x"}]}]


@pytest.mark.parametrize("name", ["aa-before", "zzz-after"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [(add_container_in_front, 2), (take_resources_away, 1), (rewrite_everything, 1)],
    ids=["adds", "takes", "rewrites"],
)
def test_beside_another_webhook_the_pod_asks_exactly_once(
    stage: OptInStage, space: Space, name: str, change: Change, expected: int, tmp_path: Path
) -> None:
    with stage.beside(space, name, change, tmp_path):
        before = stage.calls("request_total")
        pod = space.pod("ours")
        calls = stage.calls("request_total") - before
    assert expected == len(pod["spec"]["containers"])
    assert 1 == len(asking(pod))
    # Asked again after what came later; the API server's own plugins may change the pod in the second round as well.
    assert calls == 2 or (calls == 1 and name == "aa-before")


def choose_a_scheduler(pod: Object) -> list[Object]:
    return [{"op": "add", "path": "/spec/schedulerName", "value": "yunikorn"}]


def add_a_claim(pod: Object) -> list[Object]:
    claim = {"name": "added", "persistentVolumeClaim": {"claimName": "ours"}}
    return [{"op": "add", "path": "/spec/volumes/-", "value": claim}]


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("aa-before", choose_a_scheduler, []),
        ("yunikorn", choose_a_scheduler, []),
        ("aa-before", add_a_claim, ["main"]),
        ("yunikorn", add_a_claim, ["main"]),
        # The limit that the documents tell of: what comes after us decides too late.
        ("zzz-after", choose_a_scheduler, ["main"]),
        ("zzz-after", add_a_claim, []),
    ],
)
def test_what_webhooks_before_us_decide_counts(
    stage: OptInStage, space: Space, name: str, change: Change, expected: list[str], tmp_path: Path
) -> None:
    with stage.beside(space, name, change, tmp_path):
        pod = space.pod("ours") if change is choose_a_scheduler else space.pod()
    assert expected == asking(pod)


# Without us


@pytest.fixture
def silent(stage: OptInStage) -> Iterator[OptInStage]:
    """In place of the webhook something that takes connections and never says a word: the worst that we can be."""
    stage.webhook.leave_service()
    with socket.socket() as listener:
        listener.bind((LOOPBACK, free_port()))
        listener.listen(64)
        stage.scene.cluster.services.map_pod(SILENT_IP, CONTAINER_PORT, listener.getsockname()[1])
        piece = workloads.endpoint_slice("silent", WEBHOOK_SERVICE, SILENT_IP, CONTAINER_PORT, "https")
        stage.api.create(SLICES, piece)
        stage.webhook.stop(kill=True)
        yield stage
        stage.api.delete(f"{SLICES}/silent")
    stage.webhook = stage.start_webhook()
    stage.webhook.wait_ready()
    stage.wait_asked()


def test_while_we_hang_pods_are_made_all_the_same_and_those_without_claims_at_once(
    silent: OptInStage, space: Space
) -> None:
    asked, failures = silent.calls("request_total"), silent.calls("fail_open_count")
    space.pod()
    assert (asked, failures) == (silent.calls("request_total"), silent.calls("fail_open_count"))
    assert [] == asking(space.pod("ours"))  # late, as it is, but there
    assert failures + 1 == silent.calls("fail_open_count")


@pytest.mark.long
def test_a_rolling_update_misses_no_pod(stage: OptInStage, space: Space) -> None:
    stop, missed, made = threading.Event(), list[str](), list[str]()
    failures = stage.calls("fail_open_count")

    def create() -> None:
        while not stop.is_set():
            pod = space.dry_run("ours")
            made.append(pod["metadata"]["name"])
            if asking(pod) != ["main"]:
                missed.append(pod["metadata"]["name"])

    def wait_for_more() -> None:
        before = len(made)
        wait_until(lambda: len(made) > before + MADE_MEANWHILE, "pods made meanwhile", WAIT_SECONDS)

    makers = [threading.Thread(target=create, name=f"maker-{number}") for number in range(4)]
    for maker in makers:
        maker.start()
    try:
        successor = stage.start_webhook()
        successor.wait_ready()
        wait_for_more()
        stage.webhook.stop()
        stage.webhook = successor
        wait_for_more()
    finally:
        stop.set()
        for maker in makers:
            maker.join(WAIT_SECONDS)
    assert [] == missed, stage.failures_told()
    assert failures == stage.calls("fail_open_count")


# Share-manager pods


def share_manager(volume: str) -> Object:
    labels = {
        "longhorn.io/managed-by": "longhorn-manager",
        "longhorn.io/component": "share-manager",
        "longhorn.io/share-manager": volume,
    }
    return plain_pod(meta={"name": f"share-manager-{volume}", "generateName": None, "labels": labels})


def test_share_manager_pods_prefer_their_consumers_node(stage: OptInStage) -> None:
    ticket = {"id": "csi-1", "type": "csi-attacher", "nodeID": "n7", "generation": 1}
    engine = {"id": "lh-1", "type": "longhorn-api", "nodeID": "n1", "generation": 1}
    spec = {"volume": "pvc-shared", "attachmentTickets": {"csi-1": ticket, "lh-1": engine}}
    kind = {"apiVersion": "longhorn.io/v1beta2", "kind": "VolumeAttachment"}
    stage.api.create(ATTACHMENTS, {**kind, "metadata": {"name": "pvc-shared"}, "spec": spec})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = stage.api.create(path, share_manager("pvc-shared"), dryRun="All")
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [{"key": "metadata.name", "operator": "In", "values": ["n7"]}] == term["preference"]["matchFields"]
    assert [] == asking(pod)
    assert "affinity" not in stage.api.create(path, share_manager("pvc-unknown"), dryRun="All")["spec"]
