"""The policy beside the right to patch pods: of that right only the annotation of the wake-up is left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from controller.model.names import WAKE_ANNOTATION
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiClient, ApiError, Object
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.e2e.view import poll
from tests.longhorn.install import ensure

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MANIFEST = REPOSITORY / "docs" / "examples" / "wake-annotation.yaml"
WAIT_SECONDS = 30.0
REFUSED = "Longhorn scheduler extender may"


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Iterator[ApiClient]:
    """The API server as our ServiceAccount sees it, once the policy is at work."""
    api = cluster.api()
    if api.get_or_none(f"/api/v1/namespaces/{NAMESPACE}") is None:
        cluster.create_namespace(NAMESPACE)
    ensure(api, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": SERVICE}})
    done = cluster.kubectl("apply", "-f", "-", input=MANIFEST.read_text())
    assert done.returncode == 0, done.stderr
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, cluster.state_dir / "wake.kubeconfig")
    client = ApiClient.from_kubeconfig(kubeconfig)
    api.create("/api/v1/namespaces/default/pods", workloads.pod("policy-probe"))

    values = itertools.count()

    def is_at_work() -> bool:
        return REFUSED in refusal(client, "default/policy-probe", {"metadata": {"labels": {"a": f"{next(values)}"}}})

    poll(is_at_work, "policy that is at work", WAIT_SECONDS)
    yield client
    cluster.kubectl("delete", "-f", "-", input=MANIFEST.read_text())


def refusal(client: ApiClient, pod: str, patch: Object | list[Object]) -> str:
    """Why it is not taken, "" when it is."""
    namespace, _, name = pod.partition("/")
    try:
        client.patch(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            patch,
            type="json" if isinstance(patch, list) else "strategic",
        )
    except ApiError as error:
        return str(error)
    return ""


@pytest.fixture
def pod(cluster: Cluster, make_namespace: Any) -> str:
    namespace = make_namespace("wake")
    made = workloads.pod("p", labels={"app": "x"})
    made["metadata"]["annotations"] = {"theirs": "1"}
    made["metadata"]["finalizers"] = ["example.org/keep"]
    cluster.api().create(f"/api/v1/namespaces/{namespace}/pods", made)
    return f"{namespace}/p"


@pytest.fixture(autouse=True)
def _let_go(cluster: Cluster, pod: str) -> Iterator[None]:
    yield
    namespace, _, name = pod.partition("/")
    cluster.api().patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"finalizers": None}})


def test_the_annotation_of_the_wake_up_can_be_set_and_set_again(ours: ApiClient, pod: str) -> None:
    for value in ("1", "2"):
        assert "" == refusal(ours, pod, {"metadata": {"annotations": {WAKE_ANNOTATION: value}}})


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"annotations": {"theirs": "2"}}},
        {"metadata": {"annotations": {"theirs": None}}},
        {"metadata": {"annotations": {"new": "1", WAKE_ANNOTATION: "1"}}},
        {"metadata": {"labels": {"app": "y"}}},
        {"metadata": {"labels": {"app": None}}},
        {"metadata": {"labels": {"new": "z"}}},
        {"metadata": {"finalizers": ["example.org/more"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/keep"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]}},
        {"spec": {"containers": [{"name": "main", "image": "example.org/evil"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    ],
)
def test_nothing_else_of_a_pod_can_be_changed(ours: ApiClient, pod: str, patch: Object | list[Object]) -> None:
    """Of what Kubernetes itself lets be changed."""
    assert REFUSED in refusal(ours, pod, patch)


def test_others_are_not_held_back(cluster: Cluster, ours: ApiClient, pod: str) -> None:
    assert "" == refusal(cluster.api(), pod, {"metadata": {"labels": {"app": "y"}}})
