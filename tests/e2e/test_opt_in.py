"""Pods opt in on a real API server, which asks the product's webhook through its Service by the product's rules."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.canary.pod import canary_body
from tests.cluster.client import ApiClient, ApiError, Object
from tests.cluster.components import LOOPBACK, free_ports
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, CONFIG_MAP, Scene
from tests.e2e.neighbour_webhook import Change, NeighbourWebhook
from tests.e2e.scheduling import NAMESPACE, RESOURCE
from tests.e2e.view import poll
from tests.e2e.webhooks import (
    CONTAINER_PORT,
    SLICES,
    WEBHOOK_SERVICE,
    Webhook,
    drop_configuration,
    write_certificates,
    write_configuration,
)
from tests.longhorn.options import LonghornOptions

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MARK = "scheduling.longhorn.io/opt-in"
ASKED = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}
LIMITED = {"limits": {"cpu": "1"}}
PODS_ENTRY = "pods.scheduling.longhorn.io"
ATTACHMENTS = f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/volumeattachments"
OUR_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
REFUSED = "Longhorn scheduler extender may"
WAIT_SECONDS = 60.0
_numbers = itertools.count(1)


class Stage:
    """A cluster whose API server asks one copy of the webhook; no scheduler and no leader run."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.api, self.folder = scene, scene.api, folder
        self.bundle = write_certificates(folder / "tls")
        for name, provisioner in (("lh", workloads.DRIVER), ("nfs", "nfs.example.org")):
            self.api.create(CLASSES, {**workloads.storage_class(name), "provisioner": provisioner})
        self.webhook = self.start_webhook()
        self.webhook.wait_ready()
        self.configure()

    def start_webhook(self) -> Webhook:
        flags = ("--tls-mode", "provided", "--tls-cert-dir", str(self.folder / "tls"))
        return Webhook(self.scene.cluster, flags, scheduler_names="default-scheduler,second")

    def configure(self) -> None:
        """Write our configuration, and wait until the API server goes by it."""
        write_configuration(self.api, self.bundle, schedulers=("default-scheduler", "second"))
        probe = self.namespace()
        poll(lambda: asking(probe.dry_run("c")), "API server that asks the webhook", WAIT_SECONDS)

    def namespace(self, **metadata: Any) -> Space:
        name = f"opt-in-{next(_numbers)}"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        poll(lambda: self.api.get_or_none(account) is not None, f"account in {name}", WAIT_SECONDS)
        return Space(self, name)

    def calls(self, family: str, entry: str = PODS_ENTRY) -> int:
        """A counter of the API server's about one entry of ours."""
        lines = self.api.text("/metrics").splitlines()
        wanted = (f"apiserver_admission_webhook_{family}{{", f'name="{entry}"')
        return sum(
            int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(wanted[0]) and wanted[1] in line
        )

    def asked(self) -> int:
        """How many calls of ours the API server has made, those that failed included."""
        return self.calls("request_total") + self.calls("fail_open_count")


class Space:
    """A namespace, and the objects that tests make in it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.api, self.name = stage, stage.api, name

    def path(self, plural: str, name: str = "") -> str:
        groups = {"deployments": "apps", "daemonsets": "apps", "statefulsets": "apps", "jobs": "batch"}
        root = f"/apis/{groups[plural]}/v1" if plural in groups else "/api/v1"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def claim(self, name: str, class_name: str = "lh", **spec: Any) -> None:
        raw = workloads.claim(name, class_name, 1)
        raw["spec"] |= spec
        self.api.create(self.path("persistentvolumeclaims"), raw)

    def pod(self, *claims: str, query: dict[str, Any] | None = None, **changes: Any) -> Object:
        """Create a pod of these claims; what the API server made of it."""
        return self.api.create(self.path("pods"), plain_pod(*claims, **changes), **(query or {}))

    def dry_run(self, *claims: str, **changes: Any) -> Object:
        return self.pod(*claims, query={"dryRun": "All"}, **changes)

    def run(self, plural: str, raw: Object, count: int = 1) -> list[Object]:
        """Create a workload; the pods that its controller makes."""
        self.api.create(self.path(plural), raw)

        def pods() -> list[Object]:
            found = self.api.list(self.path("pods"))["items"]
            return found if len(found) >= count else []

        return poll(pods, f"{count} pods of {plural} in {self.name}", WAIT_SECONDS)


def plain_pod(*claims: str, meta: Object | None = None, volumes: list[Object] | None = None, **spec: Any) -> Object:
    named = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
    containers = [{"name": "main", "image": "example.org/nothing"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", **(meta or {})},
        "spec": {"containers": containers, "volumes": [*named, *(volumes or [])], **spec},
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
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Scene.start(LonghornOptions(), run_scheduler=False) as scene:
        yield Stage(scene, tmp_path_factory.mktemp("opt-in"))


@pytest.fixture
def space(stage: Stage) -> Space:
    """A namespace with a claim `ours` of Longhorn's and one `theirs` of somebody else's."""
    made = stage.namespace()
    made.claim("ours")
    made.claim("theirs", "nfs")
    return made


# Who opts in


def template(name: str, *claims: str, restart: str = "Always") -> Object:
    pod = plain_pod(*claims, restartPolicy=restart)
    return {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}


def test_pods_of_a_stateful_set_ask_exactly_once(space: Space) -> None:
    raw = workloads.stateful_set("web", "lh", replicas=5, gib=1, opted_in=False)
    for pod in space.run("statefulsets", raw, 5):
        assert ["main"] == asking(pod)


@pytest.mark.parametrize("plural", ["deployments", "daemonsets", "jobs"])
def test_pods_of_every_workload_opt_in(stage: Stage, space: Space, plural: str) -> None:
    kind = {"deployments": "Deployment", "daemonsets": "DaemonSet", "jobs": "Job"}[plural]
    spec: Object = {"template": template("w", "ours", restart="Never" if kind == "Job" else "Always")}
    if kind != "Job":
        spec["selector"] = {"matchLabels": {"app": "w"}}
    if kind == "DaemonSet":
        stage.scene.cluster.add_node("opt-in-node")
    try:
        for pod in space.run(plural, {"kind": kind, "metadata": {"name": "w"}, "spec": spec}):
            assert ["main"] == asking(pod)
    finally:
        if kind == "DaemonSet":
            stage.scene.cluster.delete_node("opt-in-node")


def test_bare_pods_opt_in_by_the_claims_that_they_name(space: Space) -> None:
    assert ["main"] == asking(space.pod("ours"))
    assert ["main"] == asking(space.pod("theirs", "ours"))
    assert [] == asking(space.pod("theirs"))
    assert [] == asking(space.pod())


def test_a_pod_that_is_made_before_its_claim_opts_in_and_its_maker_is_told(stage: Stage, space: Space) -> None:
    assert ["main"] == asking(space.pod("later"))
    done = stage.scene.cluster.kubectl(
        "-n", space.name, "create", "--dry-run=server", "-f", "-", input=as_json("later")
    )
    assert "Warning: Longhorn scheduler extender: claim later: it was not found yet" in done.stderr


def as_json(*claims: str) -> str:
    return json.dumps(plain_pod(*claims, meta={"name": "p", "generateName": None}))


@pytest.mark.parametrize(
    ("class_name", "expected"), [("lh", ["main"]), ("nfs", []), ("missing", ["main"])], ids=["ours", "other", "missing"]
)
def test_generic_ephemeral_volumes_opt_in_by_their_template(space: Space, class_name: str, expected: list[str]) -> None:
    spec = workloads.claim("x", class_name, 1)["spec"]
    entry = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    assert expected == asking(space.pod(volumes=[entry]))
    assert expected == asking(space.pod(volumes=[entry], meta={"name": "named", "generateName": None}))


def test_a_pod_that_asks_already_is_left_as_it_is(space: Space) -> None:
    for container in ({"name": "main", "image": "x"}, {"name": "main", "image": "x", "resources": LIMITED}):
        containers = [container, {"name": "other", "image": "x", "resources": ASKED}]
        assert ["other"] == asking(space.pod("ours", containers=containers))


def test_of_several_containers_one_asks(space: Space) -> None:
    containers = [{"name": "first", "image": "x"}, {"name": "limited", "image": "x", "resources": LIMITED}]
    sidecars = [
        {"name": "sidecar", "image": "x", "restartPolicy": "Always"},
        {"name": "init", "image": "x", "resources": {"requests": {"cpu": "2"}}},
    ]
    assert ["limited"] == asking(space.pod("ours", containers=containers))
    assert ["first"] == asking(space.pod("ours", containers=containers[:1], initContainers=sidecars))


def test_quality_of_service_stays_what_it_was(space: Space) -> None:
    assert "BestEffort" == space.pod("ours")["status"]["qosClass"]
    guaranteed = {"limits": {"cpu": "1", "memory": "1Gi"}}
    containers = [{"name": "main", "image": "x", "resources": guaranteed}]
    assert "Guaranteed" == space.pod("ours", containers=containers)["status"]["qosClass"]


def test_schedulers_of_the_list_only(space: Space) -> None:
    assert ["main"] == asking(space.pod("ours", schedulerName="second"))
    assert [] == asking(space.pod("ours", schedulerName="volcano"))


def test_a_bound_pod_is_left_alone(space: Space) -> None:
    assert [] == asking(space.pod("ours", nodeName="n1"))


def test_a_dry_run_shows_what_would_be(space: Space) -> None:
    assert ["main"] == asking(space.dry_run("ours"))
    assert [] == space.api.list(space.path("pods"))["items"]


# Who stays out


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_marks_of_pods_and_namespaces(stage: Stage, place: str) -> None:
    plain, out = stage.namespace(), stage.namespace(**{place: {MARK: "false"}})
    for space in (plain, out):
        space.claim("ours")
    assert [] == asking(plain.pod("ours", meta={place: {MARK: "false"}}))
    assert [] == asking(out.pod("ours"))
    assert ["main"] == asking(out.pod("ours", meta={place: {MARK: "true"}}))


@pytest.mark.parametrize("name", ["kube-system", NAMESPACE])
def test_pods_of_excluded_namespaces_are_left_alone_and_never_asked_about(stage: Stage, name: str) -> None:
    space = Space(stage, name)
    account = space.path("serviceaccounts", "default")
    poll(lambda: stage.api.get_or_none(account) is not None, f"account in {name}", WAIT_SECONDS)
    space.claim("ours")
    before = stage.asked()
    pod = space.pod("ours")
    assert [] == asking(pod)
    assert before == stage.asked()
    stage.api.delete(space.path("pods", pod["metadata"]["name"]), gracePeriodSeconds=0)


def test_only_marked_pods_where_the_cluster_says_so(stage: Stage, space: Space) -> None:
    marked = stage.namespace(labels={MARK: "true"})
    marked.claim("ours")

    def set_only_marked(wanted: bool) -> None:
        text = "true" if wanted else None
        stage.api.patch(CONFIG_MAP, {"data": {"scheduler-extender-opt-in-only-marked": text}})
        settings: Callable[[], bool] = lambda: stage.webhook.status()["settings"]["only_marked"] == wanted  # noqa: E731
        poll(settings, "setting in the webhook", WAIT_SECONDS)

    set_only_marked(True)
    try:
        assert [] == asking(space.pod("ours"))
        assert ["main"] == asking(space.pod("ours", meta={"labels": {MARK: "true"}}))
        assert ["main"] == asking(marked.pod("ours"))
        assert [] == asking(marked.pod("ours", meta={"labels": {MARK: "false"}}))
    finally:
        set_only_marked(False)
    assert ["main"] == asking(space.pod("ours"))


# Beside other webhooks


def add_container_in_front(pod: Object) -> list[Object]:
    return [
        {"op": "add", "path": "/spec/containers/0", "value": {"name": "injected", "image": "x", "resources": LIMITED}}
    ]


def take_resources_away(pod: Object) -> list[Object]:
    return [{"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "1"}}}]


def rewrite_everything(pod: Object) -> list[Object]:
    containers = [{"name": "only", "image": "x"}]
    return [{"op": "replace", "path": "/spec/containers", "value": containers}]


@pytest.mark.parametrize("name", ["aa-before", "zzz-after"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [(add_container_in_front, 2), (take_resources_away, 1), (rewrite_everything, 1)],
    ids=["adds", "takes", "rewrites"],
)
def test_beside_another_webhook_the_pod_asks_exactly_once(
    stage: Stage, space: Space, name: str, change: Change, expected: int, tmp_path: Path
) -> None:
    neighbour = NeighbourWebhook(stage.api, tmp_path, name, space.name, change)
    try:
        poll(lambda: space.dry_run("theirs") and neighbour.seen, "neighbour that is asked", WAIT_SECONDS)
        before = stage.calls("request_total")
        pod = space.pod("ours")
        calls = stage.calls("request_total") - before
    finally:
        neighbour.stop()
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
    stage: Stage, space: Space, name: str, change: Change, expected: list[str], tmp_path: Path
) -> None:
    neighbour = NeighbourWebhook(stage.api, tmp_path, name, space.name, change)
    try:
        poll(lambda: space.dry_run("theirs") and neighbour.seen, "neighbour that is asked", WAIT_SECONDS)
        pod = space.pod("ours") if change is choose_a_scheduler else space.pod()
    finally:
        neighbour.stop()
    assert expected == asking(pod)


# What admission costs


def test_pods_whose_claims_are_known_cost_no_call(stage: Stage, space: Space) -> None:
    for number in range(5):
        space.claim(f"c{number}")

    def known() -> bool:
        # Watches tell in order: when the last claim needs no live read, none does.
        before = stage.webhook.counted("live_reads_total")
        space.dry_run("c4")
        return stage.webhook.counted("live_reads_total") == before

    poll(known, "claims in the webhook's store", WAIT_SECONDS)
    before = stage.webhook.counted("live_reads_total")
    scratch = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": workloads.claim("x", "lh", 1)["spec"]}}}
    for number in range(5):
        assert ["main"] == asking(space.pod(f"c{number}", volumes=[scratch]))
        assert ["main"] == asking(space.pod(f"c{number}", meta={"name": f"p{number}", "generateName": None}))
    assert before == stage.webhook.counted("live_reads_total")


def test_pods_without_claims_never_leave_the_api_server(stage: Stage, space: Space) -> None:
    before = stage.asked()
    for _ in range(5):
        space.pod()
        space.pod("ours", schedulerName="volcano")
        space.pod("ours", meta={"labels": {MARK: "false"}})
    assert before == stage.asked()
    space.pod("ours")
    assert before + 1 == stage.asked()


# Without us


@pytest.fixture
def silent(stage: Stage) -> Iterator[Stage]:
    """In place of the webhook something that takes connections and never says a word: the worst that we can be."""
    stage.webhook.leave_service()
    with socket.socket() as listener:
        listener.bind((LOOPBACK, free_ports(1)[0]))
        listener.listen(64)
        stage.scene.cluster.services.map_pod("10.246.250.1", CONTAINER_PORT, listener.getsockname()[1])
        piece = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "silent", "labels": {"kubernetes.io/service-name": WEBHOOK_SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.246.250.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": CONTAINER_PORT, "protocol": "TCP"}],
        }
        stage.api.create(SLICES, piece)
        stage.webhook.stop(kill=True)
        yield stage
        stage.api.delete(f"{SLICES}/silent")
    stage.webhook = stage.start_webhook()
    stage.webhook.wait_ready()
    stage.configure()


def test_without_us_everything_else_goes_on_and_our_own_pods_can_start(silent: Stage, space: Space) -> None:
    before = silent.asked()
    space.pod()
    own = Space(silent, NAMESPACE)
    raw = {
        "kind": "Deployment",
        "metadata": {"name": WEBHOOK_SERVICE},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template("w")},
    }
    assert own.run("deployments", raw)
    silent.api.delete(own.path("deployments", WEBHOOK_SERVICE), propagationPolicy="Background")
    assert before == silent.asked(), "these requests must not wait for us"

    failures = silent.calls("fail_open_count")
    assert [] == asking(space.pod("ours"))  # late, as it is, but there
    assert failures + 1 == silent.calls("fail_open_count")


def test_a_rolling_update_misses_no_pod(stage: Stage, space: Space) -> None:
    stop, missed, made = threading.Event(), [], itertools.count()
    failures = stage.calls("fail_open_count")

    def create() -> None:
        while not stop.is_set():
            pod = space.dry_run("ours")
            next(made)
            if asking(pod) != ["main"]:
                missed.append(pod["metadata"]["name"])

    makers = [threading.Thread(target=create, name=f"maker-{number}") for number in range(4)]
    for maker in makers:
        maker.start()
    try:
        for _ in range(2):
            successor = stage.start_webhook()
            successor.wait_ready()
            stage.webhook.stop()
            stage.webhook = successor
    finally:
        stop.set()
        for maker in makers:
            maker.join(WAIT_SECONDS)
    assert [] == missed
    assert failures == stage.calls("fail_open_count")
    assert next(made) > 50


# Share-manager pods


def share_manager(volume: str) -> Object:
    labels = {
        "longhorn.io/managed-by": "longhorn-manager",
        "longhorn.io/component": "share-manager",
        "longhorn.io/share-manager": volume,
    }
    return plain_pod(meta={"name": f"share-manager-{volume}", "generateName": None, "labels": labels})


def test_share_manager_pods_prefer_their_consumers_node(stage: Stage) -> None:
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
    other = {**share_manager("pvc-shared"), "metadata": {"name": "longhorn-ui", "labels": {"app": "longhorn-ui"}}}
    assert "affinity" not in stage.api.create(path, other, dryRun="All")["spec"]


def test_the_configuration_can_go_at_any_time(stage: Stage, space: Space) -> None:
    drop_configuration(stage.api)
    poll(lambda: not asking(space.dry_run("ours")), "API server that asks nobody", WAIT_SECONDS)
    stage.configure()
    assert ["main"] == asking(space.dry_run("ours"))


# What our own account may do with pods


def tried(client: ApiClient, pod: Object) -> str:
    """Why it may not be created, "" when it may; nothing is stored."""
    try:
        client.create(OUR_PODS, pod, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def canary(**spec: Any) -> Object:
    owner = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "l", "uid": "u"}
    made = canary_body("default-scheduler", NAMESPACE, owner)
    return {**made, "spec": {**made["spec"], **spec}}


def changed_container(**fields: Any) -> list[Object]:
    (container,) = canary()["spec"]["containers"]
    return [{**container, **fields}]


@pytest.fixture(scope="module")
def ours(stage: Stage) -> ApiClient:
    """The API server as our account sees it, once the policy is at work."""
    client = ApiClient.from_kubeconfig(stage.scene.kubeconfig)
    account = Space(stage, NAMESPACE).path("serviceaccounts", "default")
    poll(lambda: stage.api.get_or_none(account) is not None, "account for pods", WAIT_SECONDS)
    stranger = plain_pod(meta={"name": "stranger", "generateName": None})
    poll(lambda: REFUSED in tried(client, stranger), "policy that is at work", WAIT_SECONDS)
    return client


def test_the_canary_may_be_created(ours: ApiClient) -> None:
    assert "" == tried(ours, canary())


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": changed_container(image="example.org/evil")},
        {"containers": changed_container(imagePullPolicy="Always")},
        {"containers": changed_container(securityContext={"privileged": True})},
        {"containers": [*changed_container(), {"name": "more", "image": "example.org/evil"}]},
        {"initContainers": changed_container(name="init")},
        {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
        {"nodeName": "n1"},
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"serviceAccountName": WEBHOOK_SERVICE},
        {"automountServiceAccountToken": True},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_nothing_but_the_canary_may_be_created(ours: ApiClient, spec: Object) -> None:
    assert REFUSED in tried(ours, canary(**spec))


def test_no_pod_but_the_canary_may_be_deleted(stage: Stage, ours: ApiClient) -> None:
    stage.api.create(OUR_PODS, plain_pod(meta={"name": "longhorns", "generateName": None}))
    made = canary()
    del made["metadata"]["ownerReferences"]  # of nobody who exists
    name = ours.create(OUR_PODS, made)["metadata"]["name"]
    with pytest.raises(ApiError, match=REFUSED):
        ours.delete(f"{OUR_PODS}/longhorns", gracePeriodSeconds=0)
    ours.delete(f"{OUR_PODS}/{name}", gracePeriodSeconds=0)
    stage.api.delete(f"{OUR_PODS}/longhorns", gracePeriodSeconds=0)
