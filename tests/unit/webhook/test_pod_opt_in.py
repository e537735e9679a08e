"""Which pods opt in, and what is added to them; patches are applied by an independent implementation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError
from controller.rules.opt_in import OptInPolicy
from tests.fakes.clock import VirtualClock
from webhook.pod_opt_in import OptIn, plan_opt_in
from webhook.stores import RequestLookup, WebhookStores

Raw = dict[str, Any]
RESOURCE = "longhorn.io/scheduler-extender"
MARK = "scheduling.longhorn.io/opt-in"
CO_SCHEDULE = "kubevirt-scheduler/co-schedule"
ASKED = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}


class Known(RequestLookup):
    """What the webhook knows, without any time to read what it does not: claims `ours` and `theirs`, of the classes
    `lh`, which is the default class, and `nfs`."""

    def __init__(self) -> None:
        self.stores = WebhookStores.empty()
        unused: Any = None
        super().__init__(self.stores, unused, VirtualClock(), 0.0)
        self.set_default("lh")
        self.add_claim("ours", storageClassName="lh")
        self.add_claim("theirs", storageClassName="nfs")

    def set_default(self, name: str) -> None:
        for known, provisioner in (("lh", "driver.longhorn.io"), ("nfs", "nfs.example")):
            self.add_class(known, provisioner, is_default=str(known == name).lower())

    def add_class(
        self, name: str, provisioner: str = "driver.longhorn.io", *, is_default: str = "false", **parameters: str
    ) -> None:
        meta = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}
        self.stores.classes.apply("ADDED", {"metadata": meta, "provisioner": provisioner, "parameters": parameters})

    def add_claim(self, name: str, **spec: Any) -> None:
        self.stores.claims.apply("ADDED", {"metadata": {"namespace": "ns", "name": name, "uid": "u"}, "spec": spec})

    def add_pv(self, name: str, driver: str) -> None:
        self.stores.pvs.apply("ADDED", {"metadata": {"name": name}, "spec": {"csi": {"driver": driver}}})

    def mark(self, value: str) -> None:
        self.stores.namespaces.apply("ADDED", {"metadata": {"name": "ns", "labels": {MARK: value}}})


def pod(*claims: str, volumes: list[Raw] | None = None, meta: Raw | None = None, **spec: Any) -> Raw:
    named = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {"generateName": "p-", **(meta or {})},
        "spec": {"containers": [{"name": "main"}], "volumes": [*named, *(volumes or [])], **spec},
    }


def ephemeral(**spec: Any) -> Raw:
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def plan(raw: Raw, found: Known | None = None, policy: OptInPolicy | None = None, namespace: str = "ns") -> OptIn:
    return plan_opt_in(raw, namespace, found or Known(), policy or OptInPolicy())


def patched(raw: Raw, opt_in: OptIn) -> Raw:
    before = deepcopy(raw)
    result: Raw = jsonpatch.apply_patch(raw, [operation.raw() for operation in opt_in.operations])
    assert before == raw
    return result


def opts_in(raw: Raw, found: Known | None = None, policy: OptInPolicy | None = None, namespace: str = "ns") -> bool:
    return bool(plan(raw, found, policy, namespace).operations)


# What is added


def test_one_container_asks_for_the_resource() -> None:
    raw = pod("ours", containers=[{"name": "a"}, {"name": "b"}])
    containers = patched(raw, plan(raw))["spec"]["containers"]
    assert [{"name": "a", "resources": ASKED}, {"name": "b"}] == containers


def test_a_container_that_has_limits_is_preferred() -> None:
    limits = {"limits": {"memory": "1Gi"}}
    raw = pod("ours", containers=[{"name": "a"}, {"name": "b", "resources": limits}])
    containers = patched(raw, plan(raw))["spec"]["containers"]
    assert {"name": "a"} == containers[0]
    assert {"limits": {"memory": "1Gi", RESOURCE: "1"}, "requests": {RESOURCE: "1"}} == containers[1]["resources"]


@pytest.mark.parametrize(
    "resources",
    [{}, None, {"limits": None}, {"requests": {}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, {"claims": []}],
)
def test_what_the_container_has_stays(resources: Raw | None) -> None:
    raw = pod("ours", containers=[{"name": "a", "resources": resources}])
    found = patched(raw, plan(raw))["spec"]["containers"][0]["resources"]
    for part in ("limits", "requests"):
        assert {**((resources or {}).get(part) or {}), RESOURCE: "1"} == found[part]
    assert (resources or {}).get("claims") == found.get("claims")


def test_a_second_review_adds_nothing() -> None:
    raw = pod("ours", initContainers=[{"name": "sidecar", "restartPolicy": "Always"}])
    once = patched(raw, plan(raw))
    assert OptIn(skipped="asks-already") == plan(once)
    once["spec"]["containers"].insert(0, {"name": "another webhook's"})
    assert not opts_in(once)


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_that_asks_by_itself_stays_as_it_is(kind: str, part: str) -> None:
    asking = {"name": "x", "resources": {part: {RESOURCE: "1"}}}
    raw = pod("ours")
    raw["spec"][kind] = [*raw["spec"].get(kind, []), asking]
    assert "asks-already" == plan(raw).skipped


# Which pods


def test_pods_without_claims_of_longhorns_are_left_alone() -> None:
    assert "no-claim" == plan(pod()).skipped
    assert "no-claim" == plan(pod(volumes=[{"name": "tmp", "emptyDir": {}}])).skipped
    assert "no-longhorn-claim" == plan(pod("theirs")).skipped
    assert opts_in(pod("theirs", "ours"))


def test_a_bound_claim_is_its_volumes_drivers() -> None:
    found = Known()
    found.add_pv("pv-1", "nfs.example")
    found.add_pv("pv-2", "driver.longhorn.io")
    found.add_pv("pv-3", "io.rancher.longhorn")
    for name, opted in (("pv-1", False), ("pv-2", True), ("pv-3", True), ("not-seen", True)):
        for class_name in ("lh", "nfs", "", "gone"):
            found.add_claim("c", storageClassName=class_name, volumeName=name)
            assert opted == opts_in(pod("c"), found), (name, class_name)


def test_what_is_not_known_yet_may_be_longhorns() -> None:
    found = Known()
    assert opts_in(pod("comes-later"), found)
    found.add_claim("c", storageClassName="comes-later")
    assert opts_in(pod("c"), found)
    found.add_claim("c", storageClassName="")  # waits for a volume made by hand
    assert opts_in(pod("c"), found)


def test_no_class_is_the_default_class() -> None:
    found = Known()
    found.add_claim("c")
    assert opts_in(pod("c"), found)
    found.set_default("nfs")
    assert not opts_in(pod("c"), found)
    found.set_default("none")
    assert opts_in(pod("c"), found)


@pytest.mark.parametrize(
    ("template", "opted", "warned"),
    [
        ({"storageClassName": "lh"}, True, False),
        ({"storageClassName": "nfs"}, False, False),
        ({}, True, False),
        ({"storageClassName": "gone"}, True, True),
        ({"storageClassName": ""}, True, False),
    ],
)
def test_ephemeral_volumes_go_by_their_template_until_their_claim_is_there(
    template: Raw, opted: bool, warned: bool
) -> None:
    found, raw = Known(), pod(volumes=[ephemeral(**template)], meta={"name": "p"})
    assert (opted, warned) == (opts_in(raw, found), bool(plan(raw, found).warnings))
    found.add_claim("p-scratch", storageClassName="lh")
    assert opts_in(raw, found)


def test_pods_that_kube_scheduler_does_not_place_are_left_alone() -> None:
    assert "bound" == plan(pod("ours", nodeName="n1")).skipped
    assert "scheduler" == plan(pod("ours", schedulerName="volcano")).skipped
    assert opts_in(pod("ours", schedulerName="default-scheduler"))
    assert opts_in(pod("ours", schedulerName=""))
    second = OptInPolicy(scheduler_names=frozenset({"second"}))
    assert opts_in(pod("ours", schedulerName="second"), policy=second)
    assert not opts_in(pod("ours"), policy=second)


@pytest.mark.parametrize("namespace", ["kube-system", "longhorn-system"])
def test_namespaces_of_the_system_are_left_alone(namespace: str) -> None:
    assert "namespace" == plan(pod("ours"), namespace=namespace).skipped


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_a_pod_or_its_namespace_opts_out(place: str) -> None:
    found = Known()
    assert "opted-out" == plan(pod("ours", meta={place: {MARK: "false"}}), found).skipped
    found.mark("false")
    assert "opted-out" == plan(pod("ours"), found).skipped
    assert opts_in(pod("ours", meta={place: {MARK: "True"}}), found)  # the pod's own word stands


def test_only_marked_pods_where_that_is_asked_for() -> None:
    found, policy = Known(), OptInPolicy(only_marked=True)
    assert "not-marked" == plan(pod("ours"), found, policy).skipped
    assert opts_in(pod("ours", meta={"labels": {MARK: "true"}}), found, policy)
    assert not opts_in(pod("theirs", meta={"labels": {MARK: "true"}}), found, policy)
    found.mark("true")
    assert opts_in(pod("ours"), found, policy)
    assert not opts_in(pod("ours", meta={"annotations": {MARK: "false"}}), found, policy)


# KubeVirt


def launcher(*claims: str, **labels: str) -> Raw:
    return pod(*claims, meta={"labels": {"kubevirt.io": "virt-launcher", **labels}})


def co_scheduled(raw: Raw, found: Known) -> str | None:
    value: str | None = patched(raw, plan(raw, found))["metadata"].get("annotations", {}).get(CO_SCHEDULE)
    return value


def test_launcher_pods_with_a_shared_volume_follow_its_share_manager() -> None:
    found = Known()
    found.add_claim("shared", storageClassName="lh", accessModes=["ReadWriteMany"])
    found.add_claim("foreign", storageClassName="nfs", accessModes=["ReadWriteMany"])
    assert "true" == co_scheduled(launcher("shared"), found)
    for raw in (
        pod("shared"),
        launcher("ours"),
        launcher("ours", "foreign"),
        launcher("shared", **{"kubevirt.io/migrationJobUID": "m"}),
    ):
        assert co_scheduled(raw, found) is None
        assert opts_in(raw, found)


def test_what_a_launcher_pod_says_itself_stands() -> None:
    found = Known()
    found.add_claim("shared", storageClassName="lh", accessModes=["ReadWriteMany"])
    raw = launcher("shared")
    raw["metadata"]["annotations"] = {CO_SCHEDULE: "false"}
    assert "false" == co_scheduled(raw, found)
    del raw["metadata"]["annotations"]
    assert OptIn(skipped="asks-already") == plan(patched(raw, plan(raw, found)), found)


# Warnings and bad input


def test_strict_local_for_several_nodes_is_warned_of() -> None:
    found = Known()
    for parameters, warned in (
        ({"dataLocality": "strict-local"}, True),
        ({"dataLocality": "strict-local", "migratable": "true"}, False),
        ({"dataLocality": "best-effort"}, False),
    ):
        found.add_class("strict", **parameters)
        found.add_claim("shared", storageClassName="strict", accessModes=["ReadWriteMany"])
        found.add_claim("own", storageClassName="strict", accessModes=["ReadWriteOnce"])
        opt_in = plan(pod("shared", "own", "shared"), found)
        assert warned == bool(opt_in.warnings)
        assert len(opt_in.warnings) <= 1


@pytest.mark.parametrize(
    ("claim", "default", "missing"),
    [
        ("unknown", "lh", "it was"),
        ("typo", "lh", "StorageClass typo was"),
        ("default", "", "a default StorageClass was"),
        ("lost", "lh", "its volume was"),
        ("default", "lh", ""),
        ("static", "lh", ""),
        ("theirs", "lh", ""),
    ],
)
def test_a_warning_tells_what_is_not_found_and_the_pod_is_opted_in(claim: str, default: str, missing: str) -> None:
    found = Known()
    found.set_default(default)
    found.add_claim("typo", storageClassName="typo")
    found.add_claim("default")
    found.add_claim("lost", storageClassName="lh", volumeName="gone")
    found.add_claim("static", storageClassName="")
    opt_in = plan(pod(claim), found)
    assert (claim != "theirs") == bool(opt_in.operations)
    wanted = f"claim {claim}: {missing} not found yet; the pod is opted in"
    assert [True] * bool(missing) == [wanted in warning for warning in opt_in.warnings]


def test_a_warning_about_an_ephemeral_volume_names_its_claim() -> None:
    (warning,) = plan(pod(volumes=[ephemeral(storageClassName="typo")], meta={"name": "p"})).warnings
    assert "claim p-scratch: StorageClass typo was not found yet" in warning


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"volumes": {}}, "spec.volumes"),
        ({"volumes": ["x", {"name": "c", "persistentVolumeClaim": {"claimName": "ours"}}]}, "spec.volumes[0]"),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": 5}}]}, "spec.volumes[0].persistentVolumeClaim.claimName"),
        ({"volumes": [{"persistentVolumeClaim": "x"}]}, "spec.volumes[0].persistentVolumeClaim"),
        ({"containers": []}, "spec.containers"),
        ({"containers": ["x"]}, "spec.containers[0]"),
        ({"nodeName": 1}, "spec.nodeName"),
    ],
)
def test_a_bad_pod_is_refused_with_the_field(change: Raw, field: str) -> None:
    raw = pod("ours")
    raw["spec"].update(change)
    with pytest.raises(MalformedRequestError) as refused:
        plan(raw)
    assert field == refused.value.field
