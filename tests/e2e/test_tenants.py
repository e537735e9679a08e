"""What somebody with the ClusterRole `edit` in his own namespace cannot do to others, on a real control plane.

He writes what kube-scheduler writes, asks for what no disk can hold, and has pods wait that can never run; the pods of
somebody else are placed all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cluster.client import ApiClient, ApiError, Object
from tests.e2e import workloads
from tests.e2e.again import Again
from tests.e2e.gate import Gate
from tests.e2e.harness import Cell, Scene
from tests.e2e.history_facts import SELECTED_NODE
from tests.e2e.placed import add_class_of_now
from tests.e2e.view import CLAIMS, LONGHORN_REPLICAS, PODS
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GIB = 400  # of the one disk of each node
WAIT_SECONDS, PUT_OFF_SECONDS = 60.0, 70.0
STARVATION_SECONDS, KEPT_AFTER_SECONDS = 2, 6.0
FRESH_SECONDS, FRESH_PODS = 0.25, 3
CHANGE_SECONDS, CHANGES = 1 / 15, 45
MANY_CLAIMS, MANY_PODS = 250, 6  # of 1 GiB each
MANY_REFUSED = 300
FULL_PODS, SMALL_VALUES = 14, 300_000  # of each: 1.4 MiB that take a dozen times as much as Python's objects
MEMORY_LIMIT = 512  # MiB, as helm/longhorn-scheduler-extender/values.yaml says
NEXT_SECONDS = 30.0  # within which somebody else's pod is bound; what is promised to nobody must not keep it longer
PROVISIONERS = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")


PADDING = "example.org/padding"
RATHER_APART: Object = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "mine"}},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
}
MOST_ANNOTATIONS = 256 * 1024  # bytes of keys and values that the API server takes


class Tenant:
    """A ServiceAccount that may edit a namespace of its own, and what it does there."""

    def __init__(self, cell: Cell, gate: Gate) -> None:
        scene, self.cell, self.gate, self.namespace = cell.scene, cell, gate, f"{cell.name}-tenant"
        self.scene = scene
        scene.cluster.create_namespace(self.namespace)
        scene.api.create(f"/api/v1/namespaces/{self.namespace}/serviceaccounts", {"metadata": {"name": "tenant"}})
        scene.api.create(
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/rolebindings",
            {
                "metadata": {"name": "tenant"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": self.namespace}],
            },
        )
        file = scene.cluster.state_dir / f"{self.namespace}.kubeconfig"
        self._api = ApiClient.from_kubeconfig(scene.cluster.service_account_kubeconfig(self.namespace, "tenant", file))
        self.free = add_class_of_now(cell)
        wait_until(self._may_edit, "rights of an editor", WAIT_SECONDS)

    def _may_edit(self) -> bool:
        try:
            self._api.list(self.path("persistentvolumeclaims"))
        except ApiError as error:
            if error.forbidden:
                return False
            raise
        return True

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def claim(
        self, name: str, gib: int, *, node: str = "", class_name: str = "", source: str = "", padding: str = ""
    ) -> None:
        claim = workloads.claim(name, class_name or self.cell.class_name, gib)
        said = {SELECTED_NODE: node, PADDING: padding}
        claim["metadata"]["annotations"] = {key: value for key, value in said.items() if value}
        if source:
            claim["spec"]["dataSource"] = {"kind": "PersistentVolumeClaim", "name": source}
        self._api.create(self.path("persistentvolumeclaims"), claim)

    def placed_claim(self, name: str, gib: int) -> str:
        """The node where its volume lies."""
        self.claim(name, gib, class_name=self.free)
        return self.scene.view.wait_for(lambda: self._node_of(name), "placed volume of the tenant", WAIT_SECONDS)

    def _node_of(self, name: str) -> str:
        claim = self.scene.view.get(CLAIMS, f"{self.namespace}/{name}") or {}
        if (claim.get("status") or {}).get("phase") != "Bound":
            return ""
        replicas = self.scene.view.all(LONGHORN_REPLICAS)
        volume = claim["spec"]["volumeName"]
        return next((one["spec"].get("nodeID", "") for one in replicas if one["spec"]["volumeName"] == volume), "")

    def pod(self, name: str, *claims: str, **options: Any) -> None:
        self.create_pod(workloads.pod(name, *claims, selector=self.cell.selector, **options))

    def bound_pod(self, name: str, node: str, *claims: str) -> None:
        """A pod that names its node itself; no scheduler is asked about it."""
        self.create_pod(workloads.pod(name, *claims, opted_in=False, nodeName=node))

    def create_pod(self, pod: Object) -> None:
        self._api.create(self.path("pods"), pod)

    def remove_pod(self, name: str) -> None:
        self._api.delete(self.path("pods", name), gracePeriodSeconds=0)

    def nodes_of_pods(self) -> list[str]:
        """One entry for each pod, "" while it is not bound."""
        return [pod["spec"].get("nodeName", "") for pod in self.scene.view.all(PODS, self.namespace)]

    def wait_for_pods(self, number: int) -> set[str]:
        """The nodes where they are, once so many are bound."""
        wait_until(lambda: sum(map(bool, self.nodes_of_pods())) == number, f"{number} bound pods", WAIT_SECONDS)
        return set(self.nodes_of_pods())

    def change(self, name: str, size: str = "", annotations: Object | None = None, **query: Any) -> str:
        """Change a claim; "" or what the API server refuses it with."""
        patch: Object = {"metadata": {"annotations": annotations or {}}}
        if size:
            patch["spec"] = {"resources": {"requests": {"storage": size}}}
        try:
            self._api.patch(self.path("persistentvolumeclaims", name), patch, **query)
        except ApiError as error:
            if not error.forbidden:
                raise
            return error.message
        return ""

    def wait_told(self, reason: str, *words: str) -> None:
        def is_told() -> bool:
            texts = [event["message"] for event in self.scene.events(reason, self.namespace)]
            return any(all(word in text for word in words) for text in texts)

        wait_until(is_told, f"Event {reason} with {words}", WAIT_SECONDS)

    def least_wait(self, prefix: str) -> float:
        """Seconds since kube-scheduler said no to the latest of these pods; 0 while it has not to one of them."""
        pods = [pod for pod in self.scene.view.all(PODS, self.namespace) if pod["metadata"]["name"].startswith(prefix)]
        said = [
            datetime.fromisoformat(condition["lastTransitionTime"])
            for pod in pods
            for condition in (pod.get("status") or {}).get("conditions") or ()
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        return (datetime.now(UTC) - max(said)).total_seconds() if said and len(said) == len(pods) else 0.0

    def leave(self) -> None:
        api = self.scene.api
        api.delete(self.path("pods"), gracePeriodSeconds=0)
        api.delete(self.path("persistentvolumeclaims"))


def fresh_pods(tenant: Tenant, *claims: str) -> Again:
    """A new pod of the same claims every so often, in place of an older one, so that kube-scheduler asks about one
    without any back-off."""
    numbers = itertools.count()

    def renew() -> None:
        number = next(numbers)
        tenant.pod(f"fresh-{number}", *claims)
        if number >= FRESH_PODS:
            tenant.remove_pod(f"fresh-{number - FRESH_PODS}")

    return Again(renew, FRESH_SECONDS)


def changed_claims(tenant: Tenant, *claims: str) -> Again:
    """One after the other of the claims names another node."""
    numbers = itertools.count()

    def change() -> None:
        number = next(numbers)
        assert not tenant.change(claims[number % len(claims)], annotations={SELECTED_NODE: f"node-{number}"})

    return Again(change, CHANGE_SECONDS)


@pytest.fixture(scope="module")
def gate(shared_scene: Scene) -> Iterator[Gate]:
    found = Gate(shared_scene)
    yield found
    found.close()


@pytest.fixture
def tenant(scene: Scene, gate: Gate, make_cell: Callable[..., Cell]) -> Iterator[Tenant]:
    """Beside three nodes with a disk each, which he may use like everybody else."""
    gate.open()
    found = Tenant(make_cell(nodes=3, fillers=0), gate)
    yield found
    found.leave()
    scene.set_settings(starvation_after="300")


def assert_others_are_placed(tenant: Tenant, *sizes: int) -> None:
    """Pods of somebody else, with a volume of each of these sizes on a node of its own."""
    for number, gib in enumerate(sizes):
        tenant.cell.ask(f"p-{number}", gib=gib)
    tenant.cell.wait_bound(len(sizes), NEXT_SECONDS)


def test_claims_without_pods_are_promised_nothing_by_the_node_that_their_owner_writes(tenant: Tenant) -> None:
    for number, node in enumerate(tenant.cell.nodes):
        tenant.claim(f"grab-{number}", GIB, node=node, source="nothing")
    assert_others_are_placed(tenant, GIB, GIB, 1 + GIB // 2)


def test_pods_that_no_scheduler_asks_about_are_promised_nothing_by_the_node_that_their_owner_writes(
    tenant: Tenant,
) -> None:
    for number, node in enumerate(tenant.cell.nodes):
        tenant.claim(f"grab-{number}", GIB, node=node, source="nothing")
        tenant.pod(f"wait-{number}", f"grab-{number}", schedulerName="nobody")
    assert_others_are_placed(tenant, GIB, GIB, GIB)


def test_growth_is_reviewed_whatever_the_annotations_say(tenant: Tenant) -> None:
    node = tenant.placed_claim("mine", 1)
    foreign = dict.fromkeys(PROVISIONERS, "nfs.example.org")
    wait_until(lambda: "Try again" not in tenant.change("mine", "2Gi", dryRun="All"), "growth", PUT_OFF_SECONDS)

    assert "Longhorn cannot grow claim" in tenant.change("mine", "100Ti", foreign)
    assert not tenant.change("mine", annotations=foreign)
    assert "Longhorn cannot grow claim" in tenant.change("mine", "100Ti")
    assert node in tenant.cell.nodes
    assert_others_are_placed(tenant, GIB, GIB, GIB - 1)


@pytest.mark.long
def test_growth_that_no_disk_can_hold_takes_no_room_and_is_told(tenant: Tenant) -> None:
    tenant.placed_claim("mine", 1)
    tenant.gate.close()
    assert not tenant.change("mine", "900Gi")
    assert_others_are_placed(tenant, GIB, GIB, GIB - 1)
    tenant.wait_told("LonghornCannotGrow", "requests 900 GiB", "400 GiB", "Request less")


@pytest.mark.long
def test_pods_that_can_never_fit_keep_no_room_and_are_told(tenant: Tenant) -> None:
    tenant.scene.set_settings(starvation_after=str(STARVATION_SECONDS))
    waiting = tenant.cell.add_class("wait", locality="disabled")
    for number in range(4):
        tenant.claim(f"huge-{number}", GIB + 100, class_name=waiting)
        tenant.claim(f"small-{number}", GIB // 10)
        tenant.pod(f"never-{number}", f"huge-{number}", f"small-{number}")
    for number in range(4):
        tenant.wait_told(
            "LonghornNoRoom", f"huge-{number} requests 500 GiB, and the largest disk takes at most 400 GiB"
        )
    wait_until(lambda: tenant.least_wait("never-") > KEPT_AFTER_SECONDS, "time after which room is kept", WAIT_SECONDS)
    assert_others_are_placed(tenant, GIB, GIB, GIB)


@pytest.mark.long
def test_pods_that_name_their_own_nodes_have_one_volume_promised_once(tenant: Tenant) -> None:
    tenant.claim("mine", GIB)
    tenant.pod("real", "mine")
    (home,) = tenant.wait_for_pods(1)
    for number, node in enumerate(one for one in tenant.cell.nodes if one != home):
        tenant.bound_pod(f"ghost-{number}", node, "mine")
    tenant.wait_for_pods(3)
    assert_others_are_placed(tenant, GIB, GIB)


@pytest.mark.long
def test_pods_of_one_claim_are_placed_on_one_node(tenant: Tenant) -> None:
    tenant.claim("mine", GIB)
    for number in range(6):
        tenant.pod(f"p-{number}", "mine", labels={"app": "mine"}, affinity=RATHER_APART)
    assert len(tenant.wait_for_pods(6)) == 1
    assert_others_are_placed(tenant, GIB, GIB)


def test_pods_that_kube_scheduler_can_never_bind_keep_one_node(tenant: Tenant) -> None:
    """A claim's annotations leave no room for the selected node: each attempt to bind fails after our yes."""
    tenant.claim("key", 1, padding="x" * (MOST_ANNOTATIONS - len(PADDING) - 20))
    tenant.claim("mine", GIB - 1)
    with fresh_pods(tenant, "key", "mine") as pods:
        pods.wait_for_more(12)
        assert_others_are_placed(tenant, GIB, GIB)
    assert not any(tenant.nodes_of_pods())


def test_claims_that_pods_share_and_that_change_all_the_time_keep_nobody_waiting(tenant: Tenant) -> None:
    names = [f"mine-{number}" for number in range(MANY_CLAIMS)]
    for name in names:
        tenant.claim(name, 1, source="nothing")
    for number in range(MANY_PODS):
        tenant.pod(f"all-{number}", *names)
    with changed_claims(tenant, *names) as changes:
        changes.wait_for_more(CHANGES)
        assert_others_are_placed(tenant, *(GIB - MANY_CLAIMS - number for number in range(3)))
        changes.wait_for_more(CHANGES)
    assert not any(tenant.nodes_of_pods())


@pytest.mark.long
def test_pods_full_of_small_values_keep_no_leader_from_starting(tenant: Tenant) -> None:
    full = workloads.pod("full", opted_in=False, schedulerName="nobody")
    full["spec"]["containers"][0]["args"] = ["aa"] * SMALL_VALUES
    for number in range(FULL_PODS):
        full["metadata"]["name"] = f"full-{number}"
        tenant.create_pod(full)
    tenant.scene.stop_controllers()
    leader = tenant.scene.start_controller()
    assert leader.peak_mib() < MEMORY_LIMIT
    assert_others_are_placed(tenant, GIB)


@pytest.mark.long
def test_many_refused_pods_do_not_keep_others_from_being_told(tenant: Tenant) -> None:
    tenant.claim("huge", GIB + 100)
    refused = tenant.scene.controllers[-1].decisions("refused")
    for number in range(MANY_REFUSED):
        tenant.pod(f"p-{number}", "huge")
    tenant.scene.controllers[-1].wait_decisions("refused", refused + MANY_REFUSED)
    tenant.cell.ask("theirs", gib=GIB + 100)
    wait_until(lambda: tenant.cell.events("LonghornNoRoom"), "an Event of somebody else's", WAIT_SECONDS)
    assert len(tenant.scene.events("LonghornNoRoom", tenant.namespace)) < MANY_REFUSED
