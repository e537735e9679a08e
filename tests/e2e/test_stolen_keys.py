"""What somebody can do who has a token of our account: no more than we do ourselves.

The manifests are the shipped ones. Admission policies leave of each right only what the product needs it for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from controller.canary.pod import CONTAINER_SECURITY, POD_SECURITY, canary_body
from controller.model.names import CANARY_LABEL, WAKE_ANNOTATION, WAKE_CONDITION
from controller.placement.plan_entries import SHARDS
from controller.workers.waker import condition_patch
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiClient, ApiError, Object
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.harness import install_product
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.e2e.webhooks import OURS, SLICES, WEBHOOK_SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WAKE = REPOSITORY / "docs" / "examples" / "wake-annotation.yaml"
NETWORK_POLICIES = WAKE.with_name("network-policies.yaml")
SECURITY = REPOSITORY / "docs" / "security.md"
OUR_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
REFUSED = "Longhorn scheduler extender may"
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Iterator[ApiClient]:
    """The API server as our ServiceAccount sees it, once the policies are at work."""
    api = cluster.api()
    install_product(cluster)
    done = cluster.kubectl("apply", "-f", str(WAKE))
    assert done.returncode == 0, done.stderr
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, cluster.state_dir / "policies.kubeconfig")
    client = ApiClient.from_kubeconfig(kubeconfig)
    api.create("/api/v1/namespaces/default/pods", workloads.pod("policy-probe", opted_in=False))
    values = itertools.count()

    def are_at_work() -> bool:
        change = {"metadata": {"labels": {"a": f"{next(values)}"}}}
        return all(
            REFUSED in said
            for said in (
                tried(client, workloads.pod("stranger")),
                refusal(client, "default/policy-probe", change),
                refusal(client, "default/policy-probe", change, "status"),
                refused_to_create(client, SECRETS, {"metadata": {"name": "stranger"}}, dryRun="All"),
            )
        )

    wait_until(are_at_work, "policies that are at work", WAIT_SECONDS)
    yield client
    api.delete("/api/v1/namespaces/default/pods/policy-probe", gracePeriodSeconds=0)
    cluster.kubectl("delete", "-f", str(WAKE))


def test_the_api_server_finds_nothing_wrong_with_the_policies(cluster: Cluster, ours: ApiClient) -> None:
    """It checks expressions by the kinds of objects that they are about."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checks() -> list[Object]:
        found = [policy.get("status") or {} for policy in cluster.api().list(path)["items"]]
        return found if all("observedGeneration" in status for status in found) else []

    wait_until(lambda: bool(checks()), "policies that were checked", WAIT_SECONDS)
    warnings = [(status.get("typeChecking") or {}).get("expressionWarnings") for status in checks()]
    assert [] == [warning for warning in warnings if warning]


# Pods in Longhorn's namespace


def tried(client: ApiClient, pod: Object) -> str:
    """Why it may not be created, "" when it may; then it is deleted again. A dry run may create any."""
    said = refused_to_create(client, OUR_PODS, pod)
    if not said:
        with suppress(ApiError):  # its owner does not exist, so it may be gone
            client.delete(f"{OUR_PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    return said


def refused_to_create(client: ApiClient, path: str, obj: Object, **params: str) -> str:
    try:
        client.create(path, obj, **params)
    except ApiError as error:
        return str(error)
    return ""


def canary(metadata: Object | None = None, **spec: Any) -> Object:
    owner = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "l", "uid": "u"}
    made = canary_body("default-scheduler", NAMESPACE, owner)
    return {**made, "metadata": {**made["metadata"], **(metadata or {})}, "spec": {**made["spec"], **spec}}


def changed_container(**fields: Any) -> list[Object]:
    (container,) = canary()["spec"]["containers"]
    return [{**container, **fields}]


def added_capability() -> Object:
    (container,) = changed_container()
    return {**container["securityContext"], "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}


def test_the_canary_may_be_created_beside_what_the_api_servers_plugins_add(cluster: Cluster, ours: ApiClient) -> None:
    assert "" == tried(ours, canary())
    (container,) = changed_container()
    requests = {key: {**amounts, "cpu": "1"} for key, amounts in container["resources"].items()}
    annotations = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu limit"}
    limited = canary({"annotations": annotations}, containers=changed_container(resources=requests))
    limited["spec"] |= {"imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"a": "b"}}
    assert "" == tried(ours, limited)
    # What OpenShift's restricted-v2 makes of it.
    names = ("openshift.io/scc", "security.openshift.io/validated-scc-subject-type")
    level, user = {"seLinuxOptions": {"level": "s0:c28,c2"}}, 1000770000
    constrained = canary({"annotations": dict.fromkeys(names, "restricted-v2")})
    constrained["spec"]["securityContext"] = {**POD_SECURITY, **level, "fsGroup": user}
    constrained["spec"]["containers"] = changed_container(
        securityContext={**CONTAINER_SECURITY, **level, "runAsNonRoot": True, "runAsUser": user}
    )
    assert "" == tried(ours, constrained)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": changed_container(image="example.org/evil")},
        {"containers": changed_container(imagePullPolicy="Always")},
        {"containers": changed_container(securityContext={"privileged": True})},
        {"containers": changed_container(securityContext=added_capability())},
        {"containers": changed_container(ports=[{"containerPort": 80, "hostPort": 80}])},
        {"containers": changed_container(envFrom=[{"secretRef": {"name": "theirs"}}])},
        {"containers": changed_container(resources={})},
        {"containers": changed_container(terminationMessagePath="/var/run/theirs")},
        {"containers": changed_container(terminationMessagePolicy="FallbackToLogsOnError")},
        {"containers": [*changed_container(), *changed_container(name="more")]},
        {"initContainers": changed_container(name="init")},
        {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
        {"nodeName": "n1"},
        {"terminationGracePeriodSeconds": 10**9},
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"serviceAccountName": WEBHOOK_SERVICE},
        {"automountServiceAccountToken": True},
        {"priorityClassName": "system-node-critical"},
        {"securityContext": {"runAsUser": 0}},
        {"securityContext": {**POD_SECURITY, "runAsUser": 0}},
        {"securityContext": {**POD_SECURITY, "runAsNonRoot": False}},
        {"securityContext": {**POD_SECURITY, "seccompProfile": {"type": "Unconfined"}}},
        {"securityContext": {**POD_SECURITY, "seLinuxOptions": {"type": "spc_t"}}},
        {"securityContext": {**POD_SECURITY, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}},
        {"containers": changed_container(securityContext={**CONTAINER_SECURITY, "runAsUser": 0})},
        {
            "containers": changed_container(
                securityContext={**CONTAINER_SECURITY, "seccompProfile": {"type": "Unconfined"}}
            )
        },
        {"metadata": {"labels": {CANARY_LABEL: "true", "app.kubernetes.io/name": WEBHOOK_SERVICE}}},
        {"metadata": {"annotations": {"example.org/inject": "true"}}},
        {"metadata": {"finalizers": ["example.org/keep"]}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_nothing_but_the_canary_may_be_created(ours: ApiClient, spec: Object) -> None:
    assert REFUSED in tried(ours, canary(**spec))


def test_no_pod_but_the_canary_may_be_deleted(cluster: Cluster, ours: ApiClient) -> None:
    cluster.api().create(OUR_PODS, workloads.pod("longhorns"))
    made = canary()
    del made["metadata"]["ownerReferences"]  # of nobody who exists
    name = ours.create(OUR_PODS, made)["metadata"]["name"]
    with pytest.raises(ApiError, match=REFUSED):
        ours.delete(f"{OUR_PODS}/longhorns", gracePeriodSeconds=0)
    ours.delete(f"{OUR_PODS}/{name}", gracePeriodSeconds=0)
    cluster.api().delete(f"{OUR_PODS}/longhorns", gracePeriodSeconds=0)


# Anybody's pods, for the annotation of the wake-up


def refusal(client: ApiClient, pod: str, patch: Object | list[Object], subresource: str = "") -> str:
    """Why it is not taken, "" when it is."""
    namespace, _, name = pod.partition("/")
    try:
        client.patch(
            f"/api/v1/namespaces/{namespace}/pods/{name}/{subresource}".rstrip("/"),
            patch,
            type="json" if isinstance(patch, list) else "strategic",
        )
    except ApiError as error:
        return str(error)
    return ""


@pytest.fixture
def pod(cluster: Cluster, make_namespace: Any) -> Iterator[str]:
    path = f"/api/v1/namespaces/{make_namespace('wake')}/pods"
    made = workloads.pod("p", labels={"app": "x"})
    made["metadata"] |= {"annotations": {"theirs": "1"}, "finalizers": ["example.org/keep"]}
    cluster.api().create(path, made)
    yield f"{path.split('/')[4]}/p"
    cluster.api().patch(f"{path}/p", {"metadata": {"finalizers": None}})


def test_the_annotation_of_the_wake_up_can_be_set_and_set_again(ours: ApiClient, pod: str) -> None:
    for value in ("1", "2"):
        assert "" == refusal(ours, pod, {"metadata": {"annotations": {WAKE_ANNOTATION: value}}})


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"annotations": {"theirs": "2"}}},
        {"metadata": {"annotations": {"theirs": None}}},
        {"metadata": {"annotations": {"new": "1", WAKE_ANNOTATION: "1"}}},
        {"metadata": {"annotations": {WAKE_ANNOTATION: 257 * "1"}}},
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


# Anybody's pods, for the condition of the wake-up


def test_the_condition_of_the_wake_up_can_be_set_and_set_again(ours: ApiClient, pod: str) -> None:
    for wakes in (1, 2):
        assert "" == refusal(ours, pod, condition_patch(wakes, "2026-01-01T00:00:00Z"), "status")


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"phase": "Failed"}},
        {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}},
        {"status": {"nominatedNodeName": "n1"}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": {"conditions": [{"type": WAKE_CONDITION, "status": "True", "message": 257 * "x"}]}},
        {"status": {"conditions": [{"type": WAKE_CONDITION, "status": "True", "reason": 257 * "x"}]}},
        {"status": {"phase": "Failed", **condition_patch(9, "2026-01-01T00:00:00Z")["status"]}},
        {"metadata": {"labels": {"app": "y"}}},
        {"metadata": {"annotations": {WAKE_ANNOTATION: "1"}}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/keep"]}},
    ],
)
def test_nothing_else_of_a_pods_status_can_be_changed(ours: ApiClient, pod: str, patch: Object | list[Object]) -> None:
    assert REFUSED in refusal(ours, pod, patch, "status")


def test_conditions_of_others_are_not_removed(cluster: Cluster, ours: ApiClient, pod: str) -> None:
    theirs = {"type": "example.org/theirs", "status": "True"}
    assert "" == refusal(cluster.api(), pod, {"status": {"conditions": [theirs]}}, "status")
    assert REFUSED in refusal(ours, pod, [{"op": "remove", "path": "/status/conditions"}], "status")


# Objects of Longhorn's namespace


def secret(name: str, kind: str, **annotations: str) -> Object:
    marks = {f"kubernetes.io/{key}": value for key, value in annotations.items()}
    return {"metadata": {"name": name, "annotations": marks}, "type": kind}


def test_no_account_gives_its_token_away(ours: ApiClient) -> None:
    """By a Secret under a name that we may read and that nobody has taken."""
    name = "longhorn-scheduler-extender-ca"
    made = secret(name, "kubernetes.io/service-account-token", **{"service-account.name": "default"})
    assert REFUSED in refused_to_create(ours, SECRETS, made)
    assert REFUSED in refused_to_create(ours, SECRETS, secret("anybodys", "Opaque"))
    assert "" == refused_to_create(ours, SECRETS, secret(name, "Opaque"), dryRun="All")


def test_no_service_but_ours_is_pointed_anywhere(cluster: Cluster, ours: ApiClient) -> None:
    def sliced(name: str, service: str) -> Object:
        return workloads.endpoint_slice(name, service, "10.0.0.9", 9500)

    assert REFUSED in refused_to_create(ours, SLICES, sliced("stranger", "longhorn-backend"))
    assert REFUSED in refused_to_create(ours, SLICES, sliced("longhorn-replica-scheduler", "longhorn-backend"))
    own = sliced("longhorn-replica-scheduler", "longhorn-replica-scheduler")
    made = ours.create(SLICES, own)
    made["metadata"]["labels"]["kubernetes.io/service-name"] = "longhorn-backend"
    with pytest.raises(ApiError, match=REFUSED):
        ours.replace(f"{SLICES}/longhorn-replica-scheduler", made)
    ours.delete(f"{SLICES}/longhorn-replica-scheduler")


def test_no_lease_but_ours_is_taken(ours: ApiClient) -> None:
    theirs = {"metadata": {"name": "driver-longhorn-io"}, "spec": {"holderIdentity": "x"}}
    assert REFUSED in refused_to_create(ours, LEASES, theirs)


@pytest.mark.parametrize("path", OURS)
def test_no_webhook_configuration_is_made_or_deleted(ours: ApiClient, path: str) -> None:
    collection = path.rpartition("/")[0]
    assert "cannot create resource" in refused_to_create(ours, collection, {"metadata": {"name": "strangers"}})
    with pytest.raises(ApiError, match="cannot delete resource"):
        ours.delete(path)
    ours.replace(path, ours.get(path))


# What is left, as the documents tell it


def rights(cluster: Cluster, account: str, namespace: str) -> set[str]:
    """A line each, as `kubectl auth can-i --list` prints them."""
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    as_group = [f"--as-group={group}" for group in groups]
    done = cluster.kubectl("auth", "can-i", "--list", "--as", user, *as_group, "-n", namespace)
    assert 0 == done.returncode, done.stderr
    return {one_line(line) for line in done.stdout.splitlines()[1:]}


def one_line(text: str) -> str:
    """With its verbs in order: which of several Roles is listed first is up to the API server."""
    what, _, verbs = " ".join(text.split()).rpartition("[")
    return f"{what}[{' '.join(sorted(verbs.rstrip(']').split()))}]"


def documented(account: str, namespace: str) -> set[str]:
    """The same lines as docs/security.md has them, where one may stand for several resources and names."""
    block = SECURITY.read_text().partition(f"<!-- {account} in {namespace} -->\n```text\n")[2].partition("```")[0]
    found = set()
    for line in block.splitlines():
        verbs, resources, *named = line.split()
        spelled = verbs.replace("read", "get list watch").replace("follow", "list watch").replace(",", " ")
        names = named[0].split(",") if named else [""]
        plans = [f"{name.removesuffix('N')}{shard}" for name in names if name.endswith("-N") for shard in range(SHARDS)]
        for resource, name in itertools.product(resources.split(","), plans or names):
            found.add(one_line(f"{resource} [] [{name}] [{spelled}]"))
    return found


@pytest.fixture(scope="module")
def documented_site(cluster: Cluster, ours: ApiClient) -> Cluster:
    """Without what users add for the annotation of the wake-up."""
    cluster.kubectl("delete", "-f", str(WAKE), "--ignore-not-found")
    return cluster


@pytest.mark.parametrize("account", [SERVICE, WEBHOOK_SERVICE])
@pytest.mark.parametrize(
    "namespace", [NAMESPACE, *(pytest.param(name, marks=pytest.mark.long) for name in ("any", "kube-system"))]
)
def test_the_documents_list_every_right_of_a_stolen_token(
    documented_site: Cluster, account: str, namespace: str
) -> None:
    """Those of any namespace that not every account has, and what is added or wider in others."""
    found = rights(documented_site, account, namespace) - rights(documented_site, "default", namespace)
    if namespace != "any":
        found -= rights(documented_site, account, "any")
    assert found == documented(account, namespace)


def test_network_policies_are_taken_once_the_control_planes_addresses_are_filled_in(cluster: Cluster) -> None:
    text = NETWORK_POLICIES.read_text()
    left = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert 0 != left.returncode
    for name in (SERVICE, WEBHOOK_SERVICE):
        assert f'NetworkPolicy.networking.k8s.io "{name}" is invalid' in left.stderr
    filled = text.replace("CONTROL_PLANE_CIDR", "10.0.0.0/28")
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=filled)
    assert (0, "") == (done.returncode, done.stderr)
