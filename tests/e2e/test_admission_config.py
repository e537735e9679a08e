"""Which requests leave a real API server by the entries that the leader writes, and which never do.

A server of the test's own stands where the webhook stands, behind its Service, and keeps every review that arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.admission import configurations as rules
from tests.cluster.client import ApiClient, ApiError, Object
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, GIB, install_product
from tests.e2e.neighbours import Neighbour, reviewing
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.webhooks import CONTAINER_PORT, OURS, SLICES, WEBHOOK_SERVICE, server_context, write_certificates
from tests.longhorn import crds
from tests.longhorn.install import ensure
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VOLUMES = f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/volumes"
POD_IP = "10.247.0.1"
MARK = "scheduling.longhorn.io/opt-in"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
WAIT_SECONDS = 30.0
PODS, SHARE_MANAGERS, CLAIMS, GROWN_VOLUMES = (
    "/mutate-pods",
    "/mutate-share-managers",
    "/validate-pvcs",
    "/validate-volumes",
)


class Desk:
    """Keeps every review, and allows it; unless it is told to, it is there."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.api = cluster, cluster.api()
        self._lock = threading.Lock()
        self._reviews: list[tuple[str, Object]] = []
        self._is_there = True
        self.bundle = write_certificates(folder)
        self._server = Neighbour(reviewing(self._answer), server_context(folder))
        install_product(cluster)
        for definition in crds.definitions():
            ensure(self.api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        wait_until(lambda: served(self.api, VOLUMES), "served volumes", WAIT_SECONDS)
        for name, driver in (("lh", workloads.DRIVER), ("nfs", "nfs.example.org")):
            ensure(self.api, CLASSES, {**workloads.storage_class(name), "provisioner": driver})
        self.cluster.services.map_pod(POD_IP, CONTAINER_PORT, self._server.port)

    def open(self) -> None:
        self._is_there = True
        ensure(self.api, SLICES, workloads.endpoint_slice("desk", WEBHOOK_SERVICE, POD_IP, CONTAINER_PORT, "https"))

    def leave(self) -> None:
        """No pod of the webhook is there any more; connections that are open end at their next request."""
        self._is_there = False
        self.api.delete(f"{SLICES}/desk")
        wait_until(
            lambda: not self.cluster.services.endpoints(NAMESPACE, WEBHOOK_SERVICE, 443),
            "Service without an endpoint",
            WAIT_SECONDS,
        )

    def configure(self, wanted: rules.WantedEntries) -> None:
        """Write the entries as the leader does, and wait until the API server goes by them."""
        place = rules.WebhookPlace(NAMESPACE, WEBHOOK_SERVICE, ("kube-system", "edge"))
        for path, entries in ((OURS[0], rules.mutating(wanted, place)), (OURS[1], rules.validating(wanted, place))):
            webhooks = rules.with_authorities(entries, self.bundle, ())
            collection, _, name = path.rpartition("/")
            found = self.api.get_or_none(path)
            body = {"metadata": found["metadata"] if found else {"name": name}, "webhooks": webhooks}
            stands = self.api.replace(path, body) if found else self.api.create(collection, body)
            assert webhooks == stands.get("webhooks", [])  # nothing is filled in, or changed

    def close(self) -> None:
        for path in OURS:
            if self.api.get_or_none(path) is not None:
                self.api.delete(path)
        self.api.delete(VOLUMES)  # whatever stands in for Longhorn next would take them for its own
        self._server.close()

    def _answer(self, path: str, request: Object) -> Object | None:
        if not self._is_there:
            return None
        with self._lock:
            self._reviews.append((path, request))
        return {"allowed": True}

    def take(self, *names: str) -> list[tuple[str, Object]]:
        """Reviews about objects of these names that came since the last call; the API server asks before it answers."""
        with self._lock:
            taken, self._reviews = self._reviews, []
        return [(path, request) for path, request in taken if not names or _name(request) in names]

    def patch(self, path: str, body: Object, **params: Any) -> None:
        """Patch, and wait until the watch cache shows it: an update is reviewed with the old object from there first.

        Where the cache is late, the API server reviews once more with what etcd has (GuaranteedUpdate in the upstream
        store.go), so that a shrinking object may leave it as one that grows from a size of before.
        """
        patched = self.api.patch(path, body, **params)
        if not params:
            wait_until(lambda: self._cached(path) >= _version(patched), "watch cache with the patch", WAIT_SECONDS)

    def _cached(self, path: str) -> int:
        found = self.api.get_or_none(path, resourceVersion="0")
        return _version(found) if found else 0

    def paths(self) -> list[str]:
        return [path for path, _ in self.take()]


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _name(request: Object) -> str:
    return str(request.get("name") or (request.get("object") or {}).get("metadata", {}).get("name", ""))


def volume(name: str, gib: int) -> Object:
    size = {"size": str(gib * GIB)}
    return {"apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": {"name": name}, "spec": size}


def served(api: ApiClient, path: str) -> bool:
    try:
        api.list(path, limit=1)
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True


@pytest.fixture(scope="module")
def desk(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(cluster, tmp_path_factory.mktemp("desk"))
    yield made
    made.close()


@pytest.fixture
def asked(desk: Desk) -> Desk:
    """All entries are there, and the desk is."""
    desk.open()
    desk.configure(rules.WantedEntries(("default-scheduler", "second"), share_managers=True, expansion="allow"))
    ensure(desk.api, VOLUMES, volume("probe", 1))
    size = iter(range(2, 10_000))

    def goes_by_them() -> bool:
        pod = workloads.pod("probe", "c", opted_in=False)
        desk.api.create("/api/v1/namespaces/default/pods", pod, dryRun="All")
        desk.api.patch(f"{VOLUMES}/probe", {"spec": {"size": str(next(size) * GIB)}}, dryRun="All")
        return {PODS, GROWN_VOLUMES} <= set(desk.paths())

    wait_until(goes_by_them, "API server that asks", WAIT_SECONDS)
    return desk


# -- pods --------------------------------------------------------------------------------------------------------------

CLAIM_VOLUME = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
EPHEMERAL = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


def pod(*, volumes: Sequence[Object] = CLAIM_VOLUME, metadata: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "main", "image": "example.org/nothing"}]
    return {
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"containers": containers, "volumes": list(volumes), **spec},
    }


@pytest.mark.parametrize(
    ("made", "paths"),
    [
        (pod(), [PODS]),
        (pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": EPHEMERAL}}]), [PODS]),
        (pod(volumes=[{"name": "e", "emptyDir": {}}, *CLAIM_VOLUME]), [PODS]),
        (pod(volumes=[{"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]), []),
        (pod(volumes=[]), []),
        (pod(nodeName="n1"), []),
        (pod(schedulerName="second"), [PODS]),
        (pod(schedulerName="third"), []),
        (pod(metadata={"labels": {MARK: "false"}}), []),
        (pod(metadata={"annotations": {MARK: "False"}}), []),
        (pod(metadata={"annotations": {MARK: "true"}, "labels": {MARK: "false"}}), [PODS]),
        (pod(metadata={"annotations": {"other": "x"}, "labels": {"other": "y"}}), [PODS]),
        (pod(metadata={"labels": {"longhorn.io/component": "share-manager"}}), [PODS]),
        (pod(volumes=[], metadata={"labels": {"longhorn.io/component": "share-manager"}}), []),
    ],
)
def test_only_pods_that_may_opt_in_leave_the_api_server(
    asked: Desk, make_namespace: Any, made: Object, paths: list[str]
) -> None:
    namespace = make_namespace()
    asked.take()
    asked.api.create(f"/api/v1/namespaces/{namespace}/pods", made, dryRun="All")
    assert [(path, True) for path in paths] == [(path, request["dryRun"]) for path, request in asked.take()]
    asked.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
    asked.api.patch(f"/api/v1/namespaces/{namespace}/pods/p", {"metadata": {"labels": {"changed": "later"}}})
    assert [(path, False) for path in paths] == [(path, bool(request["dryRun"])) for path, request in asked.take()]


@pytest.mark.parametrize(
    ("namespace", "made", "paths"),
    [
        ("kube-system", pod(), []),
        ("edge", pod(metadata={"labels": {MARK: "true"}}), []),
        (NAMESPACE, pod(), []),
        (NAMESPACE, pod(volumes=[], metadata={"labels": {"longhorn.io/component": "share-manager"}}), [SHARE_MANAGERS]),
        (
            NAMESPACE,
            pod(volumes=[], nodeName="n1", metadata={"labels": {"longhorn.io/component": "share-manager"}}),
            [],
        ),
        ("opted-out", pod(), []),
        ("opted-out", pod(metadata={"labels": {MARK: "false"}}), []),
        ("opted-out", pod(metadata={"labels": {MARK: "true"}}), [PODS]),
        ("opted-out", pod(metadata={"annotations": {MARK: "True"}}), [PODS]),
    ],
)
def test_whole_namespaces_are_left_alone(asked: Desk, namespace: str, made: Object, paths: list[str]) -> None:
    labels = {MARK: "false"} if namespace == "opted-out" else {}
    ensure(asked.api, "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: asked.api.get_or_none(account) is not None, f"account of {namespace}", WAIT_SECONDS)
    asked.take()
    asked.api.create(f"/api/v1/namespaces/{namespace}/pods", made, dryRun="All")
    assert paths == asked.paths()


# -- growth ------------------------------------------------------------------------------------------------------------


class Bound:
    """A claim bound to a volume made by hand, of 1 GiB."""

    def __init__(self, desk: Desk, namespace: str, class_name: str, annotations: Object | None = None) -> None:
        self._desk, self.path = desk, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/c"
        volume = f"pv-{namespace}"
        claim = workloads.claim("c", class_name, 1)
        claim["spec"]["volumeName"] = volume
        claim["metadata"]["annotations"] = annotations or {}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "claimRef": {"namespace": namespace, "name": "c"},
            "csi": {"driver": "any.example.org", "volumeHandle": volume},
        }
        desk.api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
        desk.api.create(self.path.rpartition("/")[0], claim)
        wait_until(lambda: desk.api.get(self.path)["status"].get("phase") == "Bound", "bound claim", WAIT_SECONDS)
        desk.take()

    def resize(self, size: str, **params: Any) -> list[tuple[str, Object]]:
        """The reviews of this claim that it causes."""
        self._desk.patch(self.path, {"spec": {"resources": {"requests": {"storage": size}}}}, **params)
        return self._desk.take("c")


@pytest.mark.parametrize("annotations", [{}, {PROVISIONER: "driver.longhorn.io"}, {PROVISIONER: "nfs.example.org"}])
@pytest.mark.parametrize("class_name", ["lh", "nfs"])
def test_growth_of_every_bound_claim_leaves_the_api_server(
    asked: Desk, make_namespace: Any, class_name: str, annotations: Object
) -> None:
    claim = Bound(asked, make_namespace(), class_name, annotations)
    assert [CLAIMS] == [path for path, _ in claim.resize("2Gi")]


def test_nothing_but_growth_of_a_claim_leaves_the_api_server(asked: Desk, make_namespace: Any) -> None:
    claim = Bound(asked, make_namespace(), "lh")
    asked.api.patch(claim.path, {"metadata": {"labels": {"a": "b"}}})
    assert [] == asked.take("c")
    assert [] == claim.resize("1024Mi")
    assert [(CLAIMS, True)] == [(path, request["dryRun"]) for path, request in claim.resize("3Gi", dryRun="All")]
    assert [CLAIMS] == [path for path, _ in claim.resize("3Gi")]
    assert [] == claim.resize("2Gi")  # back, but above its capacity
    assert [CLAIMS] == [path for path, _ in claim.resize("2560Mi")]


def test_growth_of_an_unbound_claim_is_refused_without_us(asked: Desk, make_namespace: Any) -> None:
    path = f"/api/v1/namespaces/{make_namespace()}/persistentvolumeclaims"
    asked.api.create(path, workloads.claim("c", "lh", 1))
    with pytest.raises(ApiError, match="spec: Forbidden"):
        asked.api.patch(f"{path}/c", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    assert [] == asked.take("c")


def test_nothing_but_growth_of_a_volume_leaves_the_api_server(asked: Desk, make_namespace: Any) -> None:
    other = f"/apis/longhorn.io/v1beta2/namespaces/{make_namespace()}/volumes"
    for collection in (VOLUMES, other):
        ensure(asked.api, collection, volume("v", 9))
        asked.patch(f"{collection}/v", {"metadata": {"labels": {"seen": "yes"}}})

    def change(spec: Object, collection: str = VOLUMES) -> list[str]:
        asked.take()
        asked.patch(f"{collection}/v", {"spec": spec})
        return [path for path, _ in asked.take("v")]

    assert [GROWN_VOLUMES] == change({"size": str(10 * GIB)})
    assert [] == change({"size": str(10 * GIB)})
    assert [] == change({"numberOfReplicas": 2})
    assert [] == change({"size": str(9 * GIB)})
    assert [] == change({"size": str(11 * GIB)}, other)


# -- without us --------------------------------------------------------------------------------------------------------


def test_without_any_webhook_pod_the_policy_decides_on_growth(asked: Desk, make_namespace: Any) -> None:
    claim = Bound(asked, make_namespace(), "lh")
    asked.leave()
    assert [] == claim.resize("2Gi")

    asked.configure(rules.WantedEntries(("default-scheduler",), expansion="deny"))

    def is_refused() -> bool:
        try:
            claim.resize("3Gi", dryRun="All")
        except ApiError as error:
            return "failed calling webhook" in str(error)
        return False

    wait_until(is_refused, "refused growth", WAIT_SECONDS)
    claim.resize("1536Mi")
    asked.api.patch(claim.path, {"metadata": {"labels": {"a": "b"}}})
    asked.api.create(claim.path.replace("persistentvolumeclaims/c", "pods"), pod())
